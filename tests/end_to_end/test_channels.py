"""Channels between real processes, seen through the command line."""

import json

from harness import SEALBUS, Program, wait_for
from shops import AGENTS, trade

SHOPS = f"""
    [platform]
    name = "factory"
{AGENTS}
"""

HISTORY = """
    [platform]
    name = "factory"

    [[channel]]
    path = "/history"
    persistent = true
"""


def test_the_command_line_lists_publishes_reads_and_asks(platform, tmp_path):
    factory = platform(SHOPS)
    factory.up().active("shop-1", "shop-2")
    trade(factory, tmp_path, "proved")


def test_publishing_says_what_became_of_the_event(platform, tmp_path):
    factory = platform(HISTORY).up()

    def alive():
        return [each for each in factory.nodes().values() if each["state"] == "alive"]

    wait_for(alive, "the node", also=factory.logs)

    def publish(channel, text):
        return json.loads(factory.tell("channel", "publish", channel, text, "--json").stdout)

    def subscribers():
        return [each["channels"] for each in factory.ask("channel", "list")["subscriptions"]]

    kept = publish("/history", "one")
    assert (kept["processes"], kept["kept"]["number"]) == (0, 1)
    (log,) = factory.ask("channel", "list")["kept"]
    assert kept["kept"]["node"] == log["node"]
    assert publish("/gossip", "two") == {"channel": "/gossip", "processes": 0, "groups": 0, "kept": None}
    said = factory.tell("channel", "publish", "/gossip", "three").stdout.decode()
    assert "nobody has subscribed" in said
    said = factory.tell("channel", "publish", "/history", "four").stdout.decode()
    assert f"{log['node']} keeps it as #2; nobody listens now" in said

    arguments = ("channel", "tail", "/history", "--json", "--count", "2", "--state", factory.state)
    tail = Program([SEALBUS, *arguments], tmp_path / "tail")
    try:
        wait_for(lambda: "/history" in subscribers(), "the reader to subscribe", also=tail.output)
        heard = publish("/history", "five")
        assert (heard["processes"], heard["kept"]["number"]) == (1, 3)
        said = factory.tell("channel", "publish", "/history", "six").stdout.decode()
        assert "keeps it as #4; given to one process" in said
        assert tail.wait() == 0, tail.output()
    finally:
        tail.end()

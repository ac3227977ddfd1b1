"""Channels between real processes, seen through the command line."""

import json

from harness import PROGRAMS, SEALBUS, Program, sealbus, wait_for

SHOPS = f"""
    [platform]
    name = "factory"

    [[agent]]
    name = "shop-1"
    command = ["PYTHON", "{PROGRAMS}/shop.py", "shop-1"]

    [[agent]]
    name = "shop-2"
    command = ["PYTHON", "{PROGRAMS}/shop.py", "shop-2"]
"""


def test_the_command_line_lists_publishes_reads_and_asks(platform, tmp_path):
    factory = platform(SHOPS)
    factory.up().active("shop-1", "shop-2")
    state = ("--state", factory.state)

    def subscribers(channels):
        told = json.loads(sealbus("channel", "list", "--json", *state).stdout)
        return [each["agent"].split("@")[0] for each in told["subscriptions"] if each["channels"] == channels]

    wait_for(lambda: subscribers("/offers/**") == ["shop-1", "shop-2"], "both shops to subscribe")
    text = sealbus("channel", "list", *state).stdout.decode()
    assert "properties.price < 10" in text and "push-back" in text

    tail = Program([SEALBUS, "channel", "tail", "/echo", "--json", "--count", "2", *state], tmp_path / "tail")
    try:
        wait_for(lambda: subscribers("/echo"), "the reader to subscribe", also=tail.output)
        for word, price in (("dear", 12), ("cheap", 7)):
            sealbus("channel", "publish", "/offers/tea", word, "--property", f"price={price}", *state)
        assert tail.wait() == 0, tail.output()
    finally:
        tail.end()
    seen = [json.loads(line) for line in tail.output().splitlines() if line.startswith("{")]
    assert sorted(each["sender"] for each in seen) == ["shop-1@factory", "shop-2@factory"]
    assert {each["content"] for each in seen} == {"publish: cheap"}
    assert {(each["provenance"], each["channel"], each["mechanism"]) for each in seen} == {("proved", "/echo", "event")}

    asked = ("channel", "request", "/wanted/tea", "10 kg?", "--deadline", "60s", *state)
    told = json.loads(sealbus(*asked, "--json").stdout)
    assert [(each["sender"], each["content"]) for each in told["replies"]] == [("shop-1@factory", "9 EUR")]
    assert told["missing"] == ["shop-2@factory"]
    text = sealbus(*asked, "--first", "1").stdout.decode()
    assert "shop-1@factory (proved)" in text and "9 EUR" in text

    wrong = sealbus("channel", "tail", "/echo", "--filter", "price <", *state, expect=2).stderr.decode()
    assert "column 1" in wrong
    wrong = sealbus("channel", "publish", "/offers/*", "x", *state, expect=2).stderr.decode()
    assert "'*' stands for many channels" in wrong
    wrong = sealbus("channel", "publish", "/offers", "x", "--qos", "ack=majority", *state, expect=2).stderr.decode()
    assert "ack=majority" in wrong

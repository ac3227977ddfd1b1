"""A certified agent that tries to stop or to swallow the events of others."""

import base64

import pytest
from attacker.acl import message
from attacker.channels import KEEP, Subscriber, head, stamp
from attacker.mallory import milliseconds
from harness import PROGRAMS, bounded, wait_for
from pair import AGENTS

HERALDS = "".join(
    f"""
    [[agent]]
    name = "{name}"
    command = ["PYTHON", "{PROGRAMS}/herald.py"]
    node = "{node}"
    environment = {{ NOTES = "FOLDER", NAME = "{name}" }}
    write = ["FOLDER"]
"""
    for name, node in (("teller", "node-1"), ("listener", "node-2"))
)
MANIFEST = f"""
    [platform]
    name = "factory"
    nodes = 2
{AGENTS}{HERALDS}
    [[channel]]
    path = "/history"
    qos = "ack=disk"
    persistent = true

"""


class News:
    """An honest agent publishes all the time, and an honest one listens."""

    def __init__(self, factory):
        self.factory = factory
        self.notes = factory.directory / "notes"
        factory.active("teller", "listener")
        (self.notes / "listener-listens").touch()
        wait_for((self.notes / "listener-subscribed").exists, "a subscription", also=factory.logs)
        (self.notes / "teller-publishes").touch()
        self.hear_more()

    def heard(self):
        file = self.notes / "listener-heard"
        text = file.read_text() if file.exists() else ""
        return [int(line.split()[1]) for line in text[: text.rfind("\n") + 1].splitlines()]

    def hear_more(self, count=100):
        goal = len(self.heard()) + count
        wait_for(lambda: len(self.heard()) >= goal, "more events to be heard", also=self.factory.logs)
        heard = self.heard()
        assert heard == list(range(len(heard))), "once and in order"


@pytest.fixture(scope="module")
def news(factory, pair):
    return News(factory)


def test_a_subscriber_that_takes_nothing_stops_nobody(factory, pair, news, mallory):
    taken = mallory("idler")
    taken.appears()
    subscriber = Subscriber(taken, "teller")
    subscriber.announce("/**", credit=0)
    subscriber.has_announced_all()
    news.hear_more()
    pair.talks()


def test_a_process_that_announces_nothing_stops_nobody(factory, pair, news, mallory):
    """A publisher is told its name once, and goes on."""
    mallory("silent").appears()
    news.hear_more()
    news.hear_more()
    pair.talks()


def test_costly_filters_cost_their_own_process(factory, pair, news, mallory):
    taken = mallory("costly")
    taken.appears()
    subscriber = Subscriber(taken, "teller")
    costly = " || ".join(["content.contains('no such text')"] * 50)
    with bounded(pair.pids(), 128):
        for _ in range(4000):
            subscriber.announce("/**", costly, credit=1 << 30)
        subscriber.has_announced_all()
        news.hear_more(200)
    pair.talks()


def test_nobody_takes_the_place_of_anothers_events(factory, pair, news, mallory):
    """A log recognises repeated events by session and number, which subscribers see: claimed first, they would swallow the victim's."""
    first, second = mallory("first"), mallory("second")

    def keep(taken, channel, text, count, session=7):
        body = message("inform", taken.name, ["df@factory"], text)
        frame = bytes([KEEP]) + stamp(session, count) + head(channel, count, milliseconds(), persistent=True) + body
        event = {"publisher": taken.local_name, "frame": base64.b64encode(frame).decode()}
        return taken.rpc.call(ask="channel-log", node="node-1", request={"log": "keep", "events": [event]})

    numbers = []
    for taken, text in ((first, "the attacker's"), (second, "the victim's")):
        for count in (1, 2, 3):
            (outcome,) = keep(taken, "/history", text, count)["log"]["outcomes"]
            numbers.append(outcome["number"])
    assert len(set(numbers)) == 6, numbers
    pair.talks()


def test_nobody_publishes_in_anothers_name(factory, pair, news, mallory):
    taken = mallory("forger")
    body = message("inform", "teller@factory", ["df@factory"], "x")
    frame = bytes([KEEP]) + stamp(9, 1) + head("/history", 1, milliseconds(), persistent=True) + body
    for publisher in ("teller", "forger"):
        event = {"publisher": publisher, "frame": base64.b64encode(frame).decode()}
        answer = taken.rpc.call(ask="channel-log", node="node-1", request={"log": "keep", "events": [event]})
        assert "fault" in answer or "fault" in answer["log"]["outcomes"][0], answer
    news.hear_more()
    pair.talks()

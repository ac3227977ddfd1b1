"""Undelivered messages come back to their senders and are shown to the operator; an alarm is reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker import MESSAGES, Broker, queue_of, user_of
from conftest import REST, WORKERS
from harness import Platform, wait_for
from manifests import manifest
from talking import heard_of, order
from test_refusals import encoded

#: More than an agent has in its hands at a time.
MANY = 700


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Platform]:
    """A platform whose messages live for fifteen seconds, and whose bob is slow at times."""
    text = manifest('managed = true\nmessage-life = "15s"\n', WORKERS, rest=REST)
    bob = 'name = "bob"\n'
    assert bob in text
    text = text.replace(bob, f'{bob}environment = {{ SLOW = "{tmp_path}/slow" }}\n')
    platform = Platform(tmp_path, text)
    try:
        # A broker on a busy machine needs its time.
        platform.up(deadline=600)
        platform.active("alice", "bob")
        yield platform
    finally:
        platform.down()


def dead_letters(platform: Platform) -> list[dict[str, Any]]:
    return list(platform.ask("broker", "dead-letters"))


def test_what_expires_comes_back(hasty: Platform, tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.touch()
    order(hasty, "alice", "send", "bob", MANY, 0)

    def expired() -> list[dict[str, Any]]:
        return [letter for letter in dead_letters(hasty) if "expired" in letter["why"]]

    letters = wait_for(expired, "messages to expire", also=hasty.logs)
    for letter in letters:
        assert (letter["from"], letter["to"]) == ("alice@factory", "bob@factory")
        assert letter["performative"] == "inform"
        assert letter["told"]

    def told() -> bool:
        failures = order(hasty, "alice", "failures")
        return any("expired" in failure and "bob@factory" in failure for failure in failures)

    wait_for(told, "alice to be told", also=hasty.logs)
    slow.unlink()

    def all_there() -> bool:
        lost = len(order(hasty, "alice", "failures"))
        return len(heard_of(hasty, "bob", "alice")) + lost == MANY

    # Each was heard or came back, none both.
    wait_for(all_there, "every message to have been heard or to have come back", also=hasty.logs)
    numbers = heard_of(hasty, "bob", "alice")
    assert numbers == sorted(set(numbers))
    # The broker counts every few seconds.
    wait_for(lambda: hasty.ask("broker", "status")["kept"] > 0, "the broker to count them", also=hasty.logs)


def test_who_wrote_what_was_refused_is_told(
    platform: Platform, broker: Broker, tmp_path: Path
) -> None:
    """It is no forger; its message only has no number."""
    text = (
        "(inform :sender (agent-identifier :name carol@factory)"
        " :receiver (set (agent-identifier :name bob@factory)) :content 1)"
    )
    published(broker, tmp_path, "carol", text)

    def told() -> bool:
        return any("bob@factory" in failure for failure in order(platform, "carol", "failures"))

    wait_for(told, "carol to be told", also=platform.logs)
    (letter,) = [it for it in dead_letters(platform) if it["from"] == "carol@factory"]
    assert letter["told"] and letter["to"] == "bob@factory"


def test_who_forged_is_not_told_and_neither_is_the_other(
    platform: Platform, broker: Broker, tmp_path: Path
) -> None:
    text = (
        "(inform :sender (agent-identifier :name alice@factory)"
        " :receiver (set (agent-identifier :name bob@factory)) :content 424242)"
    )
    published(broker, tmp_path, "mallory", text)

    def there() -> list[dict[str, Any]]:
        return [letter for letter in dead_letters(platform) if letter["from"] == "mallory@factory"]

    (letter,) = wait_for(there, "the dead letter to be noted", also=platform.logs)
    assert not letter["told"]
    assert not [it for it in order(platform, "alice", "failures") if "424242" in it]


def published(broker: Broker, folder: Path, agent: str, text: str) -> None:
    import pika

    connection = broker.connect(broker.certificate(folder, agent))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        properties = pika.BasicProperties(
            message_id="no number",
            delivery_mode=2,
            user_id=user_of(agent),
            # As if it had died before, in the queue of another one.
            headers={"x-death": [{"queue": queue_of("alice"), "reason": "rejected"}]},
        )
        channel.basic_publish(MESSAGES, "bob@factory", encoded(text), properties, mandatory=True)
    finally:
        connection.close()


def test_an_alarm_is_reported_and_passes(platform: Platform, broker: Broker) -> None:
    def alarms() -> list[str]:
        (member,) = platform.ask("broker", "status")["members"]
        assert member["running"]
        return list(member["alarms"])

    assert alarms() == []
    broker.control("set_vm_memory_high_watermark", "0.00001")
    try:
        wait_for(lambda: alarms() == ["memory"], "the alarm to be shown", also=platform.logs)
        master = platform.directory / "up.log"
        wait_for(lambda: "short of memory" in master.read_text(), "the alarm to be logged", also=platform.logs)
        assert b"takes no messages" in platform.tell("broker", "status").stdout
    finally:
        broker.control("set_vm_memory_high_watermark", "0.6")
    wait_for(lambda: alarms() == [], "the alarm to pass", also=platform.logs)
    assert order(platform, "bob", "echo", "after") == "after"

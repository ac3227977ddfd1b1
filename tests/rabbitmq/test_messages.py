"""Agents talk over RabbitMQ as they do over the mesh."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from broker import Broker, queue_of, transient_queue_of, user_of
from harness import Platform, wait_for
from shops import trade
from talking import order, talk


def test_messages_both_ways_where_senders_are_proved(platform: Platform, broker: Broker) -> None:
    talk(platform)
    for agent in ("alice", "bob", "master", "ams", "node-1"):
        assert user_of(agent) in broker.users()
    assert queue_of("alice") in broker.queues()


def test_messages_and_channels_at_the_lower_levels(
    lower: Platform, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    talk(lower)
    trade(lower, tmp_path, "claimed")
    queues = Broker(lower.state).queues()
    is_transient = "transient" in request.node.name
    assert (transient_queue_of("alice") in queues) == is_transient
    assert (queue_of("alice") in queues) != is_transient


def test_a_message_to_nobody_comes_back(platform: Platform) -> None:
    order(platform, "alice", "send", "nobody", 1, 0)

    def look() -> bool:
        return any("nobody" in failure for failure in order(platform, "alice", "failures"))

    wait_for(look, "the failure to come back", also=platform.logs)


def test_what_an_agent_that_ended_left_unread_comes_back(platform: Platform, broker: Broker) -> None:
    platform.tell("kill", "carol")
    wait_for(lambda: user_of("carol") not in broker.users(), "carol's user to go", also=platform.logs)
    wait_for(lambda: queue_of("carol") not in broker.queues(), "carol's queue to go", also=platform.logs)
    order(platform, "alice", "send", "carol", 1, 0)

    def look() -> bool:
        return any("carol" in failure for failure in order(platform, "alice", "failures"))

    wait_for(look, "the failure to come back", also=platform.logs)


def test_the_broker_is_started_again_when_it_dies(platform: Platform, broker: Broker) -> None:
    order(platform, "alice", "echo", "before")
    pid = int((broker.folder / "broker.pid").read_text())
    os.kill(pid, signal.SIGKILL)

    def look() -> bool:
        try:
            return int((broker.folder / "broker.pid").read_text()) != pid and bool(broker.users())
        except (OSError, ValueError):
            return False

    # A broker on a busy machine needs its time.
    wait_for(look, "the broker to be there again", deadline=600, also=platform.logs)
    assert order(platform, "alice", "echo", "after") == "after"
    assert order(platform, "bob", "echo", "after") == "after"

"""A revocation takes effect while refused messages come faster than the Master takes dead letters, tried with pika.

Nothing but the revocation ends the flood, so a revocation that waits for the last dead letter never comes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from broker import MESSAGES, Broker, user_of
from conftest import started
from harness import Platform, wait_for
from test_refusals import closed, encoded

#: More than the Master takes before it looks at anything else.
MANY = 3000


@pytest.fixture
def flooded(tmp_path: Path) -> Iterator[Platform]:
    """A platform of its own, because agents are revoked."""
    yield from started(tmp_path, "auth")


class Flood:
    """Messages without a number, which every receiver refuses. They come until the broker closes the connection, each one when the
    broker has confirmed the one before: the Master cannot follow, a receiver that refuses them can, on any machine."""

    def __init__(self, broker: Broker, folder: Path, agent: str, receiver: str) -> None:
        self.connection = broker.connect(broker.certificate(folder, agent))
        self.sent = 0
        self.is_over = threading.Event()
        text = (
            f"(inform :sender (agent-identifier :name {agent}@factory)"
            f" :receiver (set (agent-identifier :name {receiver}@factory)) :content 1)"
        )
        message = encoded(text)
        own = pika.BasicProperties(message_id="no number", delivery_mode=2, user_id=user_of(agent))
        self.thread = threading.Thread(target=self._write, args=(f"{receiver}@factory", message, own))
        self.thread.start()

    def _write(self, key: str, message: bytes, own: Any) -> None:
        try:
            channel = self.connection.channel()
            channel.confirm_delivery()
            while not self.is_over.is_set():
                channel.basic_publish(MESSAGES, key, message, own)
                self.sent += 1
        except pika.exceptions.AMQPError:
            pass

    def goes_on(self) -> bool:
        return self.thread.is_alive()

    def end(self) -> None:
        self.is_over.set()
        self.thread.join()
        if self.connection.is_open:
            self.connection.close()


@contextmanager
def flood(broker: Broker, folder: Path, agent: str, receiver: str) -> Iterator[Flood]:
    flood = Flood(broker, folder, agent, receiver)
    try:
        yield flood
    finally:
        flood.end()


def dead(platform: Platform) -> int:
    return int(platform.ask("broker", "status")["dead"])


@pytest.mark.parametrize("receiver", ["bob", "node-2", "master"])
def test_a_revocation_comes_through_a_flood_of_dead_letters(
    flooded: Platform, tmp_path: Path, receiver: str
) -> None:
    """Of the agent that floods, and of another one. The flood is for an agent, for the node that passes the revocation on,
    or for the Master."""
    broker = Broker(flooded.state)
    before = flooded.agents()
    other = broker.connect(broker.certificate(tmp_path, "mallory"))
    with flood(broker, tmp_path, "carol", receiver) as floods:
        wait_for(lambda: floods.sent > MANY and dead(flooded) > 0, "dead letters to come", also=flooded.logs)
        flooded.tell("ca", "revoke", "mallory")
        wait_for(lambda: user_of("mallory") not in broker.users(), "mallory's user to go", also=flooded.logs)
        wait_for(lambda: closed(other), "the broker to close mallory's connection", also=flooded.logs)

        # Its own process, on the node that is flooded too, heard of it and ended.
        def has_ended() -> bool:
            return bool(flooded.agents()["mallory"]["pid"] != before["mallory"]["pid"])

        wait_for(has_ended, "mallory's process to end", also=flooded.logs)
        assert floods.goes_on(), "the flood has ended by itself"
        flooded.tell("ca", "revoke", "carol")
        wait_for(lambda: not floods.goes_on(), "the broker to close the flood's connection", also=flooded.logs)
    assert user_of("carol") not in broker.users()
    after = flooded.agents()
    for honest in ("alice", "bob", "shop-1", "shop-2"):
        assert after[honest]["pid"] == before[honest]["pid"], f"{honest} was started again"
    assert all(node["state"] == "alive" for node in flooded.nodes().values())

"""Refusals by the broker and by the receiving side, tried with pika.

The attacker has an agent's own certificate and key, as a program has that was taken over.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from broker import MESSAGES, Broker, queue_of, user_of
from harness import Platform, sealbus, wait_for

AS_ALICE = "(inform :sender (agent-identifier :name alice@factory) :receiver (set (agent-identifier :name bob@factory)) :content 987654321)"


def encoded(message: str) -> bytes:
    """An ACL message as agents send it."""
    return sealbus("acl", "convert", "--from", "string", "--to", "bitefficient", stdin=message.encode()).stdout


@pytest.fixture
def mallory(broker: Broker, tmp_path: Path) -> tuple[Path, Path]:
    return broker.certificate(tmp_path, "mallory")


def properties(**more: Any) -> pika.BasicProperties:
    return pika.BasicProperties(message_id="00000000000000aa-1-1", delivery_mode=2, **more)


def refused_on(
    broker: Broker, certificate: tuple[Path, Path], attempt: Callable[[Any], object], code: int
) -> None:
    """The broker closes the channel with `code`."""
    connection = broker.connect(certificate)
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            attempt(channel)
        assert refused.value.reply_code == code, refused.value
    finally:
        if connection.is_open:
            connection.close()


def test_a_forged_user_id_is_refused_by_the_broker(broker: Broker, mallory: tuple[Path, Path]) -> None:
    def attempt(channel: Any) -> None:
        forged = properties(user_id=user_of("alice"))
        channel.basic_publish(MESSAGES, "bob@factory", encoded(AS_ALICE), forged, mandatory=True)

    refused_on(broker, mallory, attempt, 406)


@pytest.mark.parametrize("with_user", [False, True])
def test_a_message_in_anothers_name_is_not_delivered(
    platform: Platform, broker: Broker, mallory: tuple[Path, Path], with_user: bool
) -> None:
    """Without user-id the broker lets it pass; with its own, `:sender` gives it away."""
    reason = "forged-sender" if with_user else "not-proved"

    def count() -> int:
        return sum(
            record["count"]
            for record in platform.refusals()
            if record["who"] == "alice@factory" and record["reason"].startswith(reason)
        )

    before = count()
    connection = broker.connect(mallory)
    channel = connection.channel()
    channel.confirm_delivery()
    own = properties(user_id=user_of("mallory")) if with_user else properties()
    channel.basic_publish(MESSAGES, "bob@factory", encoded(AS_ALICE), own, mandatory=True)
    connection.close()
    wait_for(lambda: count() > before, "bob's side to refuse it", also=platform.logs)
    assert "987654321" not in platform.send("bob", '["heard"]')


@pytest.mark.parametrize("what", ["get", "consume", "declare", "mark", "delete", "bind own", "default exchange"])
def test_what_belongs_to_others_is_refused(broker: Broker, mallory: tuple[Path, Path], what: str) -> None:
    theirs = queue_of("bob")

    def attempt(channel: Any) -> None:
        match what:
            case "get":
                channel.basic_get(theirs)
            case "consume":
                channel.basic_consume(theirs, lambda *_: None)
            case "declare":
                channel.queue_declare(queue_of("somebody"), durable=True)
            case "mark":
                # Without word of the broker's end, bob would not publish again what the broker has lost.
                channel.exchange_declare("Agent-bob@factory-Mark")
            case "delete":
                channel.queue_delete(theirs)
            case "bind own":
                # Its own queue, to receive bob's messages.
                channel.queue_bind(queue_of("mallory"), MESSAGES, "bob@factory")
            case "default exchange":
                channel.basic_publish("", theirs, encoded(AS_ALICE), properties(), mandatory=True)

    refused_on(broker, mallory, attempt, 403)


def test_nobody_comes_in_without_a_certificate(broker: Broker) -> None:
    # The broker refuses in the handshake or after it.
    with pytest.raises((pika.exceptions.AMQPError, OSError)):
        broker.connect(None)
    with pytest.raises((pika.exceptions.AMQPError, OSError)):
        broker.connect(None, password=("sealbus-operator", broker.password))


def test_nobody_comes_in_with_a_foreign_certificate(broker: Broker, tmp_path: Path) -> None:
    with pytest.raises((pika.exceptions.AMQPError, OSError)):
        broker.connect(broker.certificate(tmp_path, "mallory", foreign=True))


def test_nobody_comes_in_who_was_not_admitted(broker: Broker, tmp_path: Path) -> None:
    stranger = broker.certificate(tmp_path, "stranger")
    with pytest.raises(pika.exceptions.AMQPError):
        broker.connect(stranger)


def test_a_password_is_no_way_in_for_an_agent(broker: Broker, mallory: tuple[Path, Path]) -> None:
    for password in (("UID=alice,CN=127.0.0.1", ""), ("sealbus-operator", broker.password)):
        with pytest.raises(pika.exceptions.AMQPError):
            broker.connect(mallory, password=password)


def test_plain_text_gets_no_answer(broker: Broker) -> None:
    with pytest.raises(pika.exceptions.AMQPError):
        broker.connect(None, plain=True, password=("sealbus-operator", broker.password))


def closed(connection: Any) -> bool:
    """Whether the broker has closed it."""
    try:
        connection.process_data_events(0.1)
    except pika.exceptions.AMQPError:
        return True
    return False


def test_an_agent_has_a_bounded_number_of_connections(broker: Broker, mallory: tuple[Path, Path]) -> None:
    connections: list[Any] = []
    try:
        with pytest.raises(pika.exceptions.AMQPError):
            while len(connections) < 64:
                connections.append(broker.connect(mallory))
        # The agent itself has one too.
        assert 10 <= len(connections) < 16
    finally:
        for connection in connections:
            connection.close()


def test_who_is_revoked_loses_user_and_open_connection(
    platform: Platform, broker: Broker, mallory: tuple[Path, Path]
) -> None:
    connection = broker.connect(mallory)
    platform.tell("ca", "revoke", "mallory")
    wait_for(lambda: user_of("mallory") not in broker.users(), "mallory's user to go", also=platform.logs)

    wait_for(lambda: closed(connection), "the broker to close mallory's connection", also=platform.logs)
    with pytest.raises(pika.exceptions.AMQPError):
        broker.connect(mallory)


def test_who_moves_to_another_address_loses_the_old_user_and_its_open_connection(
    platform: Platform, broker: Broker, tmp_path: Path
) -> None:
    connection = broker.connect(broker.certificate(tmp_path, "shop-1"))
    platform.node("node-3", "--address", "127.0.0.2")
    platform.tell("move", "shop-1", "node-3")

    def moved() -> bool:
        agent = platform.agents()["shop-1"]
        return bool(agent["node"] == "node-3" and agent["state"] == "active")

    wait_for(moved, "shop-1 to run on node-3", also=platform.logs)
    assert "UID=shop-1,CN=127.0.0.2" in broker.users()
    wait_for(lambda: user_of("shop-1") not in broker.users(), "its old user to go", also=platform.logs)
    wait_for(lambda: closed(connection), "the broker to close its old connection", also=platform.logs)
    with pytest.raises(pika.exceptions.AMQPError):
        broker.connect(broker.certificate(tmp_path, "shop-1"))

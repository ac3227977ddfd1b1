"""Channels over RabbitMQ, and an attacker that tries forbidden things with pika.

The attacker has the certificate and key of its agent and of its process, as a program has that was taken over.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pytest

from broker import CHANNELS, Broker, queue_of, queue_of_process, user_of
from harness import Platform, sealbus, wait_for
from shops import trade
from test_refusals import refused_on

STAMP = "00000000000000bb-1-1"


def test_channels_work_as_over_the_mesh(platform: Platform, tmp_path: Path) -> None:
    trade(platform, tmp_path, "vouched")


def process_of(platform: Platform, broker: Broker, agent: str) -> str:
    """The process of an agent as a path, `node/…/process/…`. The broker counts its connections every few seconds."""
    pid = platform.agents()[agent]["pid"]
    return wait_for(lambda: broker.process_at(pid), f"{agent}'s process to be connected", also=platform.logs)


@pytest.fixture
def attacker(platform: Platform, broker: Broker, tmp_path: Path) -> tuple[str, tuple[Path, Path]]:
    """The process of carol, and its certificate."""
    process = process_of(platform, broker, "carol")
    return process, broker.certificate(tmp_path, process)


def frame(**more: Any) -> pika.BasicProperties:
    return pika.BasicProperties(message_id=STAMP, delivery_mode=2, type="frame", **more)


def key_of(process: str) -> str:
    return f"to.{process.rsplit('/', 1)[1]}"


@pytest.mark.parametrize("what", ["publish", "bind own", "get", "consume", "delete"])
def test_an_agent_has_no_business_with_frames(
    platform: Platform, broker: Broker, tmp_path: Path, what: str
) -> None:
    carol = broker.certificate(tmp_path, "carol")
    process = process_of(platform, broker, "bob")
    theirs = queue_of_process(process)

    def attempt(channel: Any) -> None:
        match what:
            case "publish":
                own = frame(user_id=user_of("carol"))
                channel.basic_publish(CHANNELS, key_of(process), b"x", own, mandatory=True)
            case "bind own":
                channel.queue_bind(queue_of("carol"), CHANNELS, "#")
            case "get":
                channel.basic_get(theirs)
            case "consume":
                channel.basic_consume(theirs, lambda *_: None)
            case "delete":
                channel.queue_delete(theirs)

    refused_on(broker, carol, attempt, 403)


@pytest.mark.parametrize("what", ["bind own to all", "bind own to theirs", "get", "consume", "declare", "forge"])
def test_a_process_reads_only_what_is_for_it(
    platform: Platform, broker: Broker, attacker: tuple[str, tuple[Path, Path]], what: str
) -> None:
    process, certificate = attacker
    own, victim = queue_of_process(process), process_of(platform, broker, "bob")

    def attempt(channel: Any) -> None:
        match what:
            case "bind own to all":
                channel.queue_bind(own, CHANNELS, "#")
            case "bind own to theirs":
                channel.queue_bind(own, CHANNELS, key_of(victim))
            case "get":
                channel.basic_get(queue_of_process(victim))
            case "consume":
                channel.basic_consume(queue_of_process(victim), lambda *_: None)
            case "declare":
                channel.queue_declare("Process-somebody-FrameQueue", durable=True)
            case "forge":
                forged = frame(user_id=user_of(victim))
                channel.basic_publish(CHANNELS, key_of(victim), b"x", forged, mandatory=True)

    refused_on(broker, certificate, attempt, 406 if what == "forge" else 403)


def published(
    platform: Platform,
    broker: Broker,
    certificate: tuple[Path, Path],
    properties: pika.BasicProperties,
    refused: Callable[[dict[str, Any]], bool],
) -> None:
    """Events for bob's process are refused there."""

    def count() -> int:
        return sum(record["count"] for record in platform.refusals() if refused(record))

    before = count()
    connection = broker.connect(certificate)
    channel = connection.channel()
    channel.confirm_delivery()
    to = key_of(process_of(platform, broker, "bob"))
    channel.basic_publish(CHANNELS, to, b"\x01", properties, mandatory=True)
    connection.close()
    wait_for(lambda: count() > before, "bob's process to refuse it", also=platform.logs)


def test_a_frame_without_user_id_is_refused(
    platform: Platform, broker: Broker, attacker: tuple[str, tuple[Path, Path]]
) -> None:
    nobody = frame(headers={"author": "alice@factory"})
    published(
        platform,
        broker,
        attacker[1],
        nobody,
        lambda record: record["who"] == "alice@factory" and record["reason"].startswith("not-proved"),
    )


def test_a_frame_of_another_processes_agent_is_refused(
    platform: Platform, broker: Broker, attacker: tuple[str, tuple[Path, Path]]
) -> None:
    """The broker knows the process; that alice speaks through it only alice can sign."""
    process, certificate = attacker
    for proof in ({}, {"proof": b"no proof at all"}):
        forged = frame(user_id=user_of(process), headers={"author": "alice@factory", **proof})
        forged.message_id = f"{'0' * 14}{len(proof)}c-1-1"
        published(
            platform,
            broker,
            certificate,
            forged,
            lambda record: record["who"] == "alice@factory" and record["reason"].startswith("not-proved"),
        )


def test_who_may_not_publish_is_told_so(platform: Platform) -> None:
    """The manifest does not let operators' agents publish here."""
    refused = sealbus(
        "channel", "publish", "/reserved/tea", "x", "--state", platform.state, expect=None
    )
    assert refused.returncode != 0
    assert "/reserved/tea" in refused.stderr.decode()


def test_processes_that_have_ended_leave_nothing_behind(platform: Platform, broker: Broker) -> None:
    process = process_of(platform, broker, "shop-2")
    assert user_of(process) in broker.users() and queue_of_process(process) in broker.queues()
    platform.tell("kill", "shop-2")
    wait_for(lambda: user_of(process) not in broker.users(), "its user to go", also=platform.logs)
    wait_for(lambda: queue_of_process(process) not in broker.queues(), "its queue to go", also=platform.logs)

"""The levels `signed` and `sealed` over RabbitMQ: the author's evidence travels with each message, and the broker reads nothing.

The attacker of the last test is the broker's operator, who has all rights there and writes in the name of every user.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from broker import MESSAGES, Broker, queue_of, user_of
from harness import PROGRAMS, Platform, wait_for
from manifests import manifest

MARKER = "nobody-but-bob-may-read-this"
TEXTS = [f"{MARKER} {number}" for number in range(20)]
AGENTS = ("alice", "bob", "carol", "eve")


class Notaries:
    """Agents that say what they are told to."""

    def __init__(self, folder: Path, level: str) -> None:
        agents = "".join(
            f"""
            [[agent]]
            name = "{name}"
            command = ["PYTHON", "{PROGRAMS}/notary.py"]
            environment = {{ SLOW = "{folder}/slow" }}
            read = ["{folder}"]
            """
            for name in AGENTS
        )
        self.platform = Platform(folder, manifest("managed = true\n", {}, level, agents))
        self.slow = folder / "slow"

    def ask(self, agent: str, *order: Any) -> Any:
        return json.loads(self.platform.send(agent, json.dumps(order)))

    def heard(self, whence: str, agent: str = "bob") -> list[tuple[str, str]]:
        """The texts that it heard there from alice, and how."""
        found = self.ask(agent, "heard")
        return [(text, how) for where, sender, text, how in found if (where, sender) == (whence, "alice@factory")]

    def hears(self, whence: str, texts: list[str], how: str) -> None:
        right = [(text, how) for text in texts]
        wait_for(lambda: len(self.heard(whence)) >= len(right), f"all of {whence}", also=self.platform.logs)
        assert self.heard(whence) == right

    def refusals(self, reason: str) -> int:
        records = self.platform.refusals()
        return sum(int(record["count"]) for record in records if reason in record["reason"])


@pytest.fixture
def notaries(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Notaries]:
    notaries = Notaries(tmp_path, request.param)
    try:
        notaries.platform.up(deadline=600)
        notaries.platform.active(*AGENTS)
        yield notaries
    finally:
        notaries.platform.down()


@pytest.mark.parametrize("notaries", ["auth", "signed", "sealed"], indirect=True)
def test_what_is_said_bears_its_authors_proof(notaries: Notaries) -> None:
    level = notaries.platform.ask("status")["level"]
    default = {"auth": "vouched", "signed": "signed", "sealed": "sealed signed"}[level]
    assert notaries.ask("alice", "say", "bob", TEXTS) is None
    notaries.hears("direct", TEXTS, default)
    if level != "sealed":
        assert notaries.ask("alice", "vow", "bob", TEXTS[:5]) is None
        wait_for(lambda: len(notaries.heard("direct")) >= 25, "what is signed", also=notaries.platform.logs)
        assert notaries.heard("direct")[20:] == [(text, "signed") for text in TEXTS[:5]]
    before = len(notaries.heard("direct"))
    assert notaries.ask("alice", "seal", "bob", TEXTS[:5]) is None
    wait_for(lambda: len(notaries.heard("direct")) >= before + 5, "what is sealed", also=notaries.platform.logs)
    assert notaries.heard("direct")[before:] == [(text, "sealed signed") for text in TEXTS[:5]]
    assert notaries.ask("alice", "post", "bob", TEXTS) is None
    kept = {"auth": "carried", "signed": "signed", "sealed": "sealed signed"}[level]
    notaries.hears("kept", TEXTS, kept)
    for qos in {"auth": ["level=signed", "level=sealed"], "signed": ["", "level=sealed"], "sealed": [""]}[level]:
        heard = len(notaries.heard("/quotes"))
        how = "sealed signed" if "sealed" in (qos, level) or qos == "level=sealed" else "signed"
        assert notaries.ask("alice", "quote", qos or "priority=7", TEXTS) is None
        wait_for(lambda: len(notaries.heard("/quotes")) >= heard + 20, f"events with {qos}", also=notaries.platform.logs)
        assert notaries.heard("/quotes")[heard:] == [(text, how) for text in TEXTS]
    assert not notaries.platform.refusals()


@pytest.mark.parametrize("notaries", ["signed"], indirect=True)
def test_unread_messages_keep_their_proof_when_their_receiver_moves(notaries: Notaries) -> None:
    notaries.slow.touch()
    assert notaries.ask("alice", "say", "bob", TEXTS) is None
    node = notaries.platform.agents()["bob"]["node"]
    notaries.platform.ask("move", "bob", "node-1" if node == "node-2" else "node-2")
    notaries.platform.active("bob")
    assert notaries.ask("alice", "say", "bob", TEXTS) is None
    notaries.slow.unlink()
    notaries.hears("direct", TEXTS + TEXTS, "signed")


class Tap:
    """The broker's operator, who gives the agent eve all rights there, takes what alice sends to bob out of its way, and puts in
    what it likes. The messages of others pass."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        eve = user_of("eve")
        broker.control("set_user_tags", eve, "administrator", "impersonator")
        broker.control("set_permissions", "-p", "factory", eve, ".*", ".*", ".*")
        certificate = broker.certificate(folder, "eve")
        self.taken: list[tuple[pika.BasicProperties, bytes]] = []
        self.is_over = threading.Event()
        self.channel = broker.connect(certificate).channel()
        self.channel.confirm_delivery()
        passing = broker.connect(certificate).channel()
        passing.confirm_delivery()
        passing.queue_declare("tap", exclusive=True)
        passing.queue_bind("tap", MESSAGES, "bob@factory")
        passing.queue_unbind(queue_of("bob"), MESSAGES, "bob@factory")
        self.thread = threading.Thread(target=self._pass, args=(passing,))
        self.thread.start()

    def _pass(self, channel: Any) -> None:
        while not self.is_over.wait(0.01):
            _, properties, body = channel.basic_get("tap", auto_ack=True)
            if properties is not None and properties.user_id == user_of("alice"):
                self.taken.append((properties, body))
            elif properties is not None:
                channel.basic_publish("", queue_of("bob"), body, properties, mandatory=True)
        channel.queue_bind(queue_of("bob"), MESSAGES, "bob@factory")
        channel.connection.close()

    def put(self, properties: pika.BasicProperties, body: bytes, receiver: str = "bob", **other: Any) -> None:
        changed = pika.BasicProperties(**{**vars(properties), **other})
        self.channel.basic_publish("", queue_of(receiver), body, changed, mandatory=True)

    def end(self) -> None:
        self.is_over.set()
        self.thread.join()
        self.channel.connection.close()


@pytest.fixture
def tap(notaries: Notaries, tmp_path: Path) -> Iterator[Tap]:
    tap = Tap(Broker(notaries.platform.state), tmp_path)
    yield tap
    tap.end()


@pytest.mark.parametrize("notaries", ["sealed"], indirect=True)
def test_a_broker_neither_reads_nor_changes_what_is_sealed(notaries: Notaries, tap: Tap) -> None:
    assert notaries.ask("alice", "say", "bob", TEXTS[:6]) is None
    wait_for(lambda: len(tap.taken) >= 6, "the messages to pass", also=notaries.platform.logs)
    sent = list(tap.taken)
    # It reads that alice writes to bob, and nothing that she says.
    assert all(b"alice@factory" in body and MARKER not in repr((vars(properties), body)) for properties, body in sent)

    def refused(reason: str, act: Callable[[], None]) -> None:
        before = notaries.refusals(reason)
        act()
        wait_for(lambda: notaries.refusals(reason) > before, f"the refusal for {reason}", also=notaries.platform.logs)

    (first, body), (second, other_body) = sent[:2]
    evidence = first.headers["evidence"]
    stamps = (f"{epoch:016x}-1-1" for epoch in range(1, 100))
    flipped = [body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :] for place in (len(body) // 2, len(body) - 9)]
    for wrong in flipped:
        refused("", lambda: tap.put(first, wrong, message_id=next(stamps)))
    wrong_proof = bytes([*evidence[:-1], evidence[-1] ^ 1])
    refused("not-proved", lambda: tap.put(first, body, message_id=next(stamps), headers={"evidence": wrong_proof}))
    refused("did not sign it", lambda: tap.put(first, body, message_id=next(stamps), headers={}))
    refused("not-proved", lambda: tap.put(second, body, message_id=next(stamps)))
    refused("not-proved", lambda: tap.put(first, body, "carol", message_id=next(stamps)))
    refused("forged-sender", lambda: tap.put(first, body, message_id=next(stamps), user_id=user_of("carol")))
    assert notaries.heard("direct") == notaries.heard("direct", "carol") == []

    # A true message is taken once, whatever number the broker gives to it.
    said = [(text, "sealed signed") for text in TEXTS]
    tap.put(first, body)
    notaries.hears("direct", TEXTS[:1], "sealed signed")
    tap.put(first, body)
    refused("repeats", lambda: tap.put(first, body, message_id=next(stamps)))
    # A later message overtakes an earlier one.
    tap.put(*sent[2], message_id=next(stamps))
    wait_for(lambda: len(notaries.heard("direct")) == 2, "the third message", also=notaries.platform.logs)
    refused("order of messages", lambda: tap.put(second, other_body))
    refused("repeats", lambda: tap.put(*sent[2]))
    # The messages that were held back come.
    for message in sent[3:]:
        tap.put(*message)
    wait_for(lambda: len(notaries.heard("direct")) == 5, "the messages held back", also=notaries.platform.logs)
    assert notaries.heard("direct") == [said[0], said[2], *said[3:6]]

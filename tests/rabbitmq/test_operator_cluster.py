"""A platform on a cluster of three brokers, set up and started by hand as docs/rabbitmq.md says: brokers die while agents talk."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import PROGRAMS, Platform, sealbus, wait_for
from manifests import manifest
from operator_brokers import OperatorBroker
from ports import free_ports
from talking import heard_of, order

#: Numbers that alice sends bob for each broker that dies, a few milliseconds apart.
MANY = 400
#: Three brokers and a platform on a busy machine need their time.
LONG = 900
HERALDS = ("herald-1", "herald-2")


def manifest_of(brokers: list[OperatorBroker], notes: Path) -> str:
    operated = f"""\
        addresses = {json.dumps([f"127.0.0.1:{each.amqp}" for each in brokers])}
        management = {json.dumps([f"127.0.0.1:{each.management}" for each in brokers])}
        operator = "manager"
        password-file = "operator.secret"
    """
    heralds = "".join(
        f"""
        [[agent]]
        name = "{name}"
        command = ["PYTHON", "{PROGRAMS}/herald.py"]
        node = "node-{number}"
        environment = {{ NOTES = "{notes}", PAUSE = "0.02" }}
        write = ["{notes}"]
        """
        for number, name in enumerate(HERALDS, 1)
    )
    return manifest(operated, {"alice": "node-1", "bob": "node-2"}, rest=heralds)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[OperatorBroker]]:
    mapper, *ports = free_ports(10)
    made = [
        OperatorBroker(tmp_path / f"config-{number}", tmp_path / f"data-{number}", *ports[number::3], mapper)
        for number in range(3)
    ]
    try:
        yield made
    finally:
        for broker in made:
            broker.kill()
        for broker in made:
            broker.end()


def set_up(platform: Platform, brokers: list[OperatorBroker]) -> None:
    """As the written instructions say."""
    cookie = secrets.token_hex(16)
    for broker in brokers:
        # All are on one machine, so the ports say which is meant.
        sealbus(
            "broker", "rabbitmq", platform.manifest, "--state", platform.state, "--write-config", broker.config,
            "--listen", "127.0.0.1", "--port", str(broker.amqp), "--management-port", str(broker.management),
        )  # fmt: skip
        broker.keep_cookie(cookie)
        broker.spawn()
    for broker in brokers:
        broker.wait()
    first, *others = brokers
    for broker in others:
        broker.control("stop_app")
        broker.control("join_cluster", first.node)
        broker.control("start_app")


class Cluster:
    """The brokers as their operator sees them."""

    def __init__(self, platform: Platform, brokers: list[OperatorBroker]) -> None:
        self.platform = platform
        self.brokers = brokers
        self.password = (platform.directory / "operator.secret").read_text().strip()

    def complete(self) -> None:
        """Waits until every broker has a copy of every queue that works: without one of them a majority is left."""
        nodes = {broker.node for broker in self.brokers}

        def look() -> bool:
            queues = self.brokers[0].ask("queues/factory?columns=name,online", "manager", self.password)
            told = [queue for queue in queues or [] if queue["name"].startswith(("Agent-", "Process-"))]
            return bool(told) and all(nodes <= set(queue.get("online", [])) for queue in told)

        wait_for(look, "all copies of all queues", LONG, also=self.platform.logs)

    def members(self) -> dict[str, bool]:
        """The members that run, as `sealbus broker status` shows them."""
        done = self.platform.tell("broker", "status", "--json", expect=None)
        if done.returncode:
            return {}
        return {member["name"]: member["running"] for member in json.loads(done.stdout)["members"]}

    def shows(self, broker: OperatorBroker, running: bool) -> None:
        what = f"`sealbus broker status` to show that {broker.node} {'runs' if running else 'does not run'}"
        wait_for(lambda: self.members().get(broker.node) == running, what, LONG, also=self.platform.logs)


class Talk:
    """Numbers that alice sends bob while something happens."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.heard, self.lost = self.counts()
        order(platform, "alice", "send", "bob", MANY, 5000)
        self.reach(MANY // 10)

    def counts(self) -> tuple[int, int]:
        lost = len(order(self.platform, "alice", "failures"))
        return len(heard_of(self.platform, "bob", "alice")), lost

    def reach(self, number: int) -> None:
        def look() -> bool:
            return sum(self.counts()) >= self.heard + self.lost + number

        wait_for(look, f"{number} numbers to be heard or to come back", LONG, also=self.platform.logs)

    def finish(self, lost: bool = False) -> None:
        """Each was heard, once and in order. Without a majority for a minute some may have come `lost` back."""
        self.reach(MANY)
        numbers = heard_of(self.platform, "bob", "alice")[self.heard :]
        failures = order(self.platform, "alice", "failures")[self.lost :]
        if not lost:
            assert (numbers, failures) == (list(range(MANY)), [])
        assert numbers == sorted(set(numbers))


class News:
    """Numbers that a herald publishes on a channel, and the other one hears."""

    def __init__(self, platform: Platform, notes: Path, publisher: str, listener: str) -> None:
        self.platform = platform
        self.notes = notes
        self.publisher, self.listener = publisher, listener
        (notes / f"{publisher}-publishes").touch()
        self.reach(50)

    def lines(self, name: str) -> list[str]:
        file = self.notes / name
        text = file.read_text() if file.exists() else ""
        # The last one may not be whole yet.
        return text[: text.rfind("\n") + 1].splitlines()

    def heard(self) -> list[int]:
        words = [line.split() for line in self.lines(f"{self.listener}-heard")]
        return [int(number) for publisher, number in words if publisher == f"{self.publisher}@factory"]

    def lost(self) -> list[str]:
        return self.lines(f"{self.publisher}-lost")

    def reach(self, number: int) -> None:
        def look() -> bool:
            return len(self.heard()) + len(self.lost()) >= number

        wait_for(look, f"{number} events to be heard or to come back", LONG, also=self.platform.logs)

    def goes_on(self) -> None:
        """Events from now on are heard as well, and nothing was lost meanwhile."""
        self.reach(len(self.heard()) + 100)
        assert self.lost() == []

    def finish(self) -> None:
        """Each was heard, once and in order."""
        (self.notes / f"{self.publisher}-publishes").unlink()
        published = self.notes / f"{self.publisher}-published"
        # It makes the file, and then writes into it.
        text = wait_for(lambda: published.exists() and published.read_text(), "the herald to stop", LONG)
        self.reach(int(text))
        assert self.lost() == []
        assert self.heard() == list(range(int(text)))


@pytest.mark.timeout(3600)
def test_any_broker_dies_under_traffic_and_then_all(tmp_path: Path, brokers: list[OperatorBroker]) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    platform = Platform(tmp_path, manifest_of(brokers, notes))
    try:
        set_up(platform, brokers)
        cluster = Cluster(platform, brokers)
        platform.up(deadline=LONG)
        before = platform.active("alice", "bob", *HERALDS, deadline=LONG)
        for herald in HERALDS:
            (notes / f"{herald}-listens").touch()
            wait_for((notes / f"{herald}-subscribed").exists, f"{herald} to listen", LONG, also=platform.logs)
        news = News(platform, notes, *HERALDS)
        for broker in brokers:
            cluster.complete()
            talk = Talk(platform)
            broker.kill()
            cluster.shows(broker, running=False)
            talk.finish()
            news.goes_on()
            broker.spawn()
            broker.wait()
            cluster.shows(broker, running=True)
        cluster.complete()
        news.finish()
        # The Master and the agents find the cluster again when all of it was gone. None of it comes up alone.
        talk = Talk(platform)
        for broker in brokers:
            broker.kill()
        for broker in brokers:
            broker.spawn()
        for broker in brokers:
            broker.wait()
        cluster.complete()
        talk.finish(lost=True)
        after = platform.active("alice", "bob", *HERALDS, deadline=LONG)
        Talk(platform).finish()
        News(platform, notes, *reversed(HERALDS)).finish()
        # The broker's death is no death of theirs.
        assert {name: agent["pid"] for name, agent in after.items()} == {
            name: agent["pid"] for name, agent in before.items()
        }
        assert {node["state"] for node in platform.nodes().values()} == {"alive"}
    finally:
        platform.down()

"""A platform on a RabbitMQ that an operator set up with `sealbus broker rabbitmq`, and started by hand."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import Platform, sealbus, wait_for
from manifests import manifest
from operator_brokers import OperatorBroker
from ports import free_ports
from talking import talk

#: A node that is silent for 8 s is dead, unless the broker is.
AWAY = 12.0


def manifest_of(broker: OperatorBroker) -> str:
    operated = f"""\
        addresses = ["127.0.0.1:{broker.amqp}"]
        management = ["127.0.0.1:{broker.management}"]
        operator = "manager"
        password-file = "operator.secret"
    """
    return manifest(operated, {"alice": "node-1", "bob": "node-2"})


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OperatorBroker]:
    amqp, management, distribution, mapper = free_ports(4)
    broker = OperatorBroker(
        tmp_path / "config", tmp_path / "data", amqp, management, distribution, mapper
    )
    try:
        yield broker
    finally:
        broker.end()


@pytest.mark.timeout(3600)
def test_a_broker_from_written_files(tmp_path: Path, broker: OperatorBroker) -> None:
    platform = Platform(tmp_path, manifest_of(broker))
    try:
        write = ["broker", "rabbitmq", platform.manifest, "--state", platform.state, "--write-config"]
        told = json.loads(sealbus(*write, broker.config, "--json").stdout)
        assert (told["port"], told["management-port"]) == (broker.amqp, broker.management)
        assert (broker.config / "broker.key").stat().st_mode & 0o777 == 0o600
        assert "rabbitmqctl join_cluster" in (broker.config / "README.md").read_text()
        broker.spawn()
        broker.wait()
        platform.up(deadline=600)
        platform.active("alice", "bob")
        # It is entered in the log of the CA, though there was no Master then.
        assert [event for event in platform.events() if "broker" in event["subject"]]
        talk(platform)
        stay_while_it_is_away(platform, broker)
        # A running Master certifies a further one.
        further = tmp_path / "further"
        sealbus(*write, further)
        assert (further / "broker.pem").read_text().startswith("-----BEGIN CERTIFICATE-----")
    finally:
        platform.down()


def stay_while_it_is_away(platform: Platform, broker: OperatorBroker) -> None:
    """Processes that are silent because the broker is away are not dead: they go on where they were."""

    def placed() -> dict[str, tuple[int, str]]:
        agents = platform.agents()
        return {name: (agents[name]["pid"], agents[name]["node"]) for name in ("alice", "bob")}

    def said(text: str) -> bool:
        logs = platform.directory.rglob("*.log")
        return any(text in log.read_text(errors="replace") for log in logs)

    def hears(text: str) -> None:
        wait_for(lambda: said(text), f"the Master to say that {text}", also=platform.logs)

    before = placed()
    broker.kill()
    gone = time.monotonic()
    hears("the broker carries no messages")
    wait_for(lambda: time.monotonic() - gone > AWAY, "the broker to be away for longer than a node may be silent")
    broker.spawn()
    broker.wait()
    hears("the broker carries messages again")
    talk(platform, 2)
    platform.active("alice", "bob")
    assert placed() == before
    assert {node["state"] for node in platform.nodes().values()} == {"alive"}
    assert not said("the node is dead")


def test_what_cannot_be_set_up_is_said(tmp_path: Path) -> None:
    written = tmp_path / "platform.toml"
    written.write_text('[platform]\nname = "factory"\n')
    refused = sealbus("broker", "rabbitmq", written, "--write-config", tmp_path / "x", expect=2)
    assert b"[rabbitmq]" in refused.stderr
    written.write_text(
        '[platform]\nname = "factory"\ntransport = "rabbitmq"\n[rabbitmq]\n'
        'addresses = ["a:1", "b:2"]\nmanagement = ["a:3"]\noperator = "x"\npassword-file = "p"\n'
    )
    refused = sealbus("broker", "rabbitmq", written, "--write-config", tmp_path / "x", expect=2)
    assert b"--listen" in refused.stderr

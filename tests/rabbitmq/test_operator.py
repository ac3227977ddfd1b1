"""A platform on a cluster of three that an operator set up with `sealbus broker rabbitmq`, and started by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import PROGRAMS, Platform, sealbus
from operator_brokers import OperatorBroker, free_ports
from talking import talk

MANIFEST = f"""
    [platform]
    name = "factory"
    transport = "rabbitmq"
    nodes = 2

    [rabbitmq]
    addresses = ADDRESSES
    management = MANAGEMENT
    operator = "manager"
    password-file = "operator.secret"

    [[agent]]
    name = "alice"
    command = ["PYTHON", "{PROGRAMS}/worker.py"]
    node = "node-1"

    [[agent]]
    name = "bob"
    command = ["PYTHON", "{PROGRAMS}/worker.py"]
    node = "node-2"
"""


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[OperatorBroker]]:
    started: list[OperatorBroker] = []
    try:
        yield started
    finally:
        for broker in started:
            broker.end()


@pytest.mark.timeout(3600)
def test_a_cluster_from_written_files(tmp_path: Path, brokers: list[OperatorBroker]) -> None:
    *ports, mapper = free_ports(10)
    places = [(ports[n], ports[n + 1], ports[n + 2]) for n in range(0, 9, 3)]
    manifest = MANIFEST.replace("ADDRESSES", json.dumps([f"127.0.0.1:{amqp}" for amqp, _, _ in places]))
    manifest = manifest.replace("MANAGEMENT", json.dumps([f"127.0.0.1:{port}" for _, port, _ in places]))
    platform = Platform(tmp_path, manifest)
    try:
        for number, (amqp, management, distribution) in enumerate(places):
            config = tmp_path / f"broker-{number}"
            # All three are on one machine, so the ports say which is meant.
            told = sealbus(
                "broker", "rabbitmq", platform.manifest, "--write-config", config, "--listen", "127.0.0.1",
                "--port", str(amqp), "--management-port", str(management), "--state", platform.state, "--json",
            )  # fmt: skip
            assert json.loads(told.stdout)["port"] == amqp
            assert (config / "broker.key").stat().st_mode & 0o777 == 0o600
            assert "rabbitmqctl join_cluster" in (config / "README.md").read_text()
            broker = OperatorBroker(config, tmp_path / f"data-{number}", number, management, distribution, mapper)
            brokers.append(broker)
            if number == 0:
                broker.spawn()
                broker.wait()
            else:
                broker.join(brokers[0])
        platform.up()
        platform.active("alice", "bob")
        # A certificate each, entered in the log of the CA before there was a Master.
        assert len([event for event in platform.events() if "broker" in event["subject"]]) >= 3
        talk(platform, 1)
        # The Master's and the agents' connections move to the others.
        brokers[0].kill()
        talk(platform, 2)
        brokers[0].spawn()
        brokers[0].wait()
        for broker in brokers:
            broker.kill()
        for broker in brokers:
            broker.spawn()
        for broker in brokers:
            broker.wait()
        talk(platform, 3)
        # A running Master certifies a further one.
        further = tmp_path / "further"
        sealbus("broker", "rabbitmq", platform.manifest, "--write-config", further, "--listen", "127.0.0.1",
                "--state", platform.state)  # fmt: skip
        assert (further / "broker.pem").read_text().startswith("-----BEGIN CERTIFICATE-----")
    finally:
        platform.down()


def test_what_cannot_be_set_up_is_said(tmp_path: Path) -> None:
    manifest = tmp_path / "platform.toml"
    manifest.write_text('[platform]\nname = "factory"\n')
    refused = sealbus("broker", "rabbitmq", manifest, "--write-config", tmp_path / "x", expect=2)
    assert b"[rabbitmq]" in refused.stderr
    manifest.write_text(
        '[platform]\nname = "factory"\ntransport = "rabbitmq"\n[rabbitmq]\n'
        'addresses = ["a:1", "b:2"]\nmanagement = ["a:3"]\noperator = "x"\npassword-file = "p"\n'
    )
    refused = sealbus("broker", "rabbitmq", manifest, "--write-config", tmp_path / "x", expect=2)
    assert b"--listen" in refused.stderr

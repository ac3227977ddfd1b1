"""A platform on a RabbitMQ that an operator set up with `sealbus broker rabbitmq`, and started by hand."""

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
    manifest = MANIFEST.replace("ADDRESSES", json.dumps([f"127.0.0.1:{broker.amqp}"]))
    manifest = manifest.replace("MANAGEMENT", json.dumps([f"127.0.0.1:{broker.management}"]))
    platform = Platform(tmp_path, manifest)
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
        # A running Master certifies a further one.
        further = tmp_path / "further"
        sealbus(*write, further)
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

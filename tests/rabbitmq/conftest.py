"""A platform on a RabbitMQ of its own, shared by the tests of a file: an Erlang node takes seconds of processor time to start."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker import Broker
from harness import SEALBUS, Platform
from manifests import manifest
from network import pytest_configure  # noqa: F401
from platforms import tmp_path  # noqa: F401
from shops import AGENTS as SHOPS

WORKERS = {"alice": "node-1", "bob": "node-2", "carol": "node-1", "mallory": "node-2"}
REST = f"""
{SHOPS}
    [[permission.channel]]
    deny = {{ agents = ["*"], do = ["publish"], on = ["/reserved/**"] }}
"""


@pytest.fixture(scope="session", autouse=True)
def programs() -> None:
    """Checks for the programs that the tests need."""
    if not SEALBUS.exists():
        pytest.exit(f"{SEALBUS} is missing: run `make build`, or set SEALBUS_BINARY", returncode=1)
    if not Path("/usr/lib/rabbitmq/bin/rabbitmq-server").exists() and not shutil.which("rabbitmq-server"):
        pytest.exit("rabbitmq-server is missing: run `make rabbitmq-server`", returncode=1)


def started(directory: Path, level: str, promise: str = "durable") -> Iterator[Platform]:
    directory.mkdir(parents=True, exist_ok=True)
    broker = f'managed = true\npromise = "{promise}"\n'
    platform = Platform(directory, manifest(broker, WORKERS, level, REST))
    try:
        # A broker on a busy machine needs its time.
        platform.up(deadline=600)
        platform.active(*WORKERS, "shop-1", "shop-2")
        yield platform
    finally:
        platform.down()


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """One at level auth. Some files kill or revoke agents, so each file has its own."""
    yield from started(tmp_path_factory.mktemp("auth"), "auth")


@pytest.fixture(params=[("none", "durable"), ("tls", "transient")], ids=" ".join)
def lower(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Platform]:
    """One at each lower level, with each promise of the broker."""
    yield from started(tmp_path, *request.param)


@pytest.fixture
def broker(platform: Platform) -> Broker:
    """The broker of the platform, as an attacker and as its operator reach it."""
    return Broker(platform.state)

"""Platforms whose state is in a real etcd."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etcd import Etcd
from network import pytest_configure  # noqa: F401
from platforms import binary, platform, tmp_path  # noqa: F401


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--runs", type=int, default=1, help="random walks")
    parser.addoption("--steps", type=int, default=6, help="steps of a walk")
    parser.addoption("--seed", type=int, default=1, help="seed of the first walk")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        first = metafunc.config.getoption("--seed")
        metafunc.parametrize("seed", range(first, first + metafunc.config.getoption("--runs")))


@pytest.fixture(scope="session", autouse=True)
def programs() -> None:
    """The programs that the tests cannot do without."""
    if not shutil.which("etcd") or not shutil.which("etcdctl"):
        pytest.exit("etcd is missing: run `make etcd-server`", returncode=1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Callable[[int], Etcd]]:
    """Starts clusters of so many members, and ends them after the test."""
    made: list[Etcd] = []

    def start(count: int) -> Etcd:
        folder = tmp_path / f"etcd{len(made)}"
        made.append(Etcd(folder, count))
        made[-1].await_healthy()
        return made[-1]

    yield start
    for each in made:
        each.end()

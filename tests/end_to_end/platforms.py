"""Fixtures of every suite that starts real platforms."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness import SEALBUS, Platform


# A shell that starts the tests in the background lets them, and all they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def binary() -> Path:
    """The command line under test; without it no test means anything."""
    if not SEALBUS.exists():
        pytest.exit(f"{SEALBUS} is missing: run `make build`, or set SEALBUS_BINARY", returncode=1)
    return SEALBUS


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new folder with a short path: that of a Unix socket below it has 107 bytes at most."""
    return tmp_path_factory.mktemp("t")


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Callable[[str], Platform]]:
    """Makes platforms from manifests, and ends them after the test."""
    made: list[Platform] = []

    def make(manifest: str) -> Platform:
        directory = tmp_path / f"p{len(made)}"
        directory.mkdir()
        made.append(Platform(directory, manifest))
        return made[-1]

    yield make
    with ExitStack() as ends:
        for each in made:
            ends.callback(each.down)

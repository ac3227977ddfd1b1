"""Fixtures of the end-to-end tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import SEALBUS, Platform


@pytest.fixture(scope="session", autouse=True)
def binary() -> Path:
    """The command line under test; without it no test means anything."""
    if not SEALBUS.exists():
        pytest.exit(f"{SEALBUS} is missing: run `make build`, or set SEALBUS_BINARY", returncode=1)
    return SEALBUS


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
    for each in made:
        each.down()

"""Platforms under attack: one for all tests of a module where the attacks permit it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from attacker.mallory import Mallory
from harness import Platform
from isolated import working
from network import pytest_configure  # noqa: F401
from pair import MANIFEST, Pair
from platforms import binary, platform, tmp_path  # noqa: F401

NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def factory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """The platform of the module: of its `MANIFEST`, in which FOLDER is a folder of its own, or of the honest pair alone."""
    manifest = getattr(request.module, "MANIFEST", MANIFEST)
    directory = tmp_path_factory.mktemp("factory")
    notes = directory / "notes"
    notes.mkdir()
    started = Platform(directory, manifest.replace("FOLDER", str(notes)))
    try:
        yield started.up()
    finally:
        started.down()


@pytest.fixture(scope="module")
def pair(factory: Platform) -> Pair:
    return Pair(factory)


@pytest.fixture
def mallory(factory: Platform) -> Iterator[Callable[..., Mallory]]:
    """Programs in an attacker's hands, each with a ticket and a name of its own."""
    taken: list[Mallory] = []

    def take(name: str | None = None, node: str = "node-1") -> Mallory:
        name = name or f"mallory-{next(NUMBERS)}"
        taken.append(Mallory(factory.ask("ticket", name, "--node", node)["ticket"], name))
        return taken[-1]

    yield take
    for each in taken:
        each.close()


@pytest.fixture(scope="session")
def modes() -> dict[str, str | None]:
    return working()


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """A folder that every user reaches."""
    folder = tmp_path / "p"
    folder.mkdir()
    for each in [folder, *folder.parents][:-2]:
        each.chmod(0o755)
    return folder

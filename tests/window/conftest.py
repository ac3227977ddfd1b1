"""A platform, a window on it, and a browser."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from attacker.mallory import Mallory
from harness import DEADLINE, PROGRAMS, Platform
from looking import CHROMIUM, Looker, Window, browser
from network import pytest_configure  # noqa: F401
from platforms import binary, tmp_path  # noqa: F401

MANIFEST = f"""
    [platform]
    name = "factory"

    [[agent]]
    name = "ann"
    command = ["PYTHON", "{PROGRAMS}/worker.py"]

    [[agent]]
    name = "ben"
    command = ["PYTHON", "{PROGRAMS}/worker.py"]

    [[agent]]
    name = "carl"
    command = ["PYTHON", "{PROGRAMS}/worker.py"]
"""
NUMBERS = itertools.count(1)
expect.set_options(timeout=DEADLINE * 1000)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.exit("there is no chromium: run `make test-window`, or set SEALBUS_CHROMIUM", returncode=1)
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    started = Platform(tmp_path_factory.mktemp("w"), MANIFEST)
    try:
        started.up().active("ann", "ben", "carl")
        yield started
    finally:
        started.down()


@pytest.fixture
def look(chromium: Browser, factory: Platform) -> Iterator[Callable[..., Looker]]:
    """Opens windows on the platform, each with a page."""
    made: list[Looker] = []

    def open_page(*arguments: str | Path, **options: Any) -> Looker:
        watched = arguments or ("--state", factory.state)
        window = Window(factory.directory / f"window-{next(NUMBERS)}.log", *watched)
        factory.programs.append(window.program)
        made.append(Looker(chromium, window, **options))
        return made[-1]

    yield open_page
    for each in made:
        try:
            each.close()
        finally:
            each.window.program.end()


@pytest.fixture
def mallory(factory: Platform) -> Iterator[Callable[[str], Mallory]]:
    """Programs in an attacker's hands."""
    taken: list[Mallory] = []

    def take(name: str) -> Mallory:
        taken.append(Mallory(factory.ask("ticket", name, "--node", "node-1")["ticket"], name))
        return taken[-1]

    yield take
    for each in taken:
        each.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core."""
    script = Path(os.environ.get("SEALBUS_AXE", "")) / "node_modules/axe-core/axe.min.js"
    if not script.exists():
        pytest.skip("axe-core is not installed: run `make test-window`")
    return script.read_text()

"""A program whose platform lives in it shows a window."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import SEALBUS, Program, alive, sealbus, wait_for
from looking import Looker
from playwright.sync_api import Browser, expect

SHOP = Path(__file__).parent / "programs" / "shop.py"
WATCHED = "sealbus-watched-*"


class Shop:
    """The program. It prints the window's link to standard error."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # A package that was built for tests has no program of its own.
        path = f"{SEALBUS.parent}:{os.environ['PATH']}"
        self.program = Program([sys.executable, SHOP, "--window"], folder / "log", {"PATH": path, "TMPDIR": str(folder)})
        link = wait_for(lambda: re.search(r"http://\S+", self.program.output()), "the link", also=self.program.output)
        self.link = link.group()
        self.address = self.link.partition("#")[0]

    @property
    def state(self) -> Path:
        (watched,) = self.folder.glob(WATCHED)
        return watched

    def window(self) -> int:
        """The process of the window."""
        children = Path(f"/proc/{self.program.pid}/task").glob("*/children")
        (window,) = [int(child) for task in children for child in task.read_text().split()]
        return window


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    started = Shop(tmp_path)
    yield started
    started.program.end()


def test_a_program_shows_its_platform(shop: Shop, chromium: Browser) -> None:
    looker = Looker(chromium, shop)
    page = looker.page
    expect(page.locator("#connection")).to_have_text("live")
    expect(page.locator("#platform")).to_have_text("shop")
    page.get_by_role("link", name="Agents", exact=True).click()
    for name in ("buyer@shop", "seller@shop"):
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=name))
        expect(row.get_by_role("cell").nth(1)).to_have_text("active")
        wait_for(lambda row=row: int(row.get_by_role("cell").nth(5).inner_text()) > 3, "messages to be counted")
    looker.go("conversations")
    wait_for(lambda: page.locator(".arrow").count() > 3, "messages to be drawn")
    for view in ("map", "channels", "refusals", "nodes", "masters", "gateways", "broker", "certificates", "agents/buyer"):
        looker.go(view)
        expect(page.locator("main h1")).to_be_visible()
        expect(page.locator("#connection")).to_have_text("live")
    looker.close()


def test_watchers_of_a_program_only_read(shop: Shop) -> None:
    agents = json.loads(sealbus("ps", "--json", "--state", shop.state).stdout)
    assert {agent["name"] for agent in agents} == {"buyer@shop", "seller@shop"}
    # The program's own process looks after watches, too, and must leave those of others alone.
    seen = sealbus("sniff", "--state", shop.state, "--count", "40").stdout.decode()
    assert seen.count("same-process") == 40, seen
    for change in (["kill", "buyer"], ["down"], ["token"], ["ca", "revoke", "buyer"]):
        refused = sealbus(*change, "--state", shop.state, expect=None)
        assert refused.returncode != 0
        assert b"lives in a program" in refused.stderr, refused.stderr
    assert oct(shop.state.stat().st_mode)[-3:] == "700"


@pytest.mark.parametrize("is_killed", [False, True])
def test_the_window_ends_with_the_program(shop: Shop, is_killed: bool) -> None:
    window = shop.window()
    if is_killed:
        shop.program.kill()
    else:
        assert shop.program.end() == 0
        assert not list(shop.folder.glob(WATCHED))
    wait_for(lambda: not alive(window), "the window to end")


def test_a_program_without_the_window_listens_nowhere(tmp_path: Path) -> None:
    program = Program([sys.executable, SHOP], tmp_path / "log", {"TMPDIR": str(tmp_path)})
    wait_for(lambda: "12 EUR" in program.output(), "an answer", also=program.output)
    assert not list(tmp_path.glob(WATCHED))
    program.end()


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    program = Program([sys.executable, SHOP, "--window"], tmp_path / "log", {"PATH": "/nowhere", "TMPDIR": str(tmp_path)})
    assert program.wait() != 0
    assert "the window needs the program sealbus" in program.output()

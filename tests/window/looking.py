"""A browser that looks at a platform through `sealbus window`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from harness import DEADLINE, SEALBUS, Program, wait_for

CHROMIUM = os.environ.get("SEALBUS_CHROMIUM") or shutil.which("chromium")


@contextmanager
def browser() -> Iterator[Browser]:
    """Chromium without a screen. Its own sandbox needs another user than root."""
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        try:
            yield chromium
        finally:
            chromium.close()


class Window:
    """A running `sealbus window`."""

    def __init__(self, log: Path, *arguments: str | Path) -> None:
        command = (SEALBUS, "window", *arguments, "--no-open", "--json")
        self.program = Program(command, log)
        self.link = json.loads(wait_for(self._told, "the link", also=self.program.output))["link"]

    def _told(self) -> str | None:
        if self.program.process.poll() is not None:
            raise AssertionError(f"`sealbus window` ended by itself:\n{self.program.output()}")
        return next((line for line in self.program.output().splitlines() if line.startswith("{")), None)

    @property
    def address(self) -> str:
        return self.link.partition("#")[0]


class Looker:
    """A page of a window, and all that a page should not do."""

    def __init__(self, browser: Browser, window: Window, script: str = "", **options: object) -> None:
        """`script` runs before the page's own."""
        self.window = window
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(DEADLINE * 1000)
        self.page: Page = self.context.new_page()
        self.page.add_init_script(script)
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: (self.wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", self._request)
        self.page.on("console", self._console)
        self.page.goto(window.link)

    def _request(self, request: object) -> None:
        url = request.url
        if not url.startswith((self.window.address, "data:", "blob:")):
            self.wrong.append(f"request: {url}")

    def _console(self, message: object) -> None:
        # A refused answer is told by the browser itself; the tests look at what the page makes of it.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.wrong.append(f"console: {message.text}")

    def go(self, view: str) -> Page:
        """Opens a view by its address, as a bookmark does."""
        self.page.evaluate("view => { location.hash = view }", f"#/{view}")
        return self.page

    def close(self) -> None:
        self.context.close()
        if self.wrong:
            raise AssertionError(self.wrong)

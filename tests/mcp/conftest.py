"""A platform with `[gateway.mcp]`, and the official client of MCP for its callers."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from harness import Platform, sealbus, wait_for
from network import pytest_configure  # noqa: F401
from platforms import binary, tmp_path  # noqa: F401

PROGRAMS = Path(__file__).parent / "programs"

MANIFEST = """
    [platform]
    name = "factory"

    [gateway.mcp]
    listen = "127.0.0.1:0"
    anonymous = "guest"

    [[gateway.mcp.caller]]
    name = "assistant"
    key = "ASSISTANT"

    [[gateway.mcp.caller]]
    name = "auditor"
    key = "AUDITOR"

    [[permission.rule]]
    deny = { from = ["guest"], to = ["vault"] }

    [[permission.channel]]
    deny = { agents = ["guest"], do = ["publish", "subscribe"], on = ["/orders"] }

    [[agent]]
    name = "office"
    command = ["PYTHON", "OFFICE", "NOTES"]
    agents = ["clock", "secretary", "vault", "herald", "kit"]
    write = ["NOTES"]

    [[agent]]
    name = "library"
    mcp = { command = ["PYTHON", "LIBRARY", "NOTES"] }
    environment = { COLOUR = "red" }
    write = ["NOTES"]
    restart = "on-failure"
"""


@dataclass
class Door:
    """The gateway of a running platform, and the keys to it."""

    factory: Platform
    url: str
    keys: dict[str, str]
    notes: Path

    @property
    def place(self) -> tuple[str, int]:
        host, port = self.url.partition("://")[2].partition("/")[0].split(":")
        return host, int(port)

    def headers(self, caller: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[caller]}"} if caller else {}

    @contextlib.asynccontextmanager
    async def client(
        self, caller: str | None = "assistant", mode: str = "auto", **fields: str
    ) -> AsyncIterator[Client]:
        async with httpx2.AsyncClient(headers=self.headers(caller) | fields, timeout=120) as http:
            async with Client(streamable_http_client(self.url, http_client=http), mode=mode) as client:
                yield client

    def pid(self) -> int:
        return int(self.factory.agents()["assistant"]["pid"])


def new_key(name: str) -> tuple[str, str]:
    made = json.loads(sealbus("gateway", "key", name, "--json").stdout)
    return made["key"], made["hash"]


def start(directory: Path, manifest: str = MANIFEST) -> tuple[Platform, Door]:
    notes = directory / "notes"
    notes.mkdir()
    keys = {}
    for name in ("assistant", "auditor"):
        keys[name], hashed = new_key(name)
        manifest = manifest.replace(name.upper(), hashed)
    manifest = manifest.replace("OFFICE", str(PROGRAMS / "office.py")).replace("LIBRARY", str(PROGRAMS / "library.py")).replace("NOTES", str(notes))
    factory = Platform(directory, manifest).up()

    def listens() -> Any:
        log = factory.tell("logs", "mcp", expect=None).stdout.decode(errors="replace")
        return re.search(r"https?://(127\.0\.0\.1|localhost):\d+/mcp", log)

    url = wait_for(listens, "the gateway to listen", also=factory.logs).group()

    def is_offered() -> bool:
        found = factory.tell("df", "search", "--type", "open", expect=None).stdout.decode()
        return "vault" in found

    wait_for(is_offered, "the tools in the DF", also=factory.logs)
    return factory, Door(factory, url, keys, notes)


@contextlib.contextmanager
def opened(factories: pytest.TempPathFactory) -> Iterator[Door]:
    factory, door = start(factories.mktemp("factory"))
    try:
        yield door
    finally:
        factory.down()


@pytest.fixture(scope="session")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """One platform for all files that leave it as it was."""
    with opened(tmp_path_factory) as door:
        yield door


@pytest.fixture(params=["auto", "legacy"])
def mode(request: pytest.FixtureRequest) -> str:
    """The protocol: the present one, which the client finds by itself, or the one before with its handshake."""
    return str(request.param)

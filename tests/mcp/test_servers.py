"""A server of the official SDK is an agent: its tools are services, which callers reach like those of any agent."""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError

from conftest import PROGRAMS, Door, opened
from harness import DEADLINE, Platform, wait_for


async def until(client: Client, tool: str, **arguments: object) -> Any:
    """The result of a tool, once the platform has it, and it is no error."""
    end = time.monotonic() + DEADLINE
    while True:
        try:
            result = await client.call_tool(tool, arguments)
            if not result.is_error or time.monotonic() > end:
                return result
        except MCPError:
            if time.monotonic() > end:
                raise
        await asyncio.sleep(0.1)


async def test_tools_of_a_server_are_services(door: Door) -> None:
    async with door.client() as client:
        added = await until(client, "library__add", one=2, other=40)
        assert added.structured_content == {"result": 42}
        assert added.meta["sealbus/sender"] == "library@factory"
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["library__add"].description.startswith("Adds two numbers.")
        assert set(tools["library__add"].input_schema["properties"]) == {"one", "other"}
        lent = await client.call_tool("library__lend", {"book": "Emma"})
        assert lent.is_error and "Emma is out" in lent.content[0].text
        wrong = await client.call_tool("library__add", {"one": "x", "other": 1})
        assert wrong.is_error
        # The server does not get the agent's ticket, but it gets the manifest's variables.
        found = await client.call_tool("library__surroundings", {})
        assert found.structured_content == {"result": ["COLOUR"]}


async def test_progress_and_cancelling_reach_the_server(door: Door) -> None:
    for note in ("read-begun", "read-cancelled"):
        (door.notes / note).unlink(missing_ok=True)
    heard: list[tuple[float, str | None]] = []

    async def on_progress(done: float, total: float | None, text: str | None) -> None:
        heard.append((done, text))

    async with door.client() as client:
        await until(client, "library__add", one=1, other=1)
        read = await client.call_tool("library__read", {"pages": 2, "pause": 0.05}, progress_callback=on_progress)
        assert read.structured_content == {"result": "the end"}
        assert heard == [(0.5, "page 1"), (1.0, "page 2")]
        (door.notes / "read-begun").unlink()
        call = asyncio.create_task(client.call_tool("library__read", {"pages": 1_000_000, "pause": 0.01}))
        await asyncio.to_thread(wait_for, (door.notes / "read-begun").exists, "the tool to begin")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.to_thread(wait_for, (door.notes / "read-cancelled").exists, "the server's tool to be cancelled")


async def test_a_server_that_ends_is_started_again(door: Door) -> None:
    def pid() -> int | None:
        found: int | None = door.factory.agents()["library"]["pid"]
        return found

    def is_another(before: int | None) -> Callable[[], bool]:
        return lambda: pid() not in (None, before)

    async with door.client() as client:
        await until(client, "library__add", one=1, other=1)
        before = pid()
        assert (await client.call_tool("library__die", {})).is_error
        await asyncio.to_thread(wait_for, is_another(before), "the agent to be started again", also=door.factory.logs)
        added = await until(client, "library__add", one=1, other=2)
        assert added.structured_content == {"result": 3}


async def test_any_agent_asks_a_server(door: Door) -> None:
    async with door.client() as client:
        await until(client, "library__add", one=1, other=1)
    ticket = door.factory.ask("ticket", "borrower")["ticket"]
    program = (sys.executable, PROGRAMS / "borrower.py")
    borrower = door.factory.program(*program, name="borrower", environment={"SEALBUS_TICKET": ticket})
    assert await asyncio.to_thread(borrower.wait) == 0, borrower.output()
    assert "inform {'result': 42}" in borrower.output()


async def test_a_server_at_an_address_is_an_agent_too(door: Door) -> None:
    # The gateway itself is such a server, and its tools become those of another agent.
    ticket = door.factory.ask("ticket", "mirror")["ticket"]
    environment = {"SEALBUS_TICKET": ticket, "SEALBUS_MCP_KEY": door.keys["auditor"]}
    door.factory.program(sys.executable, "-m", "sealbus.mcp", door.url, name="mirror", environment=environment)
    async with door.client() as client:
        asked = await until(client, "mirror__request_agent", to="secretary", content="good day")
        assert asked.structured_content["content"] == "auditor@factory said good day"
        assert asked.meta["sealbus/sender"] == "mirror@factory"


async def test_of_a_server_with_many_tools_the_first_ones_are_services(door: Door) -> None:
    ticket = door.factory.ask("ticket", "shop")["ticket"]
    program = (sys.executable, "-m", "sealbus.mcp", sys.executable, PROGRAMS / "shop.py")
    shop = door.factory.program(*program, name="shop", environment={"SEALBUS_TICKET": ticket})
    async with door.client() as client:
        assert (await until(client, "shop__sell_0")).structured_content == {"result": "0 is sold"}, shop.output()
        offered = {tool.name for tool in (await client.list_tools()).tools}
    sold = {f"shop__sell_{number}" for number in range(len(offered)) if f"shop__sell_{number}" in offered}
    assert 20 < len(sold) < 100 and sold == {f"shop__sell_{number}" for number in range(len(sold))}
    assert f"sell_{len(sold)} and the tools after it have no room in the DF" in shop.output()


def test_a_server_at_an_address_is_named_in_the_manifest(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with opened(tmp_path_factory) as door:
        _mirrors(door, tmp_path)


def _mirrors(door: Door, tmp_path: Path) -> None:
    """The gateway of the one platform is a server for an agent of the other."""
    (tmp_path / "gateway.key").write_text(door.keys["auditor"] + "\n")
    other = Platform(
        tmp_path,
        f"""
        [platform]
        name = "elsewhere"

        [[agent]]
        name = "mirror"
        mcp = {{ url = "{door.url}", key-file = "gateway.key" }}
        """,
    )
    try:
        other.up()

        def is_offered() -> bool:
            return "mirror" in other.tell("df", "search", "--type", "request_agent", expect=None).stdout.decode()

        wait_for(is_offered, "the tools in the DF", also=other.logs)
        asked = json.dumps({"to": "secretary", "content": "good day"})
        answer = json.loads(other.send("mirror", asked, "--ontology", "request_agent", "--language", "application/json"))
        assert answer["content"] == "auditor@factory said good day"
        # Nobody finds the key in the entry.
        assert door.keys["auditor"] not in other.tell("ps", "--json").stdout.decode()
    finally:
        other.down()


def test_a_server_that_is_not_there_is_told_before_anything_starts(tmp_path: Path) -> None:
    wrong = Platform(
        tmp_path,
        """
        [platform]
        name = "elsewhere"

        [[agent]]
        name = "library"
        mcp = { command = ["no-such-server-here"] }
        """,
    )
    refused = wrong.tell("up", wrong.manifest, "--check", expect=1).stderr.decode()
    assert "no-such-server-here" in refused and "platform.toml:7" in refused

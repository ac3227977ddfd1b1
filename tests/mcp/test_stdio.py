"""A host that starts a command: the official client and `sealbus mcp` over standard input and output."""

import asyncio

from mcp import Client, StdioServerParameters

from conftest import Door
from harness import SEALBUS, clean_environment, wait_for


async def test_a_host_starts_the_command(door: Door, mode: str) -> None:
    server = StdioServerParameters(
        command=str(SEALBUS), args=["mcp", "scribe", "--state", str(door.factory.state)], env=clean_environment()
    )
    async with Client(server, mode=mode) as client:
        asked = await client.call_tool("request_agent", {"to": "secretary", "content": "good day"})
        assert asked.structured_content["content"] == "scribe@factory said good day"
        while "clock__double" not in {tool.name for tool in (await client.list_tools()).tools}:
            await asyncio.sleep(0.1)
        doubled = await client.call_tool("clock__double", {"input": 21})
        assert doubled.structured_content == {"result": 42}
        assert doubled.meta["sealbus/provenance"] == "proved"

    def has_left() -> bool:
        return door.factory.agents().get("scribe", {}).get("state") != "active"

    # The agent leaves with its host.
    await asyncio.to_thread(wait_for, has_left, "the agent to leave")

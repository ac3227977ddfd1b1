"""A host that starts a command: the official client and `sealbus mcp` over standard input and output."""

import asyncio
import contextlib
import json
import subprocess
from collections.abc import Iterator
from typing import Any

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


@contextlib.contextmanager
def host_of(door: Door, name: str, patience: str) -> Iterator[subprocess.Popen[str]]:
    command = [SEALBUS, "mcp", name, "--state", door.factory.state, "--timeout", patience]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=clean_environment()) as host:
        try:
            yield host
        finally:
            host.kill()


def greeted(host: subprocess.Popen[str]) -> dict[str, Any]:
    greeting = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}
    print(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting}), file=host.stdin, flush=True)
    answer: dict[str, Any] = json.loads(host.stdout.readline())
    return answer["result"]["serverInfo"]


def test_a_command_that_is_started_again_waits_until_the_former_one_has_left(door: Door) -> None:
    with host_of(door, "typist", "0s") as former:
        assert greeted(former)["name"] == "sealbus"
        with host_of(door, "typist", "0s") as hasty:
            refusal = hasty.communicate()[1]
            assert hasty.returncode == 5 and "typist is taken" in refusal and "waiting" not in refusal
        with host_of(door, "typist", "5m") as next_one:
            told = next(line for line in next_one.stderr if "typist" in line)
            assert "is taken" in told and "waiting 5m" in told
            former.stdin.close()
            assert greeted(next_one)["name"] == "sealbus"
            assert former.wait() == 0
            # The other tests on this platform need not wait for a lost process.
            next_one.stdin.close()
            assert next_one.wait() == 0

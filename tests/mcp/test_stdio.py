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


def test_a_request_with_the_id_of_an_open_one_is_refused(door: Door) -> None:
    begun, cancelled = door.notes / "slow-begun", door.notes / "slow-cancelled"
    with host_of(door, "clerk", "1m") as host:
        assert greeted(host)["name"] == "sealbus"

        def say(method: str, **more: object) -> None:
            print(json.dumps({"jsonrpc": "2.0", "method": method, **more}), file=host.stdin, flush=True)

        def ask(method: str) -> dict[str, Any]:
            say(method, id=7)
            answer: dict[str, Any] = json.loads(host.stdout.readline())
            assert answer["id"] == 7
            return answer

        wait_for(lambda: "clock__slow" in json.dumps(ask("tools/list")), "the clock's tools")
        for note in (begun, cancelled):
            note.unlink(missing_ok=True)
        say("tools/call", id=7, params={"name": "clock__slow", "arguments": {"count": 1, "pause": 600}})
        wait_for(begun.exists, "the call to begin")
        for _ in range(2):
            assert "a request with the id 7 is not answered yet" in ask("ping")["error"]["message"]
        assert not cancelled.exists()
        say("notifications/cancelled", params={"requestId": 7})
        wait_for(cancelled.exists, "the call to be cancelled")
        wait_for(lambda: "result" in ask("ping"), "the id to be free again")
        host.stdin.close()
        assert host.wait() == 0

"""The agents of a program without a manifest, as servers of A2A."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from conftest import PROGRAMS, Door, say
from harness import DEADLINE, clean_environment, sealbus, wait_for
from sealbus import Agent, Platform, PlatformError, Progress, tool
from test_client import outcome, result
from ports import free_port


class TeaHouse(Agent):
    async def setup(self) -> None:
        await self.df.register(*self.tools())

    @tool
    async def brew(self, cups: int) -> AsyncIterator[str | Progress]:
        """Brews tea, cup by cup."""
        for cup in range(cups):
            yield Progress((cup + 1) / cups, f"cup {cup + 1}")
            yield f"cup {cup + 1}"


def door(platform: Platform, keys: dict[str, str] | None = None) -> Door:
    assert platform.a2a_address is not None
    return Door(None, platform.a2a_address, keys or {}, Path())  # type: ignore[arg-type]


async def offers(door: Door, agent: str, caller: str | None = None) -> None:
    """Waits until the agent has its card."""
    async with httpx.AsyncClient(headers=door.headers(caller), timeout=DEADLINE) as http:
        while (await http.get(f"{door.url}/agents/{agent}/.well-known/agent-card.json")).status_code != 200:
            pass


async def test_the_agents_of_a_program_are_servers(binding: str) -> None:
    async with Platform(a2a="127.0.0.1:0") as platform:
        await platform.start(TeaHouse("tea-house"))
        here = door(platform)
        await offers(here, "tea-house")
        async with here.client("tea-house", None, binding=binding) as client:
            task = await outcome(client, say(data=2))
            assert result(task) == ["cup 1", "cup 2"]
        async with httpx.AsyncClient(timeout=DEADLINE) as http:
            card = (await http.get(f"{here.url}/agents/tea-house/.well-known/agent-card.json")).json()
            assert len(card["signatures"]) == 1
            assert (await http.get(f"{here.url}/agents/guest/.well-known/agent-card.json")).status_code == 404
    # The door is shut with the platform.
    async with httpx.AsyncClient(timeout=DEADLINE) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(here.url)


async def test_a_program_names_its_callers_as_the_manifest_does() -> None:
    made = json.loads(sealbus("gateway", "key", "buyer", "--a2a", "--json").stdout)
    a2a = {"listen": "127.0.0.1:0", "caller": [{"name": "buyer", "key": made["hash"]}]}
    async with Platform(name="market", a2a=a2a) as platform:
        await platform.start(TeaHouse("tea-house"))
        here = door(platform, {"buyer": made["key"]})
        await offers(here, "tea-house", "buyer")
        async with here.client("tea-house", "buyer") as client:
            assert result(await outcome(client, say(data=1))) == ["cup 1"]
        async with httpx.AsyncClient(timeout=DEADLINE) as http:
            answer = await http.post(f"{here.url}/agents/tea-house", json={}, headers={"A2A-Version": "1.0"})
            assert answer.status_code == 401


async def test_the_same_port_serves_again_after_the_end() -> None:
    address = f"127.0.0.1:{free_port()}"
    for _ in range(2):
        async with Platform(a2a=address) as platform:
            assert platform.a2a_address == f"http://{address}"
    async with Platform() as platform:
        assert platform.a2a_address is None


@pytest.mark.parametrize(
    ("a2a", "problem"),
    [
        ({"listen": "127.0.0.1:0"}, "has no caller"),
        ({"listen": "0.0.0.0:0", "anonymous": "guest"}, "would show keys to the network"),
        ("nowhere", "the configuration for A2A"),
        ({"listen": "127.0.0.1:0", "anonymous": "guest", "unknown": 1}, "unknown field"),
        ({"listen": "127.0.0.1:0", "anonymous": "a2a"}, "a2a"),
    ],
)
async def test_mistakes_are_told(a2a: Any, problem: str) -> None:
    with pytest.raises(PlatformError, match=problem):
        async with Platform(a2a=a2a):
            pass


async def test_a_port_that_is_taken_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(PlatformError, match=f"cannot listen on {address}"):
            async with Platform(a2a=address):
                pass


def test_tasks_of_a_program_outlive_it(tmp_path: Path) -> None:
    """With a folder for the program's state."""
    port = free_port()
    environment = clean_environment({"SEALBUS_STATE": str(tmp_path / "state")})
    here = Door(None, f"http://127.0.0.1:{port}", {}, tmp_path)  # type: ignore[arg-type]
    with ExitStack() as stack:
        log = stack.enter_context((tmp_path / "log").open("w"))

        def start() -> subprocess.Popen[bytes]:
            command = [sys.executable, str(PROGRAMS / "alone.py"), str(port), str(tmp_path)]
            program = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
            stack.enter_context(program)
            stack.callback(program.kill)
            return program

        def state(id: str) -> str:
            try:
                answer = here.call("painter", "GetTask", {"id": id}, caller=None)
            except (OSError, AssertionError):
                return "away"
            return str(answer["result"]["status"]["state"])

        def shows_its_card() -> bool:
            try:
                return here.send("GET", "/agents/painter/.well-known/agent-card.json", caller=None)[0] == 200
            except OSError:
                return False

        program = start()
        told = lambda: (tmp_path / "log").read_text()  # noqa: E731
        wait_for(shows_its_card, "the card of the painter", also=told)
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "picture"}]}
        params = {"message": message, "configuration": {"returnImmediately": True}}
        id = str(here.call("painter", "SendMessage", params, caller=None)["result"]["task"]["id"])
        wait_for(lambda: state(id) == "TASK_STATE_WORKING", "the painter to begin", also=told)
        program.kill()
        program.wait()
        (tmp_path / "picture").touch()
        program = start()
        wait_for(lambda: state(id) == "TASK_STATE_COMPLETED", "the task to be done", also=told)
        program.send_signal(signal.SIGTERM)
        assert program.wait(DEADLINE) == 0, told()

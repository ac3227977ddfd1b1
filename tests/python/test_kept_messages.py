"""Persistent messages on an embedded platform: in the folder SEALBUS_STATE over runs of the program, or as long as one lasts."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

SOURCE = """
import asyncio, os, signal, sys
import sealbus
from sealbus import AclMessage, Agent, Platform

async def main(platform):
    {}

async def around():
    async with Platform() as platform:
        await main(platform)

asyncio.run(around())
"""


def run(body: str, tmp_path: Path, state: Path | None, expect: int = 0) -> list[str]:
    """The lines a program prints whose agents do this."""
    text = SOURCE.format(textwrap.indent(textwrap.dedent(body), "    ").strip())
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SEALBUS_")}
    folder = tmp_path / "temporary"
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", text],
        env=kept | {"TMPDIR": str(folder)} | ({"SEALBUS_STATE": str(state)} if state else {}),
        capture_output=True,
        text=True,
        timeout=180,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout.splitlines()


POST = """
anna = await platform.start(Agent("anna"))
for number in range(20):
    await anna.send(AclMessage("inform", "ben", str(number)), persistent=True)
"""

READ = """
ben = await platform.start(Agent("ben"))
for _ in range(20):
    message = await ben.receive(timeout=120)
    print(message.text, message.sender_name, message.kept_number is not None)
"""

ALL = [f"{number} anna@home True" for number in range(20)]


def test_a_later_run_gets_what_an_earlier_one_kept(tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert run(POST, tmp_path, state) == []
    assert run(READ, tmp_path, state) == ALL
    # Once: the next message is new.
    again = """
    anna = await platform.start(Agent("anna"))
    ben = await platform.start(Agent("ben"))
    await anna.send(AclMessage("inform", "ben", "new"), persistent=True)
    print((await ben.receive(timeout=120)).text)
    """
    assert run(again, tmp_path, state) == ["new"]


def test_what_was_accepted_survives_the_kill_of_the_program(tmp_path: Path) -> None:
    state = tmp_path / "state"
    kill = POST + "os.kill(os.getpid(), signal.SIGKILL)\n"
    run(kill, tmp_path, state, expect=-signal.SIGKILL)
    assert run(READ, tmp_path, state) == ALL


def test_without_a_folder_messages_wait_as_long_as_the_program_runs(tmp_path: Path) -> None:
    assert run(POST + READ, tmp_path, None) == ALL
    assert run(POST, tmp_path, None) == []
    assert list((tmp_path / "temporary").iterdir()) == []
    nothing = """
    ben = await platform.start(Agent("ben"))
    anna = await platform.start(Agent("anna"))
    await anna.send(AclMessage("inform", "ben", "of this run"), persistent=True)
    print((await ben.receive(timeout=120)).text)
    """
    assert run(nothing, tmp_path, None) == ["of this run"]


def test_a_folder_that_cannot_be_used_is_an_error_for_the_sender(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_text("a file")
    refused = """
    anna = await platform.start(Agent("anna"))
    try:
        await anna.send(AclMessage("inform", "ben", "x"), persistent=True)
    except sealbus.SendError as error:
        print(error)
    """
    (line,) = run(refused, tmp_path, state)
    assert str(state) in line, line

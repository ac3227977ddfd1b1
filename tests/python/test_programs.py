"""Whole programs, as processes of their own: examples, signals, forks, and how they end."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SEALBUS_")}
    return kept | {"PYTHONWARNINGS": "error", "PYTHONUNBUFFERED": "1"}


def run(*arguments: str | Path, expect: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=180,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stderr if expect else done.stdout


def program(text: str, tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(text)
    return path


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run_by_themselves(example: Path) -> None:
    assert run(example)


@pytest.mark.parametrize("readme", ["README.md", "python/README.md"])
def test_the_agent_in_the_readme_runs_as_it_stands(readme: str, tmp_path: Path) -> None:
    blocks: list[str] = re.findall(r"```python\n(.*?)```", (ROOT / readme).read_text(), re.DOTALL)
    assert blocks, f"{readme} shows no Python agent"
    for block in blocks:
        assert len(block.splitlines()) <= 25
        assert run(program(block, tmp_path))


THREADS = """
import sealbus

class Brief(sealbus.Agent):
    async def setup(self):
        self.stop()

for threads in 2, 3, 2, 0:
    try:
        sealbus.run(Brief("brief"), threads=threads)
    except (ValueError, sealbus.PlatformError) as error:
        print(threads, error)
"""


def test_the_number_of_threads_is_that_of_the_whole_program(tmp_path: Path) -> None:
    of_three, of_none = run(program(THREADS, tmp_path)).splitlines()
    assert of_three.startswith("3 `threads` is 2 in this program already")
    assert of_none == "0 threads must be from 1 to 256, not 0"


WAITING = """
import sealbus

class Waiting(sealbus.Agent):
    async def setup(self):
        print("ready", flush=True)
    async def on_message(self, message): ...
    async def teardown(self):
        print("goodbye", flush=True)

sealbus.run(Waiting("anna"), Waiting("ben"))
"""

HANGING = """
import sealbus, asyncio

class Hanging(sealbus.Agent):
    async def setup(self):
        print("ready", flush=True)
        while True:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                print("no", flush=True)

sealbus.run(Hanging("anna"))
"""


@contextmanager
def started(text: str, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A program that has said that it is ready; it does not outlive the test."""
    process = subprocess.Popen(
        [sys.executable, program(text, tmp_path)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_all_agents_leave(number: signal.Signals, tmp_path: Path) -> None:
    with started(WAITING, tmp_path) as process:
        process.send_signal(number)
        output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output
    assert output.count("goodbye") == 2
    assert "Traceback" not in output


STARTING = """
import sealbus
from sealbus import platform

class Slow(platform.Platform):
    async def _open(self, agent, name):
        print("ready", flush=True)
        await self._is_told_to_stop.wait()
        return await super()._open(agent, name)

platform.Platform = Slow
sealbus.run(sealbus.Agent("anna"))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_start_is_no_failure(number: signal.Signals, tmp_path: Path) -> None:
    with started(STARTING, tmp_path) as process:
        process.send_signal(number)
        output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output
    assert "Traceback" not in output


@pytest.mark.parametrize("loop", ["sealbus.EventLoop", "asyncio.new_event_loop"])
def test_an_interruption_reaches_a_program_that_waits(loop: str, tmp_path: Path) -> None:
    text = f"""
import asyncio
import sealbus

async def main():
    async with sealbus.Platform() as platform:
        anna = await platform.start(sealbus.Agent("anna"))
        print("ready", flush=True)
        await anna.receive()

with asyncio.Runner(loop_factory={loop}) as runner:
    runner.run(main())
"""
    with started(text, tmp_path) as process:
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=180)
    assert process.returncode == -signal.SIGINT
    assert output.rstrip().endswith("KeyboardInterrupt")


def test_a_failing_agent_gives_the_program_a_bad_exit_code(tmp_path: Path) -> None:
    output = run(
        program(
            """
import sealbus

class Faulty(sealbus.Agent):
    async def setup(self):
        raise ValueError("out of order")

sealbus.run(Faulty("faulty"))
""",
            tmp_path,
        ),
        expect=1,
    )
    assert "ValueError: out of order" in output
    assert output.count('raise ValueError("out of order")') == 1, output
    assert re.search(r"AgentFailed: faulty@\S+: setup raised ValueError", output)


@pytest.mark.parametrize("way", ["return", "raise", "sys.exit(3)", "os._exit(3)"])
def test_a_program_may_end_without_ceremony(way: str, tmp_path: Path) -> None:
    ends = {"return": ("return", 0), "raise": ("raise KeyError", 1)}
    statement, code = ends.get(way, (way, 3))
    run(
        program(
            f"""
import asyncio, os, sys
import sealbus

async def main():
    platform = sealbus.Platform()
    await platform.__aenter__()
    anna = await platform.start(sealbus.Agent("anna"))
    asyncio.create_task(anna.receive()).add_done_callback(lambda task: task.cancelled() or task.exception())
    await anna.send_many([sealbus.AclMessage("inform", "anna")] * 1000)
    {statement}

asyncio.run(main())
""",
            tmp_path,
        ),
        expect=code,
    )


FORK = """
import asyncio, os, sys, multiprocessing
import sealbus

async def converse():
    async with sealbus.Platform() as platform:
        anna = await platform.start(sealbus.Agent("anna"))
        await anna.send(sealbus.AclMessage("inform", "anna", "hello"))
        return (await anna.receive(timeout=60)).text

async def main():
    async with sealbus.Platform() as platform:
        anna = await platform.start(sealbus.Agent("anna"))
        await anna.send_many([sealbus.AclMessage("inform", "anna")] * 1000)
        child = os.fork()
        if not child:
            try:
                anna._life.handle.try_send(sealbus.AclMessage("inform", "anna"))
            except sealbus.PlatformError as error:
                os._exit(7 if "forked" in str(error) else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert len(await anna.receive_many()) == 1000

def work(results):
    results.put(asyncio.run(converse()))

if __name__ == "__main__":
    asyncio.run(main())
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    for _ in range(3):
        process = context.Process(target=work, args=(results,))
        process.start()
        assert results.get(timeout=120) == "hello"
        process.join(120)
        assert process.exitcode == 0
    print(asyncio.run(converse()))
"""


def test_a_fork_neither_hangs_nor_uses_its_parents_agents(tmp_path: Path) -> None:
    assert run(program(FORK, tmp_path)).strip() == "hello"


def test_agents_live_in_a_thread(tmp_path: Path) -> None:
    output = run(
        program(
            """
import threading
import sealbus

class Brief(sealbus.Agent):
    async def setup(self):
        print(f"{self.name}\\n", end="")
        self.stop_all()

threads = [threading.Thread(target=sealbus.run, args=(Brief(name),)) for name in ("anna", "ben")]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
""",
            tmp_path,
        )
    )
    assert sorted(output.split()) == ["anna", "ben"]


def test_the_log_is_asked_for_by_a_variable(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "hello.py"],
        env=environment() | {"SEALBUS_LOG": "sealbus::certification=info"},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    assert "made a key pair" in done.stderr


def test_a_program_that_will_not_leave_is_interrupted_all_the_same(tmp_path: Path) -> None:
    with started(HANGING, tmp_path) as process:
        for _ in range(600):
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=0.1)
                break
            except subprocess.TimeoutExpired:
                continue
        else:
            pytest.fail("it goes on after so many interruptions")
    assert process.returncode != 0

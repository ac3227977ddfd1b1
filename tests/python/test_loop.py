"""The loop that drives the runtime is an asyncio loop like any other, and Rust goes on when Python is busy."""

import asyncio
import gc
import os
import signal
import sys
import time
from unittest.mock import Mock

import pytest

from sealbus import AclMessage, Agent, EventLoop, Message, Platform
from sealbus.loop import _BUSY_TIME, _BUSY_TURNS, Selector


async def test_sockets_threads_processes_and_signals_work_beside_agents() -> None:
    class Echo(Agent):
        async def on_message(self, message: Message) -> None:
            await self.reply(message, "inform", message.content)

    async def converse(platform: Platform) -> None:
        await platform.start(Echo("echo"))
        anna = await platform.start(Agent("anna"))
        for number in range(300):
            reply = await anna.request(AclMessage("request", "echo", str(number)), timeout=60)
            assert reply.text == str(number)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    async def sockets() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            for size in (1, 100, 1_000_000):
                writer.write(b"x" * size)
                assert await reader.readexactly(size) == b"x" * size
            for number in range(300):
                writer.write(number.to_bytes(4))
                assert await reader.readexactly(4) == number.to_bytes(4)
            writer.close()
            await writer.wait_closed()

    async def threads() -> None:
        for number in range(100):
            assert await asyncio.to_thread(pow, number, 2) == number**2

    async def processes() -> None:
        for _ in range(3):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", "print('hello')", stdout=asyncio.subprocess.PIPE
            )
            output, _ = await process.communicate()
            assert output == b"hello\n"

    async def signals() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(10):
            arrived = asyncio.Event()
            loop.add_signal_handler(signal.SIGUSR1, arrived.set)
            os.kill(os.getpid(), signal.SIGUSR1)
            await asyncio.wait_for(arrived.wait(), 60)
        loop.remove_signal_handler(signal.SIGUSR1)

    async def timers() -> None:
        began = time.monotonic()
        for _ in range(20):
            await asyncio.sleep(0.005)
        # uvloop counts in whole milliseconds.
        assert time.monotonic() - began >= 20 * 0.004

    async with Platform() as platform, asyncio.TaskGroup() as group:
        for work in (converse(platform), sockets(), threads(), processes(), signals(), timers()):
            group.create_task(work)


async def test_a_handler_of_a_signal_stays_when_another_one_is_removed() -> None:
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        loop.add_signal_handler(number, arrived.set)
    loop.remove_signal_handler(signal.SIGUSR2)
    os.kill(os.getpid(), signal.SIGUSR1)
    await asyncio.wait_for(arrived.wait(), 60)
    loop.remove_signal_handler(signal.SIGUSR1)


def test_a_handler_of_a_signal_is_heard_in_each_run_of_the_loop() -> None:
    loop = EventLoop()
    arrived = asyncio.Event()

    async def hear() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(arrived.wait(), 60)
        arrived.clear()

    loop.add_signal_handler(signal.SIGUSR1, arrived.set)
    try:
        for _ in range(2):
            loop.run_until_complete(hear())
    finally:
        loop.close()


async def test_the_runtime_goes_on_while_python_is_busy() -> None:
    async with Platform() as platform:
        for number in range(5):
            opening = asyncio.create_task(platform.start(Agent(f"agent-{number}")))
            # One turn begins the start, the next one the opening in it.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            # The certification authority answers from the runtime; nothing is awaited meanwhile.
            deadline = time.monotonic() + 60
            while not platform.pump.native.has_news():
                assert time.monotonic() < deadline, "nobody drives the runtime"
                time.sleep(0.001)
            await opening


async def test_a_loop_that_never_rests_still_hears_its_agents() -> None:
    async with Platform() as platform:
        anna = await platform.start(Agent("anna"))
        resting = True

        async def restless() -> None:
            while resting:
                await asyncio.sleep(0)

        busy = asyncio.create_task(restless())
        for number in range(100):
            await anna.send(AclMessage("inform", "anna", str(number)))
            assert (await anna.receive(timeout=60)).text == str(number)
        ben = await asyncio.wait_for(platform.start(Agent("ben")), 60)
        await anna.send(AclMessage("inform", ben.aid))
        await ben.receive(timeout=60)
        resting = False
        await busy


def test_a_busy_loop_lets_the_runtime_work_after_some_turns_or_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("sealbus.loop.time", Mock(monotonic=lambda: now))
    selector = Selector()
    driver = selector._driver
    assert driver is not None
    driven = Mock(wraps=driver)
    selector._driver = driven
    try:
        selector.select(0)
        driven.reset_mock()
        for number in range(1, 3 * _BUSY_TURNS):
            selector.select(0)
            assert driven.drive.call_count == number // _BUSY_TURNS
        driven.reset_mock()
        for number in range(1, 4):
            now += _BUSY_TIME
            selector.select(0)
            assert driven.drive.call_count == number
    finally:
        selector.close()


def test_loops_come_and_go_in_threads() -> None:
    async def converse(name: str) -> None:
        async with Platform() as platform:
            agents = [await platform.start(Agent(f"{name}-{number}")) for number in range(3)]
            for agent in agents:
                await agent.send(AclMessage("inform", agents[0].aid, agent.name))
            heard = {(await agents[0].receive(timeout=60)).text for _ in agents}
            assert heard == {agent.name for agent in agents}

    def run(name: str) -> None:
        with asyncio.Runner(loop_factory=EventLoop) as runner:
            runner.run(converse(name))

    async def all_at_once() -> None:
        for _ in range(5):
            await asyncio.gather(*(asyncio.to_thread(run, f"t{number}") for number in range(4)))

    asyncio.run(all_at_once())


def test_a_loop_that_is_not_closed_does_no_harm() -> None:
    loop = EventLoop()
    loop.run_until_complete(asyncio.sleep(0))
    with pytest.warns(ResourceWarning, match="unclosed event loop"):
        del loop
        gc.collect()
    with asyncio.Runner(loop_factory=EventLoop) as runner:
        runner.run(asyncio.sleep(0.001))

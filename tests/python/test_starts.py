"""A start that fails, is refused or is cancelled leaves nobody on the platform."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sealbus import AclMessage, Agent, Message, Platform, PlatformError, on
from sealbus.testing import TestBed


class Echo(Agent):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.starts = 0

    async def setup(self) -> None:
        self.starts += 1

    @on("request")
    async def answer(self, message: Message) -> None:
        await self.reply(message, "inform", message.content)


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    async with Platform() as platform:
        yield platform


async def gone(guest: Agent, name: str) -> None:
    """Waits until the platform knows no agent of this name."""
    async with asyncio.timeout(60):
        while await guest.ams.find(name) is not None:
            await asyncio.sleep(0.001)


async def answers(guest: Agent, echo: Echo) -> None:
    reply = await guest.request(AclMessage("request", echo.name, "hello"), timeout=60)
    assert (reply.text, echo.starts) == ("hello", 1)


async def test_the_others_leave_if_a_name_is_taken(platform: Platform) -> None:
    guest = await platform.start(Agent("guest"))
    one, two = Echo("one"), Echo("two")
    with pytest.raises(PlatformError, match="guest"):
        await platform.start_all(one, two, Echo("guest"))
    await gone(guest, "one")
    await gone(guest, "two")
    assert one.starts == 0
    # Nothing keeps them from another try.
    await platform.start_all(one, two)
    await answers(guest, one)
    await answers(guest, two)


@pytest.mark.parametrize("step", ["open_agent", "announce"])
async def test_a_start_that_is_cancelled(platform: Platform, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    guest = await platform.start(Agent("guest"))
    call = platform.pump.call
    reached = asyncio.Event()

    async def stick(begin: Callable[..., None], *arguments: Any) -> Any:
        if getattr(begin, "__name__", "") != step or arguments[:1] == ("one",):
            return await call(begin, *arguments)
        reached.set()
        return await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(platform.pump, "call", stick)
    one, two = Echo("one"), Echo("two")
    start = asyncio.create_task(platform.start_all(one, two))
    async with asyncio.timeout(60):
        await reached.wait()
        while one._life is None:
            await asyncio.sleep(0.001)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    monkeypatch.undo()
    await gone(guest, "one")
    await gone(guest, "two")
    await platform.start(one)
    await answers(guest, one)


async def test_a_start_that_is_cancelled_as_the_agent_is_there(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    guest = await platform.start(Agent("guest"))
    loop = asyncio.get_running_loop()

    class Opened(asyncio.Future[Any]):
        def set_result(self, value: Any) -> None:
            super().set_result(value)
            start.cancel()

    monkeypatch.setattr(platform.pump, "_loop", SimpleNamespace(create_future=lambda: Opened(loop=loop)))
    start = asyncio.create_task(platform.start(Echo("one")))
    gc.disable()
    try:
        with pytest.raises(asyncio.CancelledError):
            await start
        monkeypatch.undo()
        await gone(guest, "one")
    finally:
        gc.enable()


async def test_an_agent_that_is_being_started_is_not_started_twice(platform: Platform) -> None:
    guest = await platform.start(Agent("guest"))
    one = Echo("one")
    first, second = await asyncio.gather(
        platform.start(one), platform.start(one, "two"), return_exceptions=True
    )
    assert first is one
    assert isinstance(second, PlatformError) and "agent one is being started already" in str(second)
    await answers(guest, one)
    assert await guest.ams.find("two") is None
    assert len(platform._lives) == 2
    with pytest.raises(PlatformError, match="one is on a platform already"):
        await platform.start(one, "two")


async def test_a_platform_that_is_not_open_says_so_and_hangs_nobody() -> None:
    platform = Platform()
    anna = Echo("anna")
    with pytest.raises(PlatformError, match="await platform.open"):
        await platform.start(anna)
    # Nothing was taken, so nothing is to be given up.
    await platform.close()
    async with platform:
        await platform.start(anna)
        await answers(await platform.start(Agent("guest")), anna)
    async with asyncio.timeout(60):
        with pytest.raises(PlatformError, match="has left the platform"):
            await platform.start(Echo("ben"))


async def test_a_message_to_one_that_was_abandoned_comes_back(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest = await platform.start(Agent("guest"))
    announcing = asyncio.Event()
    call = platform.pump.call

    async def stick(begin: Callable[..., None], *arguments: Any) -> Any:
        if getattr(begin, "__name__", "") == "announce":
            announcing.set()
            await asyncio.get_running_loop().create_future()
        return await call(begin, *arguments)

    monkeypatch.setattr(platform.pump, "call", stick)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60) as limit:
            start = asyncio.create_task(platform.start(Echo("one")))
            await announcing.wait()
            await guest.send(AclMessage("request", "one", "hello"))
            limit.reschedule(asyncio.get_running_loop().time())
            await start
    failure = await guest.receive(timeout=60)
    assert failure.performative == "failure" and failure.undelivered is not None


async def test_one_whose_platform_is_left_meanwhile_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    platform = await Platform().open()
    call = platform.pump.call
    announcing, may_go_on = asyncio.Event(), asyncio.Event()

    async def hold(begin: Callable[..., None], *arguments: Any) -> Any:
        match getattr(begin, "__name__", ""):
            case "announce":
                announcing.set()
                await may_go_on.wait()
            case "close":
                # No agents were left to wait for.
                may_go_on.set()
                await asyncio.wait([start])
        return await call(begin, *arguments)

    monkeypatch.setattr(platform.pump, "call", hold)
    late = Echo("late")
    start = asyncio.create_task(platform.start(late))
    async with asyncio.timeout(60):
        await announcing.wait()
        await platform.close()
    with pytest.raises(PlatformError, match="this program leaves the platform"):
        await start
    assert (late.starts, late._life, platform._lives) == (0, None, {})


async def test_one_that_is_to_leave_before_it_begins_has_no_more_time_than_others(
    testbed: TestBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(Agent):
        async def setup(self) -> None:
            await self.clock.sleep(3600)

    call = testbed.pump.call
    announcing, may_go_on = asyncio.Event(), asyncio.Event()

    async def hold(begin: Callable[..., None], *arguments: Any) -> Any:
        if getattr(begin, "__name__", "") == "announce":
            announcing.set()
            await may_go_on.wait()
        return await call(begin, *arguments)

    monkeypatch.setattr(testbed.pump, "call", hold)
    slow = Slow("slow")
    start = asyncio.create_task(testbed.start(slow))
    async with asyncio.timeout(60):
        await announcing.wait()
        testbed.stop()
        while not slow._living.is_stopping:
            await asyncio.sleep(0.001)
        may_go_on.set()
        await start
        before = testbed.clock.now()
        await testbed.clock.run(testbed.wait())
    assert testbed.clock.now() - before < 2

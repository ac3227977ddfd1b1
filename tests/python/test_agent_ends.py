"""The end of agents and platforms on purpose and by failures, and the beginnings that are refused."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import datetime, time, timedelta, tzinfo

import pytest
import uvloop

from sealbus import (
    AclMessage,
    Agent,
    AgentFailed,
    AgentStopped,
    EventLoop,
    Message,
    Platform,
    PlatformError,
    at,
    on,
    on_request,
    once,
)
from sealbus.testing import TestBed

from test_agents import Echo


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    async with Platform() as platform:
        yield platform


async def test_stop_lets_the_agent_leave_after_its_hook() -> None:
    events: list[str] = []

    class Brief(Agent):
        async def setup(self) -> None:
            self.stop()
            await asyncio.sleep(0.01)
            events.append("setup")

        async def teardown(self) -> None:
            reply = await self.request(AclMessage("request", "echo", "bye"), timeout=60)
            events.append(reply.text)

    async with Platform() as platform:
        await platform.start(Echo("echo"))
        brief = await platform.start(Brief())
        while len(events) < 2:
            await asyncio.sleep(0.001)
        while True:
            try:
                await brief.send(AclMessage("inform", "echo"))
                await asyncio.sleep(0.001)
            except AgentStopped:
                break
        with pytest.raises(AgentStopped):
            await brief.receive()
    assert events == ["setup", "bye"]


async def test_an_agent_that_is_to_stop_takes_few_of_the_messages_that_are_there() -> None:
    taken = 0

    class Reader(Agent):
        async def setup(self) -> None:
            nonlocal taken
            await self.send_many([AclMessage("inform", self.aid)] * 1000)
            self.stop()
            while True:
                await self.receive()
                taken += 1

    async with Platform() as platform:
        await platform.start(Reader("reader"))
        await platform.wait()
    assert 0 < taken < 100


async def test_an_agent_that_is_to_stop_takes_no_more_rows_of_messages() -> None:
    taken = 0

    class Reader(Agent):
        async def setup(self) -> None:
            nonlocal taken
            await self.send_many([AclMessage("inform", self.aid)] * 1000)
            self.stop()
            while True:
                taken += len(await self.receive_many(1))

    async with Platform() as platform:
        await platform.start(Reader("reader"))
        await platform.wait()
    assert taken < 100


async def test_leaving_the_platform_ends_hooks_that_wait() -> None:
    began: list[str] = []
    waiting: list[str] = []
    sleeping: list[str] = []

    class Waiting(Agent):
        async def setup(self) -> None:
            began.append("waiting")
            try:
                await self.receive()
            except AgentStopped:
                waiting.append("stopped")
                raise

        async def teardown(self) -> None:
            waiting.append("teardown")

    class Sleeping(Agent):
        async def setup(self) -> None:
            began.append("sleeping")
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                sleeping.append("cancelled")
                raise

    async with Platform() as platform:
        await platform.start(Waiting())
        await platform.start(Sleeping())
        while len(began) < 2:
            await asyncio.sleep(0.001)
    assert (waiting, sleeping) == (["stopped", "teardown"], ["cancelled"])


@pytest.mark.parametrize("hook", ["setup", "teardown", "task"])
async def test_a_failing_hook_ends_its_agent_and_no_other(
    hook: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Faulty(Agent):
        def fail(self, here: str) -> None:
            if hook == here:
                raise ValueError("out of order")

        async def setup(self) -> None:
            self.fail("setup")
            if hook == "task":
                self.create_task(self.task())

        async def task(self) -> None:
            await asyncio.sleep(0)
            self.fail("task")

        async def on_message(self, message: Message) -> None:
            self.stop()

        async def teardown(self) -> None:
            self.fail("teardown")

    with pytest.raises(AgentFailed, match="out of order") as caught:
        async with Platform() as platform:
            await platform.start(Faulty("faulty"))
            await platform.start(Echo("echo"))
            anna = await platform.start(Agent("anna"))
            with caplog.at_level(logging.CRITICAL, "sealbus"):
                await anna.send(AclMessage("inform", "faulty"))
                reply = await anna.request(AclMessage("request", "echo", "fine"), timeout=60)
                assert reply.text == "fine"
                while await anna.ams.find("faulty") is not None:
                    await asyncio.sleep(0.001)
            name = platform.name
    assert caught.value.agent == f"faulty@{name}"
    assert isinstance(caught.value.__cause__, ValueError)
    assert f"faulty@{name}" in str(caught.value)


async def test_several_failures_come_together() -> None:
    class Faulty(Agent):
        async def setup(self) -> None:
            raise ValueError(self.name)

    with pytest.raises(ExceptionGroup) as caught:
        async with Platform() as platform:
            await platform.start_all(Faulty("one"), Faulty("two"))
            await platform.wait()
    assert [type(failure) for failure in caught.value.exceptions] == [AgentFailed, AgentFailed]


async def test_a_name_is_taken_once(platform: Platform) -> None:
    anna = await platform.start(Agent("anna"))
    with pytest.raises(PlatformError, match="anna"):
        await platform.start(Agent("anna"))
    with pytest.raises(PlatformError, match="on a platform already"):
        await platform.start(anna)
    with pytest.raises(PlatformError):
        await platform.start(Agent("not legal"))
    with pytest.raises(AgentStopped, match=r"not on a platform.*run"):
        await Agent("elsewhere").receive()


async def test_one_loop_holds_several_platforms() -> None:
    async with Platform() as one, Platform() as two:
        first, second = await one.start(Agent("anna")), await two.start(Agent("anna"))
        await first.send(AclMessage("inform", "anna", "one"))
        await second.send(AclMessage("inform", "anna", "two"))
        assert (await first.receive(timeout=60)).text == "one"
        assert (await second.receive(timeout=60)).text == "two"


async def test_an_exception_in_the_block_is_what_is_raised() -> None:
    with pytest.raises(KeyError):
        async with Platform() as platform:
            await platform.start(Agent("anna"))
            raise KeyError


def test_agents_live_in_any_loop() -> None:
    async def converse() -> str:
        async with Platform() as platform:
            await platform.start(Echo("echo"))
            anna = await platform.start(Agent("anna"))
            return (await anna.request(AclMessage("request", "echo", "hello"), timeout=60)).text

    for factory in [asyncio.new_event_loop, uvloop.new_event_loop, EventLoop] * 3:
        with asyncio.Runner(loop_factory=factory) as runner:
            assert runner.run(converse()) == "hello"


class Odd(BaseException):
    """As a panic of the native half, or the end of a test inside a hook."""


@pytest.mark.parametrize("hook", ["setup", "in turn", "side by side", "behaviour", "teardown"])
async def test_an_exception_of_any_kind_is_the_failure_of_its_agent(hook: str, caplog: pytest.LogCaptureFixture) -> None:
    class Faulty(Agent):
        def fail(self, here: str) -> None:
            if hook == here:
                raise Odd("out of order")

        async def setup(self) -> None:
            self.fail("setup")

        @on("inform")
        async def in_turn(self, message: Message) -> None:
            self.fail("in turn")

        @on("propose", concurrency=2)
        async def side_by_side(self, message: Message) -> None:
            self.fail("side by side")

        @once
        async def behave(self) -> None:
            self.fail("behaviour")

        async def teardown(self) -> None:
            self.fail("teardown")

    with caplog.at_level(logging.CRITICAL, "sealbus"), pytest.raises(AgentFailed, match="raised Odd: out of order"):
        async with Platform() as platform:
            faulty, anna = await platform.start(Faulty("faulty")), await platform.start(Agent("anna"))
            for act in ("inform", "propose"):
                await anna.send(AclMessage(act, "faulty"))
            if hook == "teardown":
                faulty.stop()
            async with asyncio.timeout(60):
                await faulty._living.ended()


class Nowhere(tzinfo):
    """A time zone that cannot be looked up."""

    def utcoffset(self, when: datetime | None) -> timedelta:
        raise ValueError("there is no such zone")

    def dst(self, when: datetime | None) -> timedelta:
        raise ValueError("there is no such zone")

    def tzname(self, when: datetime | None) -> str:
        return "nowhere"


async def test_a_schedule_that_raises_is_the_failure_of_its_agent(caplog: pytest.LogCaptureFixture) -> None:
    class Clerk(Agent):
        @at(time(6, 30, tzinfo=Nowhere()))
        async def open(self) -> None: ...

    with caplog.at_level(logging.CRITICAL, "sealbus"), pytest.raises(AgentFailed, match="open raised ValueError: there is no such"):
        async with Platform() as platform:
            await platform.start(Clerk("clerk"))
            async with asyncio.timeout(60):
                await platform.wait()


async def test_an_agent_that_hears_of_lost_messages_at_the_end_has_time_for_its_teardown(
    testbed: TestBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(Agent):
        def __init__(self) -> None:
            super().__init__("slow")
            self.heard: list[Message] = []
            self.has_left = False

        async def on_message(self, message: Message) -> None:
            self.heard.append(message)
            await self.clock.sleep(4)

        async def teardown(self) -> None:
            await self.clock.sleep(4)
            self.has_left = True

    slow, probe = await testbed.start(Slow()), await testbed.probe()
    await probe.send(AclMessage("inform", "slow"))
    await testbed.clock.advance(5)
    # As in a process that the platform has given up.
    lost = slow.heard.copy()
    monkeypatch.setattr(slow._living.handle, "try_receive_failure", lambda: lost.pop() if lost else None)
    testbed.stop()
    async with asyncio.timeout(60):
        await testbed._is_told_to_stop.wait()
        await testbed.clock.run(testbed.wait())
    assert slow.has_left and len(slow.heard) == 2


async def test_an_agent_that_has_left_is_not_kept_by_conversations_that_take_late_messages(platform: Platform) -> None:
    class Clerk(Agent):
        @on_request()
        async def work(self, request: Message) -> str:
            return "done"

    async def note(message: Message) -> None: ...

    clerk, guest = await platform.start(Clerk("clerk")), await platform.start(Agent("guest"))
    async with guest.request_action("x", to="clerk", timeout=60) as asked:
        asked.late = note
        assert (await asked.result()).text == "done"
    life, known = guest._living, platform.pump._mailboxes
    async with asyncio.timeout(60):
        while clerk._living.mailbox._owners:
            await asyncio.sleep(0.001)
        assert len(life.mailbox._owners) == 1 and len(known) == 3
        guest.stop()
        await life.ended()
    # The clerk's is left.
    assert not life.mailbox._owners and len(known) == 1

"""A task that is cancelled while it sends or waits: nothing is lost by that, and nothing is done twice when it tries again."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from sealbus import AclMessage, Agent, AgentFailed, ChannelEvent, Message, Platform, cyclic, on, on_question
from sealbus.handlers import CUT_OFF, FAILED


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    async with Platform() as platform:
        yield platform


def end_turn(agent: Agent) -> None:
    """Lets an agent pause at its next message."""
    agent._living.turn, agent._living._turn_ends = 0, 0.0


@pytest.mark.parametrize("way", ["send", "send_many", "publish"])
async def test_a_sender_that_is_cancelled_in_its_pause_has_sent_nothing(platform: Platform, way: str) -> None:
    anna, ben = await platform.start(Agent("anna")), await platform.start(Agent("ben"))
    news = await ben.subscribe("/news")
    # From the second event on, nothing is waited for.
    await anna.publish("/news", "first")
    await news.next()
    message = AclMessage("inform", ben.aid, "hello")
    ways: dict[str, Callable[[], Awaitable[Any]]] = {
        "send": lambda: anna.send(message),
        "send_many": lambda: anna.send_many([message]),
        "publish": lambda: anna.publish("/news", "hello"),
    }
    end_turn(anna)
    sending = asyncio.ensure_future(ways[way]())
    # It has begun.
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await ways[way]()
    if way == "publish":
        assert (await news.next()).text == "hello"
    else:
        assert (await ben.receive(timeout=60)).text == "hello"
    assert news.try_next() is None and ben._living.handle.try_receive(None) is None


async def test_a_handler_that_is_cut_off_before_its_answer_was_sent_has_not_answered(platform: Platform) -> None:
    class Clerk(Agent):
        @on("request", concurrency=2)
        async def work(self, request: Message) -> None:
            task = asyncio.current_task()
            assert task is not None
            end_turn(self)
            asyncio.get_running_loop().call_soon(task.cancel)
            await self.reply(request, "inform", "done")

    await platform.start(Clerk("clerk"))
    guest = await platform.start(Agent("guest"))
    reply = await guest.request(AclMessage("request", "clerk"), timeout=60)
    assert (reply.performative, reply.text) == ("failure", CUT_OFF)


async def test_an_answer_that_comes_while_its_wait_is_cancelled_is_the_next_one(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    class Shop(Agent):
        @on_question("/wanted/tea")
        async def wanted(self, question: ChannelEvent) -> None:
            nonlocal asked
            asked += 1
            await self.reply(question, "propose", "9 EUR")

    await platform.start(Shop("shop"))
    buyer = await platform.start(Agent("buyer"))
    replies = (await buyer.channel("/wanted/tea")).request("who has tea?", timeout=60)
    call = platform.pump.call
    has_come, may_go_on = asyncio.Event(), asyncio.Event()

    async def hold(begin: Callable[..., None], *arguments: Any) -> Any:
        outcome = await call(begin, *arguments)
        if getattr(begin, "__name__", "") == "next":
            has_come.set()
            await may_go_on.wait()
        return outcome

    monkeypatch.setattr(platform.pump, "call", hold)
    waiting = asyncio.create_task(replies.next())
    async with asyncio.timeout(60):
        await has_come.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    may_go_on.set()
    assert [reply.text for reply in await replies.all()] == ["9 EUR"]
    assert (replies.missing, asked) == ([], 1)
    assert await replies.next() is None


async def test_a_wait_for_an_event_that_is_cancelled_takes_no_wake_up_with_it(platform: Platform) -> None:
    anna, ben = await platform.start(Agent("anna")), await platform.start(Agent("ben"))
    news = await ben.subscribe("/news")
    first, second = asyncio.create_task(news.next()), asyncio.create_task(news.next())
    for _ in range(20):
        await asyncio.sleep(0.001)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    await anna.publish("/news", "hello")
    async with asyncio.timeout(10):
        assert (await first).text == "hello"


async def test_answers_that_a_cancelled_wait_for_all_had_taken_come_again(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_answer = asyncio.Event()

    class Shop(Agent):
        @on_question("/wanted/tea")
        async def wanted(self, question: ChannelEvent) -> None:
            if self.name == "slow":
                await may_answer.wait()
            await self.reply(question, "propose", self.name)

    for name in ("quick", "slow"):
        await platform.start(Shop(name))
    buyer = await platform.start(Agent("buyer"))
    replies = (await buyer.channel("/wanted/tea")).request("who has tea?", timeout=60)
    next_answer, waits, has_taken = replies.next, 0, asyncio.Event()

    async def count() -> ChannelEvent | None:
        nonlocal waits
        waits += 1
        if waits == 2:
            has_taken.set()
        return await next_answer()

    monkeypatch.setattr(replies, "next", count)
    waiting = asyncio.create_task(replies.all())
    async with asyncio.timeout(60):
        await has_taken.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    may_answer.set()
    assert [reply.text for reply in await replies.all()] == ["quick", "slow"]
    assert await replies.next() is None


async def test_a_subscription_whose_beginning_is_cancelled_ends(platform: Platform) -> None:
    anna, ben = await platform.start(Agent("anna")), await platform.start(Agent("ben"))
    async with await ben.subscribe("/other"):
        pass
    end_turn(ben)
    subscribing = asyncio.ensure_future(ben.subscribe("/news"))
    await asyncio.sleep(0)
    subscribing.cancel()
    # The exception keeps what its frames hold.
    with pytest.raises(asyncio.CancelledError) as caught:
        await subscribing
    assert (await anna.publish("/news", "hello")).here == 0
    assert caught.type is asyncio.CancelledError


async def wait_in_vain() -> None:
    """Waits for something that another one cancels."""
    task = asyncio.ensure_future(asyncio.sleep(60))
    asyncio.get_running_loop().call_soon(task.cancel)
    await task


@pytest.mark.parametrize("concurrency", [1, 2])
async def test_a_handler_that_waits_for_a_cancelled_task_fails_and_its_agent_lives(
    platform: Platform, caplog: pytest.LogCaptureFixture, concurrency: int
) -> None:
    class Clerk(Agent):
        @on("request", concurrency=concurrency)
        async def work(self, request: Message) -> None:
            if request.text == "wait":
                await wait_in_vain()
            await self.reply(request, "inform", "done")

    clerk, guest = await platform.start(Clerk("clerk")), await platform.start(Agent("guest"))
    with caplog.at_level(logging.CRITICAL, "sealbus"):
        reply = await guest.request(AclMessage("request", "clerk", "wait"), timeout=60)
    assert (reply.performative, reply.text, clerk.failures) == ("failure", FAILED, 1)
    reply = await guest.request(AclMessage("request", "clerk", "work"), timeout=60)
    assert reply.text == "done"


async def test_a_setup_that_waits_for_a_cancelled_task_fails() -> None:
    class Clerk(Agent):
        async def setup(self) -> None:
            await wait_in_vain()

    with pytest.raises(AgentFailed, match="setup raised RuntimeError: it waited for something that was cancelled"):
        async with Platform() as platform:
            await platform.start(Clerk("clerk"))
            await platform.wait()


async def test_a_behaviour_that_waits_for_a_cancelled_task_goes_on(
    platform: Platform, caplog: pytest.LogCaptureFixture
) -> None:
    goes_on = asyncio.Event()

    class Sensor(Agent):
        @cyclic
        async def measure(self) -> None:
            if not self.behaviours["measure"].failures:
                await wait_in_vain()
            goes_on.set()
            await asyncio.Event().wait()

    with caplog.at_level(logging.CRITICAL, "sealbus"):
        sensor = await platform.start(Sensor("sensor"))
        async with asyncio.timeout(60):
            await goes_on.wait()
    assert (sensor.failures, sensor.behaviours["measure"].runs) == (1, 2)

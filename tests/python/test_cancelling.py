"""A task that is cancelled while it sends or waits: nothing is lost by that, and nothing is done twice when it tries again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from sealbus import AclMessage, Agent, ChannelEvent, Message, Platform, on, on_question
from sealbus.handlers import CUT_OFF


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

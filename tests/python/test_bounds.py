"""Others cannot make an agent hold more than it has set itself as a limit."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from sealbus import AclMessage, Agent, Message, Platform, on, on_contract_net, on_request, on_subscribe
from sealbus.brokering import _Errand
from sealbus.conversation import BACKLOG
from sealbus.life import POSTED
from sealbus.platform import KEPT_FAILURES
from sealbus.testing import TestBed


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    async with Platform() as platform:
        yield platform


async def test_few_answers_wait_for_a_peer_that_reads_none(
    platform: Platform, caplog: pytest.LogCaptureFixture
) -> None:
    class Clerk(Agent):
        @on_request(int)
        async def double(self, request: Message[int]) -> int:
            return request.body * 2

    clerk = await platform.start(Clerk("clerk"))
    mallory, guest = await platform.start(Agent("mallory")), await platform.start(Agent("guest"))
    large, sent = AclMessage("inform", mallory.aid, bytes(100_000)), 0
    while guest._living.handle.try_send(large) is None:
        sent += 1
    assert sent > 50, "its mailbox is not full"
    total = 4 * POSTED
    with caplog.at_level(logging.CRITICAL, "sealbus"):
        for number in range(total):
            opening = AclMessage(
                "request", clerk.aid, "nonsense", protocol="fipa-request", conversation_id=str(number), reply_with="r"
            )
            await mallory.send(opening)
        async with asyncio.timeout(120):
            while clerk.failures < total:
                await asyncio.sleep(0.001)
    assert len(clerk._living.tasks._running) <= POSTED
    assert (await guest.request_action(21, to="clerk", reply=int, timeout=60)).body == 42


async def test_an_initiator_that_reads_none_gives_its_places_back(testbed: TestBed) -> None:
    class Clerk(Agent):
        @on_request(int, conversations=2)
        async def double(self, request: Message[int]) -> int:
            return request.body * 2

    await testbed.start(Clerk("clerk"))
    mallory, guest = await testbed.probe("mallory"), await testbed.probe("guest")
    large = AclMessage("inform", mallory.aid, bytes(100_000))
    while mallory._living.handle.try_send(large) is None:
        pass
    for number in range(2):
        opening = AclMessage(
            "request", "clerk", protocol="fipa-request", conversation_id=str(number), reply_with="r", body=21
        )
        await mallory.send(opening)
    await testbed.clock.settle()
    before = testbed.clock.now()
    answer = await testbed.clock.run(guest.request_action(21, to="clerk", reply=int, timeout=3600))
    assert answer.body == 42
    assert 59 < testbed.clock.now() - before < 100


async def test_a_receiver_without_room_holds_no_conversation_up(testbed: TestBed) -> None:
    class Bidder(Agent):
        @on_contract_net()
        async def bid(self, call: Message) -> str:
            return "mine"

    for name in ("anna", "zoe"):
        await testbed.start(Bidder(name))
    await testbed.start(Agent("mallory"))
    guest = await testbed.probe("guest")
    large = AclMessage("inform", "mallory", bytes(100_000))
    while guest._living.handle.try_send(large) is None:
        pass

    async def call() -> tuple[list[str], list[str]]:
        async with guest.contract_net("x", to=["anna", "mallory", "zoe"], timeout=5) as net:
            return sorted(it.agent.local_name for it in net.proposals), [it.local_name for it in net.silent]

    assert await testbed.clock.run(call(), limit=6) == (["anna", "zoe"], ["mallory"])
    # Nobody waits any more.
    assert not guest._living.tasks._running


async def test_a_broker_takes_no_more_answers_than_it_passes_on(platform: Platform) -> None:
    total = 2 * BACKLOG

    class Chatty(Agent):
        is_done = False

        @on_subscribe()
        async def talk(self, subscription: Message) -> AsyncIterator[int]:
            for number in range(total):
                yield number
            self.is_done = True

    class Talk:
        """Passes on to an agent that has no room."""

        passed: list[object] = []

        async def say(self, act: object, content: AclMessage) -> None:
            self.passed.append(content.content)
            await may_go_on.wait()

    chatty, broker = await platform.start(Chatty("chatty")), await platform.start(Agent("middleman"))
    may_go_on = asyncio.Event()
    errand = _Errand(broker._living, [chatty.aid], "fipa-subscribe", 60)
    work = asyncio.create_task(errand.run(AclMessage("subscribe"), cast(Any, Talk())))
    async with asyncio.timeout(120):
        while not chatty.is_done:
            await asyncio.sleep(0.001)
        # It comes after all of them.
        await chatty.send(AclMessage("inform", broker.aid))
        await broker.receive()
        errand.wake()
        assert len(errand.answers) == BACKLOG
        may_go_on.set()
        assert await work == total
    assert Talk.passed == [str(number) for number in range(total)]


async def test_few_refusals_and_failures_of_recruits_are_kept(platform: Platform) -> None:
    class Finder(Agent):
        @on("proxy")
        async def promise(self, call: Message) -> None:
            await self.reply(call, "agree")

    await platform.start(Finder("finder"))
    guest, mallory = await platform.start(Agent("guest")), await platform.start(Agent("mallory"))
    question = AclMessage("query-ref", content="tomorrow", protocol="fipa-query")
    async with asyncio.timeout(120), guest.recruit(question, service="weather", to="finder", reply=int, timeout=60) as answers:
        # The last one is not a number.
        for act in ("refuse", "failure", "inform"):
            for _ in range(BACKLOG + 10):
                await mallory.send(AclMessage(act, guest.aid, "nonsense", conversation_id=answers.id))
        await mallory.send(AclMessage("inform", guest.aid, body=7, conversation_id=answers.id))
        assert (await anext(answers)).body == 7
        assert len(answers.refused) == len(answers.failed) == BACKLOG


async def test_the_first_and_the_latest_failures_of_agents_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    class Faulty(Agent):
        async def setup(self) -> None:
            raise ValueError(self.name)

    total = 2 * KEPT_FAILURES
    with caplog.at_level(logging.CRITICAL, "sealbus"), pytest.raises(ExceptionGroup, match=f"{total} agents failed") as caught:
        async with Platform() as platform:
            for number in range(total):
                await platform.start(Faulty(f"faulty-{number}"))
                await platform.wait()
    latest = [f"faulty-{number}" for number in range(total - KEPT_FAILURES + 1, total)]
    assert [str(failure.__cause__) for failure in caught.value.exceptions] == ["faulty-0", *latest]

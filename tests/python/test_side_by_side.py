"""Handlers that run side by side: how many at once, and their end when their agent ends or moves."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from sealbus import (
    AclMessage,
    Agent,
    ChannelEvent,
    Filter,
    Message,
    Platform,
    Refuse,
    on,
    on_event,
    on_question,
)
from sealbus import life as life_module


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    async with Platform() as platform:
        yield platform


class Office(Agent):
    """Works on three things at once; a clerk does one thing after the other meanwhile."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.now = self.most = self.cut_off = 0
        self.go = asyncio.Event()

    @on("request", concurrency=3)
    async def work(self, request: Message) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cut_off += 1
            raise
        finally:
            self.now -= 1
        if request.content == "fail":
            raise Refuse("no")
        await self.reply(request, "inform", request.content)

    @on("query-ref")
    async def clerk(self, query: Message) -> None:
        await self.reply(query, "inform", f"{self.now} at work")


async def test_handlers_run_side_by_side_within_a_bound(platform: Platform) -> None:
    office, anna = await platform.start(Office("office")), await platform.start(Agent("anna"))
    works = [
        asyncio.create_task(anna.request(AclMessage("request", "office", str(number)), timeout=60))
        for number in range(10)
    ]
    while office.now < 3:
        await asyncio.sleep(0.001)
    # The others wait in the mailbox and hold nobody up.
    for _ in range(3):
        answer = await anna.request(AclMessage("query-ref", "office"), timeout=60)
        assert answer.text == "3 at work"
    refused = asyncio.create_task(anna.request(AclMessage("request", "office", "fail"), timeout=60))
    office.go.set()
    assert [(await work).text for work in works] == [str(number) for number in range(10)]
    assert (await refused).performative == "refuse"
    assert (office.most, office.now) == (3, 0)


async def test_a_hook_that_waits_does_not_hold_up_what_runs_side_by_side(platform: Platform) -> None:
    class Slow(Office):
        waits = False

        @on("inform")
        async def slow(self, message: Message) -> None:
            # A message that it waits for goes to no handler.
            self.waits = True
            await self.receive(Filter("request", conversation_id="mine"))
            await self.go.wait()

    slow, anna = await platform.start(Slow("slow")), await platform.start(Agent("anna"))
    await anna.send(AclMessage("inform", "slow"))
    while not slow.waits:
        await asyncio.sleep(0.001)
    await anna.send(AclMessage("request", "slow", conversation_id="mine"))
    work = asyncio.create_task(anna.request(AclMessage("request", "slow", "1"), timeout=60))
    while slow.now < 1:
        await asyncio.sleep(0.001)
    assert slow.now == 1
    slow.go.set()
    assert (await work).text == "1"


async def test_an_earlier_handler_has_its_say(platform: Platform) -> None:
    class Office(Agent):
        @on("request", ontology="first")
        async def first(self, message: Message) -> None:
            await self.reply(message, "inform", "first")

        @on("request", concurrency=2)
        async def second(self, message: Message) -> None:
            await self.reply(message, "inform", "second")

        @on("request", ontology="third")
        @on("query-ref")
        async def third(self, message: Message) -> None:
            await self.reply(message, "inform", "third")

    await platform.start(Office("office"))
    anna = await platform.start(Agent("anna"))
    for performative, ontology, handler in (
        ("request", "first", "first"),
        ("request", "third", "second"),
        ("request", None, "second"),
        ("query-ref", None, "third"),
    ):
        message = AclMessage(performative, "office", ontology=ontology)
        assert (await anna.request(message, timeout=60)).text == handler


async def test_events_and_questions_run_side_by_side(platform: Platform) -> None:
    class Shop(Agent):
        def __init__(self, name: str) -> None:
            super().__init__(name)
            self.now = self.most = 0
            self.go = asyncio.Event()

        @on_event("/offers", concurrency=4)
        async def offer(self, event: ChannelEvent) -> None:
            self.now += 1
            self.most = max(self.most, self.now)
            await self.go.wait()
            self.now -= 1

        @on_question("/wanted", concurrency=2)
        async def wanted(self, question: ChannelEvent) -> None:
            if question.text == "slow":
                await self.go.wait()
            await self.reply(question, "propose", question.text)

    shop, anna = await platform.start(Shop("shop")), await platform.start(Agent("anna"))
    for number in range(12):
        await anna.publish("/offers", str(number))
    channel = await anna.channel("/wanted")
    slow = asyncio.create_task(channel.request("slow", timeout=60).all())
    (fast,) = await channel.request("fast", timeout=60).all()
    assert fast.text == "fast"
    while shop.now < 4:
        await asyncio.sleep(0.001)
    shop.go.set()
    assert [reply.text for reply in await slow] == ["slow"]
    while shop.now:
        await asyncio.sleep(0.001)
    assert shop.most == 4


async def test_ending_waits_a_moment_and_then_cuts_off(monkeypatch: pytest.MonkeyPatch) -> None:
    # A busy machine does not cut off what is about to end.
    monkeypatch.setattr(life_module, "HOOK_GRACE", 60.0)
    async with Platform() as platform:
        patient, anna = await platform.start(Office("patient")), await platform.start(Agent("anna"))
        work = asyncio.create_task(anna.request(AclMessage("request", "patient", "1"), timeout=60))
        while not patient.now:
            await asyncio.sleep(0.001)
        patient.stop()
        patient.go.set()
        assert (await work).text == "1"
        assert patient.cut_off == 0

        monkeypatch.setattr(life_module, "HOOK_GRACE", 0.01)
        hasty = await platform.start(Office("hasty"))
        work = asyncio.create_task(anna.request(AclMessage("request", "hasty", "1"), timeout=60))
        while not hasty.now:
            await asyncio.sleep(0.001)
        hasty.stop()
        reply = await work
        assert (reply.performative, hasty.cut_off) == ("failure", 1)
        assert "cut off before it was done" in reply.text
        # So others know that the agent may come back.
        assert reply.user_defined["X-Sealbus-Leaving"] == "yes"


@pytest.mark.parametrize("grace", [60.0, 0.01])
async def test_a_move_waits_for_handlers_or_cuts_them_off(
    platform: Platform, grace: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(life_module, "MOVE_GRACE", grace)
    saved: list[int] = []

    class Moving(Office):
        async def save(self) -> bytes:
            saved.append(self.now)
            raise ValueError("it stays")

    office, anna = await platform.start(Moving("office")), await platform.start(Agent("anna"))
    work = asyncio.create_task(anna.request(AclMessage("request", "office", "1"), timeout=60))
    while not office.now:
        await asyncio.sleep(0.001)
    life = office._living
    life._freeze = True
    life.wake()
    later = asyncio.create_task(anna.request(AclMessage("request", "office", "2"), timeout=60))
    if grace > 1:
        while life._freeze:
            await asyncio.sleep(0.001)
        office.go.set()
        assert (await work).text == "1"
    else:
        assert (await work).performative == "failure"
    office.go.set()
    # The agent has stayed, and goes on.
    assert (await later).text == "2"
    assert saved == [0]

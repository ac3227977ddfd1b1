"""Handlers that declare the types of their messages' bodies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from sealbus import (
    AclMessage,
    Agent,
    ChannelEvent,
    ConversationError,
    Message,
    Performative,
    Platform,
    Refuse,
    on,
    on_event,
    on_query,
    on_question,
    tool,
)


@dataclass
class Task:
    title: str
    hours: float


@dataclass
class Result:
    cost: float


@dataclass
class Reading:
    celsius: float


class Painter(Agent):
    def __init__(self) -> None:
        super().__init__("painter")
        self.readings: list[float] = []

    @on(Performative.REQUEST, body=Task)
    async def paint(self, message: Message[Task]) -> None:
        await self.reply(message, Performative.INFORM, Result(message.body.hours * 50))

    @on(Performative.CFP, body=Task, concurrency=2)
    async def bid(self, message: Message[Task]) -> None:
        await self.reply(message, Performative.PROPOSE, Result(message.body.hours * 40))

    @on_event("/sensors/**", body=Reading)
    async def show(self, event: ChannelEvent[Reading]) -> None:
        self.readings.append(event.body.celsius)

    @on_question("/weather", body=Reading)
    async def answer(self, question: ChannelEvent[Reading]) -> None:
        await self.reply(question, Performative.INFORM, Reading(question.body.celsius + 1))


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    async with Platform() as platform:
        yield platform


@pytest.mark.parametrize("act", [Performative.REQUEST, Performative.CFP])
async def test_a_handler_gets_the_declared_type(platform: Platform, act: Performative) -> None:
    await platform.start(Painter())
    guest = await platform.start(Agent("guest"))
    answer = await guest.request(AclMessage(act, "painter", body=Task("fence", 2.0)), timeout=60)
    assert answer.language == "application/json"
    assert answer.body_as(Result).cost in (100.0, 80.0)
    assert answer.body == {"cost": answer.body_as(Result).cost}


@pytest.mark.parametrize("act", [Performative.REQUEST, Performative.CFP])
async def test_what_does_not_fit_is_not_understood_with_the_place(platform: Platform, act: Performative) -> None:
    painter = Painter()
    await platform.start(painter)
    guest = await platform.start(Agent("guest"))
    wrong = [
        (AclMessage(act, "painter"), "$: the message has no content"),
        (AclMessage(act, "painter", "paint!"), "$: no JSON: expected value at line 1 column 1"),
        (AclMessage(act, "painter", "(paint)", language="fipa-sl"), "$: expected the language application/json, got fipa-sl"),
        (AclMessage(act, "painter", body={"title": "fence", "hours": "2"}), "$.hours: expected float, got str"),
    ]
    for message, place in wrong:
        answer = await guest.request(message, timeout=60)
        assert answer.performative is Performative.NOT_UNDERSTOOD
        assert answer.content == place
        assert answer.language is None
    assert painter.failures == len(wrong)
    fence = AclMessage(act, "painter", body=Task("fence", 2.0))
    assert (await guest.request(fence, timeout=60)).performative is not Performative.NOT_UNDERSTOOD


async def test_events_and_questions_have_bodies(platform: Platform) -> None:
    painter = Painter()
    await platform.start(painter)
    guest = await platform.start(Agent("guest"))
    await guest.publish("/sensors/a", Reading(20.5))
    await guest.publish("/sensors/a", "nonsense")
    await guest.publish("/sensors/b", Reading(21.5))
    channel = await guest.channel("/weather")
    replies = await channel.request(Reading(1.0), timeout=60, first=1).all()
    assert [reply.body_as(Reading) for reply in replies] == [Reading(2.0)]
    while len(painter.readings) < 2:
        await guest.publish("/sensors/c", AclMessage("inform", body=Reading(22.5)))
    assert painter.readings[:2] == [20.5, 21.5]


def test_the_type_of_a_message_can_be_written() -> None:
    assert Message[Task].__args__ == (Task,)  # type: ignore[attr-defined]
    assert ChannelEvent[Task].__args__ == (Task,)  # type: ignore[attr-defined]


# ----- bodies that raise in a way of their own


@dataclass
class Bid:
    euros: float

    def __post_init__(self) -> None:
        assert self.euros > 0
        if self.euros > 1000:
            raise KeyError("the safe's number is 4711")


async def answer(agent: Agent, *bodies: object) -> str:
    """Answers each message of another agent with a body, and returns the content of the last one."""
    for body in bodies:
        message = await agent.receive(timeout=60)
        act = Performative.PROPOSE if message.performative is Performative.CFP else Performative.INFORM
        await agent.reply(message, act, body)
    return (await agent.receive(timeout=60)).text


@pytest.mark.parametrize("euros", [-1.0, 2000.0])
async def test_a_body_that_its_type_refuses_in_any_way_is_not_understood(
    platform: Platform, caplog: pytest.LogCaptureFixture, euros: float
) -> None:
    odd, even = await platform.start(Agent("odd")), await platform.start(Agent("even"))
    buyer = await platform.start(Agent("buyer"))
    even_done = asyncio.create_task(answer(even, {"euros": 10.0}, {"euros": euros}))
    odd_done = asyncio.create_task(answer(odd, {"euros": euros}))
    async with buyer.contract_net("paint", to=["odd", "even"], reply=Bid, timeout=60) as net:
        assert [proposal.body for proposal in net.proposals] == [Bid(10.0)]
        assert [message.sender for message in net.failed] == [odd.aid]
        # The exception stands in the log alone.
        assert await odd_done == "$: no Bid"
        with pytest.raises(ConversationError):
            await net.proposals[0].accept(result=Bid, timeout=60)
        even_done.cancel()
    assert [record.exc_info is not None for record in caplog.records] == [True, True]
    asked = asyncio.create_task(answer(odd, {"euros": euros}))
    with pytest.raises(ConversationError):
        await buyer.request_action("pay", to="odd", reply=Bid, timeout=60)
    asked.cancel()


class Treasurer(Agent, supervise="end"):
    """Would end with an exception of its own."""

    @on(Performative.REQUEST, body=Bid)
    async def pay(self, message: Message[Bid]) -> None:
        await self.reply(message, Performative.INFORM, "paid")

    @on(Performative.CFP, body=Bid, concurrency=2)
    async def pay_soon(self, message: Message[Bid]) -> None:
        await self.reply(message, Performative.INFORM, "paid")

    @on_query(Bid)
    async def tell(self, query: Message[Bid]) -> str:
        return "paid"

    @on(Performative.PROPOSE)
    async def look(self, message: Message) -> None:
        await self.reply(message, Performative.INFORM, f"{message.body_as(Bid).euros} are paid")


class Counter(Agent, supervise="end"):
    @tool
    async def count(self, bid: Bid) -> str:
        return "counted"


@pytest.mark.parametrize("euros", [-1.0, 2000.0])
async def test_no_body_ends_an_agent_that_reads_it(
    platform: Platform, caplog: pytest.LogCaptureFixture, euros: float
) -> None:
    treasurer, counter = await platform.start(Treasurer("treasurer")), await platform.start(Counter("counter"))
    guest = await platform.start(Agent("guest"))
    acts = [Performative.REQUEST, Performative.CFP, Performative.QUERY_REF, Performative.PROPOSE]
    for act, to in [*((act, "treasurer") for act in acts), (Performative.REQUEST, "counter")]:
        answer = await guest.request(AclMessage(act, to, body={"euros": euros}), timeout=60)
        # The exception stands in the log alone.
        assert (answer.performative, answer.text) == (Performative.NOT_UNDERSTOOD, "$: no Bid")
    assert (treasurer.failures, counter.failures) == (len(acts), 1)
    kind = AssertionError if euros < 0 else KeyError
    assert [record.exc_info and record.exc_info[0] for record in caplog.records] == [kind] * (len(acts) + 1)
    for act, to in [*((act, "treasurer") for act in acts), (Performative.REQUEST, "counter")]:
        answer = await guest.request(AclMessage(act, to, body=Bid(5.0)), timeout=60)
        assert answer.performative is Performative.INFORM


# ----- reasons


async def test_a_reason_that_no_message_can_carry_ends_nobody(platform: Platform) -> None:
    class Clerk(Agent, supervise="end"):
        @on(Performative.REQUEST)
        async def refuse(self, message: Message) -> None:
            raise Refuse("there is no " + json.loads(message.text))

    await platform.start(Clerk("clerk"))
    guest = await platform.start(Agent("guest"))
    for asked, heard in (("tea", "tea"), ("\ud800", "?"), ("x" * 2000, "x" * 988)):
        reply = await guest.request(AclMessage(Performative.REQUEST, "clerk", json.dumps(asked)), timeout=60)
        assert (reply.performative, reply.text) == (Performative.REFUSE, f"there is no {heard}")

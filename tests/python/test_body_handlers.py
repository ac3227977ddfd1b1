"""Handlers that declare the types of their messages' bodies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from sealbus import AclMessage, Agent, ChannelEvent, Message, Performative, Platform, on, on_event, on_question


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

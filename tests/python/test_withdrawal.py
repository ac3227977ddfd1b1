"""A request that is cancelled while it waits in the mailbox, because its handler has no room, never runs."""

import asyncio
from datetime import UTC, datetime
from typing import cast

import pytest

from sealbus import AclMessage, Agent, Message, on_request, tool
from sealbus.testing import TestBed


class Worker(Agent):
    """Works for two at a time."""

    def __init__(self) -> None:
        super().__init__("worker")
        self.begun: list[str] = []
        self.may_end = asyncio.Event()

    async def work(self, text: str) -> str:
        """Works until it may end."""
        self.begun.append(text)
        await self.may_end.wait()
        return f"{text} is done"


class Clerk(Worker):
    """Takes part in the protocol itself."""

    @on_request(str, conversations=2)
    async def asked(self, request: Message[str]) -> str:
        return await self.work(request.body)


class Writer(Worker):
    """Offers the same as a tool."""

    @tool(name="write", concurrency=2)
    async def write(self, text: str) -> str:
        return await self.work(text)


@pytest.mark.parametrize("kind", [Clerk, Writer])
async def test_a_waiting_request_is_cancelled(testbed: TestBed, kind: type[Worker]) -> None:
    worker = await testbed.start(kind())
    probe = await testbed.probe()
    for name in ("one", "two", "three", "four"):
        request = AclMessage("request", "worker", protocol="fipa-request", conversation_id=name, reply_with=name, body=name)
        await probe.send(request)
    stranger = await testbed.probe("stranger")
    cancel = AclMessage("cancel", "worker", protocol="fipa-request", conversation_id="three", reply_with="enough")
    await stranger.send(cancel)
    await stranger.expect("not-understood")
    assert sorted(worker.begun) == ["one", "two"]
    await probe.send(cancel)
    while (answer := await probe.expect()).performative == "agree":
        pass
    assert (answer.performative, answer.conversation_id, answer.in_reply_to) == ("inform", "three", "enough")
    worker.may_end.set()
    done: set[object] = set()
    while len(done) < 3:
        message = await probe.expect()
        if message.performative == "inform":
            done.add(message.conversation_id)
    assert done == {"one", "two", "four"}
    await probe.expect_nothing()
    assert sorted(worker.begun) == ["four", "one", "two"]


@pytest.mark.parametrize("kind", [Clerk, Writer])
@pytest.mark.parametrize("name", ["one", "three"])
async def test_a_cancel_that_came_too_late_for_an_answer_ends_the_work_and_no_agent(
    testbed: TestBed, kind: type[Worker], name: str
) -> None:
    worker = await testbed.start(kind())
    probe = await testbed.probe()
    for each in ("one", "two", "three"):
        request = AclMessage("request", "worker", protocol="fipa-request", conversation_id=each, reply_with=each, body=each)
        await probe.send(request)
    await testbed.clock.settle()
    assert sorted(worker.begun) == ["one", "two"]
    over = datetime.fromtimestamp(testbed.clock.time() - 1.0, UTC)
    await probe.send(AclMessage("cancel", "worker", protocol="fipa-request", conversation_id=name, reply_by=over))
    # One more begins if the place of the first is free, and none if the one that waited has left.
    await testbed.clock.settle()
    assert sorted(worker.begun) == (["one", "three", "two"] if name == "one" else ["one", "two"])
    worker.may_end.set()
    done: set[object] = set()
    while len(done) < 2:
        message = await probe.expect()
        if message.performative != "agree":
            assert message.performative == "inform"
            done.add(message.conversation_id)
    assert done == {"one", "two", "three"} - {name}
    await probe.expect_nothing()
    assert name == "one" or "three" not in worker.begun


async def test_a_cancel_of_a_sender_without_a_platform_ends_no_agent(testbed: TestBed) -> None:
    clerk = await testbed.start(Clerk())
    # At the level "none" a stranger has whatever name it says.
    cancel = cast(Message, AclMessage("cancel", "worker", sender="stranger", conversation_id="one"))
    assert not clerk._living.handlers._withdraw(cancel)


class Guarded(Agent, supervise="end"):
    """Would end with an exception of its own."""

    def __init__(self) -> None:
        super().__init__("guarded")
        self.may_begin = asyncio.Event()

    async def setup(self) -> None:
        await self.may_begin.wait()

    @on_request(str)
    async def asked(self, request: Message[str]) -> str:
        return request.body


async def test_two_openings_of_one_conversation_at_once_are_the_mistake_of_their_sender(testbed: TestBed) -> None:
    guarded = await testbed.start(Guarded())
    probe = await testbed.probe()
    for text in ("first", "second"):
        opening = AclMessage("request", "guarded", protocol="fipa-request", conversation_id="x", reply_with=text, body=text)
        await probe.send(opening)
    guarded.may_begin.set()
    answers = [await probe.expect(), await probe.expect()]
    assert {(str(it.performative), it.in_reply_to) for it in answers} == {("inform", "first"), ("not-understood", "second")}
    await probe.expect_nothing()
    assert guarded.failures == 0
    await probe.send(AclMessage("request", "guarded", protocol="fipa-request", conversation_id="y", body="third"))
    assert (await probe.expect("inform")).body_as(str) == "third"

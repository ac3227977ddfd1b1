"""A request that is cancelled while it waits in the mailbox, because its handler has no room, never runs."""

import asyncio

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

"""Tools answer in parts: as they come, no further ahead than they are taken, and only as long as somebody wants them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from sealbus import (
    AclMessage,
    Agent,
    BodyError,
    ConversationError,
    ConversationTimeout,
    Filter,
    Message,
    Performative,
    Platform,
    Progress,
    Refuse,
    ServiceDescription,
    tool,
)
from sealbus.participation import Over
from sealbus.testing import TestBed
from sealbus.tools import Service


@dataclass
class Prompt:
    text: str


@dataclass
class Chunk:
    word: str


@dataclass
class Count:
    upto: int


class Writer(Agent):
    """Writes words, and counts; both are tools."""

    def __init__(self) -> None:
        super().__init__("writer")
        self.given = 0
        self.ended = 0
        self.gate = asyncio.Event()
        self.strays: list[Message] = []

    async def setup(self) -> None:
        await self.df.register(*self.tools())

    @tool(concurrency=200)
    async def write(self, prompt: Prompt) -> AsyncIterator[Chunk | Progress]:
        """Writes the words of a text."""
        if prompt.text == "nonsense":
            raise Refuse("no nonsense")
        try:
            words = prompt.text.split()
            for number, word in enumerate(words):
                if word == "wait":
                    await self.gate.wait()
                if word == "break":
                    raise ValueError("the pen is broken")
                if word == "rest":
                    await asyncio.sleep(0)
                    raise Refuse("too late to refuse")
                yield Progress((number + 1) / len(words), word)
                self.given += 1
                yield Chunk(word)
        finally:
            self.ended += 1

    @tool(name="add")
    async def add_up(self, count: Count) -> int:
        if count.upto < 0:
            raise Refuse("I count upwards")
        await asyncio.sleep(0)
        return sum(range(count.upto + 1))

    async def on_message(self, message: Message) -> None:
        self.strays.append(message)


class Counter(Agent):
    """Has one tool: nobody need name it."""

    @tool
    async def count(self, count: Count) -> AsyncIterator[int]:
        for number in range(count.upto):
            yield number


class Asker(Agent):
    """Notes the messages that come to nobody else."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.strays: list[Message] = []

    async def on_message(self, message: Message) -> None:
        self.strays.append(message)


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    async with Platform() as platform:
        yield platform


@pytest.fixture
async def writer(platform: Platform) -> Writer:
    return await platform.start(Writer())


@pytest.fixture
async def asker(platform: Platform) -> Asker:
    return await platform.start(Asker("asker"))


async def until(condition: object) -> None:
    """Waits for a condition, without limit: the test has one."""
    assert callable(condition)
    while not condition():
        await asyncio.sleep(0.001)


async def test_parts_come_in_order_and_then_the_reply(writer: Writer, asker: Asker) -> None:
    words = [f"w{number}" for number in range(100)]
    async with asker.ask("writer", Prompt(" ".join(words)), stream=Chunk, tool="write") as answer:
        assert [chunk.word async for chunk in answer] == words
    assert answer.progress == Progress(1.0, "w99")
    assert answer.reply is not None
    assert answer.reply.performative is Performative.INFORM and answer.reply.content is None
    assert writer.ended == 1 and writer.failures == 0
    assert not writer.strays and not asker.strays


async def test_a_tool_is_found_by_its_service(writer: Writer, asker: Asker) -> None:
    [entry] = await asker.df.search(ServiceDescription.of_type("write"))
    service = next(service for service in entry.services if service.type == "write")
    assert service.ontologies == ("write",) and service.protocols == ("fipa-request",)
    told = service.properties["input"]
    assert isinstance(told, str)
    assert json.loads(told)["$defs"]["Prompt"]["properties"] == {"text": {"type": "string"}}
    # Progress is no part of the answer.
    output = service.properties["output"]
    assert isinstance(output, str)
    assert json.loads(output)["$ref"] == "#/$defs/Chunk"
    assert set(json.loads(output)["$defs"]) == {"Chunk"}
    wanted = ServiceDescription.of_type("write")
    async with asker.ask(wanted, Prompt("a b"), stream=Chunk, tool="write") as answer:
        assert [chunk.word async for chunk in answer] == ["a", "b"]
    with pytest.raises(ConversationError, match="no agent offers"):
        async with asker.ask(ServiceDescription.of_type("sing"), Prompt("a"), stream=Chunk):
            pass


async def test_a_plain_request_gets_one_reply(platform: Platform, writer: Writer, asker: Asker) -> None:
    request = AclMessage("request", "writer", body=Prompt("a b c"), ontology="write")
    reply = await asker.request(request, timeout=60)
    assert reply.body_as(list[Chunk]) == [Chunk("a"), Chunk("b"), Chunk("c")]
    request = AclMessage("request", "writer", body=Count(4), ontology="add", conversation_id="sum", reply_with="r")
    await asker.send(request)
    await until(lambda: len(asker.strays) == 2)
    assert [message.performative for message in asker.strays] == ["agree", "inform"]
    assert asker.strays[1].body_as(int) == 10
    await platform.start(Counter("counter"))
    reply = await asker.request(AclMessage("request", "counter", body=Count(3)), timeout=60)
    assert reply.body == [0, 1, 2]


async def test_the_tool_gets_no_further_ahead_than_the_window(writer: Writer, asker: Asker) -> None:
    text = " ".join(["word"] * 200)
    async with asker.ask("writer", Prompt(text), stream=Chunk, tool="write", window=8) as answer:
        taken = 0
        async for _ in answer:
            taken += 1
            if taken in (1, 50, 150):
                for _ in range(200):
                    await asyncio.sleep(0)
            # The one in the tool's hands counts.
            assert writer.given <= taken + 8 + 1
    assert taken == 200


async def test_a_part_whose_taking_was_cancelled_comes_again(
    writer: Writer, asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stick(messages: object, patience: float | None) -> None:
        await asyncio.get_running_loop().create_future()

    words = [str(number) for number in range(12)]
    parts: list[Chunk] = []
    async with asker.ask("writer", Prompt(" ".join(words)), tool="write", stream=Chunk, window=4, timeout=60) as answer:
        while len(parts) < len(words):
            # Where it tells that parts are taken, it is cancelled first.
            with monkeypatch.context() as patched, suppress(TimeoutError):
                patched.setattr(answer, "_send", stick)
                async with asyncio.timeout(0.02):
                    parts.append(await anext(answer))
                continue
            parts.append(await anext(answer))
        assert await anext(answer, None) is None
    assert [part.word for part in parts] == words


async def test_leaving_cancels_the_work(writer: Writer, asker: Asker) -> None:
    async with asker.ask("writer", Prompt("a wait b"), stream=Chunk, tool="write") as answer:
        async for chunk in answer:
            assert chunk == Chunk("a")
            break
    await until(lambda: writer.ended == 1)
    async with asker.ask("writer", Prompt("word " * 1000), stream=Chunk, tool="write") as answer:
        await anext(answer)
    await until(lambda: writer.ended == 2)
    assert writer.given < 100 and writer.failures == 0
    # The conversations are over on both sides, and nothing of them went elsewhere.
    await until(lambda: not asker._living.mailbox._owners and not writer._living.mailbox._owners)
    assert not writer.strays and not asker.strays


async def test_an_asker_that_dies_cancels_the_work(platform: Platform, writer: Writer) -> None:
    leaver = await platform.start(Asker("leaver"))
    answer = leaver.ask("writer", Prompt("word " * 1000), stream=Chunk, tool="write", window=4)
    await answer.__aenter__()
    await anext(answer)
    leaver.stop()
    await asyncio.sleep(0)
    await until(lambda: writer.given >= 4)
    # Messages to an agent that takes no more come back, or the agent said so itself.
    reader = await platform.start(Asker("reader"))
    async with reader.ask("writer", Prompt("a"), stream=Chunk, tool="write") as other:
        assert [chunk.word async for chunk in other] == ["a"]


async def test_refusals_failures_and_what_does_not_fit(writer: Writer, asker: Asker) -> None:
    cases = [
        (Prompt("nonsense"), "write", "refused", "no nonsense"),
        (Prompt("a break"), "write", "failed", "its log says why"),
        (Prompt("rest"), "write", "failed", "too late to refuse"),
        (Count(-1), "add", "refused", "I count upwards"),
        (Count(1), "write", "not-understood", "$.text: expected str, got nothing"),
    ]
    for body, name, outcome, reason in cases:
        with pytest.raises(ConversationError) as told:
            async with asker.ask("writer", body, stream=Chunk, tool=name) as answer:
                async for _ in answer:
                    pass
        assert told.value.outcome == outcome and reason in str(told.value)
    with pytest.raises(ConversationError) as told:
        async with asker.ask("nobody", Prompt("a"), stream=Chunk) as answer:
            await anext(answer)
    assert told.value.outcome == "undeliverable"
    with pytest.raises(BodyError, match="expected int, got dict"):
        async with asker.ask("writer", Prompt("a b"), stream=int, tool="write") as numbers:
            await anext(numbers)
    await until(lambda: not asker._living.mailbox._owners)
    assert not asker.strays


async def test_a_tool_that_overrides_one_is_one(platform: Platform, asker: Asker) -> None:
    class Loud(Writer):
        async def add_up(self, count: Count) -> int:
            return -await super().add_up(count)

    await platform.start(Loud())
    reply = await asker.request(AclMessage("request", "writer", body=Count(4), ontology="add"), timeout=60)
    assert reply.body == -10


async def test_a_tool_that_is_cancelled_answers(platform: Platform, asker: Asker) -> None:
    class Cut(Agent):
        @tool
        async def work(self, count: Count) -> int:
            raise asyncio.CancelledError

    await platform.start(Cut("cut"))
    reply = await asker.request(AclMessage("request", "cut", body=Count(4)), timeout=60)
    assert reply.performative is Performative.FAILURE


async def test_a_silent_tool_is_waited_for_no_longer_than_said(testbed: TestBed) -> None:
    writer, asker = await testbed.start(Writer()), await testbed.start(Asker("asker"))

    async def read() -> None:
        async with asker.ask("writer", Prompt("wait"), stream=Chunk, tool="write", timeout=0.05) as answer:
            await anext(answer)

    with pytest.raises(ConversationTimeout):
        await testbed.clock.run(read())
    await until(lambda: writer.ended == 1)


async def test_a_hundred_streams_do_not_wait_for_one_another(writer: Writer, asker: Asker) -> None:
    async def read(text: str) -> list[str]:
        async with asker.ask("writer", Prompt(text), stream=Chunk, tool="write") as answer:
            return [chunk.word async for chunk in answer]

    # Half of them wait in the tool until all others have ended.
    waiting = [asyncio.create_task(read(f"a{number} wait b")) for number in range(50)]
    await until(lambda: writer.given >= 50)
    done = await asyncio.gather(*(read(f"c{number} d " * 20) for number in range(50)))
    assert all(len(words) == 40 for words in done)
    assert not any(task.done() for task in waiting)
    writer.gate.set()
    for number, words in enumerate(await asyncio.gather(*waiting)):
        assert words == [f"a{number}", "wait", "b"]
    assert not writer.strays and not asker.strays


async def test_a_stranger_cannot_cancel_or_answer(platform: Platform, writer: Writer, asker: Asker) -> None:
    stranger = await platform.start(Agent("stranger"))
    async with asker.ask("writer", Prompt("a wait b"), stream=Chunk, tool="write") as answer:
        assert await anext(answer) == Chunk("a")
        for to in ("writer", "asker"):
            for act in ("cancel", "failure", "inform"):
                await stranger.send(AclMessage(act, to, conversation_id=answer.id))
            await stranger.send(AclMessage("inform", to, "all sent"))
        # Messages of one sender are handled in order.
        heard = (writer.strays, asker.strays)
        await until(lambda: all(any(it.content == "all sent" for it in strays) for strays in heard))
        writer.gate.set()
        assert [chunk.word async for chunk in answer] == ["wait", "b"]


async def test_two_tools_and_no_name_are_not_understood(writer: Writer, asker: Asker) -> None:
    await asker.send(AclMessage("request", "writer", body=Prompt("a")))
    await until(lambda: writer.strays)
    assert Filter("request").takes(writer.strays[0])


async def test_a_tool_ends_before_its_place_is_free(
    platform: Platform, asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaning, may_end = asyncio.Event(), asyncio.Event()

    class Careful(Agent):
        is_clean = False

        @tool
        async def work(self, count: Count) -> int:
            try:
                await asyncio.Event().wait()
            finally:
                cleaning.set()
                await may_end.wait()
                self.is_clean = True
            return count.upto

    async def agree(talk: Service) -> None:
        # The asker has cancelled meanwhile.
        raise Over

    monkeypatch.setattr(Service, "agree", agree)
    careful = await platform.start(Careful("careful"))
    await asker.send(AclMessage("request", "careful", body=Count(1), conversation_id="x", reply_with="r"))
    await cleaning.wait()
    [taker] = careful._living.handlers._takers
    for _ in range(20):
        await asyncio.sleep(0)
    assert taker.running
    may_end.set()
    await until(lambda: not taker.running)
    assert careful.is_clean

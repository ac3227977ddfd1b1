"""Handlers: their exceptions, and several marks on one."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sealbus import (
    AclMessage,
    Agent,
    AgentFailed,
    ChannelEvent,
    Failure,
    Message,
    NotUnderstood,
    Performative,
    Platform,
    Refuse,
    on,
    on_event,
    on_question,
)
from sealbus.handlers import FAILED
from sealbus.mark import Supervise
from sealbus.restarts import RESTARTS


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    async with Platform() as platform:
        yield platform


class Seller(Agent):
    """The README's seller, with a handler for each way to go wrong."""

    @on(Performative.CFP)
    async def offer(self, call: Message) -> None:
        await self.reply(call, Performative.PROPOSE, f"{call.text} for 12 euros")

    @on(Performative.REQUEST)
    async def work(self, request: Message) -> None:
        match request.content:
            case "refuse":
                raise Refuse("busy")
            case "not understood":
                raise NotUnderstood("speak up")
            case "failure":
                raise Failure("the machine is broken")
            case "answered":
                await self.reply(request, Performative.INFORM, "done")
                raise ValueError("too late")
            case "agreed":
                await self.reply(request, Performative.AGREE)
        raise ValueError("the safe's number is 4711")


async def test_a_handler_that_raises_answers_and_its_agent_lives(
    platform: Platform, caplog: pytest.LogCaptureFixture
) -> None:
    seller, anna = await platform.start(Seller("seller")), await platform.start(Agent("anna"))

    async def ask(performative: str, content: str | bytes | None = None) -> tuple[str, Any]:
        reply = await anna.request(
            AclMessage(performative, "seller", content, language="fipa-sl", ontology="trade"), timeout=60
        )
        # A reason is plain text, whatever the message was in.
        assert reply.language == ("fipa-sl" if reply.performative == "inform" else None)
        return reply.performative, reply.content

    with caplog.at_level(logging.CRITICAL, "sealbus"):
        # The README's seller after a call without content, and with bytes.
        for content in (None, b"\xff"):
            performative, reason = await ask("cfp", content)
            assert performative == "not-understood"
            assert "content" in reason
        assert await ask("request", "refuse") == ("refuse", "busy")
        assert await ask("request", "not understood") == ("not-understood", "speak up")
        assert await ask("request", "failure") == ("failure", "the machine is broken")
        assert seller.failures == 2
        failed = ("failure", FAILED)
        assert await ask("request", "anything") == failed
        # An agree is no answer yet; after an answer there is no second one.
        assert await ask("request", "agreed") == failed
        assert await ask("request", "answered") == ("inform", "done")
    assert seller.failures == 5
    offer = await anna.request(AclMessage("cfp", "seller", "Middlemarch"), timeout=60)
    assert offer.text == "Middlemarch for 12 euros"
    # A second answer would have come before this one.
    assert anna.late_messages == 0 and anna._living.handle.try_receive(None) is None


async def test_an_error_is_logged_with_agent_message_and_trace(
    platform: Platform, caplog: pytest.LogCaptureFixture
) -> None:
    await platform.start(Seller("seller"))
    anna = await platform.start(Agent("anna"))
    await anna.request(AclMessage("request", "seller"), timeout=60)
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    said = record.getMessage()
    assert f"seller@{platform.name}" in said
    assert f"request from anna@{platform.name}" in said
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)


async def test_two_agents_that_fail_at_everything_do_not_go_on_for_ever(
    platform: Platform, caplog: pytest.LogCaptureFixture
) -> None:
    class Hopeless(Agent):
        heard: int = 0

        async def on_message(self, message: Message) -> None:
            self.heard += 1
            raise ValueError("hopeless")

    one, two = await platform.start(Hopeless("one")), await platform.start(Hopeless("two"))
    anna = await platform.start(Agent("anna"))
    with caplog.at_level(logging.CRITICAL, "sealbus"):
        for performative in ("inform", "failure", "not-understood", "refuse"):
            await anna.send(AclMessage(performative, "one", reply_to=two.aid))
        # Messages of one sender arrive in order: when this one is answered, so were those before.
        await anna.request(AclMessage("request", "one"), timeout=60)
        while two.heard < 1:
            await asyncio.sleep(0.001)
        await anna.request(AclMessage("request", "two"), timeout=60)
        await anna.request(AclMessage("request", "one"), timeout=60)
    assert (one.heard, two.heard) == (6, 2)


async def test_an_error_with_an_event_or_a_question(
    platform: Platform, caplog: pytest.LogCaptureFixture
) -> None:
    class Shop(Agent):
        @on_event("/offers/*")
        async def offer(self, event: ChannelEvent) -> None:
            raise ValueError(event.text)

        @on_question("/wanted/*")
        async def wanted(self, question: ChannelEvent) -> None:
            if question.text == "tea":
                raise Refuse("no tea")
            raise ValueError(question.text)

    shop, anna = await platform.start(Shop("shop")), await platform.start(Agent("anna"))
    channel = await anna.channel("/wanted/all")
    with caplog.at_level(logging.CRITICAL, "sealbus"):
        await anna.publish("/offers/tea", "cheap")
        for asked, performative, reason in (
            ("tea", "refuse", "no tea"),
            ("coffee", "failure", FAILED),
        ):
            (reply,) = await channel.request(asked, timeout=60).all()
            assert (reply.performative, reply.text) == (performative, reason)
        while shop.failures < 2:
            await asyncio.sleep(0.001)
    # An answer to the event would have come before this.
    await shop.send(AclMessage("inform", "anna", "all told"))
    assert (await anna.receive(timeout=60)).text == "all told"


@pytest.mark.parametrize("where", ["class", "handler"])
async def test_an_error_may_end_the_agent(where: str) -> None:
    of_class: Supervise = "end" if where == "class" else "ignore"
    of_handler: Supervise | None = "end" if where == "handler" else None

    class Strict(Agent, supervise=of_class):
        @on("request", supervise=of_handler)
        async def work(self, request: Message) -> None:
            raise ValueError("out of order")

        @on("inform", supervise="ignore")
        async def hear(self, inform: Message) -> None:
            raise ValueError("ignored")

    with pytest.raises(AgentFailed, match=r"work for .*request.* raised ValueError: out of order"):
        async with Platform() as platform:
            await platform.start(Strict("strict"))
            anna = await platform.start(Agent("anna"))
            reply = await anna.request(AclMessage("inform", "strict"), timeout=60)
            assert reply.performative == "failure"
            reply = await anna.request(AclMessage("request", "strict"), timeout=60)
            assert reply.performative == "failure"
            while await anna.ams.find("strict") is not None:
                await asyncio.sleep(0.001)


class Fragile(Agent, supervise="restart"):
    """Begins anew after each error."""

    lives = 0
    cancelled = 0
    torn_down = 0

    async def setup(self) -> None:
        self.lives += 1
        self.count = 0
        self.create_task(self.beside())

    async def teardown(self) -> None:
        self.torn_down += 1

    async def beside(self) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def on_message(self, message: Message) -> None:
        self.count += 1
        if message.performative == "request":
            raise ValueError("fragile")
        await self.reply(message, "inform", str(self.count))


async def test_an_agent_begins_anew(platform: Platform, caplog: pytest.LogCaptureFixture) -> None:
    fragile, anna = await platform.start(Fragile("fragile")), await platform.start(Agent("anna"))
    with caplog.at_level(logging.CRITICAL, "sealbus"):
        for life in range(1, 4):
            for count in ("1", "2"):
                reply = await anna.request(AclMessage("query-ref", "fragile"), timeout=60)
                assert reply.text == count
            assert fragile.lives == life
            reply = await anna.request(AclMessage("request", "fragile"), timeout=60)
            assert reply.performative == "failure"
    assert fragile.cancelled >= 2
    assert fragile.torn_down >= 2


async def test_an_agent_that_does_not_recover_ends(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL, "sealbus"), pytest.raises(AgentFailed, match="restarts within"):
        async with Platform() as platform:
            await platform.start(Fragile("fragile"))
            anna = await platform.start(Agent("anna"))
            for _ in range(RESTARTS + 1):
                await anna.request(AclMessage("request", "fragile"), timeout=60)
            while await anna.ams.find("fragile") is not None:
                await asyncio.sleep(0.001)


async def test_a_task_may_fail_without_ending_its_agent(
    platform: Platform, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise ValueError

    anna = await platform.start(Agent("anna"))
    with caplog.at_level(logging.CRITICAL, "sealbus"):
        await asyncio.wait([anna.create_task(fail(), supervise="ignore")])
        while not anna.failures:
            await asyncio.sleep(0)
    await anna.send(AclMessage("inform", "anna"))
    await anna.receive(timeout=60)


# ----- several marks


async def test_stacked_marks_all_count(platform: Platform) -> None:
    heard: list[str] = []

    class Many(Agent):
        @on("request")
        @on("query-ref", ontology="trade")
        async def question(self, message: Message) -> None:
            heard.append(message.performative)
            await self.reply(message, "inform")

        @on_event("/news")
        @on_question("/questions")
        @on("propose")
        async def channel_or_message(self, message: Message) -> None:
            heard.append(message.mechanism if isinstance(message, ChannelEvent) else message.performative)
            if not isinstance(message, ChannelEvent) or message.mechanism == "request":
                await self.reply(message, "agree" if isinstance(message, ChannelEvent) else "inform")

    await platform.start(Many("many"))
    anna = await platform.start(Agent("anna"))
    for performative, ontology in (("request", None), ("query-ref", "trade"), ("propose", None)):
        await anna.request(AclMessage(performative, "many", ontology=ontology), timeout=60)
    reply = await anna.request(AclMessage("query-ref", "many"), timeout=60)
    assert reply.performative == "not-understood"
    assert (await anna.publish("/news", "now")).here == 1
    (answer,) = await (await anna.channel("/questions")).request("well?", timeout=60).all()
    assert answer.performative == "agree"
    while len(heard) < 5:
        await asyncio.sleep(0.001)
    assert sorted(heard) == ["event", "propose", "query-ref", "request", "request"]


# ----- the rest


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        on("request", concurrency=0)
    with pytest.raises(ValueError, match="durable"):
        on_event("/news", durable="me", concurrency=2)
    with pytest.raises(ValueError, match="'ignore', 'restart' or 'end'"):
        on("request", supervise="forget")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'ignore', 'restart' or 'end'"):

        class Wrong(Agent, supervise="forget"):  # type: ignore[arg-type]
            pass


async def test_an_agent_may_use_our_names_for_attributes_of_its_own(platform: Platform) -> None:
    class Own(Agent):
        def __init__(self) -> None:
            super().__init__()
            self.failures: list[str] = []  # type: ignore[assignment]
            self.clock = self.behaviours = None  # type: ignore[assignment]

        async def on_message(self, message: Message) -> None:
            self.failures.append(message.text)
            raise Refuse("no")

    own, anna = await platform.start(Own()), await platform.start(Agent("anna"))
    reply = await anna.request(AclMessage("request", "own", "hello"), timeout=60)
    assert reply.performative == "refuse"
    assert own.failures == ["hello"]

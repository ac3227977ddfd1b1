"""Handlers: their exceptions, how many run at once, and their end when their agent ends or moves."""

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
    Filter,
    Message,
    NotUnderstood,
    Performative,
    Platform,
    Refuse,
    on,
    on_event,
    on_question,
)
from sealbus import life as life_module
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
    with pytest.raises(TimeoutError):
        await anna.receive(timeout=0.05)
    assert seller.failures == 5
    offer = await anna.request(AclMessage("cfp", "seller", "Middlemarch"), timeout=60)
    assert offer.text == "Middlemarch for 12 euros"


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
    with pytest.raises(TimeoutError):
        await anna.receive(timeout=0.05)


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


# ----- side by side


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

"""Traces by OpenTelemetry, as a program has them that set a tracer provider before its agents started."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from sealbus import AclMessage, Agent, ChannelEvent, Message, Performative, Platform, Refuse, on, on_event, on_question
from sealbus.tracing import TracedHandle, context_of

REQUEST, INFORM = Performative.REQUEST, Performative.INFORM


class Store(Agent):
    @on(REQUEST)
    async def fetch(self, message: Message) -> None:
        if message.text == "gold":
            raise Refuse("there is none")
        with trace.get_tracer("store").start_as_current_span("look on the shelf"):
            await self.reply(message, INFORM, message.text.upper())


class Shop(Agent):
    @on(REQUEST)
    async def sell(self, message: Message) -> None:
        found = await self.request(AclMessage(REQUEST, "store", message.text))
        await self.reply(message, INFORM, f"{found.text} for 12 EUR")


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """The spans that end. The provider is this test's alone, not the process's."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


@pytest.fixture
async def buyer(spans: InMemorySpanExporter) -> AsyncIterator[Agent]:
    async with Platform() as platform:
        await platform.start(Store("store"))
        await platform.start(Shop("shop"))
        yield await platform.start(Agent("buyer"))


def parents(spans: InMemorySpanExporter, of: ReadableSpan) -> list[str]:
    """The name of a span, and those of the spans above it."""
    by_id = {span.context.span_id: span for span in spans.get_finished_spans() if span.context}
    names = [of.name]
    while of.parent is not None:
        of = by_id[of.parent.span_id]
        names.append(of.name)
    return names


async def ended(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    """The first span of this name, once it has ended."""
    async with asyncio.timeout(120):
        while True:
            for span in spans.get_finished_spans():
                if span.name == name:
                    return span
            await asyncio.sleep(0.001)


async def test_a_request_across_three_agents_is_one_trace(buyer: Agent, spans: InMemorySpanExporter) -> None:
    place = buyer.aid.name.partition("@")[2]
    with trace.get_tracer("test").start_as_current_span("buy"):
        answer = await buyer.request(AclMessage(REQUEST, "shop", "tea"))
    assert answer.text == "TEA for 12 EUR"
    shelf = await ended(spans, "look on the shelf")
    reply = await ended(spans, f"send buyer@{place}")
    await ended(spans, f"process store@{place}")
    await ended(spans, f"process shop@{place}")
    await ended(spans, "buy")
    assert parents(spans, shelf) == [
        "look on the shelf",
        f"process store@{place}",
        f"send store@{place}",
        f"process shop@{place}",
        f"send shop@{place}",
        "buy",
    ]
    assert parents(spans, reply) == [f"send buyer@{place}", f"process shop@{place}", f"send shop@{place}", "buy"]
    finished = spans.get_finished_spans()
    assert len({span.context.trace_id for span in finished if span.context}) == 1
    kinds = {span.name: span.kind for span in finished}
    assert kinds[f"send shop@{place}"] is SpanKind.PRODUCER and kinds[f"process shop@{place}"] is SpanKind.CONSUMER
    about = dict((await ended(spans, f"process shop@{place}")).attributes or {})
    assert about["messaging.system"] == "sealbus" and about["sealbus.sender"] == f"buyer@{place}"
    assert about["messaging.operation.type"] == "process" and about["sealbus.acl.performative"] == "request"
    # The reply's context is the program's to use.
    context = trace.get_current_span(context_of(answer)).get_span_context()
    assert reply.context is not None and (context.trace_id, context.span_id) == (reply.context.trace_id, reply.context.span_id)


async def test_a_refusal_is_no_error(buyer: Agent, spans: InMemorySpanExporter) -> None:
    place = buyer.aid.name.partition("@")[2]
    assert (await buyer.request(AclMessage(REQUEST, "store", "gold"))).performative is Performative.REFUSE
    refused = await ended(spans, f"process store@{place}")
    assert refused.status.status_code is StatusCode.UNSET and (refused.attributes or {})["sealbus.answer"] == "refuse"
    answer = await ended(spans, f"send buyer@{place}")
    assert parents(spans, answer) == [f"send buyer@{place}", f"process store@{place}", f"send store@{place}"]


async def test_events_carry_the_context(buyer: Agent, spans: InMemorySpanExporter) -> None:
    heard = asyncio.Event()

    class Reader(Agent):
        @on_event("/news")
        async def read(self, event: ChannelEvent) -> None:
            heard.set()
            raise ValueError("this is a lie")

    platform = buyer._living.platform
    await platform.start(Reader("reader"))
    with trace.get_tracer("test").start_as_current_span("print"):
        await buyer.publish("/news", "all is well")
    await asyncio.wait_for(heard.wait(), 120)
    reading = await ended(spans, "process /news")
    assert parents(spans, reading) == ["process /news", "publish /news", "print"]
    assert reading.status.status_code is StatusCode.ERROR and (reading.attributes or {})["error.type"] == "ValueError"


async def test_answers_on_a_channel_carry_the_context(buyer: Agent, spans: InMemorySpanExporter) -> None:
    class Seller(Agent):
        @on_question("/offers")
        async def bid(self, question: ChannelEvent) -> None:
            if question.text == "gold":
                raise Refuse("there is none")
            await self.reply(question, Performative.PROPOSE, "12 EUR")

    await buyer._living.platform.start(Seller("seller"))
    channel = await buyer.channel("/offers")
    for what, performative in [("tea", Performative.PROPOSE), ("gold", Performative.REFUSE)]:
        spans.clear()
        with trace.get_tracer("test").start_as_current_span("buy"):
            (answer,) = await channel.request(what, timeout=120, first=1).all()
        assert answer.performative is performative
        await ended(spans, "process /offers")
        span = await ended(spans, "answer /offers")
        assert parents(spans, span) == ["answer /offers", "process /offers", "request /offers", "buy"]
        context = trace.get_current_span(context_of(answer)).get_span_context()
        assert span.context is not None and context.span_id == span.context.span_id


async def test_messages_in_a_row_are_spans_each(buyer: Agent, spans: InMemorySpanExporter) -> None:
    place = buyer.aid.name.partition("@")[2]
    await buyer.send_many([AclMessage(REQUEST, "store", str(number)) for number in range(5)])
    answers = [await buyer.receive(timeout=120) for _ in range(5)]
    assert [answer.text for answer in answers] == list("01234")
    while sum(span.name == f"process store@{place}" for span in spans.get_finished_spans()) < 5:
        await asyncio.sleep(0.001)
    assert sum(span.name == f"send store@{place}" for span in spans.get_finished_spans()) == 5


async def test_messages_that_wait_for_room_get_few_spans_in_vain(
    buyer: Agent, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = buyer.aid.name.partition("@")[2]
    reader = await buyer._living.platform.start(Agent("reader"))
    tracing = buyer._living.tracing
    assert tracing is not None
    begun = 0
    sending = tracing.sending

    def count(message: AclMessage) -> object:
        nonlocal begun
        begun += 1
        return sending(message)

    monkeypatch.setattr(tracing, "sending", count)
    # Far more than the mailbox takes, so that the sender pauses for each.
    total = 300
    large = AclMessage(INFORM, "reader", b"x" * 100_000)
    sent = asyncio.create_task(buyer.send_many([large.replace(reply_with=number) for number in range(total)]))
    numbers: list[object] = []
    for _ in range(total):
        numbers.append((await reader.receive(timeout=120)).reply_with)
        await asyncio.sleep(0.001)
    await sent
    assert numbers == [str(number) for number in range(total)]
    assert sum(span.name == f"send reader@{place}" for span in spans.get_finished_spans()) == total
    assert total <= begun <= 17 * total



async def test_without_a_provider_nothing_is_traced() -> None:
    async with Platform() as platform:
        agent = await platform.start(Agent("alone"))
        assert agent._living.tracing is None and not isinstance(agent._living.handle, TracedHandle)


def test_opentelemetry_is_not_even_imported() -> None:
    program = "import sys, sealbus; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    subprocess.run([sys.executable, "-c", program], check=True)

"""A request that passes through JADE stays one trace, over both transports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from conftest import LIMIT, Jade
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

import sealbus
from sealbus import AID, AclMessage, Agent, Message, on

EXPECTED = {
    ("buy tea", None),
    ("send shop@factory", "buy tea"),
    ("process shop@factory", "send shop@factory"),
    ("send messenger@plat1", "process shop@factory"),
    # JADE makes no spans: messages that it passes on belong to the span that it got.
    ("process store@factory", "send messenger@plat1"),
    ("send messenger@plat1", "process store@factory"),
    ("send buyer@factory", "process shop@factory"),
}
"""The spans, each with the one above it."""

CALLER = SpanContext(7, 8, True, TraceFlags(TraceFlags.SAMPLED), TraceState([("vendor", "1")]))
"""The first span of the trace, which began elsewhere."""


class Shop(Agent):
    def __init__(self, name: str, messenger: AID) -> None:
        super().__init__(name)
        self._messenger = messenger

    @on("request")
    async def sell(self, message: Message) -> None:
        found = await self.request(AclMessage("request", self._messenger, message.text), timeout=LIMIT)
        # The answer came back through JADE with the context in which the store sent it.
        came = found.user_defined
        trace_id = str(came["X-traceparent"]).split("-")[1]
        await self.reply(message, "inform", f"{found.text} {trace_id} {came['X-tracestate']}")


class Store(Agent):
    @on("request")
    async def fetch(self, message: Message) -> None:
        await self.reply(message, "inform", "tea")


def parents(spans: tuple[ReadableSpan, ...]) -> set[tuple[str, str | None]]:
    names = {span.context.span_id: span.name for span in spans if span.context}
    return {(span.name, names.get(span.parent.span_id) if span.parent else None) for span in spans}


@pytest.mark.parametrize("iiop", [False, True], ids=["http", "iiop"])
async def test_a_request_through_jade_is_one_trace(
    jade: Callable[..., Jade], monkeypatch: pytest.MonkeyPatch, iiop: bool
) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    gateway = {
        "listen": "127.0.0.1:0",
        "iiop": {"listen": "127.0.0.1:0"},
        "allow": [{"platform": "plat1", "to": ["*"], "from": ["127.0.0.1"]}],
        "limits": {"patience": int(LIMIT * 1000)},
    }
    async with sealbus.Platform(name="factory", gateway=gateway) as factory:
        ours = next(it for it in factory.addresses if it.startswith("IOR:") == iiop)
        plat1 = jade(iiop=iiop, messenger=f"Messenger(store@factory,{ours})")
        await factory.start(Store("store"))
        await factory.start(Shop("shop", plat1.aid("messenger")))
        buyer = await factory.start(Agent("buyer"))
        above = trace.set_span_in_context(NonRecordingSpan(CALLER))
        with trace.get_tracer("test").start_as_current_span("buy tea", context=above):
            answer = await buyer.request(AclMessage("request", "shop", "tea"), timeout=LIMIT)
        async with asyncio.timeout(LIMIT):
            while len(spans := exporter.get_finished_spans()) < len(EXPECTED):
                await asyncio.sleep(0.01)
    assert parents(spans) == EXPECTED
    assert {span.context.trace_id for span in spans if span.context} == {CALLER.trace_id}
    assert answer.text == f"tea {CALLER.trace_id:032x} vendor=1"

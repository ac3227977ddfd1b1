"""Traces with OpenTelemetry: a message carries the context of the span in which it was sent, and its handler continues the
trace.

A program is traced if it has set a tracer provider before its agents start, as ``opentelemetry-instrument`` does, or if
``OTEL_EXPORTER_OTLP_ENDPOINT`` names a collector, as with ``[telemetry] otlp`` in the manifest. Otherwise OpenTelemetry is not
imported, and messages are unchanged.

The context is W3C's, in the user-defined parameters ``X-traceparent`` and ``X-tracestate``. The sender chooses it.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sealbus._sealbus import AclMessage, AgentHandle, ChannelEvent, ChannelHandle, Message, Unsent
from sealbus.errors import NegativeAnswer

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span

log = logging.getLogger("sealbus")

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""The variables that name a collector."""

COUNTED = ("messaging.system", "messaging.operation.name", "messaging.client.id")
"""The attributes of a message in metrics."""

LONGEST_STATE = 512
"""The longest ``tracestate``, in characters. A longer one is omitted: W3C requires no more to be passed on."""

ROW = 16
"""The most messages that are sent together. Messages without room get new spans at each attempt."""

SCHEMA = "https://opentelemetry.io/schemas/1.37.0"
"""The version of the semantic conventions that the spans follow."""


def carried_by(message: Message) -> dict[str, str]:
    """W3C's ``traceparent`` and ``tracestate`` of a message, to be passed on as they are."""
    found = {name.lower(): str(value) for name, value in message.user_defined.items()}
    known = {name: found.get(f"x-{name}", "") for name in ("traceparent", "tracestate")}
    return {name: value for name, value in known.items() if 0 < len(value) <= LONGEST_STATE}


def context_of(message: Message) -> Context:
    """The context in which a message was sent, for a program's own spans about messages that it receives without a handler."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract(carried_by(message))


class Tracing:
    """The spans of one agent, and how long its handlers take."""

    def __init__(self, agent: str) -> None:
        from opentelemetry import metrics, trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._agent = agent
        self._trace = trace
        self._tracer = trace.get_tracer("sealbus", schema_url=SCHEMA)
        self._propagator = TraceContextTextMapPropagator()
        meter = metrics.get_meter("sealbus", schema_url=SCHEMA)
        self._handled = meter.create_histogram("messaging.process.duration", "s", "Time that handlers took")

    def sending(self, message: AclMessage, operation: str = "send", channel: str | None = None) -> tuple[AclMessage, Span]:
        """A message that carries the context of a new span, and the span, which the caller ends when the message is
        accepted."""
        to = channel or ", ".join(self._full(receiver.name) for receiver in message.receivers)
        about = self._about(message, operation, "send", to)
        span = self._tracer.start_span(f"{operation} {to}"[:128], kind=self._trace.SpanKind.PRODUCER, attributes=about)
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, self._trace.set_span_in_context(span))
        if len(carrier.get("tracestate", "")) > LONGEST_STATE:
            del carrier["tracestate"]
        parameters = message.user_defined | {f"X-{name}": value for name, value in carrier.items()}
        return message.replace(user_defined=parameters), span

    @contextmanager
    def producing(self, message: AclMessage, operation: str = "send", channel: str | None = None) -> Iterator[AclMessage]:
        """A message that carries the context of a new span, which lasts as long as the block."""
        traced, span = self.sending(message, operation, channel)
        with self._trace.use_span(span, end_on_exit=True):
            yield traced

    @contextmanager
    def handling(self, message: Message) -> Iterator[Callable[[Exception], None]]:
        """A span for the handler of a message, below the span in which the message was sent. Yields the function to call
        with an exception of the handler."""
        to = message.channel if isinstance(message, ChannelEvent) else self._agent
        about = self._about(message, "process", "process", to)
        about["sealbus.sender"] = message.sender.name if message.sender else ""
        about["sealbus.provenance"] = message.provenance
        # The names of other agents would be too many values.
        counted = {name: about[name] for name in COUNTED}
        began = time.monotonic()
        with self._tracer.start_as_current_span(
            f"process {to}"[:128],
            context=context_of(message),
            kind=self._trace.SpanKind.CONSUMER,
            attributes=about,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:

            def failed(raised: Exception) -> None:
                if isinstance(raised, NegativeAnswer):
                    # This is the handler's answer, not a mistake.
                    span.set_attribute("sealbus.answer", str(raised.performative))
                    return
                span.record_exception(raised)
                span.set_status(self._trace.StatusCode.ERROR, type(raised).__name__)
                span.set_attribute("error.type", type(raised).__qualname__)
                counted["error.type"] = type(raised).__qualname__

            try:
                yield failed
            finally:
                self._handled.record(time.monotonic() - began, counted)

    def _full(self, name: str) -> str:
        return name if "@" in name else f"{name}@{self._agent.partition('@')[2]}"

    def _about(self, message: AclMessage, name: str, kind: str, to: str) -> dict[str, str]:
        about = {
            "messaging.system": "sealbus",
            "messaging.operation.name": name,
            "messaging.operation.type": kind,
            "messaging.destination.name": to,
            "messaging.client.id": self._agent,
            "sealbus.acl.performative": str(message.performative),
        }
        if message.conversation_id is not None:
            about["messaging.message.conversation_id"] = str(message.conversation_id)
        if message.protocol is not None:
            about["sealbus.acl.protocol"] = message.protocol
        return about


class TracedHandle:
    """An agent's access to the bus, which traces the messages that it sends."""

    def __init__(self, handle: AgentHandle, tracing: Tracing) -> None:
        self._handle = handle
        self._tracing = tracing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def try_send(self, message: AclMessage) -> Unsent | None:
        with self._tracing.producing(message) as traced:
            return self._handle.try_send(traced)

    def try_send_many(self, messages: list[AclMessage], first: int) -> tuple[int, Unsent | None]:
        unsent: Unsent | None = None
        while first < len(messages) and unsent is None:
            pairs = [self._tracing.sending(message) for message in messages[first : first + ROW]]
            sent, unsent = self._handle.try_send_many([message for message, _ in pairs], 0)
            # Messages that were not sent yet come again, with new spans. A span that never ends is never exported.
            for _, span in pairs[:sent]:
                span.end()
            first += sent
        return first, unsent

    def send_persistent(self, pump: Any, call: int, message: AclMessage, *options: Any) -> None:
        with self._tracing.producing(message) as traced:
            self._handle.send_persistent(pump, call, traced, *options)

    def channel(self, address: str, qos: str) -> TracedChannel:
        return TracedChannel(self._handle.channel(address, qos), self._tracing)


class TracedChannel:
    """A channel of one agent, which traces its events."""

    def __init__(self, handle: ChannelHandle, tracing: Tracing) -> None:
        self._handle = handle
        self._tracing = tracing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def try_publish(self, message: AclMessage, qos: str) -> tuple[int, int, tuple[str, int] | None, int] | None:
        traced, span = self._tracing.sending(message, "publish", self._handle.path)
        reach = self._handle.try_publish(traced, qos)
        # An event that is not published at once is published again, with a new span. A span that never ends is never exported.
        if reach is not None:
            span.end()
        return reach

    def publish(self, pump: Any, call: int, message: AclMessage, qos: str) -> None:
        with self._tracing.producing(message, "publish", self._handle.path) as traced:
            self._handle.publish(pump, call, traced, qos)

    def send(self, pump: Any, call: int, receiver: str, message: AclMessage, qos: str) -> None:
        with self._tracing.producing(message, "send", self._handle.path) as traced:
            self._handle.send(pump, call, receiver, traced, qos)

    def request(self, pump: Any, call: int, message: AclMessage, *options: Any) -> None:
        with self._tracing.producing(message, "request", self._handle.path) as traced:
            self._handle.request(pump, call, traced, *options)


def tracing_of(agent: str) -> Tracing | None:
    """The spans of an agent, if its program is traced."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    exports = any(os.environ.get(name) for name in ENDPOINTS)
    if not exports and "opentelemetry.trace" not in sys.modules:
        return None
    try:
        from opentelemetry import trace

        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            if not exports:
                return None
            from sealbus.otlp import export

            export()
    except ImportError as missing:
        log.warning("%s: no traces, although a collector is named: %s; pip install 'sealbus[otel]'", agent, missing)
        return None
    return Tracing(agent)

"""The spans, metrics and log that a program sends to a collector over OTLP. The last ones are sent when the program
ends.

Each kind goes out unless the program has a provider of its own for it, or the standard variable (``OTEL_TRACES_EXPORTER``,
``OTEL_METRICS_EXPORTER``, ``OTEL_LOGS_EXPORTER``) names another exporter, such as ``none``.
"""

from __future__ import annotations

import logging
import os


def export() -> None:
    """Sends spans, metrics and log to the collector that the standard variables name."""
    for kind, begin in (("TRACES", _spans), ("METRICS", _metrics), ("LOGS", _log)):
        if os.environ.get(f"OTEL_{kind}_EXPORTER", "otlp") == "otlp":
            begin()


def _spans() -> None:
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def _metrics() -> None:
    from opentelemetry import metrics
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    if not isinstance(metrics.get_meter_provider(), MeterProvider):
        metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())]))


def _log() -> None:
    from opentelemetry import _logs
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.instrumentation.logging.handler import LoggingHandler
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    if isinstance(_logs.get_logger_provider(), LoggerProvider):
        return
    provider = LoggerProvider()
    provider.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
    _logs.set_logger_provider(provider)
    handler = LoggingHandler(logger_provider=provider)
    # OpenTelemetry logs that a collector cannot be reached: do not send that to the collector.
    handler.addFilter(lambda record: not record.name.startswith("opentelemetry"))
    root = logging.getLogger()
    if not root.handlers and logging.lastResort is not None:
        # Python prints warnings by itself only as long as there is no handler.
        root.addHandler(logging.lastResort)
    root.addHandler(handler)

"""Prometheus and OpenTelemetry get the promised numbers and traces. The pages about them are played here, on free ports."""

import json
import shutil
import sys
import textwrap
import threading
import urllib.parse
import urllib.request
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from harness import ROOT, Program, wait_for
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pages import Reader, someone
from ports import free_port, free_ports
from prometheus_client.openmetrics.parser import text_string_to_metric_families

HOW_TO = ROOT / "docs" / "how-to"
SHIPPED = ROOT / "packaging" / "prometheus"


@contextmanager
def played(page: str, ports: dict[str, int]):
    """A reader who has followed a page, with other ports."""
    text = (HOW_TO / page).read_text()
    for shown, port in ports.items():
        assert shown in text
        text = text.replace(f"127.0.0.1:{shown}", f"127.0.0.1:{port}")
    with someone() as reader:
        copy = reader.folder / "page.md"
        copy.write_text(text)
        reader.read(copy)
        yield reader


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=120) as answer:
        return answer.read().decode()


def scraped(port: int) -> dict[tuple[str, frozenset], float]:
    """The metrics of a Master or node, read by the official parser."""
    families = text_string_to_metric_families(get(f"http://127.0.0.1:{port}/metrics"))
    return {(it.name, frozenset(it.labels.items())): it.value for family in families for it in family.samples}


def total(samples: dict, name: str, /, **labels: str) -> float:
    return sum(value for (found, about), value in samples.items() if found == name and labels.items() <= dict(about).items())


@contextmanager
def prometheus(reader: Reader):
    """Debian's Prometheus with the page's file and the alerts that are shipped. Gives a function that asks it."""
    shutil.copy(SHIPPED / "alerts.yml", reader.folder)
    port = free_port()
    server = Program(
        [
            "prometheus",
            f"--config.file={reader.folder}/prometheus.yml",
            f"--storage.tsdb.path={reader.folder}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        reader.folder / "prometheus.log",
    )

    def ask(path: str, **options: str):
        try:
            answer = json.loads(get(f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(options)}"))
        except OSError:
            assert server.process.poll() is None, server.output()
            return None
        assert answer["status"] == "success", answer
        return answer["data"]

    try:
        yield ask
    finally:
        server.end()


def test_prometheus_reads_the_numbers():
    master, _ = free_ports(2)
    with played("prometheus.md", {"9464": master, "9465": master + 1}) as reader:
        counted = total(scraped(master + 1), "sealbus_messages_sent_total", process="clock")
        wait_for(lambda: total(scraped(master + 1), "sealbus_messages_sent_total", process="clock") > counted, "more ticks")

        def of_the_clock():
            """The node's numbers. It leaves out a process that is too busy to answer in time."""
            node = scraped(master + 1)
            return node if total(node, "sealbus_agent_messages_received_total", agent="clock@market") > 0 else None

        node, platform = wait_for(of_the_clock, "the numbers of the clock"), scraped(master)
        assert total(node, "sealbus_build_info", platform="market", name="node-1") == 1
        assert total(node, "sealbus_node_processes") == 1 and total(node, "sealbus_node_present") == 1
        assert total(node, "sealbus_links", process="node-1") >= 1
        assert total(platform, "sealbus_agents", state="active") == 1
        assert total(platform, "sealbus_certificates_issued_total") >= 2 and total(platform, "sealbus_term") == 1
        assert total(platform, "sealbus_deny_list_version") == total(node, "sealbus_deny_list_version")
        if not shutil.which("prometheus"):
            pytest.skip("prometheus is missing: run `make prometheus`. The numbers are right; it has not read them")
        with prometheus(reader) as ask:
            works_with_prometheus(ask)


def works_with_prometheus(ask):
    """The targets are up, a counter rises, every query of the dashboard is answered, and the alerts are loaded."""

    def values(query: str) -> list[float]:
        return [float(it["value"][1]) for it in (ask("query", query=query) or {"result": []})["result"]]

    wait_for(lambda: values('up{job="sealbus"}') == [1, 1], "both targets to be up")
    ticks = 'sealbus_messages_sent_total{process="clock"}'
    first = wait_for(lambda: values(ticks), "a counter")
    wait_for(lambda: values(ticks) > first, "the counter to rise")
    panels = json.loads((SHIPPED / "grafana-dashboard.json").read_text())["panels"]
    queries = [target["expr"].replace("$__rate_interval", "1m") for panel in panels for target in panel["targets"]]
    # Nothing was refused and no channel was used.
    silent = [query for query in queries if "channel" in query or "sealbus_refusals_total" in query]
    for query in queries:
        if query not in silent:
            wait_for(lambda query=query: values(query), query)
        else:
            assert ask("query", query=query) is not None
    rules = ask("rules")["groups"][0]["rules"]
    assert len(rules) >= 6
    wait_for(lambda: all(it["health"] == "ok" for it in ask("rules")["groups"][0]["rules"]), "the alerts to be tried")


KINDS = {
    "/v1/traces": (ExportTraceServiceRequest, "spans"),
    "/v1/metrics": (ExportMetricsServiceRequest, "metrics"),
    "/v1/logs": (ExportLogsServiceRequest, "log_records"),
}
"""The kinds of requests to a collector, by the path."""


@dataclass
class Got:
    """A collector's intake: (service, span), (service, metric), (service, record)."""

    port: int
    spans: list = field(default_factory=list)
    metrics: list = field(default_factory=list)
    log_records: list = field(default_factory=list)


@contextmanager
def collector():
    """A receiver of OTLP over HTTP."""

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.headers["Content-Type"] == "application/x-protobuf"
            request, name = KINDS[self.path]
            ((_, resources),) = request.FromString(body).ListFields()
            for resource in resources:
                about = {it.key: it.value.string_value for it in resource.resource.attributes}
                assert about["service.namespace"] == "market"
                for _, scopes in resource.ListFields()[1:]:
                    items = [item for scope in scopes for item in getattr(scope, name)]
                    getattr(got, name).extend((about["service.name"], item) for item in items)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    got = Got(server.server_port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield got
    finally:
        server.shutdown()
        server.server_close()


EXPECTED = {
    ("buyer", "buy tea"): None,
    ("buyer", "send shop@market"): ("buyer", "buy tea"),
    ("shop", "process shop@market"): ("buyer", "send shop@market"),
    ("shop", "send store@market"): ("shop", "process shop@market"),
    ("store", "process store@market"): ("shop", "send store@market"),
    ("store", "look on the shelf"): ("store", "process store@market"),
    ("store", "send shop@market"): ("store", "look on the shelf"),
    ("shop", "send buyer@market"): ("shop", "process shop@market"),
}
"""Each span of the page's trace, with the one above it."""


def whole_trace(spans: list) -> bool:
    """Whether one of the traces is the one that the page shows."""
    traces = defaultdict(dict)
    for service, span in list(spans):
        traces[span.trace_id][span.span_id] = (service, span)

    def above(trace, span):
        if not span.parent_span_id:
            return None
        parent = trace.get(span.parent_span_id)
        return parent and (parent[0], parent[1].name)

    found = ({(service, span.name): above(trace, span) for service, span in trace.values()} for trace in traces.values())
    return any(it == EXPECTED for it in found)


def test_a_request_across_three_programs_is_one_trace():
    with collector() as got:
        with played("tracing.md", {"4318": got.port}) as reader:
            wait_for(
                lambda: whole_trace(got.spans),
                "one trace from three programs",
                also=lambda: reader.run("sealbus logs", None) + "\n".join(f"{it[0]}: {it[1].name}" for it in got.spans),
            )


CHATTY = """
    import logging, os
    from opentelemetry import metrics
    from sealbus import AclMessage, Agent, every, on, run

    sold = metrics.get_meter("shop").create_counter("boxes.sold")


    class Shop(Agent):
        @every(0.1)
        async def wake(self):
            await self.send(AclMessage("inform", "shop", "a box"))

        @on("inform")
        async def sell(self, message):
            sold.add(1)
            logging.warning("sold %s", message.text)


    run(Shop())
"""


def test_metrics_and_log_of_a_program_go_to_the_collector(platform):
    with collector() as got:
        factory = platform(
            f"""
            [platform]
            name = "market"

            [telemetry]
            otlp = "http://127.0.0.1:{got.port}"

            [[agent]]
            name = "shop"
            command = ["{sys.executable}", "shop.py"]
            environment = {{ OTEL_METRIC_EXPORT_INTERVAL = "100" }}
            """
        )
        (factory.directory / "shop.py").write_text(textwrap.dedent(CHATTY))
        factory.up()

        def metric(name: str):
            return next((it for service, it in got.metrics if (service, it.name) == ("shop", name)), None)

        assert wait_for(lambda: metric("boxes.sold"), "the program's own metric", also=factory.logs).sum.data_points[0].as_int > 0
        (point,) = wait_for(lambda: metric("messaging.process.duration"), "how long handlers take").histogram.data_points
        assert {it.key: it.value.string_value for it in point.attributes} == {
            "messaging.system": "sealbus",
            "messaging.operation.name": "process",
            "messaging.client.id": "shop@market",
        }
        ((_, record),) = wait_for(lambda: got.log_records[:1], "a line of the log")
        assert record.body.string_value == "sold a box" and record.severity_text == "WARN"
        wait_for(lambda: record.span_id in {span.span_id for _, span in got.spans}, "the span in which it was written")
        # It is still in the program's own log.
        assert "sold a box" in factory.tell("logs", "shop").stdout.decode()

"""Sealbus over RabbitMQ beside the bare broker with the same promises, in turns, both on one broker.

Two brokers that do the same work may differ by more than the difference in question. So both clients stay in standing
processes on one broker, and play rounds in turns. The figures are medians of the turns' ratios::

    .venv/bin/python bench/python/one_broker.py target/release/sealbus-bench --turns 9
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

from awake import awake


@dataclass(frozen=True)
class Shape:
    """The shape of a round."""

    title: str
    kind: Literal["stream", "round_trip"]
    shape: Literal["one_to_one", "many_to_one", "broadcast"]
    senders: int
    receivers: int
    size: int
    """Bytes of a message."""
    messages: int
    """Of each sender."""
    interval_ns: int = 0
    """Between two messages of a sender."""

    @property
    def deliveries(self) -> int:
        copies = self.receivers if self.shape == "broadcast" else 1
        return self.senders * self.messages * copies


SHAPES = {
    "c1": Shape("one-to-one, 10 pairs, 10 000/s", "stream", "one_to_one", 10, 10, 32, 500, 1_000_000),
    "c2": Shape("broadcast, 10 × 10, 100 000/s", "stream", "broadcast", 10, 10, 32, 500, 1_000_000),
    "c3": Shape("many-to-one, 10 producers, 10 000/s", "stream", "many_to_one", 10, 1, 32, 500, 1_000_000),
    "f1": Shape("one-to-one, flat out", "stream", "one_to_one", 1, 1, 64, 10_000),
    "k4": Shape("1000 events of 10 kB, flat out", "stream", "broadcast", 1, 1, 10_000, 1000),
    "r1": Shape("round trips of 128 B", "round_trip", "one_to_one", 1, 1, 128, 80),
}


@dataclass(frozen=True)
class Figures:
    """The result of a round."""

    p50_ns: float
    per_s: float


class Driver:
    """A process that sends or receives, and answers orders in lines of JSON."""

    def __init__(self, bench: Path, name: str, log: Path) -> None:
        self._process = subprocess.Popen(
            [bench, "driver", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            text=True,
        )

    def order(self, order: str, **of_it: Any) -> dict[str, Any]:
        self.tell(order, **of_it)
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        if answer["answer"] == "error":
            raise SystemExit(f"a driver says: {answer}")
        return answer

    def tell(self, order: str, **of_it: Any) -> None:
        assert self._process.stdin is not None
        print(json.dumps({"order": order, **of_it}), file=self._process.stdin, flush=True)

    def end(self) -> None:
        self.tell("stop")
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()


class Client:
    """Sender and receiver of one system on the broker."""

    def __init__(self, bench: Path, driver: str, shape: Shape, system: dict[str, Any], folder: Path) -> None:
        self.shape = shape
        self._rounds = 0
        self._receiver = Driver(bench, driver, folder / f"{driver}-receiver.log")
        self._sender = Driver(bench, driver, folder / f"{driver}-sender.log")
        scenario = {name: getattr(shape, name) for name in ("kind", "shape", "senders", "receivers", "size")}
        own = folder / driver
        own.mkdir()
        common = {"scenario": scenario, "system": system, "folder": str(own)}
        here = self._receiver.order("prepare", role="receive", run=f"{driver}-receive", there=None, **common)["here"]
        there = self._sender.order("prepare", role="send", run=f"{driver}-send", there=here, **common)["here"]
        self._receiver.order("meet", there=there)

    def round(self) -> Figures:
        shape = self.shape
        self._rounds = (self._rounds + 1) % 250
        self._receiver.order("expect", round=self._rounds, messages=shape.messages)
        begin = time.monotonic_ns() + 20_000_000
        pace = {"interval_ns": shape.interval_ns, "stamp": "sent", "start_ns": begin}
        done = self._sender.order("run", round=self._rounds, messages=shape.messages, **pace)
        report = self._receiver.order("report", expected=shape.deliveries, quiet_ms=5000)
        if report["received"] != shape.deliveries or report["duplicated"]:
            got = f"{report['received']} of {shape.deliveries}, {report['duplicated']} of them twice"
            raise SystemExit(f"{shape.title}: {got} were received")
        told = done if shape.kind == "round_trip" else report
        seconds = (told["last_ns"] - done["first_ns"]) / 1e9
        return Figures(middle(told["times"]), shape.deliveries / seconds)

    def end(self) -> None:
        self._sender.end()
        self._receiver.end()


def middle(times: list[list[int]]) -> float:
    """The median of a histogram: pairs of a time and how many were so long."""
    left = sum(count for _, count in times) / 2
    for time_ns, count in times:
        left -= count
        if left <= 0:
            return time_ns
    raise SystemExit("a round without a message")


@contextmanager
def broker(bench: Path, level: str, promise: str, log: Path) -> Iterator[dict[str, Any]]:
    """A broker set up for both, and how it is reached."""
    process = subprocess.Popen(
        [bench, "serve-rabbitmq"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log.open("w"), text=True
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        print(json.dumps({"level": level}), file=process.stdin, flush=True)
        access: dict[str, Any] = json.loads(process.stdout.readline())
        yield {"level": level, "promise": promise, **access}
    finally:
        # It ends with its input.
        process.stdin.close()
        process.wait(60)


def compare(bench: Path, shape: Shape, system: dict[str, Any], turns: int) -> str:
    """A line of the table."""
    # The path must be short, because sockets lie there.
    with tempfile.TemporaryDirectory(prefix="one-broker-") as folder, ExitStack() as ends:
        clients = []
        for driver in ("sealbus", "rabbitmq"):
            clients.append(Client(bench, driver, shape, system, Path(folder)))
            ends.callback(clients[-1].end)
        for client in clients * 2:
            client.round()
        latencies, throughputs = [], []
        for turn in range(turns):
            in_turn = clients if turn % 2 == 0 else clients[::-1]
            figures = {client: client.round() for client in in_turn}
            ours, bare = (figures[client] for client in clients)
            latencies.append(ours.p50_ns / bare.p50_ns)
            throughputs.append(ours.per_s / bare.per_s)
        last = f"the last turn {ours.p50_ns / 1e6:.3g} ms, {ours.per_s:,.0f}/s beside {bare.p50_ns / 1e6:.3g} ms, {bare.per_s:,.0f}/s"
        return f"{shape.title}: latency p50 × {median(latencies):.2f}, throughput × {median(throughputs):.2f} ({last})"


def main() -> None:
    words = argparse.ArgumentParser(description="Sealbus over RabbitMQ beside the bare broker, in turns on one broker")
    words.add_argument("bench", type=Path, help="the program sealbus-bench, release profile")
    words.add_argument("--turns", type=int, default=9)
    words.add_argument("--level", choices=("none", "tls", "auth"), action="append")
    words.add_argument("--promise", choices=("durable", "transient"), default="durable", help="the broker's")
    words.add_argument("--shape", choices=sorted(SHAPES), action="append")
    asked = words.parse_args()
    bench = asked.bench.resolve()
    with awake(), tempfile.TemporaryDirectory(prefix="one-broker-") as logs:
        for level in asked.level or ("none", "tls", "auth"):
            with broker(bench, level, asked.promise, Path(logs) / f"{level}.log") as system:
                for name in asked.shape or SHAPES:
                    print(f"{level}: {compare(bench, SHAPES[name], system, asked.turns)}", flush=True)


if __name__ == "__main__":
    main()

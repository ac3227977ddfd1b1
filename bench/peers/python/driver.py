"""Drivers of the papers' benchmark for systems whose client is in Python:  driver.py zenoh|slim|spade

Follows the orders on its standard input (bench/README.md). All agents of a side run on one event loop.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

Values = dict[str, Any]
PAYLOAD = 32
LATE_SLEEP = 0.0002
"""For shorter pauses there is no sleep: the loop is given to other tasks instead."""


def now() -> int:
    """Nanoseconds of the monotonic clock."""
    return time.monotonic_ns()


class Times:
    """Times in buckets: each power of two is divided into 128."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.sum = 0

    def record(self, nanoseconds: int) -> None:
        shift = max(0, nanoseconds.bit_length() - 8)
        self.counts[nanoseconds >> shift << shift] += 1
        self.sum += nanoseconds

    def told(self) -> Values:
        count = self.counts.total()
        mean = self.sum / count if count else 0.0
        return {"times": sorted(self.counts.items()), "mean_ns": mean}


class Tally:
    """The messages that the receivers of this process have got in a round. Clients may call from their own threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.answered = 0
        self.begin(0, 0, 0)

    def begin(self, number: int, senders: int, messages: int) -> None:
        with self.lock:
            self.round, self.senders, self.messages = number, senders, messages
            self.seen: set[tuple[int, int, int]] = set()
            self.highest: dict[tuple[int, int], int] = {}
            self.counts: Counter[str] = Counter()
            self.last_ns = 0
            self.times = Times()
            self.answered = 0

    def count(self, receiver: int, content: bytes, size: int) -> None:
        came = now()
        with self.lock:
            try:
                number = int(content[:2], 16)
                sender, message = int(content[2:8], 16), int(content[8:16], 16)
                sent = int(content[16:32], 16)
            except ValueError:
                self.counts["corrupt"] += 1
                return
            if len(content) != size:
                self.counts["corrupt"] += 1
            elif number != self.round:
                self.counts["late"] += 1
            elif sender >= self.senders or message >= self.messages:
                self.counts["corrupt"] += 1
            elif (receiver, sender, message) in self.seen:
                self.counts["duplicated"] += 1
            else:
                self.seen.add((receiver, sender, message))
                if message < self.highest.get((receiver, sender), -1):
                    self.counts["disordered"] += 1
                else:
                    self.highest[receiver, sender] = message
                self.counts["received"] += 1
                self.last_ns = came
                self.times.record(max(0, came - sent))

    def answer(self) -> None:
        with self.lock:
            self.answered += 1


class Sender(Protocol):
    """An agent that sends."""

    async def send(self, content: bytes) -> None:
        """Hands a message over."""

    async def ask(self, content: bytes) -> bytes:
        """Sends a message and waits for the answer."""


class Peer(Protocol):
    """A measured system."""

    client: str

    async def connect(self, order: Values, tally: Tally) -> list[Sender]:
        """Makes the agents of one side. Returns those that send."""

    def here(self) -> Any:
        """The details that the other side needs."""

    async def meet(self, there: Any) -> None:
        """Takes the details of the other side."""

    async def leave(self) -> None:
        """Ends the agents."""


async def sleep_until(due: int) -> None:
    left = (due - now()) / 1e9
    await asyncio.sleep(left if left > LATE_SLEEP else 0)


class Driver:
    """Follows orders."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.tally = Tally()
        self.scenario: Values = {}
        self.senders: list[Sender] = []

    async def follow(self, order: Values) -> Values:
        match order["order"]:
            case "prepare":
                self.scenario = order["scenario"]
                self.senders = await self.peer.connect(order, self.tally)
                client = f"{self.peer.client}, Python {sys.version.split()[0]}"
                return {"answer": "prepared", "here": self.peer.here(), "client": client}
            case "meet":
                await self.peer.meet(order["there"])
            case "expect":
                self.tally.begin(order["round"], self.scenario["senders"], order["messages"])
            case "run":
                return await self.run(order)
            case "report":
                return await self.report(order["expected"], order["quiet_ms"] / 1000)
        return {"answer": "ready"}

    async def run(self, order: Values) -> Values:
        play = self.stream if self.scenario["kind"] == "stream" else self.round_trips
        times = Times()
        played = [play(order, number, times) for number in range(len(self.senders))]
        done = await asyncio.gather(*played)
        return {
            "answer": "done",
            "sent": sum(sent for sent, *_ in done),
            "answered": sum(answered for _, answered, *_ in done),
            "first_ns": min(first for *_, first, _ in done),
            "last_ns": max(last for *_, last in done),
            **times.told(),
        }

    async def stream(self, order: Values, number: int, _: Times) -> tuple[int, int, int, int]:
        sender, interval = self.senders[number], order["interval_ns"]
        begin = order["start_ns"] + interval * number // len(self.senders)
        padding = "x" * (self.scenario["size"] - PAYLOAD)
        prefix = f"{order['round']:02x}{number:06x}"
        is_due = order.get("stamp") == "due"
        await sleep_until(begin)
        first = now()
        for message in range(order["messages"]):
            due = begin + interval * message
            if interval and now() < due:
                await sleep_until(due)
            sent = due if is_due else now()
            await sender.send(f"{prefix}{message:08x}{sent:016x}{padding}".encode())
            if message % 64 == 63:
                # A client that never waits must not keep the loop from the other agents.
                await asyncio.sleep(0)
        return order["messages"], 0, first, now()

    async def round_trips(
        self, order: Values, number: int, times: Times
    ) -> tuple[int, int, int, int]:
        sender, size, answered = self.senders[number], self.scenario["size"], 0
        await sleep_until(order["start_ns"])
        first = now()
        for message in range(order["messages"]):
            text = f"{message:06x}{number:06x}{order['round']:02x}"[:size]
            content = text.ljust(size, "x").encode()
            began = now()
            if await sender.ask(content) == content:
                answered += 1
                times.record(now() - began)
        return order["messages"], answered, first, now()

    def so_far(self) -> int:
        if self.scenario["kind"] == "stream":
            return self.tally.counts["received"]
        return self.tally.answered

    async def report(self, expected: int, quiet: float) -> Values:
        seen, since = self.so_far(), time.monotonic()
        while seen < expected and time.monotonic() - since < quiet:
            await asyncio.sleep(0.005)
            if (received := self.so_far()) != seen:
                seen, since = received, time.monotonic()
        counts = self.tally.counts
        return {
            "answer": "report",
            "received": self.so_far(),
            **{it: counts[it] for it in ("duplicated", "disordered", "late", "corrupt")},
            "last_ns": self.tally.last_ns,
            **self.tally.times.told(),
        }


async def serve(
    driver: Driver, lines: asyncio.Queue[str | None], say: Callable[[str], object]
) -> None:
    """Follows orders until there are no more."""
    while (line := await lines.get()) is not None:
        order = json.loads(line)
        if order["order"] == "stop":
            break
        try:
            answer = await driver.follow(order)
        except Exception as error:
            print(f"{order['order']}: {error!r}", file=sys.stderr)
            answer = {"answer": "error", "text": repr(error)}
        say(json.dumps(answer))
    await driver.peer.leave()


async def main(name: str) -> None:
    """Reads the standard input from a thread."""
    # Lines that libraries print are not answers.
    out, sys.stdout = sys.stdout, sys.stderr
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, line)
        loop.call_soon_threadsafe(lines.put_nowait, None)

    threading.Thread(target=read, daemon=True).start()
    peer: Peer = importlib.import_module(f"{name}_peer").Peer()
    await serve(Driver(peer), lines, lambda line: print(line, file=out, flush=True))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: driver.py zenoh|slim|spade")
    import os

    import uvloop

    try:
        uvloop.run(main(sys.argv[1]))
    finally:
        # Ends the process, whatever threads the libraries have left.
        sys.stderr.flush()
        os._exit(0)

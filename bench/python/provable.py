"""The cost of proof and of secrecy on channels: events of 10 kB to fifty subscribers at `auth`, `signed` and `sealed`.

``python provable.py --sealbus PATH [--events N] [--turns N] [--json FILE]``: a real platform with two nodes at level ``auth``. `source`
on the one publishes on a channel of each level in turn, exactly once and in order. Fifty agents of one program on the other
subscribe to all three channels. A turn ends when each of them has every event. Ratios are those of neighbouring turns.

``python provable.py source`` and ``python provable.py crowd`` are the programs of the agents.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import report
from sealbus import AclMessage, Agent, Message, Performative, run

ROOT = Path(__file__).resolve().parents[2]
LEVELS = ("auth", "signed", "sealed")
SUBSCRIBERS = 50
SIZE = 10_000
PATIENCE = 300.0


class Source(Agent):
    """Publishes the requested number of events at a level, and reports how many a second reached everybody."""

    async def on_message(self, message: Message) -> None:
        """Measures."""
        if message.performative != Performative.REQUEST:
            return
        level, events = message.text.split()
        event = AclMessage(Performative.INFORM, content="x" * SIZE)
        began = time.monotonic()
        for _ in range(int(events)):
            await self.publish(f"/proof/{level}", event, qos=f"level={level}")
        await self.request(AclMessage(Performative.REQUEST, "crowd", message.text), timeout=PATIENCE)
        await self.reply(message, Performative.INFORM, str(int(events) / (time.monotonic() - began)))


class Subscriber(Agent):
    """Counts the events of each channel."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.counts = dict.fromkeys(LEVELS, 0)
        self.counted = asyncio.Event()

    async def setup(self) -> None:
        """Reads for ever."""
        for level in LEVELS:
            self.create_task(self.count(level))

    async def count(self, level: str) -> None:
        """Counts the events of a channel."""
        async with await self.subscribe(f"/proof/{level}") as events:
            async for _ in events:
                self.counts[level] += 1
                self.counted.set()

    async def until(self, level: str, events: int) -> None:
        """Waits until `events` were counted, and begins anew."""
        while self.counts[level] < events:
            self.counted.clear()
            await self.counted.wait()
        self.counts[level] = 0


class Crowd(Agent):
    """Answers when all subscribers have all events."""

    def __init__(self, name: str, subscribers: list[Subscriber]) -> None:
        super().__init__(name)
        self.subscribers = subscribers

    async def on_message(self, message: Message) -> None:
        """Waits for them."""
        level, events = message.text.split()
        await asyncio.gather(*(each.until(level, int(events)) for each in self.subscribers))
        await self.reply(message, Performative.INFORM)


CROWD = [f"subscriber-{number}" for number in range(SUBSCRIBERS)]
PROGRAM = Path(__file__).resolve()
MANIFEST = f"""
[platform]
name = "factory"
nodes = 2

[[agent]]
name = "source"
command = ["PYTHON", "{PROGRAM}", "source"]
node = "node-1"

[[agent]]
name = "crowd"
command = ["PYTHON", "{PROGRAM}", "crowd"]
node = "node-2"
agents = {json.dumps(["crowd", *CROWD])}
"""


def measure(events: int, turns: int) -> dict[str, dict[str, float]]:
    """The events a second at each level, and their ratios to the levels below in the same turn."""
    sys.path.append(str(ROOT / "tests" / "end_to_end"))
    from harness import Platform

    rates: dict[str, list[float]] = {level: [] for level in LEVELS}
    with tempfile.TemporaryDirectory() as folder:
        factory = Platform(Path(folder), MANIFEST)
        try:
            factory.up().active("source", "crowd", *CROWD)
            for turn in range(turns + 1):
                for level in LEVELS:
                    rate = float(factory.send("source", f"{level} {events}"))
                    # The first turn opens the channels, and waits for the keys of the sealed one.
                    if turn > 0:
                        rates[level].append(rate)
        finally:
            factory.down()

    def ratio(level: str, below: str) -> float:
        return median(one / other for one, other in zip(rates[level], rates[below], strict=True))

    return {
        level: {
            "events_per_s": median(rates[level]),
            "deliveries_per_s": median(rates[level]) * SUBSCRIBERS,
            "ratio_to_auth": ratio(level, "auth"),
            "ratio_to_signed": ratio(level, "signed"),
        }
        for level in LEVELS
    }


def main() -> None:
    """Measures, prints the figures and writes the report."""
    match sys.argv[1:]:
        case ["source"]:
            return run(Source("source"))
        case ["crowd"]:
            subscribers = [Subscriber(name) for name in CROWD]
            return run(Crowd("crowd", subscribers), *subscribers)
    parser = report.options()
    parser.add_argument("--events", type=int, default=1_000, help="events of each turn")
    parser.add_argument("--turns", type=int, default=3, help="turns; the median counts")
    arguments = parser.parse_args()
    os.environ["SEALBUS_BINARY"] = str(arguments.sealbus.absolute())
    figures = measure(arguments.events, arguments.turns)
    report.write(arguments.json, figures)
    for level, found in figures.items():
        rate = f"{found['events_per_s']:9.0f} events/s{found['deliveries_per_s']:11.0f} deliveries/s"
        print(f"{level:8}{rate}{found['ratio_to_auth']:7.2f} x auth{found['ratio_to_signed']:7.2f} x signed")


if __name__ == "__main__":
    main()

"""The cost of typed bodies and protocol objects in Python: a bare request, the same with typed bodies and as a protocol object,
in turns, and ten thousand conversations of one agent at once.

``python conversations.py [--json FILE]``: all agents are in one process, where nothing else hides the cost.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median

import report
from sealbus import AclMessage, Agent, Message, Performative, on, on_request, run
from workload import Order, Receipt, resident

TURNS = 15
TRIPS = 1_000
AT_ONCE = 10_000
WITHIN = 600.0


class Bare(Agent):
    """Answers text with text."""

    @on(Performative.REQUEST)
    async def sell(self, message: Message) -> None:
        """A round trip."""
        assert message.text
        await self.reply(message, Performative.INFORM, "7 24.5")


class Typed(Agent):
    """Answers values with values."""

    @on(Performative.REQUEST, body=Order)
    async def sell(self, message: Message[Order]) -> None:
        """A round trip."""
        order = message.body
        await self.reply(message, Performative.INFORM, Receipt(7, order.count * order.price))


class Protocol(Agent):
    """Answers by a protocol object."""

    @on_request(Order)
    async def sell(self, message: Message[Order]) -> Receipt:
        """A round trip."""
        return Receipt(7, message.body.count * message.body.price)


class Keeper(Agent):
    """Answers when everybody has asked; the answer is the resident memory by then."""

    def __init__(self) -> None:
        super().__init__("keeper")
        self.kept: list[Message] = []

    @on(Performative.REQUEST)
    async def keep(self, message: Message) -> None:
        """Waits for the others."""
        self.kept.append(message)
        if len(self.kept) == AT_ONCE:
            size = str(resident())
            for each in self.kept:
                await self.reply(each, Performative.INFORM, size)


class Asker(Agent):
    """Measures."""

    def __init__(self) -> None:
        super().__init__("asker")
        self.figures: dict[str, float] = {}

    async def setup(self) -> None:
        ways = {"bare": self.ask_bare, "typed": self.ask_typed, "protocol": self.ask_by_protocol}
        turns: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(TURNS + 1):
            for name, ask in ways.items():
                began = time.process_time()
                for _ in range(TRIPS):
                    await ask()
                if turn > 0:
                    turns[name].append((time.process_time() - began) * 1e6 / TRIPS)
        self.figures = {f"{name}_us": median(took) for name, took in turns.items()}

        before, began = resident(), time.perf_counter()
        keeper = self.peer("keeper")
        requests = (
            self.request(AclMessage(Performative.REQUEST, keeper, "x"), timeout=WITHIN)
            for _ in range(AT_ONCE)
        )
        answers = await asyncio.gather(*requests)
        most = max(int(answer.text) for answer in answers)
        self.figures["at_once_bytes_each"] = (most - before) / AT_ONCE
        self.figures["at_once_seconds"] = time.perf_counter() - began
        self.stop_all()

    async def ask_bare(self) -> None:
        """A request in text."""
        request = AclMessage(Performative.REQUEST, self.peer("bare"), "tea 2 12.25")
        assert (await self.request(request, timeout=WITHIN)).text

    async def ask_typed(self) -> None:
        """A request with typed bodies."""
        order = Order("tea", 2, 12.25)
        request = AclMessage(Performative.REQUEST, self.peer("typed"), body=order)
        assert (await self.request(request, timeout=WITHIN)).body_as(Receipt).number == 7

    async def ask_by_protocol(self) -> None:
        """A request as a protocol object."""
        order = Order("tea", 2, 12.25)
        done = await self.request_action(order, to="protocol", reply=Receipt, timeout=WITHIN)
        assert done.body.number == 7


def main() -> None:
    """Measures, prints a table and writes the report."""
    parser = report.options(sealbus=False)
    arguments = parser.parse_args()
    asker = Asker()
    run(Bare("bare"), Typed("typed"), Protocol("protocol"), Keeper(), asker)
    figures = asker.figures
    print(f"round trips in one Python process, µs of the processor (the middle of {TURNS} turns)")
    for name, title in (("bare", "request"), ("typed", "with typed bodies"), ("protocol", "by protocol objects")):
        took = figures[f"{name}_us"]
        print(f"  {title:24}{took:10.1f}{took / figures['bare_us']:8.2f} x")
    print(
        f"{AT_ONCE} conversations at once: {figures['at_once_bytes_each']:.0f} bytes each, "
        f"{figures['at_once_seconds']:.2f} s"
    )
    report.write(arguments.json, figures)


if __name__ == "__main__":
    main()

"""The agents of the Python benchmark: one drives, one answers. Started by a platform, each as a process of its own.

``python agents.py LOOP driver REPORT`` measures and writes its figures to REPORT, in JSON; ``python agents.py LOOP
mirror`` is what it talks to. LOOP is the event loop: ``sealbus``, ``asyncio`` or ``uvloop``.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from statistics import median, quantiles

import uvloop

from sealbus import AclMessage, Agent, EventLoop, Filter, Message, Performative, on, run
from workload import Order, Receipt, resident

ROUND_TRIPS = 20_000
STREAMED = 400_000
BATCH = 1_000
READY = Filter(Performative.CONFIRM)


TURNS, TRIPS = 9, 1_000


class Mirror(Agent):
    """Answers requests, and takes streams in the way it is asked to."""

    @on(Performative.REQUEST)
    async def echo(self, message: Message) -> None:
        """A round trip."""
        await self.reply(message, Performative.INFORM, message.content)

    @on(Performative.QUERY_REF)
    async def sell_by_text(self, message: Message) -> None:
        """A question in text."""
        article, count, price = message.text.split()
        await self.reply(message, Performative.INFORM, f"7 {int(count) * float(price)}")

    @on(Performative.QUERY_IF, body=Order)
    async def sell_by_value(self, message: Message[Order]) -> None:
        """The same with typed bodies."""
        order = message.body
        await self.reply(message, Performative.INFORM, Receipt(7, order.count * order.price))

    @on(Performative.PROPOSE)
    async def tell_memory(self, message: Message) -> None:
        """Tells the resident memory of this process."""
        await self.reply(message, Performative.INFORM, str(resident()))

    @on(Performative.CFP)
    async def stream(self, message: Message) -> None:
        """Takes as many messages as it is told to, one by one or in batches, and says when it has them."""
        order = json.loads(message.text)
        count, size = order["count"], order["size"]
        await self.reply(message, Performative.AGREE)
        received = 0
        if order["batches"]:
            while received < count:
                for each in await self.receive_many(BATCH):
                    content = each.content_bytes
                    assert content is not None and len(content) == size
                    received += 1
        else:
            while received < count:
                content = (await self.receive()).content_bytes
                assert content is not None and len(content) == size
                received += 1
        await self.reply(message, Performative.CONFIRM)


class Driver(Agent):
    """Measures."""

    def __init__(self, report: Path) -> None:
        super().__init__("driver")
        self.report = report

    async def setup(self) -> None:
        mirror = self.peer("mirror")
        figures: dict[str, object] = {}
        figures["resident_bytes"] = await self.resident()
        for size in (128, 16_384):
            figures[f"round_trip_{size}"] = await self.round_trips(size)
        for batches in (False, True):
            name = "batches" if batches else "one_by_one"
            figures[f"stream_64_{name}"] = max([await self.stream(64, batches) for _ in range(3)])
        figures["resident_after_streams_bytes"] = await self.resident()
        figures |= await self.questions()
        # The report appears all at once, so a reader that waits for it finds all of it.
        whole = self.report.with_suffix(".part")
        whole.write_text(json.dumps(figures))
        whole.rename(self.report)
        await self.send(AclMessage(Performative.CANCEL, mirror))
        self.stop_all()

    async def round_trips(self, size: int) -> dict[str, float]:
        """Requests one after the other; microseconds."""
        mirror, content = self.peer("mirror"), bytes(size)
        took: list[float] = []
        for _ in range(ROUND_TRIPS):
            began = time.perf_counter_ns()
            await self.request(AclMessage(Performative.REQUEST, mirror, content), timeout=10)
            took.append((time.perf_counter_ns() - began) / 1000)
        took = took[ROUND_TRIPS // 10 :]
        percentiles = quantiles(took, n=100)
        return {"p50_us": percentiles[49], "p99_us": percentiles[98], "least_us": min(took)}

    async def resident(self) -> int:
        """The greater resident memory of the two processes."""
        told = await self.request(AclMessage(Performative.PROPOSE, self.peer("mirror")), timeout=60)
        return max(resident(), int(told.text))

    async def questions(self) -> dict[str, float]:
        """Text and typed bodies in turns: microseconds, and microseconds of this process's processor."""

        async def by_text() -> None:
            question = AclMessage(Performative.QUERY_REF, self.peer("mirror"), "tea 2 12.25")
            assert float((await self.request(question, timeout=60)).text.split()[1]) == 24.5

        async def by_value() -> None:
            question = AclMessage(Performative.QUERY_IF, self.peer("mirror"), body=Order("tea", 2, 12.25))
            assert (await self.request(question, timeout=60)).body_as(Receipt).total == 24.5

        took: dict[str, list[float]] = {}
        for turn in range(TURNS + 1):
            for name, ask in (("text", by_text), ("typed", by_value)):
                began, worked = time.perf_counter(), time.process_time()
                for _ in range(TRIPS):
                    await ask()
                if turn > 0:
                    took.setdefault(f"{name}_us", []).append((time.perf_counter() - began) * 1e6 / TRIPS)
                    took.setdefault(f"{name}_processor_us", []).append((time.process_time() - worked) * 1e6 / TRIPS)
        return {name: median(each) for name, each in took.items()}

    async def stream(self, size: int, batches: bool) -> float:
        """Messages one way, each made anew; messages per second until the last has been received."""
        mirror = self.peer("mirror")
        order = json.dumps({"count": STREAMED, "size": size, "batches": batches})
        call = AclMessage(Performative.CFP, mirror, order, conversation_id=f"stream {batches}")
        await self.send(call)
        await self.receive(Filter(Performative.AGREE))
        contents = [number.to_bytes(size) for number in range(BATCH)]
        inform = AclMessage(Performative.INFORM, mirror, sender=self.aid)
        began = time.perf_counter()
        if batches:
            for _ in range(STREAMED // BATCH):
                await self.send_many([inform.with_content(content) for content in contents])
        else:
            for _ in range(STREAMED // BATCH):
                for content in contents:
                    await self.send(AclMessage(Performative.INFORM, mirror, content))
        await self.receive(READY)
        return STREAMED / (time.perf_counter() - began)


def main() -> None:
    """Runs the agent named on the command line."""
    loops = {
        "sealbus": EventLoop,
        "asyncio": asyncio.new_event_loop,
        "uvloop": uvloop.new_event_loop,
    }
    match sys.argv[1:]:
        case [loop, "driver", report] if loop in loops:
            run(Driver(Path(report)), loop_factory=loops[loop])
        case [loop, "mirror"] if loop in loops:
            run(Mirror("mirror"), loop_factory=loops[loop])
        case _:
            sys.exit("usage: agents.py sealbus|asyncio|uvloop driver REPORT | mirror")


if __name__ == "__main__":
    main()

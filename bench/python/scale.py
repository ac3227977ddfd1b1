"""The cost of large platforms: agents that begin at once, processes that do nothing, subscriptions that begin at once.

``python scale.py --sealbus PATH [--only agents|idle|subscriptions] [--agents N] [--processes N] [--seconds N] [--json FILE]``: each
figure comes from a real platform of its own at level ``auth``.

- ``agents``: one program with so many agents, each with a key and a certificate of its own: the seconds from the program's beginning
  until the last agent runs, and the program's resident memory for each agent at that time.
- ``idle``: so many programs of one agent each that have nothing to do: the share of one processor that the platform's processes take in
  all.
- ``subscriptions``: as many programs subscribe to 500 channels each at the same time: the seconds until all of these subscriptions
  are in force, which means that each publisher knows them.

``python scale.py crowd COUNT FOLDER``, ``python scale.py idler`` and ``python scale.py subscriber`` are the programs of the agents.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import report
from sealbus import Agent, Message, Performative, run
from watched import worked

ROOT = Path(__file__).resolve().parents[2]
CHANNELS = 500
PATIENCE = 1200.0
#: Programs that start and join are not idle yet.
SETTLING = 30.0


class Idler(Agent):
    """Does nothing."""


class Crowd(Agent):
    """One of many agents. The last to run writes down the figures of all."""

    begun = 0.0
    before = 0.0
    running = 0
    notes: Path | None = None

    async def setup(self) -> None:
        """Notes the time at which the last one runs."""
        Crowd.running += 1
        if Crowd.notes is not None and Crowd.running == int(sys.argv[2]):
            figures = {"seconds": time.monotonic() - Crowd.begun, "bytes": (resident() - Crowd.before) / Crowd.running}
            (Crowd.notes / "part").write_text(json.dumps(figures))
            (Crowd.notes / "part").rename(Crowd.notes / "figures")


class Subscriber(Agent):
    """Subscribes when it is told to, and answers with the seconds that it took."""

    async def on_message(self, message: Message) -> None:
        """Subscribes at the moment that the message names."""
        if message.performative != Performative.REQUEST:
            return
        begin = float(message.content_text or "0")
        # Programs that look at the clock again and again would take the processors from those that begin.
        await self.clock.sleep(begin - time.monotonic())
        self.kept = [await self.subscribe(f"/place/{self.aid.local_name}/{number}") for number in range(CHANNELS)]
        await self.reply(message, Performative.INFORM, str(time.monotonic() - begin))


def resident() -> float:
    """The bytes of this process that are resident."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def program(name: str, *words: str, more: str = "") -> str:
    """An entry of a manifest."""
    command = json.dumps([sys.executable, str(Path(__file__).resolve()), *words])
    return f"[[agent]]\nname = '{name}'\ncommand = {command}\nrestart = 'never'\n{more}\n"


@contextmanager
def platform(manifest: str) -> Iterator[Any]:
    """A platform with two nodes."""
    from harness import Platform

    with tempfile.TemporaryDirectory() as folder:
        factory = Platform(Path(folder), f"[platform]\nname = 'factory'\nnodes = 2\n{manifest}")
        try:
            yield factory.up()
        finally:
            factory.down()


def wait_for_active(factory: Any, number: int) -> None:
    """Waits until so many agents run."""
    over = time.monotonic() + PATIENCE
    while sum(agent["state"] == "active" for agent in factory.agents().values()) < number:
        if time.monotonic() > over:
            sys.exit(factory.logs())
        time.sleep(2)


def agents(number: int) -> dict[str, float]:
    """One program with so many agents."""
    with tempfile.TemporaryDirectory() as notes:
        os.chmod(notes, 0o777)
        more = f"agents = {number}\nwrite = [{json.dumps(notes)}]\n"
        with platform(program("crowd", "crowd", str(number), notes, more=more)) as factory:
            figures, over = Path(notes) / "figures", time.monotonic() + PATIENCE
            while not figures.exists():
                if time.monotonic() > over:
                    sys.exit(factory.logs())
                time.sleep(0.1)
            return {"agents": number, **json.loads(figures.read_text())}


def idle(processes: int, seconds: float) -> dict[str, float]:
    """So many programs that do nothing."""
    with platform(program("idler", "idler", more=f"replicas = {processes}")) as factory:
        wait_for_active(factory, processes)
        time.sleep(SETTLING)
        pids, begun = factory.pids(), time.monotonic()
        before = sum(map(worked, pids))
        time.sleep(seconds)
        return {"processes": processes, "share_of_a_processor": (sum(map(worked, pids)) - before) / (time.monotonic() - begun)}


def subscriptions(processes: int) -> dict[str, float]:
    """So many programs that subscribe at the same time."""
    from concurrent.futures import ThreadPoolExecutor

    with platform(program("subscriber", "subscriber", more=f"replicas = {processes}")) as factory:
        wait_for_active(factory, processes)
        begin = str(time.monotonic() + processes / 10)
        names = [f"subscriber-{number + 1}" for number in range(processes)]
        with ThreadPoolExecutor(processes) as orders:
            took = list(orders.map(lambda name: float(factory.send(name, begin, wait="600s")), names))
        return {"processes": processes, "subscriptions": processes * CHANNELS, "seconds": max(took)}


def main() -> None:
    """Measures, or is one of the programs."""
    match sys.argv[1:]:
        case ["crowd", count, notes]:
            Crowd.notes, Crowd.before, Crowd.begun = Path(notes), resident(), time.monotonic()
            run(*(Crowd(f"crowd-{number + 1}") for number in range(int(count))))
            return
        case ["idler"]:
            run(Idler())
            return
        case ["subscriber"]:
            run(Subscriber())
            return
    parser = report.options()
    parser.add_argument("--only", choices=["agents", "idle", "subscriptions"])
    parser.add_argument("--agents", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60)
    given = parser.parse_args()
    sys.path.append(str(ROOT / "tests" / "end_to_end"))
    os.environ["SEALBUS_BINARY"] = str(given.sealbus.resolve())
    figures: dict[str, Any] = {}
    if given.only in (None, "agents"):
        figures["agents"] = agents(given.agents)
    if given.only in (None, "idle"):
        figures["idle"] = idle(given.processes, given.seconds)
    if given.only in (None, "subscriptions"):
        figures["subscriptions"] = subscriptions(given.processes)
    report.write(given.json, figures)
    for name, each in figures.items():
        print(name, json.dumps(each))


if __name__ == "__main__":
    main()

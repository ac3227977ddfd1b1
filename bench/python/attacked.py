"""How much an attack delays agents that have nothing to do with it: round trips of a pair, quiet and under each attack.

``python attacked.py --sealbus PATH [--seconds N] [--nice N] [--json FILE]``: a real platform with two nodes at level ``auth``.
`asker` on the one asks `answerer` on the other, one request after the other. The attackers are those of ``tests/attacks``, beside
the platform on the same machine, so the processor time that they take counts, too. The row `busy` shows that share alone: an
attacker that only calculates, and never writes to the platform. Before and after all attacks the pair is measured in quiet; the
ratios are to the first of these runs, and to `busy`. With ``--nice 19`` the attackers take only the processor time that nobody
else wants, so the figures show the effect of an attack on a platform that does not share its processors with the attackers.

``python attacked.py asker`` and ``python attacked.py answerer`` are the programs of the agents.
"""

from __future__ import annotations

import json
import os
import random
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import report
from sealbus import AclMessage, Agent, Message, Performative, run

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 300.0
#: Connections that strangers hold open.
STRANGERS = 500
Attack = Callable[[threading.Event], None]


class Answerer(Agent):
    """Answers every request."""

    async def on_message(self, message: Message) -> None:
        """Answers it."""
        if message.performative == Performative.REQUEST:
            await self.reply(message, Performative.INFORM)


class Asker(Agent):
    """Asks for the requested number of seconds, and reports how long each answer took, in milliseconds."""

    async def on_message(self, message: Message) -> None:
        """Measures."""
        if message.performative != Performative.REQUEST:
            return
        over = time.monotonic() + float(message.content_text or "1")
        took: list[float] = []
        while (begun := time.monotonic()) < over:
            await self.request(AclMessage(Performative.REQUEST, "answerer"), timeout=PATIENCE)
            took.append(round(1000 * (time.monotonic() - begun), 3))
        await self.reply(message, Performative.INFORM, json.dumps(took))


MANIFEST = "[platform]\nname = 'factory'\nnodes = 2\n" + "".join(
    f"[[agent]]\nname = '{name}'\ncommand = ['PYTHON', '{Path(__file__).resolve()}', '{name}']\nnode = '{node}'\n"
    for name, node in (("asker", "node-1"), ("answerer", "node-2"))
)


def noise(address: tuple[str, int]) -> Attack:
    """Bytes that are not the protocol, on one connection after the other."""

    def attack(over: threading.Event) -> None:
        chance = random.Random(11)
        while not over.is_set():
            with suppress(OSError), socket.create_connection(address, 5) as stream:
                stream.sendall(chance.randbytes(20_000))
                stream.recv(1)

    return attack


def handshakes(address: tuple[str, int]) -> Attack:
    """Handshakes without a certificate, one after the other: each costs the other side a signature."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["sealbus-mesh/1/auth"])

    def attack(over: threading.Event) -> None:
        while not over.is_set():
            with suppress(OSError), socket.create_connection(address, 5) as plain, context.wrap_socket(plain) as stream:
                stream.recv(1)

    return attack


def flood(mallory: Any, message: Callable[..., bytes]) -> Attack:
    """A certified agent sends the answerer as many messages as it may."""

    def attack(over: threading.Event) -> None:
        payload = message("inform", mallory.name, ["answerer@factory"])
        while not over.is_set():
            with suppress(Exception), mallory.speaks_to("answerer") as link:
                link.waits(1)
                while not over.is_set():
                    link.message(0, 0, payload)

    return attack


def calculating(over: threading.Event) -> None:
    """Takes a processor, and leaves the platform alone."""
    while not over.is_set():
        sum(range(1000))


@contextmanager
def beside(attack: Attack) -> Iterator[None]:
    """Runs the attack meanwhile."""
    over = threading.Event()
    thread = threading.Thread(target=attack, args=(over,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def measure(seconds: float, niceness: int) -> dict[str, dict[str, float]]:
    """The round trips of the pair, quiet and under each attack."""
    sys.path += [str(ROOT / "tests" / "end_to_end"), str(ROOT / "tests" / "attacks")]
    from attacker.acl import message
    from attacker.mallory import Mallory
    from attacker.rpc import place
    from crowd import ELSEWHERE, crowd
    from harness import Platform

    with tempfile.TemporaryDirectory() as folder:
        factory = Platform(Path(folder), MANIFEST)
        try:
            agents = factory.up().active("asker", "answerer")
            address = place(agents["answerer"]["address"])
            # The platform runs already, and the attackers' threads are made later.
            os.nice(niceness)

            def stranger() -> socket.socket:
                return socket.create_connection(address, 5, (ELSEWHERE, 0))

            def round_trips() -> dict[str, float]:
                took = sorted(json.loads(factory.send("asker", str(seconds))))
                return {"p50_ms": took[len(took) // 2], "p99_ms": took[len(took) * 99 // 100], "round_trips": len(took)}

            with Mallory(factory.ask("ticket", "mallory", "--node", "node-1")["ticket"], "mallory") as mallory:
                attacks = {
                    "quiet before": nullcontext(),
                    "busy": beside(calculating),
                    "strangers": crowd(stranger, STRANGERS),
                    "noise": beside(noise(address)),
                    "handshakes": beside(handshakes(address)),
                    "flood": beside(flood(mallory, message)),
                    "quiet after": nullcontext(),
                }
                figures = {}
                for name, attack in attacks.items():
                    with attack:
                        figures[name] = round_trips()
        finally:
            factory.down()
    return figures


def main() -> None:
    """Measures, prints the figures and writes the report."""
    programs: dict[str, type[Agent]] = {"asker": Asker, "answerer": Answerer}
    if sys.argv[1:] and sys.argv[1] in programs:
        return run(programs[sys.argv[1]](sys.argv[1]))
    parser = report.options()
    parser.add_argument("--seconds", type=float, default=10, help="seconds of each measurement")
    parser.add_argument("--nice", type=int, default=0, help="how much less of the processors the attackers get (nice)")
    arguments = parser.parse_args()
    os.environ["SEALBUS_BINARY"] = str(arguments.sealbus.absolute())
    figures = measure(arguments.seconds, arguments.nice)
    report.write(arguments.json, figures)
    for name, found in figures.items():
        quiet, busy = (found["p99_ms"] / figures[beside]["p99_ms"] for beside in ("quiet before", "busy"))
        figure = f"{found['p50_ms']:9.3f} ms p50{found['p99_ms']:9.3f} ms p99"
        print(f"{name:14}{figure}{quiet:7.2f} x quiet{busy:7.2f} x busy{found['round_trips']:8.0f} round trips")


if __name__ == "__main__":
    main()

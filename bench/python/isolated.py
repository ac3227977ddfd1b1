"""The cost of isolation, beside programs without it, in one run: of a program's start, and of its messages.

``python isolated.py --sealbus PATH [--starts N] [--seconds N] [--turns N] [--isolation MODE] [--json FILE]``

Starts: ``/bin/true`` is started as a node starts a program, and waited for, plainly and in each mode that works on this machine, in
turns. ``sealbus launch`` gets the plan that a node would write. Root has all modes; in `uid`, the program is user 79999.

Messages: a real platform with two nodes at level ``auth``, and two pairs of programs, each with one program on each node. The programs
of the one pair run in the strongest mode that works, or in MODE, and those of the other one with ``isolation = "none"``. The pairs
take turns: messages a second one way, then round trips. Ratios are those of neighbouring turns.

``python isolated.py driver KIND`` and ``python isolated.py mirror KIND`` are the programs of the agents.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import report
from awake import awake
from sealbus import AclMessage, Agent, Message, Performative, run
from watched import BATCH, PATIENCE, ROOT, Sink

TRUE = "/bin/true"
QUIET = subprocess.DEVNULL
#: The last of the users that nodes give to programs.
SLOT = 79_999
KINDS = ("isolated", "plain")
#: The most that a start may take longer, in milliseconds, and the most that messages may lose.
GOALS = {"p50_ms": 10.0, "p99_ms": 30.0}
LOSS = 0.02


class Driver(Agent):
    """Measures for the requested number of seconds: messages a second one way, and the time of a round trip in
    microseconds."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"{kind}-driver")
        self.mirror = f"{kind}-mirror"

    async def on_message(self, message: Message) -> None:
        """Measures."""
        if message.performative != Performative.REQUEST:
            return
        seconds = float(message.text) / 2
        inform = AclMessage(Performative.INFORM, self.mirror, "x" * 64)
        began, sent = time.perf_counter(), 0
        while time.perf_counter() < began + seconds:
            await self.send_many([inform] * BATCH)
            sent += BATCH
        await self.request(AclMessage(Performative.REQUEST, self.mirror), timeout=PATIENCE)
        rate = sent / (time.perf_counter() - began)
        took: list[float] = []
        over = time.perf_counter() + seconds
        while (began := time.perf_counter()) < over:
            await self.request(AclMessage(Performative.REQUEST, self.mirror), timeout=PATIENCE)
            took.append((time.perf_counter() - began) * 1e6)
        await self.reply(message, Performative.INFORM, json.dumps({"per_s": rate, "round_trip_us": median(took)}))


MANIFEST = "[platform]\nname = 'factory'\nnodes = 2\n" + "".join(
    f"[[agent]]\nname = '{kind}-{part}'\ncommand = ['PYTHON', '{Path(__file__).resolve()}', '{part}', '{kind}']\nnode = '{node}'\n"
    + ("isolation = 'none'\n" if kind == "plain" else "")
    for kind in KINDS
    for part, node in (("driver", "node-1"), ("mirror", "node-2"))
)


def plain() -> None:
    """A program without isolation."""
    subprocess.run([TRUE], stdin=QUIET, stdout=QUIET, stderr=QUIET, env={}, check=True)


def isolated(sealbus: Path, mode: str, folder: Path) -> Callable[[], None]:
    """A program in this mode. `folder` is in the place of the node's state folder."""
    own, socket_folder = folder / mode, folder / "socket"
    for each in (own, socket_folder):
        each.mkdir(exist_ok=True)
    slot = SLOT if mode == "uid" else None
    if slot is not None:
        os.chown(own, slot, slot)
    # A program that stays root reads only the public settings, which its node has looked up before. This list is about as
    # long.
    stays_root = os.geteuid() == 0 and slot is None
    public = [str(path) for path in Path("/etc").iterdir() if not path.is_symlink() and path.stat().st_mode & 0o004]
    plan: dict[str, object] = {
        "order": "start",
        "mode": mode,
        "program": TRUE,
        "arguments": [],
        "directory": str(own),
        "environment": {},
        "work": str(own),
        "public": public if stays_root else None,
        "attachment": None if mode == "landlock" else str(socket_folder),
        "hidden": [str(folder)],
        "home": None,
        "confinement": {},
        "slot": slot,
        "control_group": None,
    }
    order = json.dumps(plan).encode()

    def start() -> None:
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                program = subprocess.Popen([sealbus, "launch"], stdin=theirs.fileno(), stdout=QUIET, stderr=QUIET, env={})
            ours.sendall(order)
            ours.shutdown(socket.SHUT_WR)
            said = b"".join(iter(lambda: ours.recv(4096), b""))
        code = program.wait()
        if said != b"sealed\n" or code != 0:
            sys.exit(f"{TRUE} does not run in the mode {mode}: {said.decode(errors='replace')} (exit code {code})")

    return start


def starts(sealbus: Path, count: int) -> dict[str, dict[str, float]]:
    """Milliseconds of a start, plainly and in each mode that works here."""
    checked = subprocess.run([sealbus, "node", "--check", "--json"], check=True, capture_output=True)
    modes = [each["isolation"] for each in json.loads(checked.stdout) if each["problem"] is None]
    took: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        ways = {"plain": plain} | {mode: isolated(sealbus, mode, Path(folder)) for mode in modes}
        for turn in range(count + 1):
            for name, start in ways.items():
                began = time.perf_counter()
                start()
                if turn > 0:
                    took.setdefault(name, []).append((time.perf_counter() - began) * 1e3)
    figures = {}
    for name, each in took.items():
        each.sort()
        figures[name] = {"p50_ms": median(each), "p99_ms": each[len(each) * 99 // 100]}
    return figures


def filters(pid: int) -> int:
    """How many filters of system calls a process has. Isolation adds one."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Seccomp_filters"))


def messages(sealbus: Path, mode: str | None, seconds: float, turns: int) -> dict[str, Any]:
    """The figures of both pairs."""
    sys.path.append(str(ROOT / "tests" / "end_to_end"))
    os.environ["SEALBUS_BINARY"] = str(sealbus)
    from harness import Platform

    with tempfile.TemporaryDirectory() as folder:
        factory = Platform(Path(folder), MANIFEST)
        try:
            chosen = ["--isolation", mode] if mode else []
            names = [f"{kind}-{part}" for kind in KINDS for part in ("driver", "mirror")]
            agents = factory.up(*chosen).active(*names)
            fewer, more = (
                {filters(agents[f"{kind}-{part}"]["pid"]) for part in ("driver", "mirror")} for kind in ("plain", "isolated")
            )
            if max(fewer) >= min(more):
                sys.exit("one pair must be isolated and the other must not: `sealbus node --check` tells why it cannot be")

            def measure(kind: str) -> dict[str, float]:
                figures: dict[str, float] = json.loads(factory.send(f"{kind}-driver", str(seconds)))
                return figures

            found: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
            for turn in range(turns + 1):
                # Either pair comes first as often as the other one.
                for kind in KINDS[:: 1 if turn % 2 else -1]:
                    measured = measure(kind)
                    if turn > 0:
                        found[kind].append(measured)
            figures: dict[str, Any] = {"isolation": factory.nodes()["node-1"]["isolation"]}
        finally:
            factory.down()
    for figure in ("per_s", "round_trip_us"):
        of_kind = {kind: [each[figure] for each in found[kind]] for kind in KINDS}
        pairs = zip(of_kind["isolated"], of_kind["plain"], strict=True)
        figures[figure] = {kind: median(each) for kind, each in of_kind.items()}
        figures[figure]["ratio"] = median(one / other for one, other in pairs)
    return figures


def show(figures: dict[str, Any]) -> None:
    """Prints the figures, with the goals."""

    def word(is_met: bool) -> str:
        return "met" if is_met else "not met"

    begun = figures["starts"]
    print(f"{'a start of ' + TRUE:24}{'p50 ms':>10}{'x plain':>10}{'p99 ms':>10}{'x plain':>10}")
    for name, each in begun.items():
        cells = "".join(f"{each[key]:10.2f}{each[key] / begun['plain'][key]:10.2f}" for key in GOALS)
        longer = {key: each[key] - begun["plain"][key] for key in GOALS}
        goals = ", ".join(
            f"{key.removesuffix('_ms')} {longer[key]:+.2f} ms (goal: at most {goal:g}, {word(longer[key] <= goal)})"
            for key, goal in GOALS.items()
        )
        print(f"{name:24}{cells}{'' if name == 'plain' else '   ' + goals}")
    sent = figures["messages"]
    rate, trip = sent["per_s"], sent["round_trip_us"]
    print(
        f"messages, {sent['isolation']}: {rate['isolated']:,.0f}/s, {rate['ratio']:.3f} x plain "
        f"(goal: at least {1 - LOSS:g}, {word(rate['ratio'] >= 1 - LOSS)}); a round trip {trip['isolated']:.1f} us, "
        f"{trip['ratio']:.3f} x plain (goal: at most {1 + LOSS:g}, {word(trip['ratio'] <= 1 + LOSS)})"
    )


def main() -> None:
    """Measures, or is one of the agents."""
    match sys.argv[1:]:
        case ["driver", kind] if kind in KINDS:
            return run(Driver(kind))
        case ["mirror", kind] if kind in KINDS:
            return run(Sink(f"{kind}-mirror"))
    parser = report.options()
    parser.add_argument("--starts", type=int, default=500, help="starts in each mode")
    parser.add_argument("--seconds", type=float, default=4, help="seconds of each measurement of messages")
    parser.add_argument("--turns", type=int, default=15, help="turns of each pair")
    parser.add_argument("--isolation", metavar="MODE", help="the mode for messages, in place of the strongest one")
    given = parser.parse_args()
    sealbus = given.sealbus.resolve()
    with awake():
        figures: dict[str, Any] = {
            "starts": starts(sealbus, given.starts),
            "messages": messages(sealbus, given.isolation, given.seconds, given.turns),
        }
    report.write(given.json, figures)
    show(figures)


if __name__ == "__main__":
    main()

"""A random walk: an agent talks to another one while things are moved, killed, stopped, cut off and filled, by a seed."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import wires
from harness import ROOT, SEALBUS, Platform, alive, wait_for
from history import Verdict, history, judge

TALKER = ROOT / "tests" / "faults" / "programs" / "talker.py"
NODES = ("node-1", "node-2")
#: How long something stays stopped or cut off. The platform gives nothing up for that.
SECONDS = (0.5, 1.0, 2.0, 3.0)
#: A node that is away for so long is given up, and its agents run elsewhere.
LONG = (10.0, 14.0)


def manifest(kind: str, notes: Path, address: str) -> str:
    """Certificates of those that talk on the sealed channel are renewed during a walk."""
    agents = "".join(
        f"""
    [[agent]]
    name = "{name}"
    command = ["PYTHON", "{TALKER}", {words}]
    restart = "always"
    environment = {{ NOTES = "{notes}" }}
    write = ["{notes}"]
    """
        for name, words in (("source", f'"send", "{kind}", "sink"'), ("sink", f'"hear", "{kind}"'))
    )
    return f"""
    [platform]
    name = "factory"
    nodes = 0
    address = "{address}"
    lifetime = "{'1m' if kind == 'sealed' else '1h'}"

    [[channel]]
    path = "/offers"
    qos = "level=sealed"

    [[channel]]
    path = "/history"
    qos = "ack=disk"
    persistent = true
    {agents}
    """


class Walk:
    """A platform of a Master and two machines, and an agent on each of them."""

    def __init__(self, kind: str, seed: int, folder: Path, ends: ExitStack) -> None:
        self.kind = kind
        self.chance = random.Random(f"{kind} {seed}")
        self.notes = folder / "notes"
        self.notes.mkdir(parents=True)
        self.steps: list[str] = []
        self.wires = ends.enter_context(wires.Wires()) if wires.ARE_POSSIBLE else None
        address = self.wires.master if self.wires else "127.0.0.1"
        self.factory = Platform(folder, manifest(kind, self.notes, address))
        self.disks: dict[str, wires.Disk] = {}
        self.machines: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        for name in NODES:
            by, options = (), ()
            if self.wires:
                self.disks[name] = wires.Disk(folder / name)
                ends.callback(self.disks[name].remove)
                by, own = self.wires.machine()
                options = ("--address", own)
            self.machines[name] = (by, options)
        ends.callback(self.factory.down)
        self.factory.up()
        self.nodes = {}
        for name, (by, options) in self.machines.items():
            self.nodes[name] = self.factory.node(name, *options, run_by=by)
        self.move_apart()
        (self.notes / "talk").touch()
        self.hear_more()

    def move_apart(self) -> None:
        agents = self.factory.active("source", "sink")
        if agents["source"]["node"] == agents["sink"]["node"]:
            self.move("sink")

    # ---- observations

    def verdict(self) -> Verdict:
        return judge(history(self.notes / "source"), history(self.notes / "sink"), "source", self.kind)

    def hear_more(self, count: int = 50) -> None:
        goal = len(self.verdict().heard) + count
        wait_for(lambda: len(self.verdict().heard) >= goal, f"{count} more to be heard", also=self.why)

    def why(self) -> str:
        return "\n".join([f"steps: {self.steps}", str(self.verdict()), self.factory.logs()])

    # ---- steps

    def moves(self) -> dict[str, Callable[[], None]]:
        found = {
            "move the sender": lambda: self.move("source"),
            "move the receiver": lambda: self.move("sink"),
            "kill the sender": lambda: self.kill_agent("source"),
            "kill the receiver": lambda: self.kill_agent("sink"),
            "kill a node": self.kill_node,
            "kill the Master": self.kill_master,
            "stop the sender": lambda: self.stop(self.pid_of("source")),
            "stop the receiver": lambda: self.stop(self.pid_of("sink")),
            "stop a node": lambda: self.stop(self.node_pid(self.chance.choice(NODES))),
            "stop the Master": lambda: self.stop(self.factory.master.pid),
        }
        if self.wires:
            found |= {
                "cut a wire": lambda: self.cut(SECONDS),
                "cut a wire for long": lambda: self.cut(LONG),
                "deafen a node": lambda: self.cut_one_way(self.wires.deafen, SECONDS + LONG),
                "silence a node": lambda: self.cut_one_way(self.wires.silence, SECONDS + LONG),
                "fill a disk": self.fill,
            }
        return found

    def walk(self, length: int) -> None:
        moves = self.moves()
        for _ in range(length):
            step = self.chance.choice(sorted(moves))
            self.steps.append(step)
            moves[step]()
            self.hear_more()

    def pid_of(self, agent: str) -> int:
        return int(self.factory.active(agent)[agent]["pid"])

    def node_pid(self, name: str) -> int:
        """The node itself: `ip netns exec` becomes it."""
        return self.nodes[name].pid

    def move(self, agent: str) -> None:
        here = self.factory.active(agent)[agent]["node"]
        wait_for(lambda: all(node["state"] == "alive" for node in self.factory.nodes().values()), "both nodes", also=self.why)
        goal = NODES[here == NODES[0]]
        self.factory.tell("move", agent, goal)

    def kill_agent(self, agent: str) -> None:
        os.kill(self.pid_of(agent), signal.SIGKILL)
        self.factory.active(agent)

    def kill_node(self) -> None:
        name = self.chance.choice(NODES)
        self.nodes[name].kill()
        by, options = self.machines[name]
        self.nodes[name] = self.factory.program(
            *by, SEALBUS, "node", "--state", self.factory.directory / name, *options, name=f"{name}-again"
        )

    def kill_master(self) -> None:
        assert self.factory.master is not None
        self.factory.master.kill()
        self.factory.up()

    def stop(self, pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(self.chance.choice(SECONDS))
        finally:
            if alive(pid):
                os.kill(pid, signal.SIGCONT)

    def cut(self, seconds: tuple[float, ...]) -> None:
        assert self.wires is not None
        number = self.chance.choice((1, 2))
        self.wires.cut(number)
        try:
            time.sleep(self.chance.choice(seconds))
        finally:
            self.wires.mend(number)

    def cut_one_way(self, cut: Callable[[int], None], seconds: tuple[float, ...]) -> None:
        assert self.wires is not None
        number = self.chance.choice((1, 2))
        cut(number)
        try:
            time.sleep(self.chance.choice(seconds))
        finally:
            self.wires.open_both_ways(number)

    def fill(self) -> None:
        disk = self.disks[self.chance.choice(NODES)]
        disk.fill()
        try:
            time.sleep(self.chance.choice(SECONDS))
        finally:
            disk.make_room()

    # ---- the end

    def ends_clean(self) -> None:
        """All that was accepted arrives, or its sender is told."""
        (self.notes / "talk").unlink()

        def silent() -> bool:
            # Messages accepted before may come back after that.
            said = [event[0] for event in history(self.notes / "source") if event[0] not in ("told", "ended")]
            return said[-1] == "silent"

        wait_for(silent, "the sender to be silent", also=self.why)

        def settled() -> bool:
            return not self.verdict().lost

        try:
            wait_for(settled, "all that was accepted", deadline=90)
        except AssertionError:
            pass
        verdict = self.verdict()
        assert verdict.is_clean(), f"{self.kind}: {verdict}\n{self.why()}"
        assert len(verdict.heard) > 50

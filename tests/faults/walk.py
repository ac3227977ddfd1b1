"""A random walk: an agent talks to another one while things are moved, killed, stopped, cut off, filled and put wrong, by a seed."""

from __future__ import annotations

import os
import random
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import wires
from harness import ROOT, SEALBUS, Platform, Program, alive, wait_for, wrong_clock
from history import Verdict, history, judge

TALKER = ROOT / "tests" / "faults" / "programs" / "talker.py"
NODES = ("node-1", "node-2")
AGENTS = ("source", "sink")
#: How long something stays stopped or cut off. The platform gives nothing up for that.
SECONDS = (0.5, 1.0, 2.0, 3.0)
#: A node that is away for so long is given up, and its agents run elsewhere.
LONG = (10.0, 14.0)
#: A clock that is wrong by so many seconds differs by more than certificates allow (10 s), and by more than a node may be silent (8 s),
#: and by less than makes the Master refuse the node (60 s).
JUMPS = (-20, 20)
#: A node logs these words when it no longer waits for the older messages that a silent node keeps (`keeping::post::trail`).
ORDER_GIVEN_UP = "may come after newer ones"
#: With no more files than this a process can open none: it has more.
FEW_FILES = 8


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
        #: Whether processes did not run for longer than publishers wait for a silent one.
        self.silent = False
        self.order_given_up = False
        self.wires = ends.enter_context(wires.Wires()) if wires.ARE_POSSIBLE else None
        address = self.wires.master if self.wires else "127.0.0.1"
        self.factory = Platform(folder, manifest(kind, self.notes, address))
        self.disks: dict[str, wires.Disk] = {}
        self.clocks: dict[str, Path] = {}
        self.machines: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        library = wrong_clock(folder)
        for name in NODES:
            by, options = (), ()
            if self.wires:
                self.disks[name] = wires.Disk(folder / name)
                ends.callback(self.disks[name].remove)
                by, own = self.wires.machine()
                options = ("--address", own)
            self.clocks[name] = folder / f"clock-of-{name}"
            self.clocks[name].write_text("0")
            by = (*by, "env", f"LD_PRELOAD={library}", f"SHIFT_FILE={self.clocks[name]}")
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
        agents = self.factory.active(*AGENTS)
        if agents["source"]["node"] == agents["sink"]["node"]:
            self.move("sink")

    # ---- observations

    def verdict(self) -> Verdict:
        return judge(
            history(self.notes / "source"),
            history(self.notes / "sink"),
            "source",
            self.kind,
            silent=self.silent,
            order_given_up=self.kind == "persistent" and self.is_order_given_up(),
        )

    def is_order_given_up(self) -> bool:
        """Whether a node has said that it no longer waits for what another one keeps. A node that starts again writes a new log."""
        if not self.order_given_up:
            logs = self.factory.directory.glob("*.log")
            self.order_given_up = any(ORDER_GIVEN_UP in log.read_text(errors="replace") for log in logs)
        return self.order_given_up

    def hear_more(self, count: int = 50) -> None:
        goal = len(self.verdict().heard) + count
        wait_for(lambda: len(self.verdict().heard) >= goal, f"{count} more to be heard", also=self.why)

    def pids_of_agents(self) -> dict[str, int]:
        agents = self.factory.active(*AGENTS)
        return {name: int(agents[name]["pid"]) for name in AGENTS}

    def all_pids(self) -> set[int]:
        """The processes of the whole platform."""
        assert self.factory.master is not None
        known = {self.factory.master.pid, *(node.pid for node in self.nodes.values()), *self.pids_of_agents().values()}
        return {pid for pid in known | self.factory.pids() if alive(pid)}

    def await_state(self, node: str, state: str) -> None:
        wait_for(lambda: self.factory.nodes()[node]["state"] == state, f"{node} to be {state}", also=self.why)

    def await_nodes_heard(self) -> None:
        """Waits until the Master has heard each node again, and none is given up."""
        now = time.time() * 1000
        heard = lambda: all(node["state"] == "alive" and node["heard"] > now for node in self.factory.nodes().values())  # noqa: E731
        wait_for(heard, "the nodes to be heard", also=self.why)

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
            "kill a machine": self.restart_machine,
            "kill a machine and the Master": lambda: self.restart_machine(with_master=True),
            "leave a node few files": self.leave_node_few_files,
            "leave the Master few files": lambda: self.leave_few_files(self.factory.master.pid),
            "put a clock wrong": self.put_clock_wrong,
        }
        if self.wires:
            found |= {
                "cut a wire": lambda: self.cut(SECONDS),
                "cut a wire for long": lambda: self.cut(LONG),
                "deafen a node": lambda: self.cut_one_way(self.wires.deafen, SECONDS + LONG),
                "silence a node": lambda: self.cut_one_way(self.wires.silence, SECONDS + LONG),
                "fill a disk": self.fill,
                "make a disk read-only": self.make_read_only,
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
        self.start_node(name)

    def start_node(self, name: str) -> Program:
        """Starts a node again that belongs to the platform."""
        by, options = self.machines[name]
        state = self.factory.directory / name
        self.nodes[name] = self.factory.program(*by, SEALBUS, "node", "--state", state, *options, name=f"{name}-again")
        return self.nodes[name]

    def kill_master(self) -> None:
        assert self.factory.master is not None
        self.factory.master.kill()
        self.factory.up()

    def kill_machine(self, name: str, *others: int) -> None:
        """A node, all that runs on its machine, and the other processes end at once, as by a power cut."""
        listed = {agent["pid"] for agent in self.factory.agents().values() if agent["node"] == name and agent["pid"]}
        first = {self.node_pid(name), *listed, *others}
        for pid in first:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

        def is_dead() -> bool:
            # Programs of a former life of the node, or one that it was starting.
            left = self.factory.pids(self.factory.directory / name) - first
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not any(alive(pid) for pid in first | left)

        wait_for(is_dead, f"all on {name} to be dead", also=self.why)
        self.nodes[name].kill()

    def restart_machine(self, with_master: bool = False) -> None:
        assert self.factory.master is not None
        name = self.chance.choice(NODES)
        self.kill_machine(name, *([self.factory.master.pid] if with_master else []))
        if with_master:
            self.kill_master()
        self.start_node(name)

    @contextmanager
    def stopped(self, *pids: int) -> Iterator[None]:
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            yield
        finally:
            for pid in filter(alive, pids):
                os.kill(pid, signal.SIGCONT)

    def stop(self, pid: int) -> None:
        with self.stopped(pid):
            time.sleep(self.chance.choice(SECONDS))

    def leave_few_files(self, pid: int, meanwhile: Callable[[], None] = lambda: None) -> None:
        """For a while a process can open no file and no connection. It goes on."""
        limit, most = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (FEW_FILES, most))
        try:
            meanwhile()
            time.sleep(self.chance.choice(SECONDS))
        finally:
            if alive(pid):
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, most))
        assert alive(pid), self.why()

    def leave_node_few_files(self) -> None:
        """The node cannot start the agents that it has to start meanwhile."""
        name = self.chance.choice(NODES)
        agents = self.factory.active(*AGENTS)
        here = [agents[agent]["pid"] for agent in AGENTS if agents[agent]["node"] == name]

        def kill_agents() -> None:
            for pid in here:
                os.kill(pid, signal.SIGKILL)

        self.leave_few_files(self.node_pid(name), kill_agents)
        self.factory.active(*AGENTS)

    def put_clock_wrong(self) -> None:
        """The clock of a node jumps, and back."""
        clock = self.clocks[self.chance.choice(NODES)]
        clock.write_text(str(self.chance.choice(JUMPS)))
        try:
            time.sleep(self.chance.choice(SECONDS))
        finally:
            clock.write_text("0")

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

    def make_read_only(self) -> None:
        """A machine comes back with a disk that takes nothing. Its node says so and ends."""
        name = self.chance.choice(NODES)
        disk = self.disks[name]
        self.kill_machine(name)
        wait_for(disk.forbid_writing, "the disk to be read-only", also=self.why)
        try:
            node = self.start_node(name)
            assert node.wait() != 0 and "Read-only file system" in node.output(), self.why()
        finally:
            disk.allow_writing()
        self.start_node(name)

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

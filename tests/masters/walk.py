"""A random walk: Masters and members of etcd are killed and stopped by a seed, while operators work and agents talk. Where machines can
be made, they and the nodes are also cut off, one way or both, and the disks of etcd are full."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import wires
from etcd import Etcd
from harness import SEALBUS, Platform, alive, wait_for
from test_etcd import manifest
from test_standby import Masters, leads

MASTERS = MEMBERS = 3
NODES = ("node-1", "node-2")
#: How long something stays stopped: below and beyond the life of a lease.
SECONDS = (0.5, 1.0, 3.0, 5.0)
#: How long a node is cut off. It is not given up for that.
SHORT = (0.5, 1.0, 2.0, 3.0)
#: The disk of a member of etcd: room for the two files that it begins with, and little more.
MEGABYTES = 160
#: Junk that goes through etcd while a disk is full, so that its database must grow.
JUNK, JUNK_ROWS = "x" * 60_000, 40
#: Messages of the agents, and the microseconds between two.
MESSAGES, PAUSE = 8000, 4000


class Walk:
    """A platform of three Masters, three members of etcd and two nodes."""

    def __init__(self, seed: int, folder: Path, ends: ExitStack, *, with_machines: bool = False) -> None:
        self.chance = random.Random(f"masters {seed}")
        self.wires = ends.enter_context(wires.Wires()) if with_machines else None
        self.disks: dict[str, wires.Disk] = {}
        #: The numbers of the machines, by what runs there.
        self.places: dict[str, int] = {}
        self.steps: list[str] = []
        self.acknowledged: list[str] = []
        self.spare_runs = True
        members = [f"etcd-{number}" for number in range(1, MEMBERS + 1)]
        for name in members if self.wires else ():
            self.disks[name] = wires.Disk(folder / "disks" / f"data-{name}", MEGABYTES)
            ends.callback(self.disks[name].remove)
        machines = [self.machine(name) for name in members] if self.wires else []
        self.etcd = Etcd(folder / "etcd", MEMBERS, machines=machines, data=folder / "disks" if self.disks else None)
        ends.callback(self.etcd.end)
        self.etcd.await_healthy()
        self.all: list[Platform] = []
        self.words: list[tuple[str | Path, ...]] = []
        for number in range(MASTERS):
            directory = folder / f"p{number}"
            directory.mkdir()
            master = Platform(directory, manifest(self.etcd, "seller", "buyer", "spare"))
            ends.callback(master.down)
            join = ("--join", self.masters.leading(lambda it: it.ask("token", "--master"))["token"]) if self.all else ()
            by, own = self.machine(f"master-{number}")
            at = ("--address", own) if own else ()
            self.words.append((*by, SEALBUS, "up", master.manifest, *join, *at, "--state", master.state))
            self.all.append(master)
            self.start(number)
            self.masters.listed(number + 1)
        first = self.all[0]
        self.nodes = []
        for name in NODES:
            by, own = self.machine(name)
            self.nodes.append(first.node(name, *(("--address", own) if own else ()), run_by=by))
        self.pids = self.masters.place("seller", "buyer", "spare")
        self.masters.asked("buyer", json.dumps(["send", "seller", MESSAGES, PAUSE]))

    def machine(self, what: str) -> tuple[tuple[str, ...], str]:
        """The words that run a program on a machine of its own, and the machine's address; nothing where there is one machine."""
        if self.wires is None:
            return (), ""
        self.places[what] = len(self.places) + 1
        return self.wires.machine()

    # ---- the Masters

    @property
    def masters(self) -> Masters:
        """Those that are awake."""
        awake = [it for it in self.all if it.master is not None and it.master.process.poll() is None and self.state(it) != "T"]
        return Masters(*awake)

    def state(self, master: Platform) -> str:
        assert master.master is not None
        return Path(f"/proc/{master.master.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]

    def start(self, number: int) -> None:
        master = self.all[number]
        master.master = master.program(*self.words[number], name="up")

    def leader(self) -> int:
        def look() -> list[int]:
            return [number for number, master in enumerate(self.all) if master in self.masters.masters and leads(master)]

        return wait_for(look, "a Master to lead", also=self.why)[0]

    def standby(self) -> int:
        leader = self.leader()
        return self.chance.choice([number for number in range(MASTERS) if number != leader])

    # ---- operators, and the state of things

    def register(self) -> None:
        """Only what is acknowledged counts."""
        name = f"shop-{len(self.acknowledged)}"
        self.masters.tell("df", "register", "seller", "--type", "tea", "--name", name)
        self.acknowledged.append(name)

    def work(self) -> None:
        self.register()
        if self.chance.random() < 0.5:
            # A change whose answer was lost may have been made.
            words = ("kill", "spare") if self.spare_runs else ("start", "spare")
            self.spare_runs = not self.spare_runs
            wait_for(lambda: self.is_as_wanted() or self.attempt(*words), f"{words}", also=self.why)

    def attempt(self, *words: str) -> bool:
        self.masters.leading(lambda master: [master.tell(*words, expect=None)])
        return self.is_as_wanted()

    def is_as_wanted(self) -> bool:
        spare = self.masters.leading(Platform.agents).get("spare", {})
        return (spare.get("state") == "active") == self.spare_runs

    def holds(self) -> None:
        """The state of things after each step, as it must be."""
        wait_for(self.is_whole, "the nodes and agents to be there", also=self.why)
        found = json.dumps(self.masters.leading(lambda master: master.ask("df", "search")))
        lost = [name for name in self.acknowledged if f'"{name}"' not in found]
        assert not lost, f"acknowledged and lost: {lost}\n{self.why()}"
        agents = self.masters.leading(Platform.agents)
        pids = {name: agents[name]["pid"] for name in ("seller", "buyer")}
        assert pids == {name: self.pids[name] for name in pids}, f"{pids}, and not {self.pids}\n{self.why()}"
        for node in self.nodes:
            terms = [int(term) for term in re.findall(r"a Master leads.*term=0\.(\d+)", node.output())]
            assert terms == sorted(set(terms)), f"{terms}\n{self.why()}"

    def is_whole(self) -> bool:
        nodes = self.masters.leading(Platform.nodes)
        agents = self.masters.leading(Platform.agents)
        wanted = {"seller", "buyer"} | ({"spare"} if self.spare_runs else set())
        running = {name for name, agent in agents.items() if agent["state"] == "active" and name in wanted | {"spare"}}
        listed = {agents[name]["pid"] for name in running}
        return all(nodes.get(name, {}).get("state") == "alive" for name in NODES) and running == wanted and self.workers() == listed

    def workers(self) -> set[int]:
        """The processes of the agents, as the system knows them."""
        found = set()
        for pid in self.all[0].pids():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if b"worker.py" in words and alive(pid):
                found.add(pid)
        return found

    def why(self) -> str:
        return "\n".join([f"steps: {self.steps}", *(master.logs() for master in self.all), self.etcd.logs()])

    # ---- steps

    def moves(self) -> dict[str, Callable[[], None]]:
        found = {
            "kill the leader": lambda: self.kill(self.leader()),
            "kill a standby": lambda: self.kill(self.standby()),
            "stop the leader": lambda: self.stop(self.leader()),
            "stop a standby": lambda: self.stop(self.standby()),
            "hand over": self.hand_over,
            "kill a member of etcd": lambda: self.without_member(self.work),
            "kill a member of etcd and the leader": lambda: self.without_member(lambda: self.kill(self.leader())),
            "stop a member of etcd": self.stop_member,
            "stop most members of etcd": self.stop_most_members,
        }
        if self.wires is None:
            return found
        chosen = {
            "the leader": lambda: f"master-{self.leader()}",
            "a standby": lambda: f"master-{self.standby()}",
            "a node": lambda: self.chance.choice(NODES),
            "a member of etcd": lambda: self.chance.choice(sorted(self.etcd.clients)),
        }
        for what, choose in chosen.items():
            for verb in ("cut off", "deafen", "silence"):
                found[f"{verb} {what}"] = lambda verb=verb, choose=choose: self.cut(verb, choose())  # type: ignore[misc]
        return found | {
            "part the leader from the nodes": lambda: self.part([f"master-{self.leader()}"], NODES),
            "part the nodes from the leader": lambda: self.part(NODES, [f"master-{self.leader()}"]),
            "part two members of etcd": lambda: self.part(*([name] for name in self.chance.sample(sorted(self.etcd.clients), 2))),
            "part the leader from a member of etcd": lambda: self.part(
                [f"master-{self.leader()}"], [self.chance.choice(sorted(self.etcd.clients))]
            ),
            "fill the disk of a member of etcd": lambda: self.fill(1),
            "fill the disks of most members of etcd": lambda: self.fill(2),
        }

    def walk(self, length: int) -> None:
        moves = self.moves()
        for _ in range(length):
            step = self.chance.choice(sorted(moves))
            self.steps.append(step)
            moves[step]()
            self.work()
            self.holds()

    def kill(self, number: int) -> None:
        master = self.all[number].master
        assert master is not None
        master.kill()
        self.work()
        self.start(number)

    @contextmanager
    def stopped(self, pid: int) -> Iterator[None]:
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def stop(self, number: int) -> None:
        master = self.all[number].master
        assert master is not None
        with self.stopped(master.pid):
            time.sleep(self.chance.choice(SECONDS))
            # A leader that is stopped for a moment leads on when it wakes; until then, or until another one leads, nobody does.
            if self.chance.random() < 0.5:
                self.work()

    def hand_over(self) -> None:
        before = self.masters.leading(lambda master: master.ask("masters"))
        self.masters.leading(lambda master: [master.tell("masters", "hand-over", expect=None)])
        if len(before) > 1:
            self.work()

    def without_member(self, act: Callable[[], None]) -> None:
        name = self.chance.choice(sorted(self.etcd.clients))
        self.etcd.kill(name)
        act()
        self.etcd.start(name)
        self.etcd.await_healthy()

    def stop_member(self) -> None:
        name = self.chance.choice(sorted(self.etcd.clients))
        with self.stopped(self.etcd.running[name].pid):
            self.work()
        self.etcd.await_healthy()

    def stop_most_members(self) -> None:
        one, other = self.chance.sample(sorted(self.etcd.clients), 2)
        with self.stopped(self.etcd.running[one].pid), self.stopped(self.etcd.running[other].pid):
            time.sleep(self.chance.choice(SECONDS))
        self.etcd.await_healthy()

    def cut(self, verb: str, what: str) -> None:
        """Cuts a machine off: both ways, or so that it hears nothing, or so that nobody hears it."""
        assert self.wires is not None
        number = self.places[what]
        cut, mend = {
            "cut off": (self.wires.cut, self.wires.mend),
            "deafen": (self.wires.deafen, self.wires.open_both_ways),
            "silence": (self.wires.silence, self.wires.open_both_ways),
        }[verb]
        cut(number)
        try:
            self.meanwhile(what)
        finally:
            mend(number)
        self.etcd.await_healthy()

    def part(self, senders: Sequence[str], receivers: Sequence[str]) -> None:
        """For a while nothing comes from the ones to the others."""
        assert self.wires is not None
        pairs = [(self.places[sender], self.places[receiver]) for sender in senders for receiver in receivers]
        with ExitStack() as ends:
            for pair in pairs:
                self.wires.part(*pair)
                ends.callback(self.wires.join, *pair)
            self.meanwhile(*senders, *receivers)
        self.etcd.await_healthy()

    def meanwhile(self, *cut: str) -> None:
        """Time passes, and perhaps an operator works. A leader that is cut off may believe that it leads, and acknowledges nothing."""
        time.sleep(self.chance.choice(SHORT if any(what in NODES for what in cut) else SECONDS))
        if not any(what in NODES for what in cut) and self.chance.random() < 0.5:
            self.register()

    def fill(self, count: int) -> None:
        """Members of etcd cannot write any more. One that ends because of that is started when there is room."""
        full = self.chance.sample(sorted(self.etcd.clients), count)
        living = next(name for name in self.etcd.clients if name not in full)
        for name in full:
            self.disks[name].fill()
        try:
            for row in range(JUNK_ROWS):
                try:
                    self.etcd.ctl("put", f"junk/{row}", JUNK, "--command-timeout=1s", name=living)
                except subprocess.CalledProcessError:
                    break
            if count == 1:
                self.register()
        finally:
            for name in full:
                self.disks[name].make_room()
        for name in full:
            if self.etcd.running[name].poll() is not None:
                self.etcd.start(name)
        self.etcd.await_healthy()
        self.etcd.ctl("del", "--prefix", "junk/")

    # ---- the end

    def ends_clean(self) -> None:
        """All Masters are there again, and nobody lost a message."""
        self.masters.listed(MASTERS)
        sent: Any = [MESSAGES, True]
        wait_for(lambda: self.masters.asked("buyer", '["sent"]') == sent, "all messages to be sent", also=self.why)
        everything = list(range(MESSAGES))
        heard = lambda: self.masters.asked("seller", '["heard"]').get("buyer") == everything  # noqa: E731
        wait_for(heard, "all messages to be heard in order", also=self.why)
        assert self.masters.asked("buyer", '["failures"]') == []
        self.holds()

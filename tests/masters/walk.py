"""A random walk: Masters and members of etcd are killed and stopped by a seed, while operators work and agents talk."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from etcd import Etcd
from harness import SEALBUS, Platform, alive, wait_for
from test_etcd import manifest
from test_standby import Masters, leads

MASTERS = 3
NODES = ("node-1", "node-2")
#: How long something stays stopped: below and beyond the life of a lease.
SECONDS = (0.5, 1.0, 3.0, 5.0)
#: Messages of the agents, and the microseconds between two.
MESSAGES, PAUSE = 8000, 4000


class Walk:
    """A platform of three Masters, three members of etcd and two nodes."""

    def __init__(self, seed: int, folder: Path, ends: ExitStack) -> None:
        self.chance = random.Random(f"masters {seed}")
        self.steps: list[str] = []
        self.acknowledged: list[str] = []
        self.spare_runs = True
        self.etcd = Etcd(folder / "etcd", 3)
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
            self.words.append((SEALBUS, "up", master.manifest, *join, "--state", master.state))
            self.all.append(master)
            self.start(number)
            self.masters.listed(number + 1)
        first = self.all[0]
        self.nodes = [first.node(name) for name in NODES]
        self.pids = self.masters.place("seller", "buyer", "spare")
        self.masters.asked("buyer", json.dumps(["send", "seller", MESSAGES, PAUSE]))

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

    def work(self) -> None:
        """Only what is acknowledged counts."""
        name = f"shop-{len(self.acknowledged)}"
        self.masters.tell("df", "register", "seller", "--type", "tea", "--name", name)
        self.acknowledged.append(name)
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
        return {
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

"""How soon a platform goes on after its leading Master is lost: real binaries, three members of etcd, two Masters, two nodes.

``python failover.py --sealbus PATH [--runs N] [--seed N] [--only FAILURE…] [--json FILE]``: the leading Master is killed (SIGKILL),
killed in the same moment as the member of etcd that leads, stopped (SIGSTOP), cut off (its network namespace loses its wire; needs
root) and asked to hand over, at moments that the seed chooses. Each line is one run, and each figure counts the seconds from the
failure:

- ``free``: the role is free in etcd (``lease lost``); ``taken``: another Master has taken it.
- ``leads``: that Master has its term; ``there``: its agents and doors are there.
- ``nodes``: the last node is registered with it.
- ``ams``, ``df``: an agent's own changes are made again. It makes one after the other all the while; the figure is the end of the
  longest pause. ``place``: an agent that the operator starts is placed, ``runs``: it runs.

``--revoke N`` measures something else: how soon revocations take effect through a failure of each kind (`failover_revoke.py`).

``python failover.py clerk NOTES`` and ``python failover.py spare`` are the programs of the agents.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import report
import revocations
from sealbus import AclMessage, Agent, Performative, SealbusError, ServiceDescription, run

ROOT = Path(__file__).resolve().parents[2]
FAILURES = ("kill", "kill-both", "stop", "cut", "hand-over")
PHASES = ("free", "taken", "leads", "there", "nodes", "ams", "df", "place", "runs")
#: How long everything may take.
PATIENCE = 60.0
#: The goals of docs/operations.md, in seconds.
GOALS = {"kill": 5.0, "kill-both": 10.0, "stop": 5.0, "cut": 5.0, "hand-over": 0.5}
#: How long an agent waits for the AMS or DF before it asks again.
ANSWER = 1.0


class Clerk(Agent):
    """Changes its entries in the AMS and the DF, one after the other, and notes when each change was made."""

    def __init__(self, notes: Path) -> None:
        super().__init__("clerk")
        self.notes = notes

    async def setup(self) -> None:
        """Begins with both."""
        self.create_task(self.change("df"))
        self.create_task(self.change("ams"))

    async def change(self, kind: str) -> None:
        """Changes one entry again and again."""
        with (self.notes / kind).open("a", buffering=1) as notes:
            number = 0
            while True:
                number += 1
                try:
                    if kind == "df":
                        await self.df.register(ServiceDescription("shop", f"tea-{number}"), timeout=ANSWER)
                    else:
                        await self.own(f"owner-{number}")
                    notes.write(f"{time.monotonic()}\n")
                except SealbusError:
                    pass
                await asyncio.sleep(0.02)

    async def own(self, owner: str) -> None:
        """Changes the owner of this agent in the AMS (FIPA00023, section 4)."""
        entry = f"(ams-agent-description :name (agent-identifier :name {self.aid.name}) :ownership {owner})"
        platform = self.aid.name.rpartition("@")[2]
        action = f"((action (agent-identifier :name ams@{platform}) (modify {entry})))"
        request = AclMessage(
            Performative.REQUEST, "ams", action, language="fipa-sl0", ontology="fipa-agent-management", protocol="fipa-request"
        )
        answer = await self.request(request, timeout=ANSWER)
        if answer.performative is not Performative.INFORM:
            sys.exit(f"the AMS says {answer.content_text}")


class Operator(revocations.Operator):
    """A connection whose faults are exceptions."""

    def read(self) -> tuple[int, dict[str, Any]]:
        try:
            return super().read()
        except SystemExit as error:
            raise ConnectionError(str(error)) from None


def manifest(etcd: str, notes: Path) -> str:
    program = [sys.executable, str(Path(__file__).absolute())]
    clerk, spare = json.dumps([*program, "clerk", str(notes)]), json.dumps([*program, "spare"])
    return f"""
    [platform]
    name = "bench"
    nodes = 0
    [[agent]]
    name = "clerk"
    command = {clerk}
    restart = "always"
    node = "node-1"
    write = ["{notes}"]
    [[agent]]
    name = "spare"
    command = {spare}
    restart = "never"
    node = "node-2"
    """ + etcd


class Bench:
    """The platform."""

    def __init__(self, folder: Path, ends: ExitStack) -> None:
        from etcd import Etcd
        from harness import SEALBUS, Platform, wait_for
        from wires import ARE_POSSIBLE, Wires

        self.wires = ends.enter_context(Wires()) if ARE_POSSIBLE else None
        host = self.wires.master if self.wires else "127.0.0.1"
        self.notes = folder / "notes"
        self.notes.mkdir()
        self.etcd = Etcd(folder / "etcd", 3, host)
        ends.callback(self.etcd.end)
        self.etcd.await_healthy()
        self.wait_for = wait_for
        self.masters: list[Platform] = []
        self.words: list[tuple[str | Path, ...]] = []
        for number in (1, 2):
            by, own = self.wires.machine() if self.wires else ((), host)
            directory = folder / f"m{number}"
            directory.mkdir()
            master = Platform(directory, self.manifest())
            ends.callback(master.down)
            self.masters.append(master)
            words = (*by, SEALBUS, "up", master.manifest, "--address", own, "--state", master.state)
            self.words.append(words)
            join: tuple[str | Path, ...] = ()
            if number == 2:
                join = ("--join", self.masters[0].ask("token", "--master")["token"])
            master.master = master.program(*words, *join, name="up")
            if number == 1:
                wait_for(lambda: self.leader() == 0, "the first Master to lead", also=master.logs)
        first = self.masters[0]
        self.nodes = [first.node(f"node-{number}", "--address", host) for number in (1, 2)]
        self.settle()

    def manifest(self) -> str:
        """The agents."""
        return manifest(self.etcd.manifest(), self.notes)

    # ---- the state of things

    def operator(self, master: Any) -> Operator | None:
        """A connection to a Master, if it leads."""
        try:
            operator = Operator(master.state)
            operator.stream.settimeout(2.0)
            return operator if operator.call(ask="masters")["masters"][0]["role"] == "leads" else None
        except (OSError, KeyError):
            return None

    def leader(self) -> int | None:
        """The place of the Master that leads. A Master that was cut off may believe for another moment that it
        leads."""
        leading = [place for place, master in enumerate(self.masters) if self.operator(master)]
        return leading[0] if len(leading) == 1 else None

    def settle(self) -> None:
        """Waits until the platform is ready for a failure."""

        def ready() -> bool:
            try:
                return is_in_order()
            except AssertionError:
                # A Master may lose the role at any moment.
                return False

        def is_in_order() -> bool:
            leader = self.leader()
            if leader is None:
                return False
            master = self.masters[leader]
            agents = master.agents()
            if agents.get("spare", {}).get("pid"):
                master.tell("kill", "spare", expect=None)
                return False
            there = all(node["state"] == "alive" for node in master.nodes().values()) and len(master.ask("masters")) == 2
            return there and agents.get("clerk", {}).get("state") == "active" and self.are_known()

        self.wait_for(ready, "the platform to be in order", also=self.why)
        size = (self.notes / "df").stat().st_size
        self.wait_for(lambda: (self.notes / "df").stat().st_size > size + 500, "the clerk to work", also=self.why)

    def are_known(self) -> bool:
        """Whether each node knows both Masters."""
        files = (node.log.with_suffix("") / "node.json" for node in self.nodes)
        return all(len(json.loads(file.read_text())["enrolment"]["addresses"]) == 2 for file in files)

    def why(self) -> str:
        return "\n".join(master.logs() for master in self.masters)

    # ---- one run

    def failing(self, failure: str, place: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """The failure of the Master at this place, and its end."""
        failed, wires = self.masters[place], self.wires
        assert failed.master is not None
        process = failed.master.process

        def restart() -> None:
            failed.master = failed.program(*self.words[place], name="up")

        match failure:
            case "kill":
                return failed.master.kill, restart
            case "kill-both":
                member = self.wait_for(self.etcd.leader, "a member of etcd to lead")

                def kill() -> None:
                    self.etcd.running[member].kill()
                    process.kill()
                    self.etcd.running[member].wait()
                    process.wait()

                def start() -> None:
                    self.etcd.start(member)
                    self.etcd.await_healthy()
                    restart()

                return kill, start
            case "stop":
                return lambda: process.send_signal(signal.SIGSTOP), lambda: process.send_signal(signal.SIGCONT)
            case "cut":
                assert wires is not None
                return lambda: wires.cut(place + 1), lambda: wires.mend(place + 1)
            case _:
                operator = self.operator(failed)
                assert operator is not None
                return lambda: operator.call(ask="hand-over"), lambda: None

    def run(self, failure: str) -> dict[str, float]:
        """Lets the leader fail, and returns the seconds until each phase."""
        place = self.wait_for(lambda: [self.leader()], "one Master to lead", also=self.why)[0]
        assert place is not None
        other = self.masters[1 - place]
        assert other.master is not None
        roles: list[tuple[str, float]] = []
        watching = self.watch(roles)
        logs = {log: log.stat().st_size for log in [other.master.log, *(node.log for node in self.nodes)]}
        fail, mend = self.failing(failure, place)
        wall, began = time.time(), time.monotonic()
        fail()
        found: dict[str, float] = {}
        try:
            placed, ran = self.place(other)
            found = {"place": placed - began, "runs": ran - began}

            def is_told() -> bool:
                for name, what in (("leads", "this Master leads"), ("there", "the Master is there")):
                    found[name] = self.said(other.master.log, logs, what, wall)
                known = [self.said(node.log, logs, "registered with the Master", wall) for node in self.nodes]
                found["nodes"] = max(known)
                for kind in ("ams", "df"):
                    found[kind] = self.resumed(kind, began)
                return all(value < PATIENCE for value in found.values())

            self.wait_for(is_told, "the platform to go on", PATIENCE, also=self.why)
        finally:
            mend()
            watching.kill()
            watching.wait()
        for kind, phase in (("DELETE", "free"), ("PUT", "taken")):
            times = [at - began for what, at in roles if what == kind and at > began]
            found[phase] = times[0] if times else float("nan")
        return found

    def place(self, master: Any) -> tuple[float, float]:
        """Starts an agent through a Master, as soon as that leads: when it is placed, and when it runs."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                operator = self.operator(master)
                if operator is None:
                    time.sleep(0.01)
                    continue
                operator.stream.settimeout(PATIENCE)
                placed, ordered = None, False
                while True:
                    listing = operator.begin(ask="agents")
                    answered, answer = operator.read()
                    # The answer to the order is not read here. If no node was there yet, the answer is a fault. This then
                    # begins anew, and the agent may be placed already.
                    while answered != listing:
                        answered, answer = operator.read()
                    (spare,) = (agent for agent in answer["agents"] if agent["name"].startswith("spare@"))
                    now = time.monotonic()
                    placed = placed or (now if spare["pid"] else None)
                    if placed and spare["state"] == "active":
                        return placed, now
                    if not placed and not ordered:
                        operator.begin(ask="start-again", agent="spare", timeout=int(PATIENCE * 1000))
                        ordered = True
                    time.sleep(0.01)
            except OSError:
                time.sleep(0.01)
        raise AssertionError(f"nothing was placed\n{self.why()}")

    def watch(self, roles: list[tuple[str, float]]) -> subprocess.Popen[str]:
        """Notes when the role is taken and given back, as etcdctl tells it."""
        # The member that leads may be killed.
        member = next(name for name in self.etcd.clients if name != self.etcd.leader())
        watching = subprocess.Popen(
            self.etcd.words("watch", "/sealbus/bench/role", name=member),
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"ETCDCTL_API": "3"},
        )

        def read() -> None:
            assert watching.stdout is not None
            for line in watching.stdout:
                if line.strip() in ("PUT", "DELETE"):
                    roles.append((line.strip(), time.monotonic()))

        threading.Thread(target=read, daemon=True).start()
        return watching

    def said(self, log: Path, sizes: dict[Path, int], what: str, since: float) -> float:
        """When a program logged `what`, in seconds after `since`."""
        with log.open(errors="replace") as text:
            text.seek(sizes[log])
            for line in text:
                found = re.match(r"(\d{4}-\S+Z) .*" + re.escape(what), line.strip())
                if found:
                    at = datetime.datetime.fromisoformat(found[1]).timestamp()
                    return at - since
        return float("inf")

    def resumed(self, kind: str, began: float) -> float:
        """The end of the longest pause of the clerk's changes after `began`."""
        times = [float(line) for line in (self.notes / kind).read_text().splitlines()]
        later = [at for at in times if at > began]
        before = [at for at in times if at <= began]
        if not later or not before:
            return float("inf")
        steps = [(late - early, late) for early, late in zip([before[-1], *later], later)]
        # The clerk must have worked on for a while, or the longest pause may still come.
        if later[-1] - max(steps)[1] < 1.0:
            return float("inf")
        return max(steps)[1] - began


def table(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'failure':10}{'run':>4}" + "".join(f"{phase:>8}" for phase in PHASES)]
    for row in rows:
        lines.append(f"{row['failure']:10}{row['run']:>4}" + "".join(f"{row[phase]:8.2f}" for phase in PHASES))
    for failure in dict.fromkeys(row["failure"] for row in rows):
        own = [row for row in rows if row["failure"] == failure]
        for name, choose in (("median", lambda values: sorted(values)[len(values) // 2]), ("worst", max)):
            lines.append(f"{failure:10}{name:>7}"[: 14 + 3] + "".join(f"{choose([row[phase] for row in own]):8.2f}" for phase in PHASES)[3:])
        late = [max(row["ams"], row["df"], row["place"]) for row in own]
        kept = sum(each < GOALS[failure] for each in late)
        lines.append(f"{failure:10}{kept} of {len(own)} runs: placement, AMS and DF within {GOALS[failure]} s; the worst {max(late):.2f} s")
    return "\n".join(lines)


def main() -> None:
    """Measures, prints the figures and writes the report."""
    if sys.argv[1:2] == ["clerk"]:
        return run(Clerk(Path(sys.argv[2])))
    if sys.argv[1:2] == ["spare"]:
        return run(Agent("spare"))
    parser = report.options()
    parser.add_argument("--runs", type=int, default=5, help="runs of each failure")
    parser.add_argument("--seed", type=int, default=1, help="it chooses the moments")
    parser.add_argument("--only", nargs="+", choices=FAILURES, default=list(FAILURES), help="these failures alone")
    parser.add_argument("--revoke", type=int, metavar="N", help="revoke so many agents through a failure of each kind instead")
    parser.add_argument("--keep", type=Path, help="a folder for logs, which stays")
    arguments = parser.parse_args()
    os.environ["SEALBUS_BINARY"] = str(arguments.sealbus.absolute())
    sys.path += [str(ROOT / "tests" / name) for name in ("end_to_end", "masters", "faults")]
    from wires import ARE_POSSIBLE

    chance = random.Random(arguments.seed)
    failures = [failure for failure in arguments.only if failure != "cut" or ARE_POSSIBLE]
    rows: list[dict[str, Any]] = []
    with ExitStack() as ends:
        folder = arguments.keep or Path(ends.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        if arguments.revoke:
            from failover_revoke import measure

            rows = measure(folder, failures, arguments.revoke)
        else:
            bench = Bench(folder, ends)
            for number in range(1, arguments.runs + 1):
                for failure in failures:
                    time.sleep(chance.random() * 2)
                    rows.append({"failure": failure, "run": number} | bench.run(failure))
                    print(table(rows[-1:]).splitlines()[1], flush=True)
                    bench.settle()
            print(table(rows))
    report.write(arguments.json, rows)


if __name__ == "__main__":
    main()

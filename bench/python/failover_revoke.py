"""How soon revocations take effect while the leading Master fails: an operator revokes an agent every 100 ms (`failover.py --revoke N`).

The agents talk to one that listens. The failure comes after the first tenth of the revocations. The operator asks the Master that
led, and if that does not answer within a second, the other one, which takes revocations although it stands by. A Master that is
cut off is not asked, because its revocations reach no process. The figures, in milliseconds:

- ``p50``, ``p99``, ``last``: from the answer to the last message that the listener got from that agent; a message before the
  answer counts as 0.
- ``answer``: the longest time from the operator's first attempt to the answer. ``stand-by``: answers of a Master that stood by.

``python failover_revoke.py member PREFIX COUNT`` is the program of the agents; the one that listens is that of `revocations.py`.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import failover
import revocations
from sealbus import run

PROCESSES = 4
#: Seconds between two messages of an agent, and so the resolution of the figures.
PAUSE = 0.05
#: Seconds between two revocations.
STEP = 0.1
#: Seconds that a Master may take for a revocation, by its socket. A Master that stands by waits for the leader.
ANSWER = {"admin.sock": 1.0, "standby.sock": 10.0}
#: The goal of docs/operations.md, in milliseconds.
GOAL = 1000.0


class Member(revocations.Member):
    """Talks until it is revoked."""

    pause = PAUSE

    async def setup(self) -> None:
        """Each agent talks."""
        self.create_task(self.talk())


class Bench(failover.Bench):
    """The platform."""

    def __init__(self, folder: Path, ends: ExitStack, count: int) -> None:
        self.each = -(-count // PROCESSES)
        self.names = [f"crowd{number}-{place}" for place in range(self.each) for number in range(PROCESSES)][:count]
        super().__init__(folder, ends)

    def manifest(self) -> str:
        """The agents."""
        program = [sys.executable, str(Path(__file__).absolute())]
        text = '[platform]\nname = "bench"\nnodes = 0\n'
        for number in range(PROCESSES):
            names = json.dumps([f"crowd{number}-{place}" for place in range(self.each)])
            command = json.dumps([*program, "member", f"crowd{number}", str(self.each)])
            text += f'[[agent]]\nname = "crowd{number}"\nagents = {names}\ncommand = {command}\nrestart = "never"\nnode = "node-1"\n'
        listener = json.dumps([sys.executable, revocations.__file__, "listener", str(self.notes / "heard.json")])
        text += f'[[agent]]\nname = "listener"\ncommand = {listener}\nwrite = ["{self.notes}"]\nnode = "node-2"\n'
        etcd: str = self.etcd.manifest()
        return text + etcd

    def settle(self) -> None:
        """Waits until the platform is ready for the failure."""

        def ready() -> bool:
            leader = self.leader()
            if leader is None:
                return False
            try:
                master = self.masters[leader]
                there = len(master.ask("masters")) == 2 and self.are_known()
                return there and revocations.active(master.ask("ps")) == PROCESSES * self.each + 1
            except AssertionError:
                return False

        self.wait_for(ready, "the agents to run", also=self.why)
        time.sleep(revocations.AFTER)

    def revoke(self, name: str, places: list[int]) -> bool:
        """Has a Master revoke an agent. Returns whether the one that answered leads."""
        deadline = time.monotonic() + failover.PATIENCE
        refusals: dict[str, str] = {}
        while time.monotonic() < deadline:
            for place in places:
                for socket, patience in ANSWER.items():
                    try:
                        operator = failover.Operator(self.masters[place].state, socket, patience)
                        operator.call(ask="revoke", what=name, reason="measured")
                        return socket == "admin.sock"
                    except (OSError, KeyError) as error:
                        refusals[f"m{place + 1}/{socket}"] = str(error)
        raise AssertionError(f"nobody revoked {name}: {refusals}\n{self.why()}")

    def revoke_all(self, failure: str) -> dict[str, Any]:
        """Revokes the agents through a failure, and compares the answers with the messages that the listener heard."""
        place = self.wait_for(lambda: [self.leader()], "one Master to lead", also=self.why)[0]
        assert place is not None
        fail, mend = self.failing(failure, place)
        places = [place, 1 - place]
        asked: dict[str, float] = {}
        answered: dict[str, float] = {}
        by_leader: list[bool] = []

        def revoke(name: str) -> None:
            asked[name] = time.monotonic()
            leads = self.revoke(name, places)
            answered[name] = time.monotonic()
            by_leader.append(leads)

        revoking = []
        try:
            for number, name in enumerate(self.names):
                if number == len(self.names) // 10:
                    if failure == "cut":
                        places.remove(place)
                    fail()
                revoking.append(threading.Thread(target=revoke, args=(name,), daemon=True))
                revoking[-1].start()
                time.sleep(STEP)
            for each in revoking:
                each.join(failover.PATIENCE)
            time.sleep(revocations.AFTER)
        finally:
            mend()
        missing = [name for name in self.names if name not in answered]
        assert not missing, f"not answered: {missing}\n{self.why()}"
        heard = self.wait_for(self.heard, "the listener to report", also=self.why)
        late = sorted(1000 * max(0.0, heard[name] - answered[name]) for name in self.names)
        return {
            "failure": failure,
            "revoked": len(late),
            "p50": late[len(late) // 2],
            "p99": late[len(late) * 99 // 100],
            "last": late[-1],
            "answer": 1000 * max(answered[name] - asked[name] for name in self.names),
            "stand-by": by_leader.count(False),
        }

    def heard(self) -> dict[str, float] | None:
        """When the listener heard each agent last."""
        leader = self.leader()
        if leader is None:
            return None
        words = ("send", "listener", "write", "--performative", "request", "--timeout", "20s")
        if self.masters[leader].tell(*words, expect=None).returncode != 0:
            return None
        found: dict[str, float] = json.loads((self.notes / "heard.json").read_text())
        return found


def measure(folder: Path, failures: list[str], count: int) -> list[dict[str, Any]]:
    """Measures and prints one row for each failure. Each has a platform of its own, because a revoked agent stays
    revoked."""
    columns = ("revoked", "p50", "p99", "last", "answer", "stand-by")
    print(f"{'failure':10}" + "".join(f"{column:>10}" for column in columns))
    rows = []
    for failure in failures:
        own = folder / failure
        own.mkdir()
        with ExitStack() as ends:
            rows.append(Bench(own, ends, count).revoke_all(failure))
        print(f"{failure:10}" + "".join(f"{rows[-1][column]:10.0f}" for column in columns), flush=True)
    print(f"{sum(row['p99'] < GOAL for row in rows)} of {len(rows)} within the goal: p99 below {GOAL:.0f} ms")
    return rows


if __name__ == "__main__":
    if sys.argv[1:2] == ["member"]:
        run(*[Member(f"{sys.argv[2]}-{number}") for number in range(int(sys.argv[3]))])

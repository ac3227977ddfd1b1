"""Two honest agents that go on while the platform around them is attacked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import PROGRAMS, Platform, wait_for

AGENTS = f"""
    [[agent]]
    name = "source"
    command = ["PYTHON", "{PROGRAMS}/worker.py"]
    node = "node-1"

    [[agent]]
    name = "sink"
    command = ["PYTHON", "{PROGRAMS}/worker.py"]
    node = "node-2"
"""
MANIFEST = f"""
    [platform]
    name = "factory"
    nodes = 2
{AGENTS}
"""


class Pair:
    """`source` on node-1 writes to `sink` on node-2. Nothing is lost, and neither agent nor node is started anew."""

    def __init__(self, factory: Platform) -> None:
        self.factory = factory
        agents = factory.active("source", "sink")
        self.before = {name: agents[name] for name in ("source", "sink")}
        #: How many numbers `sink` had heard before the present ones.
        self.heard = 0

    def numbers(self) -> list[int]:
        return list(json.loads(self.factory.send("sink", '["heard"]')).get("source", []))

    def is_silent(self) -> bool:
        _, is_done = json.loads(self.factory.send("source", '["sent"]'))
        return is_done or self.heard == 0

    def begins(self, count: int, pause: int = 2000) -> None:
        # A test that failed may have left them talking.
        wait_for(self.is_silent, "the pair to be silent", also=self.factory.logs)
        self.heard = len(self.numbers())
        self.factory.send("source", json.dumps(["send", "sink", count, pause]))

    def all_arrive(self, count: int) -> None:
        def accepted() -> bool:
            return bool(json.loads(self.factory.send("source", '["sent"]')) == [count, True])

        def arrived() -> list[int]:
            return self.numbers()[self.heard :]

        wait_for(accepted, "all messages of the honest pair to be accepted", also=self.factory.logs)
        wait_for(lambda: len(arrived()) >= count, "all of them to arrive", also=self.factory.logs)
        assert arrived() == list(range(count)), "once and in order"
        assert json.loads(self.factory.send("source", '["failures"]')) == []

    def talks(self, count: int = 200) -> None:
        """They talk, and are still the agents that they were."""
        self.begins(count, 0)
        self.all_arrive(count)
        self.is_untouched()

    @contextmanager
    def talking(self, count: int = 1000) -> Iterator[None]:
        """They talk while something else happens, and after it."""
        self.begins(count)
        yield
        self.all_arrive(count)
        self.talks()

    def is_untouched(self) -> None:
        now = self.factory.agents()
        for name, before in self.before.items():
            assert (now[name]["pid"], now[name]["restarts"]) == (before["pid"], before["restarts"]), self.factory.logs()
        for name in ("node-1", "node-2"):
            assert self.factory.nodes()[name]["state"] == "alive", self.factory.logs()

    def pids(self) -> dict[str, int]:
        """The processes whose memory an attack must not fill: the Master with its node, the other node, and both agents."""
        return {name: agent["pid"] for name, agent in self.before.items()} | platform_processes(self.factory)


def platform_processes(factory: Platform) -> dict[str, int]:
    """The Master and the nodes, by the last words of their command lines."""
    found = {}
    for pid in factory.pids():
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        if "sealbus" in Path(words[0]).name:
            found[f"{' '.join(words[1:3])} ({pid})"] = pid
    return found

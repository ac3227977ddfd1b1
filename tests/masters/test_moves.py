"""A Master dies while an agent moves, and the next one carries the move on."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from etcd import Etcd
from harness import Platform, Program, alive, wait_for
from test_etcd import manifest
from test_standby import Masters, beside, known_to

Make = Callable[[str], Platform]
Start = Callable[[int], Etcd]

COUNT = 2000


@dataclass
class Scene:
    """Two Masters and two nodes, and an agent that hands in its state only when `hold` is gone."""

    leader: Platform
    other: Platform
    nodes: dict[str, Program]
    hold: Path
    before: dict[str, Any]
    goal: str

    @classmethod
    def make(cls, platform: Make, etcd: Etcd, hold: Path) -> Scene:
        text = manifest(etcd, "mover", "writer")
        held = 'name = "mover"\n'
        assert held in text
        text = text.replace(held, f'{held}    environment = {{ HOLD = "{hold}" }}\n    isolation = "none"\n')
        first = platform(text).up("--json")
        nodes = {name: first.node(name) for name in ("node-1", "node-2")}
        Masters(first).place("mover", "writer")
        second = beside(first, platform(text))
        for node in nodes.values():
            known_to(node, 2)
        leader, other = Masters(first, second).now()
        before = leader.agents()["mover"]
        goal = "node-2" if before["node"] == "node-1" else "node-1"
        return cls(leader, other, nodes, hold, before, goal)

    @contextmanager
    def moving(self) -> Iterator[None]:
        """The leader does not hear that the agent is frozen, and dies after the block."""
        assert self.leader.master is not None
        self.hold.touch()
        # The order is cut off with the leader.
        moving = threading.Thread(target=lambda: self.leader.tell("move", "mover", self.goal, expect=None))
        moving.start()
        try:
            saves = b"mover saves"
            logs = self.leader.logs
            wait_for(lambda: saves in self.leader.tell("logs", "mover").stdout, "the agent to save its state", also=logs)
            self.leader.master.process.send_signal(signal.SIGSTOP)
            yield
            self.leader.master.kill()
            Masters(self.other).leading(lambda master: master.ask("masters"))
        finally:
            self.hold.unlink(missing_ok=True)
            moving.join()

    def arrives(self) -> Masters:
        """Waits until the agent is at its goal."""
        masters = Masters(self.other)

        def is_there() -> bool:
            agent = masters.leading(Platform.agents)["mover"]
            return bool(agent["state"] == "active" and agent["node"] == self.goal)

        wait_for(is_there, f"the agent to be on {self.goal}", also=self.other.logs)
        return masters


@pytest.mark.parametrize("handed_in", [True, False], ids=["handed in", "being saved"])
def test_an_agent_that_was_frozen_for_a_lost_leader_lives_again_once_with_its_state(
    platform: Make, cluster: Start, tmp_path: Path, handed_in: bool
) -> None:
    """The leader has asked the node to freeze the agent, and dies before it hears the answer. The agent's state is at its node by
    then, or the agent still saves it."""
    scene = Scene.make(platform, cluster(1), tmp_path / "hold")
    scene.leader.send("writer", json.dumps(["send", "mover", COUNT, 1000]))
    with scene.moving():
        if handed_in:
            scene.hold.unlink()
    masters, logs = scene.arrives(), scene.other.logs
    wait_for(lambda: masters.asked("writer", '["sent"]') == [COUNT, True], "all messages to be sent", also=logs)
    everything = list(range(COUNT))
    wait_for(
        lambda: masters.asked("mover", '["heard"]').get("writer") == everything,
        "every message to be heard once and in order",
        also=logs,
    )
    assert masters.asked("writer", '["failures"]') == []
    wait_for(lambda: not alive(scene.before["pid"]), "the former process to end", also=logs)


def test_an_agent_whose_process_ends_after_it_was_frozen_for_a_lost_leader_keeps_its_state(
    platform: Make, cluster: Start, tmp_path: Path
) -> None:
    scene = Scene.make(platform, cluster(1), tmp_path / "hold")
    everything = list(range(100))
    scene.leader.send("writer", json.dumps(["send", "mover", len(everything), 1000]))
    heard = Masters(scene.leader, scene.other)
    wait_for(lambda: heard.asked("mover", '["heard"]').get("writer") == everything, "the messages to be heard")
    node = scene.nodes[scene.before["node"]]
    with scene.moving():
        scene.hold.unlink()
        wait_for(lambda: "handed in for a move" in node.output(), "the state to be at the node", also=node.output)
        os.kill(scene.before["pid"], signal.SIGKILL)
    assert scene.arrives().asked("mover", '["heard"]').get("writer") == everything

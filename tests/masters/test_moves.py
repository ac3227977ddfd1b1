"""A Master dies while an agent moves, and the next one carries the move on."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from etcd import Etcd
from harness import Platform, alive, wait_for
from test_etcd import manifest
from test_standby import Masters, beside, known_to

Make = Callable[[str], Platform]
Start = Callable[[int], Etcd]

COUNT = 2000


@pytest.mark.parametrize("handed_in", [True, False], ids=["handed in", "being saved"])
def test_an_agent_that_was_frozen_for_a_lost_leader_lives_again_once_with_its_state(
    platform: Make, cluster: Start, tmp_path: Path, handed_in: bool
) -> None:
    """The leader has asked the node to freeze the agent, and dies before it hears the answer. The agent's state is at its node by
    then, or the agent still saves it."""
    etcd = cluster(1)
    hold = tmp_path / "hold"
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
    assert leader.master is not None and other.master is not None
    before = leader.agents()["mover"]
    goal = "node-2" if before["node"] == "node-1" else "node-1"
    leader.send("writer", json.dumps(["send", "mover", COUNT, 1000]))
    hold.touch()
    # The order is cut off with the leader.
    moving = threading.Thread(target=lambda: leader.tell("move", "mover", goal, expect=None))
    moving.start()
    try:
        saves = b"mover saves"
        wait_for(lambda: saves in leader.tell("logs", "mover").stdout, "the agent to save its state", also=leader.logs)
        leader.master.process.send_signal(signal.SIGSTOP)
        if handed_in:
            hold.unlink()
        leader.master.kill()
        masters = Masters(other)
        masters.leading(lambda master: master.ask("masters"))
    finally:
        hold.unlink(missing_ok=True)
        moving.join()

    def is_there() -> bool:
        agent = masters.leading(Platform.agents)["mover"]
        return bool(agent["state"] == "active" and agent["node"] == goal)

    wait_for(is_there, f"the agent to be on {goal}", also=other.logs)
    wait_for(lambda: masters.asked("writer", '["sent"]') == [COUNT, True], "all messages to be sent", also=other.logs)
    everything = list(range(COUNT))
    wait_for(
        lambda: masters.asked("mover", '["heard"]').get("writer") == everything,
        "every message to be heard once and in order",
        also=other.logs,
    )
    assert masters.asked("writer", '["failures"]') == []
    wait_for(lambda: not alive(before["pid"]), "the former process to end", also=other.logs)

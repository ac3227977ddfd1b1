"""Nodes, programs and platforms that leave in order say so, and leave nothing behind."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from harness import PROGRAMS, SEALBUS, alive, one_worker, wait_for

WORKER = one_worker()


def test_the_agents_of_a_node_that_leaves_are_placed_elsewhere_at_once(platform):
    factory = platform(WORKER).up()
    factory.active("worker")
    second = factory.node("node-2")
    factory.tell("move", "worker", "node-2")
    before = factory.active("worker")["worker"]
    assert before["node"] == "node-2"
    assert second.end() == 0
    # Nobody had to miss a heartbeat: when the node has ended, the Master knows.
    assert factory.nodes()["node-2"]["state"] == "left"
    now = factory.agents()["worker"]
    assert now["node"] == "node-1" and now["pid"] != before["pid"]
    assert not alive(before["pid"])
    factory.active("worker")
    assert json.loads(factory.send("worker", '["echo", "again"]')) == "again"
    revoked = {each["serial"]: each["revoked"] for each in factory.ask("ca", "list")}
    assert revoked[before["serial"]]
    # It comes back as it was.
    factory.program(SEALBUS, "node", "--state", factory.directory / "node-2", name="node-2-again")
    wait_for(
        lambda: factory.nodes()["node-2"]["state"] == "alive", "node-2 to be back", also=factory.logs
    )


def test_what_lies_on_a_node_that_has_left_is_said_to_lie_there(platform):
    factory = platform(WORKER).up()
    factory.active("worker")
    second = factory.node("node-2")
    factory.tell("move", "worker", "node-2")
    factory.active("worker")
    factory.tell("kill", "worker")
    assert second.end() == 0
    assert factory.ask("mailbox", "worker")["silent"] == [{"node": "node-2", "why": "it has left"}]
    told = factory.tell("mailbox", "worker").stdout.decode()
    assert "the messages that wait on node-2 are not known: it has left" in told
    failed = factory.tell("logs", "worker", expect=None)
    assert failed.returncode != 0
    assert "the log of worker is on node-2, where it ran last: it has left" in failed.stderr.decode()


def test_a_node_leaves_also_while_the_master_is_away(platform):
    factory = platform(WORKER).up()
    factory.active("worker")
    second = factory.node("node-2")
    factory.tell("move", "worker", "node-2")
    pid = factory.active("worker")["worker"]["pid"]
    factory.master.kill()
    assert second.end() == 0
    assert not alive(pid)


def test_a_program_with_a_ticket_leaves_in_order(platform):
    factory = platform(
        """
        [platform]
        name = "factory"
        """
    ).up()
    wait_for(lambda: factory.nodes().get("node-1", {}).get("state") == "alive", "node-1", also=factory.logs)
    ticket = factory.ask("ticket", "visitor")["ticket"]
    visitor = factory.program(
        sys.executable, PROGRAMS / "worker.py", name="visitor", environment={"SEALBUS_TICKET": ticket}
    )
    factory.active("visitor")
    refusal = factory.tell("ticket", "visitor", "--timeout", "0s", expect=5).stderr
    assert b"visitor is taken" in refusal and b"waiting" not in refusal
    visitor.end()
    note = wait_for(lambda: factory.agents()["visitor"]["note"], "the visitor to have left", also=factory.logs)
    assert note == "ended (left in order)"
    assert factory.ask("ticket", "visitor", "--timeout", "0s")["ticket"]


def test_a_master_that_comes_back_waits_for_its_nodes_before_it_says_there_is_none(platform):
    factory = platform(WORKER).up()
    factory.active("worker")
    factory.node("node-2")
    for name in ("first", "second", "third"):
        factory.master.kill()
        factory.up()
        assert factory.ask("ticket", name)["agent"] == name


def test_an_agent_that_was_killed_is_started_again(platform):
    factory = platform(WORKER).up()
    before = factory.active("worker")["worker"]
    running = factory.tell("start", "worker", expect=5)
    assert "still runs" in running.stderr.decode()
    factory.tell("kill", "worker")
    assert factory.agents()["worker"]["state"] is None
    assert factory.ask("start", "worker") == {"started": "worker", "node": "node-1"}
    after = factory.active("worker")["worker"]
    assert after["pid"] != before["pid"] and after["serial"] != before["serial"]
    assert json.loads(factory.send("worker", '["echo", "again"]')) == "again"


def test_an_agent_that_does_not_run_is_not_said_to_be_started(platform):
    brief = '''
    [[agent]]
    name = "brief"
    command = ["false"]
    restart = "never"
    '''
    factory = platform(WORKER + brief).up()
    wait_for(lambda: "ended" in (factory.agents().get("brief", {}).get("note") or ""), "brief to end", also=factory.logs)
    failed = factory.tell("start", "brief", expect=5)
    assert "brief was started and does not run" in failed.stderr.decode()


def children(pid):
    """Of the process, by name of the command."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except FileNotFoundError:
        return []
    return [int(child) for child in text.split()]


MOMENTS = {
    "it has a state": lambda factory: factory.state.exists(),
    "it listens": lambda factory: (factory.state / "admin.sock").exists(),
    "it started a node": lambda factory: children(factory.master.pid),
    "a node has its log": lambda factory: any(factory.state.glob("node-*/node.log")),
    "a node listens": lambda factory: any(factory.state.glob("node-*/run/node.sock")),
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
def test_up_ends_what_it_started_however_early_it_is_told(platform, moment, which):
    factory = platform(WORKER.replace('name = "factory"', 'name = "factory"\n    nodes = 3'))
    factory.master = factory.program(SEALBUS, "up", factory.manifest, "--state", factory.state, name="up")
    wait_for(lambda: MOMENTS[moment](factory), f"the moment when {moment}", also=factory.logs)
    factory.master.process.send_signal(which)
    code = factory.master.wait()
    # Before it has caught signals it has started nothing, and just ends.
    assert code == 0 or (moment == "it has a state" and code == -which), factory.logs()
    left = {pid for pid in factory.pids() if alive(pid)}
    assert not left, factory.logs()


def test_up_ends_nodes_of_a_master_before_it(platform):
    factory = platform(WORKER).up()
    pid = factory.active("worker")["worker"]["pid"]
    factory.master.kill()
    assert factory.pids(), "the node and the agent outlive it"
    again = factory.program(SEALBUS, "up", factory.manifest, "--state", factory.state, name="again")
    wait_for(lambda: "the Master is there" in again.output(), "the Master", also=factory.logs)
    assert again.end() == 0
    assert not {pid for pid in factory.pids() if alive(pid)}, factory.logs()
    assert not alive(pid)


@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP])
def test_a_platform_that_ends_leaves_no_agent_of_a_killed_or_stopped_node_behind(platform, fate):
    factory = platform(WORKER).up()
    pid = factory.active("worker")["worker"]["pid"]
    (node,) = [
        each for each in factory.pids()
        if b"\0node\0--name\0node-1\0" in Path(f"/proc/{each}/cmdline").read_bytes()
    ]
    os.kill(node, fate)
    # The agent has lost its node, and lives.
    assert alive(pid)
    assert factory.master.end() == 0
    assert not alive(pid) and not alive(node)

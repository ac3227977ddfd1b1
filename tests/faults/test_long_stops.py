"""Stops that last longer than the platform waits. Most of them take a minute: `make test-faults` runs them."""

import time
from contextlib import ExitStack

import pytest
from harness import alive, wait_for
from history import KINDS
from walk import Walk

FOR_LONG = [pytest.param(kind, 40, marks=pytest.mark.long) for kind in KINDS]


@pytest.fixture
def walk(kind, tmp_path):
    with ExitStack() as ends:
        yield Walk(kind, 0, tmp_path, ends)


@pytest.mark.parametrize(("kind", "seconds"), [("direct", 10), *FOR_LONG])
def test_a_master_that_was_stopped_gives_up_no_node(walk, seconds):
    """The time in which it did not run counts against nobody, and agents talk meanwhile."""
    before = walk.pids_of_agents()
    with walk.stopped(walk.factory.master.pid):
        time.sleep(seconds)
        walk.hear_more()
    walk.await_nodes_heard()
    walk.hear_more()
    walk.ends_clean()
    assert walk.pids_of_agents() == before, walk.why()


def is_used_again(walk, name, former):
    """The node is back, has ended what runs elsewhere by now, and runs an agent again."""
    walk.await_state(name, "alive")
    wait_for(lambda: not alive(former), f"process {former} to be ended", also=walk.why)
    walk.move_apart()
    walk.hear_more()
    walk.ends_clean()


@pytest.mark.long
@pytest.mark.parametrize("agent", ["source", "sink"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_node_that_was_given_up_while_it_was_stopped_comes_back(walk, agent):
    """Its agent goes on meanwhile, beside the one that was started elsewhere."""
    found = walk.factory.active(agent)[agent]
    with walk.stopped(walk.node_pid(found["node"])):
        walk.await_state(found["node"], "dead")
        walk.hear_more()
    is_used_again(walk, found["node"], found["pid"])


@pytest.mark.long
@pytest.mark.parametrize("moment", ["before it wakes", "as it wakes", "when it is back"])
@pytest.mark.parametrize("kind", ["direct", "persistent"])
def test_a_node_that_was_given_up_comes_back_to_a_master_that_was_started_again(walk, moment):
    found = walk.factory.active("sink")["sink"]
    name = found["node"]
    with walk.stopped(walk.node_pid(name)):
        walk.await_state(name, "dead")
        if moment == "before it wakes":
            walk.kill_master()
    if moment == "when it is back":
        walk.await_state(name, "alive")
    if moment != "before it wakes":
        walk.kill_master()
    is_used_again(walk, name, found["pid"])


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_platform_that_slept_for_a_minute_keeps_its_agents(walk):
    """All its processes are stopped together, as on a machine that is suspended."""
    before = walk.pids_of_agents()
    walk.silent = True
    with walk.stopped(*walk.all_pids()):
        time.sleep(60)
    walk.await_nodes_heard()
    walk.hear_more()
    walk.ends_clean()
    assert walk.pids_of_agents() == before, walk.why()

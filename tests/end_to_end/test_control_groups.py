"""Control groups of programs: limits that hold, and an end that nothing outlives. Controllers that this machine lacks are named."""

import json
import os
import signal
from pathlib import Path

import pytest
from harness import PROGRAMS, Platform, alive, sealbus, wait_for

LEAVER = PROGRAMS / "leaver.py"


@pytest.fixture(scope="module")
def controllers() -> set[str]:
    told = json.loads(sealbus("node", "--check", "--json").stdout)[0]["controllers"]
    if told is None:
        pytest.skip("this machine has no control groups of version 2, or does not let the tests make any")
    return set(told)


def needs(controllers: set[str], controller: str) -> None:
    if controller not in controllers:
        pytest.skip(f"control groups of version 2 have no controller {controller} here")


def group_of(pid: int) -> Path:
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines() if " - cgroup2 " in line]
    (group,) = [line[3:] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines() if line.startswith("0::")]
    return Path(mounts[0][4] + group)


def lines(factory: Platform, agent: str) -> list[str]:
    return factory.tell("logs", agent, expect=None).stdout.decode().splitlines()


def said(factory: Platform, agent: str, word: str) -> str:
    """The first line of an agent's log that begins with the word, without it."""

    def look() -> str | None:
        return next((line.removeprefix(word) for line in lines(factory, agent) if line.startswith(word)), None)

    return wait_for(look, f"{agent} to say {word}", also=factory.logs)


def note_of(factory: Platform, agent: str) -> str:
    return str(factory.agents().get(agent, {}).get("note"))


def leaver(platform, order: str, more: str = "") -> Platform:
    """A platform with that program and another agent. In this mode nothing but its group holds what leaves its session."""
    return platform(
        f"""
        [platform]
        name = "factory"

        [[agent]]
        name = "leaver"
        command = ["PYTHON", "{LEAVER}", "{order}"]
        restart = "never"
        {more}

        [[agent]]
        name = "worker"
        command = ["PYTHON", "{PROGRAMS}/worker.py"]
        """
    ).up("--isolation", "landlock")


def works(factory: Platform) -> None:
    assert json.loads(factory.send("worker", '["echo", "on"]')) == "on"


def node_of(factory: Platform) -> int:
    mark = b"\0node\0--name\0node-1\0"
    (pid,) = [pid for pid in factory.pids() if mark in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return pid


@pytest.mark.parametrize("more", ["", 'isolation = "none"\n        files = 100'])
def test_kill_ends_what_left_its_session_and_removes_the_group(platform, controllers, more):
    factory = leaver(platform, "escape", more)
    left = int(said(factory, "leaver", "left "))
    group = group_of(left)
    assert group == group_of(factory.agents()["leaver"]["pid"]) != group_of(node_of(factory))
    factory.tell("kill", "leaver")
    wait_for(lambda: not alive(left), "the process that left to end", also=factory.logs)
    wait_for(lambda: not group.exists(), "the group to go", also=factory.logs)
    works(factory)


@pytest.mark.parametrize("while_away", [False, True])
def test_what_left_its_session_ends_with_its_program_after_a_restart_of_the_node(platform, controllers, while_away):
    factory = leaver(platform, "escape")
    factory.active("worker")
    left = int(said(factory, "leaver", "left "))
    group, node, program = group_of(left), node_of(factory), factory.agents()["leaver"]["pid"]
    os.kill(node, signal.SIGSTOP if while_away else signal.SIGKILL)
    if while_away:
        os.kill(program, signal.SIGKILL)
        os.kill(node, signal.SIGKILL)
    else:
        log = factory.state / "node-1" / "node.log"
        wait_for(lambda: log.read_text().count("the node is there") == 2, "the node to come back", also=factory.logs)
        works(factory)
        assert alive(left) and group.exists()
        os.kill(program, signal.SIGKILL)
    wait_for(lambda: not alive(left), "the process that left to end", also=factory.logs)
    wait_for(lambda: not group.exists(), "the group to go", also=factory.logs)
    factory.active("worker")
    works(factory)


def test_a_node_that_leaves_leaves_no_group(platform, controllers):
    factory = leaver(platform, "escape")
    left = int(said(factory, "leaver", "left "))
    factory.active("worker")
    groups = {group_of(left), group_of(factory.agents()["worker"]["pid"])}
    assert len(groups) == 2
    for _ in range(3):
        factory.tell("restart", "worker")
        factory.active("worker")
        groups.add(group_of(factory.agents()["worker"]["pid"]))
    factory.down()
    assert not alive(left)
    assert not [group for group in groups if group.exists()]


@pytest.mark.parametrize("key, value, controller", [("cpu", "0.5", "cpu"), ("processes", "64", "pids")])
def test_a_limit_that_no_node_can_keep_is_refused_by_name(platform, controllers, key, value, controller):
    if controller in controllers:
        pytest.skip(f"control groups have the controller {controller} here")
    factory = leaver(platform, "escape", f"{key} = {value}")
    reason = f"its limit `{key}` cannot be kept: the node has no controller {controller}"
    wait_for(lambda: reason in note_of(factory, "leaver"), "the reason", also=factory.logs)
    factory.active("worker")
    works(factory)


def test_processor_time_is_limited(platform, controllers):
    needs(controllers, "cpu")
    factory = leaver(platform, "escape", "cpu = 0.5")
    group = group_of(int(said(factory, "leaver", "left ")))
    assert (group / "cpu.max").read_text() == "50000 100000\n"


def test_a_fork_bomb_concerns_nobody_else(platform, controllers):
    needs(controllers, "pids")
    factory = leaver(platform, "bomb", "processes = 40")
    factory.active("worker")
    assert int(said(factory, "leaver", "refused after ")) < 40
    group = group_of(factory.agents()["leaver"]["pid"])
    works(factory)
    factory.tell("kill", "leaver")
    wait_for(lambda: not group.exists(), "the bomb to end", also=factory.logs)
    assert (group_of(factory.agents()["worker"]["pid"]) / "pids.max").read_text() == "512\n"


def test_the_end_says_that_memory_ran_out(platform, controllers):
    needs(controllers, "memory")
    factory = leaver(platform, "hog", 'memory = "64 MiB"')
    wait_for(lambda: "used more than its `memory`" in note_of(factory, "leaver"), "the reason", also=factory.logs)
    assert "-- leaver ended: used more than its `memory`" in lines(factory, "leaver")
    factory.active("worker")
    works(factory)

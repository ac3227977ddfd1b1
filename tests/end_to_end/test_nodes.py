"""Machines join with one-time tokens, and their agents survive their death."""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from harness import DEADLINE, PROGRAMS, SEALBUS, clean_environment, one_worker, sealbus, wait_for

EMPTY = """
    [platform]
    name = "factory"
"""


def test_a_token_works_once(platform):
    factory = platform(EMPTY).up()
    token = factory.ask("token", "--name", "node-2")["token"]
    first = factory.program(
        SEALBUS, "node", "--token", token, "--state", factory.directory / "first", name="first"
    )
    wait_for(lambda: factory.nodes().get("node-2", {}).get("state") == "alive", "node-2", also=factory.logs)
    second = factory.program(
        SEALBUS, "node", "--token", token, "--state", factory.directory / "second", name="second"
    )
    assert second.wait() == 5
    assert "token" in second.output() and "used" in second.output()
    # The node that runs goes on.
    assert first.process.poll() is None
    assert factory.nodes()["node-2"]["state"] == "alive"


def test_a_token_expires(platform):
    factory = platform(EMPTY).up()
    secret = factory.ask("token", "--name", "node-2", "--lifetime", "1s")
    wait_for(lambda: time.time() * 1000 > secret["expires"] + 1500, "the token to expire")
    late = factory.program(
        SEALBUS, "node", "--token", secret["token"], "--state", factory.directory / "late", name="late"
    )
    assert late.wait() == 5
    assert "expired" in late.output()
    assert "node-2" not in factory.nodes()


def test_a_taken_name_is_refused(platform):
    factory = platform(EMPTY).up()
    wait_for(lambda: factory.nodes().get("node-1", {}).get("state") == "alive", "node-1", also=factory.logs)
    named = factory.tell("token", "--name", "node-1", expect=None)
    if named.returncode == 0:
        twin = factory.program(
            SEALBUS,
            "node",
            "--token",
            named.stdout.decode().strip(),
            "--state",
            factory.directory / "twin",
            name="twin",
        )
        assert twin.wait() == 5
        assert "node-1" in twin.output() and "taken" in twin.output()
    else:
        assert named.returncode == 5
        assert "node-1" in named.stderr.decode() and "taken" in named.stderr.decode()
    assert factory.nodes()["node-1"]["state"] == "alive"


def test_a_wrong_token_is_refused_and_says_so(platform):
    factory = platform(EMPTY).up()
    token = factory.ask("token")["token"]
    broken = token[:-4] + ("aaaa" if not token.endswith("aaaa") else "bbbb")
    other = factory.program(
        SEALBUS, "node", "--token", broken, "--state", factory.directory / "other", name="other"
    )
    assert other.wait() != 0
    assert "token" in other.output()


def test_a_dead_nodes_agents_are_placed_on_the_others(platform):
    factory = platform(
        f"""
        [platform]
        name = "factory"

        [[agent]]
        name = "worker"
        command = ["PYTHON", "{PROGRAMS}/worker.py"]
        replicas = 4
        """
    ).up()
    names = [f"worker-{index}" for index in range(1, 5)]
    factory.active(*names)
    second = factory.node("node-2")
    factory.tell("move", "worker-1", "node-2")
    before = factory.active(*names)
    assert before["worker-1"]["node"] == "node-2"
    # The machine is gone, with everything on it.
    for pid in (second.pid, before["worker-1"]["pid"]):
        os.kill(pid, signal.SIGKILL)

    def placed_again():
        agent = factory.agents()["worker-1"]
        return agent["state"] == "active" and agent["node"] == "node-1"

    wait_for(placed_again, "worker-1 to run on node-1", also=factory.logs)
    wait_for(lambda: factory.nodes()["node-2"]["state"] == "dead", "node-2 to be given up", also=factory.logs)
    revoked = {each["serial"]: each["revoked"] for each in factory.ask("ca", "list")}
    assert revoked[before["worker-1"]["serial"]]
    assert json.loads(factory.send("worker-1", '["echo", "again"]')) == "again"
    for name in names[1:]:
        assert factory.agents()[name]["serial"] == before[name]["serial"], "the others were not touched"


def test_a_node_comes_back_with_its_own_certificate(platform):
    factory = platform(EMPTY).up()
    node = factory.node("node-2")
    node.end()
    factory.program(SEALBUS, "node", "--state", factory.directory / "node-2", name="node-2-again")
    wait_for(
        lambda: factory.nodes()["node-2"]["state"] == "alive", "node-2 to be back", also=factory.logs
    )


def test_a_node_comes_back_to_its_own_address_without_a_token(platform):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        try:
            way.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        own = way.getsockname()[0]
    factory = platform(EMPTY).up("--address", own)
    node = factory.node("node-2")
    wait_for(lambda: f"node-2 is there, at {own}" in node.output(), "node-2 to be there", also=factory.logs)
    node.end()
    # As where a service's file sets the variable to nothing.
    state = ("--state", factory.directory / "node-2")
    for number, arguments in enumerate([[], ["--join", factory.ask("status")["enrolment"]]]):
        again = factory.program(
            SEALBUS, "node", *state, *arguments, name=f"again-{number}", environment={"SEALBUS_TOKEN": ""}
        )
        wait_for(lambda again=again: "node-2 is there" in again.output(), "node-2 to be back", also=factory.logs)
        assert f"node-2 is there, at {own}" in again.output()
        again.end()


def test_a_second_node_does_not_take_the_place_of_one_that_runs(platform):
    factory = platform(EMPTY).up()
    factory.node("node-2")
    state = factory.directory / "node-2"
    twin = factory.program(SEALBUS, "node", "--state", state, name="twin")
    assert twin.wait() == 1
    assert "another node runs" in twin.output()
    with socket.socket(socket.AF_UNIX) as program:
        program.connect(str(state / "run" / "node.sock"))
    assert factory.nodes()["node-2"]["state"] == "alive"


def test_an_address_alone_lets_no_node_in(tmp_path):
    done = sealbus("node", "--join", "127.0.0.1:1", "--state", tmp_path / "new", expect=2)
    assert b"join with a token" in done.stderr


def test_the_check_leaves_a_folder_of_others_alone(tmp_path):
    # The shell has the number that the command will have.
    script = 'mkdir "$TMPDIR/sealbus-check-$$" && touch "$TMPDIR/sealbus-check-$$/kept" && exec "$0" node --check'
    environment = clean_environment({"TMPDIR": str(tmp_path)})
    subprocess.run(["bash", "-c", script, SEALBUS], env=environment, check=True, capture_output=True, timeout=DEADLINE)
    (folder,) = tmp_path.iterdir()
    assert [path.name for path in folder.iterdir()] == ["kept"]


def test_placement_obeys_pin_and_forbid(platform):
    factory = platform(
        f"""
        [platform]
        name = "factory"
        nodes = 2

        [[agent]]
        name = "pinned"
        command = ["PYTHON", "{PROGRAMS}/worker.py"]
        replicas = 3
        node = "node-2"

        [[agent]]
        name = "away"
        command = ["PYTHON", "{PROGRAMS}/worker.py"]
        replicas = 2
        forbid = ["node-1"]
        """
    ).up()
    agents = factory.active("pinned-1", "pinned-2", "pinned-3", "away-1", "away-2")
    assert {agent["node"] for agent in agents.values()} == {"node-2"}


def test_a_machine_without_the_programs_folder_says_so_and_the_agent_goes_on(platform):
    factory = platform(one_worker("    nodes = 2\n"))
    folder = factory.directory / "programs"
    folder.mkdir()
    factory.manifest = factory.manifest.rename(folder / factory.manifest.name)
    factory.up()
    worker = factory.active("worker")["worker"]
    other = {"node-1": "node-2", "node-2": "node-1"}[worker["node"]]
    # The program that runs does not need its folder. The other node finds none, as on another machine.
    shutil.rmtree(folder)
    refused = factory.tell("move", "worker", other, expect=1).stderr.decode()
    assert f"its folder {folder} is not on this machine" in refused, refused
    assert factory.active("worker")["worker"]["pid"] == worker["pid"]
    assert f"worker did not start: its folder {folder}" in factory.tell("logs", "worker").stdout.decode()


def test_a_state_directory_may_be_relative_to_another_folder_than_the_programs(platform):
    factory = platform(one_worker("    nodes = 0\n")).up()
    token = factory.ask("token", "--name", "node-1")["token"]
    elsewhere = factory.directory / "elsewhere"
    elsewhere.mkdir()
    node = (SEALBUS, "node", "--token", token, "--state", "beside")
    factory.program("env", "-C", elsewhere, *node, name="node-1")
    assert factory.active("worker")["worker"]["node"] == "node-1"


def test_a_node_that_opens_a_long_journal_is_not_given_up(platform):
    """A disk may need longer for the journal than the Master waits for a silent node. The file is one that opens when it is written."""
    factory = platform(EMPTY).up()
    node = factory.node("node-2")
    segment = factory.directory / "node-2" / "journal" / "4096-long" / "0.segment"
    with factory.node_replaced("node-2") as start:
        node.kill()
        segment.parent.mkdir()
        os.mkfifo(segment)
        again = start()

    def heard(after: int) -> int:
        node = factory.nodes()["node-2"]
        assert node["state"] != "dead" and again.process.poll() is None, factory.logs()
        return int(node["heard"]) if node["heard"] > after else 0

    begun = heard(0)
    # The Master gives up a node that it has not heard for 8 s.
    wait_for(lambda: heard(begun + 10_000), "node-2 to say that it is there", also=factory.logs)
    is_there = "node-2 is there"
    assert is_there not in again.output()
    segment.write_bytes(b"")
    wait_for(lambda: is_there in again.output(), is_there, also=factory.logs)


@pytest.mark.parametrize("length", [90, 100])
def test_a_state_directory_whose_sockets_would_have_too_long_a_path_is_refused(platform, length):
    factory = platform(one_worker())
    # The Master's socket fits the shorter path, and the nodes' do not.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        state = Path(folder) / ("x" * (length - len(folder) - 1))
        refused = sealbus("up", factory.manifest, "--state", state, expect=1)
    assert b"choose a state directory with a shorter path" in refused.stderr

"""An isolated program takes all it can get, beside two honest agents that talk to each other."""

import json

import pytest
from harness import PROGRAMS, Platform, bounded, wait_for
from isolated import order, provide
from pair import AGENTS

MIB = 1 << 20
#: How much a node keeps of what a program printed, and as much before that.
LOG = 16 * MIB
#: How much memory a program shares by name.
SHARED = 256 * MIB
MANIFEST = f"""
    [platform]
    name = "factory"
    nodes = 2
{AGENTS}
    [[agent]]
    name = "late"
    command = ["PYTHON", "{PROGRAMS}/worker.py"]
    node = "node-1"

    [[agent]]
    name = "hungry"
    command = ["PYTHON", "FOLDER/hungry.py"]
    environment = {{ ORDERS = "FOLDER/orders" }}
    node = "node-1"
    restart = "never"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hungry")
    provide(folder, "hungry.py", "obedient.py")
    return folder


@pytest.fixture(scope="module")
def factory(folder, modes, tmp_path_factory):
    if all(problem is not None for mode, problem in modes.items() if mode != "none"):
        pytest.skip(f"programs cannot be isolated here: {modes}")
    started = Platform(tmp_path_factory.mktemp("factory"), MANIFEST.replace("FOLDER", str(folder)))
    try:
        yield started.up()
    finally:
        started.down()


def attack(factory, folder, name, result):
    """Orders an attack, and waits until it is over."""
    told = factory.state / "node-1" / "work" / "hungry" / f"{result}.json"
    order(folder, name)
    wait_for(told.exists, f"the program to {name}", also=factory.logs)
    return json.loads(told.read_text())


def test_shared_memory_and_a_log_have_an_end(factory, pair, folder):
    """Even a log that was made longer than it is, which takes no room."""
    log = factory.state / "node-1" / "logs" / "hungry.log"
    with pair.talking(), bounded(pair.pids(), 96):
        filled = attack(factory, folder, "fill", "filled")
        attack(factory, folder, "flood", "flooded")
        wait_for(lambda: log.stat().st_size <= LOG, "the log to be cut", also=lambda: str(log.stat()))
        assert log.with_suffix(".log.1").stat().st_size <= LOG
    if factory.nodes()["node-1"]["isolation"] == "landlock":
        assert filled == {"bytes": 0, "files": 0, "error": "EACCES"}
    else:
        assert filled["error"] == "ENOSPC" and SHARED // 2 < filled["bytes"] <= SHARED, filled
        # There is a file for each page at most.
        assert SHARED // 8192 < filled["files"] <= SHARED // 4096, filled


def test_ten_thousand_connections_and_unread_answers_keep_nobody_out(factory, pair, folder):
    with pair.talking(), bounded(pair.pids(), 128):
        assert attack(factory, folder, "connect", "connected") == 10_000
        factory.tell("kill", "late")
        factory.tell("start", "late")
        factory.active("late")
        order(folder, "release")
        assert attack(factory, folder, "ask", "asked") == "welcome"

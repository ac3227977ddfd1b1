"""An agent moves with its state; messages that are sent to it meanwhile arrive once and in order."""

import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness import PROGRAMS, ROOT, alive, wait_for

MANIFEST = f"""
    [platform]
    name = "factory"
    nodes = 2

    [[agent]]
    name = "source"
    command = ["PYTHON", "{PROGRAMS}/worker.py"]
    node = "node-1"

    [[agent]]
    name = "mover"
    command = ["PYTHON", "{PROGRAMS}/worker.py"]
"""


def test_state_and_messages_in_flight_move_along(platform):
    factory = platform(MANIFEST).up()
    before = factory.active("source", "mover")["mover"]
    count = 5000
    factory.send("source", json.dumps(["send", "mover", count, 500]))

    def heard():
        return json.loads(factory.send("mover", '["heard"]')).get("source", [])

    wait_for(lambda: len(heard()) > 50, "traffic", also=factory.logs)
    places = [before["node"]]
    for _ in range(2):
        goal = "node-2" if places[-1] == "node-1" else "node-1"
        moved = factory.ask("move", "mover", goal)
        assert moved == {"agents": ["mover"], "node": goal}
        places.append(factory.active("mover")["mover"]["node"])
        assert places[-1] == goal
    after = factory.agents()["mover"]
    assert after["pid"] != before["pid"] and after["serial"] != before["serial"]
    wait_for(
        lambda: json.loads(factory.send("source", '["sent"]')) == [count, True],
        "all messages to be accepted",
        also=factory.logs,
    )
    wait_for(lambda: len(heard()) >= count, "all messages to arrive", also=factory.logs)
    assert heard() == list(range(count)), "once and in order, over both moves"
    assert json.loads(factory.send("source", '["failures"]')) == []

    def revoked():
        states = {each["serial"]: each["revoked"] for each in factory.ask("ca", "list")}
        assert not states[after["serial"]]
        return states[before["serial"]]

    wait_for(revoked, "the certificate it left behind to be revoked", also=factory.logs)
    assert "mover is restored" in factory.tell("logs", "mover").stdout.decode()


def test_a_move_to_nowhere_changes_nothing(platform):
    factory = platform(MANIFEST).up()
    before = factory.active("source", "mover")["mover"]
    refused = factory.tell("move", "mover", "node-77", expect=4)
    assert "node-77" in refused.stderr.decode()
    refused = factory.tell("move", "nobody", "node-1", expect=4)
    assert "nobody" in refused.stderr.decode()
    assert factory.agents()["mover"] == before


COUNTER = f"""
    [platform]
    name = "factory"
    nodes = 2

    [[agent]]
    name = "counter"
    command = ["PYTHON", "{ROOT}/examples/counter.py"]
"""


def test_the_counter_example_counts_everything_once_wherever_it_is(platform):
    factory = platform(COUNTER).up()
    place = factory.active("counter")["counter"]
    counts: list[int] = []
    is_over = threading.Event()

    def ask():
        while not is_over.is_set():
            counts.append(int(factory.send("counter", "how many?")))

    def more():
        known = len(counts)
        wait_for(lambda: len(counts) >= known + 6, "more answers", also=factory.logs)

    with ThreadPoolExecutor() as pool:
        askers = [pool.submit(ask) for _ in range(3)]
        try:
            more()
            for _ in range(2):
                goal = "node-2" if place["node"] == "node-1" else "node-1"
                factory.ask("move", "counter", goal)
                moved = factory.active("counter")["counter"]
                assert moved["node"] == goal and moved["pid"] != place["pid"]
                place = moved
                more()
        finally:
            is_over.set()
        for asker in askers:
            asker.result()
    assert sorted(counts) == list(range(1, len(counts) + 1)), "each question counts once, over both moves"
    told = factory.tell("logs", "counter").stdout.decode()
    assert "counter@factory goes on from" in told


OFFICE = f"""
    [platform]
    name = "factory"
    nodes = 2

    [[agent]]
    name = "office"
    command = ["PYTHON", "{PROGRAMS}/office.py"]
"""


def test_work_side_by_side_is_done_before_the_agent_moves(platform):
    factory = platform(OFFICE).up()
    before = factory.active("office")["office"]

    def report():
        return json.loads(factory.send("office", '["report"]'))

    with ThreadPoolExecutor() as pool:
        # None of them ends before the agent is told to move.
        works = [pool.submit(factory.send, "office", f'["work", {number}]') for number in range(3)]
        wait_for(lambda: report()["working"] == 3, "the work to begin", also=factory.logs)
        ticks = report()["ticks"]
        goal = "node-2" if before["node"] == "node-1" else "node-1"
        factory.ask("move", "office", goal)
        assert {work.result() for work in works} == {str(before["pid"])}, factory.logs()
    assert factory.active("office")["office"]["node"] == goal
    after = report()
    assert (after["working"], sorted(after["done"])) == (0, [0, 1, 2])
    # Its own work goes on where it is.
    assert after["ticks"] > ticks
    wait_for(lambda: report()["ticks"] > after["ticks"], "the clock to tick", also=factory.logs)


DEAF = """
import os
import pathlib
import time

import sealbus

if pathlib.Path("BROKEN").exists():
    print("mover begins", flush=True)
    while pathlib.Path("HOLD").exists():
        time.sleep(0.02)
    os._exit(1)


class Deaf(sealbus.Agent):
    async def save(self) -> bytes:
        return b"nothing"

    async def restore(self, state: bytes) -> None:
        print("mover is restored", flush=True)


sealbus.run(Deaf())
"""


@pytest.mark.parametrize("former_end", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("end", ["restored once more", "lost", "killed"])
def test_an_agent_is_restored_or_the_senders_are_told_if_both_processes_of_a_move_are_gone(
    platform, tmp_path, end, former_end
):
    hold, broken, deaf = (tmp_path / name for name in ("hold", "broken", "deaf.py"))
    deaf.write_text(DEAF.replace("HOLD", str(hold)).replace("BROKEN", str(broken)))
    mover = f'name = "mover"\n    command = ["PYTHON", "{PROGRAMS}/worker.py"]'
    assert mover in MANIFEST
    unable = f'name = "mover"\n    command = ["PYTHON", "{deaf}"]\n    isolation = "none"'
    factory = platform(MANIFEST.replace(mover, unable)).up()
    before = factory.active("source", "mover")["mover"]
    factory.send("source", json.dumps(["send", "mover", 20, 0]))
    wait_for(lambda: json.loads(factory.send("source", '["sent"]')) == [20, True], "all messages to be accepted")
    broken.touch()
    hold.touch()
    goal = "node-2" if before["node"] == "node-1" else "node-1"
    moving = threading.Thread(target=lambda: factory.tell("move", "mover", goal, expect=None))
    moving.start()

    def says(what):
        return lambda: what in factory.tell("logs", "mover").stdout

    wait_for(says(b"mover begins"), "the agent to be placed", also=factory.logs)
    os.kill(before["pid"], former_end)
    wait_for(lambda: not alive(before["pid"]), "the former process to end")

    def is_known():
        certificates = factory.ask("ca", "list")
        return any(it["identity"].endswith("/agent/mover") and it["revoked"] for it in certificates)

    wait_for(is_known, "the Master to hear of that", also=factory.logs)
    if end == "restored once more":
        broken.unlink()
    if end == "killed":
        factory.tell("kill", "mover")
    else:
        hold.unlink()
    moving.join()

    def failures():
        return len(json.loads(factory.send("source", '["failures"]')))

    if end == "restored once more":
        wait_for(says(b"mover is restored"), "the agent to be restored", also=factory.logs)
        assert failures() == 0
        return
    wait_for(lambda: failures() == 20, "the sender to be told", also=factory.logs)
    if end == "lost":
        broken.unlink()
        # It begins anew.
        factory.active("source", "mover")
    assert failures() == 20, "each message is answered once"
    assert not says(b"mover is restored")()

"""A program shows the ticket of another one on a connection that a process with the other's number made."""

import itertools
import json
import os
import socket
import time
from pathlib import Path

import pytest
from harness import DEADLINE, SEALBUS, Platform, wait_for
from isolated import needs, order, provide

#: With this number a socket tells the process at its other end itself (Linux 6.5).
SO_PEERPIDFD = 77
#: The last number that the kernel gave to a process. It gives the next free one.
LAST = Path("/proc/sys/kernel/ns_last_pid")
MANIFEST = """
    [platform]
    name = "factory"

    [[agent]]
    name = "thief"
    command = ["PYTHON", "FOLDER/thief.py"]
    environment = { ORDERS = "FOLDER/orders" }
    restart = "never"

    [[agent]]
    name = "robbed"
    command = ["PYTHON", "FOLDER/thief.py", "robbed"]
    restart = "never"
"""


def needs_numbers():
    if os.getuid() != 0:
        pytest.skip("only root chooses the numbers of processes")
    if not LAST.exists():
        pytest.skip(f"this kernel has no {LAST}")
    one, other = socket.socketpair()
    with one, other:
        try:
            os.close(one.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD))
        except OSError:
            pytest.skip("this kernel does not say which process made a connection, but only its number")


def test_a_process_that_got_the_number_of_another_is_not_taken_for_it(modes, open_folder):
    """Programs of one user differ by nothing else."""
    needs(modes, "namespace")
    needs_numbers()
    provide(open_folder, "thief.py", "obedient.py")
    factory = Platform(open_folder, MANIFEST.replace("FOLDER", str(open_folder)))
    work = factory.state / "node-1" / "work"
    there = work / "robbed" / "there.json"

    def told(attempt, name):
        path = work / "thief" / f"{name}-{attempt}.json"
        wait_for(path.exists, f"{name}-{attempt}", also=factory.logs)
        return json.loads(path.read_text())

    def meets_the_number(attempt):
        """Has the robbed program started with the number of a process that made a connection, if it can be had. Its ticket is shown
        on that connection."""
        factory.tell("kill", "robbed")
        there.unlink()
        order(open_folder, f"connect-{attempt}")
        numbers = told(attempt, "connected")
        LAST.write_text(str(min(numbers) - 1))
        # Nothing waits for this command: the node ends the connections after 10 s.
        start = ("start", "robbed", "--timeout", "1s", "--state", factory.state)
        starting = factory.program(SEALBUS, *start, name="start")
        wait_for(there.exists, "the robbed program", also=factory.logs)
        robbed = json.loads(there.read_text())
        order(open_folder, f"show-{attempt}", robbed if robbed["pid"] in numbers else None)
        shown = told(attempt, "shown")
        starting.wait()
        return shown

    try:
        factory.up("--isolation", "namespace")
        wait_for(there.exists, "the robbed program", also=factory.logs)
        began = time.monotonic()
        attempts = itertools.takewhile(lambda _: time.monotonic() - began < DEADLINE, itertools.count())
        shown = next(filter(None, map(meets_the_number, attempts)), None)
        assert shown is not None, "no program got the number of a process that had ended"
        assert shown.get("fault", {}).get("code") == "invalid-secret", shown
        assert "which is another process" in shown["fault"]["message"]
    finally:
        factory.down()

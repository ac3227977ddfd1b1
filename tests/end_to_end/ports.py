"""Ports for the programs that tests start."""

import fcntl
import os
import random
import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import IO

#: Nobody else takes these: the platform chooses higher ones, and the system gives still higher ones to outgoing connections.
PORTS = range(10_000, 20_000)
#: A file for each port: the test process that took the port holds the file's lock until it ends.
TAKEN = Path(tempfile.gettempdir()) / f"sealbus-test-ports-{os.getuid()}"

_locks: list[IO[bytes]] = []


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Free ports in a row, which no other test gets. Their programs may listen on them later, and again."""
    TAKEN.mkdir(exist_ok=True)
    while True:
        first = random.randrange(PORTS.start, PORTS.stop - count + 1)
        ports = list(range(first, first + count))
        with ExitStack() as failed:
            try:
                locks = [failed.enter_context(_take(port, host)) for port in ports]
            except OSError:
                continue
            failed.pop_all()
        _locks.extend(locks)
        return ports


def free_port(host: str = "127.0.0.1") -> int:
    """A free port, as of `free_ports`."""
    (port,) = free_ports(1, host)
    return port


def _take(port: int, host: str) -> IO[bytes]:
    with ExitStack() as failed:
        lock = failed.enter_context((TAKEN / str(port)).open("wb"))
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with socket.socket() as probe:
            probe.bind((host, port))
        failed.pop_all()
    return lock

"""A program with the connections of processes that have ended. Another program may get the number of one of them, and the test
gives that program's ticket away. As the other program (its only argument), it waits to be robbed."""

import os
import socket
import sys
import time

from obedient import ordered, tell
from rpc import Rpc

CROWD = 60


def connections(path):
    """Connections to the node by the number of the process that made each and has ended."""
    made = {}
    for _ in range(CROWD):
        stream = socket.socket(socket.AF_UNIX)
        pid = os.fork()
        if pid == 0:
            stream.connect(path)
            os._exit(0)
        os.waitpid(pid, 0)
        stream.settimeout(60)
        made[pid] = stream
    return made


def shown(stream, ticket):
    """The node's answer to a ticket; none if the connection has ended meanwhile."""
    try:
        return Rpc(stream).call(ask="attach", ticket=ticket, now=time.time_ns() // 1_000_000)
    except (EOFError, OSError):
        return None


def steal():
    path = os.environ["SEALBUS_ATTACH"].removeprefix("unix:")
    attempt = 0
    while True:
        ordered(f"connect-{attempt}")
        made = connections(path)
        tell(f"connected-{attempt}", list(made))
        robbed = ordered(f"show-{attempt}")
        tell(f"shown-{attempt}", shown(made[robbed["pid"]], robbed["ticket"]) if robbed else None)
        for stream in made.values():
            stream.close()
        attempt += 1


if sys.argv[1:] == ["robbed"]:
    tell("there", {"pid": os.getpid(), "ticket": os.environ["SEALBUS_TICKET"]})
    time.sleep(3600)
else:
    steal()

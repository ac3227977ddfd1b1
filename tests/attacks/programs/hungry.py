"""A program that takes all it can get of what it shares with others, one thing at a time, as the test orders."""

import errno
import os
import resource
import socket
import time
from pathlib import Path

from obedient import ordered, tell
from rpc import ATTACHING, Rpc, Token, encoded, over_tls, over_unix, place

MIB = 1 << 20
#: More files than the memory that programs share by name may have.
FILES = 100_000
CONNECTIONS = 10_000
#: Of its connections, it keeps so many open at most.
OPEN = 3000


def ways():
    """The address of the node, the way to open a connection that can show a ticket, and the ticket."""
    attach, ticket = os.environ["SEALBUS_ATTACH"], os.environ["SEALBUS_TICKET"]
    if attach.startswith("unix:"):
        path = attach.removeprefix("unix:")
        return (socket.AF_UNIX, path), lambda: over_unix(path), ticket
    token = Token.parse(ticket)
    address = token.addresses[0]
    return (socket.AF_INET, place(address)), lambda: over_tls(address, ATTACHING), encoded(token.secret)


def fill():
    """Fills the memory that programs share by name, with bytes and then with empty files."""
    path, size, error = Path("/dev/shm/sealbus-hungry"), 0, None
    try:
        with path.open("wb", buffering=0) as file:
            while size < 1024 * MIB:
                size += file.write(bytes(MIB))
    except OSError as problem:
        error = errno.errorcode[problem.errno]
    finally:
        path.unlink(missing_ok=True)
    made = []
    try:
        for number in range(FILES):
            empty = path.with_name(f"sealbus-hungry-{number}")
            empty.touch()
            made.append(empty)
    except OSError:
        pass
    for empty in made:
        empty.unlink()
    tell("filled", {"bytes": size, "files": len(made), "error": error})


def flood():
    """Prints a lot, and then makes its log longer than it is."""
    lines = (b"x" * 1023 + b"\n") * 1024
    for _ in range(100):
        os.write(1, lines)
    os.ftruncate(1, 1024 * MIB)
    tell("flooded", os.write(1, b"the end\n"))


def connect():
    """Connects to its node again and again, and says nothing."""
    (family, address), _, _ = ways()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    most, held = min(OPEN, hard - 100), []
    for _ in range(CONNECTIONS):
        if len(held) == most:
            held.pop(0).close()
        # Without a time limit, it waits for its turn.
        stream = socket.socket(family)
        stream.connect(address)
        held.append(stream)
    tell("connected", CONNECTIONS)
    ordered("release")


def ask():
    """Asks its node for all it may ask, and reads nothing."""
    (family, _), opening, ticket = ways()
    rpc, more = Rpc(opening()), {}
    if family == socket.AF_INET:
        # By that the node knows a program without unix sockets.
        more["mark"] = encoded(os.urandom(32))
        Path(os.environ["SEALBUS_FOLDER"], ".sealbus-mark").write_text(more["mark"])
    answer = rpc.call(ask="attach", ticket=ticket, now=time.time_ns() // 1_000_000, **more)
    questions = b"".join(rpc.frame(ask="resolve", agent="sink") for _ in range(2000))
    rpc.stream.settimeout(3)
    try:
        for _ in range(500):
            rpc.stream.sendall(questions)
        answer = "it takes all"
    except TimeoutError:
        answer = answer.get("answer")
    tell("asked", answer)
    time.sleep(3600)


attacks = {"fill": fill, "flood": flood, "connect": connect, "ask": ask}
while attacks:
    for name in [name for name in attacks if Path(os.environ["ORDERS"], name).exists()]:
        attacks.pop(name)()
    time.sleep(0.05)

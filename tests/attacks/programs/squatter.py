"""A program that leaves behind all it can: a process that holds a port, shared memory, files, and links in the node's way.

First it prints which of that it finds, left by a program before it. PORT is the port, STATE the folder of its node.
"""

import errno
import json
import os
import socket
import time
from pathlib import Path

from kernel import IPC_CREAT, LIBC

SHARED_KEY = 0x5EA1B06
SHARED_FILE = Path("/dev/shm/sealbus-squatter")


def opens_port():
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", int(os.environ["PORT"])))
        # Two may be bound to a port of which nobody listens yet.
        listener.listen()
    except OSError as error:
        return errno.errorcode[error.errno]
    return listener


def leave_a_process():
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.write(writing, str(os.getpid()).encode())
        os.closerange(0, 3)
        time.sleep(3600)
    return int(os.read(reading, 20))


def main():
    own = Path(os.environ["SEALBUS_FOLDER"])
    found = {
        "uid": os.getuid(),
        "memory": LIBC.shmget(SHARED_KEY, 4096, 0) != -1,
        "shared file": SHARED_FILE.exists(),
        "file": (own / "file").exists(),
    }
    port = opens_port()
    found["port"] = port if isinstance(port, str) else "free"
    LIBC.shmget(SHARED_KEY, 4096, IPC_CREAT | 0o666)
    SHARED_FILE.write_text("left")
    (own / "file").write_text("left")
    if not (own / "key").is_symlink():
        state = Path(os.environ["STATE"])
        (own / "tmp").rmdir()
        (own / "tmp").symlink_to(state)
        (own / "key").symlink_to(state / "node.json")
    found["left"] = leave_a_process()
    print(json.dumps(found), flush=True)
    time.sleep(3600)


main()

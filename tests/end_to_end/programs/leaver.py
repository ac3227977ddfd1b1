"""A program that its node has to bound and to end. It never attaches.

`escape` leaves a process in another session, without a parent; `bomb` starts processes until it may not; `hog` takes all memory;
`fill` takes all room on the disk.
"""

import os
import sys
import time


def escape() -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        print(f"left {os.getpid()}", flush=True)
    time.sleep(3600)


def bomb() -> None:
    count = 0
    try:
        while os.fork():
            count += 1
    except BlockingIOError:
        print(f"refused after {count}", flush=True)
    time.sleep(3600)


def hog() -> None:
    taken = []
    while True:
        taken.append(bytearray(os.urandom(1 << 20)))


def fill() -> None:
    with open(os.path.join(os.environ["SEALBUS_FOLDER"], "big"), "ab", buffering=0) as file:
        while True:
            file.write(bytes(1 << 20))
            time.sleep(0.01)


{"escape": escape, "bomb": bomb, "hog": hog, "fill": fill}[sys.argv[1]]()

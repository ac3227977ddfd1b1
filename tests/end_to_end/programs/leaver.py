"""A program that its node has to bound and to end. It never attaches.

`escape` leaves a process in another session, without a parent; `bomb` starts processes until it may not; `hog` takes all memory.
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


{"escape": escape, "bomb": bomb, "hog": hog}[sys.argv[1]]()

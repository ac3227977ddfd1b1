"""Strangers that hold connections open and say nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

#: The strangers' own address: a crowd displaces connections from its own address.
ELSEWHERE = "127.0.0.66"
Open = Callable[[], socket.socket]


@contextmanager
def crowd(opening: Open, count: int) -> Iterator[None]:
    """Keeps `count` connections open. A connection that the other side ends is replaced at once."""
    over = threading.Event()
    standing = threading.Event()
    thread = threading.Thread(target=keep, args=(opening, count, over, standing))
    thread.start()
    try:
        assert standing.wait(120), "the crowd could not connect"
        yield
    finally:
        over.set()
        thread.join()


def keep(opening: Open, count: int, over: threading.Event, standing: threading.Event) -> None:
    held: list[socket.socket] = []
    try:
        while not over.wait(0.01):
            held = [each for each in held if is_open(each)]
            with suppress(OSError):
                while len(held) < count and not over.is_set():
                    held.append(opening())
            standing.set()
    finally:
        for each in held:
            each.close()


def is_open(stream: socket.socket) -> bool:
    stream.setblocking(False)
    try:
        # A stranger reads nothing but the end.
        while data := stream.recv(4096):
            del data
    except (BlockingIOError, InterruptedError):
        return True
    except OSError:
        pass
    stream.close()
    return False

"""Raw connections to a door: more of strangers than it has places for, and their ends."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from harness import DEADLINE

COUNT = 2_000


def has_ended(stream: socket.socket) -> bool:
    """Whether the door has ended a connection, behind all that it wrote."""
    stream.setblocking(False)
    with suppress(BlockingIOError):
        while stream.recv(65_536):
            pass
        return True
    return False


@contextmanager
def strangers(place: tuple[str, int], beginnings: Sequence[bytes]) -> Iterator[None]:
    """Holds 2,000 connections on which nothing is said but one of these beginnings, in turns."""
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limit, min(most, 2 * COUNT)), most))
    with ExitStack() as open_until_then:
        held = [open_until_then.enter_context(socket.create_connection(place, DEADLINE)) for _ in range(COUNT)]
        for number, stream in enumerate(held):
            # The door may have ended it.
            with suppress(OSError):
                stream.sendall(beginnings[number % len(beginnings)])
        yield

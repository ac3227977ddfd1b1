"""Connections of strangers to a door, more than it has places for."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from harness import DEADLINE

COUNT = 2_000


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

"""Keeps waiting processors from being halted: a virtual processor that its host has taken away takes a hundred microseconds to wake."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def awake() -> Iterator[None]:
    """Keeps processors from being halted as long as this is entered, if this process may ask for that. Reports it if it
    may not."""
    try:
        held = open("/dev/cpu_dma_latency", "wb", buffering=0)
        # Microseconds that waking may take.
        held.write(bytes(4))
    except OSError as error:
        print(f"processors may sleep while they wait: {error}")
        yield
        return
    with held:
        yield

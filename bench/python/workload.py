"""The messages between the measured programs, and the programs' memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass
class Order:
    """The question."""

    article: str
    count: int
    price: float


@dataclass
class Receipt:
    """The answer."""

    number: int
    total: float


def resident(process: int | str = "self") -> int:
    """Resident memory of a process in bytes, as Linux counts it: of this one, or of the one with that number."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the system does not say how much memory is resident")

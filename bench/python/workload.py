"""What the measured programs send each other, and how much memory they take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass
class Order:
    """What is asked."""

    article: str
    count: int
    price: float


@dataclass
class Receipt:
    """What is answered."""

    number: int
    total: float


def resident() -> int:
    """Resident memory of this process in bytes, as Linux counts it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the system does not say how much memory is resident")

"""A network of its own for each worker: a platform that is started again needs its former ports, and those of other workers' platforms
could have taken them meanwhile."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys

import pytest

CLONE_NEWNET = 0x4000_0000
SIOCSIFFLAGS = 0x8914
IFF_UP = 0x1


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Leaves the machine's network, as root on Linux, after plugins have connected to what they need. Elsewhere workers share it, and the
    ports of one rarely disturb another."""
    if not hasattr(config, "workerinput") or sys.platform != "linux" or os.geteuid() != 0:
        return
    if ctypes.CDLL(None).unshare(CLONE_NEWNET) != 0:
        return
    with socket.socket() as anyone:
        fcntl.ioctl(anyone, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))

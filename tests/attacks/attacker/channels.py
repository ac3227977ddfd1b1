"""The frames of channels between two processes, and the log's form of an event."""

from __future__ import annotations

import struct

from attacker import mesh
from attacker.mallory import Mallory
from attacker.mesh import Link

MASK = (1 << 64) - 1
HELLO, ACKNOWLEDGE, ANNOUNCE, KNOWN, EVENT, KEEP = 0x01, 0x02, 0x11, 0x15, 0x20, 0x30
PUSH_BACK = 0


def number(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def text(value: str) -> bytes:
    return number(len(value.encode())) + value.encode()


def mixed(value: int) -> int:
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
    return value ^ (value >> 31)


def session_of(epoch: int, other: int) -> int:
    """The session of frames from the process of the first epoch to that of the other."""
    return mixed(mixed((epoch + 0x9E3779B97F4A7C15) & MASK) ^ other)


def stamp(session: int, count: int) -> bytes:
    return struct.pack("<Q", session) + number(count)


def head(channel: str, count: int, now: int, persistent: bool = False) -> bytes:
    """An event, at least once and in order."""
    return bytes([1 << 2 | 1 << 4 | persistent << 5, 4, 0]) + text(channel) + number(count) + number(now)


class Subscriber:
    """A process's end of channels that announces what it likes, and takes nothing."""

    def __init__(self, taken: Mallory, agent: str) -> None:
        taken.uses_channels()
        self.link: Link = taken.speaks_to(agent)
        #: The other process itself is target 1: its bus.
        self.link.target(1, "")
        self.epoch, self.count = 1 << 50, 0
        self.send(mesh.ITSELF, bytes([HELLO]) + struct.pack("<QQ", self.epoch, 0))
        other = self.their_epoch()
        self.send(mesh.ITSELF, bytes([HELLO]) + struct.pack("<QQ", self.epoch, other))
        self.session = session_of(self.epoch, other)

    def their_epoch(self) -> int:
        while True:
            frame = self.link.take_message(to="")
            if frame[0] == HELLO:
                return int(struct.unpack_from("<Q", frame, 1)[0])

    def send(self, sender: int, frame: bytes) -> None:
        self.link.message(sender, 1, frame)

    def announce(self, pattern: str, filter: str = "", credit: int = 1 << 22) -> None:
        self.count += 1
        body = number(self.count) + bytes([2]) + text(pattern) + text(filter)
        body += bytes([PUSH_BACK]) + number(credit) + text("")
        self.send(0, bytes([ANNOUNCE]) + stamp(self.session, self.count) + body)

    def has_announced_all(self) -> None:
        self.count += 1
        self.send(mesh.ITSELF, bytes([KNOWN]) + stamp(self.session, self.count))

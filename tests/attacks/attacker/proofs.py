"""Proofs of messages, made by docs/evidence.md alone."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from attacker.mallory import milliseconds
from attacker.mesh import DELEGATE, LEVELS, Credential, Link


def number(value: int) -> bytes:
    return struct.pack(">Q", value)


def field(value: bytes) -> bytes:
    return number(len(value)) + value


def statement(receiver: str, message: bytes) -> bytes:
    """The statement of the author of a direct message to one agent."""
    said = b"sealbus message v1\0" + b"\0" + field(b"") + number(1) + field(receiver.encode())
    return said + hashlib.sha256(message).digest()


#: The key with which the attacker's process signs for its agents.
KEY = Ed25519PrivateKey.generate()
#: The algorithm of batch keys that the byte 1 names.
ED25519 = b"\1"


def wire(key: Ed25519PrivateKey) -> bytes:
    return ED25519 + key.public_key().public_bytes_raw()


def serial_of(author: Credential) -> bytes:
    return x509.load_der_x509_certificate(author.chain[0]).serial_number.to_bytes(16, "big")


def certificate(author: Credential) -> bytes:
    return serial_of(author) + hashlib.sha256(author.chain[0]).digest()


def delegation(author: Credential, name: str, key: Ed25519PrivateKey = KEY) -> bytes:
    """The author's word that the key signs for it."""
    platform = name.rpartition("@")[2]
    said = b"sealbus delegation v1\0" + field(platform.encode()) + field(name.encode())
    return wire(key) + author.key.sign(said + certificate(author) + wire(key))


@dataclass
class Batch:
    """A signed batch of one message of one author: each of its trees has one leaf."""

    time: int
    signature: bytes
    serial: bytes
    first: int

    def frame(self, handle: int) -> bytes:
        """The body of SIGN, for the sender with this handle."""
        head = struct.pack("<QH", self.time, len(self.signature)) + self.signature
        return head + struct.pack("<I", handle) + self.serial + struct.pack("<QH", self.first, 1)


def batch(
    author: Credential, name: str, said: bytes, first: int = 0, level: str = "signed", key: Ed25519PrivateKey = KEY
) -> Batch:
    time, root = milliseconds(), hashlib.sha256(b"\0" + said).digest()
    entry = b"sealbus author v1\0" + certificate(author) + number(first) + number(1) + root
    signed = b"sealbus batch v2\0" + bytes([LEVELS[level]]) + field(name.rpartition("@")[2].encode()) + wire(key)
    signed += number(time) + number(1) + hashlib.sha256(b"\0" + entry).digest()
    return Batch(time, key.sign(signed), serial_of(author), first)


#: The body of SIGN of a process that could not sign for the sender 0.
UNSIGNED = struct.pack("<QHI", 0, 0, 0) + bytes(16) + struct.pack("<QH", 0, 1)


def delegate(link: Link, handle: int, author: Credential, name: str, key: Ed25519PrivateKey = KEY) -> None:
    """Shows the delegation of the agent with this handle."""
    link.send(DELEGATE, struct.pack("<I", handle) + serial_of(author) + delegation(author, name, key))

"""Proofs of messages, made by docs/evidence.md alone."""

from __future__ import annotations

import hashlib
import struct

from cryptography import x509

from attacker.mallory import milliseconds
from attacker.mesh import LEVELS, Credential


def number(value: int) -> bytes:
    return struct.pack(">Q", value)


def field(value: bytes) -> bytes:
    return number(len(value)) + value


def statement(receiver: str, message: bytes) -> bytes:
    """The statement of the author of a direct message to one agent."""
    said = b"sealbus message v1\0" + b"\0" + field(b"") + number(1) + field(receiver.encode())
    return said + hashlib.sha256(message).digest()


def proof(author: Credential, name: str, said: bytes, first: int = 0, level: str = "signed") -> bytes:
    """The proof of a batch of one message, whose tree has one leaf."""
    platform = name.rpartition("@")[2]
    serial = x509.load_der_x509_certificate(author.chain[0]).serial_number.to_bytes(16, "big")
    time = milliseconds()
    code = bytes([LEVELS[level]])
    batch = b"sealbus batch v1\0" + code + field(platform.encode()) + field(name.encode())
    batch += serial + hashlib.sha256(author.chain[0]).digest()
    batch += number(time) + number(first) + number(1) + hashlib.sha256(b"\0" + said).digest()
    return b"\1" + code + serial + number(time) + number(first) + struct.pack(">HHH", 1, 0, 1) + author.key.sign(batch)

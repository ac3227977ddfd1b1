"""The language of agents: ACL messages in every encoding.

>>> from sealbus import AclMessage, acl
>>> encoded = acl.encode(AclMessage("inform", "seller@factory", "sold"), "string")
>>> acl.decode(encoded, "string").content
'sold'
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from sealbus import _sealbus
from sealbus._sealbus import (
    AID,
    AclMessage,
    detect,
    performatives,
    representation_name,
    representations,
)
from sealbus.errors import AclError, DecodeError, EncodeError
from sealbus.performative import Performative

__all__ = [
    "AID",
    "AclError",
    "AclMessage",
    "DecodeError",
    "EncodeError",
    "ExplainedPiece",
    "Explanation",
    "Finding",
    "Performative",
    "decode",
    "detect",
    "encode",
    "explain",
    "performatives",
    "representation_name",
    "representations",
    "validate",
]


def encode(message: AclMessage, representation: str = "bitefficient") -> bytes:
    """The message in an encoding: ``bitefficient``, ``string``, ``xml``, ``json``, or FIPA's name of it.

    Raises :class:`EncodeError`, which names the field, if the encoding cannot carry the message.
    """
    return _sealbus.encode(message, representation)


def decode(data: bytes | bytearray, representation: str = "bitefficient") -> AclMessage:
    """Decodes a message.

    Raises :class:`DecodeError`, with the offset and the expected value, if the bytes are not a message.
    """
    return _sealbus.decode(bytes(data), representation)


@dataclass(frozen=True)
class ExplainedPiece:
    """A run of bytes and its meaning."""

    start: int
    """Where it begins."""
    end: int
    """Where it ends: the first byte after it."""
    depth: int
    """Its depth of nesting."""
    meaning: str
    """The meaning of these bytes, and their value."""
    reference: str
    """The standard, and the name of the rule in it."""


@dataclass(frozen=True)
class Explanation:
    """The explanation of a message; as :class:`str` it is a table."""

    encoding: str
    """The encoding, by FIPA's name."""
    pieces: list[ExplainedPiece]
    """The meaning of each run of bytes, in order, without the white space of text encodings."""
    error: DecodeError | None
    """The error that ended the explanation before the end of the message, if there is one."""
    text: str = field(repr=False)
    """The table."""

    def __str__(self) -> str:
        return self.text


def explain(data: bytes | bytearray, representation: str | None = None) -> Explanation:
    """Explains a message, byte by byte, with the rule of the standard for each.

    A message with an error is explained up to the error. Without a representation, the first bytes determine the encoding.
    """
    encoding, pieces, error, text = _sealbus.explain(bytes(data), representation)
    return Explanation(encoding, [ExplainedPiece(*piece) for piece in pieces], error, text)


@dataclass(frozen=True)
class Finding:
    """A part of a message that violates the standard, or is unwise."""

    severity: Literal["warning", "error"]
    """``error``: violates the standard; ``warning``: allowed, but some platforms will not understand it."""
    field: str
    """The parameter, such as ``receiver[0].name``."""
    message: str
    """The problem with the field, and what to do."""
    reference: str
    """The standard that requires this."""


def validate(message: AclMessage) -> list[Finding]:
    """Checks a message as a strict receiver does. The list is empty if the message is valid."""
    return [Finding(*finding) for finding in _sealbus.validate(message)]

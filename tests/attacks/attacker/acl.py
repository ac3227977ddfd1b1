"""ACL messages in the bit-efficient encoding (FIPA00069), as large and as wrong as an attacker wants them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

PERFORMATIVES = {
    "cancel": 0x03, "failure": 0x07, "inform": 0x08, "not-understood": 0x0B, "query-ref": 0x10, "refuse": 0x11, "request": 0x13,
    "subscribe": 0x16,
}
WORDS = {
    "reply_with": 0x05, "in_reply_to": 0x07, "language": 0x09, "ontology": 0x0B, "protocol": 0x0C, "conversation_id": 0x0D,
}


def word(text: str) -> bytes:
    return b"\x10" + text.encode() + b"\0"


def identifier(name: str, addresses: Iterable[str] = ()) -> bytes:
    places = b"".join(word(address) for address in addresses)
    return b"\x02" + word(name) + (b"\x02" + places + b"\x01" if places else b"") + b"\x01"


def text(value: str) -> bytes:
    """The value of a parameter, as a string."""
    return b"\x14" + value.encode() + b"\0"


def message(
    performative: str,
    sender: str,
    receivers: Iterable[str],
    content: str | None = None,
    reply_to: Iterable[str] = (),
    parameters: Iterable[tuple[str, bytes]] = (),
    **words: str,
) -> bytes:
    out = [b"\xfa\x10", bytes([PERFORMATIVES[performative]]), b"\x02", identifier(sender)]
    for code, names in ((0x03, receivers), (0x08, reply_to)):
        many = b"".join(identifier(name) for name in names)
        if many:
            out += [bytes([code]), many, b"\x01"]
    out += [bytes([WORDS[name]]) + word(text) for name, text in words.items()]
    out += [b"\x00" + word(name) + value for name, value in parameters]
    if content is not None:
        out += [b"\x04\x14", content.encode(), b"\0"]
    return b"".join([*out, b"\x01"])


def management(sender: str, service: str, action: str, **more: Any) -> bytes:
    """A request to the AMS or DF."""
    content = f"((action (agent-identifier :name {service}) ({action})))"
    words = {"language": "fipa-sl0", "ontology": "fipa-agent-management", "protocol": "fipa-request"}
    return message("request", sender, [service], content, **words, **more)


def word_of(encoded: bytes, parameter: str) -> str | None:
    """A word that stands in a message, found without reading the rest."""
    found = re.search(bytes([WORDS[parameter]]) + rb"[\x10\x14]([^\0]*)\0", encoded)
    return found[1].decode() if found else None

"""The parts of SPADE that Sealbus does not have, and what to use instead."""

from __future__ import annotations

from sealbus.errors import SealbusError

_FILES = "send the bytes as the content of a message of a sealbus.Agent"

REMEDIES = {
    "web": "read `sealbus ps` and `sealbus logs`, or serve pages of your own, such as with aiohttp",
    "client": "there is no XMPP client here; send with a behaviour's send()",
    "upload_file": _FILES,
    "send_file": _FILES,
    "upload_and_send_file": _FILES,
    "download_file": _FILES,
    "from_node": "there are no XMPP stanzas here; make a Message",
    "prepare": "there are no XMPP stanzas here; send the Message itself",
}


class NotOffered(SealbusError, NotImplementedError):
    """Sealbus has no counterpart of something in SPADE; the text says what to use."""


def refuse(name: str) -> None:
    """Raises NotOffered if this is something of SPADE's that is not offered."""
    if name in REMEDIES:
        raise NotOffered(f"sealbus.spade does not offer SPADE's {name}: {REMEDIES[name]}")

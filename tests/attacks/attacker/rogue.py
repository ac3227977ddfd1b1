"""A node that was taken over: it holds its certificate and key, and from then on keeps no rule."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from attacker import acl
from attacker.mallory import milliseconds, signing_request
from attacker.mesh import Credential, Link
from attacker.rpc import Rpc, over_tls

ENROLMENT = "sealbus-enrolment/1"


def of_node(file: Path) -> Credential:
    """The certificates and the key in a node's file."""
    kept = json.loads(file.read_text())
    wire = base64.b64decode(kept["chain"])
    parts, rest = [], wire[1:]
    while rest:
        length = int.from_bytes(rest[:2], "big")
        parts.append(rest[2 : 2 + length])
        rest = rest[2 + length :]
    count = wire[0] & 0x7F
    key = load_pem_private_key(kept["key"].encode(), None)
    assert isinstance(key, Ed25519PrivateKey)
    return Credential(key, parts[:count], b"".join(parts[count:]))


class RogueNode:
    """It goes on as a node of the platform whose process, of this name and at this address, has ended."""

    def __init__(self, file: Path, name: str, process: str, listens: str) -> None:
        self.own = of_node(file)
        self.name = name
        self.process = process
        self.listens = listens
        (self.door,) = json.loads(file.read_text())["enrolment"]["addresses"]

    def certified(self, **subject: str) -> Credential:
        """A certificate for its process or one of its agents, for a key of the attacker."""
        key = Ed25519PrivateKey.generate()
        request = {"process": self.process, "subject": subject, "request": signing_request(key), "at": milliseconds()}
        statement = json.dumps(request).encode()
        voucher = {
            "statement": base64.b64encode(statement).decode(),
            "chain": base64.b64encode(self.own.chain_on_the_wire()).decode(),
            "signature": base64.b64encode(self.own.key.sign(b"sealbus node vouching v1\0" + statement)).decode(),
        }
        with Rpc(over_tls(self.door, ENROLMENT)) as rpc:
            return Credential.issued(key, rpc.call(ask="certify", voucher=voucher))

    def connects(self, address: str) -> Link:
        """A connection on which it is proved as a process and as an agent, as nodes are."""
        process = self.certified(kind="process")
        link = Link(address, process.identity(), process, listens=self.listens)
        link.agent = self.certified(kind="agent", name=self.name)
        link.bind(0, link.agent.proof(link.exporter))
        return link

    def asks(self, link: Link, node: str, tag: str, question: dict[str, Any]) -> str:
        """Asks another node, which is target 0 of the connection. Returns its answer."""
        own = f"{self.name}@factory"
        words = {"language": "json", "ontology": "sealbus-platform", "conversation_id": tag, "reply_with": tag}
        link.message(0, 0, acl.message("request", own, [f"{node}@factory"], json.dumps(question), **words))
        while acl.word_of(answer := link.take_message(own), "in_reply_to") != tag:
            pass
        return answer.decode(errors="replace")

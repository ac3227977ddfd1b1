"""A program that was taken over: it holds a ticket, attaches as any program does, and from then on keeps no rule."""

from __future__ import annotations

import base64
import socket
import time
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from OpenSSL import SSL

from attacker.mesh import LEVELS, Credential, Link, Replaced
from attacker.rpc import ATTACHING, PATIENCE, Rpc, Token, encoded, over_tls


def signing_request(key: Ed25519PrivateKey) -> str:
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, None)
    return base64.b64encode(request.public_bytes(Encoding.DER)).decode()


def milliseconds() -> int:
    return time.time_ns() // 1_000_000


def endpoint(contact: dict[str, Any], platform: str = "factory") -> tuple[str, str]:
    """The address of a process, and its identity."""
    return contact["address"], f"spiffe://{platform}/node/{contact['node']}/process/{contact['process']}"


class Mallory:
    """An agent of the platform with a certificate, a process and a connection to its node, all in an attacker's hands."""

    def __init__(self, ticket: str, name: str) -> None:
        token = Token.parse(ticket)
        self.name = f"{name}@{token.platform}"
        self.local_name = name
        self.rpc = Rpc(over_tls(token.addresses[0], ATTACHING))
        self.welcome = self.rpc.call(ask="attach", ticket=encoded(token.secret), now=milliseconds())
        assert self.welcome.get("answer") == "welcome", self.welcome
        self.agent = self.certified(kind="agent", name=name)
        self.process = self.certified(kind="process")
        self.links: list[Link] = []
        # Others may connect here; nobody answers.
        self.listener = socket.create_server(("127.0.0.1", 0))

    def close(self) -> None:
        for link in self.links:
            link.close()
        self.listener.close()
        self.rpc.stream.close()

    def __enter__(self) -> Mallory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def certified(self, **subject: str) -> Credential:
        key = Ed25519PrivateKey.generate()
        return Credential.issued(key, self.rpc.call(ask="certify", subject=subject, request=signing_request(key)))

    def appears(self) -> None:
        """The platform takes it for an agent that runs."""
        port = self.listener.getsockname()[1]
        self.rpc.call(ask="announce", address=f"127.0.0.1:{port}")
        if self.welcome["all_use_channels"]:
            self.uses_channels()
        self.rpc.call(ask="report", agent=self.local_name, report={"event": "state", "state": "active"})

    def uses_channels(self) -> None:
        """The platform tells the processes whose agents use channels of this one, as of any that says so."""
        until = time.monotonic() + PATIENCE
        while "fault" in (answer := self.rpc.call(ask="use-channels")):
            assert time.monotonic() < until, answer
            time.sleep(0.1)

    def process_of(self, agent: str) -> tuple[str, str]:
        """The address and identity of an agent's process."""
        return endpoint(self.rpc.call(ask="resolve", agent=agent))

    def masters(self) -> tuple[str, str]:
        return endpoint(self.welcome["platform"]["master"])

    def connects(self, address: str, says_hello_as: str | None = None, level: str = "auth") -> Link:
        link = Link(address, says_hello_as or self.process.identity(), self.process, level)
        self.links.append(link)
        return link

    def speaks_to(self, agent: str, handle: int = 0, level: str = "auth") -> Link:
        """A connection to an agent's process, on which this agent is proved and the other is the target of this number."""
        place = self.masters() if agent in ("ams", "df", "ca", "master") else self.process_of(agent)
        until = time.monotonic() + PATIENCE
        while True:
            link = self.connects(place[0], level=level)
            link.agent = self.agent
            try:
                link.bind(0, self.agent.proof(link.exporter, LEVELS[level]))
                link.target(handle, f"{agent}@factory")
                return link
            except (Replaced, SSL.Error, OSError):
                # The other process is opening a connection itself, which nobody here accepts. It gives up in a while.
                link.close()
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)



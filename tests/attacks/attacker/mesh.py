"""The frames of the mesh over OpenSSL, which gives the exporter that a proof is bound to."""

from __future__ import annotations

import base64
import hashlib
import itertools
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from OpenSSL import SSL

from attacker.rpc import PATIENCE, place

PREFACE = b"SEALBUS\x01"
LEVELS = {"none": 0, "tls": 1, "auth": 2, "signed": 3}
#: The version of the protocol.
VERSION = 3
HELLO, GOODBYE, BIND, ACKNOWLEDGE, PING, PONG, PROVE, DELEGATE = 1, 2, 3, 4, 5, 6, 7, 8
MESSAGE, BEGIN, CONTINUE, TARGET, ACCEPT, CREDIT, LEAVING = 16, 17, 18, 19, 20, 21, 22
CLOSE_TARGET, TARGET_CLOSED, RETURNED, REFUSED, SIGN, UNREAD, ROW = 23, 24, 25, 27, 28, 29, 30
#: Reasons of RETURNED: its receiver moves, is not here, or refused it (as of too many).
MOVING, NOT_HERE, REFUSED_OVER_LIMIT = 0, 1, 2 + 10
#: The process itself, as a sender.
ITSELF = 0xFFFFFFFF
PIECE = 64 << 10
#: A reason of GOODBYE.
REPLACED = 1
#: A later connection of a process replaces an earlier one, by its number.
CONNECTIONS = itertools.count(1)


def messages_in(row: bytes) -> list[bytes]:
    """The messages in a frame, each as the body of a frame of its own."""
    handles, end = row[:8], len(row) - 4
    length, beginning = struct.unpack_from("<HH", row, end)
    first, at = row[8 : 8 + length], 8 + length
    messages = [handles + first]
    while at < end:
        (length,) = struct.unpack_from("<H", row, at)
        messages.append(handles + first[:beginning] + row[at + 2 : at + 2 + length])
        at += 2 + length
    return messages


@dataclass
class Credential:
    """A key and the certificates for it, leaf first."""

    key: Ed25519PrivateKey
    chain: list[bytes]
    #: The CA's proof that its issuance log has the certificate.
    inclusion: bytes = b""

    @classmethod
    def issued(cls, key: Ed25519PrivateKey, answer: dict[str, Any]) -> Credential:
        """The certificate in the CA's answer, for this key."""
        assert "chain" in answer, answer
        return cls(key, [base64.b64decode(der) for der in answer["chain"]], base64.b64decode(answer["inclusion"]))

    def chain_on_the_wire(self) -> bytes:
        proofs = [self.inclusion] if self.inclusion else []
        parts = [struct.pack(">H", len(part)) + part for part in [*self.chain, *proofs]]
        return bytes([len(self.chain) | (0x80 if proofs else 0)]) + b"".join(parts)

    def identity(self) -> str:
        leaf = x509.load_der_x509_certificate(self.chain[0])
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        (uri,) = names.get_values_for_type(x509.UniformResourceIdentifier)
        return uri

    def proof(self, exporter: bytes, level: int = LEVELS["auth"]) -> bytes:
        """That the owner of the key is at the end of the connection that opened it."""
        statement = b"sealbus agent binding v1\0" + struct.pack(">HBB", VERSION, 0, level) + exporter
        statement += hashlib.sha256(self.chain[0]).digest() + self.identity().encode()
        return self.chain_on_the_wire() + self.key.sign(statement)


def context_of(credential: Credential | None, level: str) -> SSL.Context:
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    # Both levels speak TLS in the same way; the hello states which one it is.
    protocol = "auth" if level == "signed" else level
    context.set_alpn_protos([f"sealbus-mesh/1/{protocol}".encode()])
    if credential is not None:
        leaf, *issuers = [x509.load_der_x509_certificate(der) for der in credential.chain]
        context.use_certificate(leaf)
        for issuer in issuers:
            context.add_extra_chain_cert(issuer)
        context.use_privatekey(credential.key)
    return context


class Replaced(EOFError):
    """The other side uses another connection between the two, which it may still be opening."""


class Link:
    """A connection to a process of the mesh, opened as the process `claimed`."""

    def __init__(
        self,
        address: str,
        claimed: str | None,
        credential: Credential | None = None,
        level: str = "auth",
        listens: str = "127.0.0.1:9",
    ) -> None:
        """Without a name to claim, nothing is said yet. `listens`: where it says that others may connect to it."""
        plain = socket.create_connection(place(address))
        self.plain = plain
        self.waits(int(PATIENCE))
        self.exporter = b""
        self.level = level
        self.stream: Any = plain
        self.sequence = 0
        self.inbox = b""
        self.greeted = False
        #: Bytes that may be sent to each target in all.
        self.limits: dict[int, int] = {}
        #: The names of the targets that the other side has opened. It may send to them if there is an agent to prove.
        self.opened: dict[bytes, str] = {}
        #: Their numbers, in the order in which they were opened.
        self.numbers: dict[bytes, int] = {}
        self.order = itertools.count(1)
        #: Bytes that the other side may send to each of those targets.
        self.room = 64 << 20
        self.agent: Credential | None = None
        #: Messages that came while something else was awaited.
        self.kept: list[bytes] = []
        #: Messages that came in one frame.
        self.row: list[bytes] = []
        try:
            if level != "none":
                self.stream = SSL.Connection(context_of(credential, level), plain)
                self.stream.set_connect_state()
                self.stream.do_handshake()
                self.exporter = self.stream.export_keying_material(b"EXPORTER-sealbus-agent-binding", 32)
            self.stream.sendall(PREFACE)
            if claimed is not None:
                self.hello(claimed, level, listens)
        except BaseException:
            plain.close()
            raise

    def hello(self, claimed: str, level: str, listens: str) -> None:
        process = claimed.encode()
        hello = struct.pack("<HBB", VERSION, LEVELS[level], 0) + os.urandom(16) + bytes(32)
        hello += struct.pack("<QQIH", 0, next(CONNECTIONS), 16 << 20, len(process)) + process + listens.encode()
        self.send(HELLO, hello)

    def waits(self, seconds: int) -> None:
        """How long to wait for the other side, which OpenSSL reads from and writes to without Python."""
        for way in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self.plain.setsockopt(socket.SOL_SOCKET, way, struct.pack("ll", seconds, 0))

    def close(self) -> None:
        self.plain.close()

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def frame(self, kind: int, body: bytes) -> bytes:
        counted = kind >= MESSAGE
        header = struct.pack("<IBBHI", len(body), kind, 0, 0, self.sequence & 0xFFFFFFFF if counted else 0)
        self.sequence += counted
        return header + body

    def send(self, kind: int, body: bytes = b"") -> None:
        self.stream.sendall(self.frame(kind, body))

    def bind(self, handle: int, proof: bytes) -> None:
        """At levels without proofs, the proof is the agent's name."""
        self.send(BIND, struct.pack("<I", handle) + proof)

    def target(self, handle: int, name: str) -> None:
        """Opens a target, and waits until it is accepted."""
        self.send(TARGET, struct.pack("<I", handle) + name.encode())
        self.until(lambda kind, body: kind == ACCEPT and body[:4] == struct.pack("<I", handle), f"{name} to be accepted")

    def messages_in_a_row(self, sender: int, target: int, beginning: bytes, rests: list[bytes]) -> None:
        """Messages that begin with the same bytes, in one frame."""
        first, *others = rests
        row = beginning + first + b"".join(struct.pack("<H", len(rest)) + rest for rest in others)
        lengths = struct.pack("<HH", len(beginning) + len(first), len(beginning))
        self.send(ROW, struct.pack("<II", sender, target) + row + lengths)

    def message(self, sender: int, target: int, payload: bytes) -> None:
        handles = struct.pack("<II", sender, target)
        if len(payload) <= PIECE:
            self.send(MESSAGE, handles + payload)
            return
        self.send(BEGIN, handles + struct.pack("<I", len(payload)) + payload[:PIECE])
        for start in range(PIECE, len(payload), PIECE):
            self.send(CONTINUE, struct.pack("<I", target) + payload[start : start + PIECE])

    def gives_back(self, handles: bytes, why: int, payload: bytes) -> None:
        """Says that a message did not reach its receiver. `handles`: of the sender and the target, as in a message."""
        self.send(RETURNED, handles[4:] + handles[:4] + bytes([why]) + payload)

    def left_unread(self, handles: bytes, number: int, payload: bytes) -> None:
        """Says that the agent of a target that was closed, of this number, ended and did not read a message."""
        self.send(UNREAD, struct.pack("<I", number) + handles[:4] + payload)

    def next(self) -> tuple[int, bytes] | None:
        """The next frame; None when the other side has ended the connection. Frames that keep it alive are answered here.
        Messages in a row come one by one."""
        while True:
            if self.row:
                return MESSAGE, self.row.pop(0)
            if not self.greeted and len(self.inbox) >= len(PREFACE):
                if not self.inbox.startswith(PREFACE):
                    raise ConnectionError(f"this is no port of the mesh: it says {self.inbox!r}")
                self.inbox = self.inbox[len(PREFACE) :]
                self.greeted = True
            if self.greeted and len(self.inbox) >= 12:
                (length,) = struct.unpack_from("<I", self.inbox)
                if len(self.inbox) >= 12 + length:
                    kind, body = self.inbox[4], self.inbox[12 : 12 + length]
                    self.inbox = self.inbox[12 + length :]
                    if kind == ROW:
                        self.row = messages_in(body)
                        continue
                    self.answer(kind, body)
                    return kind, body
            try:
                piece = self.stream.recv(65536)
            except SSL.WantReadError:
                raise TimeoutError("the other side is silent") from None
            except (SSL.Error, OSError):
                return None
            if not piece:
                return None
            self.inbox += piece

    def answer(self, kind: int, body: bytes) -> None:
        if kind in (ACCEPT, CREDIT):
            target, limit = struct.unpack("<IQ", body)
            self.limits[target] = limit
        elif kind == PING:
            self.send(PONG)
        elif kind == TARGET and self.agent is not None:
            handle, name = body[:4], body[4:].decode()
            self.opened[handle] = name
            self.numbers[handle] = next(self.order)
            # The bus of a process has the empty name, and no proof.
            if name:
                self.send(PROVE, handle + self.agent.proof(self.exporter, LEVELS[self.level]))
            self.send(ACCEPT, handle + struct.pack("<Q", self.room))
        elif kind == CLOSE_TARGET:
            # The other side has learned another address of this agent. It opens the target again after this answer.
            self.send(TARGET_CLOSED, body)

    def until(self, is_it: Callable[[int, bytes], bool], what: str) -> tuple[int, bytes]:
        while True:
            frame = self.next()
            if frame is None:
                raise EOFError(f"the connection ended while waiting for {what}")
            if is_it(*frame):
                return frame
            if frame[0] == GOODBYE and frame[1][0] == REPLACED:
                raise Replaced(frame[1][1:].decode())
            if frame[0] == MESSAGE:
                self.kept.append(frame[1])

    def kinds_until_end(self) -> list[int]:
        """Reads until the other side ends the connection."""
        kinds = []
        while frame := self.next():
            kinds.append(frame[0])
        return kinds

    def take_message(self, to: str | None = None) -> bytes:
        """The next message to this agent of this end, to its bus (the empty name), or to anybody."""
        while True:
            body = self.kept.pop(0) if self.kept else self.until(lambda kind, _: kind == MESSAGE, "a message")[1]
            if to in (None, self.opened.get(body[4:8])):
                return body[8:]

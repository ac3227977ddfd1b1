"""Framed JSON over TLS or a unix socket, and the tokens and tickets that open such conversations."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

JOINING = "sealbus-enrolment/1"
ATTACHING = "sealbus-attachment/1"
#: Seconds that a platform may take on a busy machine. Nothing is expected to.
PATIENCE = 120.0


def believing_anybody(*protocols: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(list(protocols))
    return context


def place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def over_tls(address: str, protocol: str, source: str = "127.0.0.1") -> ssl.SSLSocket:
    plain = socket.create_connection(place(address), PATIENCE, source_address=(source, 0))
    try:
        return believing_anybody(protocol).wrap_socket(plain)
    except BaseException:
        plain.close()
        raise


def over_unix(path: Path) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(PATIENCE)
    stream.connect(str(path))
    return stream


class Rpc:
    """Calls and answers: JSON behind a length of four bytes."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream
        self.calls = 0

    def __enter__(self) -> Rpc:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()

    def frame(self, **body: Any) -> bytes:
        self.calls += 1
        text = json.dumps({"call": {"id": self.calls, "body": body}}).encode()
        return struct.pack(">I", len(text)) + text

    def begin(self, length: int, body: bytes = b"") -> None:
        """Announces a frame of this length, and sends only the beginning of it."""
        self.stream.sendall(struct.pack(">I", length) + body)

    def call(self, **body: Any) -> dict[str, Any]:
        """The body of the answer, or `{"fault": …}`."""
        self.stream.sendall(self.frame(**body))
        while True:
            frame = self.read()
            for kind in ("answer", "fault"):
                if frame.get(kind, {}).get("id") == self.calls:
                    body = frame[kind]["body"]
                    return {"fault": body} if kind == "fault" else body

    def read(self) -> dict[str, Any]:
        (length,) = struct.unpack(">I", self.exactly(4))
        return dict(json.loads(self.exactly(length)))

    def exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            part = self.stream.recv(length - len(data))
            if not part:
                raise EOFError("the platform ended the connection")
            data += part
        return data

    def is_ended(self) -> bool:
        """Reads until the other side ends the connection."""
        try:
            while self.stream.recv(65536):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True


def encoded(secret: bytes) -> str:
    return base64.urlsafe_b64encode(secret).rstrip(b"=").decode()


@dataclass
class Token:
    """A join token or a ticket, taken apart."""

    purpose: str
    secret: bytes
    root: bytes
    platform: str
    name: str
    addresses: list[str]

    @classmethod
    def parse(cls, text: str) -> Token:
        purpose, _, body = text.partition(":")
        data = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
        rest, texts = data[65:], []
        while rest:
            texts.append(rest[1 : 1 + rest[0]].decode())
            rest = rest[1 + rest[0] :]
        return cls(purpose, data[1:33], data[33:65], texts[0], texts[1], texts[2:])

    def text(self) -> str:
        texts = (self.platform, self.name, *self.addresses)
        data = b"\x01" + self.secret + self.root
        data += b"".join(bytes([len(text)]) + text.encode() for text in texts)
        return f"{self.purpose}:{encoded(data)}"

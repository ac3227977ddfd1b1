"""Attaches to its node as any agent process does, then asks for the certificate of an agent that the Master
placed elsewhere (the name in WANTED). Prints the node's answer as one line of JSON and waits to be ended."""

import json
import os
import socket
import struct
import time
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

import base64


class Attachment:
    """The attachment conversation: frames of JSON behind a four-byte length."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.calls = 0

    def call(self, **body: Any) -> dict[str, Any]:
        self.calls += 1
        text = json.dumps({"call": {"id": self.calls, "body": body}}).encode()
        self.socket.sendall(struct.pack(">I", len(text)) + text)
        while True:
            (length,) = struct.unpack(">I", self.read(4))
            frame: dict[str, Any] = json.loads(self.read(length))
            for kind in ("answer", "fault"):
                if frame.get(kind, {}).get("id") == self.calls:
                    return frame

    def read(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            part = self.socket.recv(length - len(data))
            if not part:
                raise EOFError("the node closed the connection")
            data += part
        return data


def signing_request() -> str:
    key = Ed25519PrivateKey.generate()
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, None)
    return base64.b64encode(request.public_bytes(Encoding.DER)).decode()


attachment = Attachment(os.environ["SEALBUS_ATTACH"].removeprefix("unix:"))
attachment.call(ask="attach", ticket=os.environ["SEALBUS_TICKET"], now=time.time_ns() // 1_000_000)
for wanted in (os.environ["SEALBUS_AGENT"], os.environ["WANTED"]):
    answer = attachment.call(
        ask="certify", subject={"kind": "agent", "name": wanted}, request=signing_request()
    )
    print(json.dumps({"wanted": wanted} | answer), flush=True)
time.sleep(3600)

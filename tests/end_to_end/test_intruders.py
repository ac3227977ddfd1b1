"""Another TLS implementation, OpenSSL, knocks at a platform: it believes the platform's certificates, and is let in with
one of the platform's only."""

import json
import socket
import ssl
from pathlib import Path

import pytest
from harness import DEADLINE, PROGRAMS, wait_for

MANIFEST = f"""
    [platform]
    name = "factory"
    level = "LEVEL"

    [[agent]]
    name = "worker"
    command = ["PYTHON", "{PROGRAMS}/worker.py"]
"""


def endpoint(factory) -> tuple[str, int]:
    """Where the agents' process listens for others."""
    text = factory.active("worker")["worker"]["address"]
    host, _, port = text.rpartition(":")
    return host, int(port)


def context(factory, level: str) -> ssl.SSLContext:
    """A client that believes this platform's root and nothing else."""
    (root,) = Path(factory.state).rglob("root.der")
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.load_verify_locations(cadata=root.read_bytes())
    made.set_alpn_protocols([f"sealbus-mesh/1/{level}"])
    return made


def knock(factory, made: ssl.SSLContext, then: bytes = b"") -> tuple[ssl.SSLSocket, bytes]:
    """Shakes hands, sends `then`, and reads until the other side ends the connection."""
    host, port = endpoint(factory)
    plain = socket.create_connection((host, port), DEADLINE)
    try:
        # OpenSSL compares the address with the one in the certificate.
        stream = made.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise
    with stream:
        if then:
            stream.sendall(then)
        got = b""
        while piece := stream.recv(4096):
            got += piece
        return stream, got


def still_works(factory) -> None:
    assert json.loads(factory.send("worker", '["echo", "still here"]')) == "still here"


def test_openssl_believes_the_platforms_certificates(platform):
    factory = platform(MANIFEST.replace("LEVEL", "tls")).up()
    host, port = endpoint(factory)
    made = context(factory, "tls")
    with (
        socket.create_connection((host, port), DEADLINE) as plain,
        made.wrap_socket(plain, server_hostname=host) as stream,
    ):
        assert stream.version() == "TLSv1.3"
        names = stream.getpeercert()["subjectAltName"]
        assert ("IP Address", host) in names
        (uri,) = [name for kind, name in names if kind == "URI"]
        assert uri.startswith("spiffe://factory/node/") and "/process/" in uri
    still_works(factory)


def test_openssl_does_not_believe_another_platforms_certificates(platform, tmp_path):
    factory = platform(MANIFEST.replace("LEVEL", "tls")).up()
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(ssl.SSLCertVerificationError):
        knock(factory, made)
    still_works(factory)


def test_without_a_certificate_nobody_is_let_in(platform):
    factory = platform(MANIFEST.replace("LEVEL", "auth")).up()
    with pytest.raises(ssl.SSLError, match="(?i)certificate.required"):
        knock(factory, context(factory, "auth"), b"SEALBUS\x01")

    def noted():
        return [each for each in factory.refusals() if "no certificate" in each["reason"]]

    wait_for(noted, "the refusal to be noted", also=factory.logs)
    still_works(factory)


def test_older_tls_is_not_spoken(platform):
    factory = platform(MANIFEST.replace("LEVEL", "auth")).up()
    made = context(factory, "auth")
    made.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match="(?i)protocol.version"):
        knock(factory, made)
    still_works(factory)


def test_another_level_finds_no_common_protocol(platform):
    factory = platform(MANIFEST.replace("LEVEL", "auth")).up()
    with pytest.raises(ssl.SSLError, match="(?i)no.application.protocol"):
        knock(factory, context(factory, "tls"))
    still_works(factory)

"""Another TLS implementation, OpenSSL, believes the platform's certificates, and no others."""

import json
import socket
import ssl
from pathlib import Path

import pytest
from harness import DEADLINE, one_worker

MANIFEST = one_worker('level = "tls"')


@pytest.fixture
def factory(platform):
    return platform(MANIFEST).up()


def names(factory, roots: bytes | None) -> list[tuple[str, str]]:
    """The alternative names that the agents' process shows to a client that believes these roots alone."""
    host, _, port = factory.active("worker")["worker"]["address"].rpartition(":")
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if roots is not None:
        made.load_verify_locations(cadata=roots)
    made.set_alpn_protocols(["sealbus-mesh/1/tls"])
    with (
        socket.create_connection((host, int(port)), DEADLINE) as plain,
        # OpenSSL compares the address with the one in the certificate.
        made.wrap_socket(plain, server_hostname=host) as stream,
    ):
        assert stream.version() == "TLSv1.3"
        found = stream.getpeercert()["subjectAltName"]
        assert ("IP Address", host) in found
        return list(found)


def still_works(factory) -> None:
    assert json.loads(factory.send("worker", '["echo", "still here"]')) == "still here"


def test_openssl_believes_the_platforms_certificates(factory):
    root = Path(factory.state, "root.der").read_bytes()
    (uri,) = [name for kind, name in names(factory, root) if kind == "URI"]
    assert uri.startswith("spiffe://factory/node/") and "/process/" in uri
    still_works(factory)


def test_openssl_does_not_believe_another_platforms_certificates(factory):
    with pytest.raises(ssl.SSLCertVerificationError):
        names(factory, None)
    still_works(factory)

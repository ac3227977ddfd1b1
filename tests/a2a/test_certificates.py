"""Callers that come in with certificates of the platform's own CA, over OpenSSL."""

from __future__ import annotations

import datetime
import http.client
import json
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

from conftest import MANIFEST, Door, start
from harness import DEADLINE, Platform, documented_keys, sealbus, wait_for
from login import Authority
from ports import free_port

CERTIFIED = """
    hosts = ["localhost"]

    [gateway.a2a.tls]
    certificate = "FOLDER/door.pem"
    key = "FOLDER/door.key"

    [[gateway.a2a.caller]]
    name = "keeper"
    certificate = true

    [[gateway.a2a.caller]]
    name = "visitor"
    certificate = true

    [[permission.rule]]
    deny = { from = ["visitor"], to = ["vault"] }
"""


@dataclass
class Guarded:
    """A door with TLS, for callers with certificates."""

    factory: Platform
    door: Door
    authority: Authority
    folder: Path

    def request(self, name: str, key: Ed25519PrivateKey | None = None) -> Path:
        """A signing request for a new key, which lies beside it."""
        key = key or Ed25519PrivateKey.generate()
        form = serialization.PrivateFormat.PKCS8
        secret = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        (self.folder / f"{name}.key").write_bytes(secret)
        # The CA believes the key of a request, and nothing else in it.
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "keeper")])
        request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, None)
        file = self.folder / f"{name}.csr"
        file.write_bytes(request.public_bytes(serialization.Encoding.PEM))
        return file

    def certify(self, name: str, *arguments: str) -> x509.Certificate:
        """A caller's certificate, in a file."""
        made = self.factory.ask("gateway", "certificate", name, self.request(name), *arguments)
        assert made.keys() == documented_keys()["gateway certificate"]
        (self.folder / f"{name}.pem").write_text(made["certificate"])
        leaf = x509.load_pem_x509_certificate(made["certificate"].encode())
        assert leaf.not_valid_after_utc.timestamp() * 1000 == made["expires"]
        return leaf

    def connect(self, client: str | None) -> http.client.HTTPSConnection:
        port = int(self.door.url.rsplit(":", 1)[1])
        return http.client.HTTPSConnection("localhost", port, timeout=DEADLINE, context=self.authority.context(client))

    def card(self, agent: str, client: str | None, key: str | None = None) -> int:
        """The status of a request for a card, which callers alone get beside public ones."""
        connection = self.connect(client)
        try:
            return asked(connection, agent, key)
        finally:
            connection.close()


def asked(connection: http.client.HTTPSConnection, agent: str, key: str | None = None) -> int:
    fields = {"A2A-Version": "1.0", "Content-Type": "application/json"}
    fields |= {"Authorization": f"Bearer {key}"} if key else {}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard", "params": {}})
    connection.request("POST", f"/agents/{agent}", body, fields)
    answer = connection.getresponse()
    answer.read()
    return answer.status


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("factory")
    authority = Authority(directory)
    authority.certify("door")
    port = str(free_port())
    manifest = MANIFEST.replace('listen = "127.0.0.1:0"', f'listen = "127.0.0.1:{port}"')
    manifest = manifest.replace('anonymous = "guest"\n    hosts = ["agents.example"]\n', CERTIFIED, 1)
    manifest = manifest.replace("FOLDER", str(directory))
    with ExitStack() as stack:
        factory, door = start(directory, manifest, authority.context())
        stack.callback(factory.down)
        yield Guarded(factory, door, authority, directory)


def requests(guarded: Guarded, caller: str) -> int:
    callers = guarded.factory.ask("gateway", "counters")["a2a"]["callers"]
    (found,) = [it["requests"] for it in callers if it["agent"] == caller]
    return int(found)


def test_a_caller_with_a_certificate_is_that_agent_in_name_and_right(guarded: Guarded) -> None:
    leaf = guarded.certify("keeper", "--lifetime", "1h")
    (name,) = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.UniformResourceIdentifier)
    assert name == "spiffe://factory/agent/keeper"
    guarded.certify("visitor")
    before = requests(guarded, "keeper")
    assert guarded.card("vault", "keeper") == 200
    assert requests(guarded, "keeper") == before + 1
    assert guarded.card("echo", "visitor") == 200
    assert guarded.card("vault", "visitor") == 404
    # Keys go on to count, also beside a certificate.
    assert guarded.card("vault", "visitor", guarded.door.keys["assistant"]) == 200
    assert guarded.card("vault", "keeper", "sbk_wrong") == 401
    assert guarded.card("vault", None, guarded.door.keys["assistant"]) == 200
    assert guarded.card("vault", None) == 401


def test_only_callers_of_the_manifest_are_certified(guarded: Guarded) -> None:
    request = guarded.request("other")
    for name in ("assistant", "office", "ca", "vault", "nobody"):
        told = guarded.factory.tell("gateway", "certificate", name, request, expect=None)
        assert told.returncode != 0 and b"no caller of a gateway" in told.stderr, told
    for lifetime in ("31d", "365d"):
        told = guarded.factory.tell("gateway", "certificate", "keeper", request, "--lifetime", lifetime, expect=None)
        assert told.returncode != 0, told
    noise = guarded.folder / "noise.csr"
    refused = b"signing request"
    for text, why in (
        (b"", refused),
        (b"\xff" * 100, refused),
        (request.read_bytes()[:-60], refused),
        (b"-" * 60_000, refused),
        (b"-" * 100_000, b"more than 65536 bytes"),
    ):
        noise.write_bytes(text)
        told = guarded.factory.tell("gateway", "certificate", "keeper", noise, expect=None)
        assert told.returncode != 0 and why in told.stderr, told


def test_certificates_of_others_open_nothing(guarded: Guarded) -> None:
    key = Ed25519PrivateKey.generate()
    guarded.request("forged", key)
    now = datetime.datetime.now(datetime.timezone.utc)
    name = x509.Name([x509.NameAttribute(NameOID.USER_ID, "keeper"), x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(hours=1))
    uri = x509.UniformResourceIdentifier("spiffe://factory/agent/keeper")
    builder = builder.add_extension(x509.SubjectAlternativeName([uri]), critical=False)
    forged = builder.sign(key, None)
    (guarded.folder / "forged.pem").write_bytes(forged.public_bytes(serialization.Encoding.PEM))
    guarded.authority.certify("stranger")
    for client in ("forged", "stranger"):
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
            guarded.card("vault", client)


def test_a_revoked_certificate_opens_nothing_also_on_open_connections(guarded: Guarded) -> None:
    leaf = guarded.certify("keeper")
    connection = guarded.connect("keeper")
    try:
        assert asked(connection, "vault") == 200
        serial = f"{leaf.serial_number:032x}"
        (found,) = [it["serial"] for it in guarded.factory.ask("ca", "list") if it["serial"].replace(":", "").lower().zfill(32) == serial]
        guarded.factory.tell("ca", "revoke", found)
        wait_for(lambda: asked(connection, "vault") == 401, "the certificate to be refused", also=guarded.factory.logs)
    finally:
        connection.close()
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
        guarded.card("vault", "keeper")
    # The caller itself is not revoked: another certificate lets it in.
    guarded.certify("keeper")
    assert guarded.card("vault", "keeper") == 200


def test_a_caller_with_a_certificate_needs_tls() -> None:
    manifest = '[platform]\nname = "a"\n[gateway.a2a]\nlisten = "127.0.0.1:0"\n[[gateway.a2a.caller]]\nname = "b"\ncertificate = true\n'
    told = sealbus("up", "--check", "-", stdin=manifest.encode(), expect=None)
    assert told.returncode != 0 and b"cannot show a certificate without TLS" in told.stderr, told

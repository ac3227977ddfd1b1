"""HTTPS with the platform's own certificate, one-sided and mutual, against peers of other makes: curl, OpenSSL, JADE."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sealbus
from conftest import LIMIT, Jade
from harness import Platform, wait_for
from sealbus import AclMessage, Agent

ENVELOPE = (
    '<?xml version="1.0"?><envelope><params index="1">'
    "<to><agent-identifier><name>visitor@factory</name></agent-identifier></to>"
    "<from><agent-identifier><name>caller@plat1</name></agent-identifier></from>"
    "<acl-representation>fipa.acl.rep.string.std</acl-representation><date>20261121T050545446</date>"
    "</params></envelope>"
)
MESSAGE = (
    "(INFORM :sender (agent-identifier :name caller@plat1)"
    ' :receiver (set (agent-identifier :name visitor@factory)) :content "hello")'
)
BODY = f"--b\r\n\r\n{ENVELOPE}\r\n--b\r\n\r\n{MESSAGE}\r\n--b--\r\n"


def run(*arguments: object, expect: int = 0, stdin: str = "") -> str:
    try:
        done = subprocess.run(
            list(map(str, arguments)), input=stdin, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except FileNotFoundError as error:
        pytest.exit(f"{error.filename} is missing: apt-get install curl openssl", returncode=1)
    assert done.returncode == expect, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def curl(*arguments: object, expect: int = 0) -> str:
    return run("curl", "--silent", "--show-error", "--max-time", int(LIMIT), *arguments, expect=expect)


def post(*arguments: object, expect: int = 0) -> str:
    """Sends one message, and gives the status."""
    return curl(
        *("--data-binary", BODY, "--header", 'Content-Type: multipart/mixed; boundary="b"'),
        *("--output", "/dev/null", "--write-out", "%{http_code}", *arguments),
        expect=expect,
    )


class Partners:
    """An authority of others, made by OpenSSL, and certificates that it signed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = folder / "partners.pem"
        run(
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-days", 2, "-subj", "/CN=partners", "-keyout", folder / "partners.key", "-out", self.certificate),
        )

    def path(self, name: str) -> Path:
        return self.folder / name

    def certify(self, name: str) -> str:
        """Makes `name`.pem and `name`.key; gives the certificate's fingerprint."""
        certificate, key, request = (self.path(f"{name}.{end}") for end in ("pem", "key", "csr"))
        run(
            *("openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", request),
        )
        run(
            *("openssl", "x509", "-req", "-in", request, "-days", 1, "-copy_extensions", "copy"),
            *("-CA", self.certificate, "-CAkey", self.path("partners.key"), "-CAcreateserial", "-out", certificate),
        )
        shown = run("openssl", "x509", "-in", certificate, "-noout", "-fingerprint", "-sha256")
        return shown.split("=")[1].strip().replace(":", "").lower()

    def store(self, name: str) -> Path:
        """A certificate with its key, as Java keeps them."""
        store = self.path(f"{name}.p12")
        run(
            *("openssl", "pkcs12", "-export", "-in", self.path(f"{name}.pem"), "-inkey", self.path(f"{name}.key")),
            *("-name", name, "-out", store, "-passout", "pass:secret"),
        )
        return store

    def friends(self, certificate: Path) -> Path:
        """The authorities JADE is to believe."""
        store = self.path(f"{certificate.stem}.jks")
        run(
            *("keytool", "-importcert", "-noprompt", "-storetype", "JKS", "-storepass", "secret"),
            *("-alias", "factory", "-file", certificate, "-keystore", store),
        )
        return store


@pytest.fixture
def partners(tmp_path: Path) -> Partners:
    folder = tmp_path / "partners"
    folder.mkdir()
    return Partners(folder)


@pytest.fixture
def factory(tmp_path: Path) -> Any:
    """Starts a platform whose gateway has these lines below `[gateway.http.tls]`."""
    made: list[Platform] = []

    def start(tls: str = "", http: str = "", platform: str = "") -> Platform:
        directory = tmp_path / "factory"
        directory.mkdir()
        manifest = f"""
            [platform]
            name = "factory"
            {platform}
            [gateway.http]
            listen = "127.0.0.1:0"
            {http}
            [gateway.http.tls]
            {tls}
        """
        made.append(Platform(directory, manifest))
        return made[-1].up()

    try:
        yield start
    finally:
        for each in made:
            each.down()


async def heard(visitor: Agent, *arguments: object) -> AclMessage:
    """Posts a message from outside, and gives it as the agent gets it."""
    waiting = asyncio.create_task(visitor.receive(timeout=LIMIT))
    assert await asyncio.to_thread(post, *arguments) == "200"
    return await waiting


def address(factory: Platform) -> str:
    status = wait_for(
        lambda: factory.ask("gateway", "list")["gateway"], "the gateway to run", also=factory.logs
    )
    (found,) = status["addresses"]
    assert found.startswith("https://127.0.0.1:")
    return str(found)


def root(factory: Platform) -> Path:
    """The platform's root certificate, as its operator hands it to others."""
    path = factory.directory / "root.pem"
    path.write_bytes(factory.tell("ca", "root").stdout)
    return path


async def test_the_platforms_own_certificate(factory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ours: Platform = factory()
    url, trust = address(ours), root(ours)
    assert f"(sequence {url})" in curl("--cacert", trust, url)
    # 60: the certificate is not believed.
    curl(url, expect=60)
    ours.ask("gateway", "allow", "plat1", "--to", "visitor", "--from", "127.0.0.1")
    monkeypatch.setenv("SEALBUS_TICKET", ours.ask("ticket", "visitor")["ticket"])
    async with sealbus.Platform() as platform:
        visitor = await platform.start(Agent("visitor"))
        message = await heard(visitor, "--cacert", trust, url)
        assert (message.content_text, message.provenance) == ("hello", "foreign")
        # 35: no older TLS.
        post("--cacert", trust, "--tls-max", "1.2", url, expect=35)


def test_a_renewed_certificate_is_shown(factory: Any) -> None:
    ours: Platform = factory(platform='lifetime = "30s"')
    host, trust = address(ours).removeprefix("https://").removesuffix("/acc"), root(ours)

    def serial() -> str:
        shown = run(
            *("openssl", "s_client", "-connect", host, "-CAfile", trust),
            *("-verify_return_error", "-verify_ip", "127.0.0.1"),
        )
        return run("openssl", "x509", "-noout", "-serial", stdin=shown)

    first = serial()
    wait_for(lambda: serial() != first, "the gateway to show a new certificate", also=ours.logs)


async def test_clients_need_a_certificate_where_one_is_asked_for(
    factory: Any, partners: Partners, monkeypatch: pytest.MonkeyPatch
) -> None:
    fingerprint = partners.certify("plat1")
    partners.certify("other")
    ours: Platform = factory(tls=f'clients = "{partners.certificate}"')
    url, trust = address(ours), root(ours)
    ours.ask("gateway", "allow", "plat1", "--to", "visitor", "--from", "127.0.0.1", "--certificate", fingerprint)

    def shown(name: str) -> tuple[object, ...]:
        return ("--cacert", trust, "--cert", partners.path(f"{name}.pem"), "--key", partners.path(f"{name}.key"))

    # 56: the connection was ended by an alert.
    post("--cacert", trust, url, expect=56)
    wait_for(
        lambda: ours.ask("gateway", "counters")["refused"].get("malformed") == 1,
        "it to be counted",
        also=ours.logs,
    )
    wait_for(
        lambda: any("certificate" in refusal["reason"] for refusal in ours.refusals()),
        "the refusal to be told",
        also=ours.logs,
    )
    monkeypatch.setenv("SEALBUS_TICKET", ours.ask("ticket", "visitor")["ticket"])
    async with sealbus.Platform() as platform:
        visitor = await platform.start(Agent("visitor"))
        # A certificate of the same authority, but not the one of the rule.
        assert post(*shown("other"), url) == "403"
        message = await heard(visitor, *shown("plat1"), url)
        assert message.content_text == "hello"


async def test_jade_and_we_prove_ourselves_to_each_other(
    jade: Callable[..., Jade], factory: Any, partners: Partners, monkeypatch: pytest.MonkeyPatch
) -> None:
    fingerprint = partners.certify("plat1")
    ours: Platform = factory(
        tls=f'clients = "{partners.certificate}"', http=f'trust = "{partners.certificate}"'
    )
    address(ours)
    ours.ask("gateway", "allow", "plat1", "--to", "visitor", "--from", "127.0.0.1", "--certificate", fingerprint)
    # JADE believes authorities of its list alone, and asks for a certificate itself.
    options = {
        "needClientAuth": "yes",
        "trustManagerClass": "jade.mtp.http.https.FriendListAuthentication",
        "friendListFile": partners.friends(root(ours)),
        "friendListFilePass": "secret",
        "keyStoreFile": partners.store("plat1"),
        "keyStorePass": "secret",
        "keyStoreType": "PKCS12",
    }
    plat1 = jade(https=options, partner="Partner")
    assert plat1.address.startswith("https://")
    monkeypatch.setenv("SEALBUS_TICKET", ours.ask("ticket", "visitor")["ticket"])
    async with sealbus.Platform() as platform:
        visitor = await platform.start(Agent("visitor"))
        partner = plat1.aid("partner")
        pong = await visitor.request(AclMessage("request", partner, "ping"), timeout=LIMIT)
        assert (pong.content_text, pong.provenance) == ("ping", "foreign")
        for number in range(100):
            await visitor.send(AclMessage("inform", partner, str(number)))
        for number in range(100):
            assert (await visitor.receive(timeout=LIMIT)).content_text == str(number)
    # JADE lets in no client without a certificate either, so it took our certificate.
    curl("--insecure", plat1.address, expect=56)

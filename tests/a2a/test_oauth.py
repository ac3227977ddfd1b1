"""Callers with tokens of an authorization server, over mutual TLS, with the official client."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from authlib.integrations.httpx_client import OAuth2Client
from cryptography.hazmat.primitives.serialization import Encoding

from conftest import MANIFEST, Door, say, start
from harness import DEADLINE
from login import App, Authority, Login
from ports import free_port

OAUTH = """
    hosts = ["localhost"]
    trust = "FOLDER/authority.pem"

    [gateway.a2a.tls]
    certificate = "FOLDER/door.pem"
    key = "FOLDER/door.key"
    clients = "FOLDER/authority.pem"

    [gateway.a2a.oauth]
    issuer = "ISSUER"
    keys = "ISSUER/keys"
    resource = "https://localhost:PORT"

    [[gateway.a2a.caller]]
    name = "keeper"
    subject = "app-1"
    scopes = ["vault:open"]

    [[gateway.a2a.caller]]
    name = "visitor"
    subject = "app-1"

    [[permission.rule]]
    deny = { from = ["visitor"], to = ["vault"] }
"""


@dataclass
class Guarded:
    """A door with mutual TLS, and the issuer of tokens for it."""

    door: Door
    login: Login
    authority: Authority
    thumbprint: str

    def sign(self, **claims: Any) -> str:
        return self.login.sign(**{"aud": self.door.url, **claims})

    def card(self, agent: str, token: str | None, client: str | None = "holder") -> tuple[int, Any]:
        port = int(self.door.url.rsplit(":", 1)[1])
        connection = http.client.HTTPSConnection("localhost", port, timeout=DEADLINE, context=self.authority.context(client))
        fields = {"Authorization": f"Bearer {token}"} if token is not None else {}
        try:
            connection.request("GET", f"/agents/{agent}/.well-known/agent-card.json", headers=fields)
            answer = connection.getresponse()
            body = answer.read()
            return answer.status, json.loads(body) if answer.status == 200 else body
        finally:
            connection.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("factory")
    authority = Authority(directory)
    authority.certify("door")
    authority.certify("thief")
    holder = authority.certify("holder")
    digest = hashlib.sha256(holder.public_bytes(Encoding.DER)).digest()
    thumbprint = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    login = Login(authority, [App("app-1", "secret", "tools vault:open")])
    port = str(free_port())
    manifest = MANIFEST.replace('listen = "127.0.0.1:0"', f'listen = "127.0.0.1:{port}"')
    manifest = manifest.replace('anonymous = "guest"\n    hosts = ["agents.example"]\n', OAUTH, 1)
    manifest = manifest.replace("FOLDER", str(directory)).replace("ISSUER", login.issuer).replace("PORT", port)
    with contextlib.ExitStack() as stack:
        stack.callback(login.close)
        factory, door = start(directory, manifest, authority.context("holder"))
        stack.callback(factory.down)
        assert door.url == f"https://localhost:{port}"
        yield Guarded(door, login, authority, thumbprint)


@pytest.mark.parametrize("scope", ["tools", "vault:open"])
async def test_the_official_client_comes_in_with_a_token(guarded: Guarded, scope: str) -> None:
    context = guarded.authority.context("holder")
    with OAuth2Client("app-1", "secret", scope=scope, verify=context) as app:
        token = app.fetch_token(f"{guarded.login.issuer}/token", grant_type="client_credentials", resource=guarded.door.url)
    fields = {"Authorization": f"Bearer {token['access_token']}"}
    async with httpx.AsyncClient(headers=fields, verify=context, timeout=DEADLINE) as web:
        card = await A2ACardResolver(web, f"{guarded.door.url}/agents/echo").get_agent_card()
        assert card.supported_interfaces[0].url == f"{guarded.door.url}/agents/echo"
        assert guarded.login.issuer in card.security_schemes["token"].http_auth_security_scheme.description
        assert [set(it.schemes) for it in card.security_requirements] == [{"key"}, {"token"}]
        client = ClientFactory(ClientConfig(httpx_client=web)).create(card)
        texts = [event async for event in client.send_message(say("hello"))]
        assert "hello" in str(texts)
    assert guarded.card("vault", token["access_token"])[0] == (200 if scope == "vault:open" else 404)


def test_a_bound_token_needs_its_certificate(guarded: Guarded) -> None:
    bound = guarded.sign(cnf={"x5t#S256": guarded.thumbprint})
    assert guarded.card("echo", bound)[0] == 200
    assert guarded.card("echo", bound, client="thief")[0] == 401
    assert guarded.card("echo", guarded.sign(), client="thief")[0] == 200


def test_callers_without_a_certificate_are_not_spoken_to(guarded: Guarded) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
        guarded.card("echo", guarded.sign(), client=None)


def test_tokens_of_others_open_nothing(guarded: Guarded) -> None:
    for wrong in (guarded.sign(aud="https://localhost"), guarded.sign(iss="https://evil.example"), guarded.sign(exp=1)):
        assert guarded.card("echo", wrong) == (401, b"the key opens nothing")
    port = int(guarded.door.url.rsplit(":", 1)[1])
    with contextlib.closing(
        http.client.HTTPSConnection("localhost", port, timeout=DEADLINE, context=guarded.authority.context("holder"))
    ) as connection:
        connection.request("POST", "/agents/echo", "{}")
        answer = connection.getresponse()
        assert answer.status == 401
        metadata = f'resource_metadata="{guarded.door.url}/.well-known/oauth-protected-resource"'
        assert metadata in answer.headers["WWW-Authenticate"]
        answer.read()
        connection.request("GET", "/.well-known/oauth-protected-resource")
        document = json.loads(connection.getresponse().read())
    assert (document["resource"], document["authorization_servers"]) == (guarded.door.url, [guarded.login.issuer])

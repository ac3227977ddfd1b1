"""Callers with tokens of an authorization server, over TLS: the official client finds the server by itself."""

from __future__ import annotations

import base64
import contextlib
import hmac
import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from joserfc.jwk import RSAKey
from mcp import Client
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from conftest import MANIFEST, Door, start
from harness import DEADLINE, wait_for
from login import App, Authority, Login
from ports import free_port

OAUTH = """
    hosts = ["localhost"]
    trust = "FOLDER/authority.pem"

    [gateway.mcp.tls]
    certificate = "FOLDER/door.pem"
    key = "FOLDER/door.key"

    [gateway.mcp.oauth]
    issuer = "ISSUER"
    keys = "ISSUER/keys"
    resource = "https://localhost:PORT/mcp"

    [[gateway.mcp.caller]]
    name = "keeper"
    subject = "app-1"
    scopes = ["vault:open", "tools"]

    [[gateway.mcp.caller]]
    name = "visitor"
    subject = "app-1"
    scopes = ["tools"]

    [[permission.rule]]
    deny = { from = ["visitor"], to = ["vault"] }
"""


@dataclass
class Guarded:
    """A door with TLS, and the issuer of tokens for it."""

    door: Door
    login: Login
    authority: Authority
    resource: str

    def sign(self, **claims: Any) -> str:
        return self.login.sign(**{"aud": self.resource, "scope": "tools", **claims})

    def get(
        self, path: str, *, token: str | None = None, method: str = "GET", body: object = None, address: str = "127.0.0.1"
    ) -> tuple[int, dict[str, str], bytes]:
        port = int(self.resource.split(":")[2].split("/")[0])
        connection = http.client.HTTPSConnection(
            "localhost", port, timeout=DEADLINE, context=self.authority.context(), source_address=(address, 0)
        )
        fields = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if token is not None:
            fields["Authorization"] = f"Bearer {token}"
        if body is not None:
            fields |= {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, fields)
            answer = connection.getresponse()
            return answer.status, {name.lower(): it for name, it in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def call(self, token: str | None, address: str = "127.0.0.1") -> tuple[int, dict[str, str], bytes]:
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "mallory", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        body = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {"_meta": meta}}
        return self.get("/mcp", token=token, method="POST", body=body, address=address)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("factory")
    authority = Authority(directory)
    authority.certify("door")
    login = Login(authority, [App("app-1", "secret", "tools vault:open"), App("app-2", "secret", "tools")])
    port = str(free_port())
    manifest = MANIFEST.replace('listen = "127.0.0.1:0"', f'listen = "127.0.0.1:{port}"').replace('anonymous = "guest"\n', OAUTH, 1)
    manifest = manifest.replace("FOLDER", str(directory)).replace("ISSUER", login.issuer).replace("PORT", port)
    with contextlib.ExitStack() as stack:
        stack.callback(login.close)
        factory, door = start(directory, manifest)
        stack.callback(factory.down)
        assert door.url == f"https://localhost:{port}/mcp"
        yield Guarded(door, login, authority, door.url)


class Storage:
    """Where the official client keeps its token."""

    token: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.token

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.token = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


@pytest.mark.parametrize("scope", ["tools", "tools vault:open"])
async def test_the_official_client_finds_the_issuer_and_comes_in(guarded: Guarded, scope: str) -> None:
    storage = Storage()
    # The client asks for the scopes that the challenge names, and the issuer grants what the app may have.
    name = "app-1"
    auth = ClientCredentialsOAuthProvider(
        guarded.resource, storage, name, "secret", scope=scope, issuer=guarded.login.issuer
    )
    async with httpx2.AsyncClient(auth=auth, verify=guarded.authority.context(), timeout=120) as http:
        async with Client(streamable_http_client(guarded.resource, http_client=http)) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert "clock__double" in tools
            assert storage.token is not None
            has_vault = "vault:open" in (storage.token.scope or "")
            assert ("vault__open" in tools) is has_vault
            answer = await client.call_tool("clock__double", {"input": 21})
            assert answer.structured_content == {"result": 42}


def test_who_has_no_token_is_told_where_tokens_come_from(guarded: Guarded) -> None:
    status, headers, _ = guarded.call(None)
    assert status == 401
    challenge = headers["www-authenticate"]
    metadata = guarded.resource.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
    assert f'resource_metadata="{metadata}"' in challenge and 'scope="vault:open tools"' in challenge
    assert "error" not in challenge
    status, headers, body = guarded.get("/.well-known/oauth-protected-resource/mcp")
    assert status == 200 and headers["content-type"] == "application/json"
    document = json.loads(body)
    assert document["resource"] == guarded.resource
    assert document["authorization_servers"] == [guarded.login.issuer]
    assert set(document["scopes_supported"]) == {"tools", "vault:open"}


def test_scopes_are_rights(guarded: Guarded) -> None:
    status, _, body = guarded.call(guarded.sign(scope="tools"))
    assert status == 200 and b"clock__double" in body and b"vault__open" not in body
    status, _, body = guarded.call(guarded.sign(scope="openid tools vault:open"))
    assert status == 200 and b"vault__open" in body
    for scope in (None, "", "vault:open", "tool", "tools:more"):
        status, headers, _ = guarded.call(guarded.sign(scope=scope))
        assert status == 403, scope
        assert 'error="insufficient_scope"' in headers["www-authenticate"]


def test_tokens_of_others_open_nothing(guarded: Guarded) -> None:
    sign, now = guarded.sign, int(time.time())
    assert guarded.call(sign())[0] == 200
    public = guarded.login.key.as_pem(private=False)
    foreign = RSAKey.generate_key(2048, {"kid": "first"}, private=True)

    def part(value: object) -> str:
        raw = value if isinstance(value, bytes) else json.dumps(value).encode()
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    _, claims, signature = sign().split(".")
    symmetric = f"{part({'alg': 'HS256', 'kid': 'first'})}.{claims}"
    wrong = {
        "audience": sign(aud="https://localhost:1/mcp"),
        "no audience": sign(aud=None),
        "the app itself": sign(aud="app-1"),
        "issuer": sign(iss="https://localhost:1"),
        "expired": sign(exp=now - 120),
        "without end": sign(exp=None),
        "early": sign(nbf=now + 600),
        "another subject": sign(sub="app-2"),
        "no subject": sign(sub=None),
        "foreign key": sign(key=foreign),
        "unknown key": sign(key=foreign, header={"kid": "other"}),
        "public key as secret": f"{symmetric}.{part(hmac.digest(public, symmetric.encode(), 'sha256'))}",
        "no signature": f"{part({'alg': 'none', 'kid': 'first'})}.{claims}.",
        "signature of another": f"{part({'alg': 'RS256', 'kid': 'first', 'typ': 'JWT'})}.{claims}.{signature}",
        "own key in the head": sign(key=foreign, header={"kid": None, "jwk": foreign.as_dict(private=False)}),
        "keys elsewhere": sign(key=foreign, header={"kid": "x", "jku": "https://evil.example/keys"}),
        "bound to a certificate": sign(cnf={"x5t#S256": "A4DtL2JmUMhAsvJj5tKyn64SqzmuXbMrJa0n761y5v0"}),
        "bound to a key": sign(cnf={"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"}),
        "another kind": sign(header={"typ": "dpop+jwt"}),
        "too long": sign(note="x" * 9_000),
        "pieces": "..",
        "two": f"{sign()}, Bearer {sign()}",
    }
    for number, (why, token) in enumerate(wrong.items()):
        # Each address has a share of the log.
        status, headers, body = guarded.call(token, f"127.0.1.{number + 1}")
        assert status == 401, (why, status, body)
        assert 'error="invalid_token"' in headers["www-authenticate"], why
        # Nothing about the reason.
        assert body == b"the key opens nothing", why
    log = guarded.door.factory.tell("logs", "mcp").stdout.decode()
    assert "it is for another resource (aud)" in log and "it has expired" in log
    assert sign().rsplit(".", 1)[0] not in log
    # The keys callers have are good beside tokens.
    assert guarded.call(guarded.door.keys["assistant"])[0] == 200


def test_invented_keys_do_not_make_the_gateway_call_its_issuer_each_time(guarded: Guarded) -> None:
    assert guarded.call(guarded.sign())[0] == 200
    before, begun = guarded.login.fetched, time.monotonic()
    foreign = RSAKey.generate_key(2048, {"kid": "x"}, private=True)
    for number in range(40):
        assert guarded.call(guarded.sign(key=foreign, header={"kid": f"invented-{number}"}))[0] == 401
    # One each five seconds, as long as it took.
    assert guarded.login.fetched - before <= 2 + (time.monotonic() - begun) / 5


def test_a_stream_ends_with_its_token(guarded: Guarded) -> None:
    """A stream for news, in the protocol before 2026-07-28, has no end of its own."""
    # It is accepted for thirty seconds more, because clocks differ. The session begins before that on a busy machine, too.
    token = guarded.sign(exp=int(time.time()) - 1)
    hello = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
    }  # fmt: skip
    with httpx2.Client(verify=guarded.authority.context(), timeout=DEADLINE) as client:
        fields = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
        greeted = client.post(guarded.resource, json=hello, headers=fields)
        # A stream, too, and it has come to its own end.
        assert '"serverInfo"' in greeted.text
        fields |= {"Mcp-Session-Id": greeted.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
        begun = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert client.post(guarded.resource, json=begun, headers=fields).status_code == 202
        with client.stream("GET", guarded.resource, headers=fields) as stream:
            assert stream.status_code == 200
            for _ in stream.iter_raw():
                pass


def test_callers_without_tls_are_not_spoken_to(guarded: Guarded) -> None:
    port = int(guarded.resource.split(":")[2].split("/")[0])
    connection = http.client.HTTPConnection("localhost", port, timeout=DEADLINE)
    with pytest.raises((OSError, http.client.HTTPException)):
        connection.request("GET", "/.well-known/oauth-protected-resource")
        connection.getresponse()
    connection.close()


def test_new_keys_of_the_issuer_are_found_and_old_ones_forgotten(guarded: Guarded) -> None:
    old = guarded.sign()
    assert guarded.call(old)[0] == 200
    guarded.login.rotate()
    new = guarded.sign(header={"kid": "second"})
    wait_for(lambda: guarded.call(new)[0] == 200, "the new key to be known", also=guarded.door.factory.logs)
    assert guarded.call(old)[0] == 401

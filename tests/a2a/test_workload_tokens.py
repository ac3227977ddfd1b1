"""Tokens by which our agents prove outside which agent they are: checked by libraries of others, and at another platform's door."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
import pytest
from joserfc import jwt as jose
from joserfc.jwk import KeySet

from conftest import PROGRAMS, Door, listening
from harness import DEADLINE, Platform, wait_for
from ports import free_port

HOME = """
    [platform]
    name = "factory"
    workload-issuer = "ISSUER"
    lifetime = "LIFETIME"

    [gateway.a2a]
    listen = "127.0.0.1:PORT"
    anonymous = "guest"

    [[agent]]
    name = "envoys"
    command = ["PYTHON", "ENVOY", "NOTES"]
    agents = ["envoy", "clerk"]
    write = ["NOTES"]
"""
ABROAD = """
    [platform]
    name = "market"

    [gateway.a2a]
    listen = "127.0.0.1:PORT"

    [gateway.a2a.oauth]
    issuer = "ISSUER"
    keys = "ISSUER/.well-known/workload-keys.json"
    resource = "http://127.0.0.1:PORT"

    [[gateway.a2a.caller]]
    name = "friend"
    subject = "spiffe://factory/agent/envoy"

    [[agent]]
    name = "office"
    command = ["PYTHON", "OFFICE", "NOTES"]
    agents = ["clock", "echo", "vault", "flood", "oracle"]
    write = ["NOTES"]
"""


def begin(directory: Path, manifest: str, issuer: str | None = None, lifetime: str = "1h") -> tuple[Platform, Door]:
    """A platform, and its door for A2A. By default its gateway is the issuer."""
    notes = directory / "notes"
    notes.mkdir(parents=True)
    port = str(free_port())
    manifest = manifest.replace("ISSUER", issuer or f"http://127.0.0.1:{port}").replace("PORT", port).replace("LIFETIME", lifetime)
    manifest = manifest.replace("ENVOY", str(PROGRAMS / "envoy.py")).replace("OFFICE", str(PROGRAMS / "office.py"))
    platform = Platform(directory, manifest.replace("NOTES", str(notes))).up()
    return platform, Door(platform, listening(platform), {}, notes)


@dataclass
class Envoy:
    """A platform whose agents get tokens."""

    factory: Platform
    door: Door

    @property
    def issuer(self) -> str:
        return self.door.url

    def asks(self, audience: str) -> dict[str, Any]:
        """The task in which the agent `envoy` gets a token."""
        message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": audience}]}
        return dict(self.door.call("envoy", "SendMessage", {"message": message}, caller=None)["result"]["task"])

    def token(self, audience: str) -> tuple[str, float]:
        """A token, and when it ends by the agent's word."""
        task = self.asks(audience)
        assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
        token, _, expires = task["artifacts"][0]["parts"][0]["text"].partition(" ")
        return token, float(expires)

    def published(self, path: str) -> Any:
        with urllib.request.urlopen(self.issuer + path, timeout=DEADLINE) as answer:
            assert answer.headers["content-type"] == "application/json"
            return json.load(answer)


@pytest.fixture(scope="module")
def envoy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Envoy]:
    with ExitStack() as stack:
        factory, door = begin(tmp_path_factory.mktemp("factory"), HOME)
        stack.callback(factory.down)
        card = "/agents/envoy/.well-known/agent-card.json"
        wait_for(lambda: door.send("GET", card, caller=None)[0] == 200, "the card", also=factory.logs)
        yield Envoy(factory, door)


def test_libraries_of_others_believe_a_token(envoy: Envoy) -> None:
    began = time.time()
    token, expires = envoy.token("https://api.example")
    found = envoy.published("/.well-known/openid-configuration")
    assert found["issuer"] == envoy.issuer
    key = jwt.PyJWKClient(found["jwks_uri"]).get_signing_key_from_jwt(token)
    algorithms = found["id_token_signing_alg_values_supported"]
    needed = {"require": ["iss", "sub", "aud", "exp", "iat", "jti"]}
    claims = jwt.decode(token, key, algorithms, needed, audience="https://api.example", issuer=envoy.issuer)
    assert claims["sub"] == claims["client_id"] == "spiffe://factory/agent/envoy"
    assert claims["exp"] == expires and claims["exp"] - claims["iat"] == 300
    # Seconds are cut off, and clocks of one machine agree.
    assert began - 1 <= claims["iat"] <= time.time()
    for audience in ("https://other.example", "https://api.example/"):
        with pytest.raises(jwt.InvalidAudienceError):
            jwt.decode(token, key, algorithms, audience=audience)
    keys = KeySet.import_key_set(envoy.published(found["jwks_uri"].removeprefix(envoy.issuer)))
    assert jose.decode(token, keys, algorithms=["ES256"]).claims == claims
    assert jwt.get_unverified_header(token)["typ"] == "JWT"
    again, _ = envoy.token("https://api.example")
    assert jwt.decode(again, key, algorithms, audience="https://api.example")["jti"] != claims["jti"]


def test_the_keys_of_cards_and_those_of_tokens_are_not_the_same(envoy: Envoy) -> None:
    def ids(path: str) -> set[str]:
        return {key["kid"] for key in envoy.published(path)["keys"]}

    assert ids("/.well-known/jwks.json").isdisjoint(ids("/.well-known/workload-keys.json"))
    for path in ("/x/.well-known/workload-keys.json", "/.well-known/workload-keys.json/x"):
        with pytest.raises(urllib.error.HTTPError):
            envoy.published(path)


@pytest.mark.parametrize("audience", ["", "a\nb", "a" * 1025])
def test_what_is_no_audience_gets_no_token(envoy: Envoy, audience: str) -> None:
    task = envoy.asks(audience)
    assert task["status"]["state"] == "TASK_STATE_FAILED", task
    assert "the audience of a workload token" in json.dumps(task["status"])


def test_another_platform_lets_our_agent_in(envoy: Envoy, tmp_path_factory: pytest.TempPathFactory) -> None:
    market, door = begin(tmp_path_factory.mktemp("market"), ABROAD, issuer=envoy.issuer)
    try:
        card = "/agents/oracle/.well-known/agent-card.json"
        wait_for(lambda: door.send("GET", card, caller=None)[0] == 200, "the card", also=market.logs)
        door.keys["envoy"], _ = envoy.token(door.url)
        door.keys["other"], _ = envoy.token("https://api.example")
        message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "the trace"}]}
        task = door.call("oracle", "SendMessage", {"message": message}, caller="envoy")["result"]["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
        (caller,) = market.ask("gateway", "counters")["a2a"]["callers"]
        assert (caller["agent"], caller["requests"]) == ("friend", 1)
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        assert door.send("POST", "/agents/oracle", body, caller="other")[0] == 401
        head, claims, signature = door.keys["envoy"].split(".")
        door.keys["forged"] = f"{head}.{claims}.{signature[:-4]}AAAA"
        assert door.send("POST", "/agents/oracle", body, caller="forged")[0] == 401
    finally:
        market.down()


def test_a_revoked_agent_gets_no_token_and_others_do(envoy: Envoy) -> None:
    latest = envoy.door.notes / "latest"
    wait_for(lambda: latest.exists() and latest.read_text() == "a token", "a token", also=envoy.factory.logs)
    envoy.factory.tell("ca", "revoke", "clerk")
    wait_for(lambda: latest.read_text().startswith("none: "), "no token", also=envoy.factory.logs)
    envoy.token("https://api.example")


def test_a_token_ends_with_the_certificate_and_without_an_issuer_there_is_none(tmp_path: Path) -> None:
    factory, door = begin(tmp_path / "short", HOME, lifetime="2m")
    try:
        card = "/agents/envoy/.well-known/agent-card.json"
        wait_for(lambda: door.send("GET", card, caller=None)[0] == 200, "the card", also=factory.logs)
        _, expires = Envoy(factory, door).token("a")
        ends = [it["not_after"] / 1000 for it in factory.ask("ca", "list") if it["identity"] == "spiffe://factory/agent/envoy"]
        assert expires in ends
    finally:
        factory.down()
    factory, door = begin(tmp_path / "none", HOME.replace('workload-issuer = "ISSUER"', ""))
    try:
        wait_for(lambda: door.send("GET", card, caller=None)[0] == 200, "the card", also=factory.logs)
        told = json.dumps(Envoy(factory, door).asks("a")["status"])
        assert "this platform makes no workload tokens" in told and "workload-issuer" in told
        assert door.send("GET", "/.well-known/openid-configuration", caller=None)[0] == 404
    finally:
        factory.down()

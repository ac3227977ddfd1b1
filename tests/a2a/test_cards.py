"""Signed cards, as the official verifier and plain libraries see them, and the extended card."""

from __future__ import annotations

import base64
import json
import warnings
from typing import Any

import httpx
import jwt
import pytest
from a2a.client import A2ACardResolver
from a2a.types import AgentCard, GetExtendedAgentCardRequest
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from google.protobuf.json_format import MessageToDict, ParseDict

from conftest import Door
from harness import DEADLINE

EXTENDED = {"JSONRPC": "GetExtendedAgentCard", "HTTP+JSON": "extendedAgentCard"}


def fetch(door: Door, agent: str = "clock") -> dict[str, Any]:
    status, _, body = door.send("GET", f"/agents/{agent}/.well-known/agent-card.json")
    assert status == 200
    return dict(json.loads(body))


def keys(door: Door, jku: str | None = None) -> dict[str, jwt.PyJWK]:
    url = jku or f"{door.url}/.well-known/jwks.json"
    answer = httpx.get(url, timeout=DEADLINE)
    return {key["kid"]: jwt.PyJWK(key) for key in answer.json()["keys"]}


def verifier(door: Door) -> Any:
    def provide(kid: str | None, jku: str | None) -> jwt.PyJWK:
        assert kid is not None and jku == f"{door.url}/.well-known/jwks.json"
        return keys(door, jku)[kid]

    return create_signature_verifier(provide, ["EdDSA"])


async def test_the_official_verifier_believes_a_card(door: Door) -> None:
    verify = verifier(door)
    async with httpx.AsyncClient(headers=door.headers("assistant"), timeout=DEADLINE) as http:
        for agent in ("clock", "echo", "flood", "oracle"):
            card = await A2ACardResolver(http, f"{door.url}/agents/{agent}").get_agent_card(signature_verifier=verify)
            assert card.signatures


def test_a_signature_covers_every_member(door: Door) -> None:
    verify = verifier(door)
    good = fetch(door)
    verify(ParseDict(good, AgentCard()))

    def leaves(value: Any, path: tuple[Any, ...] = ()) -> Any:
        if isinstance(value, dict):
            for name, each in value.items():
                yield from leaves(each, (*path, name))
        elif isinstance(value, list):
            assert value, f"{path} is empty: who knows whether the signature covers it"
            for index, each in enumerate(value):
                yield from leaves(each, (*path, index))
        else:
            assert value not in ("", False, 0, None), path
            yield path

    changed = 0
    for path in leaves({name: it for name, it in good.items() if name != "signatures"}):
        card = json.loads(json.dumps(good))
        place = card
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = not place[path[-1]] if isinstance(place[path[-1]], bool) else place[path[-1]] + "x"
        with pytest.raises(InvalidSignaturesError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            verify(ParseDict(card, AgentCard()))
        changed += 1
    assert changed > 20
    other = fetch(door, "echo")
    with pytest.raises(InvalidSignaturesError):
        verify(ParseDict({**other, "signatures": good["signatures"]}, AgentCard()))


def test_the_signer_is_certified_by_the_platform(door: Door) -> None:
    (signature,) = fetch(door)["signatures"]
    part = signature["protected"]
    protected = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    assert (protected["alg"], protected["typ"]) == ("EdDSA", "JOSE")
    chain = [x509.load_der_x509_certificate(base64.b64decode(it)) for it in protected["x5c"]]
    names = chain[0].extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["spiffe://factory/agent/a2a"]
    root = x509.load_pem_x509_certificates((door.factory.state / "log/ca/authority.pem").read_bytes())[-1]
    for below, above in zip(chain, [*chain[1:], root]):
        below.verify_directly_issued_by(above)
    key = chain[0].public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    published = keys(door)[protected["kid"]].key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    assert published == key


def test_the_keys_are_shown_to_everyone(door: Door) -> None:
    status, headers, body = door.send("GET", "/.well-known/jwks.json", caller=None)
    assert status == 200 and headers["content-type"] == "application/json"
    published = json.loads(body)["keys"]
    assert published
    for key in published:
        assert "d" not in key and key["use"] == "sig"
    assert door.send("POST", "/.well-known/jwks.json", {}, caller=None)[0] == 404


async def test_the_extended_card_is_the_callers_card(door: Door, binding: str) -> None:
    verify = verifier(door)
    async with door.client("clock", binding=binding) as client:
        card = await client.get_extended_agent_card(GetExtendedAgentCardRequest(), signature_verifier=verify)
    assert MessageToDict(card)["skills"] == fetch(door)["skills"]

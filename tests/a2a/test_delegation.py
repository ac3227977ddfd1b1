"""On whose behalf an agent asks: from a caller outside, through our agents, to agents of others; by token and by the platform's rules."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jwt
import pytest

from conftest import PROGRAMS, Door, listening, say
from harness import Platform, sealbus, wait_for
from ports import free_port
from test_client import outcome, result, why
from test_neighbours import Server

DELEGATION = "https://github.com/sealbus/sealbus/a2a/delegation/v1"
ACL = "https://mosaico-project.eu/extensions/a2a-acl/"
OFFICE = """
    [platform]
    name = "office"
    workload-issuer = "ISSUER"

    [gateway.a2a]
    listen = "127.0.0.1:OFFICE"
    anonymous = "guest"

    [[gateway.a2a.caller]]
    name = "stranger"
    key = "STRANGER"

    [gateway.neighbours.tea]
    url = "http://127.0.0.1:MARKET/agents/seller"
    token-audience = "http://127.0.0.1:MARKET"

    [gateway.neighbours.probe]
    url = "http://127.0.0.1:PROBE"
    token-audience = "https://probe.example"

    [gateway.neighbours.mosaic]
    url = "http://127.0.0.1:MOSAIC"

    [[permission.rule]]
    deny = { from = ["*"], to = ["keeper"], on-behalf-of = ["stranger"] }

    [[agent]]
    name = "office"
    command = ["PYTHON", "TRADE", "buyer", "clerk", "keeper"]
    agents = ["buyer", "clerk", "keeper"]
"""
MARKET = """
    [platform]
    name = "market"

    [gateway.a2a]
    listen = "127.0.0.1:MARKET"
    anonymous = "visitor"

    [gateway.a2a.oauth]
    issuer = "ISSUER"
    keys = "ISSUER/.well-known/workload-keys.json"
    resource = "http://127.0.0.1:MARKET"

    [[gateway.a2a.caller]]
    name = "partner"
    subject = "spiffe://office/agent/buyer"

    [[agent]]
    name = "market"
    command = ["PYTHON", "TRADE", "seller"]
    agents = ["seller"]
"""


class World:
    """Two platforms that know each other, and servers of the official SDK."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.servers = {
            "probe": Server(stack, folder / "probe.log", "probe.py", "--extension", DELEGATION),
            "mosaic": Server(stack, folder / "mosaic.log", "probe.py", "--extension", ACL),
        }
        ports = {name: str(free_port()) for name in ("OFFICE", "MARKET")}
        ports |= {"ISSUER": f"http://127.0.0.1:{ports['OFFICE']}", "TRADE": str(PROGRAMS / "trade.py")}
        ports |= {name.upper(): str(server.port) for name, server in self.servers.items()}
        self.issuer = ports["ISSUER"]
        made = json.loads(sealbus("gateway", "key", "stranger", "--a2a", "--json").stdout)
        self.keys = {"stranger": str(made["key"])}
        ports["STRANGER"] = made["hash"]
        self.market = self.begin(stack, folder / "market", MARKET, ports)
        self.office = self.begin(stack, folder / "office", OFFICE, ports)
        for door, agents in ((self.market, ["seller"]), (self.office, ["buyer", "clerk", "tea", "probe", "mosaic"])):
            for agent in agents:
                card = f"/agents/{agent}/.well-known/agent-card.json"
                wait_for(lambda: door.send("GET", card, caller=None)[0] == 200, card, also=door.factory.logs)

    def begin(self, stack: ExitStack, folder: Path, manifest: str, ports: dict[str, str]) -> Door:
        folder.mkdir()
        for name, port in ports.items():
            # A key's hash may have letters of other names in it, so whole words are replaced.
            manifest = manifest.replace(f'"{name}"', f'"{port}"').replace(f":{name}", f":{port}").replace(f'"{name}/', f'"{port}/')
        platform = Platform(folder, manifest).up()
        stack.callback(platform.down)
        return Door(platform, listening(platform), self.keys, folder)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(stack, tmp_path_factory.mktemp("world"))


async def answered(door: Door, agent: str, request: Any, caller: str | None = None, **fields: str) -> Any:
    """The result of a task."""
    async with door.client(agent, caller, **fields) as client:
        task = await outcome(client, request)
        assert task.status.state, task
        found = result(task)
        return found[0] if len(found) == 1 else found or why(task)


def told(world: World, text: str, extensions: str | None, chain: object, caller: str | None = None) -> dict[str, Any]:
    message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": text}], "metadata": {DELEGATION: {"chain": chain}}}
    fields = {} if extensions is None else {"A2A_Extensions": extensions}
    return world.office.call("clerk", "SendMessage", {"message": message}, caller=caller, **fields)


def shown(server: Server) -> list[dict[str, Any]]:
    """The requests that a server was to show, with their headers."""
    return [json.loads(line.partition(" ")[2]) for line in server.said() if line.startswith("shown ")]


async def test_the_caller_is_the_first_link(world: World) -> None:
    assert await answered(world.office, "clerk", say("what?")) == "guest@office > clerk@office"


def test_a_caller_may_say_on_whose_behalf_it_asks(world: World) -> None:
    def text(answer: dict[str, Any]) -> str:
        return str(answer["result"]["task"]["artifacts"][0]["parts"][0]["text"])

    chain = ["boss@shop", "assistant@shop"]
    whole = "boss@shop > assistant@shop > guest@office > clerk@office"
    assert text(told(world, "x", f"urn:other, {DELEGATION}", chain)) == whole
    # Without the header, the extension is off.
    assert text(told(world, "x", None, chain)) == "guest@office > clerk@office"
    log = world.office.factory.tell("logs", "a2a").stdout.decode()
    assert "a caller asks on behalf of others" in log and "boss@shop, assistant@shop" in log
    for wrong, problem in [
        (["clerk@office"], "agents of this platform speak for themselves"),
        (["Clerk@OFFICE"], "agents of this platform speak for themselves"),
        ([f"a{number}@shop" for number in range(9)], "at most 8 are allowed"),
        (["boss@shop clerk@shop"], "is not a list of agents' names"),
        ("boss@shop", "NAME@PLATFORM"),
        ([7], "NAME@PLATFORM"),
    ]:
        error = told(world, "x", DELEGATION, wrong)["error"]
        assert error["code"] == -32602 and problem in json.dumps(error), error
    # The agent that would pass it on may not.
    long = text(told(world, "x", DELEGATION, [f"a{number}@shop" for number in range(8)]))
    assert "on behalf of 9 agents" in long and "at most 8 are allowed" in long


async def test_a_rule_says_on_whose_behalf_nobody_asks(world: World) -> None:
    refused = await answered(world.office, "clerk", say("x"), "stranger")
    assert "clerk@office may not write to keeper@office on behalf of stranger@office" in refused
    assert "policy" in refused

    def is_seen() -> bool:
        return b"on behalf of stranger@office" in world.office.factory.tell("ps", "--refused").stdout

    await asyncio.to_thread(wait_for, is_seen, "the refusal to be shown", also=world.office.factory.logs)
    assert await answered(world.office, "clerk", say("x")) == "guest@office > clerk@office"


async def test_an_agent_of_others_hears_who_asks(world: World) -> None:
    await answered(world.office, "buyer", say(data=["request", "probe", "show"], skill="question"))
    server = world.servers["probe"]
    request = shown(server)[-1]
    assert request["metadata"][DELEGATION] == {"chain": ["guest@office", "buyer@office"]}
    assert request["extensions"] == [DELEGATION] and DELEGATION in request["headers"]["a2a-extensions"]
    # The token is the asker's, and names the agent that stands for the neighbour.
    token = request["headers"]["authorization"].removeprefix("Bearer ")
    key = jwt.PyJWKClient(f"{world.issuer}/.well-known/workload-keys.json").get_signing_key_from_jwt(token)
    claims = jwt.decode(token, key, ["ES256"], audience="https://probe.example", issuer=world.issuer)
    assert claims["sub"] == "spiffe://office/agent/buyer"
    assert claims["act"] == {"sub": "spiffe://office/agent/probe"} and claims["client_id"] == claims["act"]["sub"]
    assert claims["exp"] - claims["iat"] <= 300
    assert token not in world.office.factory.tell("logs", "neighbours").stdout.decode()
    # A caller from outside is an agent, too.
    await answered(world.office, "probe", say("show"))
    other = shown(server)[-1]["headers"]["authorization"].removeprefix("Bearer ")
    assert jwt.decode(other, key, ["ES256"], audience="https://probe.example")["sub"] == "spiffe://office/agent/guest"


async def test_a_message_travels_whole_between_two_platforms(world: World) -> None:
    (offer, done) = await answered(world.office, "buyer", say("tea", skill="order"))
    assert (offer["act"], offer["sender"]) == ("propose", "tea@office")
    assert offer["reply_with"] == "offer-1" and offer["in_reply_to"] == "call-1"
    assert offer["conversation_id"] == "sale-7" and offer["protocol"] == "fipa-contract-net"
    assert offer["parameters"]["X-colour"] == "green"
    assert offer["parameters"]["X-Sealbus-Neighbour"].startswith("A2A http://127.0.0.1:")
    call = json.loads(offer["content"])
    assert call["act"] == "cfp" and call["content"] == b"\x00\xfftea".hex()
    assert (call["protocol"], call["ontology"]) == ("fipa-contract-net", "trade")
    assert (call["conversation_id"], call["reply_with"]) == ("sale-7", "call-1")
    # The agent there has the sender by its token, and those who asked by its word.
    assert call["sender"] == "partner@market" and call["chain"] == ["guest@office", "buyer@office"]
    assert call["parameters"]["X-colour"] == "red"
    assert offer["provenance"] == call["provenance"] == "proved"
    assert not [name for name in call["parameters"] if name.startswith("X-Sealbus-") and name != "X-Sealbus-On-Behalf-Of"]
    order = json.loads(done["content"])
    assert order["act"] == "accept-proposal" and order["content"] == "two boxes"
    assert (order["in_reply_to"], order["reply_with"]) == ("offer-1", "order-1")
    assert done["act"] == "inform" and done["in_reply_to"] == "order-1"


async def test_every_act_and_every_part_goes_through(world: World) -> None:
    asked = await answered(world.office, "buyer", say(data=["query-ref", "tea", "price?"], skill="question"))
    assert asked["act"] == "inform" and json.loads(asked["content"])["act"] == "query-ref"
    refused = await answered(world.office, "buyer", say(data=["query-if", "tea", "dear?"], skill="question"))
    assert (refused["act"], refused["content"]) == ("refuse", "that is a secret")
    unknown = await answered(world.office, "buyer", say(data=["subscribe", "tea", "news"], skill="question"))
    assert unknown["act"] == "not-understood"
    assert await answered(world.office, "buyer", say("tea", skill="counted")) == ["0", "1", "2"]


async def test_a_client_without_the_extension_is_served_as_ever(world: World) -> None:
    assert await answered(world.market, "seller", say("3", skill="count")) == ["0", "1", "2"]
    whole = {"performative": "query-ref", "codec": "nl", "mediaType": "application/x-mosaico-a2a-acl"}
    request = say("3", skill="count")
    request.message.metadata.update({ACL: whole})
    # Its data count only if the header says so.
    assert await answered(world.market, "seller", request) == ["0", "1", "2"]
    request = say("price?")
    request.message.metadata.update({ACL: whole})
    async with world.market.client("seller", None, **{"A2A-Extensions": ACL}) as client:
        task = await outcome(client, request)
    (part,) = task.artifacts[0].parts
    assert dict(part.metadata[ACL])["performative"] == "inform" and "message" not in part.metadata[ACL]
    question = json.loads(part.text)
    assert (question["act"], question["content"], question["sender"]) == ("query-ref", "price?", "visitor@market")


def test_what_is_no_acl_message_is_refused(world: World) -> None:
    good = {"performative": "inform", "codec": "nl", "mediaType": "application/x-mosaico-a2a-acl"}
    for change in (
        {"performative": "Inform"},
        {"performative": None},
        {"representation": "fipa.acl.rep.bitefficient.std", "message": "AAAA"},
        {"representation": "fipa.acl.rep.bitefficient.std", "message": "!"},
        {"representation": "another", "message": "AAAA"},
    ):
        message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": "x"}], "metadata": {ACL: good | change}}
        answer = world.market.call("seller", "SendMessage", {"message": message}, caller=None, A2A_Extensions=ACL)
        assert answer["error"]["code"] == -32602, answer


async def test_an_agent_of_others_that_knows_acts_gets_them(world: World) -> None:
    await answered(world.office, "buyer", say(data=["request", "mosaic", "show"], skill="question"))
    request = shown(world.servers["mosaic"])[-1]
    data = {"performative": "request", "codec": "nl", "mediaType": "application/x-mosaico-a2a-acl"}
    assert request["metadata"][ACL] == data and "authorization" not in request["headers"]


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
async def test_cards_declare_the_extensions(world: World, binding: str) -> None:
    card = json.loads(world.market.send("GET", "/agents/seller/.well-known/agent-card.json", caller=None)[2])
    declared = {it["uri"]: it for it in card["capabilities"]["extensions"]}
    assert declared[ACL]["params"] == {"representations": ["fipa.acl.rep.bitefficient.std"]}
    assert DELEGATION in declared
    async with world.market.client("seller", None, binding, **{"A2A-Extensions": ACL}) as client:
        request = say("price?")
        request.message.metadata.update({ACL: {"performative": "ask", "codec": "nl"}})
        task = await outcome(client, request)
    assert json.loads(task.artifacts[0].parts[0].text)["act"] == "query-ref"

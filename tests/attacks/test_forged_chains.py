"""Forged chains of those on whose behalf an agent asks: from a taken-over program on the mesh, and from another platform."""

import json

import pytest
from attacker import mesh
from attacker.acl import management, message, text
from harness import ROOT, bounded, wait_for
from pair import AGENTS
from test_gateway import Door
from test_services import answered

WITNESS = ROOT / "tests" / "attacks" / "programs" / "witness.py"
PARAMETER = "X-Sealbus-On-Behalf-Of"
MANIFEST = f"""
    [platform]
    name = "factory"
    nodes = 2

    [gateway.http]
    listen = "127.0.0.1:0"

    [[gateway.http.allow]]
    platform = "plat1"
    to = ["victim"]
{AGENTS}
    [[agent]]
    name = "victim"
    command = ["PYTHON", "{WITNESS}"]
    node = "node-2"

    [[agent]]
    name = "vault"
    command = ["PYTHON", "{WITNESS}"]
    node = "node-2"

    [[permission.rule]]
    allow = {{ from = ["clerk"], to = ["vault"], on-behalf-of = ["boss"] }}

    [[permission.rule]]
    deny = {{ from = ["*"], to = ["vault"] }}

    [[permission.rule]]
    deny = {{ from = ["*"], to = ["victim"], on-behalf-of = ["outcast"] }}
"""
CHAINS = {
    "the sender for itself": [text("{me}")],
    "the sender at the end": [text("boss@factory {me}")],
    "a circle": [text("{me} boss@factory {me} boss@factory")],
    "nine agents": [text(" ".join(f"a{number}@factory" for number in range(9)))],
    "100,000 agents": [text("a@factory " * 99_999 + "a@factory")],
    "a name of a megabyte": [text("x" * 1_000_000)],
    "a name of 513 bytes": [text("x" * 513)],
    "no agent": [text("")],
    "two spaces": [text("boss@factory  clerk@factory")],
    "a space at the end": [text("boss@factory ")],
    "lines of a log": [text("boss@factory\n2026-01-01 INFO all is well")],
    "colours": [text("boss@factory\x1b[2J")],
    "bytes": [b"\x16\x04boss"],
    "two chains": [text("boss@factory"), text("clerk@factory")],
}
"""Values of the parameter that are no chain, or not this sender's."""


@pytest.fixture(scope="module")
def witnesses(factory, pair):
    factory.active("victim", "vault")


def heard(factory, agent="victim"):
    """The texts that reached an agent, each with its chain."""
    return {said: chain for said, chain in json.loads(factory.send(agent, '["chains"]'))}


def asks(taken, link, said, *chains, name=PARAMETER, to="victim@factory", act="request"):
    """Sends a request on behalf of others."""
    values = [(name, value.replace(b"{me}", taken.name.encode())) for value in chains]
    link.message(0, 0, message(act, taken.name, [to], said, parameters=values))


def refused(factory, taken):
    return [each for each in factory.refusals() if taken.name in each["who"]]


def comes_back(link):
    link.until(lambda kind, _: kind == mesh.RETURNED, "the message to come back")


@pytest.mark.usefixtures("witnesses")
@pytest.mark.parametrize("kind", CHAINS)
def test_what_is_no_chain_of_its_sender_is_refused(factory, pair, mallory, kind):
    taken = mallory()
    link = taken.speaks_to("victim")
    with bounded(pair.pids(), 96):
        for act, name in (("request", PARAMETER), ("inform", PARAMETER), ("request", PARAMETER.upper())):
            asks(taken, link, "forged", *CHAINS[kind], act=act, name=name)
            comes_back(link)
        # The connection goes on: the agent behind it may ask rightly.
        asks(taken, link, f"{taken.name} asks", text("boss@factory"))
        wait_for(lambda: f"{taken.name} asks" in heard(factory), "a right message to arrive", also=factory.logs)
    assert "forged" not in heard(factory)
    noted = wait_for(lambda: refused(factory, taken), "the refusal to be shown", also=factory.logs)
    assert {each["receiver"] for each in noted} == {"victim@factory"}
    assert not {"\n", "\x1b"} & {sign for each in noted for sign in each["reason"]}


@pytest.mark.usefixtures("witnesses")
def test_a_chain_is_the_word_of_its_sender_who_is_shown(factory, pair, mallory):
    """An agent may name others that did not ask it. It is proved to be the one that says so."""
    taken = mallory()
    link = taken.speaks_to("victim")
    asks(taken, link, "in the name of the boss", text("boss@factory clerk@factory"))
    wait_for(lambda: "in the name of the boss" in heard(factory), "the message to arrive", also=factory.logs)
    assert heard(factory)["in the name of the boss"] == ["boss@factory", "clerk@factory"]
    (note,) = [it for it in json.loads(factory.send("victim", '["all"]')) if it[::2] == [taken.name, "in the name of the boss"]]
    assert note == [taken.name, "request", "in the name of the boss", "proved"]
    # A rule about those on whose behalf it is asked holds for its word.
    asks(taken, link, "for the outcast", text("boss@factory outcast@factory"))
    comes_back(link)
    assert "for the outcast" not in heard(factory)
    pair.talks()


@pytest.mark.usefixtures("witnesses")
def test_names_in_a_chain_open_no_door(factory, pair, mallory):
    """The clerk may write to the vault on behalf of the boss, and nobody else may."""
    taken = mallory()
    link = taken.speaks_to("vault")
    for chain in ("boss", "clerk", "boss clerk", "clerk boss", "operator", "ams", "vault", "node-2"):
        asks(taken, link, "open", text(" ".join(f"{name}@factory" for name in chain.split())), to="vault@factory")
        comes_back(link)
    assert heard(factory, "vault") == {}
    noted = wait_for(lambda: refused(factory, taken), "the refusal to be shown", also=factory.logs)
    assert all("not-permitted" in each["reason"] for each in noted)
    pair.talks()


@pytest.mark.usefixtures("witnesses")
def test_no_service_obeys_the_names_in_a_chain(factory, pair, mallory):
    taken = mallory()
    taken.appears()
    for service, kind in (("df", "df-agent-description"), ("ams", "ams-agent-description")):
        link = taken.speaks_to(service)
        attempts = [(verb, of) for of in ("sink", "operator", "ams", "master") for verb in ("register", "modify", "deregister")]
        for number, (verb, of) in enumerate(attempts):
            entry = f"{verb} ({kind} :name (agent-identifier :name sink@factory :addresses (sequence http://attacker/acc)))"
            chain = [(PARAMETER, text(f"{of}@factory"))]
            link.message(0, 0, management(taken.name, f"{service}@factory", entry, reply_with=f"r{number}", parameters=chain))
            answer = answered(link, number)
            assert b"unauthorised" in answer, answer
        link.close()
    assert factory.agents()["sink"]["state"] == "active"
    pair.talks()


@pytest.fixture(scope="module")
def door(factory, witnesses):
    return Door(factory)


def test_another_platform_names_none_of_ours(factory, pair, door):
    def posted(said, chain, more=""):
        return door.post(door.acl(said, more=f':{PARAMETER} "{chain}" {more}', act="request"))

    # Its own agents, it may name.
    assert posted("for others", "chief@plat1 helper@plat2") == 200
    wait_for(lambda: "for others" in heard(factory), "the message to arrive", also=factory.logs)
    assert heard(factory)["for others"] == ["chief@plat1", "helper@plat2"]
    for chain in (
        "sink@factory", "SINK@FACTORY", "sink", "ams@factory", "operator@factory", "boss@factory chief@plat1", "chief@plat1 boss@factory",
        "chief@plat1 boss@Factory helper@plat2", "someone@plat1", "chief@plat1 someone@plat1", "chief@plat1  x@plat1", "",
        " ".join(f"a{number}@plat1" for number in range(9)), "x" * 513 + "@plat1", "chief@plat1 " * 50_000 + "x@plat1",
    ):  # fmt: skip
        assert posted("forged chain", chain) != 200, chain
    assert posted("forged chain", "chief@plat1", f':{PARAMETER.lower()} "boss@factory"') != 200
    assert door.post(door.acl("forged chain", more=f":{PARAMETER} (boss@factory)", act="request")) != 200
    assert posted("for the outcast", "chief@plat1 outcast") != 200
    assert door.post(door.acl("the last one")) == 200
    wait_for(lambda: "the last one" in heard(factory), "the last message", also=factory.logs)
    assert not {"forged chain", "for the outcast"} & heard(factory).keys()
    pair.talks()

"""Another platform, which a rule lets write to the DF and to one agent, over plain HTTP."""

import json
import socket

import pytest
from harness import ROOT, bounded, wait_for
from pair import AGENTS

WITNESS = ROOT / "tests" / "attacks" / "programs" / "witness.py"
MANIFEST = f"""
    [platform]
    name = "factory"
    nodes = 2

    [gateway.http]
    listen = "127.0.0.1:0"

    [[gateway.http.allow]]
    platform = "plat1"
    to = ["victim", "df"]
{AGENTS}
    [[agent]]
    name = "victim"
    command = ["PYTHON", "{WITNESS}"]
    node = "node-2"
"""
SEARCH = "((action (agent-identifier :name df@factory) (search (df-agent-description) (search-constraints :max-results -1))))"


class Door:
    """The gateway's port, and an attacker's requests there."""

    def __init__(self, factory):
        self.factory = factory

        def listens():
            return (factory.ask("gateway", "list")["gateway"] or {}).get("addresses")

        (self.url,) = wait_for(listens, "the gateway to run", also=factory.logs)
        host, _, port = self.url.removeprefix("http://").partition("/")[0].rpartition(":")
        self.place = (host, int(port))
        self.count = 0

    def post(self, acl, to="victim@factory", sender="someone@plat1", address="http://127.0.0.1:9/acc", reply_to=()):
        """A message in an envelope; the status of the answer, or 0."""
        self.count += 1

        def identifier(name, place):
            return (
                f"<agent-identifier><name>{name}</name><addresses><url>{place}</url></addresses></agent-identifier>"
            )

        envelope = (
            '<?xml version="1.0"?><envelope><params index="1">'
            f"<to>{identifier(to, self.url)}</to><from>{identifier(sender, address)}</from>"
            "<acl-representation>fipa.acl.rep.string.std</acl-representation>"
            f"<payload-length>{len(acl)}</payload-length><date>20260101Z000000000</date>"
            "</params></envelope>"
        )
        parts = "".join(
            f"--b\r\nContent-Type: {kind}\r\n\r\n{text}\r\n"
            for kind, text in (("application/xml", envelope), ("application/text", acl))
        )
        return self.send(f"{parts}--b--\r\n".encode())

    def send(self, body, head=None):
        head = head or (
            f"POST {'/' + self.url.split('/', 3)[3] if self.url.count('/') > 2 else '/acc'} HTTP/1.1\r\nHost: x\r\n"
            'Content-Type: multipart/mixed; boundary="b"\r\n'
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        answer = b""
        try:
            with socket.create_connection(self.place, 60) as stream:
                stream.sendall(head.encode() + body)
                while piece := stream.recv(65536):
                    answer += piece
        except OSError:
            pass
        return int(answer.split()[1]) if answer.startswith(b"HTTP/") else 0

    def acl(self, text, sender="someone@plat1", to="victim@factory", address="http://127.0.0.1:9/acc", more="", act="inform"):
        return (
            f"({act} :sender (agent-identifier :name {sender} :addresses (sequence {address}))"
            f" :receiver (set (agent-identifier :name {to})) {more} :content \"{text}\")"
        )


@pytest.fixture(scope="module")
def door(factory, pair):
    factory.active("victim")
    return Door(factory)


def notes(factory):
    return [text for _, _, text, _ in json.loads(factory.send("victim", '["all"]'))]


def test_what_a_rule_allows_comes_in(factory, pair, door):
    """The attacker's requests are well formed: the refusals below are for their contents."""
    assert door.post(door.acl("good day")) == 200
    wait_for(lambda: "good day" in notes(factory), "the message to arrive", also=factory.logs)


def test_nobody_outside_passes_for_one_of_ours(factory, pair, door):
    for sender in ("sink@factory", "SINK@FACTORY", "ams@factory", "sink@factory.", "gateway@factory"):
        door.post(door.acl("forged", sender=sender), sender=sender)
        door.post(door.acl("forged", sender=sender))
    for to in ("master@factory", "ca@factory", "operator@factory", "gateway@factory", "sink@factory", "x@elsewhere"):
        assert door.post(door.acl("forged", to=to), to=to) != 200, to
    assert door.post(door.acl("last")) == 200
    wait_for(lambda: "last" in notes(factory), "the last message", also=factory.logs)
    assert "forged" not in notes(factory)
    pair.talks()


def test_20_000_reply_tos_from_outside(factory, pair, door):
    many = "".join(f"(agent-identifier :name nobody-{number}@factory)" for number in range(20_000))
    words = ":language fipa-sl0 :ontology fipa-agent-management :protocol fipa-request"
    with pair.talking(), bounded(pair.pids(), 128):
        asked = door.acl("x", to="df@factory", more=f":reply-to (set {many}) {words}", act="request")
        asked = asked.replace('"x"', f'"{SEARCH}"')
        door.post(asked, to="df@factory")
        asked = door.acl("x", to="df@factory", more=words, act="request").replace('"x"', f'"{SEARCH}"')
        assert door.post(asked, to="df@factory") == 200


def test_no_answer_goes_to_an_address_that_only_its_asker_claims(factory, pair, door):
    """A server of this machine, which the attacker cannot reach itself, hears nothing."""
    with socket.create_server(("127.0.0.1", 0)) as inside:
        address = f"http://127.0.0.1:{inside.getsockname()[1]}/internal-admin?delete=all"
        words = ":language fipa-sl0 :ontology fipa-agent-management :protocol fipa-request"
        for number, claimed in enumerate((address, address.replace("127.0.0.1", "localhost"), address.replace("127.0.0.1", "[::1]"))):
            elsewhere = f"(agent-identifier :name them@plat{number + 2} :addresses (sequence {claimed}))"
            for more in (words, f":reply-to (set {elsewhere}) {words}"):
                asked = door.acl("x", to="df@factory", more=more, act="request", address=claimed)
                door.post(asked.replace('"x"', f'"{SEARCH}"'), to="df@factory", address=claimed)

        # The gateway has answered all of them, or given up.
        assert door.post(door.acl("after")) == 200
        wait_for(lambda: "after" in notes(factory), "a later message", also=factory.logs)
        pair.talks()
        inside.setblocking(False)
        with pytest.raises(BlockingIOError):
            inside.accept()


def test_bodies_that_are_announced_or_deep_occupy_no_memory(factory, pair, door):
    deep = "(" * 200_000
    with pair.talking(), bounded(pair.pids(), 200):
        assert door.post(door.acl("x").replace('"x"', deep)) != 200
        assert door.post(door.acl("x", more=":reply-to " + "(set " * 50_000)) != 200
        bomb = "<!DOCTYPE x [" + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10 if n else "x" * 100}">' for n in range(12)) + "]>"
        assert door.send(f"--b\r\nContent-Type: application/xml\r\n\r\n{bomb}<envelope>&a11;</envelope>\r\n--b--\r\n".encode()) != 200
        held = []
        for _ in range(200):
            stream = socket.create_connection(door.place, 60)
            stream.sendall(b"POST /acc HTTP/1.1\r\nHost: x\r\nContent-Length: 16000000\r\n\r\n" + bytes(200_000))
            held.append(stream)
        for stream in held:
            stream.close()
        wait_for(lambda: door.post(door.acl("still open")) == 200, "the gateway to take messages again", also=factory.logs)


@pytest.mark.parametrize(
    "head",
    [
        "POST /acc HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 500\r\n\r\n",
        "POST /acc HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
        "POST /acc HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        "POST /acc HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "POST /acc HTTP/1.1\r\n" + "X: y\r\n" * 20_000 + "\r\n",
    ],
    ids=["two lengths", "length and chunks", "negative", "huge", "many headers"],
)
def test_requests_that_two_readers_would_read_differently(factory, pair, door, head):
    assert door.send(b"0\r\n\r\n", head) != 200
    assert door.post(door.acl("in order")) == 200
    pair.talks()

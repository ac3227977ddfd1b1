"""Below `auth` nothing proves who sends a message. The control plane is proved nevertheless: strangers start no programs, and let
in no other platform."""

import json

import pytest
from attacker import mesh
from attacker.acl import message
from attacker.mesh import Link
from harness import Platform, wait_for
from pair import MANIFEST as PAIR
from pair import Pair
from test_gateway import Door

MANIFEST = f"""{PAIR}
    [gateway.http]
    listen = "127.0.0.1:0"
"""


@pytest.fixture(scope="module", params=["none", "tls"])
def factory(request, tmp_path_factory):
    level = f'name = "factory"\n    level = "{request.param}"'
    started = Platform(tmp_path_factory.mktemp("factory"), MANIFEST.replace('name = "factory"', level, 1))
    try:
        started.level = request.param
        yield started.up()
    finally:
        started.down()


@pytest.fixture(scope="module")
def pair(factory):
    return Pair(factory)


def order(trace):
    """An order to start a program that leaves a trace."""
    launch = {
        "process": "00112233445566778899aabbccddeeff",
        "group": "evil",
        "agents": ["evil"],
        "command": ["/usr/bin/touch", str(trace)],
        "environment": {},
    }
    content = json.dumps({"ask": "start", "launch": launch})
    words = {"language": "json", "ontology": "sealbus-platform", "reply_with": "1"}
    return message("request", "master@factory", ["node-1@factory"], content, **words)


def say_at_each_port(factory, sender, receiver, said):
    """A message in another's name, at each port, as each level."""
    process = "spiffe://factory/node/master/process/" + "0" * 31 + "1"
    reached = 0
    for port in factory.ports():
        for level in ("none", "tls"):
            try:
                with Link(f"127.0.0.1:{port}", process, level=level) as link:
                    link.bind(0, sender.encode())
                    link.send(mesh.TARGET, bytes(4) + receiver.encode())
                    link.until(lambda kind, _: kind in (mesh.ACCEPT, mesh.LEAVING), "an answer to the target")
                    reached += 1
                    link.message(0, 0, said)
                    link.send(mesh.PING)
                    link.until(lambda kind, _: kind == mesh.PONG, "the answer")
            except (mesh.SSL.Error, OSError, EOFError):
                pass
    assert reached > 0, "no port spoke the level of the agents"


def test_a_stranger_gives_a_node_no_orders(factory, pair, tmp_path):
    trace = tmp_path / "trace"
    say_at_each_port(factory, "master@factory", "node-1@factory", order(trace))
    pair.talks()
    assert not trace.exists()


def test_a_stranger_makes_no_rules_for_the_gateway(factory, pair):
    door = Door(factory)

    def comes_in():
        return door.post(door.acl("7", to="sink@factory"), to="sink@factory") == 200

    rules = {"ask": "rules", "rules": {"rules": [{"platform": "plat1", "to": ["*"]}]}}
    words = {"language": "json", "ontology": "sealbus-platform", "reply_with": "1"}
    said = message("request", "operator@factory", ["gateway@factory"], json.dumps(rules), **words)
    say_at_each_port(factory, "operator@factory", "gateway@factory", said)
    pair.talks()
    assert not comes_in()
    # The operators' own rules come to it by the control plane, and are in force when the command ends.
    factory.tell("gateway", "allow", "plat1", "--to", "sink")
    assert comes_in()
    wait_for(lambda: json.loads(factory.send("sink", '["heard"]')).get("someone") == [7], "the message", also=factory.logs)
    factory.tell("gateway", "deny", "plat1")
    assert not comes_in()
    pair.talks()

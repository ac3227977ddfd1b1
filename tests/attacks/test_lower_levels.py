"""Below `auth` nothing proves who sends a message. The control plane is proved nevertheless: strangers start no programs."""

import json

import pytest
from attacker import mesh
from attacker.acl import message
from attacker.mesh import Link
from harness import Platform
from pair import MANIFEST, Pair


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


def test_a_stranger_gives_a_node_no_orders(factory, pair, tmp_path):
    """At each port, as each level, in the Master's name."""
    trace = tmp_path / "trace"
    process = "spiffe://factory/node/master/process/" + "0" * 31 + "1"
    reached = 0
    for port in factory.ports():
        for level in ("none", "tls"):
            try:
                with Link(f"127.0.0.1:{port}", process, level=level) as link:
                    link.bind(0, b"master@factory")
                    link.send(mesh.TARGET, b"\0\0\0\0node-1@factory")
                    link.until(lambda kind, _: kind in (mesh.ACCEPT, mesh.LEAVING), "an answer to the target")
                    reached += 1
                    link.message(0, 0, order(trace))
                    link.send(mesh.PING)
                    link.until(lambda kind, _: kind == mesh.PONG, "the answer")
            except (mesh.SSL.Error, OSError, EOFError):
                pass
    assert reached > 0, "no port spoke the level of the agents"
    pair.talks()
    assert not trace.exists()

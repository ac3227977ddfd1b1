"""A secret of a program that a node started lets no other program attach for it, at neither door of the node."""

import itertools
import json
import os
import signal
import time

import pytest
from attacker.rpc import ATTACHING, Rpc, over_tls, over_unix
from harness import Platform, wait_for
from isolated import needs, node_of, order, provide

MANIFEST = """
    [platform]
    name = "factory"

    [[agent]]
    name = "leaky"
    command = ["PYTHON", "FOLDER/leaky.py"]
    environment = { ORDERS = "FOLDER/orders" }
    restart = "never"
    MORE

    [[agent]]
    name = "thief"
    command = ["PYTHON", "FOLDER/leaky.py", "thief"]
    environment = { ORDERS = "FOLDER/orders" }
    restart = "never"
    MORE
"""


def shown(opening, secret):
    with Rpc(opening()) as rpc:
        answer = rpc.call(ask="attach", ticket=secret, now=time.time_ns() // 1_000_000)
    return answer["fault"]["code"] if "fault" in answer else answer["answer"]


@pytest.mark.parametrize(
    "mode, more", [("none", ""), ("landlock", ""), ("landlock", "unix-sockets = true"), ("namespace", ""), ("uid", "")]
)
def test_a_stolen_secret_opens_no_door_of_a_node(mode, more, modes, open_folder):
    """Neither a secret that was not used yet, nor one that was, nor after a restart of the node. Its owner attaches by it."""
    needs(modes, mode)
    provide(open_folder, "leaky.py", "obedient.py")
    factory = Platform(open_folder, MANIFEST.replace("FOLDER", str(open_folder)).replace("MORE", more))
    node = factory.state / "node-1"
    attempts = itertools.count()

    def told(agent, name):
        path = node / "work" / agent / f"{name}.json"
        wait_for(path.exists, f"{agent} to say {name}", also=factory.logs)
        return json.loads(path.read_text())

    def is_worth_nothing(secret):
        attempt = next(attempts)
        socket, door = node / "run" / "node.sock", f"127.0.0.1:{json.loads((node / 'port.json').read_text())}"
        words = {"secret": secret, "socket": str(socket), "door": door, "folder": str(node / "work" / "leaky")}
        order(open_folder, f"steal-{attempt}", words)
        by_thief = told("thief", f"stolen-{attempt}")
        refused = {"invalid-secret", "EACCES", "EPERM", "ENOENT"}
        assert set(by_thief.values()) <= refused, by_thief
        assert by_thief["at the door"] == "invalid-secret"
        # Nor does it open one to a process of the node's user that the node did not start.
        assert shown(lambda: over_unix(socket), secret) == "invalid-secret"
        assert shown(lambda: over_tls(door, ATTACHING), secret) == "invalid-secret"

    try:
        factory.up("--isolation", mode)
        ticket = told("leaky", "ticket")
        is_worth_nothing(ticket)
        order(open_folder, "attach")
        attached = told("leaky", "attached")
        assert attached.get("answer") == "welcome", attached
        is_worth_nothing(ticket)
        is_worth_nothing(attached["reattach"])
        os.kill(node_of(factory), signal.SIGKILL)
        log = node / "node.log"
        wait_for(lambda: log.read_text().count("the node is there") == 2, "the node to come back", also=factory.logs)
        is_worth_nothing(attached["reattach"])
        order(open_folder, "attach-again")
        assert told("leaky", "attached-again").get("answer") == "welcome"
        is_worth_nothing(attached["reattach"])
    finally:
        factory.down()

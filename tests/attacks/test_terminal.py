"""Texts of others that an operator's terminal would obey."""

import json
import threading

from attacker.acl import management, message, word_of
from attacker.mallory import milliseconds, signing_request
from attacker.rpc import JOINING, Rpc, Token, encoded, over_tls
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from harness import wait_for

ESCAPES = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202eabc"


def shows_nothing_unsafe(text, *, but_must_show=None):
    for unsafe in ("\x1b", "\x07", "\x9b", "\u202e"):
        assert unsafe not in text, text
    if but_must_show:
        assert but_must_show in text, text


def printed(factory, *command):
    done = factory.tell(*command, expect=None)
    text = (done.stdout + done.stderr).decode()
    shows_nothing_unsafe(text)
    return text


def test_what_an_agent_says_of_itself_and_of_others(factory, pair, mallory):
    taken = mallory("mallory")
    taken.appears()
    record = {"at": 1, "who": f"{ESCAPES}@factory", "receiver": ESCAPES, "reason": ESCAPES, "count": 1, "by": None}
    taken.rpc.call(ask="refusals", records=[record])
    taken.rpc.call(ask="report", agent="mallory", report={"event": "failed", "error": ESCAPES})
    wait_for(lambda: "mallory" in printed(factory, "ps", "--refused"), "the report to be shown", also=factory.logs)
    wait_for(lambda: "owned" in printed(factory, "ps"), "the error to be shown", also=factory.logs)
    printed(factory, "nodes")
    pair.talks()
    shows_nothing_unsafe((factory.directory / "up.log").read_text(errors="replace"))


def test_what_an_agent_registers_and_answers(factory, pair, mallory):
    taken = mallory("painter")
    taken.appears()
    link = taken.speaks_to("df")
    text = ESCAPES.replace('"', "")
    entry = f'register (df-agent-description :name (agent-identifier :name painter@factory) :services (set (service-description :name "{text}" :type "{text}")))'
    link.message(0, 0, management("painter@factory", "df@factory", entry, reply_with="r1"))
    while word_of(answer := link.take_message(), "in_reply_to") != "r1":
        pass
    assert b"done" in answer, answer
    assert "painter" in printed(factory, "df", "search")

    shown = []
    asking = threading.Thread(
        target=lambda: shown.append(printed(factory, "send", "painter", "hello", "--performative", "request", "--timeout", "60s"))
    )
    asking.start()
    asked = link.take_message(to="painter@factory")
    words = {"in_reply_to": word_of(asked, "reply_with"), "conversation_id": word_of(asked, "conversation_id")}
    words = {name: text for name, text in words.items() if text}
    asker = asked[asked.index(b"\x02\x02\x10") + 3 :].split(b"\0")[0].decode()
    link.target(7, asker)
    link.message(0, 7, message("inform", "painter@factory", [asker], text, **words))
    asking.join()
    assert shown and "owned" in shown[0], shown
    pair.talks()


def test_what_an_agent_prints(factory, pair):
    factory.send("sink", json.dumps(["print", ESCAPES]))
    wait_for(lambda: "owned" in factory.tell("logs", "sink").stdout.decode(), "it to be in the log", also=factory.logs)
    printed(factory, "logs", "sink")


def test_what_a_node_says_of_its_machine(factory, pair):
    token = Token.parse(factory.ask("token", "--name", "node-7")["token"])
    node = {"address": "127.0.0.1", "host": ESCAPES, "processors": 1, "version": ESCAPES}
    with Rpc(over_tls(token.addresses[0], JOINING)) as rpc:
        request = signing_request(Ed25519PrivateKey.generate())
        rpc.call(ask="join", secret=encoded(token.secret), name="node-7", now=milliseconds(), node=node, request=request)
    printed(factory, "nodes")
    printed(factory, "ca", "log")
    printed(factory, "ca", "list")
    shows_nothing_unsafe((factory.directory / "up.log").read_text(errors="replace"))
    pair.talks()

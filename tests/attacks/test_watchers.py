"""Programs that watch a platform change nothing, and the agents that they watch do not mislead them."""

import base64
import hashlib
import hmac
import json

from attacker.acl import message
from attacker.rpc import Rpc, encoded, over_unix
from harness import SEALBUS, wait_for

ESCAPES = "\x1b[2J\x9b31m\u202e\u200babc"


def operator(state):
    """An operator's connection, as `top` and `sniff` open one."""
    rpc = Rpc(over_unix(state / "admin.sock"))
    challenge = rpc.call(ask="challenge")["challenge"]
    unpadded = [(state / "admin.key").read_text().strip(), challenge]
    key, challenge = (base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)) for text in unpadded)
    proof = hmac.new(key, b"sealbus operator v1\0" + challenge, hashlib.sha256).digest()
    assert "fault" not in rpc.call(ask="prove", proof=encoded(proof))
    return rpc


def test_a_connection_narrowed_to_reading_changes_nothing_any_more(factory, pair):
    with operator(factory.state) as rpc:
        assert "token" in rpc.call(ask="token", lifetime=60)
        assert "fault" not in rpc.call(ask="narrow")
        assert rpc.call(ask="agents")["agents"] and "processes" in rpc.call(ask="observe")
        for request in (
            {"ask": "token", "lifetime": 60},
            {"ask": "ticket", "agent": "mallory", "lifetime": 60},
            {"ask": "kill", "agent": "sink", "grace": 0},
            {"ask": "revoke", "what": "sink", "reason": "none"},
            {"ask": "mailbox", "agent": "sink"},
            {"ask": "shutdown", "grace": 0},
        ):
            told = rpc.call(**request)
            assert told["fault"]["code"] == "not-permitted" and "narrowed" in told["fault"]["message"], told
    pair.talks()


def test_bodies_are_for_those_who_ask_with_that_right(factory, pair):
    watch = {"id": 7, "bodies": True}
    with operator(factory.state) as rpc:
        assert "fault" not in rpc.call(ask="narrow")
        told = rpc.call(ask="observe", watch=watch)
        assert told["fault"]["code"] == "not-permitted" and "--bodies" in told["fault"]["advice"], told
        # There is no way back.
        assert "fault" not in rpc.call(ask="narrow", bodies=True)
        assert "fault" in rpc.call(ask="observe", watch=watch)
    with operator(factory.state) as rpc:
        assert "fault" not in rpc.call(ask="narrow", bodies=True)
        assert "processes" in rpc.call(ask="observe", watch=watch)
        assert "fault" in rpc.call(ask="token", lifetime=60)
        wait_for(lambda: "an operator reads the bodies of messages" in factory.logs(), "the Master's note")
    wait_for(lambda: "no longer reads the bodies" in factory.logs(), "the end of it", also=factory.logs)
    pair.talks()


def test_a_process_that_says_nothing_holds_nobody_up(factory, pair, mallory):
    taken = mallory("mallory")
    taken.appears()
    pair.talks()

    def others_are_seen():
        told = factory.ask("top", "--interval", "200ms")
        agents = {each["agent"] for each in told["agents"]}
        assert "mallory@factory" not in agents
        # On a busy machine others may be late once, too.
        return "sink@factory" in agents and told["silent"] == []

    wait_for(others_are_seen, "the others", also=factory.logs)


def test_what_an_agent_writes_is_shown_and_steers_no_terminal(factory, pair, mallory):
    taken = mallory("painter")
    taken.appears()
    link = taken.speaks_to("sink")
    arguments = (SEALBUS, "sniff", "painter", "--state", factory.state)
    shown = factory.program(*arguments, name="sniffed")
    as_json = factory.program(*arguments, "--json", name="sniffed-json")
    for sniffer in (shown, as_json):
        wait_for(lambda sniffer=sniffer: "watching" in sniffer.output(), "the sniffer", also=factory.logs)
    told = message("cancel", "painter@factory", ["sink@factory"], "hello", conversation_id=ESCAPES)
    # A text in quotes may hold any character.
    link.message(0, 0, told.replace(b"\x0d\x10", b"\x0d\x14"))
    for sniffer in (shown, as_json):
        wait_for(lambda sniffer=sniffer: "abc" in sniffer.output(), "the message", also=sniffer.output)
        for unsafe in ("\x1b", "\x9b", "\u202e", "\u200b"):
            assert unsafe not in sniffer.output(), sniffer.output()
        sniffer.kill()
    (line,) = [line for line in as_json.output().splitlines() if line.startswith("{")]
    assert json.loads(line)["from"] == "painter@factory" and "\\u{202e}" in json.loads(line)["conversation"]
    pair.talks()

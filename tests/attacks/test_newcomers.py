"""Strangers at the ports where nodes join and programs attach: their guesses, their open connections, and their false names."""

import base64
import json
import socket
import ssl
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from attacker.mallory import milliseconds, signing_request
from attacker.rpc import ATTACHING, JOINING, PATIENCE, Rpc, Token, encoded, over_tls, place
from crowd import ELSEWHERE, crowd
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from harness import PROGRAMS, SEALBUS, bounded, wait_for

NODE = {"address": "127.0.0.1", "host": "stranger", "processors": 1, "version": "0.0.0"}


@pytest.fixture(scope="module")
def doors(factory, pair):
    """The addresses where strangers knock, and the protocol spoken there."""
    join = Token.parse(factory.ask("token")["token"])
    ticket = Token.parse(factory.ask("ticket", "nobody", "--node", "node-1")["ticket"])
    return {JOINING: join.addresses[0], ATTACHING: ticket.addresses[0]}


def joins(token, secret=None, name=None, now=None):
    """Joins by hand; the answer."""
    with Rpc(over_tls(token.addresses[0], JOINING)) as rpc:
        request = signing_request(Ed25519PrivateKey.generate())
        wish = {"name": name} if name else {}
        return rpc.call(
            ask="join", secret=encoded(secret or token.secret), now=now or milliseconds(), node=NODE, request=request, **wish
        )


def refused(answer, *words):
    assert "fault" in answer, answer
    text = json.dumps(answer)
    assert all(word in text for word in words), text


def test_altered_tokens(factory, pair, doors):
    token = Token.parse(factory.ask("token")["token"])
    for place_of_change in (0, 15, 31):
        secret = bytearray(token.secret)
        secret[place_of_change] ^= 1
        refused(joins(token, bytes(secret)), "unknown join token")
    # None of the attempts has spent it.
    assert joins(token)["answer"] == "joined"
    pair.talks()


def test_a_token_used_twice_and_by_many_at_once(factory, pair):
    token = Token.parse(factory.ask("token")["token"])
    with ThreadPoolExecutor(8) as crowd_of_thieves:
        answers = list(crowd_of_thieves.map(lambda _: joins(token), range(8)))
    assert [answer.get("answer") for answer in answers].count("joined") == 1, answers
    refused(joins(token), "used already")
    pair.talks()


def test_an_expired_token(factory, pair):
    made = factory.ask("token", "--lifetime", "1s")
    wait_for(lambda: milliseconds() > made["expires"] + 1500, "the token to expire")
    refused(joins(Token.parse(made["token"])), "expired")
    pair.talks()


def test_a_token_for_another_name(factory, pair):
    token = Token.parse(factory.ask("token", "--name", "node-7")["token"])
    refused(joins(token, name="node-8"), "node-7")
    pair.talks()


def test_a_ticket_is_no_token_and_good_once(factory, pair, mallory, doors):
    ticket = Token.parse(factory.ask("ticket", "visitor", "--node", "node-1")["ticket"])
    refused(joins(ticket_at(ticket, doors[JOINING])), "unknown")

    def attach(secret):
        with Rpc(over_tls(doors[ATTACHING], ATTACHING)) as rpc:
            return rpc.call(ask="attach", ticket=encoded(secret), now=milliseconds())

    refused(attach(bytes(32)), "ticket")
    assert attach(ticket.secret)["answer"] == "welcome"
    refused(attach(ticket.secret), "ticket")
    pair.talks()


def ticket_at(ticket, address):
    return Token(ticket.purpose, ticket.secret, ticket.root, ticket.platform, ticket.name, [address])


@pytest.mark.parametrize("name", ["gateway", "master", "ca", "ams", "df", "operator"])
def test_no_node_takes_a_name_of_the_platform(factory, pair, name):
    """A node of such a name could write in the platform's name."""
    token = Token.parse(factory.ask("token")["token"])
    refused(joins(token, name=name), "itself uses that name")
    assert name not in factory.nodes()


@pytest.mark.parametrize("name", ["../node", "node-1", "a" * 500, "", "x y", "node\u202e"])
def test_no_node_takes_an_illegal_name_or_anothers(factory, pair, name):
    token = Token.parse(factory.ask("token")["token"])
    before = set(factory.nodes())
    answer = joins(token, name=name) if name else joins(token, bytes(32))
    refused(answer)
    assert set(factory.nodes()) == before
    pair.is_untouched()


@pytest.mark.parametrize("shakes_hands", [False, True], ids=["half-open", "silent"])
def test_strangers_who_say_nothing_keep_no_newcomer_out(factory, pair, doors, shakes_hands):
    def opening(protocol):
        def half_open():
            return socket.create_connection(place(doors[protocol]), PATIENCE, source_address=(ELSEWHERE, 0))

        return (lambda: over_tls(doors[protocol], protocol, ELSEWHERE)) if shakes_hands else half_open

    count = 150 if shakes_hands else 400
    name = f"node-{'silent' if shakes_hands else 'open'}"
    with pair.talking(), crowd(opening(JOINING), count), crowd(opening(ATTACHING), count):
        node = factory.node(name)
        ticket = factory.ask("ticket", f"guest-of-{name}", "--node", "node-1")["ticket"]
        guest = factory.program(
            sys.executable, PROGRAMS / "worker.py", name=f"guest-of-{name}", environment={"SEALBUS_TICKET": ticket}
        )
        factory.active(f"guest-of-{name}")
        assert factory.ask("ps")
    assert guest.end() == 0
    node.end()


def test_frames_begun_before_the_secret_is_shown_occupy_no_memory(factory, pair, doors):
    with pair.talking(), bounded(pair.pids(), 96):
        for protocol, address in doors.items():
            held = []
            for _ in range(40):
                rpc = Rpc(over_tls(address, protocol))
                held.append(rpc)
                try:
                    rpc.begin(24 << 20, bytes(1 << 20))
                except OSError:
                    pass
            for rpc in held:
                assert rpc.is_ended()
                rpc.stream.close()


def test_guesses_do_not_fill_the_log(factory, pair, doors):
    log = factory.directory / "up.log"
    before = log.stat().st_size
    for _ in range(150):
        refused(joins(stranger(doors)), "unknown")
    assert log.stat().st_size - before < 100_000
    pair.talks()


def stranger(doors):
    return Token("sealbus-join", bytes(range(32)), bytes(32), "factory", "", [doors[JOINING]])


def test_a_node_does_not_pass_for_the_master(factory, pair, tmp_path):
    """The certificate of a node, which an attacker has who took over its machine, harvests no tokens."""
    factory.node("node-9").end()
    kept = json.loads((factory.directory / "node-9" / "node.json").read_text())
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_text("".join(ssl.DER_cert_to_PEM_cert(der) for der in certificates(kept, factory)))
    key.write_text(kept["key"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    context.set_alpn_protocols([JOINING])
    came, said = [], []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            plain, _ = listener.accept()
            came.append(plain)
            try:
                with context.wrap_socket(plain, server_side=True) as stream:
                    said.append(stream.recv(65536))
            except OSError:
                pass

        thread = threading.Thread(target=serve)
        thread.start()
        token = Token.parse(factory.ask("token")["token"])
        token.addresses = [f"127.0.0.1:{listener.getsockname()[1]}"]
        victim = factory.program(
            SEALBUS, "node", "--token", token.text(), "--state", tmp_path / "victim", name="victim"
        )
        assert victim.wait() != 0
        thread.join(PATIENCE)
    assert came and said in ([], [b""]), "the token's secret went to a node"
    assert "node-9" in victim.output() or "another" in victim.output(), victim.output()
    pair.talks()


def certificates(kept, factory):
    """A node's chain, and the root that servers show to newcomers."""
    data, found = base64.b64decode(kept["chain"])[1:], []
    while data:
        length = int.from_bytes(data[:2], "big")
        found.append(data[2 : 2 + length])
        data = data[2 + length :]
    return [*found, (factory.state / "root.der").read_bytes()]

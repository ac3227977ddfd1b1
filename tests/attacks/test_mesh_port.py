"""Strangers and taken-over programs at the ports where processes of the mesh listen."""

import json
import random
import socket
import ssl
import struct
import sys

import pytest
from attacker import mesh
from attacker.acl import message
from attacker.certificates import foreign_process
from attacker.mesh import Credential, Link
from attacker.rpc import PATIENCE, place
from crowd import ELSEWHERE, crowd
from harness import PROGRAMS, bounded, wait_for


def address_of(factory, agent="sink"):
    return factory.agents()[agent]["address"]


def context_of(factory, level="auth"):
    """A client that believes this platform's root and nothing else."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.load_verify_locations(cadata=(factory.state / "root.der").read_bytes())
    made.set_alpn_protocols([f"sealbus-mesh/1/{level}"])
    return made


def knock(factory, context, then=b""):
    """Shakes hands, sends `then`, and reads until the other side ends the connection."""
    host, port = place(address_of(factory))
    with socket.create_connection((host, port), PATIENCE) as plain, context.wrap_socket(plain, server_hostname=host) as stream:
        stream.sendall(then)
        while stream.recv(4096):
            pass


def refused(factory, text):
    def noted():
        return [each for each in factory.refusals() if text in each["reason"]]

    return wait_for(noted, f"a refusal that says {text!r}", also=factory.logs)


def test_no_certificate(factory, pair):
    with pytest.raises(ssl.SSLError, match="(?i)certificate.required"):
        knock(factory, context_of(factory), b"SEALBUS\x01")
    refused(factory, "no certificate")
    pair.talks()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2])
def test_older_tls(factory, pair, version):
    context = context_of(factory)
    context.maximum_version = version
    with pytest.raises(ssl.SSLError, match="(?i)protocol.version"):
        knock(factory, context)
    pair.talks()


def test_another_level(factory, pair):
    with pytest.raises(ssl.SSLError, match="(?i)no.application.protocol"):
        knock(factory, context_of(factory, "tls"))
    with socket.create_connection(place(address_of(factory)), PATIENCE) as plain:
        plain.sendall(b"SEALBUS\x01" + bytes(200))
        answer = b""
        while piece := plain.recv(4096):
            answer += piece
    assert b"level auth" in answer
    refused(factory, "level none")
    pair.talks()


def ended(address, credential, claimed):
    """The other side ends the connection before it says hello."""
    try:
        with Link(address, claimed, credential) as link:
            return link.kinds_until_end() in ([], [mesh.GOODBYE])
    except (mesh.SSL.Error, OSError):
        return True


def test_a_certificate_of_a_foreign_ca_of_the_same_name(factory, pair):
    foreign = foreign_process()
    assert ended(address_of(factory), foreign, foreign.identity())
    refused(factory, "unknown-issuer")
    pair.talks()


def test_an_agents_certificate_opens_no_connection(factory, pair, mallory):
    taken = mallory()
    assert ended(address_of(factory), taken.agent, taken.process.identity())
    refused(factory, taken.agent.identity())
    pair.talks()


def test_a_certificate_without_its_key(factory, pair, mallory):
    taken = mallory()
    stolen = Credential(foreign_process().key, taken.process.chain)
    with pytest.raises(mesh.SSL.Error):
        mesh.context_of(stolen, "auth").check_privatekey()
    assert ended(address_of(factory), stolen, taken.process.identity())
    pair.talks()


def test_a_process_that_says_it_is_another(factory, pair, mallory):
    taken = mallory()
    _, masters = taken.masters()
    assert ended(address_of(factory), taken.process, masters)
    pair.talks()


def test_nothing_is_resumed(factory, pair):
    """A session ticket would let in a peer that was revoked since."""
    host, port = place(address_of(factory))
    context = context_of(factory)
    with socket.create_connection((host, port), PATIENCE) as plain, context.wrap_socket(plain, server_hostname=host) as stream:
        try:
            stream.sendall(b"SEALBUS\x01")
            stream.recv(1)
        except OSError:
            pass
        assert stream.session is None or not stream.session.has_ticket
    pair.talks()


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["silent", "begun"])
def test_half_open_connections_keep_nobody_out(factory, pair, first):
    """A newcomer's process is reached at the ports of the others, and reaches them."""

    def strangers(agent):
        where = place(address_of(factory, agent))

        def opening():
            stream = socket.create_connection(where, PATIENCE, source_address=(ELSEWHERE, 0))
            stream.sendall(first)
            return stream

        return opening

    name = f"guest-{len(first)}"
    with pair.talking(), crowd(strangers("sink"), 600):
        ticket = factory.ask("ticket", name, "--node", "node-1")["ticket"]
        environment = {"SEALBUS_TICKET": ticket}
        guest = factory.program(sys.executable, PROGRAMS / "worker.py", name=name, environment=environment)
        factory.active(name)
        factory.send(name, '["send", "sink", 50, 0]')
        wait_for(
            lambda: f'"{name}": {list(range(50))}' in factory.send("sink", '["heard"]'),
            "the newcomer's messages to arrive", also=factory.logs,
        )
    assert guest.end() == 0


def test_long_beginnings_occupy_no_memory(factory, pair, mallory):
    """A first frame that is announced with a great length, by peers that have not said who they are."""
    taken = mallory()
    header = struct.pack("<IBBHI", 60_000, mesh.HELLO, 0, 0, 0)
    with pair.talking(), bounded(pair.pids(), 64):
        for _ in range(100):
            with Link(address_of(factory), None, taken.process) as link:
                link.stream.sendall(header + bytes(1000))
                assert link.kinds_until_end() in ([], [mesh.GOODBYE])


def test_frames_of_no_sense(factory, pair, mallory):
    """A certified process sends what no process sends; its connection alone ends."""
    taken = mallory()
    chance = random.Random(7)
    with pair.talking(), bounded(pair.pids(), 96):
        for _ in range(200):
            link = taken.connects(address_of(factory))
            try:
                for _ in range(20):
                    link.send(chance.randrange(31), chance.randbytes(chance.choice([0, 4, 12, 40, 3000])))
            except (mesh.SSL.Error, OSError):
                pass
            link.close()


def test_messages_in_anothers_name(factory, pair, mallory):
    link = mallory().speaks_to("sink")
    link.message(0, 0, message("inform", "source@factory", ["sink@factory"], "424242"))
    refused(factory, "forged-sender")
    pair.talks()
    assert "424242" not in factory.send("sink", '["heard"]')


def test_messages_in_anothers_name_among_honest_ones(factory, pair, mallory):
    """In one frame, after a message in the attacker's own name and before one."""
    taken = mallory()
    link = taken.speaks_to("sink")
    # Nobody answers this act.
    honest = message("not-understood", taken.name, ["sink@factory"], "hello")
    forged = message("inform", "source@factory", ["sink@factory"], "424242")
    link.messages_in_a_row(0, 0, b"", [honest, forged, forged, honest])
    # All that they begin with is forged.
    link.messages_in_a_row(0, 0, forged[:-8], [forged[-8:]] * 3)
    for _ in range(5):
        link.until(lambda kind, _: kind == mesh.RETURNED, "a refusal")
    refused(factory, "forged-sender")
    pair.talks()
    assert "424242" not in factory.send("sink", '["heard"]')


def test_messages_in_a_row_occupy_no_memory_beyond_their_credit(factory, pair, mallory):
    """Messages of 90 MB in a frame of 63 kB."""
    taken = mallory()
    with pair.talking(), bounded(pair.pids(), 64):
        for _ in range(10):
            link = taken.speaks_to("sink")
            link.messages_in_a_row(0, 0, bytes(60_000), [b""] * 1500)
            link.kinds_until_end()
            link.close()


def test_a_proof_copied_to_another_connection(factory, pair, mallory):
    taken = mallory()
    first = taken.connects(address_of(factory))
    copied = taken.agent.proof(first.exporter)
    # Only one connection of a process lives at a time: the second one replaces the first.
    second = taken.connects(address_of(factory))
    second.bind(0, copied)
    second.until(lambda kind, _: kind == mesh.REFUSED, "the proof to be refused")
    refused(factory, "not-proved")
    pair.talks()


def test_messages_that_come_back_and_were_never_sent(factory, pair, mallory):
    """A process gives back what its agent was never sent: as if the agent moved, was away, or had refused it."""
    taken = mallory()
    taken.appears()
    forged = message("inform", "sink@factory", ["source@factory", taken.name], "424242")
    with pair.talking(), bounded(pair.pids(), 96):
        link = taken.speaks_to("sink")
        factory.send("sink", json.dumps(["send", taken.local_name, 1, 0]))
        _, body = link.until(lambda kind, body: kind == mesh.MESSAGE and link.opened[body[4:8]] == taken.name, "the sink's number")
        handles, number = body[:8], link.numbers[body[4:8]]
        for why in (mesh.REFUSED_OVER_LIMIT, mesh.MOVING):
            link.gives_back(handles, why, forged)
        link.until(lambda kind, _: kind == mesh.CLOSE_TARGET, "its target to be closed")
        link.left_unread(handles, number, forged)
        refused(factory, "gives back a message of sink@factory that it was not given")
        # Whoever goes on with it loses the connection.
        try:
            for _ in range(1000):
                link.left_unread(handles, number, forged)
            link.kinds_until_end()
        except (mesh.SSL.Error, OSError):
            pass
    assert "424242" not in factory.send("source", '["heard"]')
    assert json.loads(factory.send("sink", '["failures"]')) == []


def test_long_names_of_targets_occupy_no_memory(factory, pair, mallory):
    """A process addresses agents that do not exist, under names of 60 kB."""
    with pair.talking(), bounded(pair.pids(), 96):
        link = mallory().connects(address_of(factory))
        try:
            for handle in range(4000):
                link.send(mesh.TARGET, struct.pack("<I", handle) + b"x" * 60_000)
            link.bind(0, b"")
        except (mesh.SSL.Error, OSError):
            pass

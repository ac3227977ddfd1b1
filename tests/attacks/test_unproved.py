"""Taken-over programs on a platform at level `signed`: what their agents did not sign is not delivered."""

import struct
from dataclasses import replace

import pytest
from attacker import mesh
from attacker.acl import message
from attacker.certificates import secret_agent, secret_log
from attacker.mesh import ITSELF, LEVELS
from attacker.proofs import KEY, UNSIGNED, batch, delegate, delegation, serial_of, statement
from harness import bounded, wait_for
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from pair import MANIFEST as AT_AUTH

MANIFEST = AT_AUTH.replace('name = "factory"', 'name = "factory"\n    level = "signed"', 1) + """
    [evidence]
    agents = ["sink"]
"""
SINK = "sink@factory"


def speaks(taken):
    """A connection on which the agent is bound as 0, and has delegated to its process."""
    link = taken.speaks_to("sink", level="signed")
    delegate(link, 0, taken.agent, taken.name)
    return link


def refused(factory, who, why="not-proved"):
    def noted():
        return [each for each in factory.refusals() if why in each["reason"] and who in each["who"]]

    return wait_for(noted, f"a refusal ({why}) of {who}", also=factory.logs)


def heard(factory, text):
    return text in factory.send("sink", '["heard"]')


def test_the_documented_proof_is_believed(factory, pair, mallory):
    """An independent program that signs by the documentation is heard: its refusals are not due to a mistake of its own."""
    taken = mallory()
    link = speaks(taken)
    said = message("inform", taken.name, [SINK], "515151")
    link.message(0, 0, said)
    link.send(mesh.SIGN, batch(taken.agent, taken.name, statement(SINK, said)).frame(0))
    wait_for(lambda: heard(factory, "515151"), "the message to be heard", also=factory.logs)
    pair.talks()


def test_messages_without_a_proof(factory, pair, mallory):
    with pair.talking(), bounded(pair.pids(), 96):
        taken = mallory()
        said = message("inform", taken.name, [SINK], "424242")
        # Its process says that it could not sign.
        link = taken.speaks_to("sink", level="signed")
        link.message(0, 0, said)
        link.send(mesh.SIGN, UNSIGNED)
        link.until(lambda kind, _: kind == mesh.RETURNED, "the message to come back")
        refused(factory, taken.name)
        # No proof ever comes: the program sends until it may not send more.
        other = mallory()
        link = other.speaks_to("sink", level="signed")
        said = message("inform", other.name, [SINK], "424242")
        try:
            while True:
                link.message(0, 0, said)
        except (mesh.SSL.Error, OSError):
            pass
    assert not heard(factory, "424242")


def earlier(signed):
    return replace(signed, time=signed.time - 1)


@pytest.mark.parametrize("of", ["message", "receiver", "agent", "level", "key", "number", "time"])
def test_a_proof_of_something_else(factory, pair, mallory, of):
    taken, other = mallory(), mallory()
    said = message("inform", taken.name, [SINK], "434343")
    right = statement(SINK, said)
    wrong = {
        "message": lambda: batch(taken.agent, taken.name, statement(SINK, said + b"\0")),
        "receiver": lambda: batch(taken.agent, taken.name, statement("source@factory", said)),
        "agent": lambda: batch(other.agent, other.name, right),
        "level": lambda: batch(taken.agent, taken.name, right, level="auth"),
        "key": lambda: batch(taken.agent, taken.name, right, key=Ed25519PrivateKey.generate()),
        "number": lambda: replace(batch(taken.agent, taken.name, right), first=1),
        "time": lambda: earlier(batch(taken.agent, taken.name, right)),
    }[of]()
    link = speaks(taken)
    link.message(0, 0, said)
    link.send(mesh.SIGN, wrong.frame(0))
    link.until(lambda kind, _: kind == mesh.RETURNED, "the message to come back")
    refused(factory, taken.name)
    assert not heard(factory, "434343")
    pair.talks()


@pytest.mark.parametrize("of", ["nobody", "another agent", "another key"])
def test_a_delegation_of_something_else(factory, pair, mallory, of):
    """The process signs with its own key. The agent did not delegate to it, or its word is not that of this agent."""
    taken, other = mallory(), mallory()
    link = taken.speaks_to("sink", level="signed")
    if of != "nobody":
        key = Ed25519PrivateKey.generate() if of == "another key" else KEY
        author = (other.agent, other.name) if of == "another agent" else (taken.agent, taken.name)
        word = delegation(*author, key=key)
        link.send(mesh.DELEGATE, struct.pack("<I", 0) + serial_of(taken.agent) + word)
    said = message("inform", taken.name, [SINK], "484848")
    link.message(0, 0, said)
    link.send(mesh.SIGN, batch(taken.agent, taken.name, statement(SINK, said)).frame(0))
    link.until(lambda kind, _: kind == mesh.RETURNED, "the message to come back")
    refused(factory, taken.name)
    assert not heard(factory, "484848")
    pair.talks()


def test_a_process_at_level_auth(factory, pair, mallory):
    """Nothing falls back to a lower level."""
    taken = mallory()
    with pytest.raises((mesh.SSL.Error, OSError, EOFError)):
        taken.speaks_to("sink", level="auth")
    wait_for(
        lambda: [each for each in factory.refusals() if "level-mismatch" in each["reason"]],
        "the refusal of the other level", also=factory.logs,
    )
    pair.talks()


def test_a_process_speaks_for_no_agent(factory, pair, mallory):
    """A message that the process itself sends needs no proof, and is nobody's."""
    taken = mallory()
    link = taken.speaks_to("sink", level="signed")
    link.message(ITSELF, 0, message("inform", taken.name, [SINK], "444444"))
    link.until(lambda kind, _: kind == mesh.RETURNED, "the message to come back")
    assert not heard(factory, "444444")
    pair.talks()


def stolen(factory, taken, name):
    """The CA's key, and an agent that its thief certifies and enters nowhere."""
    ca = load_pem_private_key((factory.state / "ca.key").read_bytes(), None)
    return ca, secret_agent(name, ca, taken.agent.chain[1])


def says(link, handle, author, name, text, first=0):
    """Proves an agent as the sender of this number, and sends what it signed."""
    link.bind(handle, author.proof(link.exporter, LEVELS["signed"]))
    delegate(link, handle, author, name)
    said = message("inform", name, [SINK], text)
    link.message(handle, 0, said)
    link.send(mesh.SIGN, batch(author, name, statement(SINK, said), first=first).frame(handle))


@pytest.mark.parametrize(("name", "shown"), [("source", "no proof"), ("source-2", "the proof of another certificate")])
def test_a_certificate_that_the_log_lacks(factory, pair, mallory, name, shown):
    """A thief of the CA's key certifies an agent of its own in another's name, and enters it nowhere."""
    taken = mallory()
    _, secret = stolen(factory, taken, name)
    if shown != "no proof":
        secret.inclusion = taken.agent.inclusion
    link = taken.speaks_to("sink", level="signed")
    says(link, 1, secret, f"{name}@factory", "454545")
    link.until(lambda kind, _: kind == mesh.RETURNED, "the message to come back")
    # On the same connection, an agent whose certificate the log has is heard.
    says(link, 2, taken.agent, taken.name, "464646", first=1)
    wait_for(lambda: heard(factory, "464646"), "the honest message to be heard", also=factory.logs)
    assert not heard(factory, "454545")
    refused(factory, f"{name}@factory", "not-logged")
    pair.talks()


def test_a_log_that_nobody_else_has_seen(factory, pair, mallory, tmp_path):
    """The thief signs a log of its own. Messages are believed, and leave the proof that the CA signed two logs."""
    taken = mallory()
    ca, secret = stolen(factory, taken, "ghost")
    secret.inclusion = secret_log(secret, ca)
    says(taken.speaks_to("sink", level="signed"), 1, secret, "ghost@factory", "474747")
    wait_for(lambda: heard(factory, "474747"), "the message to be heard", also=factory.logs)
    files = (tmp_path / f"{number}.evidence" for number in range(1000))

    def exposed():
        told = factory.ask("evidence", "export", "--agent", "ghost", next(files))
        return [gap for gap in told["gaps"] if "agent/ghost" in gap and "the CA's key in secret" in gap]

    wait_for(exposed, "the certificate that the log lacks", also=factory.logs)
    pair.talks()

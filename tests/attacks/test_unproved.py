"""Taken-over programs on a platform at level `signed`: what their agents did not sign is not delivered."""

import struct

import pytest
from attacker import mesh
from attacker.acl import message
from attacker.mesh import ITSELF
from attacker.proofs import proof, statement
from harness import bounded, wait_for
from pair import MANIFEST as AT_AUTH

MANIFEST = AT_AUTH.replace('name = "factory"', 'name = "factory"\n    level = "signed"', 1)
SINK = "sink@factory"


def sign(link, of_message):
    link.send(mesh.SIGN, struct.pack("<I", 0) + of_message)


def refused(factory, taken):
    def noted():
        return [each for each in factory.refusals() if "not-proved" in each["reason"] and taken.name in each["who"]]

    return wait_for(noted, "a message that was not proved", also=factory.logs)


def heard(factory, text):
    return text in factory.send("sink", '["heard"]')


def test_the_documented_proof_is_believed(factory, pair, mallory):
    """An independent program that signs by the documentation is heard: its refusals are not due to a mistake of its own."""
    taken = mallory()
    link = taken.speaks_to("sink", level="signed")
    said = message("inform", taken.name, [SINK], "515151")
    link.message(0, 0, said)
    sign(link, proof(taken.agent, taken.name, statement(SINK, said)))
    wait_for(lambda: heard(factory, "515151"), "the message to be heard", also=factory.logs)
    pair.talks()


def test_messages_without_a_proof(factory, pair, mallory):
    with pair.talking(), bounded(pair.pids(), 96):
        taken = mallory()
        said = message("inform", taken.name, [SINK], "424242")
        # Its process says that it could not sign.
        link = taken.speaks_to("sink", level="signed")
        link.message(0, 0, said)
        sign(link, b"")
        link.until(lambda kind, _: kind == mesh.RETURNED, "the message to come back")
        refused(factory, taken)
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


@pytest.mark.parametrize("of", ["another message", "another receiver", "another agent", "another level"])
def test_a_proof_of_something_else(factory, pair, mallory, of):
    taken, other = mallory(), mallory()
    said = message("inform", taken.name, [SINK], "434343")
    right = statement(SINK, said)
    wrong = {
        "another message": lambda: proof(taken.agent, taken.name, statement(SINK, said + b"\0")),
        "another receiver": lambda: proof(taken.agent, taken.name, statement("source@factory", said)),
        "another agent": lambda: proof(other.agent, other.name, right),
        # The level stands in the proof, so this one is for no message at `signed`.
        "another level": lambda: proof(taken.agent, taken.name, right, level="signed").replace(b"\1\3", b"\1\4", 1),
    }[of]()
    link = taken.speaks_to("sink", level="signed")
    link.message(0, 0, said)
    sign(link, wrong)
    link.until(lambda kind, _: kind == mesh.RETURNED, "the message to come back")
    refused(factory, taken)
    assert not heard(factory, "434343")
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

"""A node of another CA, though its platform has the same name, gets in nowhere, and both sides are told why. A node of the
platform itself, in an attacker's hands, learns nothing of the agents of others and changes nothing of theirs."""

import base64
import itertools
import json
import signal
import socket
import ssl

import pytest
from attacker import acl
from attacker.mallory import Mallory, milliseconds
from attacker.rogue import RogueNode, of_node
from harness import DEADLINE, SEALBUS, one_worker, wait_for

EMPTY = """
    [platform]
    name = "factory"
"""
WORKER = one_worker()
TAGS = itertools.count()


class Stranger:
    """A node that was properly certified by the other platform's CA."""

    def __init__(self, platform):
        self.home = platform(EMPTY).up()
        self.home.node("stranger").end()
        self.file = self.home.directory / "stranger" / "node.json"
        self.kept = json.loads(self.file.read_text())

    def goes_to(self, factory, **changes):
        """Starts it anew, with a change of the platform's details in its own file."""
        self.kept["enrolment"] |= changes
        self.file.write_text(json.dumps(self.kept))
        return factory.program(SEALBUS, "node", "--state", self.file.parent, name="stranger")

    def credential(self, folder):
        """Its certificates and key, for another implementation of TLS."""
        chain = [ssl.DER_cert_to_PEM_cert(der) for der in of_node(self.file).chain]
        chain_file, key_file = folder / "stranger.pem", folder / "stranger.key"
        chain_file.write_text("".join(chain))
        key_file.write_text(self.kept["key"])
        return chain_file, key_file


@pytest.fixture
def stranger(platform):
    return Stranger(platform)


def place(factory):
    """Where nodes join this platform, and its root's fingerprint, as one of its own nodes knows them."""
    factory.node("own").end()
    enrolment = json.loads((factory.directory / "own" / "node.json").read_text())["enrolment"]
    return enrolment["addresses"], enrolment["root"]


def test_a_node_of_another_ca_is_not_believed(platform, stranger):
    factory = platform(WORKER).up()
    factory.active("worker")
    addresses, root = place(factory)
    master = factory.directory / "up.log"
    # It believes its own platform's root: it is not talked into joining another one.
    misled = stranger.goes_to(factory, addresses=addresses)
    wait_for(lambda: "unknown issuer" in misled.output(), "it to say why it waits", also=factory.logs)
    assert "belongs to another platform, or somebody intercepts the connection" in misled.output()
    why = "the peer does not know the issuer of our certificate"
    wait_for(lambda: why in master.read_text(), "the Master to note it", also=factory.logs)
    assert misled.end() == 0
    # It believes this platform's root: now it is the Master that does not believe it.
    rogue = stranger.goes_to(factory, root=root)
    assert rogue.wait() == 5
    why = "spiffe://factory/node/stranger was not issued by a CA of the platform factory"
    assert why in rogue.output() and "sealbus token" in rogue.output()
    wait_for(lambda: why in master.read_text(), "the Master to note it", also=factory.logs)
    assert "stranger" not in factory.nodes()
    assert not [each for each in factory.ask("ca", "list") if "stranger" in each["identity"]]
    assert json.loads(factory.send("worker", '["echo", "still here"]')) == "still here"


def test_its_certificate_opens_no_link_to_agents(platform, stranger, tmp_path):
    factory = platform(WORKER).up()
    host, _, port = factory.active("worker")["worker"]["address"].rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # An intruder believes anybody.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(*stranger.credential(tmp_path))
    context.set_alpn_protocols(["sealbus-mesh/1/auth"])
    with (
        # An alert; or the end of the connection, if it overtakes the alert.
        pytest.raises(OSError),
        socket.create_connection((host, int(port)), DEADLINE) as plain,
        context.wrap_socket(plain) as stream,
    ):
        stream.recv(1)

    def noted():
        return [each for each in factory.refusals() if "unknown-issuer" in each["reason"]]

    (refusal,) = wait_for(noted, "the refusal to be noted", also=factory.logs)
    assert "spiffe://factory/node/stranger" in refusal["reason"]
    assert json.loads(factory.send("worker", '["echo", "still here"]')) == "still here"


#: Requests that a node takes from the Master alone, from the agent's own node alone, or from nobody.
FORBIDDEN = [
    {"ask": "channel-log", "request": request}
    for request in (
        {"log": "list"},
        {"log": "evidence", "question": {}},
        {"log": "since", "agent": "worker", "durable": "ledger"},
        {"log": "settle", "agent": "worker", "durable": "ledger", "cursors": {"prices": 1}},
        {"log": "read", "question": {"agent": "worker", "pattern": "prices", "start": {"from": "now"}, "began": 0, "events": 9, "bytes": 999, "wait": 0}},
        {"log": "keep", "events": []},
        {"log": "judge", "agent": "worker", "filters": ["price > 1"]},
        {"log": "record", "messages": []},
    )
] + [
    {"ask": "mailbox", "agent": "worker"},
    {"ask": "log", "log": "worker", "from": {"from": "offset", "offset": 0}, "limit": 1000},
    {"ask": "observe"},
    {"ask": "stop", "process": "PROCESS", "grace": 0, "reason": "x"},
    {"ask": "freeze", "process": "PROCESS", "destination": "rogue"},
    {"ask": "fetch-frozen", "process": "PROCESS", "index": 0},
    {"ask": "former-keys", "process": "PROCESS", "key": ""},
    {"ask": "certificates", "process": "PROCESS"},
    {"ask": "leave", "grace": 0},
]


def letter_for(name, sender, **more):
    """A persistent message that waits for ever, as one node carries it to another."""
    cover = {"origin": 1, "sequence": 1, "hops": 1, "receiver": name, "posted": milliseconds(), "expiry": 2**63}
    message = acl.message("failure", sender, [f"{name}@factory"])
    return cover | {"message": base64.b64encode(message).decode()} | more


def post(rogue, link, node, letter):
    """The rogue carries a persistent message to a node, again until that knows it as a node. Returns the answer."""
    def answered():
        answer = rogue.asks(link, node, f"post-{next(TAGS)}", {"ask": "post", "letters": [letter]})
        return None if '"code":"unavailable"' in answer else answer

    return wait_for(answered, f"{node} to know the rogue")


#: The same for a name that the rogue invents: from an agent, and as a notice of the platform.
INVENTED = {
    "invented-1": {"sender": "worker@factory", "provenance": {"proof": "same-process", "identity": "spiffe://factory/agent/worker"}},
    "invented-2": {"sender": "ams@factory", "provenance": {"proof": "platform"}, "about": {"receiver": "worker", "number": 1, "failure": True}},
}


def test_a_node_in_other_hands_speaks_for_its_own_agents_alone(platform):
    factory = platform(WORKER).up()
    place = factory.active("worker")["worker"]
    node, process = place["node"], place["process"]
    program = factory.node("rogue")
    with Mallory(factory.ask("ticket", "guide", "--node", node)["ticket"], "guide") as guide:
        (address, _), (listens, identity) = guide.process_of(node), guide.process_of("rogue")
    program.process.send_signal(signal.SIGKILL)
    program.wait()
    file = factory.directory / "rogue" / "node.json"
    rogue = RogueNode(file, "rogue", identity.rpartition("/")[2], listens)
    with rogue.connects(address) as link:
        link.target(0, f"{node}@factory")
        for name, letter in INVENTED.items():
            answer = post(rogue, link, node, letter_for(name, **letter))
            # Once the Master takes the rogue's process for ended, it is no node any more.
            assert '"code":"not-placed"' in answer or '"code":"not-permitted"' in answer, (name, answer)
            assert f"mailbox_{name.replace('-', '_')}" not in str(list(factory.state.rglob("journal/*"))), name
        for number, question in enumerate(FORBIDDEN):
            question = json.loads(json.dumps(question).replace("PROCESS", process))
            answer = rogue.asks(link, node, f"rogue-{number}", question)
            assert '"code":"not-permitted"' in answer or "waits here for rogue" in answer, (question, answer)
    for subject in ({"kind": "agent", "name": "worker"}, {"kind": "agent", "name": node}, {"kind": "agent", "name": "ams"}):
        with pytest.raises(AssertionError, match="not"):
            rogue.certified(**subject)
    assert json.loads(factory.send("worker", '["echo", "still here"]')) == "still here"
    assert factory.agents()["worker"]["pid"] == place["pid"]

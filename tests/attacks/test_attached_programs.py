"""A program with a ticket, or none, on the connection between processes and their node, and at the operators' socket."""

import resource

import pytest
from attacker.mallory import milliseconds, signing_request
from attacker.rpc import Rpc, encoded, over_unix
from crowd import crowd
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from harness import DEADLINE, PROGRAMS, Platform, bounded, wait_for
from pair import AGENTS

#: How many files each process of the platform may have open.
FILES = 512
MANIFEST = f"""
    [platform]
    name = "factory"
    nodes = 2
{AGENTS}
    [[agent]]
    name = "late"
    command = ["PYTHON", "{PROGRAMS}/worker.py"]
    node = "node-1"
"""


@pytest.fixture(scope="module")
def factory(tmp_path_factory):
    """A platform that inherits the limit, which the attacker does not have."""
    started = Platform(tmp_path_factory.mktemp("factory"), MANIFEST)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))
    try:
        started.up()
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        yield started
    finally:
        started.down()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module")
def socket_of_node(factory, pair):
    (found,) = [path for path in factory.state.rglob("node.sock") if "node-1" in str(path)]
    return found


def test_silent_connections_to_the_nodes_socket_keep_no_newcomer_out(factory, pair, socket_of_node):
    """Even if they are more than the node may have files open."""
    with pair.talking(), crowd(lambda: over_unix(socket_of_node), 2 * FILES):
        # Processes that the node starts itself come by that socket.
        factory.tell("kill", "late")
        factory.tell("start", "late")
        factory.active("late")


def test_silent_connections_to_the_operators_socket_keep_no_operator_out(factory, pair):
    """A program that runs as the Master's user can open the socket, and holds more connections than the Master may have files open."""
    socket = factory.state / "admin.sock"
    # The pair is told what to say through that socket.
    with pair.talking(), crowd(lambda: over_unix(socket), 2 * FILES):
        for _ in range(5):
            assert factory.nodes()["node-1"]["state"] == "alive"


def test_guesses_at_the_operators_key_fill_no_log(factory, pair):
    log = factory.directory / "up.log"
    before = log.stat().st_size
    for number in range(1000):
        with Rpc(over_unix(factory.state / "admin.sock")) as guess:
            ask = {"ask": "prove", "proof": encoded(bytes(32))} if number % 2 else {"ask": "status"}
            assert guess.call(**ask)["fault"]["code"] == "not-permitted"
    assert log.stat().st_size - before < 50_000
    pair.talks()


def test_before_a_ticket_frames_are_short(factory, pair, socket_of_node):
    with pair.talking(), bounded(pair.pids(), 64):
        for _ in range(40):
            with Rpc(over_unix(socket_of_node)) as rpc:
                try:
                    rpc.begin(24 << 20, bytes(1 << 20))
                except OSError:
                    pass
                assert rpc.is_ended()


def test_without_a_ticket_nothing_is_answered(factory, pair, socket_of_node):
    for ask in (
        {"ask": "resolve", "agent": "sink"},
        {"ask": "attach", "ticket": encoded(bytes(32)), "now": milliseconds()},
        {"ask": "report", "agent": "source", "report": {"event": "ended"}},
    ):
        with Rpc(over_unix(socket_of_node)) as rpc:
            assert "fault" in rpc.call(**ask), ask
    pair.talks()


def test_what_is_refused_fills_no_log(factory, pair, mallory, socket_of_node):
    """Neither guesses at the socket nor an attached program that asks for what is not its own."""
    log = socket_of_node.parent.parent / "node.log"
    rpc = mallory().rpc
    before = log.stat().st_size
    for _ in range(2000):
        with Rpc(over_unix(socket_of_node)) as guess:
            assert "fault" in guess.call(ask="attach", ticket=encoded(bytes(32)), now=milliseconds())
    settle = {"log": "settle", "agent": "x" * 100_000, "durable": "x", "cursors": {}}
    for _ in range(100):
        fault = rpc.call(ask="channel-log", node="node-1", request=settle)["fault"]
        assert fault["code"] == "not-placed" and len(fault["message"]) < 1000, fault
    assert log.stat().st_size - before < 100_000
    pair.talks()


def waiting(taken, positions):
    """A question for events of which there are none, and which may wait for them."""
    question = {"agent": taken.local_name, "pattern": "/silence/**", "start": {"from": "now"}, "began": 0}
    question |= {"positions": positions, "events": 1, "bytes": 1, "wait": 10_000}
    return {"ask": "channel-log", "node": "node-1", "request": {"log": "read", "question": question}}


def test_a_ticket_is_for_its_agents_alone(factory, pair, mallory):
    rpc = mallory().rpc
    request = signing_request(Ed25519PrivateKey.generate())
    for name in ("source", "sink", "ams", "master", "node-1", "gateway", "../mallory"):
        answer = rpc.call(ask="certify", subject={"kind": "agent", "name": name}, request=request)
        assert "fault" in answer, name
    for report in ({"event": "ended"}, {"event": "failed", "error": "x"}):
        rpc.call(ask="report", agent="source", report=report)
    posted = {"letter": 1}
    for ask in (
        {"ask": "post", "letters": [posted]},
        {"ask": "channel-log", "node": "node-1", "request": {"log": "list"}},
        {"ask": "channel-log", "node": "node-1", "request": {"log": "since", "agent": "sink", "durable": "x"}},
        {"ask": "letters", "agent": "sink", "outcomes": [[1, "taken"]]},
        {"ask": "inherit", "index": 0},
    ):
        assert "fault" in rpc.call(**ask), ask
    pair.talks()


def test_what_evidence_does_not_name_is_not_recorded(factory, pair, mallory):
    """It would push out what other agents received."""
    taken = mallory()
    message = {"receiver": taken.local_name, "message": encoded(b"x" * 3000), "evidence": encoded(b"x" * 3000)}
    record = {"log": "record", "messages": [message] * 10}
    answer = taken.rpc.call(ask="channel-log", node="node-1", request=record)
    assert answer.get("fault", {}).get("code") == "not-permitted", answer
    pair.talks()


def test_questions_that_wait_hold_up_no_other_request(factory, pair, mallory):
    """However many wait, a node works on the other requests of the process."""
    taken = mallory()
    count = 300
    questions = b"".join(taken.rpc.frame(**waiting(taken, {})) for _ in range(count))
    taken.rpc.stream.sendall(questions + taken.rpc.frame(ask="resolve", agent="sink"))
    asked, before = taken.rpc.calls, 0
    while taken.rpc.read().get("answer", {}).get("id") != asked:
        before += 1
    # The places for requests that are worked on are far fewer than those that wait.
    assert before < count // 2
    pair.talks()


def test_long_questions_that_wait_fill_no_memory(factory, pair, mallory):
    taken = mallory()
    with pair.talking(), bounded(pair.pids(), 320):
        for _ in range(40):
            taken.rpc.stream.sendall(taken.rpc.frame(**waiting(taken, {"x" * (8 << 20): 1})))
        assert "fault" not in taken.rpc.call(ask="resolve", agent="sink")
        many = {str(number): 1 for number in range(20_000)}
        assert taken.rpc.call(**waiting(taken, many))["fault"]["code"] == "bad-request"


def test_certificates_without_end_are_refused(factory, pair, mallory):
    taken = mallory("collector")
    request = signing_request(Ed25519PrivateKey.generate())
    with pair.talking():
        for subject in ({"kind": "agent", "name": "collector"}, {"kind": "process"}):
            answers = [taken.rpc.call(ask="certify", subject=subject, request=request) for _ in range(100)]
            assert sum("chain" in answer for answer in answers) < 50, answers[-1]
            assert "in a row" in answers[-1]["fault"]["message"], answers[-1]
        assert b"in a row" in factory.tell("ca", "log", "--agent", "collector").stdout
        # Others get theirs.
        mallory("honest")


def test_a_process_that_asks_and_reads_nothing_fills_no_memory(factory, pair, mallory, socket_of_node):
    """Its node ends it and says why, and lives on."""
    log = socket_of_node.parent.parent / "node.log"
    taken = mallory("greedy")
    question = b"".join(taken.rpc.frame(ask="resolve", agent="sink") for _ in range(2000))
    taken.rpc.stream.settimeout(3)
    with pair.talking(), bounded(pair.pids(), 128):
        try:
            for _ in range(500):
                taken.rpc.stream.sendall(question)
        except OSError:
            pass

        def said():
            lines = log.read_text(errors="replace").splitlines()
            return [line for line in lines if "greedy" in line and "reads nothing of what its node tells it" in line]

        # The node waits for a while first: the process may be slow.
        wait_for(said, "its node to end the process", DEADLINE * 3, also=factory.logs)
        wait_for(lambda: "lost" in (factory.agents()["greedy"]["note"] or ""), "its end to be known", also=factory.logs)


def test_long_and_many_names_fill_no_memory(factory, pair, mallory):
    rpc = mallory().rpc
    with pair.talking(), bounded(pair.pids(), 160):
        for index in range(8):
            assert rpc.call(ask="resolve", agent=f"{index}" + "x" * (8 << 20))["where"] == "unknown"
        answer = rpc.call(ask="resolve", agent="nobody-there")
        assert "fault" not in answer


def test_reports_are_bounded_and_say_whose_they_are(factory, pair, mallory):
    rpc = mallory("liar").rpc
    record = {"at": 1, "who": "sink@factory", "receiver": None, "reason": "x" * 5000, "count": 10**6, "by": "node-1"}
    assert "fault" in rpc.call(ask="refusals", records=[record] * 2000)
    rpc.call(ask="refusals", records=[record])

    def noted():
        return [each for each in factory.refusals() if each["reason"].startswith("xxx")]

    (shown,) = wait_for(noted, "the report", also=factory.logs)
    assert shown["by"] == "liar" and len(shown["reason"]) < 2000
    text = factory.tell("ps", "--refused").stdout.decode()
    assert "liar" in text
    pair.talks()

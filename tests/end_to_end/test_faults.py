"""Processes die and strangers knock: what runs goes on, and nothing that was accepted is lost."""

import json
import os
import signal
import socket

import pytest
from harness import PROGRAMS, alive, sealbus, wait_for

PAIR = f"""
    [platform]
    name = "factory"
    nodes = 2

    [[agent]]
    name = "source"
    command = ["PYTHON", "{PROGRAMS}/worker.py"]
    node = "node-1"

    [[agent]]
    name = "sink"
    command = ["PYTHON", "{PROGRAMS}/worker.py"]
    node = "node-2"
"""


def heard(factory, receiver="sink", sender="source"):
    return json.loads(factory.send(receiver, '["heard"]')).get(sender, [])


def all_heard(factory, count):
    wait_for(
        lambda: json.loads(factory.send("source", '["sent"]')) == [count, True],
        "all messages to be accepted",
        also=factory.logs,
    )
    wait_for(lambda: len(heard(factory)) >= count, "all messages to arrive", also=factory.logs)
    assert heard(factory) == list(range(count)), "once and in order"
    assert json.loads(factory.send("source", '["failures"]')) == []


def test_a_killed_master_comes_back_with_every_entry_and_agents_talk_meanwhile(platform):
    factory = platform(PAIR).up()
    before = factory.active("source", "sink")
    factory.tell("df", "register", "sink", "--type", "sinking", "--name", "deep")
    certificates = {each["serial"] for each in factory.ask("ca", "list")}
    count = 3000
    factory.send("source", json.dumps(["send", "sink", count, 1000]))
    wait_for(lambda: len(heard(factory)) > 10, "traffic", also=factory.logs)
    factory.master.kill()
    assert sealbus("ps", "--state", factory.state, expect=3).returncode == 3
    factory.up()
    after = factory.active("source", "sink")
    for name in ("source", "sink"):
        assert after[name]["pid"] == before[name]["pid"], "the agents never noticed"
        assert after[name]["restarts"] == 0
    assert [(each["agent"], each["name"]) for each in factory.ask("df", "search", "--type", "sinking")] == [
        ("sink@factory", "deep")
    ]
    assert certificates <= {each["serial"] for each in factory.ask("ca", "list")}
    wait_for(
        lambda: all(node["state"] == "alive" for node in factory.nodes().values()),
        "the nodes to reconnect",
        also=factory.logs,
    )
    all_heard(factory, count)


@pytest.mark.parametrize("victim", ["node-1", "node-2", "master"])
def test_kill_9_of_a_platform_process_loses_nothing_between_living_agents(platform, victim):
    factory = platform(PAIR.replace("nodes = 2", "nodes = 0")).up()
    nodes = {name: factory.node(name) for name in ("node-1", "node-2")}
    before = factory.active("source", "sink")
    count = 2000
    factory.send("source", json.dumps(["send", "sink", count, 1000]))
    wait_for(lambda: len(heard(factory)) > 10, "traffic", also=factory.logs)
    if victim == "master":
        factory.master.kill()
        factory.up()
    else:
        with factory.node_replaced(victim) as start:
            nodes[victim].kill()
            start()
    assert all(alive(agent["pid"]) for agent in before.values()), "agents outlive their node"
    all_heard(factory, count)
    after = factory.active("source", "sink")
    assert {name: agent["pid"] for name, agent in after.items()} == {
        name: agent["pid"] for name, agent in before.items()
    }


def test_a_crashed_agent_is_started_again_and_its_log_is_kept(platform):
    factory = platform(PAIR).up()
    before = factory.active("source", "sink")
    sealbus(
        "send", "sink", '["crash"]', "--performative", "request", "--state", factory.state, expect=None
    )

    def back():
        agent = factory.agents()["sink"]
        return agent["state"] == "active" and agent["pid"] != before["sink"]["pid"]

    wait_for(back, "sink to run again", also=factory.logs)
    agent = factory.agents()["sink"]
    assert agent["restarts"] == 1
    assert agent["serial"] != before["sink"]["serial"], "a new process has a new key"
    assert json.loads(factory.send("sink", '["echo", "back"]')) == "back"
    assert factory.tell("logs", "sink").stdout.decode().count("sink is set up") == 2


def test_an_agent_that_must_not_be_restarted_stays_down(platform):
    factory = platform(PAIR + '    restart = "never"\n').up()
    agents = factory.active("source", "sink")
    os.kill(agents["sink"]["pid"], signal.SIGKILL)
    wait_for(lambda: factory.agents()["sink"]["state"] is None, "sink to end", also=factory.logs)
    assert factory.agents()["sink"]["restarts"] == 0
    assert "9" in (factory.agents()["sink"]["note"] or ""), "how it ended is said"


def test_a_message_to_nobody_comes_back_with_its_receiver_and_reason(platform):
    factory = platform(PAIR).up()
    factory.active("source", "sink")
    factory.send("source", '["send", "nobody", 1, 0]')
    (failure,) = wait_for(
        lambda: json.loads(factory.send("source", '["failures"]')), "the failure", also=factory.logs
    )
    assert "nobody@factory" in failure


def test_a_message_over_the_limit_is_an_error_for_its_sender(platform):
    factory = platform(PAIR.replace("nodes = 2", 'nodes = 2\n    max-message = 100000')).up()
    factory.active("source", "sink")
    answer = json.loads(factory.send("source", '["big", "sink", 200000]'))
    if answer == "accepted":
        # Then it comes back.
        (answer,) = wait_for(
            lambda: json.loads(factory.send("source", '["failures"]')), "the failure", also=factory.logs
        )
    assert "sink" in answer and "100000" in answer, answer
    factory.send("source", '["send", "sink", 5, 0]')
    wait_for(lambda: heard(factory) == list(range(5)), "what comes after it", also=factory.logs)


def test_a_port_in_use_is_named_and_nothing_is_started(platform):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        factory = platform(
            f"""
            [platform]
            name = "factory"
            enrolment-port = {port}
            """
        )
        done = sealbus("up", factory.manifest, "--state", factory.state, expect=1)
    text = done.stderr.decode()
    assert str(port) in text and "in use" in text


def test_a_receiver_that_stops_reading_slows_only_its_own_senders(platform, tmp_path):
    slow = tmp_path / "slow"
    slow.touch()
    factory = platform(
        PAIR
        + f"""
    environment = {{ SLOW = "{slow}" }}
    read = ["{tmp_path}"]

    [[agent]]
    name = "other"
    command = ["PYTHON", "{PROGRAMS}/worker.py"]
    node = "node-2"
    """
    ).up()
    factory.active("source", "sink", "other")
    count = 200_000
    factory.send("source", json.dumps(["send", "sink", count, 0]))

    accepted = -1

    def stalled():
        nonlocal accepted
        before, accepted = accepted, json.loads(factory.send("source", '["sent"]'))[0]
        # Before it answers this, a sender that is not held back has sent more.
        assert json.loads(factory.send("source", '["echo", "there"]')) == "there"
        return 0 < accepted == before

    wait_for(stalled, "the full mailbox to hold its sender back", also=factory.logs)
    assert accepted < count
    # Both ends of the link still serve everybody else.
    assert json.loads(factory.send("other", '["echo", "free"]')) == "free"
    slow.unlink()
    wait_for(
        lambda: json.loads(factory.send("source", '["sent"]'))[0] > accepted + 1000,
        "the sender to go on",
        also=factory.logs,
    )

"""Messages wait for agents that are away, through kills of everything, and arrive once and in order."""

import json
import os
import signal
import time

import pytest
from harness import PROGRAMS, SEALBUS, wait_for


def manifest(notes, source="node-1", sink="node-2"):
    return f"""
    [platform]
    name = "factory"
    nodes = 0

    [[agent]]
    name = "source"
    command = ["PYTHON", "{PROGRAMS}/keeper.py"]
    node = "{source}"
    environment = {{ NOTES = "{notes}", NAME = "source" }}
    write = ["{notes}"]

    [[agent]]
    name = "sink"
    command = ["PYTHON", "{PROGRAMS}/keeper.py"]
    {f'node = "{sink}"' if sink else ""}
    environment = {{ NOTES = "{notes}", NAME = "sink" }}
    write = ["{notes}"]
    """


class Scene:
    """Two agents on two nodes that are killed by themselves."""

    def __init__(self, platform, tmp_path, **places):
        self.notes = tmp_path / "notes"
        self.notes.mkdir()
        self.factory = platform(manifest(self.notes, **places)).up()
        self.nodes = {name: self.factory.node(name) for name in ("node-1", "node-2")}
        self.factory.active("source", "sink")

    def ask(self, agent, *order):
        return json.loads(self.factory.send(agent, json.dumps(order)))

    def lines(self, agent="sink"):
        try:
            text = (self.notes / agent).read_text()
            return text[: text.rfind("\n") + 1].splitlines()
        except FileNotFoundError:
            return []

    def noted(self, agent="sink"):
        """The persistent messages to an agent: number, whether again, sender, text."""
        parts = [line.split(" ", 4) for line in self.lines(agent)]
        return [(int(number), again, sender, text) for _, number, again, sender, text in parts]

    def texts(self):
        return [text for _, _, _, text in self.noted()]

    def waiting(self, agent="sink"):
        return self.factory.ask("mailbox", agent)

    def kill_agent(self, agent):
        os.kill(self.factory.agents()[agent]["pid"], signal.SIGKILL)

    def take_down(self, agent="sink"):
        """Kills an agent, and lets it not come back."""
        (self.notes / f"{agent}-down").touch()
        before = self.factory.agents()[agent]["pid"]
        os.kill(before, signal.SIGKILL)

        def gone():
            now = self.factory.agents()[agent]
            return now["state"] != "active" or now["pid"] != before

        wait_for(gone, f"{agent} to be down", also=self.factory.logs)

    def let_up(self, agent="sink"):
        (self.notes / f"{agent}-down").unlink()

    def kill_node(self, name):
        self.nodes[name].kill()

    def start_node(self, name):
        state = self.factory.directory / name
        self.nodes[name] = self.factory.program(SEALBUS, "node", "--state", state, name=f"{name}-again")

    def all_arrived(self, numbers):
        wait_for(lambda: len(self.texts()) >= len(numbers), "all messages to arrive", also=self.why)
        assert self.texts() == [str(number) for number in numbers], "once and in order"
        wait_for(lambda: self.waiting()["total"] == 0, "nothing to wait", also=self.why)

    def has_room_again(self):
        assert self.ask("source", "post one", "sink", "last", {}) == "accepted"
        wait_for(lambda: self.texts()[-1] == "last", "the last one", also=self.why)

    def why(self):
        return f"{self.waiting()}\n{self.noted()}\n{self.factory.logs()}"


@pytest.mark.parametrize("sink", ["node-1", "node-2"])
def test_messages_to_a_living_agent_arrive_at_once(platform, tmp_path, sink):
    scene = Scene(platform, tmp_path, sink=sink)
    assert scene.ask("source", "post", "sink", 0, 200) == 200
    scene.all_arrived(range(200))
    assert {(again, sender) for _, again, sender, _ in scene.noted()} == {("new", "source@factory")}
    numbers = [number for number, *_ in scene.noted()]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("sink", ["node-1", "node-2"])
def test_messages_wait_for_an_agent_that_is_down(platform, tmp_path, sink):
    scene = Scene(platform, tmp_path, sink=sink)
    scene.ask("source", "post", "sink", 0, 3)
    scene.all_arrived(range(3))
    scene.take_down()
    assert scene.ask("source", "post", "sink", 3, 50) == 50
    wait_for(lambda: scene.waiting()["total"] == 50, "all to wait", also=scene.why)
    (first, *_) = scene.waiting()["letters"]
    assert (first["sender"], first["performative"]) == ("source@factory", "inform")
    assert first["size"] > 0 and first["expiry"] > first["posted"]
    shown = scene.factory.tell("mailbox", "sink").stdout.decode()
    assert "source@factory" in shown and "inform" in shown
    scene.let_up()
    scene.all_arrived(range(53))


def test_messages_survive_the_kill_of_every_process(platform, tmp_path):
    scene = Scene(platform, tmp_path)
    scene.take_down()
    scene.ask("source", "post", "sink", 0, 30)
    scene.kill_agent("source")
    for node in ("node-1", "node-2"):
        scene.kill_node(node)
    scene.factory.master.kill()
    scene.let_up()
    scene.factory.up()
    for node in ("node-1", "node-2"):
        scene.start_node(node)
    scene.all_arrived(range(30))


def test_messages_wait_on_the_senders_node_while_the_receivers_is_dead(platform, tmp_path):
    scene = Scene(platform, tmp_path)
    scene.ask("source", "post", "sink", 0, 5)
    scene.all_arrived(range(5))
    scene.kill_node("node-2")
    assert scene.ask("source", "post", "sink", 5, 40) == 40
    letters = scene.waiting()["letters"]
    assert {letter["node"] for letter in letters} == {"node-1"} and len(letters) == 40
    scene.start_node("node-2")
    scene.all_arrived(range(45))


def test_a_sender_waits_for_its_node_and_nothing_is_kept_twice(platform, tmp_path):
    scene = Scene(platform, tmp_path)
    program = scene.factory.program(
        SEALBUS, "send", "source", json.dumps(["post", "sink", 0, 600]),
        "--performative", "request", "--state", scene.factory.state, name="order",
    )
    wait_for(lambda: len(scene.texts()) > 20, "traffic", also=scene.why)
    scene.kill_node("node-1")
    scene.start_node("node-1")
    wait_for(lambda: len(scene.texts()) > 200, "traffic again", also=scene.why)
    scene.kill_node("node-2")
    scene.start_node("node-2")
    scene.all_arrived(range(600))
    program.wait()


def test_a_receiver_killed_while_it_reads_gets_the_rest_and_knows_what_it_had(platform, tmp_path):
    scene = Scene(platform, tmp_path)
    for turn in range(3):
        before = len(scene.noted())
        (scene.notes / "slow").touch()
        scene.ask("source", "post", "sink", turn * 100, 100)
        (scene.notes / "slow").unlink()
        wait_for(lambda: len(scene.noted()) > before + 20, "some to be read", also=scene.why)
        (scene.notes / "slow").touch()
        pid = scene.factory.agents()["sink"]["pid"]
        scene.kill_agent("sink")
        wait_for(
            lambda: scene.factory.agents()["sink"].get("pid") not in (None, pid),
            "the sink to run again", also=scene.why,
        )
        (scene.notes / "slow").unlink()
    wait_for(lambda: "299" in scene.texts(), "the last one", also=scene.why)
    wait_for(lambda: scene.waiting()["total"] == 0, "nothing to wait", also=scene.why)
    seen, once = set(), []
    for number, again, _, text in scene.noted():
        if number in seen:
            assert again == "again", "what may come twice says so"
        else:
            seen.add(number)
            once.append(text)
    assert once == [str(number) for number in range(300)]


def test_what_expires_comes_back_to_its_sender(platform, tmp_path):
    scene = Scene(platform, tmp_path)
    scene.take_down()
    assert scene.ask("source", "post one", "sink", "late", {"expiry": 30}) == "accepted"
    assert scene.ask("source", "post one", "sink", "in time", {"expiry": 3600}) == "accepted"
    notices = wait_for(lambda: scene.ask("source", "notices"), "the failure", also=scene.why)
    ((performative, content),) = notices
    assert performative == "failure"
    assert "sink@factory" in content and "expired" in content
    wait_for(lambda: scene.waiting()["total"] == 1, "only the other to wait", also=scene.why)
    scene.let_up()
    scene.all_arrived(["in time"])
    assert "expired already" in scene.ask("source", "post one", "sink", "x", {"expiry": -1})


def test_a_sender_is_told_of_what_it_wanted_to_know(platform, tmp_path):
    scene = Scene(platform, tmp_path)
    scene.take_down()
    for receipt in ("disk", "process", "agent"):
        options = {"receipt": receipt}
        assert scene.ask("source", "post one", "sink", receipt, options) == "accepted"
    assert scene.ask("source", "notices") == []
    scene.let_up()
    wait_for(lambda: len(scene.ask("source", "notices")) >= 2, "the receipts", also=scene.why)
    scene.all_arrived(["disk", "process", "agent"])
    notices = scene.ask("source", "notices")
    assert [performative for performative, _ in notices] == ["inform", "inform"]
    for (_, content), by in zip(notices, ("process", "agent"), strict=True):
        assert "delivered" in content and "sink@factory" in content and by in content


def test_a_message_is_not_delivered_before_its_time(platform, tmp_path):
    scene = Scene(platform, tmp_path)
    before = int(time.time() * 1000) / 1000  # Moments count milliseconds.
    scene.ask("source", "post one", "sink", "later", {"valid_from": 3})
    scene.ask("source", "post one", "sink", "now", {})
    wait_for(lambda: len(scene.texts()) == 2, "both", also=scene.why)
    arrived = {line.split(" ")[4]: float(line.split(" ")[0]) for line in scene.lines()}
    assert arrived["later"] >= before + 3


def test_what_waits_for_an_absent_agent_is_not_delivered_before_its_time(platform, tmp_path):
    scene = Scene(platform, tmp_path)
    scene.take_down()
    before = int(time.time() * 1000) / 1000
    scene.ask("source", "post one", "sink", "later", {"valid_from": 8})
    scene.ask("source", "post one", "sink", "now", {})
    wait_for(lambda: scene.waiting()["total"] == 2, "both to wait", also=scene.why)
    shown = [letter.get("valid_from") for letter in scene.waiting()["letters"]]
    assert shown[1] is None and shown[0] / 1000 >= before + 8
    scene.let_up()
    wait_for(lambda: len(scene.texts()) == 2, "both", also=scene.why)
    arrived = {line.split(" ")[4]: float(line.split(" ")[0]) for line in scene.lines()}
    assert arrived["later"] >= before + 8


def test_what_waits_follows_an_agent_that_moves(platform, tmp_path):
    scene = Scene(platform, tmp_path, sink=None)
    for turn in range(3):
        scene.ask("source", "post", "sink", turn * 20, 20)
        here = scene.factory.agents()["sink"]["node"]
        scene.factory.tell("move", "sink", "node-1" if here == "node-2" else "node-2")
        scene.factory.active("sink")
    scene.all_arrived(range(60))


def test_a_full_mailbox_is_an_error_for_its_sender_and_loses_nothing(platform, tmp_path):
    scene = Scene(platform, tmp_path, sink="node-1")
    scene.take_down()
    # 64 MiB for one agent. One by one: each takes its time on a busy machine.
    answers = [scene.ask("source", "post large", "sink", 6 << 20, number) for number in range(12)]
    accepted = answers.count("accepted")
    assert answers[:accepted] == ["accepted"] * 10
    for answer in answers[accepted:]:
        assert "the mailbox of sink on node-1 is full" in answer and "send again" in answer, answer
    assert scene.waiting()["total"] == accepted
    scene.let_up()
    wait_for(lambda: len(scene.texts()) >= accepted, "what was accepted", also=scene.why)
    assert [text.split()[0] for text in scene.texts()] == [str(number) for number in range(accepted)]
    wait_for(lambda: scene.waiting()["total"] == 0, "nothing to wait", also=scene.why)
    scene.has_room_again()


def test_a_full_mailbox_on_another_node_is_an_error_for_the_sender_and_loses_nothing(platform, tmp_path):
    scene = Scene(platform, tmp_path)
    # The receiver runs, and takes nothing more: first its own node's mailbox becomes full, then that of the sender's.
    (scene.notes / "slow").touch()
    assert scene.ask("source", "post one", "sink", "first", {}) == "accepted"
    wait_for(lambda: scene.texts() == ["first"], "the receiver to be busy", also=scene.why)
    accepted = 0

    def refused():
        nonlocal accepted
        answer = scene.ask("source", "post large", "sink", 6 << 20, accepted)
        accepted += answer == "accepted"
        # The sender's node may be full for a moment before the other one is.
        return "node-2" in answer and answer

    answer = wait_for(refused, "both nodes to be full", 300, also=scene.why)
    assert 10 < accepted < 40
    # The error says what happened, to which agent, and what to do.
    assert "the mailbox of sink on node-1 is full" in answer and "send again" in answer, answer
    assert "the mailbox of sink on node-2 is full" in answer, answer
    waiting = scene.waiting()
    assert waiting["total"] >= accepted, "nothing that was accepted is gone"
    assert {letter["node"] for letter in waiting["letters"]} == {"node-1", "node-2"}
    (scene.notes / "slow").unlink()
    wait_for(lambda: len(scene.texts()) > accepted, "what was accepted", 300, also=scene.why)
    assert [text.split()[0] for text in scene.texts()[1:]] == [str(number) for number in range(accepted)]
    wait_for(lambda: scene.waiting()["total"] == 0, "nothing to wait", also=scene.why)
    scene.has_room_again()

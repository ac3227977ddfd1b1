"""A node whose disk takes nothing more refuses what it cannot keep, loses nothing it has accepted, and goes on once there is room."""

import json
import resource

from harness import PROGRAMS, wait_for

#: Lets a program see that a file cannot grow, as on a full disk, instead of being killed.
PATIENTLY = ("env", "--ignore-signal=XFSZ")


def manifest(notes):
    agents = "".join(
        f"""
    [[agent]]
    name = "{name}"
    command = ["PYTHON", "{PROGRAMS}/keeper.py"]
    node = "{node}"
    environment = {{ NOTES = "{notes}", NAME = "{name}" }}
    write = ["{notes}"]
    """
        for name, node in (("source", "node-1"), ("sink", "node-2"))
    )
    return f"""
    [platform]
    name = "factory"
    nodes = 0
    {agents}
    """


class Scene:
    def __init__(self, platform, tmp_path):
        self.notes = tmp_path / "notes"
        self.notes.mkdir()
        self.factory = platform(manifest(self.notes)).up()
        self.nodes = {name: self.factory.node(name, run_by=PATIENTLY) for name in ("node-1", "node-2")}
        self.factory.active("source", "sink")

    def fill(self, node):
        """From now on none of the node's files grows, its log included. Before, it has noted all that was taken."""
        wait_for(lambda: self.waiting()["total"] == 0, "nothing to wait", also=self.factory.logs)
        pid = self.nodes[node].pid
        _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, most))

    def make_room(self, node):
        pid = self.nodes[node].pid
        _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))

    def waiting(self):
        return self.factory.ask("mailbox", "sink")

    def post(self, number):
        return json.loads(
            self.factory.send("source", json.dumps(["post one", "sink", str(number), {}]))
        )

    def arrived(self, numbers):
        def texts():
            file = self.notes / "sink"
            text = file.read_text() if file.exists() else ""
            return [line.split(" ", 4)[4] for line in text[: text.rfind("\n") + 1].splitlines()]

        wait_for(lambda: len(texts()) >= len(numbers), f"{numbers} to arrive", also=self.factory.logs)
        assert texts() == [str(number) for number in numbers], "once and in order"

    def all_live(self):
        assert all(node.process.poll() is None for node in self.nodes.values()), self.factory.logs()


def test_the_senders_disk_is_full(platform, tmp_path):
    scene = Scene(platform, tmp_path)
    assert [scene.post(number) for number in range(3)] == ["accepted"] * 3
    scene.fill("node-1")
    for number in range(3, 6):
        refused = scene.post(number)
        assert "no room on the disk" in refused and "writing goes on once there is room" in refused
    # Work that needs no disk goes on: the order came by a message.
    scene.make_room("node-1")
    assert [scene.post(number) for number in range(6, 9)] == ["accepted"] * 3
    scene.arrived([0, 1, 2, 6, 7, 8])
    scene.all_live()


def test_the_receivers_disk_is_full(platform, tmp_path):
    """Messages that the sender's node has accepted wait there."""
    scene = Scene(platform, tmp_path)
    assert scene.post(0) == "accepted"
    scene.arrived([0])
    scene.fill("node-2")
    assert [scene.post(number) for number in range(1, 4)] == ["accepted"] * 3
    nodes = {letter["node"] for letter in scene.waiting()["letters"]}
    assert nodes <= {"node-1"}
    scene.make_room("node-2")
    assert scene.post(4) == "accepted"
    scene.arrived([0, 1, 2, 3, 4])
    scene.all_live()

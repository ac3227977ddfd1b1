"""Events of persistent channels outlive kills of everything, and durable subscriptions see each once and in order."""

import json
import os
import signal

from harness import PROGRAMS, SEALBUS, Program, sealbus, wait_for


def manifest(notes, retention=""):
    return f"""
    [platform]
    name = "factory"
    nodes = 0

    [[channel]]
    path = "/history"
    qos = "ack=disk"
    persistent = true
    {retention}

    [[agent]]
    name = "writer"
    command = ["PYTHON", "{PROGRAMS}/historian.py", "write", "writer"]
    node = "node-1"
    restart = "always"
    environment = {{ NOTES = "{notes}" }}
    write = ["{notes}"]

    [[agent]]
    name = "reader"
    command = ["PYTHON", "{PROGRAMS}/historian.py", "read", "reader"]
    node = "node-2"
    restart = "always"
    environment = {{ NOTES = "{notes}" }}
    write = ["{notes}"]
    """


class Scene:
    """A writer and a reader on two nodes that are killed by themselves."""

    def __init__(self, platform, tmp_path, retention=""):
        self.notes = tmp_path / "notes"
        self.notes.mkdir()
        self.factory = platform(manifest(self.notes, retention)).up()
        self.state = ("--state", self.factory.state)
        self.nodes = {name: self.factory.node(name) for name in ("node-1", "node-2")}
        self.factory.active("writer", "reader")

    def lines(self, name):
        try:
            text = (self.notes / name).read_text()
        except FileNotFoundError:
            return []
        # The last one may be half written.
        return text[: text.rfind("\n") + 1].splitlines()

    def acknowledged(self):
        return [int(line) for line in self.lines("writer-acknowledged")]

    def seen(self):
        """The notes of the reader: number, log, whether again, missed, publisher, text."""
        parts = [line.split(" ", 5) for line in self.lines("reader")]
        return [(int(number), log, again, int(missed), sender, int(text)) for number, log, again, missed, sender, text in parts]

    def write(self):
        (self.notes / "write").touch()

    def stop_writing(self):
        (self.notes / "write").unlink()

    def written(self, count):
        """Waits until so many more are acknowledged."""
        goal = len(self.acknowledged()) + count
        wait_for(lambda: len(self.acknowledged()) >= goal, f"{goal} to be acknowledged", also=self.why)

    def read(self, count):
        """Waits until the reader has noted so many more."""
        goal = len(self.seen()) + count
        wait_for(lambda: len(self.seen()) >= goal, f"{goal} to be read", also=self.why)

    def kill_agent(self, agent):
        os.kill(self.factory.agents()[agent]["pid"], signal.SIGKILL)

    def start_node(self, name):
        state = self.factory.directory / name
        self.nodes[name] = self.factory.program(SEALBUS, "node", "--state", state, name=f"{name}-again")

    def kept(self):
        return self.factory.ask("channel", "list")["kept"]

    def all_seen(self):
        """Waits until all that was acknowledged was read, and looks at each promise."""

        def missing():
            return set(self.acknowledged()) - {text for *_, text in self.seen()}

        wait_for(lambda: not missing(), "all acknowledged events to be read", also=self.why)
        first = {}
        for number, log, again, missed, sender, text in self.seen():
            assert (log, missed, sender) == ("node-1", 0, "writer@factory"), self.why()
            if number in first:
                assert first[number] == text, "a number is one event's own for ever"
                assert again == "again", f"{text} came twice unmarked\n{self.why()}"
            else:
                assert text not in first.values(), f"{text} was kept twice\n{self.why()}"
                first[number] = text
        assert list(first) == sorted(first), self.why()
        assert list(first.values()) == sorted(first.values()), self.why()

    def why(self):
        shown = [f"{name}: {self.lines(name)[-5:]}" for name in ("writer-acknowledged", "writer-errors", "reader")]
        return "\n".join([*shown, self.factory.logs()])


def test_kept_events_outlive_kills_of_everything(platform, tmp_path):
    scene = Scene(platform, tmp_path)
    scene.write()
    scene.read(20)
    scene.kill_agent("reader")
    scene.written(20)
    scene.kill_agent("writer")
    scene.written(20)
    scene.nodes["node-1"].kill()
    scene.start_node("node-1")
    scene.written(20)
    scene.read(1)
    scene.nodes["node-2"].kill()
    scene.kill_agent("reader")
    scene.start_node("node-2")
    scene.written(20)
    # A node that was killed needs the Master to come back, and its reader needs the node.
    scene.read(20)
    assert scene.factory.master is not None
    scene.factory.master.kill()
    # The channel needs no Master.
    scene.written(20)
    scene.read(20)
    scene.factory.up()
    scene.written(5)
    scene.stop_writing()
    scene.all_seen()
    (kept,) = scene.kept()
    assert (kept["channel"], kept["node"], kept.get("damage")) == ("/history", "node-1", None)
    assert kept["events"] >= len(scene.acknowledged()) and kept["bytes"] > 0
    assert list(kept["durable"]) == ["reader/history"]


def test_the_command_line_replays_and_shows_what_is_torn(platform, tmp_path):
    scene = Scene(platform, tmp_path)
    scene.write()
    scene.written(30)
    scene.stop_writing()
    scene.all_seen()
    count = scene.kept()[0]["events"]
    tail = ("channel", "tail", "/history", "--json", *scene.state)

    def told(*arguments):
        lines = sealbus(*tail, *arguments).stdout.splitlines()
        return [json.loads(line) for line in lines]

    whole = told("--since", "1d", "--count", str(count))
    assert [each["number"] for each in whole] == list(range(1, count + 1))
    assert {(each["sender"], each["log"], each["missed"]) for each in whole} == {("writer@factory", "node-1", 0)}
    assert told("--last", "5", "--count", "5") == whole[-5:]
    assert told("--since", "7", "--count", "3") == whole[6:9]

    scene.nodes["node-1"].kill()
    (log,) = scene.factory.directory.glob("node-1/journal/*channel_history*")
    newest = max(log.iterdir())
    with newest.open("ab") as file:
        file.write(b"SJ of which the rest is missing")
    scene.start_node("node-1")
    wait_for(lambda: scene.kept() and scene.kept()[0]["torn"] > 0, "the torn tail to be shown", also=scene.why)
    assert scene.kept()[0]["events"] == count
    text = scene.factory.tell("channel", "list").stdout.decode()
    assert "torn, and cut off" in text and "reader/history" in text
    assert "cut off what the journal had not acknowledged" in scene.nodes["node-1"].output()
    # A reader that goes on gets all of it, and later events.
    more = Program([SEALBUS, *tail, "--since", "1d", "--count", str(count + 1)], tmp_path / "tail")
    try:
        scene.write()
        assert more.wait() == 0, more.output()
    finally:
        more.end()
    scene.stop_writing()
    scene.all_seen()


def test_a_damaged_log_is_shown_and_its_readers_are_told(platform, tmp_path):
    scene = Scene(platform, tmp_path)
    scene.write()
    scene.written(40)
    scene.stop_writing()
    scene.all_seen()
    count = scene.kept()[0]["events"]
    scene.nodes["node-1"].kill()
    (log,) = scene.factory.directory.glob("node-1/journal/*channel_history*")
    (file,) = log.iterdir()
    whole = file.read_bytes()
    place = whole.index(b"SJ", len(whole) // 2) + 60
    file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    scene.start_node("node-1")
    wait_for(lambda: scene.kept() and scene.kept()[0].get("damage"), "the damage to be shown", also=scene.why)
    assert str(file) in scene.kept()[0]["damage"]
    assert "is damaged at byte" in scene.factory.tell("channel", "list").stdout.decode()

    tail = ("channel", "tail", "/history", "--json", "--since", "1d", *scene.state)
    reader = Program([SEALBUS, *tail], tmp_path / "tail")
    try:
        wait_for(lambda: "node-1 cannot read on" in reader.output(), "the reader to be told", also=reader.output)
    finally:
        reader.end()
    lines = reader.output().splitlines()
    seen = [json.loads(line)["number"] for line in lines if line.startswith("{")]
    assert 0 < len(seen) < count and seen == list(range(1, len(seen) + 1)), lines
    assert any("warning" in line and str(file) in line for line in lines), lines
    # Nothing is written behind what cannot be read.
    scene.write()
    wait_for(lambda: scene.lines("writer-errors"), "the publisher to be told", also=scene.why)
    scene.stop_writing()
    assert "is damaged at byte" in scene.lines("writer-errors")[-1]

    scene.nodes["node-1"].kill()
    file.write_bytes(whole)
    scene.start_node("node-1")
    scene.write()
    scene.written(5)
    scene.stop_writing()
    scene.all_seen()


def test_retention_of_the_manifest_is_kept_to_and_a_gap_is_said(platform, tmp_path):
    scene = Scene(platform, tmp_path, retention="retention = { count = 10 }")
    scene.write()
    scene.read(5)
    # The reader is held where it is; meanwhile more is written than is kept.
    reader = scene.factory.agents()["reader"]["pid"]
    os.kill(reader, signal.SIGSTOP)
    scene.written(600)
    scene.stop_writing()
    os.kill(reader, signal.SIGKILL)
    last = scene.acknowledged()[-1]
    wait_for(lambda: last in {text for *_, text in scene.seen()}, "the last event to be read", also=scene.why)
    assert scene.kept()[0]["events"] == 10
    following, gaps = None, 0
    for number, _, again, missed, _, _ in scene.seen():
        if following is not None and again == "new":
            # The event that it had in hand when it was killed may be among the missed.
            assert number <= following + missed, f"a gap is not said\n{scene.why()}"
        following = max(following or 0, number + 1)
        gaps += missed
    assert gaps > 0, scene.why()

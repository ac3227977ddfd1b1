"""Messages at level `sealed`: their receiver alone reads them, wherever they wait."""

import base64
import json
import os
import signal

import pytest
from harness import documented_keys, sealbus, wait_for
from test_evidence import alone, changed
from test_signed import made

MARKER = "nobody-but-the-sink-may-read-this"
TEXTS = [f"{MARKER} {number}" for number in range(20)]


def forms(text):
    """The ways in which the platform writes a text to disk: as it is, and in base64 at any place of a longer one."""
    whole = text.encode()
    yield whole
    for skipped in range(3):
        middle = whole[skipped:]
        yield base64.b64encode(middle[: len(middle) // 3 * 3])


def files(scene):
    """The files of the Master and the nodes, with their contents."""
    for path in scene.factory.state.rglob("*"):
        try:
            if path.is_file():
                yield path, path.read_bytes()
        except FileNotFoundError:
            # A draft, which has its final name now.
            continue


def hidden(scene):
    """No file of the Master and the nodes shows a sealed text."""
    for path, contents in files(scene):
        assert not any(form in contents for form in forms(MARKER)), path


@pytest.mark.parametrize("level", ["auth", "signed"])
def test_sealed_messages_are_read_by_their_receiver_alone(platform, tmp_path, level):
    scene = made(platform, tmp_path, level, '[evidence]\n            agents = ["sink"]')
    assert scene.ask("source", "seal", "sink", TEXTS) is None
    scene.hears("direct", TEXTS, "sealed signed")
    assert scene.ask("source", "will", "sink", TEXTS) is None
    scene.hears("kept", TEXTS, "sealed signed")
    # A plain message is on disk, so that the search would find a sealed one.
    scene.ask("source", "bond", "sink", ["everybody may read this"])
    plain = list(forms("everybody may read this"))

    def recorded():
        return any(form in contents for _, contents in files(scene) for form in plain)

    wait_for(recorded, "the record of a plain message", also=scene.factory.logs)
    hidden(scene)
    exported = tmp_path / "sink.evidence"

    def in_the_record():
        scene.factory.tell("evidence", "export", "--agent", "sink", exported)
        return exported.read_bytes().count(b'"message":') > 2 * len(TEXTS)

    wait_for(in_the_record, "the record", also=scene.factory.logs)
    assert not any(form in exported.read_bytes() for form in forms(MARKER))
    assert not scene.refusals()
    shown_to_others(scene, exported, tmp_path)


def shown_to_others(scene, exported, folder):
    """The receiver shows what was said: both verifiers believe these words, and no others."""
    words, shown = folder / "words.jsonl", folder / "shown.evidence"
    lines = scene.ask("sink", "words")
    words.write_text("".join(f"{line}\n" for line in lines))
    told = json.loads(sealbus("evidence", "disclose", exported, words, shown, "--json").stdout)
    assert told.keys() == documented_keys()["evidence disclose"]
    assert told["disclosed"] == len(lines) == 2 * len(TEXTS)
    root = folder / "factory.pem"
    root.write_bytes(scene.factory.tell("ca", "root").stdout)

    def verified(path):
        ours = json.loads(sealbus("evidence", "verify", path, "--root", root, "--json").stdout)
        assert ours == alone(path, "--root", root, "--json")
        return [it["disclosed"]["content"] for it in ours["messages"] if it["disclosed"]]

    assert verified(shown) == [*TEXTS, *TEXTS] and verified(exported) == []
    assert MARKER in sealbus("evidence", "verify", shown, "--root", root).stdout.decode()

    def forged(change):
        sealbus("evidence", "verify", changed(shown, change), "--root", root, expect=1)
        assert alone(shown.with_suffix(".forged"), "--root", root) is None

    def disclosed(lines):
        return [line["disclosed"] for line in lines if "disclosed" in line]

    def other_words(lines):
        raw = base64.b64decode(disclosed(lines)[0]["inside"])
        inside = raw.replace(MARKER.encode(), MARKER[::-1].encode())
        assert inside != raw
        disclosed(lines)[0]["inside"] = base64.b64encode(inside).decode()

    def swapped(lines):
        first, second = disclosed(lines)[:2]
        first["message"], second["message"] = second["message"], first["message"]

    def of_an_open_message(lines):
        messages = [line for line in lines if "message" in line]
        disclosed(lines)[-1]["message"] = len(messages)

    def twice(lines):
        lines.append(lines[-1])

    def early(lines):
        lines.insert(-2 * len(TEXTS) - 1, lines.pop())

    for change in (other_words, swapped, of_an_open_message, twice, early):
        forged(change)
    # Words of something else are refused when they are put in.
    other = json.loads(lines[0])
    other["salt"] = base64.b64encode(bytes(32)).decode()
    words.write_text(json.dumps(other))
    done = sealbus("evidence", "disclose", exported, words, folder / "other.evidence", expect=1)
    assert "the words 1" in done.stderr.decode(), done.stderr


def test_a_platform_at_sealed_seals_what_agents_say(platform, tmp_path):
    scene = made(platform, tmp_path, "sealed")
    assert scene.factory.ask("status")["level"] == "sealed"
    scene.slow.touch()
    assert scene.ask("source", "say", "sink", TEXTS) is None
    assert scene.ask("source", "post", "sink", TEXTS) is None
    goal = next(node for node in ("node-2", "node-3") if node != scene.factory.agents()["sink"]["node"])
    scene.factory.ask("move", "sink", goal)
    scene.factory.active("sink")
    hidden(scene)
    scene.slow.unlink()
    scene.hears("direct", TEXTS, "sealed signed")
    scene.hears("kept", TEXTS, "sealed signed")
    assert "a log cannot hold" in scene.ask("source", "quote", "persistent", ["x"])
    assert not scene.refusals()


@pytest.mark.parametrize("level", ["auth", "signed", "sealed"])
def test_sealed_events_are_read_by_subscribers_alone(platform, tmp_path, level):
    scene = made(platform, tmp_path, level, '[evidence]\n            agents = ["sink"]', sink='node = "node-2"')
    qos = "priority=7" if level == "sealed" else "level=sealed"
    assert scene.ask("source", "quote", qos, TEXTS) is None
    scene.hears("/quotes", TEXTS, "sealed signed")
    # A subscriber that begins anew has lost what it knew of the group.
    before = scene.factory.agents()["sink"]["pid"]
    os.kill(before, signal.SIGKILL)
    wait_for(lambda: scene.factory.agents()["sink"]["pid"] not in (None, before), "another life", also=scene.factory.logs)
    scene.factory.active("sink")

    def hears_again():
        assert scene.ask("source", "quote", qos, [f"{MARKER} again"]) is None
        return scene.heard("/quotes")

    heard = wait_for(hears_again, "the events of another life", also=scene.factory.logs)
    assert set(heard) == {(f"{MARKER} again", "sealed signed")}
    hidden(scene)
    assert "a log cannot hold" in scene.ask("source", "quote", f"persistent,{qos}", ["x"])


def test_unread_sealed_messages_move_with_their_receiver(platform, tmp_path):
    scene = made(platform, tmp_path, "auth")
    scene.slow.touch()
    scene.ask("source", "seal", "sink", TEXTS)
    scene.ask("source", "will", "sink", TEXTS)
    goal = next(node for node in ("node-2", "node-3") if node != scene.factory.agents()["sink"]["node"])
    scene.factory.ask("move", "sink", goal)
    scene.factory.active("sink")
    hidden(scene)
    scene.slow.unlink()
    scene.hears("direct", TEXTS, "sealed signed")
    scene.hears("kept", TEXTS, "sealed signed")
    assert not scene.refusals()


def test_a_killed_program_reads_what_waited_for_it(platform, tmp_path):
    # Its keys lie on its node.
    scene = made(platform, tmp_path, "auth", sink='node = "node-2"')
    scene.slow.touch()
    scene.ask("source", "will", "sink", TEXTS)
    before = scene.factory.agents()["sink"]["pid"]
    os.kill(before, signal.SIGKILL)
    wait_for(lambda: scene.factory.agents()["sink"]["pid"] not in (None, before), "another life", also=scene.factory.logs)
    scene.factory.active("sink")
    scene.slow.unlink()
    wait_for(lambda: TEXTS[-1] in [text for text, _ in scene.heard("kept")], "the letters", also=scene.factory.logs)
    assert {how for _, how in scene.heard("kept")} == {"sealed signed"}
    assert not scene.refusals()


def test_who_has_no_key_is_named(platform, tmp_path):
    scene = made(platform, tmp_path, "auth")
    for order in ("seal", "will"):
        said = scene.ask("source", order, "nobody", ["x"])
        assert "nobody@factory" in said and "has stated no key" in said, said
        said = scene.ask("source", order, "b@elsewhere", ["x"])
        assert "b@elsewhere" in said and "another platform" in said, said

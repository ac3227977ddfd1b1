"""A platform at level `signed`: what passes between processes bears its author's proof, however it travels."""

import json
import re
import subprocess
import sys

import pytest
from harness import PROGRAMS, ROOT, sealbus, wait_for

VERIFIER = ROOT / "tools" / "verify_evidence.py"
TEXTS = [str(number) for number in range(50)]


def made(platform, tmp_path, level, channels="", sink=""):
    class Scene:
        slow = tmp_path / "slow"
        factory = platform(
            f"""
            [platform]
            name = "factory"
            level = "{level}"
            nodes = 3
            {channels}

            [[agent]]
            name = "source"
            command = ["PYTHON", "{PROGRAMS}/notary.py"]
            node = "node-1"
            environment = {{ SLOW = "{slow}" }}
            read = ["{tmp_path}"]

            [[agent]]
            name = "sink"
            {sink}
            command = ["PYTHON", "{PROGRAMS}/notary.py"]
            environment = {{ SLOW = "{slow}" }}
            read = ["{tmp_path}"]
            """
        ).up()

        def ask(self, agent, *order):
            return json.loads(self.factory.send(agent, json.dumps(order)))

        def heard(self, whence):
            found = [(sender, text, how) for where, sender, text, how in self.ask("sink", "heard") if where == whence]
            return [(text, how) for sender, text, how in found if sender == "source@factory"]

        def hears(self, whence, texts, how="signed"):
            """Everything comes, once and in order, and each with its author's proof."""
            right = [(text, how) for text in texts]
            wait_for(lambda: len(self.heard(whence)) >= len(right), f"all of {whence}", also=self.factory.logs)
            assert self.heard(whence) == right

        def refusals(self):
            """Refused attempts, without those of a process that its agent has left, which may try its links once more."""
            return [it for it in self.factory.refusals() if "/process/" not in it["who"] or "was revoked" not in it["reason"]]

    scene = Scene()
    scene.factory.active("source", "sink")
    return scene


@pytest.fixture
def scene(platform, tmp_path):
    return made(platform, tmp_path, "signed")


@pytest.mark.parametrize("level", ["auth", "signed", "sealed"])
def test_a_receiver_signs_the_receipt_for_a_signed_message(platform, tmp_path, level):
    scene = made(platform, tmp_path, level, '[evidence]\n            agents = ["source", "sink"]')
    assert scene.ask("source", "attest", "signed" if level == "auth" else None, "sink", ["the deal"]) is None

    def receipts():
        return [it for it in scene.ask("source", "heard") if "delivered" in it[2]]

    ((whence, sender, content, how),) = wait_for(receipts, "the receipt", also=scene.factory.logs)
    assert (whence, sender) == ("kept", "sink@factory")
    assert how == ("sealed signed" if level == "sealed" else "signed")
    certificate, number = re.search(r':certificate "?(\w+)"? :number "?(\d+)', content).groups()

    def said(agent):
        path = tmp_path / f"{agent}.evidence"
        scene.factory.tell("evidence", "export", "--agent", agent, path)
        report = json.loads(sealbus("evidence", "verify", path, "--json").stdout)
        path.unlink()
        return report["messages"]

    # Others see which message the receipt is for.
    def deals():
        return [it for it in said("sink") if (it["serial"], str(it["number"])) == (certificate, number)]

    (deal,) = wait_for(deals, "the message in the evidence", also=scene.factory.logs)
    assert deal["author"] == "source@factory"
    if level != "sealed":
        assert deal["content"] == "the deal"
        wait_for(lambda: [it for it in said("source") if it["content"] == content], "the receipt in the evidence")
    assert not scene.refusals()


def test_whatever_is_said_bears_its_authors_proof(scene):
    assert scene.factory.ask("status")["level"] == "signed"
    scene.ask("source", "say", "sink", TEXTS)
    scene.hears("direct", TEXTS)
    scene.ask("source", "post", "sink", TEXTS)
    scene.hears("kept", TEXTS)
    scene.ask("source", "publish", TEXTS)
    scene.hears("/news", TEXTS)
    scene.hears("/records", TEXTS)
    assert not scene.refusals()


def test_channels_and_single_events_are_signed_where_the_platform_is_not(platform, tmp_path):
    channels = """
            [[channel]]
            path = "/news"
            qos = "level=signed"

            [[channel]]
            path = "/records"
            qos = "level=signed"
    """
    scene = made(platform, tmp_path, "auth", channels)
    scene.ask("source", "publish", TEXTS)
    scene.hears("/news", TEXTS)
    scene.hears("/records", TEXTS)
    scene.ask("source", "say", "sink", TEXTS)
    scene.hears("direct", TEXTS, "proved")
    # A single event of another channel.
    scene.ask("source", "quote", "", ["one"])
    scene.ask("source", "quote", "level=signed", ["two"])
    scene.ask("source", "quote", "", ["three"])
    right = [("one", "proved"), ("two", "signed"), ("three", "proved")]
    wait_for(lambda: len(scene.heard("/quotes")) >= 3, "the quotes", also=scene.factory.logs)
    assert scene.heard("/quotes") == right
    # Nobody asks for less than holds.
    assert "level=tls would be weaker than level=auth" in scene.ask("source", "quote", "level=tls", ["four"])
    assert not scene.refusals()
    # The signed events become evidence for others.
    root, evidence = tmp_path / "factory.pem", tmp_path / "records.evidence"
    root.write_bytes(scene.factory.tell("ca", "root").stdout)
    scene.factory.tell("evidence", "export", "--channel", "/records", evidence)
    sealbus("evidence", "verify", evidence, "--root", root)
    alone = subprocess.run([sys.executable, VERIFIER, evidence, "--root", root], capture_output=True, timeout=60)
    assert alone.returncode == 0 and alone.stdout.count(b"/records") >= len(TEXTS), alone


def test_single_messages_are_signed_where_the_platform_is_not(platform, tmp_path):
    scene = made(platform, tmp_path, "auth", '[evidence]\n            agents = ["sink"]')
    # They keep their proofs when they are unread and their receiver moves.
    scene.slow.touch()
    orders, texts = [], {"direct": [], "kept": []}
    for number in range(20):
        for order, whence, how in (("say", "direct", "proved"), ("vow", "direct", "signed"), ("bond", "kept", "signed")):
            text = f"{order} {number}"
            orders.append([order, "sink", [text]])
            texts[whence].append((text, how))
    scene.ask("source", "each", orders)
    root, evidence = tmp_path / "factory.pem", tmp_path / "sink.evidence"
    root.write_bytes(scene.factory.tell("ca", "root").stdout)

    def recorded():
        scene.factory.tell("evidence", "export", "--agent", "sink", evidence)
        return evidence.read_bytes().count(b'"message":') >= 40

    wait_for(recorded, "the record", also=scene.factory.logs)
    sealbus("evidence", "verify", evidence, "--root", root)
    goal = next(node for node in ("node-2", "node-3") if node != scene.factory.agents()["sink"]["node"])
    scene.factory.ask("move", "sink", goal)
    scene.factory.active("sink")
    scene.slow.unlink()
    for whence, right in texts.items():
        wait_for(lambda: len(scene.heard(whence)) >= len(right), whence, also=scene.factory.logs)  # noqa: B023
        # The sender of a message that was proved where its receiver was before is known from there.
        heard = [(text, "proved" if how == "carried" else how) for text, how in scene.heard(whence)]
        assert heard == right
    assert not scene.refusals()


def test_proofs_move_along_with_unread_messages(scene):
    scene.slow.touch()
    scene.ask("source", "say", "sink", TEXTS)
    scene.ask("source", "post", "sink", TEXTS)
    goal = next(node for node in ("node-2", "node-3") if node != scene.factory.agents()["sink"]["node"])
    scene.factory.ask("move", "sink", goal)
    assert scene.factory.active("sink")["sink"]["node"] == goal
    scene.slow.unlink()
    scene.hears("direct", TEXTS)
    scene.hears("kept", TEXTS)
    assert not scene.refusals()


def test_a_message_that_was_kept_before_the_platform_signed_is_refused(platform, tmp_path):
    """The level is raised while a message waits that nobody has signed."""
    manifest = f"""
        [platform]
        name = "factory"
        level = "LEVEL"

        [[agent]]
        name = "source"
        command = ["PYTHON", "{PROGRAMS}/notary.py"]
        environment = {{ SLOW = "{tmp_path}/slow" }}
        read = ["{tmp_path}"]
        """
    factory = platform(manifest.replace("LEVEL", "auth")).up()
    factory.active("source")
    factory.send("source", json.dumps(["post", "sink", ["early"]]))
    assert factory.ask("mailbox", "sink")["total"] == 1
    assert factory.master.end() == 0
    text = factory.manifest.read_text().replace('"auth"', '"signed"')
    factory.manifest.write_text(text + text[text.index("[[agent]]") :].replace('"source"', '"sink"'))
    factory.up()
    factory.active("source", "sink")
    wait_for(lambda: [each for each in factory.refusals() if "did not sign" in each["reason"]], "the refusal", also=factory.logs)
    assert json.loads(factory.send("sink", '["heard"]')) == []

"""A platform at level `signed`: what passes between processes bears its author's proof, however it travels."""

import json

import pytest
from harness import PROGRAMS, sealbus, wait_for

TEXTS = [str(number) for number in range(50)]


@pytest.fixture
def scene(platform, tmp_path):
    class Scene:
        slow = tmp_path / "slow"
        factory = platform(
            f"""
            [platform]
            name = "factory"
            level = "signed"
            nodes = 3

            [[agent]]
            name = "source"
            command = ["PYTHON", "{PROGRAMS}/notary.py"]
            node = "node-1"
            environment = {{ SLOW = "{slow}" }}
            read = ["{tmp_path}"]

            [[agent]]
            name = "sink"
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

        def hears(self, whence, texts):
            """Everything comes, once and in order, and each with its author's proof."""
            right = [(text, "signed") for text in texts]
            wait_for(lambda: len(self.heard(whence)) >= len(right), f"all of {whence}", also=self.factory.logs)
            assert self.heard(whence) == right

    made = Scene()
    made.factory.active("source", "sink")
    return made


def test_whatever_is_said_bears_its_authors_proof(scene):
    assert scene.factory.ask("status")["level"] == "signed"
    scene.ask("source", "say", "sink", TEXTS)
    scene.hears("direct", TEXTS)
    scene.ask("source", "post", "sink", TEXTS)
    scene.hears("kept", TEXTS)
    scene.ask("source", "publish", TEXTS)
    scene.hears("/news", TEXTS)
    scene.hears("/records", TEXTS)
    assert not scene.factory.refusals()


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
    assert not scene.factory.refusals()


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


def test_rabbitmq_does_not_reach_the_level(platform):
    factory = platform(
        '[platform]\nname = "factory"\nlevel = "signed"\ntransport = "rabbitmq"\n[rabbitmq]\nmanaged = true\n'
    )
    done = sealbus("up", factory.manifest, "--state", factory.state, expect=None)
    assert done.returncode and "RabbitMQ does not reach the level signed" in done.stderr.decode(), done.stderr
    assert not factory.pids()

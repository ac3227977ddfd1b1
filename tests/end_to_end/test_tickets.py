"""Programs that join with a ticket have mailboxes and channels like those that a node starts."""

import json
import sys

import pytest
from harness import PROGRAMS, wait_for


@pytest.fixture
def scene(platform, tmp_path):
    factory = platform(
        """
        [platform]
        name = "factory"
        nodes = 2
        """
    ).up()
    (tmp_path / "notes").mkdir()

    def both_alive():
        return [node["state"] for node in factory.nodes().values()] == ["alive"] * 2

    wait_for(both_alive, "both nodes", also=factory.logs)
    return Scene(factory, tmp_path / "notes")


class Scene:
    def __init__(self, factory, notes):
        self.factory = factory
        self.notes = notes
        self.joined = 0

    def join(self, program, agent, node):
        """Starts a program in the test's own hands, with a fresh ticket."""
        ticket = self.factory.ask("ticket", agent, "--node", node)["ticket"]
        self.joined += 1
        environment = {"SEALBUS_TICKET": ticket, "NOTES": str(self.notes), "NAME": agent}
        started = self.factory.program(
            sys.executable, PROGRAMS / f"{program}.py",
            name=f"{agent}-{self.joined}", environment=environment,
        )
        self.factory.active(agent)
        return started

    def ask(self, agent, *order):
        return json.loads(self.factory.send(agent, json.dumps(order)))

    def texts(self, agent):
        try:
            text = (self.notes / agent).read_text()
        except FileNotFoundError:
            return []
        return [line.split(" ", 4)[4] for line in text[: text.rfind("\n") + 1].splitlines()]

    def arrive(self, agent, numbers):
        wanted = [str(number) for number in numbers]
        wait_for(lambda: len(self.texts(agent)) >= len(wanted), "all messages", also=self.factory.logs)
        assert self.texts(agent) == wanted, "once and in order"
        wait_for(
            lambda: self.factory.ask("mailbox", agent)["total"] == 0,
            "nothing to wait", also=self.factory.logs,
        )


def test_messages_wait_for_a_program_that_is_killed_and_joins_again(scene):
    scene.join("keeper", "source", "node-1")
    sink = scene.join("keeper", "sink", "node-2")
    scene.ask("source", "post", "sink", 0, 20)
    scene.arrive("sink", range(20))
    sink.kill()
    wait_for(
        lambda: scene.factory.agents().get("sink", {}).get("state") != "active",
        "sink to be gone", also=scene.factory.logs,
    )
    assert scene.ask("source", "post", "sink", 20, 30) == 30
    assert scene.factory.ask("mailbox", "sink")["total"] == 30
    scene.join("keeper", "sink", "node-2")
    scene.arrive("sink", range(50))


def test_a_program_on_a_channel_hears_what_another_one_publishes(scene):
    scene.join("herald", "teller", "node-1")
    scene.join("herald", "listener", "node-2")
    (scene.notes / "listener-listens").touch()
    wait_for((scene.notes / "listener-subscribed").exists, "a subscription", also=scene.factory.logs)
    # The first event is heard: a publisher knows all subscriptions.
    (scene.notes / "teller-publishes").touch()
    heard = scene.notes / "listener-heard"
    wait_for(
        lambda: heard.exists() and len(heard.read_text().splitlines()) >= 200, "events",
        also=scene.factory.logs,
    )
    (scene.notes / "teller-publishes").unlink()
    published = scene.notes / "teller-published"
    wait_for(lambda: published.exists() and published.read_text(), "the end", also=scene.factory.logs)
    wanted = [f"teller@factory {number}" for number in range(int(published.read_text()))]
    wait_for(lambda: len(heard.read_text().splitlines()) >= len(wanted), "the rest", also=scene.factory.logs)
    assert heard.read_text().splitlines() == wanted


def test_a_program_that_the_platform_cannot_start_is_not_ended_for_a_restart(scene):
    program = scene.join("keeper", "source", "node-1")
    refused = scene.factory.tell("restart", "source", expect=5).stderr.decode()
    assert "source came with a ticket" in refused
    assert scene.ask("source", "where") == program.pid
    assert scene.factory.agents()["source"]["state"] == "active"

"""Channels go on when processes of the platform are killed: there is none in their middle."""

import os
import signal

import pytest
from harness import PROGRAMS, SEALBUS, wait_for

NAMES = ("teller", "listener", "latecomer")
PLACES = dict(zip(NAMES, ("node-1", "node-2", "node-2"), strict=True))


def manifest(notes):
    agents = "".join(
        f"""
    [[agent]]
    name = "{name}"
    command = ["PYTHON", "{PROGRAMS}/herald.py"]
    node = "{node}"
    environment = {{ NOTES = "{notes}" }}
    write = ["{notes}"]
    """
        for name, node in PLACES.items()
    )
    return f"""
    [platform]
    name = "factory"
    nodes = 0
    {agents}
    """


class Scene:
    """One agent that publishes and two that listen, on two nodes."""

    def __init__(self, platform, tmp_path):
        self.notes = tmp_path / "notes"
        self.notes.mkdir()
        self.factory = platform(manifest(self.notes)).up()
        self.nodes = {name: self.factory.node(name) for name in ("node-1", "node-2")}
        self.factory.active(*NAMES)

    def say(self, agent, what):
        (self.notes / f"{agent}-{what}").touch()

    def unsay(self, agent, what):
        (self.notes / f"{agent}-{what}").unlink()

    def wait_until(self, agent, what):
        wait_for((self.notes / f"{agent}-{what}").exists, f"{agent}: {what}", also=self.factory.logs)

    def heard(self, agent):
        """The numbers an agent heard, each of which is whole."""
        try:
            text = (self.notes / f"{agent}-heard").read_text()
        except FileNotFoundError:
            return []
        lines = text[: text.rfind("\n") + 1].splitlines()
        assert {line.split()[0] for line in lines} <= {"teller@factory"}
        return [int(line.split()[1]) for line in lines]

    def hears_more(self, agent, count=100):
        before = len(self.heard(agent))
        wait_for(
            lambda: len(self.heard(agent)) >= before + count, f"{agent} to hear more", also=self.factory.logs
        )

    def listens(self, agent):
        self.say(agent, "listens")
        self.wait_until(agent, "subscribed")

    def heard_all(self):
        """Ends the publishing; each listener has heard all from its first one on, once and in order."""
        self.unsay("teller", "publishes")
        self.wait_until("teller", "published")
        published = self.notes / "teller-published"
        count = int(wait_for(published.read_text, "the number of events", also=self.factory.logs))
        for agent in ("listener", "latecomer"):
            wait_for(
                lambda agent=agent: self.heard(agent)[-1:] == [count - 1],
                f"{agent} to hear the last one",
                also=self.factory.logs,
            )
            heard = self.heard(agent)
            assert heard == list(range(heard[0], count)), f"{agent}: once and in order"


@pytest.mark.parametrize("victim", ["master", "node-1", "node-2"])
def test_events_and_new_subscriptions_go_on_when_a_platform_process_is_killed(platform, tmp_path, victim):
    scene = Scene(platform, tmp_path)
    scene.listens("listener")
    scene.say("teller", "publishes")
    scene.hears_more("listener")
    if victim == "master":
        scene.factory.master.kill()
    else:
        scene.nodes[victim].kill()
    scene.hears_more("listener")
    # Nobody of the platform is needed for a new one.
    scene.listens("latecomer")
    scene.hears_more("latecomer")
    if victim == "master":
        scene.factory.up()
    else:
        state = scene.factory.directory / victim
        scene.factory.program(SEALBUS, "node", "--state", state, name=f"{victim}-again")
    scene.factory.active(*NAMES)
    scene.hears_more("listener")
    scene.heard_all()


def test_a_killed_listener_holds_nobody_up(platform, tmp_path):
    scene = Scene(platform, tmp_path)
    scene.listens("listener")
    scene.listens("latecomer")
    scene.say("teller", "publishes")
    scene.hears_more("listener")
    scene.hears_more("latecomer")
    before = scene.factory.agents()["latecomer"]["pid"]
    # Events that it has not heard are lost with it; its successor begins anew, in a file of its own.
    os.kill(before, signal.SIGSTOP)
    (scene.notes / "latecomer-heard").unlink()
    (scene.notes / "latecomer-subscribed").unlink()
    os.kill(before, signal.SIGKILL)
    scene.hears_more("listener")
    scene.wait_until("latecomer", "subscribed")
    scene.hears_more("latecomer")
    scene.heard_all()

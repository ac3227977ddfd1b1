"""Programs that a node starts, and that take their time."""

import json
from pathlib import Path

from harness import PROGRAMS, wait_for


def test_an_agent_is_found_before_its_program_has_started_the_others(platform):
    factory = platform(
        f"""
        [platform]
        name = "factory"

        [[agent]]
        name = "pair"
        agents = ["early", "never"]
        command = ["PYTHON", "{PROGRAMS}/hesitant.py"]
        environment = {{ NAME = "early" }}
        """
    ).up()
    factory.active("early")
    assert factory.send("early", "hello") == "hello"
    assert factory.agents()["never"]["state"] != "active"


def test_a_program_with_several_threads_gets_and_sends_all_in_order(platform):
    worker = f'command = ["PYTHON", "{PROGRAMS}/worker.py"]'
    factory = platform(
        f"""
        [platform]
        name = "factory"
        nodes = 2

        [[agent]]
        name = "hub"
        {worker}
        environment = {{ THREADS = "3" }}

        [[agent]]
        name = "rim"
        replicas = 3
        {worker}
        """
    ).up()
    rims = ["rim-1", "rim-2", "rim-3"]
    pid = factory.active("hub", *rims)["hub"]["pid"]
    names = [task.joinpath("comm").read_text().strip() for task in Path(f"/proc/{pid}/task").iterdir()]
    assert names.count("sealbus-work") >= 3, names
    numbers = list(range(2000))

    def tell(agent, *words):
        return json.loads(factory.send(agent, json.dumps(words)))

    for rim in rims:
        factory.send(rim, json.dumps(["send", "hub", len(numbers), 0]))
    factory.send("hub", json.dumps(["send", "rim-1", len(numbers), 0]))
    expected = {rim: numbers for rim in rims}
    wait_for(lambda: tell("hub", "heard") == expected, "the hub to hear all in order", also=factory.logs)
    wait_for(lambda: tell("rim-1", "heard") == {"hub": numbers}, "rim-1 to hear all in order", also=factory.logs)
    assert all(tell(agent, "failures") == [] for agent in ["hub", *rims])

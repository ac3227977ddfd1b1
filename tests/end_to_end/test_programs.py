"""Programs that a node starts, and that take their time."""

from harness import PROGRAMS


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

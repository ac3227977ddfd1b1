"""A node ends a program that writes too much into its own folder, and says which line of the manifest allows more."""

import json

from harness import PROGRAMS, wait_for


def test_a_program_that_fills_the_disk_is_ended_and_concerns_nobody_else(platform):
    factory = platform(
        f"""
        [platform]
        name = "factory"

        [[agent]]
        name = "leaver"
        command = ["PYTHON", "{PROGRAMS}/leaver.py", "fill"]
        restart = "never"
        disk = "32 MiB"

        [[agent]]
        name = "worker"
        command = ["PYTHON", "{PROGRAMS}/worker.py"]
        """
    ).up()
    big = factory.state / "node-1" / "work" / "leaver" / "big"

    def note():
        return str(factory.agents().get("leaver", {}).get("note"))

    wait_for(lambda: "ended (used more than its `disk`" in note(), "the reason", also=factory.logs)
    lines = factory.tell("logs", "leaver").stdout.decode().splitlines()
    (told,) = [line for line in lines if line.startswith("-- leaver ended: used more than its `disk`")]
    assert 'write `disk = "' in told
    factory.active("worker")
    assert json.loads(factory.send("worker", '["echo", "on"]')) == "on"

    # It would write on.
    size = big.stat().st_size
    factory.tell("start", "leaver", "--timeout", "1s", expect=None)
    wait_for(lambda: "leaver could not be started: used more than its `disk`" in note(), "the refusal", also=factory.logs)
    assert big.stat().st_size == size > 32 << 20
    big.unlink()
    factory.tell("start", "leaver", "--timeout", "1s", expect=None)
    wait_for(big.exists, "the program to run again", also=factory.logs)

"""Tools in Python and in Rust are the same on the wire: an agent of either reads from the other's."""

import sys
from pathlib import Path

import pytest
from harness import SEALBUS, wait_for

RUST = [SEALBUS.parent / "examples" / "tool_agent"]
PYTHON = [sys.executable, Path(__file__).resolve().parents[2] / "examples" / "tool_agent.py"]


@pytest.mark.parametrize(("model", "reader"), [(RUST, PYTHON), (PYTHON, RUST)], ids=["rust", "python"])
def test_an_agent_reads_from_the_tool_of_another_language(platform, model, reader):
    assert RUST[0].exists(), f"{RUST[0]} is missing: run `cargo build -p sealbus --example tool_agent`"
    command = ", ".join(f'"{part}"' for part in model)
    factory = platform(
        f"""
        [platform]
        name = "factory"

        [[agent]]
        name = "model"
        command = [{command}]
        """
    ).up()

    def is_offered():
        return "complete" in factory.tell("df", "search", "--type", "complete", expect=None).stdout.decode()

    wait_for(is_offered, "the tool in the DF", also=factory.logs)
    ticket = factory.ask("ticket", "reader")["ticket"]
    program = factory.program(*reader, name="reader", environment={"SEALBUS_TICKET": ticket})
    assert program.wait() == 0, program.output() + factory.logs()
    assert "To the end" in program.output()
    assert "One sentence of a million words was enough." in program.output()

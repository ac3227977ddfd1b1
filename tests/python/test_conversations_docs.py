"""The programs in docs/conversations.md work as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import sealbus
from sealbus import Agent
from sealbus.testing import TestBed

DOCS = (Path(__file__).resolve().parents[2] / "docs" / "conversations.md").read_text()
BLOCKS: list[str] = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
*PROGRAMS, AUCTION, TEST = BLOCKS
PRINTED = [
    r"anna has painted it for 48 euros\n",
    r"(\d+\n)*2\d\d\nready at 2\d\d\n",
]


def run(*arguments: str | Path) -> str:
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("block", "printed"), [*zip(PROGRAMS, PRINTED, strict=True)], ids=["call", "answer"])
def test_the_programs_print_what_is_told(block: str, printed: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(block)
    assert re.fullmatch(printed, run(program))


async def test_the_auction_ends_as_is_told(
    testbed: TestBed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    agents: list[Agent] = []
    monkeypatch.setattr(sealbus, "run", lambda *started: agents.extend(started))
    exec(compile(AUCTION, "auction", "exec", dont_inherit=True), {"__name__": "auction"})
    # Its rounds are short. On a test bed no bid misses one.
    await testbed.start_all(*agents)
    await testbed.clock.run(testbed.wait())
    assert re.fullmatch(r"anna pays [34]0\n", capsys.readouterr().out)


def test_the_test_passes_and_can_fail(tmp_path: Path) -> None:
    program = tmp_path / "test_tea.py"
    # The file has no settings of its own: the plugin brings the fixture.
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    program.write_text(TEST)
    assert "1 passed" in run("-m", "pytest", "-q", program)
    program.write_text(TEST.replace("your tea\"", "your coffee\"", 1))
    with pytest.raises(AssertionError, match="expected 'your tea', and got 'your coffee'"):
        run("-m", "pytest", "-q", program)

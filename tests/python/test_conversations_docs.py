"""The programs in docs/conversations.md work as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = (Path(__file__).resolve().parents[2] / "docs" / "conversations.md").read_text()
BLOCKS: list[str] = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
PRINTED = [
    r"anna has painted it for 48 euros\n",
    r"(\d+\n)*2\d\d\nready at 2\d\d\n",
    r"anna pays [34]0\n",
]


def run(*arguments: str | Path) -> str:
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("block", "printed"), [*zip(BLOCKS[:-1], PRINTED, strict=True)], ids=["call", "answer", "auction"])
def test_the_programs_print_what_is_told(block: str, printed: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(block)
    assert re.fullmatch(printed, run(program))


def test_the_test_passes_and_can_fail(tmp_path: Path) -> None:
    program = tmp_path / "test_tea.py"
    # The file has no settings of its own: the plugin brings the fixture.
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    program.write_text(BLOCKS[-1])
    assert "1 passed" in run("-m", "pytest", "-q", program)
    program.write_text(BLOCKS[-1].replace("your tea\"", "your coffee\"", 1))
    with pytest.raises(AssertionError, match="expected 'your tea', and got 'your coffee'"):
        run("-m", "pytest", "-q", program)

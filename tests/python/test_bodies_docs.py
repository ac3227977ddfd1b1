"""The programs in docs/bodies.md work as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = (Path(__file__).resolve().parents[2] / "docs" / "bodies.md").read_text()
BLOCKS: list[str] = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
PRINTED = [
    "125.0\nnot-understood $.hours: expected float, got str\n",
    "((action (agent-identifier :name seller@plat1) (Sell :item (Book :title \"Agents talk\" :price 12.5) :buyer "
    "(agent-identifier :name buyer@factory))))\n",
    "once\nupon\na\ntime\n",
]


@pytest.mark.parametrize(("block", "printed"), [*zip(BLOCKS, PRINTED, strict=True)], ids=["bodies", "ontology", "tool"])
def test_the_programs_print_what_is_told(block: str, printed: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(block)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed

"""The end of `make test` tells what was left out."""

import subprocess
import sys
from pathlib import Path

LEFT_OUT = Path(__file__).resolve().parents[1] / "left_out"
SUITE = """
import pytest

@pytest.mark.skipif(True, reason="no browser")
@pytest.mark.parametrize("number", [1, 2])
def test_skipped(number): ...

def test_passed():
    pass

@pytest.mark.xfail
def test_fails_as_expected():
    assert False
"""
WHOLE = """
import pytest

pytest.skip("no broker", allow_module_level=True)
"""


def told(folder):
    done = subprocess.run([sys.executable, LEFT_OUT, folder], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_each_reason_is_told_with_its_suite(tmp_path):
    reports = tmp_path / "reports"
    assert told(reports) == ["No test was left out"]
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for suite, text in (("test-one", SUITE), ("test-two", WHOLE)):
        file = tmp_path / f"{suite.replace('-', '_')}.py"
        file.write_text(text)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={reports / suite}.xml", file]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        # 5: a file that is skipped as a whole has no tests.
        assert done.returncode in (0, 5), done.stdout
    one, two = told(reports)
    assert one == "test-one left out 2: no browser"
    assert two.startswith("test-two left out 1: ") and "no broker" in two

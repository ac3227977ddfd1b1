"""The benchmarks' own instruments."""

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "bench" / "python"


def test_a_bare_interpreter_holds_less_than_one_with_this_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of agents is stated above that of the interpreter."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from measure import bare_interpreter
    from workload import resident

    mebibyte = 2**20
    assert 2 * mebibyte < bare_interpreter() < resident()

"""Options of the fault suite."""

from __future__ import annotations

import pytest

from network import pytest_configure  # noqa: F401
from platforms import binary, tmp_path  # noqa: F401

#: The seed of the walks that every test run takes.
SEED = 1


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--runs", type=int, default=1, help="walks of each kind of traffic")
    parser.addoption("--steps", type=int, default=6, help="steps of a walk")
    parser.addoption("--seed", type=int, default=SEED, help="seed of the first walk")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        first = metafunc.config.getoption("--seed")
        metafunc.parametrize("seed", range(first, first + metafunc.config.getoption("--runs")))

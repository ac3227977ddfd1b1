"""Random walks of faults, one for each kind of traffic and seed. A failure repeats with `--seed`."""

from contextlib import ExitStack

import pytest
from history import KINDS
from walk import Walk


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_doubled_or_reordered(kind, seed, tmp_path, pytestconfig):
    with ExitStack() as ends:
        walk = Walk(kind, seed, tmp_path, ends)
        walk.walk(pytestconfig.getoption("--steps"))
        walk.ends_clean()

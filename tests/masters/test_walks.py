"""Random walks of kills and stops of Masters and of etcd, one for each seed. A failure repeats with `--seed`."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from walk import Walk


def test_whatever_is_killed_or_stopped_nothing_acknowledged_is_lost(
    seed: int, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    with ExitStack() as ends:
        walk = Walk(seed, tmp_path, ends)
        walk.walk(pytestconfig.getoption("--steps"))
        walk.ends_clean()

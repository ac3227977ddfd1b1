"""Random walks of kills, stops, cuts and full disks, one for each seed. A failure repeats with `--seed`."""

from contextlib import ExitStack
from pathlib import Path

import pytest

import wires
from walk import Walk


def test_whatever_is_killed_or_stopped_nothing_acknowledged_is_lost(
    seed: int, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    with ExitStack() as ends:
        walk = Walk(seed, tmp_path, ends)
        walk.walk(pytestconfig.getoption("--steps"))
        walk.ends_clean()


@pytest.mark.skipif(not wires.ARE_POSSIBLE, reason="one-way cuts and full disks of etcd need root and iproute2")
def test_whatever_is_cut_off_one_way_or_full_nothing_acknowledged_is_lost(
    seed: int, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    with ExitStack() as ends:
        walk = Walk(seed, tmp_path, ends, with_machines=True)
        walk.walk(pytestconfig.getoption("--steps"))
        walk.ends_clean()

"""The agents on a test bed: a platform in memory, with a clock that the test moves."""

import pytest
from agents import Owner, Painter

from sealbus.testing import TestBed


async def test_the_best_offer_gets_the_work(testbed: TestBed, capsys: pytest.CaptureFixture[str]) -> None:
    painters = [Painter(f"painter-{number}") for number in (1, 2, 3)]
    await testbed.start_all(Owner("owner"), *painters)
    await testbed.clock.run(testbed.wait())
    # The first painter refuses so long a fence.
    assert capsys.readouterr().out == "painter-2 has painted it for 720 euros\n"

"""The agents on a test bed: a platform in memory, with a clock that the test moves."""

import pytest
from agents import Dashboard, Sensor

from sealbus.testing import TestBed


async def test_the_dashboard_shows_ten_values(testbed: TestBed, capsys: pytest.CaptureFixture[str]) -> None:
    await testbed.start_all(Dashboard("dashboard"), Sensor("kitchen"), Sensor("cellar"))
    await testbed.clock.run(testbed.wait())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert {line.split("@")[0] for line in lines} == {"kitchen", "cellar"}

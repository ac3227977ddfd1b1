"""The pytest plugin: the fixture ``testbed`` and the option ``--sealbus-seed``. See :mod:`sealbus.testing`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

# Without pytest-asyncio there is no fixture; `async with TestBed()` does the same.
HAS_ASYNCIO = find_spec("pytest_asyncio") is not None

if TYPE_CHECKING:
    from sealbus.testing import TestBed


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option."""
    group = parser.getgroup("sealbus")
    group.addoption("--sealbus-seed", type=int, default=0, help="the seed of the random faults of test beds")


if HAS_ASYNCIO:
    import pytest_asyncio

    @pytest_asyncio.fixture
    async def testbed(request: pytest.FixtureRequest) -> AsyncIterator[TestBed]:
        """A platform in memory, with a clock of its own."""
        from sealbus.testing import TestBed

        async with TestBed(seed=request.config.getoption("--sealbus-seed")) as testbed:
            yield testbed

"""Every asynchronous test runs in each kind of event loop."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

from sealbus import EventLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {
        "sealbus": EventLoop,
        "asyncio": asyncio.new_event_loop,
        "uvloop": uvloop.new_event_loop,
    }

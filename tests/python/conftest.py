"""Every asynchronous test runs in each kind of event loop."""

import asyncio
import signal
from collections.abc import Callable, Mapping

import pytest
import uvloop

from sealbus import EventLoop


# A shell that starts the tests in the background lets them, and all they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {
        "sealbus": EventLoop,
        "asyncio": asyncio.new_event_loop,
        "uvloop": uvloop.new_event_loop,
    }

"""The clock that agents follow."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from datetime import datetime
from typing import Protocol

__all__ = ["Clock", "LoopClock", "Timer"]


class Timer(Protocol):
    """A scheduled call of a clock."""

    def cancel(self) -> None:
        """Cancels the call."""


class Clock:
    """The agents' time: their time-outs, behaviours and expiries all follow the clock of their platform.

    A derived clock implements :meth:`now`, :meth:`time` and :meth:`call_later`. Pass it to ``Platform(clock=…)``, so that a
    test can let a day pass at once.
    """

    def now(self) -> float:
        """Seconds since some moment; it never goes back."""
        raise NotImplementedError

    def time(self) -> float:
        """Seconds since 1970."""
        raise NotImplementedError

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Makes a call after so many seconds."""
        raise NotImplementedError

    def moment(self, when: float | datetime | None) -> int | None:
        """A time, or a number of seconds from now, as milliseconds since 1970."""
        if when is None:
            return None
        seconds = when.timestamp() if isinstance(when, datetime) else self.time() + when
        return max(0, round(seconds * 1000))

    def hold(self) -> AbstractContextManager[None]:
        """For a wait whose end does not depend on the time, such as the wait for a directory of the platform: a test's clock
        stands still meanwhile."""
        return nullcontext()

    async def sleep(self, delay: float) -> None:
        """Waits so many seconds."""
        if delay <= 0.0:
            await asyncio.sleep(0)
            return
        over = asyncio.Event()
        timer = self.call_later(delay, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    @asynccontextmanager
    async def timeout(self, delay: float | None) -> AsyncIterator[None]:
        """Cancels what is awaited in the block after so many seconds, and raises TimeoutError."""
        if delay is None:
            yield
            return
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(None) as limit:
            timer = self.call_later(max(0.0, delay), lambda: limit.reschedule(loop.time()))
            try:
                yield
            finally:
                timer.cancel()


class LoopClock(Clock):
    """The clock of an asyncio loop, and the system's time of day."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        """The loop's time."""
        return self._loop.time()

    def time(self) -> float:
        """The system's time."""
        return time.time()

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Makes a call after so many seconds."""
        if math.isnan(delay):
            # NaN would disturb the order of the loop's timers, and make others late.
            raise ValueError("a time-out or pause is a number of seconds, not NaN")
        return self._loop.call_later(delay, callback)

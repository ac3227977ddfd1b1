"""The connection of the native half to one asyncio loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sealbus import _sealbus, log
from sealbus.errors import PlatformError
from sealbus.loop import EventLoop


class Pump:
    """Wakes one loop, once for any amount of news, when agents have mail or calls have ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._native = _sealbus.Pump()
        self._futures: dict[int, asyncio.Future[Any]] = {}
        self._mailboxes: dict[int, Callable[[], None]] = {}
        self._count = 0
        self._is_closed = False
        self.news = 0
        """The number of news, and of turns at whose end an agent had more to do."""
        self._has_log = log.begin(self._native)
        # The selector that waits in the runtime, if the loop has one.
        self._selector = loop.selector if isinstance(loop, EventLoop) and loop.selector.drives else None
        if self._selector is not None:
            self._selector.attach(self._native, self._drain)
            return
        try:
            loop.add_reader(self._native.fileno(), self._drain)
        except NotImplementedError:
            raise PlatformError(
                f"agents cannot live in {type(loop).__name__}, which watches no descriptors: take sealbus.EventLoop "
                "or asyncio.SelectorEventLoop"
            ) from None

    @property
    def native(self) -> _sealbus.Pump:
        """The native half's side of this pump."""
        return self._native

    def close(self) -> None:
        """Stops listening. Calls that have not ended are cancelled."""
        self._is_closed = True
        if not self._loop.is_closed():
            if self._selector is not None:
                self._selector.detach(self._native)
            else:
                self._loop.remove_reader(self._native.fileno())
        for future in self._futures.values():
            future.cancel()
        self._futures.clear()
        self._mailboxes.clear()
        # This comes last: a handler of the log may raise.
        if self._has_log:
            log.flush()

    def listen(self, mail: Callable[[], None]) -> int:
        """Calls `mail` whenever a mailbox has mail; the number identifies the mailbox."""
        self._count += 1
        self._mailboxes[self._count] = mail
        return self._count

    def ignore(self, mailbox: int) -> None:
        """Ends :meth:`listen`."""
        self._mailboxes.pop(mailbox, None)

    async def call(self, begin: Callable[..., None], *arguments: Any) -> Any:
        """Begins a native call and waits for its outcome; a cancelled wait ends the call."""
        if self._is_closed:
            # Nobody would report the outcome.
            raise PlatformError("this program has left the platform: open another Platform")
        self._count += 1
        number = self._count
        future = self._loop.create_future()
        self._futures[number] = future
        try:
            begin(self._native, number, *arguments)
            return await future
        except asyncio.CancelledError:
            self._native.cancel(number)
            raise
        finally:
            self._futures.pop(number, None)
            # The exception keeps this frame. Drop an outcome that came as the wait was cancelled at once, so that, for
            # example, an agent that was opened leaves.
            del future

    async def catch_up(self) -> None:
        """Waits until the runtime has done all work that it can do now. The end of this wait is one of the news."""
        if not self._is_closed:
            catching_up = asyncio.ensure_future(self.call(_sealbus.Pump.catch_up))
            await asyncio.wait([catching_up])
            failure = None if catching_up.cancelled() else catching_up.exception()
            # A pump that was closed meanwhile has no more news.
            if failure is not None and not self._is_closed:
                raise failure

    def _drain(self) -> None:
        """Hands over the news. If one callback raises an exception, the others still get their news."""
        try:
            mailboxes, calls = self._native.take()
        except Exception as raised:
            self._report(raised)
            return
        self.news += len(mailboxes) + len(calls)
        if self._has_log:
            try:
                log.flush()
            except Exception as raised:
                self._report(raised)
        for number in mailboxes:
            mail = self._mailboxes.get(number)
            if mail is not None:
                try:
                    mail()
                except Exception as raised:
                    self._report(raised)
        for number, failure, value in calls:
            future = self._futures.pop(number, None)
            if future is None or future.done():
                continue
            if failure is None:
                future.set_result(value)
            else:
                future.set_exception(failure)

    def _report(self, raised: Exception) -> None:
        context = {"message": "a defect of Sealbus in handing over news", "exception": raised}
        self._loop.call_exception_handler(context)

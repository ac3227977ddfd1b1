"""An asyncio loop that serves the agents' sockets itself while it has nothing else to do."""

from __future__ import annotations

import asyncio
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from selectors import SelectorKey
from typing import TYPE_CHECKING, Any, TypeVarTuple

from sealbus import _sealbus
from sealbus.errors import PlatformError

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

__all__ = ["EventLoop"]

_Arguments = TypeVarTuple("_Arguments")

_PUMPS = 1
_DESCRIPTORS = 2

# The limits of a busy loop, in turns of its own and in seconds, before the runtime gets its turn.
_BUSY_TURNS = 8
_BUSY_TIME = 0.0005


class Selector(selectors.BaseSelector):
    """Waits in Sealbus's runtime, which also watches the loop's own descriptors.

    This requires a selector that is itself a descriptor, as on Linux and macOS. Elsewhere it is an ordinary selector.
    """

    def __init__(self) -> None:
        self._descriptors = selectors.DefaultSelector()
        fileno: Callable[[], int] | None = getattr(self._descriptors, "fileno", None)
        self._driver = None if fileno is None else _sealbus.Driver(fileno())
        self._pumps: dict[_sealbus.Pump, Callable[[], None]] = {}
        # Whether the last look at the loop's own descriptors found something: there may be more.
        self._look = False
        # How many times in a row the loop had work and did not wait, and when the runtime's turn is due.
        self._busy = 0
        self._due = 0.0

    @property
    def drives(self) -> bool:
        """Whether it waits in the runtime, so that pumps can be attached."""
        return self._driver is not None

    def register(self, fileobj: FileDescriptorLike, events: int, data: Any = None) -> SelectorKey:
        """Watches a descriptor."""
        return self._descriptors.register(fileobj, events, data)

    def unregister(self, fileobj: FileDescriptorLike) -> SelectorKey:
        """Watches a descriptor no longer."""
        return self._descriptors.unregister(fileobj)

    def modify(self, fileobj: FileDescriptorLike, events: int, data: Any = None) -> SelectorKey:
        """Changes what a descriptor is watched for."""
        return self._descriptors.modify(fileobj, events, data)

    def get_map(self) -> Mapping[FileDescriptorLike, SelectorKey]:
        """The descriptors that are watched."""
        return self._descriptors.get_map()

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """Waits for what happens first: news of an agent, a descriptor that is ready, or the end of the time.

        Hands over news from here, so that the tasks that they wake run in this turn of the loop, not in the next.
        """
        driver = self._driver
        if driver is None:
            return self._descriptors.select(timeout)
        if timeout is not None and timeout <= 0.0:
            # The loop has work. The runtime gets a turn too, but not after each step of a task.
            self._busy += 1
            if self._busy < _BUSY_TURNS and time.monotonic() < self._due:
                return []
            timeout = 0.0
        self._busy = 0
        events: list[tuple[SelectorKey, int]] = []
        if self._look:
            events = self._descriptors.select(0)
            self._look = bool(events)
            if events:
                timeout = 0.0
        happened = driver.drive(timeout)
        if happened & _DESCRIPTORS:
            self._look = True
            if not events:
                events = self._descriptors.select(0)
        if happened & _PUMPS:
            for pump, news in list(self._pumps.items()):
                if pump.has_news():
                    news()
        self._due = time.monotonic() + _BUSY_TIME
        return events

    def attach(self, pump: _sealbus.Pump, news: Callable[[], None]) -> None:
        """Lets a pump wake this selector directly. The selector then calls `news`, which must not raise."""
        if self._driver is None:
            raise PlatformError("this system's selector does not wait in the runtime")
        self._driver.attach(pump)
        self._pumps[pump] = news

    def detach(self, pump: _sealbus.Pump) -> None:
        """Ends :meth:`attach`."""
        if self._driver is not None:
            self._driver.detach(pump)
        del self._pumps[pump]

    def close(self) -> None:
        """Leaves the runtime to its own thread."""
        if self._driver is not None:
            self._driver.close()
        self._descriptors.close()


class EventLoop(asyncio.SelectorEventLoop):
    """The loop of :func:`sealbus.run`: about twice as fast for agents as others, because it needs no second thread.

    Otherwise it is an ordinary asyncio loop. Programs that run a loop of their own may use it, too::

        with asyncio.Runner(loop_factory=sealbus.EventLoop) as runner:
            runner.run(main())
    """

    def __init__(self) -> None:
        self.selector = Selector()
        # The signals with handlers. For these asyncio has a descriptor of its own, which also ends a wait in the
        # runtime.
        self._handled: set[int] = set()
        super().__init__(self.selector)
        # Carries a byte for each signal, because a signal by itself does not end a wait in the runtime.
        self._signal_out, self._signal_in = socket.socketpair()
        self._signal_out.setblocking(False)
        self._signal_in.setblocking(False)
        self.add_reader(self._signal_in, self._forget_signals)

    def run_forever(self) -> None:
        """Runs until it is stopped; see :meth:`asyncio.loop.run_forever`."""
        self._hear_signals()
        try:
            super().run_forever()
        finally:
            if self._is_in_main_thread() and not self._handled:
                signal.set_wakeup_fd(-1)

    def add_signal_handler(self, sig: int, callback: Callable[[*_Arguments], Any], *args: *_Arguments) -> None:
        """Adds a handler of a signal; see :meth:`asyncio.loop.add_signal_handler`."""
        super().add_signal_handler(sig, callback, *args)
        self._handled.add(sig)

    def remove_signal_handler(self, sig: int) -> bool:
        """Removes the handler of a signal; see :meth:`asyncio.loop.remove_signal_handler`."""
        removed = super().remove_signal_handler(sig)
        self._handled.discard(sig)
        if self.is_running():
            self._hear_signals()
        return removed

    def close(self) -> None:
        """Closes the loop; see :meth:`asyncio.loop.close`."""
        if not self.is_closed() and not self.is_running():
            self.remove_reader(self._signal_in)
            self._signal_in.close()
            self._signal_out.close()
        super().close()

    def _hear_signals(self) -> None:
        if self._is_in_main_thread() and not self._handled:
            signal.set_wakeup_fd(self._signal_out.fileno(), warn_on_full_buffer=False)

    def _forget_signals(self) -> None:
        with suppress(BlockingIOError):
            self._signal_in.recv(4096)

    @staticmethod
    def _is_in_main_thread() -> bool:
        return threading.current_thread() is threading.main_thread()

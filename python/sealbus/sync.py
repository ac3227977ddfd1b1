"""Agents for scripts without ``async``: the same API, and every call waits.

::

    import sealbus
    from sealbus import AclMessage

    with sealbus.sync.Platform() as platform:
        platform.start(Greeter("greeter"))
        answer = platform.request(AclMessage("request", "greeter"), timeout=5)
        print(answer.text)

The agents live in an event loop of their own, in a thread. The script speaks as one of them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import CancelledError
from contextlib import ExitStack
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from sealbus._sealbus import AclMessage, DfAgentDescription, Filter, Message, ServiceDescription
from sealbus.agent import Agent
from sealbus.channel import Reach
from sealbus.errors import PlatformError
from sealbus.loop import EventLoop
from sealbus.platform import MARGIN, Platform as AsyncPlatform

if TYPE_CHECKING:
    from sealbus._sealbus import Value

__all__ = ["Platform"]

_A = TypeVar("_A", bound=Agent)
_T = TypeVar("_T")

NOT_HERE = "not on a platform: use 'with sealbus.sync.Platform() as platform'"


class Platform:
    """A script's place on a platform, until the ``with`` ends; see :class:`sealbus.Platform`.

    The script is the agent called `script`. Threads may share it.
    """

    def __init__(
        self,
        script: str = "script",
        *,
        name: str | None = None,
        gateway: Mapping[str, object] | None = None,
        a2a: bool | str | Mapping[str, object] = False,
        window: bool = False,
    ) -> None:
        self._platform = AsyncPlatform(name=name, gateway=gateway, a2a=a2a, window=window)
        self._agent = Agent(script)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._takes_calls = False
        # Held while `_takes_calls` changes, so that no call begins meanwhile.
        self._lock = threading.Lock()
        self._closing = ExitStack()

    def open(self) -> Self:
        """Joins the platform; :meth:`close` leaves it."""
        if self._loop is not None:
            raise PlatformError("this place on the platform was opened before: make another Platform")
        loop = self._loop = EventLoop()
        thread = self._thread = threading.Thread(target=loop.run_forever, name="sealbus agents", daemon=True)
        thread.start()
        self._takes_calls = True

        def end() -> None:
            with self._lock:
                self._takes_calls = False
            asyncio.run_coroutine_threadsafe(_stop(), loop)
            thread.join()
            loop.close()

        with ExitStack() as undo:
            undo.callback(end)
            self._wait(self._platform.open())
            undo.push(self._leave)
            self._wait(self._platform.start(self._agent))
            self._closing = undo.pop_all()
        return self

    def close(self) -> None:
        """Makes all agents leave, and leaves the platform; raises :class:`~sealbus.AgentFailed` if an agent failed."""
        self._check_thread()
        # This runs once, even if several threads close the platform.
        self._closing.pop_all().close()

    def _leave(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._wait(self._platform.__aexit__(kind, raised, traceback))

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing.pop_all().__exit__(kind, raised, traceback)

    @property
    def agent(self) -> Agent:
        """The script's agent. Use only its properties here, such as ``aid`` and ``peer``."""
        return self._agent

    def start(self, agent: _A, name: str | None = None) -> _A:
        """Starts an agent; see :meth:`sealbus.Platform.start`."""
        return self._wait(self._platform.start(agent, name))

    def send(
        self,
        message: AclMessage,
        *,
        persistent: bool = False,
        expiry: float | datetime | None = None,
        level: Literal["none", "tls", "auth", "signed", "sealed"] | None = None,
    ) -> None:
        """Sends a message; see :meth:`sealbus.Agent.send`."""
        self._wait(self._agent.send(message, persistent=persistent, expiry=expiry, level=level))

    def receive(self, filter: Filter | None = None, *, timeout: float | None = None) -> Message:
        """Waits for a message; see :meth:`sealbus.Agent.receive`."""
        return self._wait(self._agent.receive(filter, timeout=timeout))

    def request(self, message: AclMessage, *, timeout: float | None = None) -> Message:
        """Sends a message and waits for the reply; see :meth:`sealbus.Agent.request`."""
        return self._wait(self._agent.request(message, timeout=timeout))

    def publish(
        self,
        address: str,
        message: object,
        *,
        properties: Mapping[str, Value] | None = None,
        qos: str = "",
    ) -> Reach:
        """Publishes an event; see :meth:`sealbus.Agent.publish`."""
        return self._wait(self._agent.publish(address, message, properties=properties, qos=qos))

    def search(
        self, template: str | ServiceDescription | DfAgentDescription
    ) -> list[DfAgentDescription]:
        """Finds the agents that offer a service; see :meth:`sealbus.Df.search`."""

        async def search() -> list[DfAgentDescription]:
            return await self._agent.df.search(template)

        return self._wait(search())

    def _wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Does something in the agents' thread, and waits for it."""
        loop = self._loop
        try:
            self._check_thread()
            with self._lock:
                if loop is None or not self._takes_calls:
                    raise PlatformError(NOT_HERE)
                future = asyncio.run_coroutine_threadsafe(work, loop)
        except PlatformError:
            work.close()
            raise
        try:
            return future.result()
        except CancelledError:
            raise PlatformError(NOT_HERE) from None
        except BaseException:
            # An interruption such as Ctrl-C: nobody waits any more.
            future.cancel()
            raise

    def _check_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise PlatformError("an agent here would wait for itself: use its own methods, with 'await'")


async def _stop() -> None:
    """Ends the event loop and the tasks that are left, so that their callers wait no longer."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        # A task that cannot be cancelled is left behind.
        await asyncio.wait(left, timeout=MARGIN)
    asyncio.get_running_loop().stop()

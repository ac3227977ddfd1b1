"""Tasks that an agent creates beside its hooks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from sealbus.errors import AgentStopped
from sealbus.mark import Supervise

if TYPE_CHECKING:
    from sealbus.life import Life

_T = TypeVar("_T")

CANCEL_LIMIT = 1.0
"""Seconds for handlers and behaviours that were cancelled to end."""


class Tasks:
    """The tasks of one agent."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._running: set[asyncio.Task[Any]] = set()

    def create(self, work: Coroutine[Any, Any, _T], supervise: Supervise) -> asyncio.Task[_T]:
        """Lets `work` run beside the hooks."""
        life = self._life
        if life.is_stopping:
            work.close()
            raise AgentStopped(life.name, "is being stopped")
        task = life.loop.create_task(work)
        self._running.add(task)

        def ended(task: asyncio.Task[_T]) -> None:
            self._running.discard(task)
            raised = None if task.cancelled() else task.exception()
            if raised is None or life.is_farewell(raised):
                return
            if isinstance(raised, Exception):
                life.handlers.failed("a task of the agent", raised, supervise)
            else:
                life.fail("a task of the agent", raised)

        task.add_done_callback(ended)
        return task

    async def cancel(self, timeout: float) -> None:
        """Cancels all tasks, which have `timeout` seconds to end."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running.copy(), timeout=timeout)


def stray(life: Life, cancelled: asyncio.CancelledError) -> RuntimeError | None:
    """The error of a task that waited for something cancelled, such as another task. None if the task itself is
    cancelled, or its agent leaves."""
    task = asyncio.current_task()
    if life.is_stopping or task is None or task.cancelling() > 0:
        return None
    error = RuntimeError("it waited for something that was cancelled")
    error.__cause__ = cancelled
    return error


def watch(life: Life, task: asyncio.Task[Any], where: str) -> None:
    """Ends the agent if one of its tasks ends with an exception: nobody else would notice."""

    def ended(task: asyncio.Task[Any]) -> None:
        raised = None if task.cancelled() else task.exception()
        if raised is not None:
            life.fail(where, raised)

    task.add_done_callback(ended)

"""Behaviours: work that an agent does by itself, beside its hooks.

A behaviour is a coroutine method with a schedule::

    class Sensor(Agent):
        @every(1.0)
        async def measure(self) -> None:
            await self.publish("/sensors/a", "21.5")

        @at(time(6, 0))
        async def calibrate(self) -> None: ...

Marked methods begin when ``setup`` has returned; :meth:`sealbus.Agent.begin` begins others at any time. All behaviours follow
the platform's clock. They end with their agent: a run that has begun gets a moment to end. While the agent's state is saved for
a move, no run begins. Where the agent then continues, the marked behaviours begin anew.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

from sealbus.errors import AgentStopped
from sealbus.mark import Mark, Schedule, Supervise
from sealbus.tasks import CANCEL_LIMIT, stray, watch

if TYPE_CHECKING:
    from sealbus.clock import Clock
    from sealbus.life import Life

__all__ = ["Behaviour", "State", "Step", "at", "cyclic", "every", "machine", "once", "parallel", "sequence"]

_Method = TypeVar("_Method", bound=Callable[..., Awaitable[Any]])

Step: TypeAlias = Callable[[], Awaitable[Any]]
"""Something to do: a method of an agent, or a combination by :func:`sequence` and :func:`parallel`."""

State: TypeAlias = "Callable[[], Coroutine[Any, Any, State]] | None"
"""The value that a state of a state machine returns: the next state, or None."""

LONGEST_SLEEP = 3600.0
"""Seconds after which a behaviour that waits for a time of day looks at the clock again: the clock may have been
set."""

FIRST_PAUSE = 0.1
"""Seconds that cyclic work pauses after an exception; twice as long after each further one, up to :data:`LAST_PAUSE`."""

LAST_PAUSE = 10.0
"""See :data:`FIRST_PAUSE`."""


class Behaviour:
    """A behaviour that an agent has begun."""

    def __init__(
        self, life: Life, name: str, work: Step, schedule: _Schedule, supervise: Supervise
    ) -> None:
        self.name = name
        """The method's name; with a number if the agent has several of them."""
        self.runs = 0
        """The number of runs."""
        self.failures = 0
        """The number of runs that raised an exception."""
        self.missed = 0
        """The number of periods without a run, because the previous run took so long or the agent was busy."""
        self.state: str | None = None
        """The present state of a state machine."""
        self._life = life
        self._work = work
        self._supervise = supervise
        self._rests = asyncio.Event()
        self._rests.set()
        self.task = life.loop.create_task(schedule.follow(self), name=f"{name} of {life.name}")
        """The task in which the behaviour runs."""
        watch(life, self.task, f"the behaviour {name}")

    @property
    def clock(self) -> Clock:
        """The clock that the behaviour follows."""
        return self._life.clock

    @property
    def is_done(self) -> bool:
        """Whether the behaviour has ended."""
        return self.task.done()

    @property
    def is_running(self) -> bool:
        """Whether a run is in progress at this moment."""
        return not self._rests.is_set()

    def cancel(self) -> None:
        """Ends the behaviour, even during a run."""
        self.task.cancel()

    async def wait(self) -> None:
        """Waits until the behaviour has ended."""
        await asyncio.wait([self.task])

    async def rest(self) -> None:
        """Waits until no run is in progress."""
        await self._rests.wait()

    async def run(self, work: Step | None = None) -> bool:
        """Runs the work once, as soon as the agent is not about to move. False if it raised an exception."""
        life = self._life
        await life.behaviours.is_open.wait()
        self.runs += 1
        self._rests.clear()
        try:
            await (work or self._work)()
        except asyncio.CancelledError as cancelled:
            error = stray(life, cancelled)
            if error is None:
                raise
            self._fail(error)
            return False
        except Exception as raised:
            if not (isinstance(raised, AgentStopped) and life.is_stopping):
                self._fail(raised)
            return False
        finally:
            self._rests.set()
        return True

    def _fail(self, raised: Exception) -> None:
        self.failures += 1
        self._life.handlers.failed(self.name, raised, self._supervise)

    async def run_machine(self) -> bool:
        """Runs the method as a state machine: each state returns the next one."""

        async def go_through() -> None:
            state: Any = self._work
            while state is not None:
                if not callable(state):
                    problem = f"the state {self.state} returned {state!r}, which is neither a state nor None"
                    raise TypeError(problem)
                self.state = getattr(state, "__name__", repr(state))
                state = await state()

        return await self.run(go_through)

    def __repr__(self) -> str:
        return f"<Behaviour {self.name}, {self.runs} runs>"


# ----- schedules


@dataclass(frozen=True)
class _Schedule(Schedule):
    supervise: Supervise | None = None

    @overload
    def __call__(self, method: _Method) -> _Method: ...
    @overload
    def __call__(self, method: None = None, *, supervise: Supervise) -> _Schedule: ...
    def __call__(
        self, method: _Method | None = None, *, supervise: Supervise | None = None
    ) -> _Method | _Schedule:
        """Marks a method, or returns the same schedule with this supervision."""
        if method is None:
            return replace(self, supervise=supervise)
        return Mark(self)(method)

    async def follow(self, behaviour: Behaviour) -> None:
        """Runs a behaviour when it is time."""
        raise NotImplementedError


@dataclass(frozen=True)
class _Once(_Schedule):
    async def follow(self, behaviour: Behaviour) -> None:
        await behaviour.run()


@dataclass(frozen=True)
class _Machine(_Schedule):
    async def follow(self, behaviour: Behaviour) -> None:
        await behaviour.run_machine()


@dataclass(frozen=True)
class _Cyclic(_Schedule):
    async def follow(self, behaviour: Behaviour) -> None:
        pause = FIRST_PAUSE
        while True:
            if await behaviour.run():
                pause = FIRST_PAUSE
                await asyncio.sleep(0)
            else:
                await behaviour.clock.sleep(pause)
                pause = min(2 * pause, LAST_PAUSE)


@dataclass(frozen=True)
class _Every(_Schedule):
    period: float = 1.0
    delay: float = 0.0

    async def follow(self, behaviour: Behaviour) -> None:
        clock = behaviour.clock
        begin = clock.now() + self.delay
        number = 0
        while True:
            await clock.sleep(begin + number * self.period - clock.now())
            await behaviour.run()
            # Count from the beginning, so that delays do not add up, and skip periods that are over.
            number += 1
            late = math.floor((clock.now() - begin) / self.period)
            if late > number:
                behaviour.missed += late - number
                number = late


@dataclass(frozen=True)
class _At(_Schedule):
    when: datetime | time = datetime.min

    async def follow(self, behaviour: Behaviour) -> None:
        clock = behaviour.clock
        moment = self._next(clock)
        while True:
            while (left := moment - clock.time()) > 0.0:
                await clock.sleep(min(left, LONGEST_SLEEP))
            await behaviour.run()
            if isinstance(self.when, datetime):
                return
            moment = self._next(clock)

    def _next(self, clock: Clock) -> float:
        if isinstance(self.when, datetime):
            return self.when.timestamp()
        now = clock.time()
        today = datetime.combine(datetime.fromtimestamp(now, self.when.tzinfo).date(), self.when)
        # Compare timestamps: in an hour that a clock change repeats, times of day are ambiguous.
        return today.timestamp() if today.timestamp() > now else (today + timedelta(days=1)).timestamp()


once = _Once()
"""Runs a method once, beside the hooks: ``@once``."""

cyclic = _Cyclic()
"""Runs a method again and again: ``@cyclic``. The method must wait for something, such as a message; after an exception it
pauses for a moment."""

machine = _Machine()
"""Runs a method as the first state of a state machine: ``@machine``. A state is a method that returns the next one, or None at
the end::

    class Door(Agent):
        @machine
        async def shut(self) -> State:
            await self.receive(Filter("request"))
            return self.open

        async def open(self) -> State:
            await self.clock.sleep(5)
            return self.shut
"""


def every(
    period: float, *, delay: float = 0.0, supervise: Supervise | None = None
) -> _Schedule:
    """Runs a method each `period` seconds, the first time after `delay` seconds: ``@every(1.0)``.

    The times are counted from the beginning, so they do not drift. A run never begins before the previous one has ended: a late
    run begins at once, and :attr:`Behaviour.missed` counts the skipped periods.
    """
    if not 0.0 < period < math.inf:
        raise ValueError(f"a method cannot run every {period} s: the period is more than nothing, and has an end")
    if not math.isfinite(delay):
        raise ValueError(f"a method cannot begin after {delay} s: the delay is a number of seconds")
    return _Every(supervise, period, delay)


def at(when: datetime | time, *, supervise: Supervise | None = None) -> _Schedule:
    """Runs a method at a point in time, or at once if that has passed; or each day at a time of day: ``@at(time(6, 30))``.

    Without a time zone it is local time.
    """
    return _At(supervise, when)


# ----- composition


def sequence(*steps: Step) -> Step:
    """One step made of several, one after the other."""

    async def run() -> None:
        for step in steps:
            await step()

    return run


def parallel(*steps: Step, first: bool = False) -> Step:
    """One step made of several, side by side. It ends when all have ended, or, with `first`, when the first has; the others are
    then cancelled, also if one raises an exception."""

    async def run() -> None:
        tasks = [asyncio.ensure_future(step()) for step in steps]
        try:
            until = asyncio.FIRST_COMPLETED if first else asyncio.FIRST_EXCEPTION
            done = (await asyncio.wait(tasks, return_when=until))[0] if tasks else set()
            for task in tasks:
                if task in done:
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    return run


class Behaviours:
    """The behaviours of one agent."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._begun: dict[str, Behaviour] = {}
        self.is_open = asyncio.Event()
        """Set while runs may begin."""
        self.is_open.set()
        self._has_begun_marked = False

    @property
    def begun(self) -> Mapping[str, Behaviour]:
        """The behaviours that were begun, by their names: the marked ones, and others until they are done."""
        return MappingProxyType(self._begun)

    def open(self) -> None:
        """Begins the marked behaviours, if they have not begun, and lets runs begin."""
        self.is_open.set()
        if self._has_begun_marked:
            return
        self._has_begun_marked = True
        agent = self._life.agent
        for attribute, mark in agent._marks:
            if isinstance(mark.takes, Schedule):
                self._add(getattr(agent, attribute), mark.takes, attribute)

    def begin(self, work: Step, schedule: Schedule, name: str | None) -> Behaviour:
        """Begins another behaviour."""
        if self._life.is_stopping:
            raise AgentStopped(self._life.name, "is being stopped")
        behaviour = self._add(work, schedule, name or str(getattr(work, "__name__", "behaviour")))

        def ended(task: asyncio.Task[None]) -> None:
            if self._begun.get(behaviour.name) is behaviour:
                del self._begun[behaviour.name]

        behaviour.task.add_done_callback(ended)
        return behaviour

    def _add(self, work: Step, schedule: Schedule, name: str) -> Behaviour:
        if not isinstance(schedule, _Schedule):
            raise TypeError(f"{schedule!r} is not a schedule: pass every(…), at(…), once, cyclic or machine")
        life = self._life
        unique, count = name, 1
        while unique in self._begun:
            count += 1
            unique = f"{name}-{count}"
        supervise = schedule.supervise or life.agent._supervise
        self._begun[unique] = Behaviour(life, unique, work, schedule, supervise)
        return self._begun[unique]

    def _alive(self) -> list[Behaviour]:
        return [behaviour for behaviour in self._begun.values() if not behaviour.is_done]

    async def settle(self, timeout: float) -> None:
        """Lets no run begin until :meth:`open`, and waits at most `timeout` seconds for the runs in progress."""
        self.is_open.clear()
        with suppress(TimeoutError):
            async with self._life.clock.timeout(timeout):
                for behaviour in self._alive():
                    await behaviour.rest()

    async def end(self, timeout: float) -> None:
        """Ends all behaviours. Runs in progress have `timeout` seconds to end."""
        for behaviour in self._alive():
            if not behaviour.is_running:
                behaviour.cancel()
        await self.settle(timeout)
        late = [behaviour.task for behaviour in self._alive()]
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=CANCEL_LIMIT)
        self._begun.clear()
        self._has_begun_marked = False

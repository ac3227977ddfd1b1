"""SPADE's behaviours."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from sealbus.spade.inbox import Inbox
from sealbus.spade.message import Message
from sealbus.spade.refused import refuse
from sealbus.spade.template import BaseTemplate

if TYPE_CHECKING:
    from sealbus.behaviour import Behaviour
    from sealbus.spade.presence import PresenceManager

__all__ = [
    "BehaviourNotFinishedException",
    "CyclicBehaviour",
    "FSMBehaviour",
    "NotValidState",
    "NotValidTransition",
    "OneShotBehaviour",
    "PeriodicBehaviour",
    "State",
    "TimeoutBehaviour",
]

log = logging.getLogger("spade.behaviour")

_T = TypeVar("_T")


class BehaviourNotFinishedException(Exception):
    """A behaviour that has not ended has no exit code."""


class NotValidState(Exception):
    """A state machine has no such state."""


class NotValidTransition(Exception):
    """A state machine has no transition between two states."""


class CyclicBehaviour(ABC):
    """Runs again and again, until it is killed. An exception in :meth:`run` kills it and is its exit code."""

    agent: Any = None
    """The agent, of the program's own class with attributes of its own."""
    template: BaseTemplate | None = None

    def __init__(self) -> None:
        self.is_running = False
        self._inbox = Inbox()
        self._begun: Behaviour | None = None
        self._is_killed = False
        self._is_interrupted = False
        self._exit_code: Any = 0
        self._ended = asyncio.Event()

    # ----- for programs to override

    async def on_start(self) -> None:
        """Called before the first run."""

    @abstractmethod
    async def run(self) -> None:
        """The work of one run."""

    async def on_end(self) -> None:
        """Called after the last run."""

    # ----- for programs to call

    def set_agent(self, agent: Any) -> None:
        """Gives the behaviour to an agent."""
        self.agent = agent

    def set_template(self, template: BaseTemplate | None) -> None:
        """Sets which messages the behaviour takes; without a template all of them."""
        self.template = template

    def match(self, message: Message) -> bool:
        """Whether the behaviour takes a message."""
        return self.template is None or self.template.match(message)

    @property
    def presence(self) -> PresenceManager:
        """The agent's presence."""
        manager: PresenceManager = self.agent.presence
        return manager

    def set(self, name: str, value: Any) -> None:
        """Notes something in the agent."""
        self.agent.set(name, value)

    def get(self, name: str) -> Any:
        """The value noted in the agent under this name, or None."""
        return self.agent.get(name)

    def kill(self, exit_code: Any = None) -> None:
        """Ends the behaviour after this run."""
        self._is_killed = True
        if exit_code is not None:
            self._exit_code = exit_code

    def is_killed(self) -> bool:
        """Whether the behaviour was killed."""
        return self._is_killed

    def is_done(self) -> bool:
        """Whether the behaviour has ended."""
        return self._ended.is_set()

    @property
    def exit_code(self) -> Any:
        """The argument of :meth:`kill`, or the exception that ended the behaviour; 0 otherwise."""
        if self._done() or self._is_killed:
            return self._exit_code
        raise BehaviourNotFinishedException(f"{self} has not ended, so it has no exit code")

    @exit_code.setter
    def exit_code(self, value: Any) -> None:
        self._exit_code = value

    async def join(self, timeout: float | None = None) -> None:
        """Waits until the behaviour has ended; raises TimeoutError after `timeout` seconds."""
        if timeout is None:
            await self._ended.wait()
            return
        async with self.agent._clock.timeout(timeout):
            await self._ended.wait()

    def mailbox_size(self) -> int:
        """The number of messages that wait for the behaviour."""
        return len(self._inbox)

    async def enqueue(self, message: Message) -> None:
        """Puts a message into its mailbox."""
        self._inbox.put(message)

    async def send(self, msg: Message) -> None:
        """Sends a message."""
        await self.agent._send(msg)
        msg.sent = True
        self.agent.traces.append(msg, category=str(self))

    async def receive(self, timeout: float | None = None) -> Message | None:
        """The next message that the template takes, or None. Waits at most `timeout` seconds; without a `timeout` it
        does not wait."""
        if not timeout or len(self._inbox):
            return self._inbox.take()
        return await self._wait(self._inbox.next(self.agent._clock, timeout))

    # ----- its life

    def start(self) -> None:
        """Begins the behaviour; the agent must be alive."""
        self.is_running = True
        self._begun = self.agent._begin(self._live, str(self))

    async def _live(self) -> None:
        try:
            await self._guard(self.on_start, "on_start")
            while not self._done() and not self._is_killed:
                await self._guard(self._run, "run")
                await asyncio.sleep(0)
            await self._guard(self.on_end, "on_end")
        finally:
            self.is_running = False
            self._ended.set()
            self.agent._forget(self)

    async def _guard(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Calls a method. An exception in it kills the behaviour."""
        try:
            await work()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._is_interrupted or task is None:
                raise
            self._is_interrupted = False
            task.uncancel()
        except Exception as raised:
            log.error("%s: %s raised %s: %s", self, name, type(raised).__name__, raised, exc_info=raised)
            self.kill(exit_code=raised)

    async def _run(self) -> None:
        await self.run()

    def _done(self) -> bool:
        return False

    async def _wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Waits for something that the end of the agent interrupts."""
        self._inbox.is_waiting = True
        try:
            return await work
        finally:
            self._inbox.is_waiting = False

    async def _sleep_until(self, moment: datetime) -> None:
        clock = self.agent._clock
        await self._wait(clock.sleep(moment.timestamp() - clock.time()))

    def _interrupt(self) -> None:
        """Kills the behaviour, even while it waits for a message or for its time."""
        self.kill()
        if self._inbox.is_waiting and self._begun is not None:
            self._is_interrupted = True
            self._begun.cancel()

    def __getattr__(self, name: str) -> NoReturn:
        refuse(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __str__(self) -> str:
        return f"{'/'.join(base.__name__ for base in type(self).__bases__)}/{type(self).__name__}"


class OneShotBehaviour(CyclicBehaviour):
    """Runs once."""

    def __init__(self) -> None:
        super().__init__()
        self._has_run = False

    async def _run(self) -> None:
        self._has_run = True
        await self.run()

    def _done(self) -> bool:
        return self._has_run


class PeriodicBehaviour(CyclicBehaviour):
    """Runs each `period` seconds, from `start_at` on. Skips times that have passed meanwhile."""

    def __init__(self, period: float, start_at: datetime | None = None) -> None:
        super().__init__()
        self.period = period
        self._next = start_at

    @property
    def period(self) -> timedelta:
        """The time between two runs; set in seconds."""
        return self._period

    @period.setter
    def period(self, value: float) -> None:
        if value < 0:
            raise ValueError(f"a period is 0 s or longer, not {value} s")
        self._period = timedelta(seconds=value)

    async def _run(self) -> None:
        now = self._now()
        due = self._next or now
        if due > now:
            await self._sleep_until(due)
        if self._is_killed:
            return
        await self.run()
        late = self._now() - due
        steps = max(1, late // self._period + 1) if self._period else 0
        self._next = due + steps * self._period if steps else None

    def _now(self) -> datetime:
        zone = None if self._next is None else self._next.tzinfo
        return datetime.fromtimestamp(self.agent._clock.time(), zone)


class TimeoutBehaviour(OneShotBehaviour):
    """Runs once, at `start_at`, or at once if that time has passed."""

    def __init__(self, start_at: datetime) -> None:
        super().__init__()
        self._start_at = start_at

    async def _run(self) -> None:
        await self._sleep_until(self._start_at)
        await super()._run()


class State(OneShotBehaviour):
    """A state of a state machine."""

    def __init__(self) -> None:
        super().__init__()
        self.next_state: str | None = None

    def set_next_state(self, state_name: str) -> None:
        """Sets the state that follows. Without this call, a state is the last one."""
        self.next_state = state_name


class FSMBehaviour(CyclicBehaviour):
    """A state machine. Its states read its messages."""

    def __init__(self) -> None:
        super().__init__()
        self._states: dict[str, State] = {}
        self._transitions: dict[str, list[str]] = {}
        self.current_state: str | None = None
        self.setup()

    def setup(self) -> None:
        """Called when the machine is made; a place to add states."""

    def add_state(self, name: str, state: State, initial: bool = False) -> None:
        """Adds a state. The machine begins with the `initial` one."""
        if not isinstance(state, State):
            raise AttributeError(f"{state!r} is not a State")
        self._states[name] = state
        if initial:
            self.current_state = name

    def add_transition(self, source: str, dest: str) -> None:
        """Lets one state follow another."""
        self._transitions.setdefault(source, []).append(dest)

    def get_state(self, name: str) -> State:
        """The state with this name."""
        return self._states[name]

    def get_states(self) -> dict[str, State]:
        """All states by their names."""
        return self._states

    def is_valid_transition(self, source: str, dest: str) -> bool:
        """True if `dest` may follow `source`; raises NotValidState or NotValidTransition otherwise."""
        for name in (source, dest):
            if name not in self._states:
                raise NotValidState(f"{self} has no state {name}")
        if dest not in self._transitions.get(source, ()):
            raise NotValidTransition(f"{self} has no transition from {source} to {dest}")
        return True

    async def _run(self) -> None:
        name = self.current_state
        if name is None:
            raise NotValidState(f"{self} has no first state: add one with initial=True")
        state = self._states[name]
        state.set_agent(self.agent)
        state._inbox = self._inbox
        state._ended.clear()
        for work in (state.on_start, state.run, state.on_end):
            await self._guard(work, f"state {name}")
        state._ended.set()
        following = state.next_state
        if following is None:
            self.kill()
        else:
            self.is_valid_transition(name, following)
            self.current_state = following

    async def run(self) -> None:
        """Never called: the states run instead."""
        raise RuntimeError("the states of a state machine run, not the machine")

    def to_graphviz(self) -> str:
        """The machine in the language of Graphviz."""
        arrows = "".join(
            f"{source.replace(' ', '_')} -> {dest.replace(' ', '_')};"
            for source, following in self._transitions.items()
            for dest in following
        )
        return f"digraph finite_state_machine {{ rankdir=LR; node [fixedsize=true];{arrows}}}"

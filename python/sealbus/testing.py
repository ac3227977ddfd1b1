"""A test kit for agents: a platform in memory, a clock that only the test moves, probes, and faults on request.

::

    async def test_the_clerk_gives_up_after_an_hour(testbed: TestBed) -> None:
        await testbed.start(Clerk("clerk"))
        probe = await testbed.probe("anna")
        await probe.send(AclMessage("request", "clerk", "tea"))
        await testbed.clock.advance(3600)
        await probe.expect("failure", body="there is no tea")

With pytest and pytest-asyncio, the package provides the fixture ``testbed``. Elsewhere::

    async with TestBed() as testbed: ...

Time-outs, behaviours, expiries and deadlines of the agents follow the clock of the test bed. It moves in
:meth:`VirtualClock.advance`, and as far as needed in :meth:`Probe.expect` and at the end. At each moment the agents finish all
work that they can do before the clock moves on. The same `seed` gives the same random faults.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from sealbus._sealbus import AID, AclMessage, Message
from sealbus.agent import Agent
from sealbus.clock import Clock
from sealbus.errors import BodyError, PlatformError, SealbusError
from sealbus.performative import Performative
from sealbus.platform import Platform

if TYPE_CHECKING:
    from sealbus._sealbus import AgentHandle, Unsent
    from sealbus.life import Life
    from sealbus.pump import Pump

__all__ = ["Faults", "Probe", "Rule", "TestBed", "VirtualClock"]

_T = TypeVar("_T")
_A = TypeVar("_A", bound=Agent)

EPOCH = 1_767_225_600.0
"""The default start of a virtual clock: 1 January 2026."""

QUIET_TURNS = 24
"""Turns of the loop without any news after which agents count as idle."""

SPARED = ("ams", "df", "ca")
"""The platform's own agents. The clock stands still until they have answered."""

PATIENCE = 30.0
"""Seconds of real time that a test waits for the platform itself, such as for an answer of its DF."""


class _Timer:
    """A call that a virtual clock will make."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Cancels the call."""
        self.callback = None


class VirtualClock(Clock):
    """A clock that only the test moves."""

    def __init__(self, start: float = EPOCH) -> None:
        self._start = start
        self._now = 0.0
        self._timers: list[tuple[float, int, _Timer]] = []
        self._count = count()
        self._holds = 0
        self._pump: Pump | None = None

    def watch(self, pump: Pump) -> None:
        """Stands still as long as there is news for the agents of this pump."""
        self._pump = pump

    def now(self) -> float:
        """Seconds since the clock began."""
        return self._now

    def time(self) -> float:
        """Seconds since 1970."""
        return self._start + self._now

    def call_later(self, delay: float, callback: Callable[[], None]) -> _Timer:
        """Makes a call when the clock has moved this far."""
        timer = _Timer(callback)
        heapq.heappush(self._timers, (self._now + max(0.0, delay), next(self._count), timer))
        return timer

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Stands still in the block."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1

    async def settle(self) -> None:
        """Lets the agents finish all work that they can do now."""
        while True:
            known = await self._await_quiet()
            if self._pump is None:
                return
            await self._pump.catch_up()
            # The end of this wait was one of the news.
            if self._pump.news <= known + 1 and not self._holds:
                return

    async def _await_quiet(self) -> int:
        """Waits for some turns of the loop without any news. Returns the number of news so far."""
        end = time.monotonic() + PATIENCE
        quiet, known = 0, self._news()
        while quiet < QUIET_TURNS or self._holds:
            if self._holds:
                if time.monotonic() > end:
                    raise TimeoutError(f"the platform did not answer an agent for {PATIENCE:g} s")
                await asyncio.sleep(0.0005)
            else:
                await asyncio.sleep(0)
            news = self._news()
            quiet = quiet + 1 if news == known and not self._holds else 0
            known = news
        return known

    def _news(self) -> int:
        return 0 if self._pump is None else self._pump.news

    async def advance(self, seconds: float) -> None:
        """Lets this time pass."""
        end = self._now + seconds
        while await self._step(end):
            pass
        self._now = end
        await self.settle()

    async def run(self, work: Awaitable[_T], *, limit: float | None = None) -> _T:
        """Lets time pass until `work` is done, and raises TimeoutError after `limit` seconds."""
        task = asyncio.ensure_future(work)
        end = float("inf") if limit is None else self._now + limit
        patience = time.monotonic() + PATIENCE
        try:
            while True:
                await self.settle()
                if task.done():
                    return task.result()
                if await self._step(end):
                    patience = time.monotonic() + PATIENCE
                elif limit is not None and not self._timers:
                    break
                elif limit is not None and self._timers[0][0] > end:
                    break
                elif time.monotonic() > patience:
                    raise TimeoutError("nothing is left that could happen")
                else:
                    # Something outside the agents, such as the platform's end, takes real time.
                    await asyncio.wait([task], timeout=0.001)
            # Work that took real time may still come in.
            await asyncio.wait([task], timeout=0.05)
            await self.settle()
            if task.done():
                return task.result()
            self._now = max(self._now, end)
            raise TimeoutError(f"not done after {limit:g} s")
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    async def _step(self, end: float) -> bool:
        """Goes to the next call, if it is not after `end`."""
        await self.settle()
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        if not self._timers or self._timers[0][0] > end:
            return False
        when, _, timer = heapq.heappop(self._timers)
        self._now = max(self._now, when)
        callback, timer.callback = timer.callback, None
        if callback is not None:
            callback()
        return True


class Rule:
    """A fault: which messages it befalls, and how many it has befallen."""

    def __init__(
        self,
        sender: str | None,
        receiver: str | None,
        performative: Performative | str | None,
        probability: float,
        times: int | None,
        delay: float | None,
    ) -> None:
        self._sender = sender
        self._receiver = receiver
        self._performative = performative
        self._probability = probability
        self._times = times
        self.delay = delay
        self.count = 0
        """The number of messages that it has befallen."""
        self.is_on = True

    def stop(self) -> None:
        """Ends the fault."""
        self.is_on = False

    def befalls(self, sender: str, receiver: str, message: AclMessage, chance: random.Random) -> bool:
        """Whether the fault befalls a message. Counts the message if so."""
        if not self.is_on or (self._times is not None and self.count >= self._times):
            return False
        if self._sender not in (None, sender) or self._receiver not in (None, receiver):
            return False
        if self._performative not in (None, message.performative):
            return False
        if self._probability < 1.0 and chance.random() >= self._probability:
            return False
        self.count += 1
        return True


class Faults:
    """The faults between the agents of a test bed: :attr:`TestBed.faults`. Messages to the platform's own agents arrive."""

    def __init__(self, clock: VirtualClock, seed: int) -> None:
        self.clock = clock
        self.random = random.Random(seed)
        self._rules: list[Rule] = []

    def drop(
        self,
        *,
        sender: str | None = None,
        receiver: str | None = None,
        performative: Performative | str | None = None,
        probability: float = 1.0,
        times: int | None = None,
    ) -> Rule:
        """Loses messages between these agents, by their local names."""
        return self._add(Rule(sender, receiver, performative, probability, times, None))

    def delay(
        self,
        seconds: float,
        *,
        sender: str | None = None,
        receiver: str | None = None,
        performative: Performative | str | None = None,
        probability: float = 1.0,
        times: int | None = None,
    ) -> Rule:
        """Delivers messages later, so that others overtake them."""
        return self._add(Rule(sender, receiver, performative, probability, times, seconds))

    def _add(self, rule: Rule) -> Rule:
        self._rules.append(rule)
        return rule

    def find(self, sender: str, receiver: str, message: AclMessage) -> Rule | None:
        """The fault that befalls a message."""
        for rule in self._rules:
            if rule.befalls(sender, receiver, message, self.random):
                return rule
        return None

    @property
    def are_any(self) -> bool:
        """Whether there are faults that may befall messages."""
        return any(rule.is_on for rule in self._rules)


class _Handle:
    """An agent's access to the bus, with faults."""

    def __init__(self, life: Life, faults: Faults) -> None:
        self._handle = life.handle
        self._life = life
        self._faults = faults
        self._is_dead = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def die(self) -> None:
        """From now on sends nothing."""
        self._is_dead = True

    def try_send(self, message: AclMessage) -> Unsent | None:
        kept = self._kept(message)
        return None if kept is None else self._handle.try_send(kept)

    def try_send_many(self, messages: list[AclMessage], first: int) -> tuple[int, Unsent | None]:
        # Send them one by one: a fault befalls each message once, and lost messages count as sent for the agent.
        for number in range(first, len(messages)):
            unsent = self.try_send(messages[number])
            if unsent is not None:
                return number + 1, unsent
        return len(messages), None

    def _kept(self, message: AclMessage) -> AclMessage | None:
        """The message to the receivers that it reaches now."""
        if self._is_dead:
            return None
        if not self._faults.are_any:
            return message
        kept: list[AID] = []
        for receiver in message.receivers:
            name = receiver.local_name
            rule = None if name in SPARED else self._faults.find(self._handle.name, name, message)
            if rule is None:
                kept.append(receiver)
            elif rule.delay is not None:
                self._faults.clock.call_later(rule.delay, self._later(message.replace(receivers=[receiver])))
        if len(kept) == len(message.receivers):
            return message
        return message.replace(receivers=kept) if kept else None

    def _later(self, message: AclMessage) -> Callable[[], None]:
        def send() -> None:
            # The message is lost with its sender.
            if self._is_dead:
                return
            with suppress(SealbusError):
                unsent = self._handle.try_send(message)
                if unsent is not None:
                    # The sender continues, while the message waits for room.
                    self._life.tasks.create(self._life.finish(unsent), "ignore")

        return send


class Probe(Agent):
    """An agent of the test. It takes no messages by itself: the test takes each one with :meth:`expect`."""

    _clock: VirtualClock

    async def expect(
        self,
        performative: Performative | str | None = None,
        body: Any = None,
        *,
        sender: AID | str | None = None,
        timeout: float = 5.0,
    ) -> Message[Any]:
        """The next message, which must have this performative, this sender, and a body of this type or equal to this value.
        Lets at most `timeout` seconds pass until it arrives."""
        try:
            message = await self._clock.run(self.receive(), limit=timeout)
        except TimeoutError:
            wanted = performative or "a message"
            raise AssertionError(f"{self.name} expected {wanted} within {timeout:g} s, and nothing came") from None
        if performative is not None and message.performative != performative:
            raise AssertionError(f"{self.name} expected {performative}, and got {_shown(message)}")
        if sender is not None:
            expected = self.peer(sender) if isinstance(sender, str) else sender
            if message.sender != expected:
                raise AssertionError(f"{self.name} expected a message of {expected}, and got {_shown(message)}")
        if body is not None:
            _check(self.name, message, body)
        return message

    async def expect_nothing(self, timeout: float = 5.0) -> None:
        """Lets `timeout` seconds pass, in which no message may arrive."""
        await self._clock.advance(timeout)
        message = self._living.handle.try_receive(None)
        if message is not None:
            raise AssertionError(f"{self.name} expected nothing, and got {_shown(message)}")


def _shown(message: Message) -> str:
    content = message.content_text
    return f"{message!r}" + ("" if content is None else f": {content[:500]}")


def _check(name: str, message: Message, body: Any) -> None:
    kind = body if isinstance(body, type) else type(body)
    try:
        found: object = message.body_as(kind)
    except BodyError as problem:
        raise AssertionError(f"{name} expected {body!r}, and got {_shown(message)} ({problem})") from None
    if not isinstance(body, type) and found != body:
        raise AssertionError(f"{name} expected {body!r}, and got {found!r}")


class TestBed(Platform):
    """A platform in memory with a clock of its own; see :mod:`sealbus.testing`."""

    # Tells pytest that this class is not a test.
    __test__ = False

    clock: VirtualClock

    def __init__(self, *, name: str | None = None, seed: int = 0, start: float = EPOCH) -> None:
        virtual = VirtualClock(start)
        super().__init__(name=name, clock=virtual)
        self.seed = seed
        self.faults = Faults(virtual, seed)
        """The faults between its agents."""

    async def open(self) -> Self:
        """Starts the platform."""
        await super().open()
        self.clock.watch(self.pump)
        return self

    async def probe(self, name: str = "probe") -> Probe:
        """An agent of the test."""
        probe = Probe(name)
        probe._clock = self.clock
        return await self.start(probe)

    async def kill(self, agent: Agent | str) -> None:
        """Ends an agent at once, like a crash: it sends nothing more, and its ``teardown`` does not run."""
        name = agent if isinstance(agent, str) else agent.name
        for task, life in self._lives.items():
            if life.handle.name == name:
                cast(_Handle, life.handle).die()
                vars(life.agent)["teardown"] = _nothing
                life.stop()
                task.cancel()
                await self.clock.run(asyncio.wait([task]))
                return
        raise PlatformError(f"there is no agent {name} here to kill")

    async def _open(self, agent: Agent, name: str) -> Life:
        life = await super()._open(agent, name)
        life.handle = cast("AgentHandle", _Handle(life, self.faults))
        return life

    async def _close(self) -> None:
        # Agents may wait for a time as they end.
        await self.clock.run(super()._close())


async def _nothing() -> None:
    pass

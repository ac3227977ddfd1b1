"""A program's place on a platform: embedded, under a node, or with a ticket."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

from sealbus import _sealbus
from sealbus.agent import Agent
from sealbus.clock import Clock, LoopClock
from sealbus.errors import AgentFailed, PlatformError
from sealbus.loop import EventLoop
from sealbus.life import HOOK_GRACE, TEARDOWN_LIMIT, Life
from sealbus.pump import Pump

__all__ = ["Platform", "run"]

log = logging.getLogger("sealbus")

_A = TypeVar("_A", bound=Agent)

MARGIN = 1.0
"""Seconds beyond the limits of hooks and teardown, before agents are cut off."""

KEPT_FAILURES = 16
"""Failures of agents that are kept until the end: the first and the latest ones. Further ones are counted."""

A2A_ADDRESS = "127.0.0.1:7781"
"""The address for A2A clients with ``a2a=True``."""


def _a2a(wanted: bool | str | Mapping[str, object]) -> str | None:
    """``[gateway.a2a]`` in JSON, as a program may give it."""
    if wanted is False:
        return None
    if isinstance(wanted, Mapping):
        return json.dumps(wanted)
    return json.dumps({"listen": A2A_ADDRESS if wanted is True else wanted, "anonymous": "guest"})


def _program() -> str:
    """The program ``sealbus``: the one installed with this package, or else any."""
    beside = os.path.join(sysconfig.get_path("scripts"), "sealbus")
    return beside if os.access(beside, os.X_OK) else "sealbus"


class Platform:
    """The platform of this program's agents, until the ``async with`` ends.

    Under ``sealbus up`` it is the platform that started the program, and with ``SEALBUS_TICKET`` the platform that issued the
    ticket. Otherwise the program has its own: Master, CA service, AMS and DF run in the process, without a server or
    configuration, and agents are certified in the same way::

        async with Platform() as platform:
            await platform.start(Seller("seller"))
            buyer = await platform.start(Agent("buyer"))
            await buyer.send(AclMessage("cfp", "seller", "box"))
            offer = await buyer.receive(timeout=1)

    When the block ends, all agents leave. If one failed, :class:`~sealbus.AgentFailed` is raised then.

    An embedded platform can have a `name` of its own, and a `gateway` to other FIPA platforms such as JADE, with the keys of
    ``[gateway.http]`` in a manifest::

        gateway = {"listen": "127.0.0.1:7779", "allow": [{"platform": "plat1", "to": ["*"], "from": ["10.0.0.7"]}]}
        async with Platform(name="factory", gateway=gateway) as platform:
            print(platform.addresses)

    With `a2a` each of its agents that offers a service is an A2A server, as with ``[gateway.a2a]`` in a manifest. ``True``
    admits every program of this machine as the agent ``guest``, at ``http://127.0.0.1:7781/agents/NAME``; an address such as
    ``"127.0.0.1:7790"`` does so at that address; a mapping has the manifest's keys, with callers and their keys::

        async with Platform(a2a={"listen": "127.0.0.1:7781", "caller": [{"name": "buyer", "key": "sha256:…"}]}) as platform:
            print(f"{platform.a2a_address}/agents/seller")

    With `window` it prints a link to standard error that opens the platform in a browser, as ``sealbus window`` does. The
    window is a process of its own, which only reads, and ends with the program.

    On other platforms, `name`, `gateway`, `a2a` and `window` are ignored: the platform has its own.

    `threads` is the number of threads for the program's connections: encryption, proofs, encoding. Agents still take turns in
    the event loop's thread. One thread, the default, answers sooner; more threads pay if several connections are busy and
    processors are free. The number applies to the whole program: give it to the first `Platform`, before :class:`EventLoop`
    begins, or to :func:`run`.

    Without a block, as in a notebook, ``await platform.open()`` and ``await platform.close()`` do the same.

    Time-outs and behaviours of the agents follow `clock`, by default that of the event loop.
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        gateway: Mapping[str, object] | None = None,
        a2a: bool | str | Mapping[str, object] = False,
        window: bool = False,
        clock: Clock | None = None,
        threads: int | None = None,
    ) -> None:
        if threads is not None:
            _sealbus.set_threads(threads)
        self._clock = clock
        self._name = name
        self._gateway = None if gateway is None else json.dumps(gateway)
        self._a2a = _a2a(a2a)
        self._window = _program() if window else None
        self._handle: _sealbus.PlatformHandle | None = None
        self._lives: dict[asyncio.Task[None], Life] = {}
        self._failures: list[AgentFailed] = []
        self._failed = 0
        """How many agents have failed."""
        self._all_left = asyncio.Event()
        self._is_told_to_stop = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None
        self._is_closed = False

    async def open(self) -> Self:
        """Joins the platform; :meth:`close` leaves it."""
        if self._handle is not None:
            raise PlatformError("this place on the platform was opened before: make another Platform")
        self.loop = asyncio.get_running_loop()
        self.clock = self._clock or LoopClock(self.loop)
        self.pump = Pump(self.loop)
        try:
            self._handle = await self.pump.call(
                _sealbus.join_platform, self._name, self._gateway, self._a2a, self._window
            )
        except BaseException:
            self.pump.close()
            raise
        self._watch = self.loop.create_task(self._cut_off_in_the_end())
        return self

    async def close(self) -> None:
        """Makes all agents leave, and leaves the platform; raises :class:`~sealbus.AgentFailed` if an agent failed."""
        if self._is_closed or not self.is_joined:
            return
        await self._close()
        self._raise_failures()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_closed:
            return
        await self._close()
        if raised is None:
            self._raise_failures()

    async def _close(self) -> None:
        self._is_closed = True
        try:
            self.stop("the program is done")
            await self.wait()
        finally:
            if self._watch is not None:
                self._watch.cancel()
            for task in self._lives:
                task.cancel()
            if self._lives:
                # A task that cannot be cancelled is left behind.
                await asyncio.wait(self._lives.copy(), timeout=MARGIN)
            await self.pump.call(self._joined.close)
            self.pump.close()

    @property
    def _joined(self) -> _sealbus.PlatformHandle:
        if self._handle is None:
            raise PlatformError(
                "not on a platform: use 'async with Platform() as platform', or 'await platform.open()' first"
            )
        return self._handle

    @property
    def is_joined(self) -> bool:
        """Whether the program has joined the platform."""
        return self._handle is not None

    @property
    def name(self) -> str:
        """The platform's name: ``factory`` of ``seller-1@factory``."""
        return self._joined.name

    @property
    def level(self) -> str:
        """The platform's security level: ``none``, ``tls``, ``auth``, ``signed`` or ``sealed``."""
        return self._joined.level

    @property
    def addresses(self) -> list[str]:
        """The addresses at which other platforms reach this one, such as ``http://127.0.0.1:7779/acc``; empty without a gateway
        in this program."""
        return self._joined.addresses

    @property
    def a2a_address(self) -> str | None:
        """The address at which A2A clients find the agents, as ``/agents/NAME`` below ``http://127.0.0.1:7781``; None if this
        program admits none."""
        return self._joined.a2a_address

    async def start(self, agent: _A, name: str | None = None) -> _A:
        """Puts an agent on the platform, certified, under `name` or its own name, and starts its ``setup``."""
        await self._start_each([(agent, name or agent.name)])
        return agent

    async def start_all(self, *agents: Agent) -> None:
        """Starts the program's agents: all of them, or those that the platform placed in this process.

        All are on the bus before the first one acts, so that they find each other.
        """
        parts = self._joined.cast([agent.name for agent in agents])
        await self._start_each([(agents[role], name) for name, role in parts])

    async def wait(self) -> None:
        """Waits until all agents of this program have left."""
        while self._lives:
            self._all_left.clear()
            await self._all_left.wait()

    def stop(self, reason: str = "the program stopped it") -> None:
        """Asks all agents of this program to leave; no more can be started."""
        self._joined.stop(reason)

    async def _start_each(self, parts: Sequence[tuple[Agent, str]]) -> None:
        """Puts agents on the platform under these names. All are there before the first one acts."""
        announce = self._joined.announce
        opening = [self.loop.create_task(self._open(agent, name)) for agent, name in parts]
        try:
            lives = await asyncio.gather(*opening)
            # From here on others find the agents, even if the platform placed more agents in this program than have
            # started.
            await self.pump.call(announce)
            if self._is_closed:
                # Nobody would end these agents.
                raise PlatformError("this program leaves the platform: no more agents start here")
        except BaseException:
            for task in opening:
                # A task that is cancelled now puts no agent on the platform.
                if not task.cancel() and not task.cancelled() and task.exception() is None:
                    task.result().abandon()
            raise
        for life in lives:
            self._begin(life)

    async def _open(self, agent: Agent, name: str) -> Life:
        if agent._life is not None:
            raise PlatformError(f"agent {agent.name} is on a platform already: make another one")
        if agent._is_starting:
            raise PlatformError(f"agent {agent.name} is being started already: make another one")
        agent._is_starting = True
        try:
            handle: _sealbus.AgentHandle = await self.pump.call(self._joined.open_agent, name, agent._identity)
            agent._life = Life(agent, handle, self)
        finally:
            agent._is_starting = False
        return agent._life

    def _begin(self, life: Life) -> None:
        task = life.begin()
        self._lives[task] = life
        task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[None]) -> None:
        life = self._lives.pop(task)
        if life.failure is not None:
            self._failed += 1
            if len(self._failures) == KEPT_FAILURES:
                # Keep the first failure: it is often the cause of the others.
                del self._failures[1]
            self._failures.append(life.failure)
        if not self._lives:
            self._all_left.set()

    async def _cut_off_in_the_end(self) -> None:
        """Ends agents that were asked to leave and have not left in time."""
        # In a process that the platform has given up, agents first hear of undelivered messages.
        longest = HOOK_GRACE + 2 * TEARDOWN_LIMIT + MARGIN
        grace: float | None = await self.pump.call(self._joined.stopping)
        self._is_told_to_stop.set()
        # Leave some of the time for saying goodbye.
        await self.clock.sleep(longest if grace is None else min(longest, 0.8 * grace))
        for task in self._lives:
            task.cancel()

    def _raise_failures(self) -> None:
        expelled = self._joined.expelled()
        if expelled is not None:
            raise PlatformError(f"the program had to stop: {expelled}")
        if len(self._failures) == 1:
            raise self._failures[0]
        if self._failures:
            kept = len(self._failures)
            which = "" if kept == self._failed else f": here are the first and the latest {kept - 1}"
            raise ExceptionGroup(f"{self._failed} agents failed{which}", self._failures)


def run(
    *agents: Agent,
    name: str | None = None,
    gateway: Mapping[str, object] | None = None,
    a2a: bool | str | Mapping[str, object] = False,
    window: bool = False,
    threads: int | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] = EventLoop,
) -> None:
    """Runs agents until all of them have left, or Ctrl-C, SIGTERM or the platform stops the program.

    The program need not know their platform: by default they run on an embedded platform; a program that a node started
    attaches to that node; and a program with a ticket joins the ticket's platform. If an agent fails, the others keep running,
    and :class:`~sealbus.AgentFailed` is raised at the end.

    `name`, `gateway`, `a2a` and `window` describe an embedded platform, and `threads` is the number of threads for the
    program's connections: see :class:`Platform`.

    `loop_factory` makes another kind of event loop, such as ``uvloop.new_event_loop``.

    If an event loop runs already, as in a notebook, use :meth:`Platform.open`: the agents then run in that loop.
    """
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise PlatformError(
            "run() starts an event loop, and one is running here already. Use that one: "
            "'platform = await Platform().open()', 'await platform.start(agent)', and in the end 'await platform.close()'"
        )
    platform = Platform(name=name, gateway=gateway, a2a=a2a, window=window, threads=threads)
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(_run(platform, agents))


async def _run(platform: Platform, agents: tuple[Agent, ...]) -> None:
    loop = asyncio.get_running_loop()
    main = asyncio.current_task()
    asked = cut_off = False

    def interrupt(what: str) -> None:
        nonlocal asked, cut_off
        if platform.is_joined and not asked:
            asked = True
            platform.stop(what)
        elif main is not None:
            # The second signal stops the program at once. A third one is an ordinary interruption.
            cut_off = True
            main.cancel()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    # Only the main thread can handle signals.
    with suppress(NotImplementedError, RuntimeError, ValueError):
        loop.add_signal_handler(signal.SIGINT, interrupt, "interrupted (Ctrl-C)")
        loop.add_signal_handler(signal.SIGTERM, interrupt, "terminated (SIGTERM)")
    try:
        async with platform:
            try:
                await platform.start_all(*agents)
            except PlatformError:
                # A signal during the start is not a failure.
                if not asked:
                    raise
            await platform.wait()
    except asyncio.CancelledError:
        if cut_off:
            raise KeyboardInterrupt from None
        raise
    finally:
        if log.isEnabledFor(logging.ERROR):
            for failure in platform._failures:
                _forget_tracebacks(failure.__cause__)


def _forget_tracebacks(raised: BaseException | None) -> None:
    """Removes the tracebacks of this exception and of its causes: the log has shown them, and at its end the program shows
    the rest."""
    while raised is not None and raised.__traceback__ is not None:
        raised.__traceback__ = None
        raised = raised.__cause__ or raised.__context__

"""The place of a program's SPADE agents on a platform."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from sealbus.errors import PlatformError, SealbusError
from sealbus.loop import EventLoop
from sealbus.platform import Platform
from sealbus.spade.jid import JID

if TYPE_CHECKING:
    from sealbus.spade.agent import Agent

__all__ = ["AuthenticationFailure", "Container", "quit_spade", "run", "start_agents", "wait_until_finished"]

log = logging.getLogger("SPADE")


class AuthenticationFailure(SealbusError):
    """The platform did not certify an agent."""


class Container:
    """Where the agents of a program live: on `platform`, or on one that is opened for the first agent.

    :func:`run` opens one. A program with an event loop of its own, such as a test, does so itself::

        async with Container():
            await agent.start()

    The domain of the agents' JIDs stands for the platform, whatever its name is.
    """

    _current: ClassVar[Container | None] = None

    def __init__(self, platform: Platform | None = None) -> None:
        self._platform = platform
        self._brings_platform = platform is None
        self._opening = asyncio.Lock()
        self._domain: str | None = None
        self._agents: dict[str, Agent] = {}
        self._watch: asyncio.Task[None] | None = None
        self.is_told_to_stop = asyncio.Event()
        """Set when the platform, or a signal, has told the program to stop."""

    @classmethod
    def current(cls) -> Container:
        """The container that is open."""
        if cls._current is None:
            raise PlatformError("no agent can live here: run the program's coroutine with spade.run(main())")
        return cls._current

    async def __aenter__(self) -> Self:
        if Container._current is not None:
            raise PlatformError("a container of SPADE agents is open already: a program has one")
        Container._current = self
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._watch is not None:
            self._watch.cancel()
        try:
            await self.stop_agents()
            if self._platform is not None and self._brings_platform:
                await self._platform.__aexit__(kind, raised, traceback)
        finally:
            Container._current = None

    # ----- its agents

    def has_agent(self, jid: str) -> bool:
        """Whether an agent with this JID was started here."""
        return jid in self._agents

    def get_agent(self, jid: str) -> Agent:
        """The agent with this JID."""
        return self._agents[jid]

    async def stop_agents(self) -> None:
        """Stops all agents that are alive."""
        alive = [agent for agent in self._agents.values() if agent.is_alive()]
        for agent, outcome in zip(alive, await asyncio.gather(*map(_stop, alive), return_exceptions=True), strict=True):
            if isinstance(outcome, Exception):
                log.error("%s: stop() raised %s: %s", agent, type(outcome).__name__, outcome, exc_info=outcome)

    async def start(self, agents: Sequence[Agent]) -> None:
        """Starts agents. All are on the platform before the first one acts."""
        for agent in agents:
            self._admit(agent)
        for agent in agents:
            agent._is_starting = True
        try:
            await self._start(agents)
        finally:
            for agent in agents:
                agent._is_starting = False

    async def _start(self, agents: Sequence[Agent]) -> None:
        platform = await self._opened()
        for agent in agents:
            earlier = self._agents.get(str(agent.jid))
            await (earlier or agent)._settled()
            await agent._hook_plugin_before_connection()
        residents = [agent._move_in(self) for agent in agents]
        try:
            await platform._start_each([(resident, resident.name) for resident in residents])
        except PlatformError as refused:
            raise AuthenticationFailure(str(refused)) from refused
        for resident in residents:
            resident.heed_end()
        self._agents.update((str(agent.jid), agent) for agent in agents)
        await asyncio.gather(*(resident.has_woken for resident in residents))

    def _admit(self, agent: Agent) -> None:
        if agent._is_starting:
            raise PlatformError(f"agent {agent.jid} is being started already")
        domain = agent.jid.domain
        if self._domain not in (None, domain):
            problem = f"cannot start {agent.jid}: the domain {self._domain} stands for this program's platform"
            raise PlatformError(f"{problem}; name the agent {agent.name}@{self._domain}")
        self._domain = domain

    async def _opened(self) -> Platform:
        async with self._opening:
            if self._platform is None:
                # An embedded platform gets the domain's name; any other platform keeps its own.
                platform = Platform(name=self._domain)
                await platform.open()
                self._platform = platform
            if self._watch is None:
                self._watch = asyncio.create_task(self._hear_of_the_end(self._platform))
            return self._platform

    async def _hear_of_the_end(self, platform: Platform) -> None:
        await platform._is_told_to_stop.wait()
        self.is_told_to_stop.set()

    # ----- names

    def aid(self, jid: JID) -> str:
        """The name of an agent on the bus."""
        if jid.domain == self._domain and self._platform is not None:
            return f"{jid.node}@{self._platform.name}"
        return jid.bare

    def jid(self, name: str) -> JID:
        """The JID of an agent with this name on the bus."""
        local, _, platform = name.rpartition("@")
        if self._platform is not None and platform == self._platform.name:
            return JID(f"{local}@{self._domain}")
        return JID(name)


async def _stop(agent: Agent) -> None:
    await agent.stop()


async def start_agents(agents: list[Agent] | Agent) -> None:
    """Starts agents. All are on the platform before the first one acts."""
    await Container.current().start(agents if isinstance(agents, list) else [agents])


async def wait_until_finished(agents: list[Agent] | Agent) -> None:
    """Waits until these agents have been stopped. If it is cancelled, it stops them."""
    waited = agents if isinstance(agents, list) else [agents]
    try:
        await asyncio.gather(*(agent._finished() for agent in waited))
    finally:
        await asyncio.gather(*(agent.stop() for agent in waited if agent.is_alive()))


def quit_spade() -> None:
    """Asks all agents of the program to stop, as in SPADE 3."""
    container = Container.current()
    for agent in container._agents.values():
        agent._quit()


def run(
    main_func: Coroutine[Any, Any, object],
    embedded_xmpp_server: bool = False,
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] = EventLoop,
) -> None:
    """Runs the main coroutine of a program, then stops its agents.

    An exception in the coroutine is raised again here. Ctrl-C stops the agents, and the program ends. `embedded_xmpp_server`
    has no effect: the platform is inside the program, or is the one that started it.
    """

    async def main() -> None:
        async with Container() as container:
            work = asyncio.ensure_future(main_func)
            told = asyncio.ensure_future(container.is_told_to_stop.wait())
            # Only the main thread can handle signals.
            with suppress(NotImplementedError, RuntimeError, ValueError):
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, container.is_told_to_stop.set)
            try:
                await asyncio.wait([work, told], return_when=asyncio.FIRST_COMPLETED)
            finally:
                told.cancel()
                work.cancel()
                await asyncio.wait([work])
            if not work.cancelled():
                work.result()

    with suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())

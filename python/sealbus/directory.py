"""The directories: the services of agents (DF), and all agents (AMS)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from sealbus import _sealbus
from sealbus._sealbus import (
    AID,
    AclMessage,
    AmsAgentDescription,
    DfAgentDescription,
    Filter,
    ServiceDescription,
)
from sealbus.errors import DirectoryError, RequestTimeout, SealbusError, Undeliverable
from sealbus.performative import Performative

if TYPE_CHECKING:
    from sealbus._sealbus import Message
    from sealbus.life import Life

ANSWER_TIME = 10.0
"""Seconds to wait for the answer of a directory, by default."""

Others = AID | str | ServiceDescription | DfAgentDescription | Iterable[AID | str]
"""Agents: one, several, or all that the DF knows with this service."""


async def agents_of(life: Life, others: Others) -> list[AID]:
    """The agents themselves. Waits until it is known where the asking agent continues; its own entry in the DF does not
    count."""
    await life.settle()
    if isinstance(others, str | AID):
        others = [others]
    elif isinstance(others, ServiceDescription | DfAgentDescription):
        found = await life.df.search(others)
        return [entry.name for entry in found if entry.name is not None and entry.name != life.handle.aid]
    return [life.peer(agent) if isinstance(agent, str) else agent for agent in others]


class Df:
    """The Directory Facilitator, the yellow pages: :attr:`sealbus.Agent.df`.

    A template is the type of a service, a :class:`ServiceDescription` or a :class:`DfAgentDescription`; an entry
    matches if it has at least the values of the template.
    """

    def __init__(self, life: Life, aid: AID | str | None = None) -> None:
        self._life = life
        self._aid = AID(f"df@{life.handle.platform}") if aid is None else _aid(aid)

    def at(self, df: AID | str) -> Df:
        """Another DF, such as one of another platform."""
        return Df(self._life, df)

    async def register(
        self,
        *services: ServiceDescription,
        description: DfAgentDescription | None = None,
        timeout: float = ANSWER_TIME,
    ) -> None:
        """Registers the services of this agent, in place of the former ones.

        Further slots of the entry, such as a lease time, come from `description`.
        """
        entry = self._entry(services, description)
        try:
            await self._ask(_sealbus.df_register(self._aid, entry), timeout)
        except DirectoryError as refused:
            # An entry of an earlier life, or from before a move, is the agent's own, and is replaced.
            if refused.exception != "already-registered":
                raise
            await self._ask(_sealbus.df_modify(self._aid, entry), timeout)

    async def modify(
        self,
        *services: ServiceDescription,
        description: DfAgentDescription | None = None,
        timeout: float = ANSWER_TIME,
    ) -> None:
        """Changes this agent's entry, which must exist."""
        await self._ask(_sealbus.df_modify(self._aid, self._entry(services, description)), timeout)

    async def deregister(self, *, timeout: float = ANSWER_TIME) -> None:
        """Removes this agent's entry, if there is one."""
        try:
            await self._ask(_sealbus.df_deregister(self._aid, self._life.handle.aid), timeout)
        except DirectoryError as refused:
            if refused.exception != "not-registered":
                raise

    async def search(
        self,
        template: str | ServiceDescription | DfAgentDescription,
        *,
        most: int | None = None,
        timeout: float = ANSWER_TIME,
    ) -> list[DfAgentDescription]:
        """All entries that match, or at most `most` of them."""
        request = _sealbus.df_search(self._aid, _template(template), most)
        return _sealbus.df_found(await consult(self._life, request, timeout))

    async def subscribe(
        self, template: str | ServiceDescription | DfAgentDescription
    ) -> Subscription[DfAgentDescription]:
        """Subscribes to the entries that match: first the present ones, then each that comes, changes or goes."""
        request = _sealbus.df_subscribe(self._aid, _template(template))
        await self._life.agent.send(request)
        return Subscription(self._life, request, _sealbus.df_told)

    async def _ask(self, request: AclMessage, timeout: float) -> None:
        _sealbus.directory_done(await consult(self._life, request, timeout))

    def _entry(
        self, services: Iterable[ServiceDescription], description: DfAgentDescription | None
    ) -> DfAgentDescription:
        further = description or DfAgentDescription()
        return DfAgentDescription(
            self._life.handle.aid,
            [*further.services, *services],
            protocols=further.protocols,
            ontologies=further.ontologies,
            languages=further.languages,
            lease_time=further.lease_time,
        )


_Entry = TypeVar("_Entry")


class Subscription(Generic[_Entry]):
    """A subscription to a directory, from :meth:`Df.subscribe` or :meth:`Ams.subscribe`: an asynchronous iterator over its
    news.

    News are entries that came or changed, and entries that went, which have only a name. News wait in the agent's mailbox. From
    the first :meth:`next` on, only this object takes them. An agent that never calls it, and takes the news in a hook, recognises
    them by :attr:`filter`.

    It ends with :meth:`cancel`, at the end of ``async with``, and when nothing refers to it any more, for example after a loop
    over it.
    """

    def __init__(
        self, life: Life, request: AclMessage, read: Callable[[Message], list[_Entry]]
    ) -> None:
        self._life = life
        self._request = request
        self._read = read
        # JADE's directories neither agree to a subscription nor answer its end.
        self._answers: bool | None = None
        self._is_over = False
        # Ends the reservation of the news, which the first look makes.
        self._give_back: Callable[[], None] | None = None
        self.filter = Filter(conversation_id=str(request.conversation_id))
        """Takes the news of this subscription."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[_Entry]:
        return await self.next()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._end()

    def __del__(self) -> None:
        # End in the loop, as asyncio ends asynchronous generators: Python may clean up in any thread, even after the
        # loop was closed.
        if not self._is_over:
            with suppress(RuntimeError):
                self._life.loop.call_soon_threadsafe(self._abandon)

    def _abandon(self) -> None:
        if self._life.has_mailbox and not self._life.is_stopping:
            # A task that is cancelled before it begins does not get to the end of `cancel`.
            self._life.tasks.create(self._end(), "ignore").add_done_callback(self._release)
        else:
            self._release()

    def _release(self, *_: object) -> None:
        """Lets others take the news."""
        if self._give_back is not None:
            self._give_back()
            self._give_back = None

    async def _end(self) -> None:
        # A directory that cannot be reached sends no news either.
        with suppress(SealbusError):
            await self.cancel()

    async def next(self, *, timeout: float | None = None) -> list[_Entry]:
        """Waits for the next news."""
        if self._give_back is None and not self._is_over:
            # Between two looks the caller may wait for something else, and the agent's hooks go on.
            self._give_back = self._life.mailbox.reserve(self.filter)
        while True:
            news: Message = await self._life.mailbox.receive(self.filter, timeout)
            lost = news.undelivered
            if lost is not None:
                receiver, reason = lost
                cause = f"the subscription was not delivered to {receiver}: {reason}"
                raise Undeliverable(self._life.name, cause)
            self._note(news)
            if news.performative is not Performative.AGREE:
                return self._read(news)

    async def cancel(self) -> None:
        """Ends the subscription, and drops unread news."""
        self._is_over = True
        try:
            await self._life.settle()
            self._drop()
            cancel = _sealbus.df_cancel(self._request)
            if self._answers is False:
                await self._life.agent.send(cancel)
                return
            try:
                answer = await consult(self._life, cancel, ANSWER_TIME)
            except RequestTimeout:
                # Some directories stop without an answer.
                return
            finally:
                self._drop()
        finally:
            self._release()
        _sealbus.directory_done(answer)

    def _note(self, news: Message) -> None:
        if self._answers is None:
            self._answers = news.performative is Performative.AGREE

    def _drop(self) -> None:
        while (news := self._life.handle.try_receive(self.filter)) is not None:
            self._note(news)


class Ams:
    """The Agent Management System, the white pages: :attr:`sealbus.Agent.ams`."""

    def __init__(self, life: Life, aid: AID | str | None = None) -> None:
        self._life = life
        self._aid = AID(f"ams@{life.handle.platform}") if aid is None else _aid(aid)

    def at(self, ams: AID | str) -> Ams:
        """Another AMS, such as one of another platform."""
        return Ams(self._life, ams)

    async def search(
        self,
        template: AmsAgentDescription | None = None,
        *,
        most: int | None = None,
        timeout: float = ANSWER_TIME,
    ) -> list[AmsAgentDescription]:
        """All agents that match the template, or all agents without one."""
        request = _sealbus.ams_search(self._aid, template or AmsAgentDescription(), most)
        return _sealbus.ams_found(await consult(self._life, request, timeout))

    async def subscribe(
        self, template: AmsAgentDescription | None = None
    ) -> Subscription[AmsAgentDescription]:
        """Subscribes to the agents that come and go: first the agents that match, then each that comes, changes its state or
        goes. An agent that went has only its name, and no state. Without a template every agent matches::

            async for agents in await self.ams.subscribe():
                for agent in agents:
                    print(agent.name, agent.state or "has gone")
        """
        request = _sealbus.ams_subscribe(self._aid, template or AmsAgentDescription())
        await self._life.agent.send(request)
        return Subscription(self._life, request, _sealbus.ams_told)

    async def find(
        self, agent: AID | str, *, timeout: float = ANSWER_TIME
    ) -> AmsAgentDescription | None:
        """The entry of one agent, if there is one."""
        name = self._life.peer(agent) if isinstance(agent, str) else agent
        found = await self.search(AmsAgentDescription(name), timeout=timeout)
        return found[0] if found else None


async def consult(life: Life, request: AclMessage, timeout: float) -> Message:
    """Asks a directory. A test's clock stands still until the answer."""
    with life.clock.hold():
        return await life.mailbox.request(request, timeout)


def _aid(agent: AID | str) -> AID:
    return AID(agent) if isinstance(agent, str) else agent


def _template(template: str | ServiceDescription | DfAgentDescription) -> DfAgentDescription:
    if isinstance(template, str):
        template = ServiceDescription.of_type(template)
    if isinstance(template, ServiceDescription):
        template = DfAgentDescription(services=[template])
    return template

"""Tools: typed methods of an agent as services, which answer as a whole or in parts.

A tool's messages follow `fipa-request`. The parts are messages of the same conversation that carry user-defined parameters, so
that no agent mistakes one for the reply:

=========================  =============================================================================================
``request``                with ``X-window: 16`` the asker takes partial results, up to 16 ahead; the ontology may
                           name the tool
``agree``                  the tool is at work
``inform``                 with ``X-partial: 3``, the third partial result
``inform``                 with ``X-progress: 0.5``, how far it is; the content is a text for people
``inform``                 from the asker, with ``X-taken: 8``: eight partial results are taken
``cancel``                 from the asker: no more is wanted. It is answered ``inform``
``inform``                 without these: the final reply. After partial results it has no content
=========================  =============================================================================================

An asker without ``X-window`` gets the final reply alone, with all parts in a list.
"""

from __future__ import annotations

import asyncio
import functools
import json
import types
import typing
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, overload

from sealbus import _sealbus
from sealbus._sealbus import AID, AclMessage, Filter, Message, ServiceDescription
from sealbus.body import JSON, decode
from sealbus.conversation import draft
from sealbus.directory import agents_of
from sealbus.errors import ConversationError, Failure
from sealbus.initiator import Stream
from sealbus.mark import Mark
from sealbus.participation import Over, ParticipantConversation, Participates
from sealbus.performative import Performative
from sealbus.schema import schema

if TYPE_CHECKING:
    from sealbus.agent import Agent
    from sealbus.life import Life

__all__ = ["Answer", "Progress", "tool"]

_C = TypeVar("_C")
_Method = TypeVar("_Method", bound=Callable[..., Any])

WINDOW = "X-window"
PARTIAL = "X-partial"
PROGRESS = "X-progress"
TAKEN = "X-taken"

MOST_AHEAD = 4096
"""The most partial results that a tool gives ahead, even if the asker would take more."""

PATIENCE = 60.0
"""Seconds that a tool waits until a partial result is taken."""

MOST_PARTS = 65_536
"""The most partial results in a final reply, for an asker that takes no parts."""

_TOOL = "__sealbus_tool__"


@dataclass(frozen=True)
class Progress:
    """The progress of a tool. The tool yields one among its partial results; the asker sees it in :attr:`Answer.progress`."""

    done: float
    """The part that is done, from 0 to 1."""
    text: str = ""
    """The present step, for people."""


def _members(kind: Any) -> tuple[Any, ...]:
    """The types of a union, or the type itself."""
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


class Tool(Participates):
    """A method as a service."""

    protocol = "fipa-request"

    def __init__(self, attribute: str, method: Callable[..., Any], name: str | None, concurrency: int) -> None:
        super().__init__(method, None, PATIENCE)
        self.conversation = Service
        self.attribute = attribute
        self.name = name or method.__name__.replace("_", "-")
        self.concurrency = concurrency
        self.about = (method.__doc__ or "").strip().partition("\n")[0]

    @functools.cached_property
    def _types(self) -> tuple[Any, Any, bool]:
        hints = typing.get_type_hints(self._method)
        gives = hints.pop("return", None)
        takes = next(iter(hints.values()), None)
        if takes is None:
            raise TypeError(f"the tool {self.name} needs a parameter with a type, which is what it is asked")
        if isinstance(get_origin(gives), type) and issubclass(get_origin(gives), AsyncIterator):
            # Reports of progress are no part of the answer.
            parts = [each for each in _members(get_args(gives)[0]) if each is not Progress]
            return takes, Union[tuple(parts)] if parts else None, True  # noqa: UP007
        return takes, gives, False

    @property
    def service(self) -> ServiceDescription:
        """The entry in the DF."""
        takes, gives, streams = self._types
        told = {"input": json.dumps(schema(takes)), "output": json.dumps(schema(gives)), "description": self.about}
        properties: dict[str, str | int | float | None] = {name: text for name, text in told.items() if text}
        properties["streams"] = "yes" if streams else "no"
        return ServiceDescription(
            self.name,
            self.name,
            protocols=[self.protocol],
            ontologies=[self.name],
            languages=[JSON],
            properties=properties,
        )

    async def _take_part(self, agent: Agent, talk: ParticipantConversation, call: Message) -> None:
        assert isinstance(talk, Service)
        talk.check()
        takes, _, streams = self._types
        given = getattr(agent, self.attribute)(decode(call, takes))
        work = asyncio.create_task(talk.give_parts(given) if streams else given)
        try:
            # The tool may refuse until it waits for the first time.
            await asyncio.sleep(0)
            if not work.done() or work.exception() is None:
                await talk.agree()
            result = await talk.work(work)
        except BaseException:
            # The tool's last steps still belong to the conversation, as does an exception in them.
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            raise
        await talk.say(Performative.INFORM, result)


@overload
def tool(method: _Method, /) -> _Method: ...
@overload
def tool(*, name: str | None = None, concurrency: int = 100) -> Callable[[_Method], _Method]: ...
def tool(method: Any = None, /, *, name: str | None = None, concurrency: int = 100) -> Any:
    """Makes a method of an agent a service. Its parameter is the question, its result the answer; an asynchronous generator
    answers in parts::

        class Writer(Agent):
            async def setup(self) -> None:
                await self.df.register(*self.tools())

            @tool
            async def write(self, prompt: Prompt) -> AsyncIterator[Chunk]:
                for word in prompt.text.split():
                    yield Chunk(word)

    Agents ask a tool with :meth:`Agent.ask`, or with a plain ``request`` of any FIPA agent. The tool answers ``agree`` at once,
    unless it raises :class:`~sealbus.Refuse` before it first waits. It waits while the asker has not taken enough parts, and is
    cancelled when the asker leaves. It serves up to `concurrency` requests side by side. The service's name is the method's, or
    `name`; the ontology of the request distinguishes several tools of an agent.
    """
    if concurrency < 1:
        raise ValueError(f"a tool cannot run {concurrency} times at once: concurrency is at least 1")

    def mark(method: Any) -> Any:
        setattr(method, _TOOL, (name, concurrency))
        return method

    return mark if method is None else mark(method)


def add_tools(cls: type) -> tuple[tuple[Tool, ...], tuple[tuple[str, Mark], ...]]:
    """The tools of an agent's class, and the marks of the handlers that serve them."""
    found: dict[str, Tool] = {}
    for base in reversed(cls.__mro__):
        for attribute, value in vars(base).items():
            marked = getattr(value, _TOOL, None)
            if marked is not None:
                found[attribute] = Tool(attribute, value, *marked)
    marks: list[tuple[str, Mark]] = []
    for attribute, each in found.items():
        server = f"_serve_{attribute}"
        setattr(cls, server, each)
        takes = _sealbus.opens(each.protocol)
        if len(found) > 1:
            takes &= Filter(ontology=each.name)
        # At least two: while one conversation waits for its asker, another one continues.
        marks.append((server, Mark(takes, max(2, each.concurrency))))
    return tuple(found.values()), tuple(marks)


def _count(message: AclMessage, name: str) -> int | None:
    """A parameter that is a number. Encodings may make it a text."""
    value = message.user_defined.get(name)
    if isinstance(value, int) or (isinstance(value, str) and len(value) < 19 and value.isascii() and value.isdecimal()):
        return int(value)
    return None


class Service(ParticipantConversation):
    """The conversation of a tool with an asker."""

    def __init__(self, life: Life, machine: _sealbus.Participant, opening: Message) -> None:
        window = _count(opening, WINDOW)
        self._opening = opening
        self._window = None if window is None else max(1, min(window, MOST_AHEAD))
        self._given = 0
        self._taken = 0
        super().__init__(life, machine, opening)

    def _receive(self, message: Message) -> None:
        taken = _count(message, TAKEN)
        if taken is None:
            super()._receive(message)
        else:
            self._taken = max(self._taken, min(taken, self._given))

    async def agree(self) -> None:
        """Says once that the tool is at work."""
        if self.stage == "asked":
            await self.say(Performative.AGREE)
        if self.outcome is not None:
            raise Over

    async def give_parts(self, parts: AsyncIterator[Any]) -> list[Any] | None:
        """Sends partial results as they come, or returns all of them for an asker that takes no parts."""
        kept: list[Any] = []
        try:
            async for part in parts:
                if self._window is None:
                    if len(kept) == MOST_PARTS:
                        raise Failure(f"there are more than {MOST_PARTS} parts: ask with {WINDOW}")
                    if not isinstance(part, Progress):
                        kept.append(part)
                    continue
                await self.agree()
                if isinstance(part, Progress):
                    await self.tell(part)
                    continue
                if not self._has_taken():
                    await self.wait(self._has_taken, PATIENCE)
                self._given += 1
                await self._inform(PARTIAL, self._given, part)
        finally:
            close = getattr(parts, "aclose", None)
            if close is not None:
                await close()
        return kept if self._window is None else None

    async def tell(self, progress: Progress) -> None:
        """Sends the progress, if the asker takes more than a reply."""
        if self._window is not None and self.outcome is None:
            await self._inform(PROGRESS, progress.done, progress.text)

    def _has_taken(self) -> bool | None:
        """Whether the asker takes one more part."""
        assert self._window is not None
        return self._given - self._taken < self._window or None

    async def _inform(self, name: str, number: float, content: Any) -> None:
        message = self._opening.create_reply(Performative.INFORM, content)
        await self._send([message.replace(user_defined={name: number})], self._patience)


class Answer(Stream[_C]):
    """An answer in parts, from :meth:`Agent.ask`: an asynchronous iterator over them, inside ``async with``."""

    protocol = "fipa-request"

    def __init__(
        self,
        life: Life,
        to: AID | str | ServiceDescription,
        body: object,
        stream: Any,
        tool: str | None,
        timeout: float | None,
        window: int,
    ) -> None:
        if not 1 <= window <= MOST_AHEAD:
            raise ValueError(f"the window is from 1 to {MOST_AHEAD}, not {window}")
        opening = draft(Performative.REQUEST, body).replace(user_defined={WINDOW: window})
        if tool is not None:
            opening = opening.replace(ontology=tool)
        super().__init__(life, Performative.REQUEST, opening, to, stream, timeout)
        self._window = window
        self._taken = 0
        self._listens = False
        self.progress: Progress | None = None
        """The tool's progress, if the tool reports it."""
        self.reply: Message | None = None
        """The final reply, once it has come."""

    async def _start(self) -> None:
        found = await agents_of(self._life, self._to)
        if not found:
            raise ConversationError(self._life.name, "no agent offers this service", "undeliverable")
        self._to = found[0]
        await super()._start()

    def _receive(self, message: Message) -> None:
        progress = message.user_defined.get(PROGRESS)
        if progress is None and _count(message, PARTIAL) is None:
            super()._receive(message)
        elif message.sender == self._to and message.performative == Performative.INFORM:
            if progress is None:
                self._news.append(message)
            elif isinstance(progress, int | float):
                self.progress = Progress(progress, message.content_text or "")
            self._expect()

    def _heard(self, meaning: str, message: Message, sender: AID) -> None:
        if meaning == "step" and message.performative != Performative.AGREE:
            self.reply = message

    async def __anext__(self) -> _C:
        self._listens = True
        self._expect()
        try:
            message = await self._following()
        finally:
            self._listens = False
            self._expect()
        self._taken += 1
        if self._taken % ((self._window + 1) // 2) == 0 and not self._opened.has_ended:
            assert isinstance(self._to, AID)
            taken = AclMessage(
                Performative.INFORM,
                self._to,
                protocol=self.protocol,
                conversation_id=self.id,
                user_defined={TAKEN: self._taken},
            )
            try:
                await self._send([taken], self._timeout)
            except BaseException:
                # Nobody got the part, so it is still the next one.
                self._taken -= 1
                self._news.appendleft(message)
                raise
        part: _C = decode(message, self._reply)
        return part

    def _expect(self) -> None:
        """While somebody listens, the tool has `timeout` seconds to send something."""
        if self._timeout is not None:
            self.end_by(self._timeout if self._listens else None)

    def _end(self) -> Exception:
        branch = self._opened.branches[0]
        return StopAsyncIteration() if branch.outcome == "done" else self._problem(branch.agent)

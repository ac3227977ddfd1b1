"""Tools: typed methods of an agent as services, which answer as a whole or in parts.

In messages a tool is an act of `fipa-request`. The parts stand in messages of the same conversation that carry
user-defined parameters, so that nobody takes one for the reply:

=========================  =============================================================================================
``request``                with ``X-window: 16`` the one who asks takes partial results, so many ahead; the ontology may
                           name the tool
``agree``                  the tool is at work
``inform``                 with ``X-partial: 3``, the third partial result
``inform``                 with ``X-progress: 0.5``, how far it is; the content is a text for people
``inform``                 from the one who asks, with ``X-taken: 8``: eight partial results are taken
``cancel``                 from the one who asks: no more is wanted. It is answered ``inform``
``inform``                 without these: the final reply. After partial results it has no content
=========================  =============================================================================================

One who asks without ``X-window`` gets the final reply alone, with all parts in a list.
"""

from __future__ import annotations

import asyncio
import functools
import json
import typing
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, get_args, get_origin, overload

from sealbus._sealbus import AID, AclMessage, Filter, Message, ServiceDescription, new_conversation_id
from sealbus.body import JSON, decode
from sealbus.errors import ConversationError, ConversationTimeout, Failure, Refuse, SealbusError
from sealbus.mark import Mark
from sealbus.performative import Performative
from sealbus.schema import schema

if TYPE_CHECKING:
    from sealbus.agent import Agent
    from sealbus.clock import Timer

__all__ = ["Answer", "Progress", "tool"]

_C = TypeVar("_C")
_Method = TypeVar("_Method", bound=Callable[..., Any])

PROTOCOL = "fipa-request"
WINDOW = "X-window"
PARTIAL = "X-partial"
PROGRESS = "X-progress"
TAKEN = "X-taken"

MOST_AHEAD = 4096
"""Partial results that a tool gives ahead at most, however many the one who asks would take."""

PATIENCE = 60.0
"""Seconds that a tool waits until a partial result is taken, and that a conversation's last messages are waited for."""

MOST_PARTS = 65_536
"""Partial results that a final reply holds at most, for one who takes none."""

_TOOL = "__sealbus_tool__"
_FINAL = (Performative.INFORM, Performative.REFUSE, Performative.FAILURE, Performative.NOT_UNDERSTOOD)


@dataclass(frozen=True)
class Progress:
    """How far a tool is. It yields one among its partial results; the one who asks sees it in :attr:`Answer.progress`."""

    done: float
    """The part that is done, from 0 to 1."""
    text: str = ""
    """What it does now, for people."""


class Tool:
    """A method as a service."""

    def __init__(self, attribute: str, method: Callable[..., Any], name: str | None, concurrency: int) -> None:
        self.attribute = attribute
        self.name = name or method.__name__.replace("_", "-")
        self.concurrency = concurrency
        self.about = (method.__doc__ or "").strip().partition("\n")[0]
        self._method = method

    @functools.cached_property
    def _types(self) -> tuple[Any, Any, bool]:
        hints = typing.get_type_hints(self._method)
        gives = hints.pop("return", None)
        takes = next(iter(hints.values()), None)
        if takes is None:
            raise TypeError(f"the tool {self.name} needs a parameter with a type, which is what it is asked")
        if isinstance(get_origin(gives), type) and issubclass(get_origin(gives), AsyncIterator):
            return takes, get_args(gives)[0], True
        return takes, gives, False

    @property
    def takes(self) -> Any:
        """The type of what it is asked."""
        return self._types[0]

    @property
    def service(self) -> ServiceDescription:
        """The entry in the DF."""
        takes, gives, streams = self._types
        told = {"input": json.dumps(schema(takes)), "output": json.dumps(schema(gives)), "description": self.about}
        properties: dict[str, str | int | float | None] = {name: text for name, text in told.items() if text}
        properties["streams"] = "yes" if streams else "no"
        return ServiceDescription(
            self.name, self.name, protocols=[PROTOCOL], ontologies=[self.name], languages=[JSON], properties=properties
        )

    @property
    def streams(self) -> bool:
        """Whether it gives partial results."""
        return self._types[2]

    async def serve(self, agent: Agent, request: Message) -> None:
        """Answers a request."""
        body = decode(request, self.takes)
        outgoing = _Outgoing(agent, request)
        method = getattr(agent, self.attribute)
        work = asyncio.create_task(outgoing.send_parts(method(body)) if self.streams else method(body))
        outgoing.work = work
        try:
            # Until it waits for the first time it may refuse.
            await asyncio.sleep(0)
            if _refusal(work) is None:
                await agent.reply(request, Performative.AGREE)
                outgoing.agreed.set()
                await asyncio.wait({work})
                refusal = _refusal(work)
                if refusal is not None:
                    raise Failure(refusal.reason)
            if not outgoing.is_unwanted:
                await agent.reply(request, Performative.INFORM, work.result())
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.wait({work})
            raise
        finally:
            outgoing.end()


def _refusal(work: asyncio.Task[Any]) -> Refuse | None:
    raised = work.exception() if work.done() and not work.cancelled() else None
    return raised if isinstance(raised, Refuse) else None


@overload
def tool(method: _Method, /) -> _Method: ...
@overload
def tool(*, name: str | None = None, concurrency: int = 100) -> Callable[[_Method], _Method]: ...
def tool(method: Any = None, /, *, name: str | None = None, concurrency: int = 100) -> Any:
    """Makes a service of a method of an agent. Its parameter is what it is asked, its result the answer; an asynchronous
    generator answers in parts, as they come::

        class Writer(Agent):
            async def setup(self) -> None:
                await self.df.register(*self.tools())

            @tool
            async def write(self, prompt: Prompt) -> AsyncIterator[Chunk]:
                for word in prompt.text.split():
                    yield Chunk(word)

    It is asked with :meth:`Agent.ask`, or with a plain ``request`` of any FIPA agent. ``agree`` is said at once, unless it
    raises :class:`~sealbus.Refuse` before it first waits. It gets no further ahead than the one who asks takes its parts, and
    is cancelled when that one leaves. Up to `concurrency` requests are served side by side. The service's name is the
    method's, or `name`; several tools of an agent are told apart by the ontology of the request.
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
        setattr(cls, server, functools.partialmethod(_serve, each))
        ontology = each.name if len(found) > 1 else None
        takes = Filter(Performative.REQUEST, ontology=ontology)
        # A handler with a concurrency of one would hold up the agent's others.
        marks.append((server, Mark(takes, max(2, each.concurrency))))
    if found:
        setattr(cls, "_serve_cancel", _serve_cancel)
        marks.append(("_serve_cancel", Mark(Filter(Performative.CANCEL, protocol=PROTOCOL), 2)))
    return tuple(found.values()), tuple(marks)


async def _serve(agent: Agent, served: Tool, request: Message) -> None:
    await served.serve(agent, request)


async def _serve_cancel(agent: Agent, cancel: Message) -> None:
    """Answers a cancel that comes too late."""
    raise Failure("it has ended already")


def _count(message: AclMessage, name: str) -> int | None:
    """A parameter that is a number. Encodings may make it a text."""
    value = message.user_defined.get(name)
    if isinstance(value, int) or (isinstance(value, str) and len(value) < 19 and value.isascii() and value.isdecimal()):
        return int(value)
    return None


class _Outgoing:
    """The conversation of a tool with one who asked."""

    def __init__(self, agent: Agent, request: Message) -> None:
        self._agent = agent
        self._life = agent._living
        self._request = request
        window = _count(request, WINDOW)
        self._window = None if window is None else max(1, min(window, MOST_AHEAD))
        self._sent = 0
        self._taken = 0
        self._changed = asyncio.Event()
        self._timer: Timer | None = None
        self._is_over = False
        self._cancel: Message | None = None
        self.agreed = asyncio.Event()
        self.work: asyncio.Task[Any] | None = None
        self.is_unwanted = False
        """Whether the one who asked has left."""
        conversation = request.conversation_id
        self.filter = Filter(conversation_id=str(conversation)) & ~Filter(Performative.REQUEST)
        self._is_open = conversation is not None
        if self._is_open:
            self._life.attend(self)

    def wake(self) -> None:
        """Takes what came in the conversation."""
        with suppress(SealbusError):
            # Nothing comes any more to an agent that has left.
            self._take()

    def _take(self) -> None:
        while self._is_open:
            message = self._life.take(self)
            if message is None:
                return
            if message.undelivered is not None:
                self._leave()
            elif message.sender == self._request.sender:
                if message.performative is Performative.CANCEL:
                    self._cancel = message
                    self._leave()
                else:
                    self._taken = max(self._taken, min(_count(message, TAKEN) or 0, self._sent))
                    self._changed.set()
                    if self._is_over and not self._is_awaited():
                        self._close()

    def _leave(self) -> None:
        self.is_unwanted = True
        if self._is_over:
            self.end()
        elif self.work is not None:
            self.work.cancel()

    async def send_parts(self, parts: AsyncIterator[Any]) -> Any:
        """Sends partial results as they come, or gives all of them to one who takes none."""
        kept: list[Any] = []
        try:
            async for part in parts:
                if self._window is None:
                    if len(kept) == MOST_PARTS:
                        raise Failure(f"there are more than {MOST_PARTS} parts: ask with {WINDOW}")
                    if not isinstance(part, Progress):
                        kept.append(part)
                    continue
                await self.agreed.wait()
                if isinstance(part, Progress):
                    await self._inform(PROGRESS, part.done, part.text)
                    continue
                await self._room()
                self._sent += 1
                await self._inform(PARTIAL, self._sent, part)
        finally:
            close = getattr(parts, "aclose", None)
            if close is not None:
                await close()
        return kept if self._window is None else None

    async def _room(self) -> None:
        assert self._window is not None
        while self._sent - self._taken >= self._window:
            self._changed.clear()
            try:
                async with self._life.clock.timeout(PATIENCE):
                    await self._changed.wait()
            except TimeoutError:
                self.is_unwanted = True
                raise asyncio.CancelledError from None

    async def _inform(self, name: str, number: float, content: Any) -> None:
        message = self._request.create_reply(Performative.INFORM, content)
        await self._agent.send(message.replace(user_defined={name: number}))

    def _is_awaited(self) -> bool:
        """Whether the one who asks will yet say how much it has taken."""
        return self._window is not None and self._sent - self._taken >= _batch(self._window)

    def end(self) -> None:
        """The tool is done. What still comes in the conversation is nobody else's."""
        self._is_over = True
        if self._cancel is not None:
            with suppress(SealbusError):
                # The last of the conversation. It does not wait for room: whoever leaves need not read it.
                self._life.handle.try_send(self._cancel.create_reply(Performative.INFORM))
        if self._is_open and self._is_awaited() and not self.is_unwanted:
            self._timer = self._life.clock.call_later(PATIENCE, self._close)
        else:
            self._close()

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._life.ignore(self)
        if self._timer is not None:
            self._timer.cancel()


def _batch(window: int) -> int:
    """So many partial results are taken before it is said."""
    return (window + 1) // 2


class Answer(Generic[_C]):
    """An answer that comes in parts, from :meth:`Agent.ask`: an asynchronous iterator over them, inside ``async with``."""

    def __init__(
        self,
        agent: Agent,
        to: AID | str | ServiceDescription,
        body: object,
        stream: Any,
        tool: str | None,
        timeout: float | None,
        window: int,
    ) -> None:
        if not 1 <= window <= MOST_AHEAD:
            raise ValueError(f"the window is from 1 to {MOST_AHEAD}, not {window}")
        self._agent = agent
        self._life = agent._living
        self._to = to
        self._asked = (body, tool)
        self._kind = stream
        self._timeout = timeout
        self._window = window
        self._taken = 0
        self._is_open = False
        self._is_over = False
        self._has_left = False
        self._timer: Timer | None = None
        self._changed = asyncio.Event()
        self.id = new_conversation_id()
        """The conversation-id."""
        self._parting = f"{self.id}-cancel"
        self.filter = Filter(conversation_id=self.id)
        self.progress: Progress | None = None
        """How far the tool is, if it tells."""
        self.reply: Message | None = None
        """The final reply, once it has come."""

    async def __aenter__(self) -> Self:
        to = self._to
        if isinstance(to, ServiceDescription):
            found = await self._life.df.search(to)
            if not found or found[0].name is None:
                raise ConversationError(self._life.name, "no agent offers this service", "undeliverable")
            to = found[0].name
        self._aid = self._life.handle.peer(to) if isinstance(to, str) else to
        body, tool = self._asked
        request = AclMessage(
            Performative.REQUEST,
            self._aid,
            body=body,
            protocol=PROTOCOL,
            conversation_id=self.id,
            reply_with=self.id,
            user_defined={WINDOW: self._window},
        )
        if tool is not None:
            request = request.replace(ontology=tool)
        self._is_open = True
        self._life.attend(self)
        try:
            await self._agent.send(request)
        except BaseException:
            self._close()
            raise
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _C:
        while not self._is_over:
            message = await self._next()
            if message.undelivered is not None:
                self._close()
                receiver, reason = message.undelivered
                raise ConversationError(
                    self._life.name, f"nothing can be delivered to {receiver}: {reason}", "undeliverable", message
                )
            if message.sender != self._aid:
                continue
            if message.performative is Performative.INFORM and _count(message, PARTIAL) is not None:
                self._taken += 1
                if self._taken % _batch(self._window) == 0:
                    await self._say(Performative.INFORM, None, {TAKEN: self._taken})
                part: _C = decode(message, self._kind)
                return part
            progress = message.user_defined.get(PROGRESS)
            if progress is not None:
                if isinstance(progress, int | float):
                    self.progress = Progress(progress, message.content_text or "")
            elif message.performative in _FINAL:
                self._close()
                self.reply = message
                if message.performative is not Performative.INFORM:
                    said = message.content_text
                    cause = f"{self._aid.name} answered {message.performative}" + (f": {said[:1000]}" if said else "")
                    raise ConversationError(self._life.name, cause, str(message.performative), message)
        raise StopAsyncIteration

    async def _next(self) -> Message:
        while True:
            self._life.check_not_stopping()
            self._changed.clear()
            # In vain, it makes the mailbox tell of the next message.
            message = self._life.take(self)
            if message is not None:
                return message
            try:
                async with self._life.clock.timeout(self._timeout):
                    await self._changed.wait()
            except TimeoutError:
                cause = f"{self._aid.name} said nothing for {self._timeout:g} s"
                raise ConversationTimeout(self._life.name, cause, "timed-out") from None

    async def _say(self, act: Performative, reply_with: str | None, parameters: dict[str, Any]) -> None:
        message = AclMessage(
            act, self._aid, protocol=PROTOCOL, conversation_id=self.id, reply_with=reply_with, user_defined=parameters
        )
        await self._agent.send(message)

    async def __aexit__(self, *raised: object) -> None:
        if self._is_over:
            return
        # What was on its way comes here still, and to nobody else.
        self._has_left = True
        self._timer = self._life.clock.call_later(PATIENCE, self._close)
        with suppress(SealbusError):
            await self._say(Performative.CANCEL, self._parting, {})
        self.wake()

    def wake(self) -> None:
        """Lets the one who waits look into the mailbox again. After leaving, nobody does."""
        self._changed.set()
        with suppress(SealbusError):
            self._take_late()

    def _take_late(self) -> None:
        while self._has_left and not self._is_over:
            message = self._life.take(self)
            if message is None:
                return
            # The final reply may have crossed the cancel: what answers that is the last.
            if message.undelivered is not None or message.in_reply_to == self._parting:
                self._close()

    def _close(self) -> None:
        self._is_over = True
        if self._is_open:
            self._is_open = False
            self._life.ignore(self)
        if self._timer is not None:
            self._timer.cancel()

"""Methods of an agent as participants in conversations that others open."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from sealbus import _sealbus
from sealbus._sealbus import AclMessage, Message
from sealbus.body import declare
from sealbus.conversation import BACKLOG, NEVER, Conversation, draft, reason_text
from sealbus.errors import ContentError, NegativeAnswer, NotUnderstood, ProtocolError, SealbusError
from sealbus.handlers import CUT_OFF, FAILED, farewell
from sealbus.mark import MARKS
from sealbus.performative import Performative

if TYPE_CHECKING:
    from sealbus._sealbus import Value
    from sealbus.agent import Agent
    from sealbus.life import Life

_T = TypeVar("_T")
_Method = TypeVar("_Method", bound=Callable[..., Any])


@dataclass(frozen=True)
class Order(Generic[_T]):
    """An accepted proposal, which the agent is to perform."""

    message: Message
    """The acceptance."""
    call: Message[Any]
    """The call for proposals."""
    offer: _T
    """The agent's proposal."""


@dataclass(frozen=True)
class Bid(Generic[_T]):
    """A round of an auction, in which the agent may bid."""

    call: Message[_T]
    """The call for bids. Its body is the price."""
    auction: Message[Any]
    """The announcement of the auction."""

    @property
    def price(self) -> _T:
        """The body of the call."""
        return self.call.body


class Over(Exception):
    """The conversation has ended while its participant was at work."""


class ParticipantConversation(Conversation):
    """A participant's side of a conversation."""

    _patience: float | None = None
    """Seconds that a message waits for room; None waits without end."""

    def __init__(self, life: Life, machine: _sealbus.Participant, opening: Message) -> None:
        super().__init__(life)
        self._machine = machine
        self._waiting: deque[Message] = deque()
        self._worker: asyncio.Task[Any] | None = None
        # The outcome that does not stop the present work.
        self._outlives: str | None = None
        # Whether the end of the conversation has cancelled its work.
        self._is_cut = False
        if opening.conversation_id is not None:
            self._open(life.handle.open_conversation(str(opening.conversation_id), machine.initiator))
        self._keep_time()

    def _has_room(self) -> bool:
        return len(self._waiting) < BACKLOG

    def _receive(self, message: Message) -> None:
        meaning = self._judge(self._machine.receive(message, self._now()), message)
        if meaning == "cancel":
            # This fails if the time for an answer is over.
            with suppress(ProtocolError):
                self._post([self._machine.answer_cancel(draft(Performative.INFORM), self._now())])
        elif meaning is not None:
            self._waiting.append(message)

    def _lost(self, receiver: str) -> None:
        self._machine.undeliverable()

    def _advance(self) -> None:
        self._machine.advance(self._now())

    def _deadline(self) -> int | None:
        return self._machine.deadline

    def _is_in_vain(self) -> bool:
        """Whether work for the conversation is in vain."""
        return self._machine.outcome not in (None, self._outlives)

    def _note_change(self) -> None:
        worker = self._worker
        # The task itself notices when its work is done.
        if worker is not None and self._is_in_vain() and worker is not asyncio.current_task(self._life.loop):
            if not self._is_cut:
                self._is_cut = True
                worker.cancel()
        super()._note_change()

    async def work(self, work: Awaitable[_T], outlives: str | None = None) -> _T:
        """Lets the agent work as long as the conversation goes on. The work continues if the conversation ends with the
        outcome `outlives`."""
        self._outlives = outlives
        self._advance()
        if self._is_in_vain():
            if inspect.iscoroutine(work):
                work.close()
            raise Over
        self._machine.end_by(NEVER)
        self._keep_time()
        worker = self._worker = asyncio.current_task()
        assert worker is not None
        try:
            result = await work
        except asyncio.CancelledError:
            if not self._is_cut or worker.cancelling() > 1:
                raise
            raise Over from None
        finally:
            self._worker = None
            if self._is_cut:
                self._is_cut = False
                worker.uncancel()
        if self._machine.outcome is not None:
            raise Over
        return result

    def check(self) -> None:
        """Raises :class:`Over` if the conversation has ended."""
        # A deadline may have passed without a call of its timer yet.
        self._advance()
        if self._machine.outcome is not None:
            raise Over

    async def say(self, act: Performative, body: object = None) -> None:
        """Sends a message, if the conversation still goes on."""
        self.check()
        message = self._machine.send(draft(act, body), self._now())
        if self._queue is None and self._machine.outcome is None:
            # The initiator gave the conversation no name. Its messages are recognised by the message that they answer.
            self._open(self._life.handle.open_replies(str(message.reply_with)))
        await self._send([message], self._patience)

    def decline(self, act: Performative, reason: str, mark: dict[str, Value] | None = None) -> None:
        """Sends the protocol's negative answer at this stage, with these parameters."""
        ways = (act, Performative.REFUSE, Performative.FAILURE, Performative.REJECT_PROPOSAL, Performative.NOT_UNDERSTOOD)
        message = AclMessage(act, content=reason_text(reason), user_defined=mark)
        for way in ways:
            with suppress(ProtocolError):
                self._post([self._machine.send(message.replace(performative=way), self._now())])
                return

    async def wait(self, look: Callable[[], _T | None], timeout: float) -> _T:
        """Waits for what `look` finds in the state of the conversation, which ends after so many seconds."""
        self._machine.end_by(self._now() + round(timeout * 1000))
        self._keep_time()
        found = await self._until(look)
        self._machine.end_by(NEVER)
        return found

    async def next(self, timeout: float) -> Message | None:
        """The initiator's next message; None when the conversation has ended, for example after `timeout` seconds of
        silence."""

        def look() -> tuple[Message | None] | None:
            if self._waiting:
                return (self._waiting.popleft(),)
            return (None,) if self._machine.outcome is not None else None

        (message,) = await self.wait(look, timeout)
        self.wake()
        return message

    @property
    def stage(self) -> _sealbus.Stage:
        """The stage of the conversation."""
        return self._machine.stage

    @property
    def outcome(self) -> str | None:
        """The outcome of the conversation, if it has ended."""
        return self._machine.outcome

    def conclude(self) -> None:
        """Ends the conversation if no further message is due."""
        self._machine.conclude()

    def close(self) -> None:
        """Ends the conversation on this side."""
        self._close()


class Participates:
    """A method that takes part in a protocol."""

    protocol: str
    conversation: type[ParticipantConversation] = ParticipantConversation

    def __init__(self, method: Callable[..., Any], body: Any, timeout: float) -> None:
        self._method = method
        self._body = body
        self._timeout = timeout
        self._perform: Callable[..., Any] | None = None
        self._rejected: Callable[..., Any] | None = None
        self.__doc__ = method.__doc__

    def perform(self, method: _Method) -> _Method:
        """Marks the method that does the agreed work."""
        self._perform = method
        return method

    def rejected(self, method: _Method) -> _Method:
        """Marks the method that is called after a proposal was rejected."""
        self._rejected = method
        return method

    def in_class(self, cls: type, attribute: str) -> Participates:
        """The same method in a derived class, which may have overridden some of its steps without marking them
        again."""

        def latest(name: str, method: Callable[..., Any] | None) -> Callable[..., Any] | None:
            is_named = any(vars(base).get(name) in (self, method) for base in cls.__mro__)
            found = getattr(cls, name) if is_named and method is not None else None
            return found if callable(found) else method

        mine = (self._method, self._perform, self._rejected)
        names = (attribute, *(getattr(step, "__name__", "") for step in mine[1:]))
        found = tuple(latest(name, method) for name, method in zip(names, mine, strict=True))
        if found == mine:
            return self
        other = copy(self)
        # The marks belong to the overridden method.
        vars(other).pop(MARKS, None)
        other._method, other._perform, other._rejected = cast("Any", found)
        return other

    def __get__(self, agent: Agent | None, owner: type) -> Any:
        return self if agent is None else _Bound(self, agent)

    async def _serve(self, agent: Agent, talk: ParticipantConversation, message: Message) -> None:
        life = agent._living
        try:
            await self._take_part(agent, talk, message)
        except Over:
            pass
        except NegativeAnswer as no:
            talk.decline(no.performative, no.reason)
        except asyncio.CancelledError:
            talk.decline(Performative.FAILURE, CUT_OFF, farewell(life))
            life.handlers.note_answer(message, Performative.FAILURE)
            raise
        except ContentError as problem:
            talk.decline(Performative.NOT_UNDERSTOOD, str(problem))
            life.handlers.note_answer(message, Performative.NOT_UNDERSTOOD)
            raise
        except Exception as raised:
            # Answer here: the handlers then only log it.
            if life.is_farewell(raised):
                talk.decline(Performative.FAILURE, CUT_OFF, farewell(life))
            else:
                talk.decline(Performative.FAILURE, FAILED)
            life.handlers.note_answer(message, Performative.FAILURE)
            raise
        finally:
            talk.close()

    def _read(self, message: Message) -> Message[Any]:
        if self._body is not None:
            declare(message, self._body)
        return message

    async def _take_part(self, agent: Agent, talk: ParticipantConversation, call: Message) -> None:
        """Goes through the protocol."""
        raise NotImplementedError


class _Bound:
    """A method of one agent that takes part in a protocol."""

    def __init__(self, participates: Participates, agent: Agent) -> None:
        self._participates = participates
        self._agent = agent

    def __call__(self, *arguments: Any) -> Any:
        """Calls the method itself, as an overriding method does."""
        return self._participates._method(self._agent, *arguments)

    def open(self, message: Message) -> Callable[[Message], Awaitable[None]]:
        """Enters the conversation that a message opens."""
        raised: SealbusError
        try:
            return self._enter(message)
        except ProtocolError:
            # Two openings came at once, by the sender's mistake.
            raised = NotUnderstood("the conversation with this conversation-id was opened before")
        except SealbusError as problem:
            raised = problem

        async def fail(message: Message) -> None:
            raise raised

        return fail

    def withdraw(self, opening: Message, cancel: Message) -> AclMessage | None:
        """The answer to a message that cancels a conversation before the agent has begun with its opening."""
        now = round(self._agent._living.clock.time() * 1000)
        machine = _sealbus.Participant.open(self._participates.protocol, opening, now)
        if isinstance(machine, _sealbus.Refused):
            return machine.answer
        received = machine.receive(cancel, now)
        if isinstance(received, _sealbus.Refused):
            return received.answer
        try:
            return machine.answer_cancel(draft(Performative.INFORM), now)
        except ProtocolError:
            # The time for an answer is over.
            return None

    def _enter(self, message: Message) -> Callable[[Message], Awaitable[None]]:
        life = self._agent._living
        now = round(life.clock.time() * 1000)
        machine = _sealbus.Participant.open(self._participates.protocol, message, now)
        if isinstance(machine, _sealbus.Refused):
            refused = machine.answer

            async def refuse(message: Message) -> None:
                if refused is not None:
                    life.post(refused)

            return refuse
        talk = self._participates.conversation(life, machine, message)
        talk._patience = self._participates._timeout

        async def serve(message: Message) -> None:
            await self._participates._serve(self._agent, talk, message)

        return serve


def inherit(cls: type) -> None:
    """Lets methods that override a method which takes part in a protocol take part in the same way."""
    marked: dict[str, Participates] = {}
    for base in reversed(cls.__mro__):
        marked |= {name: value for name, value in vars(base).items() if isinstance(value, Participates)}
    for attribute, participates in marked.items():
        own = participates.in_class(cls, attribute)
        if own is not participates:
            setattr(cls, attribute, own)

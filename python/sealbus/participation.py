"""Methods of an agent as participants in conversations that others open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from sealbus import _sealbus
from sealbus._sealbus import AclMessage, Message
from sealbus.body import declare
from sealbus.conversation import Over, ParticipantConversation, draft
from sealbus.errors import ContentError, NegativeAnswer, NotUnderstood, ProtocolError, SealbusError
from sealbus.handlers import CUT_OFF, FAILED, farewell
from sealbus.mark import MARKS
from sealbus.performative import Performative

if TYPE_CHECKING:
    from sealbus.agent import Agent

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
        """Marks the method that learns of a proposal that was rejected."""
        self._rejected = method
        return method

    def in_class(self, cls: type, attribute: str) -> Participates:
        """As it takes part in a class that overrides its methods, or one of them, without marking them again."""

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
        # The marks are those of the method that is overridden.
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
            # It is answered. Only the log is left.
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
        """Calls the method itself, as one does that overrides it."""
        return self._participates._method(self._agent, *arguments)

    def open(self, message: Message) -> Callable[[Message], Awaitable[None]]:
        """Enters the conversation that a message opens."""
        raised: SealbusError
        try:
            return self._enter(message)
        except ProtocolError:
            # Two openings came at once. It is the sender's mistake.
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
    """Lets a method that overrides one that takes part in a protocol take part as well, in the same way."""
    marked: dict[str, Participates] = {}
    for base in reversed(cls.__mro__):
        marked |= {name: value for name, value in vars(base).items() if isinstance(value, Participates)}
    for attribute, participates in marked.items():
        own = participates.in_class(cls, attribute)
        if own is not participates:
            setattr(cls, attribute, own)

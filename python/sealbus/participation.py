"""How a method of an agent takes part in conversations that others open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sealbus import _sealbus
from sealbus._sealbus import Message
from sealbus.body import declare
from sealbus.conversation import Over, ParticipantConversation
from sealbus.errors import ContentError, NegativeAnswer, SealbusError
from sealbus.handlers import CUT_OFF
from sealbus.mark import MARKS, Mark, Supervise
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
    """What the agent proposed."""


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

    def __init__(
        self,
        method: Callable[..., Any],
        body: Any,
        conversations: int,
        timeout: float,
        supervise: Supervise | None,
    ) -> None:
        self._method = method
        self._body = body
        self._timeout = timeout
        self._perform: Callable[..., Any] | None = None
        self._rejected: Callable[..., Any] | None = None
        self.__doc__ = method.__doc__
        # Never one at a time: a conversation waits for the initiator, and others go on.
        setattr(self, MARKS, (Mark(_sealbus.opens(self.protocol), max(2, conversations), supervise),))

    def perform(self, method: _Method) -> _Method:
        """Marks the method that does what was agreed on."""
        self._perform = method
        return method

    def rejected(self, method: _Method) -> _Method:
        """Marks the method that learns of a proposal that was rejected."""
        self._rejected = method
        return method

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
            talk.decline(Performative.FAILURE, CUT_OFF)
            life.handlers.note_answer(message, Performative.FAILURE)
            raise
        except ContentError as problem:
            talk.decline(Performative.NOT_UNDERSTOOD, str(problem))
            life.handlers.note_answer(message, Performative.NOT_UNDERSTOOD)
            raise
        except Exception as raised:
            # It is answered. What is left is the log.
            reason = f"{self._method.__name__} of {agent.name} raised {type(raised).__name__}"
            talk.decline(Performative.FAILURE, reason)
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

    def open(self, message: Message) -> Callable[[Message], Awaitable[None]]:
        """Enters the conversation that a message opens."""
        try:
            return self._enter(message)
        except SealbusError as problem:
            raised = problem

        async def fail(message: Message) -> None:
            raise raised

        return fail

    def _enter(self, message: Message) -> Callable[[Message], Awaitable[None]]:
        life = self._agent._living
        now = round(life.clock.time() * 1000)
        machine = _sealbus.Participant.open(self._participates.protocol, message, now)
        if isinstance(machine, _sealbus.Refused):
            refused = machine.answer

            async def refuse(message: Message) -> None:
                if refused is not None:
                    await self._agent.send(refused)

            return refuse
        talk = ParticipantConversation(life, machine, message)

        async def serve(message: Message) -> None:
            await self._participates._serve(self._agent, talk, message)

        return serve

"""Conversations: each follows an interaction protocol, owns its messages, and keeps its deadlines.

The native half implements the rules of the protocols (:class:`sealbus._sealbus.Initiator` and
:class:`~sealbus._sealbus.Participant`). This module connects them with an agent: it sends their messages, passes arriving
messages to them, and lets time pass.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from sealbus import _sealbus
from sealbus._sealbus import AID, AclMessage, Message
from sealbus.directory import Others, agents_of
from sealbus.errors import (
    AgentStopped,
    AnswerNotTaken,
    ContentError,
    ConversationError,
    ConversationTimeout,
    SealbusError,
)
from sealbus.performative import Performative

if TYPE_CHECKING:
    from sealbus._sealbus import Unsent
    from sealbus.clock import Timer
    from sealbus.life import Life

_T = TypeVar("_T")

log = logging.getLogger("sealbus")

NEVER = 2**53
"""A moment in the far future."""

REASON_LIMIT = 1000
"""The longest reason in an answer, in characters."""

BACKLOG = 256
"""Messages that a conversation takes out of the mailbox before its program has taken them."""


def draft(act: Performative, body: object = None) -> AclMessage:
    """A message, which a conversation completes. An :class:`AclMessage` as `body` gives its content, and more such as an
    ontology."""
    if isinstance(body, AclMessage):
        return body.replace(performative=act)
    return AclMessage(act) if body is None else AclMessage(act, body=body)


def reason_text(reason: str) -> str:
    """A reason as the content of a message: truncated, and without characters that a message cannot have."""
    return reason[:REASON_LIMIT].encode(errors="replace").decode()


def value_of(found: _T | Exception) -> _T:
    """Returns the value found, or raises the exception found."""
    if isinstance(found, Exception):
        raise found
    return found


class Conversation:
    """The common part of initiators and participants."""

    def __init__(self, life: Life) -> None:
        self._life = life
        # When the clock's own count began, in seconds since 1970.
        self._zero = life.clock.time() - life.clock.now()
        self._queue: _sealbus.Conversation | None = None
        self._number = 0
        self._timer: Timer | None = None
        self._timer_for: int | None = None
        self._changed: asyncio.Future[None] | None = None
        self._is_over = False
        self.refused_messages = 0
        """Messages that came in the conversation and that its protocol does not allow, such as late ones."""
        self.late: Callable[[Message], Coroutine[Any, Any, None]] | None = None
        """Called with messages that come after the conversation with their sender has ended. Without it they are counted and
        dropped."""

    # ----- the machine

    def _receive(self, message: Message) -> None:
        """Takes a message of the conversation."""
        raise NotImplementedError

    def _lost(self, receiver: str) -> None:
        """Notes that a message was not delivered to this agent."""
        raise NotImplementedError

    def _advance(self) -> None:
        """Lets time pass."""
        raise NotImplementedError

    def _deadline(self) -> int | None:
        """When :meth:`_advance` is due."""
        raise NotImplementedError

    def _has_room(self) -> bool:
        """Whether the conversation takes more messages now."""
        return True

    # ----- messages

    def _open(self, queue: _sealbus.Conversation) -> None:
        """From now on all messages of the conversation come here and nowhere else."""
        self._queue = queue
        self._number = self._life.mailbox.open(queue, self)
        self.wake()

    def _next(self) -> Message | None:
        # If the queue is empty, this makes it report its next message.
        if self._queue is None or self._life.moving is not None or not (self._is_over or self._has_room()):
            return None
        return self._queue.try_next()

    def wake(self) -> None:
        """Takes the messages that have come. Called whenever there may be some, and when the agent is stopped."""
        try:
            while (message := self._next()) is not None:
                lost = message.undelivered
                if lost is None:
                    self._receive(message)
                else:
                    self._lost(lost[0])
        except SealbusError as problem:
            # The agent has left. The tasks that wait for the conversation are told.
            log.debug("%s: a conversation ends: %s", self._life.name, problem)
        self._note_change()

    def _judge(self, received: str | _sealbus.Refused, message: Message) -> str | None:
        """The meaning of a message in the protocol; None if the protocol does not allow the message. This then answers
        it, if the standard says so."""
        if isinstance(received, str):
            return received
        self.refused_messages += 1
        log.debug("%s: %r is refused: %s", self._life.name, message, received.reason)
        if received.answer is not None:
            self._post([received.answer])
        if received.is_late and self.late is not None:
            self._life.tasks.create(self.late(message), self._life.agent._supervise)
        return None

    def _post(self, messages: Iterable[AclMessage]) -> None:
        """Sends messages without a wait for room at the receivers. If the agent is being moved, they are sent when it is known
        that it stays."""
        moving = self._life.moving
        if moving is not None:
            # Conversations do not move, and their agent cannot send meanwhile.
            waiting = list(messages)
            moving.add_done_callback(lambda _: self._post(waiting))
            return
        for message in messages:
            with suppress(SealbusError):
                self._life.post(message)

    async def _send(self, messages: Iterable[AclMessage], patience: float | None) -> None:
        """Sends messages. A receiver without room does not hold up the others. Waits for room at most `patience` seconds; None
        waits without end."""
        life = self._life
        self._keep_time()
        rests: list[Unsent] = []
        for message in messages:
            if life.moving is not None:
                await life.settle()
            unsent = life.handle.try_send(message)
            if unsent is not None:
                rests += life.handle.try_each(unsent)
        waits = [life.finish(rest, patience=patience) for rest in rests]
        for problem in await asyncio.gather(*waits, return_exceptions=True) if waits else ():
            if problem is not None:
                raise problem

    # ----- time

    def _time(self) -> float:
        """Seconds since 1970. A change of the system's time during the conversation has no effect."""
        return self._zero + self._life.clock.now()

    def _now(self) -> int:
        return round(self._time() * 1000)

    def _reply_by(self, message: AclMessage, timeout: float | None) -> AclMessage:
        """The message with a deadline for its answer."""
        if timeout is None:
            return message
        return message.replace(reply_by=datetime.fromtimestamp(self._time() + timeout, UTC))

    def _keep_time(self) -> None:
        """Schedules a call for the next deadline."""
        deadline = None if self._is_over else self._deadline()
        if deadline is not None and deadline >= NEVER:
            deadline = None
        if deadline == self._timer_for:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_for = None, deadline
        if deadline is not None:
            # A moment later, so that the deadline has passed even if the clock is rounded.
            delay = max(0.0, deadline / 1000 - self._time()) + 0.001
            self._timer = self._life.clock.call_later(delay, self._pass_deadline)

    def _pass_deadline(self) -> None:
        self._timer = self._timer_for = None
        if self._life.moving is not None:
            # The agent can send again when it is known where it continues.
            self._life.moving.add_done_callback(lambda _: self._pass_deadline())
        elif not self._is_over:
            self._advance()
            self._note_change()

    # ----- waiting

    def _note_change(self) -> None:
        self._keep_time()
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def _until(self, look: Callable[[], _T | None]) -> _T:
        """Waits for what `look` finds in the state of the conversation."""
        while True:
            self._life.check_not_stopping()
            found = look()
            if found is not None:
                return found
            if self._is_over:
                raise AgentStopped(self._life.name, "has ended this conversation")
            if self._changed is None or self._changed.done():
                self._changed = self._life.loop.create_future()
            # Several may wait for it.
            await asyncio.shield(self._changed)

    def _close(self) -> None:
        """Ends the conversation on this side. It remains only if its program wants late messages."""
        self._is_over = True
        if self.late is None:
            self.forget()
        elif self._queue is not None:
            self._life.mailbox.linger(self)
        self._note_change()

    def forget(self) -> None:
        """From now on late messages are counted and dropped."""
        if self._queue is not None:
            queue, self._queue = self._queue, None
            self._life.mailbox.close(self._number, self)
            queue.close()


class InitiatorConversation(Conversation):
    """The initiator's side of a conversation with one or several agents."""

    protocol: str
    """The name of the protocol, such as ``fipa-request``."""

    def __init__(self, life: Life, to: Others, timeout: float | None) -> None:
        super().__init__(life)
        self._to = to
        self._timeout = timeout
        self._machine: _sealbus.Initiator | None = None
        self.id = _sealbus.new_conversation_id()
        """The conversation-id."""
        self.refused: list[Message] = []
        """The refusals."""
        self.failed: list[Message] = []
        """The answers ``failure`` and ``not-understood``."""

    @property
    def _opened(self) -> _sealbus.Initiator:
        if self._machine is None:
            raise AgentStopped(self._life.name, "has not begun this conversation: use 'async with'")
        return self._machine

    @property
    def silent(self) -> list[AID]:
        """The agents that did not answer in time."""
        outcomes = ("timed-out", "unconfirmed")
        return [branch.agent for branch in self._opened.branches if branch.outcome in outcomes]

    @property
    def undelivered(self) -> list[AID]:
        """The agents to which the platform could not deliver the message, such as agents that do not exist."""
        return [branch.agent for branch in self._opened.branches if branch.outcome == "undeliverable"]

    async def _begin(self, opening: AclMessage, timeout: float | None, is_whole: bool = False) -> None:
        """Opens the conversation with this message, which must be answered within `timeout` seconds. With `is_whole`, the
        whole conversation ends at that time."""
        life = self._life
        participants = await agents_of(life, self._to)
        self._zero = life.clock.time() - life.clock.now()
        opening = self._reply_by(opening, timeout)
        self._machine, messages = _sealbus.Initiator.open(
            self.protocol, self.id, participants, opening, self._now()
        )
        self._open(life.handle.open_conversation(self.id, None))
        if is_whole:
            self.end_by(timeout)
        try:
            await self._send(messages, self._timeout)
        except BaseException:
            self._leave()
            raise

    async def _say(
        self,
        act: Performative,
        body: object = None,
        to: Iterable[AID] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Sends a further message to these agents, or to all with an open conversation."""
        message = self._reply_by(draft(act, body), timeout)
        agents = None if to is None else list(to)
        await self._send(self._opened.send(message, self._now(), agents), timeout)

    async def _send(self, messages: Iterable[AclMessage], patience: float | None) -> None:
        # The deadline reports agents that had no room.
        with suppress(AnswerNotTaken):
            await super()._send(messages, patience)

    def _tell(self, act: Performative, body: object = None, to: Iterable[AID] | None = None) -> None:
        """Like :meth:`_say`, without waiting."""
        agents = None if to is None else list(to)
        self._post(self._opened.send(draft(act, body), self._now(), agents))

    def end_by(self, timeout: float | None) -> None:
        """Ends the whole conversation after this time, even if answers are missing. The others are informed."""
        self._opened.end_by(NEVER if timeout is None else self._now() + round(timeout * 1000))
        self._keep_time()

    def _receive(self, message: Message) -> None:
        machine = self._opened
        meaning = self._judge(machine.receive(message, self._now()), message)
        if meaning is None or message.sender is None:
            return
        if meaning == "step":
            if message.performative == Performative.REFUSE:
                self.refused.append(message)
            elif message.performative in (Performative.FAILURE, Performative.NOT_UNDERSTOOD):
                self.failed.append(message)
        try:
            self._heard(meaning, message, message.sender)
        except ContentError as problem:
            self._not_understood(message, message.sender, problem)

    def _heard(self, meaning: str, message: Message, sender: AID) -> None:
        """Takes a message that the protocol allows."""

    def _not_understood(self, message: Message, sender: AID, problem: ContentError) -> None:
        """An answer whose body is not of the declared type ends the conversation with its sender."""
        self.failed.append(message)
        branch = self._opened.branch(sender)
        if branch is not None and branch.outcome is None:
            self._tell(Performative.NOT_UNDERSTOOD, reason_text(str(problem)), [branch.agent])

    def _lost(self, receiver: str) -> None:
        self._opened.undeliverable(receiver)

    def _deadline(self) -> int | None:
        return self._opened.deadline

    def _advance(self) -> None:
        self._post(self._opened.advance(self._now()))

    # ----- outcomes

    def _outcome(self, agent: AID) -> str | None:
        branch = self._opened.branch(agent)
        return None if branch is None else branch.outcome

    def _problem(self, agent: AID) -> ConversationError:
        """The reason why the ended conversation with this agent had no result."""
        outcome = self._outcome(agent) or "failed"
        if outcome in ("timed-out", "unconfirmed"):
            return ConversationTimeout(self._life.name, f"{agent} did not answer in time", outcome)
        if outcome == "undeliverable":
            return ConversationError(self._life.name, f"nothing can be delivered to {agent}", outcome)
        for message in reversed([*self.refused, *self.failed]):
            if message.sender == agent:
                said = message.content_text
                cause = f"{agent} answered {message.performative}" + (f": {said[:200]}" if said else "")
                return ConversationError(self._life.name, cause, outcome, message)
        return ConversationError(self._life.name, f"the conversation with {agent} has ended: {outcome}", outcome)

    def _leave(self) -> None:
        """Ends the conversation. Agents that wait or work are informed."""
        if self._queue is None or self._is_over:
            return
        with suppress(SealbusError):
            self._farewell()
        machine = self._opened
        machine.end_by(self._now())
        self._post(machine.advance(self._now()))
        self._close()

    def _farewell(self) -> None:
        """Sends the protocol's last messages."""

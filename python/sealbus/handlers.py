"""An agent's handlers: their choice for a message or an event, their calls, and the effect of their exceptions."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sealbus._sealbus import AclMessage, ChannelEvent, Filter, Message
from sealbus.body import declare
from sealbus.channel import ChannelSubscription, subscribe
from sealbus.conversation import reason_text
from sealbus.delegation import asked
from sealbus.errors import AgentStopped, AnswerNotTaken, ContentError, NegativeAnswer, SealbusError
from sealbus.mark import Listening, Supervise
from sealbus.performative import Performative
from sealbus.tasks import CANCEL_LIMIT, stray, watch

if TYPE_CHECKING:
    from sealbus._sealbus import Value
    from sealbus.life import Life

log = logging.getLogger("sealbus")

FINAL = (Performative.FAILURE, Performative.NOT_UNDERSTOOD, Performative.REFUSE)
"""Answers that end an exchange. An exception in a handler of one of them gets no answer, or two agents could go on for
ever."""

ANSWER_LIMIT = 5.0
"""Seconds that the answer to a question may wait for room. An answer to a message does not wait, so an agent that does not take
its mail holds nobody up."""

CUT_OFF = "it was cut off before it was done"

LEAVING = "X-Sealbus-Leaving"
"""The parameter of an answer that only says that the agent leaves. The platform may start the agent again."""

FAILED = "the agent failed at this; its log says why"
"""The answer to a message whose handler raised an exception. It omits the exception's text, which may not be meant for others. A
handler raises :class:`~sealbus.Failure` to give a reason."""


def farewell(life: Life) -> dict[str, Value]:
    """The mark of an answer about a cut-off handler, if the handler was cut off because the agent leaves."""
    return {LEAVING: "yes"} if life.is_stopping else {}


class Handler:
    """A method of one agent that is called with messages or events, and the calls in progress."""

    def __init__(self, attribute: str, supervise: Supervise, concurrency: int = 1, body: Any = None) -> None:
        self.attribute = attribute
        self.body = body
        self.supervise = supervise
        self.concurrency = concurrency
        self.running: set[asyncio.Task[None]] = set()

    @property
    def has_room(self) -> bool:
        """Whether the handler may handle one more message at the same time."""
        return len(self.running) < self.concurrency


class _Taker(Handler):
    """A handler that takes its messages out of the mailbox by itself, to handle several at once."""

    def __init__(self, handler: Handler, takes: Filter) -> None:
        super().__init__(handler.attribute, handler.supervise, handler.concurrency, handler.body)
        self.takes = takes
        self.leaves = ~takes


class _Listener:
    """A subscription whose events go to a handler."""

    def __init__(self, handler: Handler, subscription: ChannelSubscription) -> None:
        self.handler = handler
        self.subscription = subscription
        self.drained = asyncio.Event()


class Handlers:
    """The handlers of one agent."""

    def __init__(self, life: Life) -> None:
        self._life = life
        agent = life.agent
        self._rest = Handler("on_message", agent._supervise)
        self._in_turn: list[tuple[Filter, Handler]] = []
        self._takers: list[_Taker] = []
        self._listeners: list[_Listener] = []
        # Subscriptions with events for the agent's own task.
        self._ready: deque[_Listener] = deque()
        self._hearing: set[asyncio.Task[None]] = set()
        # For each message that a handler is handling, by its identity: whether it was answered.
        self._answered: dict[int, bool] = {}
        # Set while handlers that run side by side may begin with new messages.
        self._is_open = asyncio.Event()
        self.failures = 0
        """How many unexpected exceptions the agent's methods have raised."""
        earlier: Filter | None = None
        for attribute, mark in agent._marks:
            if not isinstance(mark.takes, Filter):
                continue
            handler = Handler(attribute, mark.supervise or agent._supervise, mark.concurrency, mark.body)
            if mark.concurrency > 1:
                own = mark.takes if earlier is None else mark.takes & ~earlier
                self._takers.append(_Taker(handler, own))
            else:
                self._in_turn.append((mark.takes, handler))
            earlier = mark.takes if earlier is None else earlier | mark.takes

    # ----- messages

    def awaited(self) -> list[Filter]:
        """The filters by which handlers take messages out of the mailbox themselves."""
        return [taker.takes for taker in self._takers]

    def open(self) -> None:
        """Lets handlers that run side by side begin with new messages."""
        self._is_open.set()
        self.pull()

    def pull(self) -> None:
        """Begins with the waiting messages for which handlers that run side by side have room."""
        if not self._takers or not self._is_open.is_set():
            return
        for taker in self._takers:
            # Take all of them before the first begins: a message that opens a conversation makes the conversation search the
            # rest of the mailbox.
            taken: list[Message] = []
            while len(taker.running) + len(taken) < taker.concurrency:
                message = self._life.mailbox.take([taker.leaves])
                if message is None:
                    break
                taken.append(message)
            for message in taken:
                self._begin(taker, message)

    async def handle(self, message: Message) -> None:
        """Gives a message to the first handler that describes it."""
        if message.performative is Performative.CANCEL and self._withdraw(message):
            return
        for takes, handler in self._in_turn:
            if takes.takes(message):
                await self._call(handler, message)
                return
        await self._call(self._rest, message)

    def _withdraw(self, cancel: Message) -> bool:
        """Ends a conversation that its initiator cancels while its opening still waits for room in the handler."""
        # No filter describes a sender without a platform. Levels without proofs admit such senders.
        if cancel.sender is None or cancel.sender.platform is None or cancel.conversation_id is None:
            return False
        name, theirs = str(cancel.conversation_id), Filter(sender=cancel.sender)
        for taker in self._takers:
            method = getattr(self._life.agent, taker.attribute)
            # Other handlers have no conversations.
            if not hasattr(method, "withdraw"):
                continue
            opening = self._life.handle.try_receive_named(name, taker.takes & theirs)
            if opening is not None:
                answer: AclMessage | None = method.withdraw(opening, cancel)
                if answer is not None:
                    with suppress(SealbusError):
                        self._life.handle.try_send(answer)
                return True
        return False

    # ----- events

    def listen(self) -> None:
        """Makes the subscriptions of the agent's marked handlers."""
        life = self._life
        for attribute, mark in life.agent._marks:
            if not isinstance(mark.takes, Listening):
                continue
            handler = Handler(attribute, mark.supervise or life.agent._supervise, mark.concurrency, mark.body)
            subscription = subscribe(life, mark.takes.pattern, **dict(mark.takes.options))
            listener = _Listener(handler, subscription)
            self._listeners.append(listener)
            hear = self._hear if handler.concurrency == 1 else self._hear_side_by_side
            task = life.loop.create_task(hear(listener))
            self._hearing.add(task)
            task.add_done_callback(self._hearing.discard)

    async def listed(self) -> None:
        """Waits until the platform knows that this program uses channels, if the agent has subscribed."""
        if self._listeners:
            await self._listeners[0].subscription.listed()

    @property
    def has_events(self) -> bool:
        """Whether there may be an event for :meth:`handle_event`."""
        return bool(self._ready)

    async def handle_event(self) -> None:
        """Gives the next event to its handler. The subscriptions take turns."""
        listener = self._ready.popleft()
        event = listener.subscription.try_next()
        if event is None:
            listener.drained.set()
            return
        self._ready.append(listener)
        self._life.turn -= 1
        failures = self.failures
        await self._call(listener.handler, event)
        if self.failures == failures:
            listener.subscription.settle()

    async def _hear(self, listener: _Listener) -> None:
        """Wakes the agent when there are events for a handler."""
        while await self._has_event(listener):
            listener.drained.clear()
            self._ready.append(listener)
            self._life.wake()
            await listener.drained.wait()

    async def _hear_side_by_side(self, listener: _Listener) -> None:
        """Begins with each event as soon as the handler has room for it."""
        handler = listener.handler
        while await self._has_event(listener):
            while True:
                await self._is_open.wait()
                if not handler.has_room:
                    await asyncio.wait(handler.running, return_when=asyncio.FIRST_COMPLETED)
                    continue
                event = listener.subscription.try_next()
                if event is None:
                    break
                self._begin(handler, event)

    async def _has_event(self, listener: _Listener) -> bool:
        ended = await listener.subscription.wait()
        if ended is None:
            return True
        log.warning("%s: %s has ended: %s", self._life.name, listener.subscription.pattern, ended)
        return False

    # ----- calling

    def _begin(self, handler: Handler, message: Message) -> None:
        """Calls a handler beside the agent's own task."""
        method: Callable[[Message], Awaitable[None]] = getattr(self._life.agent, handler.attribute)
        opens: Callable[[Message], Callable[[Message], Awaitable[None]]] | None = getattr(method, "open", None)
        if opens is not None:
            # Messages after this one belong to the conversation from now on.
            method = opens(message)
        task = self._life.loop.create_task(self._call(handler, message, method))
        handler.running.add(task)
        watch(self._life, task, handler.attribute)

        def ended(task: asyncio.Task[None]) -> None:
            handler.running.discard(task)
            self.pull()

        task.add_done_callback(ended)

    async def _call(
        self, handler: Handler, message: Message, method: Callable[[Message], Awaitable[None]] | None = None
    ) -> None:
        """Calls a handler. Nothing else calls one."""
        if method is None:
            method = getattr(self._life.agent, handler.attribute)
        # `on_behalf_of` does the same, but its context manager takes several times as long.
        token = asked.set(message._delegation())
        try:
            if self._life.tracing is None:
                await self._handle(handler, message, method, None)
            else:
                with self._life.tracing.handling(message) as failed:
                    await self._handle(handler, message, method, failed)
        finally:
            asked.reset(token)

    async def _handle(
        self,
        handler: Handler,
        message: Message,
        method: Callable[[Message], Awaitable[None]],
        failed: Callable[[Exception], None] | None,
    ) -> None:
        number = id(message)
        self._answered[number] = False
        try:
            if handler.body is not None:
                declare(message, handler.body)
            await method(message)
        except asyncio.CancelledError as cancelled:
            error = stray(self._life, cancelled)
            if error is not None:
                await self._deal_with(error, handler, message, failed)
                return
            reply = self._reply(message, Performative.FAILURE, CUT_OFF)
            if reply is not None and not _is_question(message):
                with suppress(SealbusError):
                    self._life.handle.try_send(reply)
            raise
        except Exception as raised:
            await self._deal_with(raised, handler, message, failed)
        finally:
            del self._answered[number]
            if isinstance(message, ChannelEvent) and _is_question(message):
                # This has no effect if the question was answered.
                message.decline()

    async def _deal_with(
        self, raised: Exception, handler: Handler, message: Message, failed: Callable[[Exception], None] | None
    ) -> None:
        if failed is not None:
            failed(raised)
        life = self._life
        name = handler.attribute
        if isinstance(raised, NegativeAnswer):
            log.debug("%s: %s answers %s: %s", life.name, name, raised.performative, raised.reason)
            await self._answer(message, raised.performative, raised.reason)
        elif isinstance(raised, AnswerNotTaken):
            # This is the asker's mistake, and the asker could fill the log with it.
            log.debug("%s: %s: %s", life.name, name, raised)
        elif isinstance(raised, AgentStopped) and life.is_stopping:
            await self._answer(message, Performative.FAILURE, CUT_OFF)
        elif isinstance(raised, ContentError):
            # This is the sender's mistake, not the agent's. If a type refused the body with an exception of its own, the
            # log has its traceback.
            self.failures += 1
            log.warning("%s: %s cannot read %r: %s", life.name, name, message, raised, exc_info=raised.__cause__)
            await self._answer(message, Performative.NOT_UNDERSTOOD, str(raised))
        else:
            await self._answer(message, Performative.FAILURE, FAILED)
            self.failed(f"{name} for {message!r}", raised, handler.supervise)

    def failed(self, where: str, raised: Exception, supervise: Supervise) -> None:
        """Logs and counts an exception of a method of the agent, and acts on it."""
        life = self._life
        self.failures += 1
        if supervise == "end":
            life.fail(where, raised)
            return
        log.error("%s: %s raised %s: %s", life.name, where, type(raised).__name__, raised, exc_info=raised)
        if supervise == "restart":
            life.restart(where, raised)

    # ----- answering

    def note_answer(self, message: AclMessage, performative: Performative | str) -> None:
        """Notes that a message was answered. An ``agree`` announces another answer."""
        number = id(message)
        if number in self._answered and performative != Performative.AGREE:
            self._answered[number] = True

    async def _answer(self, message: Message, performative: Performative, reason: str) -> None:
        """Answers a message or a question that has no answer yet."""
        try:
            reply = self._reply(message, performative, reason)
            if reply is None:
                return
            if isinstance(message, ChannelEvent):
                async with asyncio.timeout(ANSWER_LIMIT):
                    await self._life.answer(message, reply)
            else:
                self._life.handle.try_send(reply)
        except Exception as problem:
            log.warning("%s: cannot answer %r: %s", self._life.name, message, problem)

    def _reply(self, message: Message, performative: Performative, reason: str) -> AclMessage | None:
        if self._answered.get(id(message)) or message.performative in FINAL:
            return None
        if message.provenance == "platform" or not (message.sender or message.reply_to):
            return None
        if isinstance(message, ChannelEvent) and not _is_question(message):
            return None
        reply = message.create_reply(performative, reason_text(reason))
        # The reason is plain text, whatever the language of the message was.
        mark = farewell(self._life) if reason == CUT_OFF else {}
        return reply.replace(language=None, encoding=None, ontology=None, user_defined=reply.user_defined | mark)

    # ----- rest and end

    def _running(self) -> Iterator[asyncio.Task[None]]:
        for handler in [*self._takers, *(listener.handler for listener in self._listeners)]:
            yield from handler.running

    async def settle(self, timeout: float) -> None:
        """Begins no new work until :meth:`open`. Waits for the handlers that run side by side, and cancels those that take
        longer than `timeout` seconds."""
        self._is_open.clear()
        running = set(self._running())
        if not running:
            return
        _, late = await asyncio.wait(running, timeout=max(0.0, timeout))
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=CANCEL_LIMIT)

    def settle_events(self) -> None:
        """Acknowledges the events of the handlers as handled."""
        for listener in self._listeners:
            listener.subscription.settle()

    def close(self) -> None:
        """Ends the handlers' subscriptions."""
        for task in self._hearing:
            task.cancel()
        for listener in self._listeners:
            listener.subscription.cancel()


def _is_question(message: Message) -> bool:
    return isinstance(message, ChannelEvent) and message.mechanism == "request"

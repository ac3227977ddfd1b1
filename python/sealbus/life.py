"""One agent's life: its hooks one after the other, and who waits for which message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from sealbus._sealbus import (
    AID,
    AclMessage,
    AgentHandle,
    Conversation,
    Filter,
    Message,
    Unsent,
)
from sealbus.behaviour import Behaviours
from sealbus.channel import Channels
from sealbus.clock import Timer
from sealbus.directory import Ams, Df
from sealbus.errors import (
    AgentFailed,
    AgentStopped,
    ReceiveTimeout,
    RequestTimeout,
    Undeliverable,
)
from sealbus.handlers import Handlers
from sealbus.performative import Performative
from sealbus.restarts import RESTARTS, WITHIN, Restarts
from sealbus.tasks import Tasks

if TYPE_CHECKING:
    from sealbus.agent import Agent
    from sealbus.platform import Platform

log = logging.getLogger("sealbus")

HOOK_GRACE = 1.0
"""Seconds a hook may go on after its agent was asked to stop, before it is cancelled."""

TEARDOWN_LIMIT = 5.0
"""Seconds an agent has for its ``teardown``."""

MOVE_GRACE = 5.0
"""Seconds that handlers which run side by side have to end before their agent moves, before they are cancelled."""

TURN = 256
"""Messages an agent takes or sends without a pause before other work of the loop gets its turn."""


class Wakes(Protocol):
    """Somebody who waits for messages."""

    def wake(self) -> None:
        """There may be a message, or the agent is being stopped."""


class Receiver(Wakes, Protocol):
    """Somebody whom the messages that a filter takes belong to."""

    @property
    def filter(self) -> Filter | None:
        """The messages."""


class _Waiter:
    """Somebody who waits for a message that a filter takes."""

    __slots__ = ("filter", "future")

    def __init__(self, filter: Filter | None) -> None:
        self.filter = filter
        self.future: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Lets the one who waits look into the mailbox again."""
        if self.future is not None and not self.future.done():
            self.future.set_result(None)


class Life:
    """What the package knows of an agent that is on a platform."""

    def __init__(self, agent: Agent, handle: AgentHandle, platform: Platform) -> None:
        self.agent = agent
        self.handle = handle
        self.platform = platform
        self.df = Df(self)
        self.ams = Ams(self)
        self.turn = TURN
        """What is left of this agent's turn."""
        self.moving: asyncio.Future[None] | None = None
        """While the agent's state is handed over: done when it is known where the agent goes on."""
        self.failure: AgentFailed | None = None
        """What ended the agent, unless it left by its own or the platform's wish."""
        self.loop = platform.loop
        self.clock = platform.clock
        self._pump = platform.pump
        self._takes_messages = agent._takes_messages()
        self._waiters: list[Receiver] = []
        self._askers: set[Wakes] = set()
        """Those who have a conversation, whose messages come to them alone."""
        # Set while the agent is at rest: done when there is something to do.
        self._rest: asyncio.Future[None] | None = None
        self.tasks = Tasks(self)
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._grace_ends = 0.0
        self._leaving = False
        self._tearing_down = False
        self._freeze = False
        self._moved = False
        self.introduced = False
        """Whether something was put on a channel, so that the other processes with subscriptions are known."""
        self.handlers = Handlers(self)
        self.behaviours = Behaviours(self)
        self.channels = Channels(self)
        self._restarts = Restarts(self.clock)
        self._number = self._pump.listen(self._news)
        handle.set_hook(self._pump.native, self._number)

    @property
    def name(self) -> str:
        """The agent's full name, for errors."""
        return self.handle.aid.name

    # ----- receiving

    async def receive(self, filter: Filter | None, timeout: float | None) -> Message:
        """Waits for the next message that `filter` takes."""
        if self.turn <= 0:
            await self.pause()
        self.check_not_stopping()
        waiter = self._expect(filter)
        try:
            message = await self._wait(waiter, lambda: self._look_for(waiter), timeout)
        finally:
            self._waiters.remove(waiter)
        if message is None:
            wanted = "a message" if filter is None else str(filter)
            raise ReceiveTimeout(self.name, f"waited {timeout:g} s for {wanted} and nothing came")
        return message

    async def receive_many(self, most: int, timeout: float | None) -> list[Message]:
        """Waits until there is mail, then takes up to `most` messages."""
        if most < 1:
            raise ValueError(f"cannot receive {most} messages: ask for at least one")
        await self.pause()
        await self.settle()
        messages = self._take_many(most)
        if not messages:
            messages = [await self.receive(None, timeout)]
            messages += self._take_many(most - 1)
        return messages

    async def settle(self) -> None:
        """Waits until it is known where the agent goes on, if it is being moved."""
        if self.moving is not None:
            await asyncio.shield(self.moving)

    def _take_many(self, most: int) -> list[Message]:
        """Messages that are there and that nobody waits for."""
        if not self._waiters:
            return self.handle.try_receive_many(most)
        awaited = [waiter.filter for waiter in self._waiters]
        messages: list[Message] = []
        while len(messages) < most:
            message = self.handle.try_receive_except(awaited)
            if message is None:
                break
            messages.append(message)
        return messages

    async def request(self, request: AclMessage, timeout: float | None) -> Message:
        """Sends a message and waits for the reply to it."""
        await self.settle()
        request, replies = self.handle.open_request(request)
        deadline = None if timeout is None else self.clock.now() + timeout
        waiter = _Waiter(None)
        self._askers.add(waiter)
        number = self._pump.listen(waiter.wake)
        replies.set_hook(self._pump.native, number)
        try:
            unsent = self.handle.try_send(request)
            if unsent is not None:
                try:
                    async with self.clock.timeout(timeout):
                        await self.finish(unsent)
                except TimeoutError:
                    raise self._no_reply(request, timeout) from None
            while True:
                left = None if deadline is None else deadline - self.clock.now()
                message = await self._wait(waiter, replies.try_next, left)
                if message is None:
                    raise self._no_reply(request, timeout)
                lost = message.undelivered
                if lost is not None:
                    receiver, reason = lost
                    cause = f"the request was not delivered to {receiver}: {reason}"
                    raise Undeliverable(self.name, cause)
                if message.performative is not Performative.AGREE:
                    replies.answered()
                    return message
        finally:
            self._pump.ignore(number)
            self._askers.discard(waiter)
            replies.close()

    def _no_reply(self, request: AclMessage, timeout: float | None) -> RequestTimeout:
        asked = ", ".join(receiver.name for receiver in request.receivers)
        return RequestTimeout(self.name, f"{asked} did not reply within {timeout:g} s")

    def take_except(self, filters: list[Filter]) -> Message | None:
        """The first message that none of the filters takes, and that nobody waits for."""
        if self.moving is not None:
            return None
        return self.handle.try_receive_except([*filters, *(waiter.filter for waiter in self._waiters)])

    def is_awaited(self) -> bool:
        """Whether somebody waits for a message of this agent."""
        return bool(self._waiters)

    def _look_for(self, waiter: Receiver) -> Message | None:
        """A message for the waiter: one that nobody else asks for by a filter, if it has none itself."""
        if waiter.filter is None:
            awaited = [other.filter for other in self._waiters if other.filter is not None]
            if awaited:
                return self.handle.try_receive_except(awaited)
        return self.handle.try_receive(waiter.filter)

    def begin_conversation(self, conversation: Conversation, owner: Wakes) -> int:
        """Wakes the owner of a conversation when it has messages. The number ends it."""
        self._askers.add(owner)
        number = self._pump.listen(owner.wake)
        conversation.set_hook(self._pump.native, number)
        return number

    def end_conversation(self, number: int, owner: Wakes) -> None:
        """Ends :meth:`begin_conversation`."""
        self._askers.discard(owner)
        self._pump.ignore(number)

    def attend(self, receiver: Receiver) -> None:
        """From now on the receiver alone gets its messages, with :meth:`take`."""
        self._waiters.append(receiver)

    def ignore(self, receiver: Receiver) -> None:
        """Ends :meth:`attend`."""
        self._waiters.remove(receiver)

    def take(self, receiver: Receiver) -> Message | None:
        """The next message of the receiver, which is told of the one after the last."""
        return None if self.moving is not None else self._look_for(receiver)

    def check_not_stopping(self) -> None:
        """Raises AgentStopped if nothing will come any more."""
        if self._stopping and not self._tearing_down:
            raise AgentStopped(self.name, "is being stopped")

    def _expect(self, filter: Filter | None) -> _Waiter:
        waiter = _Waiter(filter)
        self._waiters.append(waiter)
        return waiter

    async def _wait(
        self, waiter: _Waiter, look: Callable[[], Message | None], timeout: float | None
    ) -> Message | None:
        """The message that `look` finds; None when the time is up."""
        expiry: Timer | None = None
        expired = False

        def expire() -> None:
            nonlocal expired
            expired = True
            waiter.wake()

        try:
            while True:
                await self.settle()
                # In vain, it makes the mailbox tell of the next message.
                message = look()
                if message is not None or expired:
                    return message
                self.check_not_stopping()
                if timeout is not None and expiry is None:
                    expiry = self.clock.call_later(timeout, expire)
                waiter.future = self.loop.create_future()
                await waiter.future
        finally:
            if expiry is not None:
                expiry.cancel()

    def _news(self) -> None:
        """Called by the pump when there is mail, or the platform wishes something of the agent."""
        if self.moving is not None:
            return
        wish = self.handle.wish()
        if wish == "stop":
            self._begin_to_stop()
        elif wish == "freeze":
            self._freeze = True
        for waiter in [*self._waiters]:
            if self.handle.has_mail(waiter.filter):
                waiter.wake()
        self.handlers.pull()
        self.wake()

    # ----- channels

    async def call(self, begin: Callable[..., None], *arguments: Any) -> Any:
        """Begins a native call and waits for its outcome."""
        return await self._pump.call(begin, *arguments)

    def wake(self) -> None:
        """Lets the agent's own task look for something to do."""
        if self._rest is not None and not self._rest.done():
            self._rest.set_result(None)

    # ----- sending

    async def finish(self, unsent: Unsent) -> None:
        """Goes on with a message that found no room, waiting for it."""
        await self._pump.call(self.handle.finish, unsent)

    async def send_persistent(
        self,
        message: AclMessage,
        expiry: int | None,
        valid_from: int | None,
        receipt: str | None,
    ) -> None:
        """Sends a message that is kept for its receivers; times in milliseconds since 1970."""
        await self.settle()
        await self._pump.call(self.handle.send_persistent, message, expiry, valid_from, receipt)

    async def send_many(self, messages: list[AclMessage]) -> None:
        """Sends all messages in their order."""
        sent = 0
        while sent < len(messages):
            await self.settle()
            sent, unsent = self.handle.try_send_many(messages, sent)
            if unsent is not None:
                await self.finish(unsent)
        await self.pause()

    async def pause(self) -> None:
        """Gives the loop's other work its turn."""
        self.turn = TURN
        await asyncio.sleep(0)

    # ----- living

    def begin(self) -> asyncio.Task[None]:
        """Starts the agent. It has subscribed to its handlers' channels when this returns."""
        try:
            self.handlers.listen()
        except Exception as raised:
            self._fail("a subscription of a handler", raised)
        self._task = self.loop.create_task(self._live(), name=f"agent {self.name}")
        return self._task

    async def start(self, agent: Agent) -> AID:
        """Starts another agent in this program."""
        await self.platform.start(agent)
        return agent.aid

    def stop(self) -> None:
        """Lets the agent leave when its hook has returned."""
        if not self._stopping:
            self._stopping = True
            self._grace_ends = self.clock.now() + HOOK_GRACE
        self.wake()

    @property
    def is_stopping(self) -> bool:
        """Whether the agent is about to leave."""
        return self._stopping

    def restart(self, where: str, raised: Exception) -> None:
        """Lets the agent begin anew when its hook has returned."""
        self._restarts.want(where, raised)
        self.wake()

    def fail(self, where: str, raised: BaseException) -> None:
        """Ends the agent because of what was raised."""
        self._fail(where, raised)
        self._begin_to_stop()

    def _begin_to_stop(self) -> None:
        """Lets the agent leave soon: what its hook waits for is cut off, now or after its grace."""
        if self._tearing_down:
            return
        self.stop()
        self._wake_waiters()
        if self._task is not None:
            self.clock.call_later(HOOK_GRACE, self._cancel_hook)

    def _wake_waiters(self) -> None:
        for waiter in [*self._waiters, *self._askers]:
            waiter.wake()

    def _cancel_hook(self) -> None:
        if self._task is not None and not self._leaving:
            self._task.cancel()

    def is_farewell(self, raised: BaseException) -> bool:
        """Whether something was raised for no other reason than that the agent is stopped."""
        return self._stopping and isinstance(raised, AgentStopped)

    def _fail(self, where: str, raised: BaseException) -> None:
        self.stop()
        if self.failure is None:
            failure = AgentFailed(self.name, f"{where} raised {type(raised).__name__}: {raised}")
            failure.__cause__ = raised
            self.failure = failure
            log.error("%s", failure)

    async def _live(self) -> None:
        where = "setup"
        try:
            state = self.handle.take_state()
            if self.failure is not None:
                return
            if state is None:
                await self.agent.setup()
            else:
                where = "restore"
                await self.agent.restore(state)
            self._open()
            while not self._stopping:
                if self._restarts.is_wanted:
                    where = "a restart"
                    await self._begin_anew()
                    continue
                if self._freeze:
                    where = "save"
                    await self._hand_over()
                    continue
                # Mail and events take turns.
                message = self._next_message()
                if message is not None:
                    await self.handlers.handle(message)
                if self.handlers.has_events and self.turn > 0 and not self._stopping:
                    await self.handlers.handle_event()
                elif message is None:
                    await self._until_news()
        except asyncio.CancelledError:
            if not self._stopping:
                # Not by us: the program itself is being cancelled.
                self._stopping = True
                raise
        except Exception as raised:
            if not self.is_farewell(raised):
                self._fail(where, raised)
        finally:
            await self._leave()

    def _open(self) -> None:
        """Lets what runs beside the hooks begin."""
        if not self._stopping:
            self.behaviours.open()
            self.handlers.open()

    async def _begin_anew(self) -> None:
        """Cancels what runs beside the hooks, and lets the agent tear down and set up."""
        once_too_often = self._restarts.begin()
        if once_too_often is not None:
            where, raised = once_too_often
            self._fail(f"{RESTARTS} restarts within {WITHIN:g} s did not help: {where}", raised)
            return
        await self.handlers.settle(0.0)
        await self.behaviours.end(0.0)
        await self.tasks.cancel(TEARDOWN_LIMIT)
        async with self.clock.timeout(TEARDOWN_LIMIT):
            await self.agent.teardown()
        await self.agent.setup()
        self._open()

    def _next_message(self) -> Message | None:
        """The next message for a hook: one that nobody waits for."""
        if not self._takes_messages or self.turn <= 0:
            return None
        self.turn -= 1
        taken = self.handlers.awaited()
        if not self._waiters and not taken:
            return self.handle.try_receive(None)
        return self.take_except(taken)

    async def _until_news(self) -> None:
        if self.turn <= 0:
            await self.pause()
            return
        self._rest = self.loop.create_future()
        try:
            await self._rest
        finally:
            self._rest = None

    async def _hand_over(self) -> None:
        """Gives the agent's state to the platform, which carries it to another node."""
        self._freeze = False
        try:
            begun = self.clock.now()
            await self.handlers.settle(MOVE_GRACE)
            await self.behaviours.settle(MOVE_GRACE - (self.clock.now() - begun))
            # The handlers have dealt with their events. A task that reads a subscription gets nothing more.
            self.handlers.settle_events()
            self.handle.come_to_rest()
            state = await self.agent.save()
        except asyncio.CancelledError:
            self.handle.decline_move("it is being stopped")
            raise
        except Exception as raised:
            log.error("%s: save raised, so the agent stays", self.name, exc_info=raised)
            self.handle.decline_move(f"save raised {type(raised).__name__}: {raised}")
            self._open()
            return
        self.moving = self.loop.create_future()
        try:
            if await self._pump.call(self.handle.hand_over, bytes(state)):
                self._moved = True
                self._stopping = True
        finally:
            self.moving.set_result(None)
            self.moving = None
        if not self._moved:
            # What came meanwhile.
            self._open()
            self._news()
            self._wake_waiters()

    async def _hear_failures(self) -> None:
        """In a process that the platform has given up: lets the agent hear of each message that may not have arrived."""
        if not self._takes_messages:
            return
        while (failure := self.handle.try_receive_failure()) is not None:
            await self.handlers.handle(failure)

    async def _leave(self) -> None:
        self._leaving = True
        try:
            # Handlers that wait for a message learn that none will come.
            self._wake_waiters()
            await self.handlers.settle(self._grace_ends - self.clock.now())
            await self.behaviours.end(self._grace_ends - self.clock.now())
            self._tearing_down = True
            await self.tasks.cancel(TEARDOWN_LIMIT)
            self.handlers.close()
            if not self._moved:
                async with self.clock.timeout(TEARDOWN_LIMIT):
                    await self._hear_failures()
                async with self.clock.timeout(TEARDOWN_LIMIT):
                    await self.agent.teardown()
        except Exception as raised:
            self._fail("teardown", raised)
        finally:
            self._tearing_down = False
            self.handlers.close()
            self._wake_waiters()
            self._pump.ignore(self._number)
            parting = "moved" if self._moved else "ended" if self.failure is None else "failed"
            self.handle.leave(parting, str(self.failure))

"""One agent's life: its hooks, one after the other."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from sealbus._sealbus import AID, AclMessage, AgentHandle, ChannelEvent, Message, Unsent
from sealbus.behaviour import Behaviours
from sealbus.channel import Channels
from sealbus.directory import Ams, Df
from sealbus.errors import AgentFailed, AgentStopped, AnswerNotTaken, SealbusError
from sealbus.handlers import Handlers
from sealbus.mailbox import Mailbox
from sealbus.restarts import RESTARTS, WITHIN, Restarts
from sealbus.tasks import Tasks, stray
from sealbus.tracing import TracedHandle, tracing_of

if TYPE_CHECKING:
    from sealbus.agent import Agent
    from sealbus.platform import Platform

log = logging.getLogger("sealbus")

HOOK_GRACE = 1.0
"""Seconds a hook may go on after its agent was asked to stop, before it is cancelled."""

TEARDOWN_LIMIT = 5.0
"""Seconds an agent has for its ``teardown``."""

MOVE_GRACE = 5.0
"""Seconds that handlers which run side by side have to end when their agent moves. Then they are cancelled."""

TURN = 0.0005
"""Seconds that an agent takes or sends messages without a pause, before other work of the loop gets its turn."""

ROW = 8
"""Messages an agent takes or sends before it looks at the clock."""

NO_FAILURES = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)
"""Exceptions that are for the program, whichever agent raised them."""

POSTED = 256
"""The most messages of an agent that wait for room without a waiting caller. Further ones are dropped, so an agent that does
not read its mail cannot make others hold more."""


class Life:
    """The package's side of an agent that is on a platform."""

    def __init__(self, agent: Agent, handle: AgentHandle, platform: Platform) -> None:
        self.agent = agent
        self.tracing = tracing_of(handle.aid.name)
        """The spans of this agent, if its program is traced."""
        self.handle = handle if self.tracing is None else cast(AgentHandle, TracedHandle(handle, self.tracing))
        self.platform = platform
        self.df = Df(self)
        self.ams = Ams(self)
        self.turn = ROW
        """Messages until this agent looks whether its turn is over."""
        self._turn_ends = 0.0
        self.moving: asyncio.Future[None] | None = None
        """While the agent's state is handed over: done when it is known where the agent continues."""
        self.failure: AgentFailed | None = None
        """The exception that ended the agent, unless it left by its own or the platform's wish."""
        self.loop = platform.loop
        self.clock = platform.clock
        self.pump = platform.pump
        self.takes_messages = agent._takes_messages()
        """Whether hooks get messages."""
        self.mailbox = Mailbox(self)
        # Set while the agent is idle: done when there is something to do.
        self._rest: asyncio.Future[None] | None = None
        self.tasks = Tasks(self)
        self._posted: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._grace_ends = 0.0
        self._leaving = False
        self._tearing_down = False
        self._freeze = False
        self._moved = False
        self._is_gone = False
        self.introduced = False
        """Whether the agent has put something on a channel, so that it knows the other processes with subscriptions."""
        self.handlers = Handlers(self)
        self.behaviours = Behaviours(self)
        self.channels = Channels(self)
        self._restarts = Restarts(self.clock)
        self._number = self.pump.listen(self._news)
        handle.set_hook(self.pump.native, self._number)

    @property
    def name(self) -> str:
        """The agent's full name, for errors."""
        return self.handle.aid.name

    async def settle(self) -> None:
        """If the agent is being moved, waits until its new place is known."""
        if self.moving is not None:
            await asyncio.shield(self.moving)
            if self._moved:
                raise AgentStopped(self.name, "has left the platform: it goes on at another node")

    def peer(self, name: str) -> AID:
        """The identifier of another agent: a local name stands for one of this platform."""
        return AID(name if "@" in name else f"{name}@{self.handle.platform}")

    def check_not_stopping(self) -> None:
        """Raises AgentStopped if no more messages will arrive."""
        if self._stopping and not self._tearing_down:
            raise AgentStopped(self.name, "is being stopped")

    def _news(self) -> None:
        """Called by the pump when there is mail, or an order of the platform for the agent."""
        if self.moving is not None:
            return
        wish = self.handle.wish()
        if wish == "stop":
            self._begin_to_stop()
        elif wish == "freeze":
            self._freeze = True
        self.look()

    @property
    def has_mailbox(self) -> bool:
        """Whether the agent can look into its mailbox: not while it is moved, and not after it has left."""
        return self.moving is None and not self._is_gone and not self.loop.is_closed()

    def look(self) -> None:
        """Lets all waiting readers look into the mailbox."""
        if self.has_mailbox:
            self.mailbox.hear()
            self.handlers.pull()
            self.wake()

    # ----- channels

    async def call(self, begin: Callable[..., None], *arguments: Any) -> Any:
        """Begins a native call and waits for its outcome."""
        return await self.pump.call(begin, *arguments)

    def wake(self) -> None:
        """Lets the agent's own task look for work."""
        if self._rest is not None and not self._rest.done():
            self._rest.set_result(None)

    # ----- sending

    async def send(self, message: AclMessage, is_answer: bool = False) -> None:
        """Sends a message, and waits for room; for an answer only a while."""
        # Pause first: a sender that is cancelled during the pause has sent nothing.
        if self.count_message():
            await self.pause()
        if self.moving is not None:
            await self.settle()
        unsent = self.handle.try_send(message)
        if unsent is not None:
            await self.finish(unsent, is_answer)

    def post(self, message: AclMessage) -> None:
        """Sends a message without a waiting caller. If a receiver has no room, the message waits beside the agent's other
        work."""
        unsent = self.handle.try_send(message)
        for rest in () if unsent is None else self.handle.try_each(unsent):
            if len(self._posted) >= POSTED:
                log.debug("%s: %r is dropped: a receiver has no room, and %d others wait for room", self.name, message, POSTED)
                return
            task = self.tasks.create(self._finish_posted(rest), "ignore")
            self._posted.add(task)
            task.add_done_callback(self._posted.discard)

    async def _finish_posted(self, unsent: Unsent) -> None:
        # This agent has not failed if a receiver has gone.
        with suppress(SealbusError):
            await self.finish(unsent)

    async def answer(self, question: ChannelEvent, reply: AclMessage) -> None:
        """Answers a question to everyone on a channel."""
        if self.tracing is None:
            await self.call(question.answer, reply)
            return
        with self.tracing.producing(reply, "answer", question.channel) as traced:
            await self.call(question.answer, traced)

    async def finish(self, unsent: Unsent, is_answer: bool = False, patience: float | None = None) -> None:
        """Waits for room for a message that found none; an answer waits only for a while, or `patience` seconds."""
        try:
            async with self.clock.timeout(patience):
                await self.pump.call(self.handle.finish, unsent, is_answer)
        except TimeoutError:
            raise AnswerNotTaken(self.name, f"an answer found no room for {patience:g} s") from None

    async def send_persistent(
        self,
        message: AclMessage,
        expiry: int | None,
        valid_from: int | None,
        receipt: str | None,
    ) -> None:
        """Sends a persistent message; times in milliseconds since 1970."""
        await self.settle()
        await self.pump.call(self.handle.send_persistent, message, expiry, valid_from, receipt)

    async def send_many(self, messages: list[AclMessage]) -> None:
        """Sends all messages in their order."""
        await self.pause()
        sent = 0
        while sent < len(messages):
            await self.settle()
            sent, unsent = self.handle.try_send_many(messages, sent)
            if unsent is not None:
                await self.finish(unsent)

    def count_message(self) -> bool:
        """Counts a message that the agent takes or sends. True if its turn is over, so that it has to :meth:`pause`."""
        self.turn -= 1
        return self.turn <= 0

    async def pause(self) -> None:
        """Gives the loop's other work its turn, if this agent's turn is over."""
        if time.monotonic() < self._turn_ends:
            self.turn = ROW
            return
        # The agent has more to do, so it is not idle.
        self.pump.news += 1
        await asyncio.sleep(0)
        self.begin_turn()

    def begin_turn(self) -> None:
        """Begins a new turn: the loop's other work had its turn."""
        self.turn = ROW
        self._turn_ends = time.monotonic() + TURN

    # ----- living

    def begin(self) -> asyncio.Task[None]:
        """Starts the agent. It has subscribed to its handlers' channels when this returns."""
        try:
            self.handlers.listen()
        except Exception as raised:
            self._fail("a subscription of a handler", raised)
        self._task = self.loop.create_task(self._live(), name=f"agent {self.name}")
        if self._stopping:
            # The agent was asked to leave before it began, when there was no hook to cut off.
            self._begin_to_stop()
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

    async def ended(self) -> None:
        """Waits until the agent has left."""
        if self._task is not None:
            await asyncio.wait([self._task])

    @property
    def is_stopping(self) -> bool:
        """Whether the agent is about to leave."""
        return self._stopping

    def restart(self, where: str, raised: Exception) -> None:
        """Lets the agent begin anew when its hook has returned."""
        self._restarts.want(where, raised)
        self.wake()

    def fail(self, where: str, raised: BaseException) -> None:
        """Ends the agent because of an exception."""
        self._fail(where, raised)
        self._begin_to_stop()

    def _begin_to_stop(self) -> None:
        """Makes the agent leave soon: waits in its hook are cut off, now or after its grace."""
        if self._tearing_down:
            return
        self.stop()
        self.mailbox.wake()
        if self._task is not None:
            self.clock.call_later(HOOK_GRACE, self._cancel_hook)

    def _cancel_hook(self) -> None:
        # While the agent is moved, no hook runs. If its move were cut off, the agent could live here and elsewhere.
        if self._task is not None and not self._leaving and self.moving is None:
            self._task.cancel()

    def is_farewell(self, raised: BaseException) -> bool:
        """Whether the exception was raised only because the agent is being stopped."""
        return self._stopping and isinstance(raised, AgentStopped)

    def _fail(self, where: str, raised: BaseException) -> None:
        self.stop()
        if self.failure is None:
            failure = AgentFailed(self.name, f"{where} raised {type(raised).__name__}: {raised}")
            failure.__cause__ = raised
            self.failure = failure
            log.error("%s", failure, exc_info=raised)

    async def _live(self) -> None:
        where = "setup"
        try:
            state = self.handle.take_state()
            if self.failure is not None:
                return
            await self.handlers.listed()
            if state is None:
                await self.agent.setup()
            else:
                where = "restore"
                await self.agent.restore(state)
            where = "a hook"
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
        except asyncio.CancelledError as cancelled:
            error = stray(self, cancelled)
            if error is not None:
                self._fail(where, error)
            elif not self._stopping:
                # The agent did not do this: the program itself is being cancelled.
                self._stopping = True
                raise
        except NO_FAILURES:
            raise
        except BaseException as raised:
            # This includes a panic of the native half: otherwise the agent would leave silently.
            if not self.is_farewell(raised):
                self._fail(where, raised)
        finally:
            await self._leave()

    def _open(self) -> None:
        """Begins the work beside the hooks."""
        if not self._stopping:
            self.behaviours.open()
            self.handlers.open()

    async def _begin_anew(self) -> None:
        """Cancels the work beside the hooks, and lets the agent tear down and set up."""
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
        """The next message for a hook: one for which no other reader waits."""
        if not self.takes_messages or self.turn <= 0:
            return None
        self.turn -= 1
        return self.mailbox.take(self.handlers.awaited())

    async def _until_news(self) -> None:
        if self.turn <= 0:
            await self.pause()
            return
        self._rest = self.loop.create_future()
        try:
            await self._rest
            self.begin_turn()
        finally:
            self._rest = None

    async def _hand_over(self) -> None:
        """Gives the agent's state to the platform, which carries it to another node."""
        self._freeze = False
        try:
            begun = self.clock.now()
            await self.handlers.settle(MOVE_GRACE)
            await self.behaviours.settle(MOVE_GRACE - (self.clock.now() - begun))
            # The handlers are done with their events. A task that reads a subscription gets no more.
            self.handlers.settle_events()
            self.handle.come_to_rest()
            # Anything but bytes raises here, so that the agent stays.
            state = bytes(memoryview(await self.agent.save()))
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
            if await self.pump.call(self.handle.hand_over, state):
                self._moved = True
                self._stopping = True
        finally:
            self.moving.set_result(None)
            self.moving = None
        if not self._moved:
            # Deal with messages and news that came meanwhile.
            self._open()
            self._news()
            self.mailbox.wake()

    async def _hear_failures(self) -> None:
        """In a process that the platform has given up, passes the agent a failure for each message that may not have
        arrived."""
        if not self.takes_messages:
            return
        while (failure := self.handle.try_receive_failure()) is not None:
            await self.handlers.handle(failure)

    async def _leave(self) -> None:
        self._leaving = True
        try:
            # This tells handlers that wait for a message that none will come.
            self.mailbox.wake()
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
                if self.handle.has_undelivered():
                    await self.call(self.handle.delivered, TEARDOWN_LIMIT)
        except NO_FAILURES:
            raise
        except BaseException as raised:
            self._fail("teardown", raised)
        finally:
            self._tearing_down = False
            self.handlers.close()
            self.mailbox.wake()
            parting = "moved" if self._moved else "ended" if self.failure is None else "failed"
            self._go(parting)

    def _go(self, parting: str) -> None:
        self._is_gone = True
        self.mailbox.forget()
        self.pump.ignore(self._number)
        self.handle.leave(parting, str(self.failure))

    def abandon(self) -> None:
        """Leaves before the agent has begun. The agent may be put on a platform again."""
        self._go("ended")
        if self.agent._life is self:
            self.agent._life = None

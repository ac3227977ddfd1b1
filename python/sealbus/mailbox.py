"""An agent's mailbox: the waiting tasks and their messages."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from sealbus._sealbus import AclMessage, Conversation, Filter, Message, OpenRequest
from sealbus.clock import Timer
from sealbus.errors import ReceiveTimeout, RequestTimeout, Undeliverable
from sealbus.performative import Performative

if TYPE_CHECKING:
    from sealbus.life import Life


LINGERING = 256
"""The number of ended conversations, the latest ones, whose late messages an agent gets."""


class Wakes(Protocol):
    """A waiter for messages."""

    def wake(self) -> None:
        """Called when there may be a message, or the agent is being stopped."""


class Lingers(Protocol):
    """A conversation that has ended and still takes messages."""

    def forget(self) -> None:
        """Stops taking late messages."""


class _Waiter:
    """A waiter for a message that a filter takes."""

    __slots__ = ("filter", "future", "has_waited")

    def __init__(self, filter: Filter | None) -> None:
        self.filter = filter
        self.future: asyncio.Future[None] | None = None
        # Whether other readers may have passed over a message for this waiter.
        self.has_waited = False

    def wake(self) -> None:
        """Lets the waiter look into the mailbox again."""
        if self.future is not None and not self.future.done():
            self.future.set_result(None)


class Mailbox:
    """The messages that an agent receives, and the hooks and tasks that get them."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._handle = life.handle
        # The tasks that wait for messages, and the readers for which messages are reserved.
        self._waiters: list[_Waiter] = []
        # The owners of conversations. The messages of a conversation go only to its owner.
        self._owners: set[Wakes] = set()
        self._lingering: deque[Lingers] = deque()

    async def receive(self, filter: Filter | None, timeout: float | None) -> Message:
        """Waits for the next message that `filter` takes."""
        if self._life.turn <= 0:
            await self._life.pause()
        self._life.turn -= 1
        self._life.check_not_stopping()
        waiter = _Waiter(filter)
        self._waiters.append(waiter)
        try:
            message = await self._wait(waiter, lambda: self._look_for(waiter), timeout)
        finally:
            self._waiters.remove(waiter)
            if waiter.has_waited:
                self._pass_on()
        if message is None:
            wanted = "a message" if filter is None else str(filter)
            raise ReceiveTimeout(self._life.name, f"waited {timeout:g} s for {wanted} and nothing came")
        return message

    def _pass_on(self) -> None:
        """Lets others look into the mailbox after a waiter has stopped waiting: they had to leave its messages."""
        life = self._life
        if (self._waiters or life.takes_messages) and life.has_mailbox and self._handle.has_mail(None):
            life.loop.call_soon(life.look)

    async def receive_many(self, most: int, timeout: float | None) -> list[Message]:
        """Waits until there is mail, then takes up to `most` messages."""
        if most < 1:
            raise ValueError(f"cannot receive {most} messages: ask for at least one")
        await self._life.pause()
        await self._life.settle()
        self._life.check_not_stopping()
        messages = self._take_many(most)
        if not messages:
            messages = [await self.receive(None, timeout)]
            messages += self._take_many(most - 1)
        return messages

    def _take_many(self, most: int) -> list[Message]:
        """Messages in the mailbox for which no other reader waits."""
        if not self._waiters:
            return self._handle.try_receive_many(most)
        awaited = [waiter.filter for waiter in self._waiters]
        messages: list[Message] = []
        while len(messages) < most:
            message = self._handle.try_receive_except(awaited)
            if message is None:
                break
            messages.append(message)
        return messages

    async def request(self, request: AclMessage, timeout: float | None) -> Message:
        """Sends a message and waits for the reply to it."""
        life = self._life
        if life.moving is not None:
            await life.settle()
        request, replies = self._handle.open_request(request)
        deadline = None if timeout is None else life.clock.now() + timeout
        waiter = _Waiter(None)
        number = self.open(replies, waiter)
        try:
            unsent = life.handle.try_send(request)
            if unsent is not None:
                try:
                    async with life.clock.timeout(timeout):
                        await life.finish(unsent)
                except TimeoutError:
                    raise self._no_reply(request, timeout) from None
            while True:
                left = None if deadline is None else deadline - life.clock.now()
                message = await self._wait(waiter, replies.try_next, left)
                if message is None:
                    raise self._no_reply(request, timeout)
                lost = message.undelivered
                if lost is not None:
                    receiver, reason = lost
                    cause = f"the request was not delivered to {receiver}: {reason}"
                    raise Undeliverable(life.name, cause)
                if message.performative is not Performative.AGREE:
                    replies.answered()
                    return message
        finally:
            self.close(number, waiter)
            replies.close()

    def _no_reply(self, request: AclMessage, timeout: float | None) -> RequestTimeout:
        asked = ", ".join(receiver.name for receiver in request.receivers)
        return RequestTimeout(self._life.name, f"{asked} did not reply within {timeout:g} s")

    def take(self, filters: list[Filter]) -> Message | None:
        """The first message that none of the filters takes, and for which no other reader waits."""
        if self._life.moving is not None:
            return None
        if not filters and not self._waiters:
            return self._handle.try_receive(None)
        return self._handle.try_receive_except([*filters, *(waiter.filter for waiter in self._waiters)])

    def reserve(self, filter: Filter) -> Callable[[], None]:
        """Leaves the messages that `filter` takes to a reader that also does other work, and asks for them by this filter.
        Returns the function that ends this."""
        reader = _Waiter(filter)
        self._waiters.append(reader)

        def give_back() -> None:
            self._waiters.remove(reader)
            # Others had to leave its messages.
            self._pass_on()

        return give_back

    def is_awaited(self) -> bool:
        """Whether a reader waits for a message of this agent, or has reserved some."""
        return bool(self._waiters)

    def _look_for(self, waiter: _Waiter) -> Message | None:
        """A message for the waiter. A waiter without a filter gets one that no other waiter's filter takes."""
        if waiter.filter is None:
            awaited = [other.filter for other in self._waiters if other.filter is not None]
            if awaited:
                return self._handle.try_receive_except(awaited)
        return self._handle.try_receive(waiter.filter)

    def open(self, conversation: Conversation | OpenRequest, owner: Wakes) -> int:
        """Wakes the owner of a conversation when it has messages. Returns the number for :meth:`close`."""
        self._owners.add(owner)
        number = self._life.pump.listen(owner.wake)
        conversation.set_hook(self._life.pump.native, number)
        return number

    def close(self, number: int, owner: Wakes) -> None:
        """Ends :meth:`open`."""
        self._owners.discard(owner)
        self._life.pump.ignore(number)

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
                if self._life.moving is not None:
                    waiter.has_waited = True
                    await self._life.settle()
                # If there is no message, this makes the mailbox report the next one.
                message = look()
                if message is not None or expired:
                    return message
                self._life.check_not_stopping()
                if timeout is not None and expiry is None:
                    expiry = self._life.clock.call_later(timeout, expire)
                waiter.has_waited = True
                waiter.future = self._life.loop.create_future()
                await waiter.future
                self._life.begin_turn()
        finally:
            if expiry is not None:
                expiry.cancel()

    def linger(self, conversation: Lingers) -> None:
        """Keeps an ended conversation that wants late messages, until too many others have ended."""
        self._lingering.append(conversation)
        if len(self._lingering) > LINGERING:
            self._lingering.popleft().forget()

    def forget(self) -> None:
        """Forgets the lingering conversations: their agent has left, and they would keep it in memory."""
        while self._lingering:
            self._lingering.popleft().forget()

    def hear(self) -> None:
        """Wakes the waiters whose messages have arrived."""
        for waiter in [*self._waiters]:
            # A reader that only has messages reserved does not wait.
            if waiter.future is not None and self._handle.has_mail(waiter.filter):
                waiter.wake()

    def wake(self) -> None:
        """Wakes all waiters, for example when the agent is being stopped."""
        for waiter in [*self._waiters, *self._owners]:
            waiter.wake()

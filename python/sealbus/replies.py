"""The answers to a question to everyone on a channel."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from sealbus._sealbus import AclMessage, ChannelEvent, ChannelHandle, RepliesHandle
from sealbus.conversation import value_of

if TYPE_CHECKING:
    from sealbus.life import Life

__all__ = ["Replies"]


class Replies:
    """The answers to a request, from :meth:`sealbus.Channel.request`: an asynchronous iterator."""

    def __init__(
        self,
        life: Life,
        channel: ChannelHandle,
        message: AclMessage,
        timeout: float,
        first: int | None,
        qos: str,
    ) -> None:
        self._life = life
        self._channel = channel
        self._question = (message, timeout, first, qos)
        self._handle: RepliesHandle | None = None
        self._turn = asyncio.Lock()
        # The task for the next answer. It continues when nobody waits for it any more.
        self._coming: asyncio.Task[ChannelEvent | Exception | None] | None = None
        # Answers that a cancelled `all` has given back.
        self._given_back: deque[ChannelEvent] = deque()
        self._is_over = False
        self.missing: list[str] = []
        """Once the answers have ended: the agents that were asked and gave none, because they declined, are gone or
        took too long."""

    def __aiter__(self) -> AsyncIterator[ChannelEvent]:
        return self

    async def __anext__(self) -> ChannelEvent:
        reply = await self.next()
        if reply is None:
            raise StopAsyncIteration
        return reply

    async def next(self) -> ChannelEvent | None:
        """Waits for the next answer; None when all agents have answered, enough have, or the time is up.

        A cancelled wait loses no answer, and does not repeat the question.
        """
        async with self._turn:
            if self._given_back:
                return self._given_back.popleft()
            if self._is_over:
                return None
            if self._coming is None:
                self._coming = self._life.loop.create_task(self._find())
            found = await asyncio.shield(self._coming)
            self._coming = None
            return value_of(found)

    async def _find(self) -> ChannelEvent | Exception | None:
        """The next answer, or the reason why there is none."""
        life = self._life
        try:
            if self._handle is None:
                await life.settle()
                self._handle = await life.call(self._channel.request, *self._question)
            reply: ChannelEvent | None = await life.call(self._handle.next)
            if reply is None:
                self.missing = await life.call(self._handle.missing)
                self._is_over = True
            return reply
        except Exception as raised:
            return raised

    async def all(self) -> list[ChannelEvent]:
        """Waits until the request is over, and returns the answers that were not taken yet. A cancelled wait loses none."""
        replies: list[ChannelEvent] = []
        try:
            while (reply := await self.next()) is not None:
                replies.append(reply)
        except BaseException:
            self._given_back.extendleft(reversed(replies))
            raise
        return replies

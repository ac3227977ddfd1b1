"""The messages that wait for one behaviour."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress

from sealbus.clock import Clock
from sealbus.spade.message import Message

log = logging.getLogger("spade.behaviour")

MOST_MESSAGES = 1024
"""The most messages that wait for a behaviour. Then its agent takes no more."""

MOST_CHARACTERS = 16 << 20
"""The most characters of their bodies. Then its agent takes no more."""

PATIENCE = 10.0
"""Seconds that the agent waits for room. A behaviour that takes no message for so long then loses its oldest messages."""


class Inbox:
    """A behaviour's messages.

    SPADE gives each message to every behaviour whose template takes it, and many behaviours never read. When the inbox of such
    a behaviour is full, it forgets the oldest message. When the inbox of a reading behaviour is full, it holds back the agent,
    and thus the senders.
    """

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._characters = 0
        self._is_read = False
        self.is_waiting = False
        """Whether the behaviour does nothing but wait, for a message or for its time."""
        self._has_news = asyncio.Event()
        self._has_room = asyncio.Event()

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def is_full(self) -> bool:
        """Whether there is no room for a further message."""
        return len(self._messages) >= MOST_MESSAGES or self._characters >= MOST_CHARACTERS

    def put(self, message: Message) -> None:
        """Adds a message."""
        self._messages.append(message)
        self._characters += len(message.body or "")
        self._has_news.set()
        while not self._is_read and len(self._messages) > 1 and self.is_full:
            self._pop()

    async def room(self, clock: Clock, owner: str) -> None:
        """Waits until there is room, as long as the behaviour reads."""
        while self.is_full and self._is_read:
            self._has_room.clear()
            try:
                async with clock.timeout(PATIENCE):
                    await self._has_room.wait()
            except TimeoutError:
                self._is_read = False
                log.warning("%s has read nothing for %g s: its oldest messages give way to new ones", owner, PATIENCE)

    def take(self) -> Message | None:
        """The next message, if there is one."""
        self._is_read = True
        return self._pop() if self._messages else None

    async def next(self, clock: Clock, timeout: float) -> Message | None:
        """The next message; None if there is none within so many seconds."""
        message = self.take()
        if message is None:
            with suppress(TimeoutError):
                async with clock.timeout(timeout):
                    while message is None:
                        self._has_news.clear()
                        await self._has_news.wait()
                        message = self.take()
        return message

    def _pop(self) -> Message:
        message = self._messages.popleft()
        self._characters -= len(message.body or "")
        self._has_room.set()
        return message

"""The last messages of an agent."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from datetime import datetime
from itertools import islice

from sealbus.spade.jid import JID
from sealbus.spade.message import Message

Event = tuple[datetime, Message, str | None]
"""When a message was sent or received, and the behaviour that did it."""

MOST_CHARACTERS = 4 << 20
"""Characters of the bodies that are kept."""


class TraceStore:
    """The newest messages that an agent has sent and received."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.store: deque[Event] = deque()
        self._characters = 0

    def reset(self) -> None:
        """Forgets all."""
        self.store.clear()
        self._characters = 0

    def append(self, event: Message, category: str | None = None) -> None:
        """Adds a message."""
        self.store.appendleft((datetime.now(), event, category))
        self._characters += len(event.body or "")
        while len(self.store) > self.size or (self._characters > MOST_CHARACTERS and len(self.store) > 1):
            self._characters -= len(self.store.pop()[1].body or "")

    def len(self) -> int:
        """The number of messages."""
        return len(self.store)

    def all(self, limit: int | None = None) -> list[Event]:
        """The newest messages, the oldest first."""
        return _oldest_first(self.store, limit)

    def received(self, limit: int | None = None) -> list[Event]:
        """The newest received messages, the oldest first."""
        return _oldest_first((event for event in self.store if not event[1].sent), limit)

    def filter(self, limit: int | None = None, to: str | None = None, category: str | None = None) -> list[Event]:
        """The newest messages from or to an agent, or of a behaviour, the oldest first."""
        agent = None if to is None else JID(to).bare
        chosen = (
            event
            for event in self.store
            if (agent is None or agent in (event[1].to.bare, event[1].sender.bare)) and category in (None, event[2])
        )
        return _oldest_first(chosen, limit)


def _oldest_first(events: Iterable[Event], limit: int | None) -> list[Event]:
    return list(islice(events, limit))[::-1]

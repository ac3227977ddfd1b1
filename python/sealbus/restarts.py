"""The limit of an agent's restarts."""

from __future__ import annotations

from collections import deque

from sealbus.clock import Clock

RESTARTS = 5
"""The restarts of an agent within :data:`WITHIN` seconds; one more ends it."""

WITHIN = 60.0
"""See :data:`RESTARTS`."""


class Restarts:
    """The restarts of one agent."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._latest: deque[float] = deque(maxlen=RESTARTS)
        self._wanted: tuple[str, Exception] | None = None

    def want(self, where: str, raised: Exception) -> None:
        """Asks for a restart, because of an exception."""
        self._wanted = where, raised

    @property
    def is_wanted(self) -> bool:
        """Whether the agent shall begin anew."""
        return self._wanted is not None

    def begin(self) -> tuple[str, Exception] | None:
        """Begins a restart, or returns the cause if there were too many."""
        wanted, self._wanted = self._wanted, None
        now = self._clock.now()
        if len(self._latest) == RESTARTS and now - self._latest[0] < WITHIN:
            return wanted
        self._latest.append(now)
        return None

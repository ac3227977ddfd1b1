"""Conversations that last as long as an ``async with`` block."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sealbus._sealbus import Message
from sealbus.body import declare
from sealbus.conversation import InitiatorConversation, draft
from sealbus.directory import Others
from sealbus.errors import BodyError
from sealbus.performative import Performative

if TYPE_CHECKING:
    from sealbus.life import Life

log = logging.getLogger("sealbus")


class Block(InitiatorConversation):
    """A conversation that begins with an act and lasts as long as a block."""

    _is_whole = False
    """Whether the time limits the whole conversation, not only the first answer, which may be `agree`."""

    def __init__(
        self, life: Life, act: Performative, body: object, to: Others, reply: Any, timeout: float | None
    ) -> None:
        super().__init__(life, to, timeout)
        self._opening = draft(act, body)
        self._reply = reply

    def _declare(self, message: Message, kind: Any = None) -> None:
        """Declares the body of the message as this type, or as the requested one."""
        kind = self._reply if kind is None else kind
        if kind is None:
            return
        try:
            declare(message, kind)
        except BodyError as problem:
            # If the type has refused the body with an exception of its own, log that.
            if problem.__cause__ is not None:
                log.warning("%s: cannot read the body of %r", self._life.name, message, exc_info=problem.__cause__)
            raise

    async def _start(self) -> None:
        """Opens the conversation, and waits for the condition with which the block begins."""
        await self._begin(self._opening, self._timeout, self._is_whole)

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave()

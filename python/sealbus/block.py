"""Conversations that last as long as an ``async with`` block."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sealbus._sealbus import Message
from sealbus.body import declare
from sealbus.conversation import InitiatorConversation, Others, draft
from sealbus.performative import Performative

if TYPE_CHECKING:
    from sealbus.life import Life


class Block(InitiatorConversation):
    """A conversation that begins with an act and lasts as long as a block."""

    def __init__(
        self, life: Life, act: Performative, body: object, to: Others, reply: Any, timeout: float | None
    ) -> None:
        super().__init__(life, to, timeout)
        self._opening = draft(act, body)
        self._reply = reply

    def _declare(self, message: Message) -> None:
        """Makes the message's body one of the type that was asked for."""
        if self._reply is not None:
            declare(message, self._reply)

    async def _start(self) -> None:
        """Opens the conversation, and waits for what the block begins with."""
        await self._begin(self._opening, self._timeout)

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

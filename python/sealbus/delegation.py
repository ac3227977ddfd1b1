"""Requests on behalf of others: a message that an agent sends while it handles another one names the agents that asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sealbus._sealbus import Delegation, Message

asked: ContextVar[Delegation | None] = ContextVar("sealbus.delegation.asked", default=None)
"""The agents that asked for the present work."""


@contextmanager
def on_behalf_of(message: Message | None) -> Iterator[None]:
    """In this block an agent sends on behalf of the sender of `message`, and of the agents for whom that sender asked.

    Handlers need no such block: they work on behalf of the sender whose message they handle. An agent that receives a request
    in another way enters a block. With ``None`` it acts on nobody's behalf::

        request = await self.receive(Filter(performative="request"))
        with on_behalf_of(request):
            answer = await self.request(AclMessage("request", "store", "three boxes"))
    """
    token = asked.set(None if message is None else message._delegation())
    try:
        yield
    finally:
        asked.reset(token)

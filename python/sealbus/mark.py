"""Marks that decorators leave on an agent's methods, and the decorator of handlers of messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from sealbus._sealbus import AID, Filter
from sealbus.performative import Performative

_Method = TypeVar("_Method", bound=Callable[..., Any])
_Handler = TypeVar("_Handler", bound=Callable[..., Awaitable[None]])

MARKS = "__sealbus_marks__"
"""The attribute that holds a method's marks."""

Supervise = Literal["ignore", "restart", "end"]
"""The effect of an exception in a method of an agent, besides the answer and the log: nothing (``ignore``), the agent begins
anew with ``teardown`` and ``setup`` (``restart``), or it ends (``end``)."""


@dataclass(frozen=True)
class Listening:
    """A subscription that an agent makes for one of its methods."""

    pattern: str
    options: tuple[tuple[str, Any], ...]


class Schedule:
    """When a method of an agent runs by itself; see :mod:`sealbus.behaviour`."""


@dataclass(frozen=True)
class Mark:
    """When and how a method of an agent is called."""

    takes: Filter | Listening | Schedule
    concurrency: int = 1
    supervise: Supervise | None = None
    body: Any = None
    """The type of the bodies, if it is declared."""

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ValueError(f"a handler cannot run {self.concurrency} times at once: concurrency is at least 1")
        if self.supervise is not None:
            check(self.supervise)

    def __call__(self, method: _Method) -> _Method:
        """Marks a method. Several marks of one method all count, in the order in which they are written."""
        setattr(method, MARKS, (self, *getattr(method, MARKS, ())))
        return method


def on(
    performative: Performative | str | None = None,
    *,
    sender: AID | str | None = None,
    conversation_id: str | None = None,
    in_reply_to: str | None = None,
    protocol: str | None = None,
    ontology: str | None = None,
    language: str | None = None,
    concurrency: int = 1,
    supervise: Supervise | None = None,
    body: Any = None,
) -> Callable[[_Handler], _Handler]:
    """Marks a method of an agent as the handler of the messages described.

    Handlers are tried in their order in the class. The first whose description matches gets the message; messages that match
    none go to :meth:`~sealbus.Agent.on_message`::

        class Seller(Agent):
            @on(Performative.CFP, protocol="fipa-contract-net")
            async def offer(self, message: Message) -> None:
                await self.reply(message, Performative.PROPOSE, "12 EUR")

    With a `body` the method gets only messages whose :attr:`~sealbus.Message.body` is of this type; any other is answered with
    ``not-understood`` and the place of the mistake::

            @on(Performative.REQUEST, body=Task)
            async def work(self, message: Message[Task]) -> None:
                await self.reply(message, Performative.INFORM, Result(message.body.hours * 50))

    With a `concurrency` of more than one, that many messages are handled side by side, and beside the other hooks; further ones
    wait in the mailbox. `supervise` sets the effect of an exception, see :class:`~sealbus.Agent`. A method with several marks
    handles messages that any of them describes.
    """
    described = Filter(
        performative=performative,
        sender=sender,
        conversation_id=conversation_id,
        in_reply_to=in_reply_to,
        protocol=protocol,
        ontology=ontology,
        language=language,
    )
    return Mark(described, concurrency, supervise, body)


def check(supervise: str) -> None:
    """Raises ValueError if this is not a way to supervise."""
    if supervise not in ("ignore", "restart", "end"):
        raise ValueError(f"there is no supervise='{supervise}': it is 'ignore', 'restart' or 'end'")


def marks_of(cls: type) -> dict[str, tuple[Mark, ...]]:
    """The marked methods of a class and its bases, by name. A method that overrides a marked one, and has no mark of its own,
    keeps the marks."""
    marked: dict[str, tuple[Mark, ...]] = {}
    for base in reversed(cls.__mro__):
        for attribute, value in vars(base).items():
            marks = getattr(value, MARKS, None)
            if isinstance(marks, tuple):
                marked.pop(attribute, None)
                marked[attribute] = marks
    return marked

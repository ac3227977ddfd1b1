"""SPADE's templates: which messages a behaviour takes."""

from __future__ import annotations

from abc import ABC, abstractmethod

from sealbus.spade.message import MessageBase

__all__ = ["ANDTemplate", "BaseTemplate", "NOTTemplate", "ORTemplate", "Template", "XORTemplate"]


class BaseTemplate(ABC):
    """A condition on messages. Conditions are joined with ``&``, ``|``, ``^`` and ``~``."""

    @abstractmethod
    def match(self, message: MessageBase) -> bool:
        """Whether it takes this message."""

    def __and__(self, other: BaseTemplate) -> BaseTemplate:
        return ANDTemplate(self, other)

    def __or__(self, other: BaseTemplate) -> BaseTemplate:
        return ORTemplate(self, other)

    def __xor__(self, other: BaseTemplate) -> BaseTemplate:
        return XORTemplate(self, other)

    def __invert__(self) -> BaseTemplate:
        return NOTTemplate(self)


class NOTTemplate(BaseTemplate):
    """Takes the messages that another template does not take."""

    def __init__(self, expr: BaseTemplate) -> None:
        self.expr = expr

    def match(self, message: MessageBase) -> bool:
        """Whether the other one does not take this message."""
        return not self.expr.match(message)


class _Joined(BaseTemplate):
    def __init__(self, expr1: BaseTemplate, expr2: BaseTemplate) -> None:
        for expression in (expr1, expr2):
            if not isinstance(expression, BaseTemplate):
                raise TypeError(f"templates are joined with templates, not with {expression!r}")
        self.expr1, self.expr2 = expr1, expr2


class ANDTemplate(_Joined):
    """Takes the messages that both templates take."""

    def match(self, message: MessageBase) -> bool:
        """Whether both take this message."""
        return self.expr1.match(message) and self.expr2.match(message)


class ORTemplate(_Joined):
    """Takes the messages that at least one of two templates takes."""

    def match(self, message: MessageBase) -> bool:
        """Whether one of the two takes this message."""
        return self.expr1.match(message) or self.expr2.match(message)


class XORTemplate(_Joined):
    """Takes the messages that exactly one of two templates takes."""

    def match(self, message: MessageBase) -> bool:
        """Whether exactly one of the two takes this message."""
        return self.expr1.match(message) != self.expr2.match(message)


class Template(BaseTemplate, MessageBase):
    """Takes messages that have everything that the template has: receiver, sender, body, thread, metadata."""

    def match(self, message: MessageBase) -> bool:
        """Whether the message has all that this template has."""
        return MessageBase.match(self, message)

"""FIPA-SL, the content language of FIPA: every expression of it as a Python value.

>>> from sealbus import AID, sl
>>> content = sl.read("((action (agent-identifier :name j) (deliver box017 (loc 12 19))))")
>>> content.expressions[0].act
Function(symbol='deliver', arguments=('box017', Function(symbol='loc', arguments=(12, 19))))
>>> sl.write(sl.Not(sl.Predicate("open", (AID("door@factory"),))))
'((not (open (agent-identifier :name door@factory))))'

A string, a number, bytes, a date and a length of time are themselves; a list is a ``sequence``, a set or :class:`SetOf` a
``set``; an :class:`~sealbus.AID` is its ``agent-identifier``; instances of an :class:`~sealbus.ontology.Ontology` are its terms.
As a proposition ``True`` and ``False`` are the truth values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from sealbus import _sealbus

__all__ = [
    "Action",
    "ActionExpression",
    "Choice",
    "Connective",
    "Content",
    "Done",
    "Equals",
    "Expression",
    "Feasible",
    "Function",
    "Identifying",
    "Modal",
    "Not",
    "Predicate",
    "Quantified",
    "Result",
    "SetOf",
    "Then",
    "Variable",
    "read",
    "write",
]

Term: TypeAlias = Any
"""A term: a value as described above, or one of the classes for terms here."""
Arguments: TypeAlias = tuple[Term, ...] | Mapping[str, Term]
"""Arguments of a symbol, all by position or all by name. A named one that is None is left out."""


class _Node:
    """A piece of an expression."""

    _sl: ClassVar[str]

    def __init_subclass__(cls) -> None:
        cls._sl = cls.__name__


# ----- terms


@dataclass(frozen=True)
class Variable(_Node):
    """``?x``."""

    name: str


@dataclass(frozen=True)
class Function(_Node):
    """``(symbol a b)`` or ``(symbol :name a)``; also how objects are written."""

    symbol: str
    arguments: Arguments = ()


@dataclass(frozen=True)
class SetOf(_Node):
    """``(set a b)``: without order."""

    members: tuple[Term, ...]


@dataclass(frozen=True)
class Identifying(_Node):
    """``(iota ?x p)``: the object for which a formula holds; ``any`` of them, or ``all``."""

    operator: Literal["iota", "any", "all"]
    term: Term
    condition: Formula


# ----- actions


@dataclass(frozen=True)
class Action(_Node):
    """``(action agent act)``: an agent does something."""

    agent: Term
    act: Term


@dataclass(frozen=True)
class Choice(_Node):
    """``(| a b)``: one of two actions."""

    first: ActionExpression
    second: ActionExpression


@dataclass(frozen=True)
class Then(_Node):
    """``(; a b)``: one action, then another."""

    first: ActionExpression
    second: ActionExpression


# ----- formulas


@dataclass(frozen=True)
class Predicate(_Node):
    """``(symbol a b)``, or a bare ``symbol``."""

    symbol: str
    arguments: Arguments = ()


@dataclass(frozen=True)
class Equals(_Node):
    """``(= a b)``."""

    left: Term
    right: Term


@dataclass(frozen=True)
class Result(_Node):
    """``(result action value)``: the result of an action."""

    action: Term
    value: Term


@dataclass(frozen=True)
class Not(_Node):
    """``(not p)``."""

    formula: Formula


@dataclass(frozen=True)
class Connective(_Node):
    """``(and p q)`` and its kin."""

    operator: Literal["and", "or", "implies", "equiv"]
    left: Formula
    right: Formula


@dataclass(frozen=True)
class Quantified(_Node):
    """``(forall ?x p)`` or ``(exists ?x p)``."""

    operator: Literal["forall", "exists"]
    variable: Variable
    formula: Formula


@dataclass(frozen=True)
class Modal(_Node):
    """``(B agent p)``: an agent believes a formula (``B``), is uncertain about it (``U``), has it as a persistent goal
    (``PG``) or intends it (``I``)."""

    operator: Literal["B", "U", "PG", "I"]
    agent: Term
    formula: Formula


@dataclass(frozen=True)
class Feasible(_Node):
    """``(feasible action p)``: the action can take place, and the formula holds just after it."""

    action: ActionExpression
    condition: Formula | None = None


@dataclass(frozen=True)
class Done(_Node):
    """``(done action p)``: the action has just taken place, and the formula held just before it."""

    action: ActionExpression
    condition: Formula | None = None


# ----- content


@dataclass(frozen=True)
class Content(_Node):
    """The content of a message: one or more expressions."""

    expressions: tuple[Expression, ...]


ActionExpression: TypeAlias = Action | Choice | Then
"""Something that agents do."""
Formula: TypeAlias = Any
"""Something true or false: a bool, one of the classes for formulas here, or an instance of a predicate's class."""
Expression: TypeAlias = Any
"""A member of a content: an action, a formula or an :class:`Identifying`."""


def read(text: str | bytes) -> Content:
    """Reads content; raises :class:`~sealbus.DecodeError` with the place if it is not SL, or nested too deep."""
    return _sealbus.read_sl(text)


def write(content: Content | Expression) -> str | bytes:
    """Writes content, or content of one expression. The result is text, unless it contains bytes that are not text.

    Raises :class:`ValueError` for values that SL cannot express, such as an infinite number.
    """
    if not isinstance(content, Content):
        content = Content((content,))
    return _sealbus.write_sl(content, _plain)


def _plain(value: Any) -> object:
    """The term of a value that is not a value of SL."""
    term = getattr(value, "_sl_term", None)
    if term is None:
        raise TypeError(
            f"{type(value).__name__} is no expression of SL: only values and instances of an Ontology's classes are"
        )
    return term()

"""Ontologies: classes whose instances are the concepts, actions and predicates of SL, as JADE writes them.

>>> from sealbus import AID, AclMessage, sl
>>> from sealbus.ontology import Ontology, action, concept
>>> books = Ontology("book-trading")
>>> @concept(books)
... class Book:
...     title: str
...     price: float
...     edition: int | None = None
>>> @action(books)
... class Sell:
...     item: Book
>>> seller = AID("seller@shop")
>>> AclMessage("request", seller, body=sl.Action(seller, Sell(Book("Agents talk", 12.5)))).content
'((action (agent-identifier :name seller@shop) (Sell :item (Book :title "Agents talk" :price 12.5))))'
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from enum import Enum
from types import UnionType
from typing import Any, Literal, TypeVar, Union, dataclass_transform, get_args, get_origin

from sealbus import sl
from sealbus._sealbus import AID
from sealbus.typed_json import Misfit, Reader, resolved

__all__ = ["Element", "Ontology", "action", "concept", "element_of", "ontology_of", "predicate", "reader"]

_C = TypeVar("_C")

_ELEMENT = "__sealbus_element__"
_MISSING = object()
_LISTS = (list, Sequence, tuple, set, frozenset, Set)

Kind = Literal["concept", "action", "predicate"]


@dataclasses.dataclass(frozen=True)
class _Slot:
    attribute: str
    name: str
    read: Reader
    required: bool
    is_list: bool


class Element:
    """A class of an ontology."""

    def __init__(self, ontology: Ontology, kind: Kind, symbol: str, cls: type) -> None:
        self.ontology = ontology
        self.kind = kind
        self.symbol = symbol
        self.cls = cls
        self._slots: tuple[_Slot, ...] | None = None

    @property
    def slots(self) -> tuple[_Slot, ...]:
        """The slots in their order. They are looked up when first needed, because types may name classes that are
        defined later."""
        if self._slots is None:
            hints = typing.get_type_hints(self.cls, localns=self.ontology.names)
            self._slots = tuple(
                _Slot(
                    field.name,
                    str(field.metadata.get("name", field.name)),
                    reader(hints[field.name], self.ontology),
                    field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
                    (get_origin(hints[field.name]) or hints[field.name]) in _LISTS,
                )
                for field in dataclasses.fields(self.cls)
            )
        return self._slots

    def term(self, instance: object) -> sl.Function:
        """An instance as a term. A predicate has its slots by position, because JADE reads no names there."""
        slots = {slot.name: _written(getattr(instance, slot.attribute)) for slot in self.slots}
        if self.kind != "predicate":
            return sl.Function(self.symbol, slots)
        while slots and next(reversed(slots.values())) is None:
            slots.popitem()
        for name, value in slots.items():
            if value is None:
                raise ValueError(f"{name} of {self.symbol} cannot be None before slots that are not: they have no names")
        return sl.Function(self.symbol, tuple(slots.values()))

    def instance(self, arguments: sl.Arguments) -> Any:
        """The instance with these slots, given by name or by position."""
        if isinstance(arguments, Mapping):
            given = {name.lower(): value for name, value in arguments.items()}
        elif len(arguments) > len(self.slots):
            raise Misfit(f"expected {len(self.slots)} slots, got {len(arguments)}")
        else:
            given = {slot.name.lower(): value for slot, value in zip(self.slots, arguments, strict=False)}
        values: dict[str, Any] = {}
        for slot in self.slots:
            value = given.get(slot.name.lower(), _MISSING)
            try:
                if value is not _MISSING:
                    values[slot.attribute] = slot.read(value)
                elif slot.is_list:
                    # JADE omits an empty list.
                    values[slot.attribute] = slot.read([])
                elif slot.required:
                    raise Misfit("expected a value, got nothing")
            except Misfit as misfit:
                raise misfit.under(slot.name) from None
        try:
            return self.cls(**values)
        except (ValueError, TypeError) as problem:
            raise Misfit(f"no {self.symbol}: {problem}") from None


class Ontology:
    """A named vocabulary.

    The decorators :func:`concept`, :func:`action` and :func:`predicate` turn classes into dataclasses, and give them a meaning
    in SL. The symbol is the class's name, or the decorator's `name`. Slots are in the order of the fields, and a slot that is
    None is left out; ``field(metadata={"name": "unit-price"})`` names a slot. A JADE agent reads such content with an
    ``Ontology`` of the same name and schemas. Slots in a JADE agent's answer are read by name or by position.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        """The ontology of messages with these bodies."""
        self._elements: dict[str, Element] = {}

    def add(self, kind: Kind, cls: type, name: str | None = None) -> type:
        """Gives a class a meaning in SL, and makes a dataclass of it."""
        if "__dataclass_fields__" not in vars(cls):
            cls = dataclasses.dataclass(cls)
        symbol = name or cls.__name__
        if symbol.lower() in self._elements:
            raise ValueError(f"the ontology {self.name} has a {symbol} already")
        element = Element(self, kind, symbol, cls)
        self._elements[symbol.lower()] = element
        setattr(cls, _ELEMENT, element)
        setattr(cls, "_sl_term", lambda instance: element.term(instance))
        return cls

    @property
    def names(self) -> dict[str, Any]:
        """The classes by the names that annotations may use."""
        return {element.cls.__name__: element.cls for element in self._elements.values()}

    def element(self, symbol: str) -> Element | None:
        """The class with this symbol, in any letter case."""
        return self._elements.get(symbol.lower())

    def read(self, value: Any) -> Any:
        """An expression of SL in which instances of this ontology's classes stand for its terms."""
        match value:
            case sl.Function() | sl.Predicate():
                if value.symbol.lower() == "agent-identifier":
                    return _read_aid(value)
                element = self.element(value.symbol)
                if element is not None:
                    return element.instance(value.arguments)
                if isinstance(value.arguments, Mapping):
                    named = {name: self.read(each) for name, each in value.arguments.items()}
                    return type(value)(value.symbol, named)
                return type(value)(value.symbol, tuple(self.read(each) for each in value.arguments))
            case list() | tuple():
                return type(value)(self.read(each) for each in value)
            case sl._Node():
                fields = dataclasses.fields(value)  # type: ignore[arg-type]
                changes = {field.name: self.read(getattr(value, field.name)) for field in fields}
                return dataclasses.replace(value, **changes)  # type: ignore[type-var]
        return value

    def __repr__(self) -> str:
        return f"Ontology({self.name!r})"


@dataclass_transform()
def concept(ontology: Ontology, *, name: str | None = None) -> Callable[[type[_C]], type[_C]]:
    """Marks a class of objects."""
    return lambda cls: ontology.add("concept", cls, name)


@dataclass_transform()
def action(ontology: Ontology, *, name: str | None = None) -> Callable[[type[_C]], type[_C]]:
    """Marks a class of actions of agents. As a body it is wrapped in an :class:`~sealbus.sl.Action`, with the agent."""
    return lambda cls: ontology.add("action", cls, name)


@dataclass_transform()
def predicate(ontology: Ontology, *, name: str | None = None) -> Callable[[type[_C]], type[_C]]:
    """Marks a class of statements that are true or false. Its instances are bodies by themselves."""
    return lambda cls: ontology.add("predicate", cls, name)


def element_of(cls: Any) -> Element | None:
    """The element of an ontology that this class defines, or None. A derived class defines none unless it is marked, too."""
    element = vars(cls).get(_ELEMENT) if isinstance(cls, type) else None
    return element if isinstance(element, Element) else None


def ontology_of(expression: Any) -> str | None:
    """The name of the ontology of the instances in an expression."""
    element = element_of(type(expression))
    if element is not None:
        return element.ontology.name
    parts: Iterable[Any] = ()
    if isinstance(expression, sl._Node):
        parts = (getattr(expression, field.name) for field in dataclasses.fields(expression))  # type: ignore[arg-type]
    elif isinstance(expression, Mapping):
        parts = expression.values()
    elif isinstance(expression, list | tuple | set | frozenset):
        parts = expression
    return next((name for part in parts if (name := ontology_of(part)) is not None), None)


def _written(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


# ----- reading


def reader(kind: Any, ontology: Ontology) -> Reader:
    """The function that makes a value of the type `kind` out of a term, or raises :class:`Misfit`."""
    kind = resolved(kind)
    if kind is Any or kind is object:
        return ontology.read
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    container = origin or kind
    if origin is Union or origin is UnionType:
        return _union(arguments, ontology)
    if container in _LISTS:
        item = arguments[0] if arguments else Any
        if container is tuple and arguments[1:] not in ((), (...,)):
            raise TypeError(f"{kind!r} cannot be read from SL: a tuple there is tuple[T, ...]")
        make: Any = {list: list, Sequence: list, tuple: tuple, set: set}.get(container, frozenset)
        return _members(reader(item, ontology), make)
    if isinstance(container, type):
        if issubclass(container, Enum):
            return _enumeration(container)
        if issubclass(container, sl._Node):
            return _node(container)
        if element_of(container) is not None:
            return _element(container, ontology)
    raise TypeError(f"{kind!r} cannot be read from SL")


def _symbol(value: Any) -> str:
    match value:
        case sl.Function() | sl.Predicate():
            return f"({value.symbol[:64]} …)"
        case _:
            return type(value).__name__


def _element(cls: type, ontology: Ontology) -> Reader:
    expected = element_of(cls)
    assert expected is not None

    def read(value: Any) -> Any:
        if isinstance(value, str):
            # A symbol without slots is written bare.
            value = sl.Function(value)
        if isinstance(value, sl.Function | sl.Predicate):
            found = ontology.element(value.symbol)
            if found is not None and issubclass(found.cls, cls):
                return found.instance(value.arguments)
        raise Misfit(f"expected ({expected.symbol} …), got {_symbol(value)}")

    return read


def _node(cls: type) -> Reader:
    def read(value: Any) -> Any:
        if isinstance(value, cls):
            return value
        raise Misfit(f"expected {cls.__name__}, got {_symbol(value)}")

    return read


def _union(kinds: tuple[Any, ...], ontology: Ontology) -> Reader:
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    elements = [element for kind in kinds if (element := element_of(kind)) is not None]
    # Try float after int, so that an integer stays one, and text last.
    others = sorted(
        (kind for kind in kinds if element_of(kind) is None), key=lambda kind: (kind is str, kind is float)
    )
    readers = [reader(kind, ontology) for kind in others]
    names = " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)

    # The symbol decides the class, so nothing nested is tried twice.
    def read(value: Any) -> Any:
        if isinstance(value, sl.Function | sl.Predicate):
            found = ontology.element(value.symbol)
            for element in elements:
                if found is not None and issubclass(found.cls, element.cls):
                    return found.instance(value.arguments)
        if len(readers) == 1:
            return readers[0](value)
        for read_other in readers:
            try:
                return read_other(value)
            except Misfit:
                continue
        raise Misfit(f"expected {names}, got {_symbol(value)}")

    return read


def _members(read_member: Reader, make: Any) -> Reader:
    def read(value: Any) -> Any:
        if isinstance(value, sl.SetOf):
            value = list(value.members)
        if not isinstance(value, list):
            raise Misfit(f"expected a sequence or a set, got {_symbol(value)}")
        members: list[Any] = []
        try:
            for member in value:
                members.append(read_member(member))
        except Misfit as misfit:
            raise misfit.under(len(members)) from None
        try:
            return make(members)
        except TypeError:
            raise Misfit("a member cannot be in a set") from None

    return read


def _enumeration(kind: type[Enum]) -> Reader:
    def read(value: Any) -> Any:
        try:
            return kind(value)
        except (ValueError, TypeError):
            names = " or ".join(repr(member.value) for member in kind)
            raise Misfit(f"expected {names}, got {_symbol(value)}") from None

    return read


def _exactly(*kinds: type) -> Reader:
    name = kinds[0].__name__

    def read(value: Any) -> Any:
        if type(value) in kinds:
            return kinds[0](value) if type(value) is not kinds[0] else value
        raise Misfit(f"expected {name}, got {_symbol(value)}")

    return read


def _read_str(value: Any) -> Any:
    if isinstance(value, bool):
        # Other platforms write the string "true" like the truth value.
        return str(value).lower()
    if isinstance(value, str):
        return value
    raise Misfit(f"expected str, got {_symbol(value)}")


def _read_bool(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise Misfit(f"expected true or false, got {_symbol(value)}")


def _read_bytes(value: Any) -> Any:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise Misfit(f"expected bytes, got {_symbol(value)}")


def _read_aid(value: Any) -> Any:
    slots = value.arguments if isinstance(value, sl.Function | sl.Predicate) else None
    if slots is None or value.symbol.lower() != "agent-identifier":
        raise Misfit(f"expected an agent-identifier, got {_symbol(value)}")
    if not isinstance(slots, Mapping):
        slots = dict(zip(("name", "addresses", "resolvers"), slots, strict=False))
    texts = _members(_read_str, list)
    try:
        name = _read_str(slots.get("name"))
        addresses = texts(slots.get("addresses", []))
        resolvers = _members(_read_aid, list)(slots.get("resolvers", []))
        return AID(name, addresses=addresses, resolvers=resolvers)
    except ValueError as problem:
        raise Misfit(f"no agent-identifier: {problem}") from None


_SIMPLE: dict[Any, Reader] = {
    str: _read_str,
    int: _exactly(int),
    float: _exactly(float, int),
    bool: _read_bool,
    bytes: _read_bytes,
    datetime: _exactly(datetime),
    timedelta: _exactly(timedelta),
    AID: _read_aid,
}

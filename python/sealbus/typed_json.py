"""JSON values of declared types: the result of a parser becomes a dataclass.

Each type is analysed once, and becomes a function that checks a value and builds it.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import reprlib
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import date, datetime, timedelta
from typing import Annotated, Any, Literal, NewType, NotRequired, Required, TypeVar, Union, get_args, get_origin

from sealbus._sealbus import ObjectReader
from sealbus.plain_json import field_name

__all__ = ["Misfit", "Reader", "is_required", "reader", "required_keys", "resolved"]

Reader = Callable[[Any], Any]

_NAME = 64
"""Characters of a stranger's name that an error repeats."""


class Misfit(Exception):
    """A value is not of its type. The way to it is filled in from the inside out."""

    def __init__(self, problem: str, *steps: str | int) -> None:
        super().__init__(problem)
        self.problem = problem
        self._steps: list[str | int] = list(steps)

    @staticmethod
    def expected(what: str, value: object) -> Misfit:
        """Another value was expected than this one."""
        return Misfit(f"expected {what}, got {_kind(value)}")

    @staticmethod
    def of_pydantic(problems: Any) -> Misfit:
        """The first of pydantic's problems."""
        [first, *_] = problems.errors(include_url=False, include_context=False, include_input=False)
        return Misfit(first["msg"], *reversed(first["loc"]))

    def under(self, step: str | int) -> Misfit:
        """The value stands under this name or number of another one."""
        self._steps.append(step)
        return self

    @property
    def place(self) -> str:
        """Where it is, such as ``$.bids[2].cost``."""
        place = "$"
        for step in reversed(self._steps):
            if isinstance(step, str):
                step = step[:_NAME]
                place += f".{step}" if step.isidentifier() else f"[{step!r}]"
            else:
                place += f"[{step}]"
        return place


def _kind(value: object) -> str:
    return "null" if value is None else type(value).__name__


def reader(kind: Any) -> Reader:
    """The function that makes a value of the type `kind` out of the result of a JSON parser, or raises :class:`Misfit`.

    Raises :class:`TypeError` for a type that JSON cannot express.
    """
    return _Readers().of(kind)


class _Readers:
    """The readers of one type and of the types in it, which may contain themselves."""

    def __init__(self) -> None:
        self._objects: dict[Any, Reader | None] = {}

    def of(self, kind: Any) -> Reader:
        """The reader of a type."""
        simple = _SIMPLE.get(kind) if isinstance(kind, type) else None
        if simple is not None:
            return simple
        if kind is Any or kind is object:
            return lambda value: value
        if kind is None:
            return _read_none
        behind = resolved(kind)
        if behind is not kind:
            return self.of(behind)
        origin = get_origin(kind)
        arguments = get_args(kind)
        if origin is Literal:
            return _literal(arguments)
        if origin is Union or origin is types.UnionType:
            return self._union(arguments)
        container = origin or kind
        if container in _LISTS[:3]:
            return self._list(arguments[0] if arguments else Any)
        if container is tuple:
            return self._tuple(arguments)
        if container in (set, frozenset, Set):
            return self._set(container, arguments[0] if arguments else Any)
        if container in _DICTIONARIES:
            name, member = arguments or (str, Any)
            return self._dictionary(name, member)
        if isinstance(container, type):
            if issubclass(container, enum.Enum):
                return _enumeration(container)
            if hasattr(container, "model_validate"):
                return _pydantic(container)
            if dataclasses.is_dataclass(container) or typing.is_typeddict(container):
                return self._object(kind, container, arguments)
        raise TypeError(f"{kind!r} cannot be read from JSON")

    def _list(self, kind: Any) -> Reader:
        if kind is Any:
            return _SIMPLE[list]
        read_item = self.of(kind)

        def read(value: Any) -> Any:
            if type(value) is not list:
                raise Misfit.expected("list", value)
            items: list[Any] = []
            try:
                for item in value:
                    items.append(read_item(item))
            except Misfit as misfit:
                raise misfit.under(len(items)) from None
            return items

        return read

    def _tuple(self, kinds: tuple[Any, ...]) -> Reader:
        if not kinds or kinds[-1] is Ellipsis:
            read_list = self._list(kinds[0] if kinds else Any)
            return lambda value: tuple(read_list(value))
        readers = [self.of(kind) for kind in kinds if kind != ()]

        def read(value: Any) -> Any:
            if type(value) is not list:
                raise Misfit.expected("list", value)
            if len(value) != len(readers):
                raise Misfit(f"expected {len(readers)} items, got {len(value)}")
            items: list[Any] = []
            try:
                for read_item, item in zip(readers, value, strict=True):
                    items.append(read_item(item))
            except Misfit as misfit:
                raise misfit.under(len(items)) from None
            return tuple(items)

        return read

    def _set(self, container: Any, kind: Any) -> Reader:
        read_list = self._list(kind)
        make = set if container is set else frozenset

        def read(value: Any) -> Any:
            items = read_list(value)
            try:
                return make(items)
            except TypeError:
                raise Misfit("an item cannot be in a set") from None

        return read

    def _dictionary(self, name: Any, kind: Any) -> Reader:
        if name is not str and name is not int and name is not Any:
            raise TypeError(f"a name in JSON is a str, not {name!r}")
        if kind is Any and name is not int:
            return _SIMPLE[dict]
        read_member = self.of(kind)

        def read(value: Any) -> Any:
            if type(value) is not dict:
                raise Misfit.expected("dict", value)
            members: dict[Any, Any] = {}
            at = ""
            try:
                for at, member in value.items():
                    members[_integer(at) if name is int else at] = read_member(member)
            except Misfit as misfit:
                raise misfit.under(at) from None
            return members

        return read

    def _union(self, kinds: tuple[Any, ...]) -> Reader:
        can_be_none = type(None) in kinds
        kinds = tuple(resolved(kind) for kind in kinds if kind is not type(None))
        if len(kinds) == 1:
            only = self.of(kinds[0])
            return lambda value: None if value is None else only(value)
        if Any in kinds:
            return self.of(Any)
        objects: list[tuple[Callable[[dict[str, Any]], bool], Reader]] = []
        lists: list[Reader] = []
        others: list[Reader] = []
        # An integer stays one where a float would do as well.
        for kind in sorted(kinds, key=lambda kind: kind is float):
            match _shape(kind):
                case "object":
                    objects.append((_recognises(kind), self.of(kind)))
                case "list":
                    lists.append(self.of(kind))
                case _:
                    others.append(self.of(kind))
        if len(lists) > 1:
            raise TypeError(f"{Union[kinds]} cannot be read from JSON: two of them are lists")
        names = " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)

        # Of the types that may contain others one is chosen for good: trying one after the other would take a hostile
        # body through every combination.
        def read(value: Any) -> Any:
            if value is None and can_be_none:
                return None
            if type(value) is dict:
                for recognises, read_object in objects:
                    if len(objects) == 1 or recognises(value):
                        return read_object(value)
            elif type(value) is list:
                for read_list in lists:
                    return read_list(value)
            else:
                for read_other in others:
                    try:
                        return read_other(value)
                    except Misfit:
                        continue
            raise Misfit.expected(names, value)

        return read

    def _object(self, kind: Any, container: type, arguments: tuple[Any, ...]) -> Reader:
        if kind in self._objects:
            # It contains itself: its reader is not made yet.
            def read_later(value: Any) -> Any:
                read_now = self._objects[kind]
                assert read_now is not None
                return read_now(value)

            return self._objects[kind] or read_later
        self._objects[kind] = None
        hints = typing.get_type_hints(container)
        parameters = getattr(container, "__parameters__", ())
        if parameters and arguments:
            bound = dict(zip(parameters, arguments, strict=False))
            hints = {name: _substitute(hint, bound) for name, hint in hints.items()}
        if typing.is_typeddict(container):
            required = required_keys(container)
            fields = [_field(name, name, self.of(hint), name in required, hint) for name, hint in hints.items()]
            build: Callable[..., Any] = dict
        else:
            fields = [
                _field(field.name, field_name(field), self.of(hints[field.name]), is_required(field), hints[field.name])
                for field in dataclasses.fields(container)
                if field.init
            ]
            build = container
        read = ObjectReader(container.__name__, fields, build)
        self._objects[kind] = read
        return read


def resolved(kind: Any) -> Any:
    """The type behind a name for it."""
    if isinstance(kind, NewType):
        return resolved(kind.__supertype__)
    if isinstance(kind, TypeVar):
        return resolved(kind.__bound__ or Any)
    if type(kind).__name__ == "TypeAliasType":
        return resolved(kind.__value__)
    if get_origin(kind) is Annotated:
        return resolved(get_args(kind)[0])
    return kind


_LISTS = (list, Sequence, Iterable, tuple, set, frozenset, Set)
_DICTIONARIES = (dict, Mapping)


def _shape(kind: Any) -> Literal["object", "list", "other"]:
    """The kind of JSON value for this type."""
    container = get_origin(kind) or kind
    if container in _LISTS:
        return "list"
    if container in _DICTIONARIES or dataclasses.is_dataclass(container) or typing.is_typeddict(container):
        return "object"
    return "object" if hasattr(container, "model_validate") else "other"


def _recognises(kind: Any) -> Callable[[dict[str, Any]], bool]:
    """Tells objects of this type from those of others: by their names, and by members of the type ``Literal``."""
    container = get_origin(kind) or kind
    if dataclasses.is_dataclass(container):
        names = {field_name(field): field.name for field in dataclasses.fields(container)}
        required = {field_name(field) for field in dataclasses.fields(container) if is_required(field)}
    elif typing.is_typeddict(container):
        names = {name: name for name in container.__annotations__}
        required = required_keys(container)
    else:
        return lambda value: True
    hints = typing.get_type_hints(container)
    tags = {
        name: get_args(hints[attribute])
        for name, attribute in names.items()
        if get_origin(hints[attribute]) is Literal
    }

    def recognises(value: dict[str, Any]) -> bool:
        return required <= value.keys() and all(_is_one_of(value[name], values) for name, values in tags.items() if name in value)

    return recognises


def _field(
    argument: str, name: str, read: Reader, is_required: bool, hint: Any
) -> tuple[str, str, type | None, Reader, str | None]:
    kind = getattr(hint, "__name__", None) or str(hint)
    return argument, name, _EXACT.get(read), read, kind if is_required else None


def required_keys(kind: Any) -> set[str]:
    """The names that a TypedDict must have. `__required_keys__` alone does not know better of annotations that are text."""
    marks = {name: get_origin(hint) for name, hint in typing.get_type_hints(kind, include_extras=True).items()}
    return {
        name
        for name, mark in marks.items()
        if mark is not NotRequired and (mark is Required or name in kind.__required_keys__)
    }


def is_required(field: dataclasses.Field[Any]) -> bool:
    """Whether an object must have this field. One that the class sets itself may be missing."""
    return field.init and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _substitute(hint: Any, bound: dict[Any, Any]) -> Any:
    if isinstance(hint, TypeVar):
        return bound.get(hint, Any)
    parameters = getattr(hint, "__parameters__", ())
    if not parameters:
        return hint
    return hint[tuple(bound.get(parameter, Any) for parameter in parameters)]


def _is_one_of(value: Any, values: tuple[Any, ...]) -> bool:
    return any(value == allowed and type(value) is type(allowed) for allowed in values)


def _literal(values: tuple[Any, ...]) -> Reader:
    names = " or ".join(repr(value) for value in values)

    def read(value: Any) -> Any:
        if _is_one_of(value, values):
            return value
        raise Misfit(f"expected {names}, got {reprlib.repr(value)}")

    return read


def _enumeration(kind: type[enum.Enum]) -> Reader:
    def read(value: Any) -> Any:
        try:
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                return kind(value)
        except ValueError:
            pass
        names = " or ".join(repr(member.value) for member in kind)
        raise Misfit(f"expected {names}, got {reprlib.repr(value)}")

    return read


def _pydantic(kind: Any) -> Reader:
    from pydantic import ValidationError

    def read(value: Any) -> Any:
        try:
            return kind.model_validate(value)
        except ValidationError as problems:
            raise Misfit.of_pydantic(problems) from None

    return read


def _exactly(kind: type) -> Reader:
    name = kind.__name__

    def read(value: Any) -> Any:
        if type(value) is kind:
            return value
        raise Misfit.expected(name, value)

    return read


def _read_none(value: Any) -> Any:
    if value is not None:
        raise Misfit.expected("null", value)


def _read_float(value: Any) -> Any:
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    raise Misfit.expected("float", value)


def _integer(name: str) -> int:
    if len(name) <= 20:
        try:
            return int(name)
        except ValueError:
            pass
    raise Misfit("expected the name of a member to be an int")


def _from_text(what: str, make: Callable[[str], Any]) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not str:
            raise Misfit.expected(what, value)
        try:
            return make(value)
        except ValueError:
            raise Misfit(f"expected {what}, got {reprlib.repr(value)}") from None

    return read


def _read_timedelta(value: Any) -> Any:
    seconds = _read_float(value)
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise Misfit("the length of time is too great") from None


_SIMPLE: dict[type, Reader] = {
    **{kind: _exactly(kind) for kind in (str, int, bool, list, dict)},
    float: _read_float,
    type(None): _read_none,
    bytes: _from_text("base64", lambda text: base64.b64decode(text, validate=True)),
    datetime: _from_text("datetime", datetime.fromisoformat),
    date: _from_text("date", date.fromisoformat),
    timedelta: _read_timedelta,
    uuid.UUID: _from_text("UUID", uuid.UUID),
}

# The readers that give a value of exactly this type as it is.
_EXACT: dict[Reader, type] = {_SIMPLE[kind]: kind for kind in (str, int, bool, float, list, dict)}

"""Bodies: the content of a message as a value of a declared type.

=============================================  ============================  ====================
body                                           language                      ontology
=============================================  ============================  ====================
a dataclass, a pydantic model, a `TypedDict`,  ``application/json``
a plain JSON value
a protobuf message                             ``application/protobuf``      its full name
an expression of :mod:`sealbus.sl`, a          ``fipa-sl``                   the ontology's name
predicate of an :class:`~sealbus.ontology.Ontology`
:class:`bytes`                                 ``application/octet-stream``
:class:`str`                                   none: the content as it is
=============================================  ============================  ====================

Sealbus sets the language when it writes a body, and checks the language when it reads it; a message without a language is read
as the expected one. A body of another type raises :class:`~sealbus.BodyError` with the place::

    @dataclass
    class Task:
        title: str
        hours: float

    AclMessage("request", "painter", body=Task("paint the fence", 2.5))
    message.body_as(Task)      # BodyError: $.hours: expected float, got str

Fields that a dataclass does not know are ignored, so that a newer sender can add some.
``field(metadata={"name": "unit-price"})`` gives a field another name in JSON. The depth and the number of values of a body are
limited.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, get_origin, overload

from sealbus import _sealbus, sl
from sealbus._sealbus import AclMessage, Message
from sealbus.errors import BodyError, ContentError, DecodeError, EncodeError
from sealbus.ontology import element_of, ontology_of
from sealbus.ontology import reader as term_reader
from sealbus.typed_json import Misfit, reader

__all__ = ["BYTES", "JSON", "PROTOBUF", "SL", "BodyError", "Encoded", "decode", "encode"]

_B = TypeVar("_B")

JSON = "application/json"
"""The language of JSON bodies."""
PROTOBUF = "application/protobuf"
"""The language of protobuf bodies."""
BYTES = "application/octet-stream"
"""The language of bodies that are bytes."""
SL = "fipa-sl"
"""The language of bodies in FIPA-SL. Its smaller profiles, such as ``fipa-sl0``, are read as well."""


class Encoded(NamedTuple):
    """A body as it is in a message."""

    content: str | bytes
    """The content."""
    language: str | None
    """The language of the content."""
    ontology: str | None
    """The meaning of its symbols."""


def encode(body: object) -> Encoded:
    """Writes a body.

    Raises :class:`TypeError` for a value that cannot be a body, and :class:`~sealbus.EncodeError` for a value that its language
    cannot express, such as an infinite number in JSON.
    """
    kind: Any = type(body)
    return _writer(kind)(body)


@overload
def decode(message: AclMessage, kind: type[_B]) -> _B: ...
@overload
def decode(message: AclMessage, kind: Any = None) -> Any: ...
def decode(message: AclMessage, kind: Any = None) -> Any:
    """Reads the body of a message, as a value of the type `kind`; without `kind`, the language determines the type.

    Raises :class:`~sealbus.BodyError` with the place of the mistake, regardless of the type's own exception, and
    :class:`TypeError` if `kind` is no type of bodies.
    """
    try:
        read = _reader(kind)
    except TypeError:
        # A type such as `Annotated[int, []]` is not hashable, so it has no place in the cache.
        read = _reader.__wrapped__(kind)
    try:
        return read(message)
    except ContentError:
        raise
    except Exception as raised:
        # The type refuses the body with an exception of its own. The sender caused it, so it does not count against the reading
        # agent. Its text may not be meant for others.
        raise BodyError("$", f"no {getattr(kind, '__name__', kind)}") from raised


def declare(message: Message[Any], kind: Any) -> None:
    """Makes :attr:`Message.body` a value of the type `kind`."""
    message._declare(decode(message, kind))


# ----- writing


@lru_cache(maxsize=1024)
def _writer(kind: Any) -> Callable[[Any], Encoded]:
    if issubclass(kind, str):
        return lambda body: Encoded(str(body), None, None)
    if issubclass(kind, bytes | bytearray | memoryview):
        return lambda body: Encoded(bytes(body), BYTES, None)
    if _is_protobuf(kind):
        name = kind.DESCRIPTOR.full_name
        return lambda body: Encoded(body.SerializeToString(), PROTOBUF, name)
    element = element_of(kind)
    if element is not None and element.kind == "action":
        raise TypeError(f"{kind.__name__} says nothing without the one who acts: Action(agent, {kind.__name__}(…))")
    if element is not None and element.kind == "concept":
        raise TypeError(f"{kind.__name__} says nothing by itself: an action or a predicate does")
    if element is not None or issubclass(kind, sl._Node):
        return _write_sl
    if hasattr(kind, "model_dump_json"):
        return lambda body: Encoded(body.model_dump_json(by_alias=True), JSON, None)
    return _write_json


def _write_json(body: object) -> Encoded:
    return Encoded(_sealbus.write_json(body), JSON, None)


@lru_cache(maxsize=1024)
def is_json(kind: type) -> bool:
    """Whether values of a class are written as JSON by the native half."""
    return _writer(kind) is _write_json


def _write_sl(body: Any) -> Encoded:
    try:
        return Encoded(sl.write(body), SL, ontology_of(body))
    except ValueError as problem:
        raise EncodeError(str(problem), "content") from None


def _is_protobuf(kind: Any) -> bool:
    return hasattr(kind, "DESCRIPTOR") and hasattr(kind, "FromString")


# ----- reading


@lru_cache(maxsize=1024)
def _reader(kind: Any) -> Callable[[AclMessage], Any]:
    if kind is None or kind is Any or kind is object:
        return _read_plain
    if kind is str:
        return _read_text
    if kind is bytes:
        return _read_bytes
    if isinstance(kind, type) and get_origin(kind) is None:
        if _is_protobuf(kind):
            return _protobuf_reader(kind)
        if kind is sl.Content:
            return _read_sl
        if element_of(kind) is not None:
            return _element_reader(kind)
        if hasattr(kind, "model_validate_json"):
            return _pydantic_reader(kind)
    read = reader(kind)

    def read_json(message: AclMessage) -> Any:
        value = _sealbus.read_json(message)
        try:
            return read(value)
        except Misfit as misfit:
            raise BodyError(misfit.place, misfit.problem) from None

    return read_json


def _language(message: AclMessage) -> str | None:
    language = message.language
    if language is None:
        return None
    name = str(language).partition(";")[0].strip().lower()
    return SL if name in ("fipa-sl0", "fipa-sl1", "fipa-sl2") else name


def _content(message: AclMessage, language: str) -> bytes:
    """The content, which must be in this language."""
    found = _language(message)
    if found is not None and found != language:
        raise BodyError("$", f"expected the language {language}, got {found[:64]}")
    content = message.content_bytes
    if content is None:
        raise BodyError("$", "the message has no content")
    return content


def _read_plain(message: AclMessage) -> Any:
    match _language(message):
        case "application/json":
            return _sealbus.read_json(message)
        case "fipa-sl":
            return _read_sl(message)
        case "application/octet-stream" | "application/protobuf":
            return message.content_bytes
        case _:
            return message.content


def _read_text(message: AclMessage) -> str:
    text = message.content_text
    if text is None:
        missing = message.content is None
        raise BodyError("$", "the message has no content" if missing else "expected text, got bytes")
    return text


def _read_bytes(message: AclMessage) -> bytes:
    return _content(message, BYTES)


def _read_sl(message: AclMessage) -> sl.Content:
    try:
        return sl.read(_content(message, SL))
    except DecodeError as problem:
        raise BodyError("$", f"no SL: {problem}") from None


def _check_ontology(message: AclMessage, name: str) -> None:
    ontology = message.ontology
    if ontology is not None and ontology != name:
        raise BodyError("$", f"expected the ontology {name}, got {str(ontology)[:64]}")


def _element_reader(kind: Any) -> Callable[[AclMessage], Any]:
    element = element_of(kind)
    assert element is not None
    if element.kind == "concept":
        raise TypeError(f"{kind.__name__} is a concept, which says nothing by itself: an action or a predicate does")
    read_term = term_reader(kind, element.ontology)

    def read(message: AclMessage) -> Any:
        # Expressions after the first, such as the reason in a refusal, are not read.
        first = _read_sl(message).expressions[0]
        _check_ontology(message, element.ontology.name)
        if element.kind == "action":
            if not isinstance(first, sl.Action):
                raise BodyError("$", f"expected an action, got {type(first).__name__}")
            first = first.act
        try:
            return read_term(first)
        except Misfit as misfit:
            raise BodyError(misfit.place, misfit.problem) from None

    return read


def _protobuf_reader(kind: Any) -> Callable[[AclMessage], Any]:
    from google.protobuf.message import DecodeError

    name = kind.DESCRIPTOR.full_name

    def read(message: AclMessage) -> Any:
        content = _content(message, PROTOBUF)
        _check_ontology(message, name)
        try:
            return kind.FromString(content)
        except DecodeError as problem:
            raise BodyError("$", f"no {name}: {problem}") from None

    return read


def _pydantic_reader(kind: Any) -> Callable[[AclMessage], Any]:
    from pydantic import ValidationError

    def read(message: AclMessage) -> Any:
        text = _sealbus.json_text(message)
        try:
            return kind.model_validate_json(text)
        except ValidationError as problems:
            misfit = Misfit.of_pydantic(problems)
            raise BodyError(misfit.place, misfit.problem) from None

    return read

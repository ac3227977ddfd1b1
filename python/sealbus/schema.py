"""JSON Schema of types, with which a service describes its parameter and its result."""

from __future__ import annotations

import dataclasses
import types
import typing
import uuid
from datetime import date, datetime, timedelta
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin

from sealbus.plain_json import field_name
from sealbus.typed_json import resolved

__all__ = ["schema"]

_SIMPLE: dict[Any, dict[str, Any]] = {
    Any: {},
    object: {},
    None: {"type": "null"},
    type(None): {"type": "null"},
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    datetime: {"type": "string", "format": "date-time"},
    date: {"type": "string", "format": "date"},
    timedelta: {"type": "number"},
    uuid.UUID: {"type": "string", "format": "uuid"},
}


def schema(kind: Any) -> dict[str, Any]:
    """The JSON Schema of the bodies of a type."""
    definitions: dict[str, Any] = {}
    found = _schema(kind, definitions)
    return {**found, "$defs": definitions} if definitions else found


def _schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    kind = resolved(kind)
    try:
        if kind in _SIMPLE:
            return _SIMPLE[kind]
    except TypeError:
        return {}
    origin, arguments = get_origin(kind), get_args(kind)
    container = origin or kind

    def of(index: int) -> dict[str, Any]:
        return _schema(arguments[index], definitions) if len(arguments) > index else {}

    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is Union or origin is types.UnionType:
        return {"anyOf": [_schema(each, definitions) for each in arguments]}
    if container is tuple and arguments and arguments[-1] is not Ellipsis:
        items = [_schema(each, definitions) for each in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if not isinstance(container, type):
        return {}
    if issubclass(container, Enum):
        return {"enum": [member.value for member in container]}
    if hasattr(container, "model_json_schema"):
        return dict(container.model_json_schema())
    if dataclasses.is_dataclass(container) or typing.is_typeddict(container):
        return _object(container, definitions)
    if issubclass(container, typing.cast(type, typing.Mapping)):
        return {"type": "object", "additionalProperties": of(1)}
    if issubclass(container, typing.cast(type, typing.Iterable)):
        return {"type": "array", "items": of(0)}
    return {}


def _object(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    name = kind.__name__
    reference = {"$ref": f"#/$defs/{name}"}
    if name in definitions:
        return reference
    definitions[name] = {}
    hints = typing.get_type_hints(kind)
    if dataclasses.is_dataclass(kind):
        fields = {field_name(field): hints[field.name] for field in dataclasses.fields(kind)}
        required = [
            field_name(field)
            for field in dataclasses.fields(kind)
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        ]
    else:
        fields = hints
        required = sorted(kind.__required_keys__)
    definitions[name] = {
        "type": "object",
        "properties": {name: _schema(hint, definitions) for name, hint in fields.items()},
        "required": required,
    }
    return reference

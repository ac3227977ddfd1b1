"""JSON Schema of types, with which a service describes its parameter and its result."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
import uuid
from datetime import date, datetime, timedelta
from enum import Enum
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin

from sealbus.plain_json import field_name
from sealbus.typed_json import is_required, required_keys, resolved

__all__ = ["schema"]

_Definitions: TypeAlias = dict[Any, tuple[str, dict[str, Any]]]
"""The schemas of classes, and their names."""

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
    definitions: _Definitions = {}
    found = _schema(kind, definitions)
    return {**found, "$defs": dict(definitions.values())} if definitions else found


def _schema(kind: Any, definitions: _Definitions) -> dict[str, Any]:
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
    is_model = hasattr(container, "model_json_schema")
    if is_model or dataclasses.is_dataclass(container) or typing.is_typeddict(container):
        return _named(container, definitions)
    if issubclass(container, typing.cast(type, typing.Mapping)):
        return {"type": "object", "additionalProperties": of(1)}
    if issubclass(container, typing.cast(type, typing.Iterable)):
        return {"type": "array", "items": of(0)}
    return {}


def _named(kind: Any, definitions: _Definitions) -> dict[str, Any]:
    """A reference to the schema of a class. Classes of one name have one each."""
    if kind not in definitions:
        taken = {name for name, _ in definitions.values()}
        # That of a generic model contains brackets.
        name = plain = re.sub(r"\W", "_", kind.__name__)
        count = 1
        while name in taken:
            count += 1
            name = f"{plain}-{count}"
        # A class that contains itself refers to this name.
        definitions[kind] = name, {}
        make = _model if hasattr(kind, "model_json_schema") else _object
        definitions[kind] = name, make(kind, definitions)
    return {"$ref": f"#/$defs/{definitions[kind][0]}"}


def _model(kind: Any, definitions: _Definitions) -> dict[str, Any]:
    """A pydantic model. The schemas of its parts stand beside its own, where references find them."""
    name, _ = definitions[kind]
    prefix = f"#/$defs/{name}."
    found = dict(kind.model_json_schema(ref_template=prefix + "{model}"))
    parts: dict[str, dict[str, Any]] = found.pop("$defs", {})
    for part, definition in parts.items():
        definitions[kind, part] = f"{name}.{part}", definition
    # A model that contains itself is one of its parts.
    itself = str(found.pop("$ref", "")).removeprefix(prefix)
    return {**parts.get(itself, {}), **found}


def _object(kind: Any, definitions: _Definitions) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    if dataclasses.is_dataclass(kind):
        given = [field for field in dataclasses.fields(kind) if field.init]
        fields = {field_name(field): hints[field.name] for field in given}
        required = [field_name(field) for field in given if is_required(field)]
    else:
        fields = hints
        required = sorted(required_keys(kind))
    return {
        "type": "object",
        "properties": {name: _schema(hint, definitions) for name, hint in fields.items()},
        "required": required,
    }

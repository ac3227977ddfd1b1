"""Values as JSON: the fields of a dataclass, the text of a date."""

from __future__ import annotations

import base64
import dataclasses
import enum
import uuid
from collections.abc import Mapping, Sequence, Set
from datetime import date, timedelta
from functools import lru_cache
from typing import Any

from sealbus._sealbus import Fields

__all__ = ["field_name", "fields", "plain"]


def plain(value: Any) -> object:
    """The JSON value of a Python value that JSON lacks, other than a dataclass."""
    match value:
        case enum.Enum():
            return value.value
        case str():
            return str.__str__(value)
        case int():
            return int(value)
        case float():
            return float(value)
        case date():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case uuid.UUID():
            return str(value)
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case Mapping():
            return dict(value)
        case Sequence() | Set():
            return list(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(
        f"{type(value).__name__} is no body: bodies are dataclasses, pydantic models, dictionaries and other JSON "
        "values, protobuf messages, bytes and str"
    )


@lru_cache(maxsize=1024)
def fields(kind: type) -> Fields | None:
    """The fields that the native half writes of a dataclass; None for another class."""
    if not dataclasses.is_dataclass(kind):
        return None
    return Fields([(field.name, field_name(field)) for field in dataclasses.fields(kind)])


def field_name(field: dataclasses.Field[Any]) -> str:
    """The name of a dataclass's field in JSON."""
    return str(field.metadata.get("name", field.name))

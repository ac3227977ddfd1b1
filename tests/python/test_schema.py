"""The JSON Schema of types is what the readers of bodies take."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from typing import NotRequired, TypedDict

import pydantic

from sealbus.schema import schema


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)
    size: int = field(init=False)


class Sheet(TypedDict):
    title: str
    note: NotRequired[str]


class Leaf(pydantic.BaseModel):
    veins: int


class Branch(pydantic.BaseModel):
    leaves: list[Leaf]
    twigs: list[Branch] = []


def references(part: object) -> set[str]:
    """The names to which a schema refers."""
    if isinstance(part, list):
        return {name for each in part for name in references(each)}
    if not isinstance(part, dict):
        return set()
    found = {name for each in part.values() for name in references(each)}
    named = part.get("$ref")
    return found | {named.removeprefix("#/$defs/")} if isinstance(named, str) else found


def test_classes_of_one_name_have_a_schema_each() -> None:
    number, text = make_dataclass("Item", [("number", int)]), make_dataclass("Item", [("text", str)])
    both = schema(make_dataclass("Both", [("one", number), ("two", text), ("again", number)]))
    of = {name: part["$ref"].removeprefix("#/$defs/") for name, part in both["$defs"]["Both"]["properties"].items()}
    assert of["one"] == of["again"] != of["two"]
    assert list(both["$defs"][of["one"]]["properties"]) == ["number"]
    assert list(both["$defs"][of["two"]]["properties"]) == ["text"]


def test_what_may_be_left_out_is_not_required() -> None:
    tree = schema(Tree)["$defs"]["Tree"]
    assert tree["required"] == ["name"] and set(tree["properties"]) == {"name", "children"}
    assert schema(Sheet)["$defs"]["Sheet"]["required"] == ["title"]


def test_the_parts_of_a_model_are_where_references_find_them() -> None:
    for kind in (Leaf, Branch, list[Branch], dict[str, Leaf | Branch]):
        whole = schema(kind)
        named = references(whole)
        assert named and named <= whole["$defs"].keys(), kind
        assert all("$defs" not in part for part in whole["$defs"].values())
    assert schema(Branch)["$defs"]["Branch"]["type"] == "object"

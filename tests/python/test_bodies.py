"""Bodies of declared types: a written body comes back, and a body that does not fit is refused with the place of the mistake."""

from __future__ import annotations

import enum
import json
import math
import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Generic, Literal, NewType, NotRequired, TypedDict, TypeVar

import pydantic
import pytest
from google.protobuf import struct_pb2, timestamp_pb2

from sealbus import AclMessage, BodyError, EncodeError, sl
from sealbus.body import decode, encode

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


@dataclass
class Bid:
    cost: float
    note: str | None = None


@dataclass
class Auction:
    title: str
    bids: list[Bid] = field(default_factory=list)
    colour: Colour = Colour.RED


@dataclass(frozen=True)
class Tree:
    name: str
    children: tuple[Tree, ...] = ()


@dataclass
class Page(Generic[T]):
    items: list[T]
    next: str | None


@dataclass
class Priced:
    unit_price: float = field(metadata={"name": "unit-price"})


@dataclass
class Circle:
    radius: float
    kind: Literal["circle"] = "circle"


@dataclass
class Square:
    side: float
    kind: Literal["square"] = "square"


@dataclass
class Node:
    """One of two types that contain each other."""

    left: Node | Leaf
    right: Node | Leaf


@dataclass
class Leaf:
    left: Node | Leaf
    right: Node | Leaf
    value: int


class Order(TypedDict):
    item: str
    count: NotRequired[int]


class Model(pydantic.BaseModel):
    name: str
    ports: list[int] = []


Name = NewType("Name", str)


@dataclass
class Everything:
    when: datetime
    length: timedelta
    key: uuid.UUID
    data: bytes
    tags: set[str]
    names: frozenset[Name]
    table: dict[int, list[float]]
    view: Mapping[str, Sequence[int]]
    pair: tuple[int, str]
    shape: Circle | Square
    number: int | float | str
    order: Order
    model: Model
    whatever: Any
    truth: bool
    level: Annotated[int, "from 0 to 9"]
    nothing: None = None


def message(content: str | bytes, language: str | None = None) -> AclMessage:
    return AclMessage("inform", "someone", content, language=language)


def problem(content: Any, kind: Any) -> str:
    """Why this JSON value is not of this type."""
    with pytest.raises(BodyError) as raised:
        decode(message(json.dumps(content)), kind)
    return str(raised.value)


def comes_back(body: Any, kind: Any = None) -> AclMessage:
    sent = AclMessage("inform", "someone", body=body)
    assert decode(sent, kind or type(body)) == body
    return sent


def test_a_dataclass_comes_back() -> None:
    sent = comes_back(Auction("tea", [Bid(2.5), Bid(3, "fresh")], Colour.GREEN))
    assert sent.language == "application/json"
    assert sent.content == '{"title":"tea","bids":[{"cost":2.5,"note":null},{"cost":3,"note":"fresh"}],"colour":"green"}'


def test_every_type_comes_back() -> None:
    comes_back(
        Everything(
            when=datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC),
            length=timedelta(seconds=90),
            key=uuid.UUID(int=7),
            data=b"\0\xff",
            tags={"a", "b"},
            names=frozenset({Name("c")}),
            table={1: [1.5], -2: []},
            view={"a": [1]},
            pair=(1, "one"),
            shape=Square(2.0),
            number=3,
            order={"item": "tea"},
            model=Model(name="m", ports=[1]),
            whatever=[{"a": None}],
            truth=True,
            level=9,
        )
    )
    comes_back(Tree("root", (Tree("leaf"), Tree("branch", (Tree("twig"),)))))
    comes_back(Page([Bid(1.0)], None), Page[Bid])
    comes_back({"a": [1, 2.5, "x", None, True]}, dict[str, Any])
    comes_back([Bid(1.0)], list[Bid])
    comes_back(5)
    assert comes_back(Priced(2.5)).content == '{"unit-price":2.5}'


def test_a_float_comes_back_as_itself() -> None:
    chance = random.Random(7)
    floats = [chance.uniform(-1, 1) * 10.0 ** chance.randrange(-300, 300) for _ in range(10_000)]
    comes_back(floats, list[float])


def test_a_typed_dictionary_comes_back() -> None:
    order: Order = {"item": "tea", "count": 2}
    comes_back(order, Order)
    assert problem({"count": 2}, Order) == "$.item: expected str, got nothing"
    assert problem({"item": "tea", "count": "2"}, Order) == "$.count: expected int, got str"


def test_a_pydantic_model_comes_back() -> None:
    sent = comes_back(Model(name="door", ports=[80, 443]))
    assert sent.language == "application/json"
    assert problem({"name": "door", "ports": [80, "x"]}, Model).startswith("$.ports[1]: ")
    assert problem([{"name": "door", "ports": [80, "x"]}], list[Model]).startswith("$[0].ports[1]: ")


def test_a_protobuf_message_comes_back() -> None:
    moment = timestamp_pb2.Timestamp(seconds=7)
    sent = comes_back(moment)
    assert (sent.language, sent.ontology) == ("application/protobuf", "google.protobuf.Timestamp")
    with pytest.raises(BodyError, match="expected the ontology google.protobuf.Struct"):
        decode(sent, struct_pb2.Struct)
    with pytest.raises(BodyError, match="no google.protobuf.Timestamp"):
        decode(sent.with_content(b"\xff\xff"), timestamp_pb2.Timestamp)


def test_text_and_bytes_come_back() -> None:
    assert comes_back("hello").language is None
    assert comes_back(b"\0\xff").language == "application/octet-stream"
    # Content is given as it is, a body with its language.
    assert AclMessage("inform", "someone", b"\0").language is None


@pytest.mark.parametrize(
    ("content", "kind", "expected"),
    [
        ({"bids": []}, Auction, "$.title: expected str, got nothing"),
        ({"title": "tea", "bids": [{"cost": 1}, {"cost": 1}, {"cost": "1"}]}, Auction,
         "$.bids[2].cost: expected float, got str"),
        ({"title": "tea", "bids": {}}, Auction, "$.bids: expected list, got dict"),
        ({"title": "tea", "colour": "blue"}, Auction, "$.colour: expected 'red' or 'green', got 'blue'"),
        ([], Auction, "$: expected Auction, got list"),
        (None, Auction, "$: expected Auction, got null"),
        ({"cost": True}, Bid, "$.cost: expected float, got bool"),
        (True, int, "$: expected int, got bool"),
        (1.5, int, "$: expected int, got float"),
        (2**70, int, "$: expected int, got float"),
        ({"a b": {"c": 1}}, dict[str, dict[str, str]], "$['a b'].c: expected str, got int"),
        ([1, "x"], tuple[int, int], "$[1]: expected int, got str"),
        ([1], tuple[int, int], "$: expected 2 items, got 1"),
        ([[1], [2, None]], list[list[int]], "$[1][1]: expected int, got null"),
        ([{}], set[Any], "$: an item cannot be in a set"),
        ({"side": "x", "kind": "square"}, Circle | Square, "$.side: expected float, got str"),
        ({"kind": "cube"}, Circle | Square, "$: expected Circle or Square, got dict"),
        ([1], int | str, "$: expected int or str, got list"),
        ("yesterday", datetime, "$: expected datetime, got 'yesterday'"),
        (["%%"], list[bytes], "$[0]: expected base64, got '%%'"),
        ({"x": 1}, dict[int, int], "$.x: expected the name of a member to be an int"),
        ({"name": "a", "children": [{"name": "b", "children": [{}]}]}, Tree,
         "$.children[0].children[0].name: expected str, got nothing"),
    ],
)  # fmt: skip
def test_the_place_of_a_mistake_is_told(content: Any, kind: Any, expected: str) -> None:
    assert problem(content, kind) == expected


def test_unknown_fields_are_passed_over() -> None:
    assert decode(message('{"cost": 1, "colour": [[]]}'), Bid) == Bid(1.0)


def test_a_field_that_a_class_sets_itself_may_be_missing() -> None:
    @dataclass
    class Basket:
        items: list[str]
        size: int = field(init=False)
        kind: Literal["basket"] = field(default="basket", init=False)

        def __post_init__(self) -> None:
            self.size = len(self.items)

    @dataclass
    class Shelf:
        items: list[str]
        kind: Literal["shelf"] = field(default="shelf", init=False)

    for content in ('{"items": ["tea"]}', '{"items": ["tea"], "size": 1, "kind": "basket"}'):
        assert decode(message(content), Basket) == decode(message(content), Basket | Bid) == Basket(["tea"])
    # Where it is there, it tells the types apart.
    assert decode(message('{"items": [], "kind": "shelf"}'), Basket | Shelf) == Shelf([])
    comes_back(Basket(["tea"]), Basket | Shelf)


def test_what_a_class_checks_itself_is_not_understood() -> None:
    @dataclass
    class Even:
        number: int

        def __post_init__(self) -> None:
            if self.number % 2:
                raise ValueError("it is odd")

    assert problem([{"number": 2}, {"number": 3}], list[Even]) == "$[1]: no Even: it is odd"


def test_a_class_that_raises_in_its_own_way_is_told_without_its_words() -> None:
    @dataclass
    class Odd:
        number: int

        def __post_init__(self) -> None:
            raise KeyError("the safe's number is 4711")

    with pytest.raises(BodyError) as raised:
        decode(message('{"number": 1}'), Odd)
    assert str(raised.value) == "$: no Odd" and isinstance(raised.value.__cause__, KeyError)
    assert problem([{"number": 1}], list[Odd]) == "$: no list"


def test_the_language_is_checked_if_there_is_one() -> None:
    assert decode(message('{"cost": 1}', "application/json; charset=utf-8"), Bid) == Bid(1.0)
    kinds: list[Any] = [Bid, Model, dict[str, Any], bytes, timestamp_pb2.Timestamp]
    for kind in kinds:
        with pytest.raises(BodyError, match=r"^\$: expected the language application/.*, got fipa-sl"):
            decode(message('{"cost": 1}', "fipa-sl"), kind)
    for kind in [str, *kinds]:
        with pytest.raises(BodyError, match="no content"):
            decode(AclMessage("inform", "someone"), kind)
    with pytest.raises(BodyError, match="got bytes"):
        decode(message(b"\xff"), str)


def test_a_body_sets_the_language_alone() -> None:
    with pytest.raises(ValueError, match="pass either a body"):
        AclMessage("inform", "someone", "x", body=Bid(1.0))
    with pytest.raises(ValueError, match="pass either a body"):
        AclMessage("inform", "someone", language="fipa-sl", body=Bid(1.0))
    named = AclMessage("inform", "someone", ontology="trade", body=Bid(1.0))
    assert named.ontology == "trade"
    reply = message("(x)", "fipa-sl").replace(ontology="trade").create_reply("inform", Bid(1.0))
    assert (reply.language, reply.ontology) == ("application/json", None)
    assert message("x").replace(body=Bid(1.0)).language == "application/json"


def test_a_body_that_is_none_is_no_body() -> None:
    said = AclMessage("inform", "someone", ontology="trade", body=Bid(1.0))
    assert said.replace(body=None) == AclMessage("inform", "someone", body=None) == AclMessage("inform", "someone")
    assert message("x").replace(ontology="trade", body=None).ontology == "trade"


def test_a_text_answers_a_typed_body_in_no_language() -> None:
    def answer(language: str, said: object) -> tuple[object, object]:
        reply = message("?", language).replace(ontology="trade").create_reply("inform", said)
        return reply.language, reply.ontology

    for language in ("application/json; charset=utf-8", "application/protobuf", "application/octet-stream"):
        assert answer(language, "seven") == answer(language, b"7") == (None, None)
    assert answer("fipa-sl0", "(seven)") == ("fipa-sl0", "trade")
    assert answer("prolog", "seven.") == ("prolog", "trade")
    assert answer("application/json", {"seven": 7}) == ("application/json", "trade")


def test_without_a_type_the_language_says_what_it_is() -> None:
    assert decode(AclMessage("inform", "someone", body=Bid(1.0))) == {"cost": 1.0, "note": None}
    assert decode(AclMessage("inform", "someone", body=b"\0")) == b"\0"
    assert decode(message("hello")) == "hello"


def test_values_that_json_cannot_write_are_errors() -> None:
    for value in (math.nan, math.inf, 2**64, "\ud800"):
        with pytest.raises(EncodeError):
            encode([value])
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(EncodeError, match="contains itself"):
        encode(circle)
    for strange in (object(), {(1, 2): 3}, [1j]):
        with pytest.raises(TypeError):
            encode(strange)


def test_a_dictionary_may_change_while_it_is_written() -> None:
    class Growing(Mapping[str, int]):
        def __iter__(self) -> Iterator[str]:
            body["more"] = 1
            return iter(())

        def __len__(self) -> int:
            return 0

        def __getitem__(self, name: str) -> int:
            raise KeyError(name)

    body: dict[str, object] = {"first": Growing(), "last": 2}
    assert json.loads(encode(body).content) == {"first": {}, "last": 2}

    class Shifting:
        def _sl_term(self) -> str:
            slots["more"] = 1
            return "first"

    slots: dict[str, object] = {"a": Shifting(), "b": 2}
    assert sl.write(sl.Predicate("p", slots)) == "((p :a first :b 2))"

    class Counting(int):
        def __str__(self) -> str:
            parameters["X-more"] = 1
            return "7"

    parameters: dict[str, Any] = {"X-a": Counting(7), "X-b": 2}
    assert AclMessage("inform", user_defined=parameters).user_defined == {"X-a": 7, "X-b": 2}


def test_types_that_json_cannot_say_are_errors() -> None:
    for kind in (complex, list[complex], dict[bytes, int], list[int] | tuple[int, ...], object().__class__.__call__):
        with pytest.raises(TypeError):
            decode(message("[]"), kind)


@pytest.mark.parametrize("content", ["", "{", "[1,]", "nan", "[1e999]", '"\\ud800"', "[1] [2]", "\0"])
def test_what_is_no_json_is_told(content: str) -> None:
    for kind in (Any, Bid, list[Any]):
        with pytest.raises(BodyError, match=r"^\$: no JSON: ") as raised:
            decode(message(content, "application/json"), kind if kind is not Any else None)
        assert len(str(raised.value)) < 200


def test_hostile_json_exhausts_nothing() -> None:
    deep = '{"left":' * 100_000
    with pytest.raises(BodyError, match="nested"):
        decode(message(deep), Node)
    with pytest.raises(BodyError, match="values"):
        decode(message("[" + "1," * 2_000_000 + "1]"), list[int])
    # Two types at each level, and no end fits either: nobody tries all combinations.
    tree = "{}"
    for _ in range(60):
        tree = f'{{"left":{tree},"right":{{}}}}'
    with pytest.raises(BodyError, match="expected Node or Leaf, got dict"):
        decode(message(tree), Node)
    with pytest.raises(BodyError) as raised:
        decode(message(json.dumps({"n" * 100_000: 1})), dict[str, str])
    assert len(str(raised.value)) < 200


def test_random_changes_of_a_body_are_read_or_told() -> None:
    chance = random.Random(7)
    text = encode(Auction("tea", [Bid(2.5), Bid(3, "fresh")], Colour.GREEN)).content
    assert isinstance(text, str)
    refused = 0
    for _ in range(5000):
        changed = list(text)
        for _ in range(chance.randrange(1, 4)):
            changed[chance.randrange(len(changed))] = chr(chance.randrange(32, 127))
        try:
            assert isinstance(decode(message("".join(changed)), Auction), Auction)
        except BodyError as told:
            assert told.place.startswith("$")
            refused += 1
    assert 0 < refused < 5000

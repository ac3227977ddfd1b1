"""FIPA-SL as Python values, and the classes of ontologies."""

from __future__ import annotations

import math
import random
from dataclasses import field
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import pytest

from sealbus import AID, AclMessage, BodyError, DecodeError, EncodeError, sl
from sealbus.body import decode
from sealbus.ontology import Ontology, action, concept, predicate

trade = Ontology("trade")
seller = AID("seller@shop", addresses=["http://shop/acc"])


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@concept(trade)
class Item:
    title: str


@concept(trade)
class Book(Item):
    price: float
    authors: list[str] = field(default_factory=list)
    published: datetime | None = None
    signed: bool | None = None
    size: Size = Size.SMALL


@concept(trade, name="CD")
class Disc(Item):
    tracks: int = field(default=1, metadata={"name": "number-of-tracks"})


@action(trade)
class Sell:
    item: Item
    buyer: AID


@predicate(trade)
class Owns:
    owner: AID
    items: tuple[Book | Disc, ...]


@predicate(trade)
class Closed:
    pass


EXPRESSIONS = [
    "(true)",
    "((not (p a)))",
    "((action (agent-identifier :name j) (deliver box017 (loc 12 19))) (priority order567 low))",
    "((iota ?x (= (price widget) ?x)))",
    "((all (sequence ?x ?y) (and (p ?x) (or (q ?y) (implies (r) false)))))",
    "((forall ?x (exists ?y (equiv (p ?x) (p ?y)))))",
    "((B j (U j (PG j (I j p)))))",
    "((feasible (action j a) p) (done (action j a)) (done (; (action j a) (| (action j b) (action j c))) q))",
    '((result (action j a) (set 1 2.5 "a b" #2"\\x20 20260304T050607089Z)))'.replace("\\x20", "  "),
    "((p :a 1 :b (f :c (sequence))))",
]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_every_expression_comes_back(text: str) -> None:
    content = sl.read(text)
    again = sl.write(content)
    assert sl.read(again) == content


def test_values_of_python_are_terms() -> None:
    terms = ["a", "b c", 1, -2.5, b"\0", True, [1, [2]], {3}, datetime(2026, 3, 4, tzinfo=UTC), seller]
    assert sl.write(sl.Predicate("p", tuple(terms))) == (
        '((p a "b c" 1 -2.5 #1"\0 true (sequence 1 (sequence 2)) (set 3) 20260304T000000000Z '
        "(agent-identifier :name seller@shop :addresses (sequence http://shop/acc))))"
    )
    assert sl.write(sl.Content((True, sl.Action("j", sl.Function("f"))))) == "(true (action j (f)))"


def test_what_sl_cannot_say_is_told() -> None:
    for value in (math.inf, 2**63):
        with pytest.raises(ValueError):
            sl.write(sl.Predicate("p", (value,)))
        with pytest.raises(EncodeError):
            AclMessage("inform", body=sl.Predicate("p", (value,)))
    strange: list[Any] = [object(), {"a": 1}, sl.Not(True), Item]
    for value in strange:
        with pytest.raises(TypeError):
            sl.write(sl.Predicate("p", (value,)))
    for formula in ("text", 1, sl.Variable("x")):
        with pytest.raises(TypeError):
            sl.write(sl.Not(formula))
    with pytest.raises(ValueError, match="none of and, or"):
        sl.write(sl.Connective("xor", True, False))  # type: ignore[arg-type]
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="contains itself"):
        sl.write(sl.Predicate("p", (endless,)))


def test_what_is_no_sl_is_told_with_its_place() -> None:
    with pytest.raises(DecodeError) as told:
        sl.read("((p a)")
    assert told.value.offset == 6
    with pytest.raises(DecodeError):
        sl.read("(" * 100_000)
    with pytest.raises(BodyError, match=r"^\$: no SL: byte 0"):
        decode(AclMessage("inform", content="p", language="fipa-sl"))


def test_an_action_of_an_ontology_comes_back() -> None:
    book = Book("Agents talk", 12.5, ["a b"], datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC), True, Size.LARGE)
    message = AclMessage("request", seller, body=sl.Action(seller, Sell(book, AID("buyer@home"))))
    assert (message.language, message.ontology) == ("fipa-sl", "trade")
    assert message.content == (
        "((action (agent-identifier :name seller@shop :addresses (sequence http://shop/acc)) "
        '(Sell :item (Book :title "Agents talk" :price 12.5 :authors (sequence "a b") '
        ":published 20260304T050607000Z :signed true :size large) :buyer (agent-identifier :name buyer@home))))"
    )
    assert decode(message, Sell) == Sell(book, AID("buyer@home"))
    action = decode(message, sl.Content).expressions[0]
    assert trade.read(action) == sl.Action(seller, Sell(book, AID("buyer@home")))


def test_predicates_come_back() -> None:
    for body in (Owns(seller, (Book("a", 1.0), Disc("b", 7))), Closed()):
        assert decode(AclMessage("inform", body=body), type(body)) == body
    assert AclMessage("inform", body=Closed()).content == "(Closed)"
    disc = AclMessage("inform", body=Owns(seller, (Disc("b", 7),))).content
    assert disc == (
        "((Owns (agent-identifier :name seller@shop :addresses (sequence http://shop/acc)) "
        "(sequence (CD :title b :number-of-tracks 7))))"
    )
    # JADE leaves out an empty sequence.
    assert decode(AclMessage("inform", content="((Owns :owner (agent-identifier :name j)))"), Owns).items == ()


def test_a_text_is_no_truth_value() -> None:
    text = sl.write(sl.Predicate("p", ("true", True, "False", False)))
    assert text == '((p "true" true "False" false))'
    assert sl.read(text).expressions[0].arguments == ("true", True, "False", False)


def test_slots_come_in_any_form() -> None:
    text = "((OWNS (agent-identifier seller@shop) (set (book :PRICE 1 :Title a) (cd b 3))) (and p q))"
    read = decode(AclMessage("inform", content=text, language="FIPA-SL0"), Owns)
    assert read == Owns(seller, (Book("a", 1.0), Disc("b", 3)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("((Closed))", "$: expected (Owns …), got (Closed …)"),
        ("((action j (Sell)))", "$: expected (Owns …), got Action"),
        ("((Owns :owner j))", "$.owner: expected an agent-identifier, got str"),
        ("((Owns :items (sequence)))", "$.owner: expected a value, got nothing"),
        ("((Owns :owner (agent-identifier :name j) :items (sequence (Book :title a))))",
         "$.items[0].price: expected a value, got nothing"),
        ("((Owns :owner (agent-identifier :name j) :items (sequence (Sell))))",
         "$.items[0]: expected Book or Disc, got (Sell …)"),
        ("((Owns :owner (agent-identifier :name j) :items (sequence (CD :title 5))))",
         "$.items[0].title: expected str, got int"),
        ("((Owns a b c))", "$: expected 2 slots, got 3"),
        ("((Owns :owner (agent-identifier)))", "$.owner: expected str, got NoneType"),
    ],
)  # fmt: skip
def test_the_place_of_a_mistake_is_told(text: str, expected: str) -> None:
    with pytest.raises(BodyError) as told:
        decode(AclMessage("inform", content=text), Owns)
    assert str(told.value) == expected


def test_language_and_ontology_are_checked() -> None:
    message = AclMessage("inform", body=Closed())
    with pytest.raises(BodyError, match="expected the ontology trade, got music"):
        decode(message.replace(ontology="music"), Closed)
    with pytest.raises(BodyError, match="expected the language fipa-sl"):
        decode(message.replace(language="application/json"), Closed)
    with pytest.raises(BodyError, match="expected an action"):
        decode(message, Sell)


def test_only_what_says_something_is_a_body() -> None:
    with pytest.raises(TypeError, match="Action"):
        AclMessage("request", body=Sell(Book("a", 1.0), seller))
    with pytest.raises(TypeError, match="says nothing by itself"):
        AclMessage("inform", body=Book("a", 1.0))
    with pytest.raises(ValueError, match="has a Sell already"):
        trade.add("action", type("Sell", (), {}))


def test_random_changes_of_sl_are_read_or_told() -> None:
    chance = random.Random(7)
    text = AclMessage("inform", body=Owns(seller, (Book("a", 1.0, ["x"]), Disc("b", 7)))).content
    assert isinstance(text, str)
    refused = 0
    for _ in range(5000):
        changed = list(text)
        for _ in range(chance.randrange(1, 3)):
            changed[chance.randrange(len(changed))] = chr(chance.randrange(32, 127))
        try:
            assert isinstance(decode(AclMessage("inform", content="".join(changed)), Owns), Owns)
        except BodyError as told:
            assert told.place.startswith("$")
            refused += 1
    assert 0 < refused < 5000

"""Classes of an ontology are read and written by JADE's SLCodec with an Ontology of the same schema."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from conftest import LIMIT, Jade, Ours
from sealbus import AID, AclMessage, BodyError, Performative, sl
from sealbus.body import decode
from sealbus.ontology import Ontology, action, concept, predicate

books = Ontology("book-trading")


@concept(books)
class Book:
    title: str
    price: float
    authors: list[str]
    edition: int | None = None
    published: datetime | None = None
    signed: bool | None = None


@action(books)
class Sell:
    item: Book
    buyer: AID


@predicate(books)
class Owns:
    owner: AID
    item: Book


BOOKS = [
    Book("Agents", 12.5, []),
    Book('With "quotes" \\ and (brackets)', 0.25, ["A. Author", "b"], edition=3),
    Book("12", 1e10, ["12", "true", "?x", ":y", "two\nlines"], signed=True),
    Book("Published", 3.0, [""], 0, datetime(2026, 3, 4, 5, 6, 7, 89000, tzinfo=UTC), False),
]


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.title[:8])
async def test_jade_does_an_action_of_the_ontology(book: Book, jade: Callable[..., Jade], ours: Ours) -> None:
    plat1 = jade(seller="Bookseller")
    buyer = await ours.agent("buyer")
    seller = plat1.aid("seller")
    request = AclMessage("request", seller, body=sl.Action(seller, Sell(book, ours.aid("buyer"))))
    answer = await buyer.request(request, timeout=LIMIT)
    assert answer.performative == Performative.INFORM, answer.content_text
    assert (answer.language, answer.ontology) == ("fipa-sl", "book-trading")
    owns = answer.body_as(Owns)
    assert owns.owner == ours.aid("buyer")
    assert owns.item == Book(book.title, 2 * book.price, book.authors, book.edition, book.published, book.signed)
    with pytest.raises(BodyError, match="expected an action"):
        answer.body_as(Sell)


async def test_jade_writes_what_we_write(jade: Callable[..., Jade], ours: Ours) -> None:
    plat1 = jade(seller="Bookseller")
    asker = await ours.agent("asker")
    for book in BOOKS:
        question = AclMessage("query-if", plat1.aid("seller"), body=Owns(AID("someone@factory"), book))
        answer = await asker.request(question, timeout=LIMIT)
        assert answer.performative == Performative.INFORM, answer.content_text
        assert answer.body_as(Owns) == decode(question, Owns)


async def test_jade_does_not_understand_another_schema(jade: Callable[..., Jade], ours: Ours) -> None:
    plat1 = jade(seller="Bookseller")
    asker = await ours.agent("asker")
    question = AclMessage(
        "query-if",
        plat1.aid("seller"),
        "((Owns :item 5))",
        language="fipa-sl",
        ontology="book-trading",
    )
    answer = await asker.request(question, timeout=LIMIT)
    assert answer.performative == Performative.NOT_UNDERSTOOD

"""Messages, agent identifiers and encodings."""

import copy
import pickle
from datetime import UTC, datetime, timedelta

import pytest

import sealbus
from sealbus import (
    AID,
    AclError,
    AclMessage,
    AgentFailed,
    BodyError,
    ConversationError,
    ConversationTimeout,
    DecodeError,
    DirectoryError,
    EncodeError,
    Filter,
    FilterError,
    Performative,
    Refuse,
    RequestTimeout,
    SealbusError,
    acl,
)


def full_message() -> AclMessage:
    return AclMessage(
        Performative.PROPOSE,
        [AID("buyer@factory", addresses=["http://127.0.0.1:7778/acc"]), "broker@factory"],
        "((price box 12))",
        sender="seller@factory",
        reply_to="accountant@factory",
        language="fipa-sl",
        encoding="utf-8",
        ontology="trade",
        protocol="fipa-contract-net",
        conversation_id="sale 7",
        reply_with="r1",
        in_reply_to="q1",
        reply_by=datetime(2026, 11, 21, 8, 30, 15, 250_000, tzinfo=UTC),
        user_defined={"X-hops": 3, "X-trace": "a b", "X-raw": b"raw", "X-list": ["a", 2.5]},
    )


# ----- agent identifiers


def test_an_aid_is_its_name() -> None:
    aid = AID("seller-1@factory", addresses=["http://a/acc"], user_defined={"X-shift": "night"})
    assert (aid.name, aid.local_name, aid.platform) == ("seller-1@factory", "seller-1", "factory")
    assert aid.addresses == ("http://a/acc",)
    assert aid.user_defined == {"X-shift": "night"}
    assert aid == AID("seller-1@factory")
    assert hash(aid) == hash(AID("seller-1@factory"))
    assert aid != AID("seller-2@factory")
    assert aid != "seller-1@factory"
    assert str(aid) == "seller-1@factory"
    assert AID("broker", resolvers=[aid]).resolvers == (aid,)
    assert AID("broker").platform is None


@pytest.mark.parametrize("name", ["", "@factory", "seller@", "a b@factory", "a\n@factory", 'a"b', "a(b)"])
def test_an_illegal_name_is_refused(name: str) -> None:
    with pytest.raises(AclError, match="is not an agent name"):
        AID(name)
    with pytest.raises(ValueError):
        AclMessage("inform", name)


def test_aids_and_messages_can_be_pickled() -> None:
    aid = AID("seller@factory", addresses=["http://a/acc"], user_defined={"X-n": 1})
    again = pickle.loads(pickle.dumps(aid))
    assert (again, again.addresses, again.user_defined) == (aid, aid.addresses, aid.user_defined)
    message = full_message()
    assert pickle.loads(pickle.dumps(message)) == message


ERRORS: list[SealbusError] = [
    AgentFailed("anna@home", "setup raised ValueError"),
    BodyError("$.hours", "expected float, got str"),
    ConversationError("anna@home", "ben refused", "refused", AclMessage("refuse", "anna")),
    ConversationTimeout("anna@home", "ben did not answer", "timed-out"),
    DecodeError("expected '('", 7),
    DirectoryError("anna@home", "the DF refused", "unauthorised"),
    EncodeError("too long", "content"),
    FilterError("there is no variable", 3, 1, 4),
    Refuse("busy"),
    RequestTimeout("anna@home", "ben did not reply"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_can_be_pickled_and_copied(error: SealbusError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


# ----- messages


def test_a_message_keeps_what_it_was_given() -> None:
    message = full_message()
    assert message.performative == "propose"
    assert message.performative is Performative.PROPOSE
    assert [aid.name for aid in message.receivers] == ["buyer@factory", "broker@factory"]
    assert message.receivers[0].addresses == ("http://127.0.0.1:7778/acc",)
    assert message.sender == AID("seller@factory")
    assert message.reply_to == (AID("accountant@factory"),)
    assert message.content == message.content_text == "((price box 12))"
    assert message.content_bytes == b"((price box 12))"
    assert (message.language, message.encoding, message.ontology) == ("fipa-sl", "utf-8", "trade")
    assert message.protocol == "fipa-contract-net"
    assert (message.conversation_id, message.reply_with, message.in_reply_to) == ("sale 7", "r1", "q1")
    assert message.reply_by == datetime(2026, 11, 21, 8, 30, 15, 250_000, tzinfo=UTC)
    assert message.user_defined == {
        "X-hops": 3,
        "X-trace": "a b",
        "X-raw": b"raw",
        "X-list": ["a", 2.5],
    }


@pytest.mark.parametrize("text", ["42", "007", "12345E67", "1.50", "+7", "0x1F", "20261121T083015250Z", "größe", "a b"])
@pytest.mark.parametrize("representation", acl.representations())
def test_text_stays_text(text: str, representation: str) -> None:
    message = AclMessage(
        "inform",
        language=text,
        ontology=text,
        conversation_id=text,
        reply_with=text,
        in_reply_to=text,
        user_defined={"X-text": text, "X-list": [text, 3]},
    )
    read = acl.decode(acl.encode(message, representation), representation)
    assert (read.language, read.ontology, read.conversation_id) == (text,) * 3
    assert (read.reply_with, read.in_reply_to) == (text, text)
    assert read.user_defined == {"X-text": text, "X-list": [text, 3]}


@pytest.mark.parametrize("text", ["42", "007", "12345E67", "1.50", "+7", "20261121T083015250Z"])
def test_an_identifier_without_quotes_is_text(text: str) -> None:
    wire = f"(inform :reply-with {text} :conversation-id {text} :X-id {text})"
    message = acl.decode(wire.encode(), "string")
    assert (message.conversation_id, message.reply_with) == (text, text)
    answer = acl.decode(acl.encode(message.create_reply("agree")))
    assert (answer.conversation_id, answer.in_reply_to) == (text, text)


def test_a_number_that_python_writes_in_another_way_is_text() -> None:
    message = acl.decode(b"(inform :X-count 3 :X-price 2.5 :X-code 007 :X-id 12345E67)", "string")
    assert message.user_defined == {"X-count": 3, "X-price": 2.5, "X-code": "007", "X-id": "12345E67"}


def test_an_empty_message_has_nothing() -> None:
    message = AclMessage("inform")
    assert (message.sender, message.content, message.protocol, message.reply_by) == (None,) * 4
    assert message.receivers == message.reply_to == ()
    assert message.user_defined == {}


def test_a_performative_of_ones_own_is_on_purpose() -> None:
    for own in ("x-whistle", "X-Whistle", Performative.own("whistle")):
        message = AclMessage(own, "seller@factory")
        assert message.performative == own
        assert not isinstance(message.performative, Performative)
        received = acl.decode(acl.encode(message))
        assert received.performative == own
        # Any performative that was received can be sent again.
        assert received.create_reply(received.performative).performative == own
        assert received.replace(performative=received.performative) == message
        assert Filter(received.performative).takes(message)
    assert AclMessage("REQUEST").performative is Performative.REQUEST


@pytest.mark.parametrize("slip", ["reqest", "infrom", "whistle", "x"])
def test_a_slip_of_the_pen_is_no_performative(slip: str) -> None:
    hint = {"reqest": "did you mean 'request'", "infrom": "did you mean 'inform'"}.get(slip, "not one of FIPA's")
    message = AclMessage("inform", "seller@factory")
    with pytest.raises(AclError, match=hint):
        AclMessage(slip)
    with pytest.raises(AclError, match=hint):
        message.replace(performative=slip)
    with pytest.raises(AclError, match=hint):
        message.create_reply(slip)
    with pytest.raises(AclError, match=hint):
        Filter(slip)


def test_the_performatives_are_those_of_fipa() -> None:
    assert [str(act) for act in Performative] == acl.performatives()


def test_changes_make_another_message() -> None:
    message = full_message()
    changed = message.replace(content=b"\xff", protocol=None, reply_by=timedelta(seconds=90))
    assert changed.content == changed.content_bytes == b"\xff"
    assert changed.content_text is None
    assert changed.protocol is None
    assert changed.reply_by == timedelta(seconds=90)
    assert changed.receivers == message.receivers
    assert message == full_message() != changed
    assert message.with_content("other") == message.replace(content="other")
    with pytest.raises(TypeError, match="no parameter 'contents'"):
        message.replace(contents="x")  # type: ignore[call-arg]


def test_a_reply_goes_where_it_was_asked_to() -> None:
    reply = full_message().create_reply(Performative.ACCEPT_PROPOSAL, "done")
    assert reply.receivers == (AID("accountant@factory"),)
    assert (reply.conversation_id, reply.in_reply_to) == ("sale 7", "r1")
    assert (reply.protocol, reply.content) == ("fipa-contract-net", "done")
    direct = full_message().replace(reply_to=None).create_reply("refuse")
    assert direct.receivers == (AID("seller@factory"),)


@pytest.mark.parametrize(
    "moment",
    [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
        datetime(2026, 2, 3, 4, 5, 6, 7_000),
        datetime(1, 1, 1),
        timedelta(milliseconds=1),
        timedelta(days=400, seconds=3),
        -timedelta(hours=5),
    ],
)
def test_moments_come_back_to_the_millisecond(moment: datetime | timedelta) -> None:
    assert AclMessage("inform", reply_by=moment).reply_by == moment
    assert acl.decode(acl.encode(AclMessage("inform", reply_by=moment))).reply_by == moment


def test_what_cannot_stand_in_a_message_is_refused() -> None:
    with pytest.raises(AclError, match="content is str or bytes, not dict"):
        AclMessage("inform", "a@b", {})  # type: ignore[arg-type]
    with pytest.raises(AclError, match="a performative is"):
        AclMessage(7)  # type: ignore[arg-type]
    with pytest.raises(AclError, match="not bool"):
        AclMessage("inform", ontology=True)
    with pytest.raises(AclError, match="not a number"):
        AclMessage("inform", ontology=float("nan"))
    nested: list[object] = []
    for _ in range(40):
        nested = [nested]
    with pytest.raises(AclError, match="nested"):
        AclMessage("inform", ontology=nested)  # type: ignore[arg-type]


# ----- encodings


@pytest.mark.parametrize("representation", acl.representations())
def test_every_representation_brings_back_the_message(representation: str) -> None:
    message = full_message()
    encoded = acl.encode(message, representation)
    assert acl.decode(encoded, representation) == message
    assert acl.decode(bytearray(encoded), representation) == message


def test_binary_content_survives() -> None:
    message = AclMessage("inform", "a@b", bytes(range(256)))
    for representation in ("bitefficient", "string"):
        assert acl.decode(acl.encode(message, representation), representation).content == bytes(range(256))


def test_str_is_the_string_encoding() -> None:
    message = AclMessage("request", "seller@factory", "sell box", sender="buyer@factory")
    text = str(message)
    assert text.startswith("(request")
    assert acl.decode(text.encode(), "string") == message
    assert repr(message) == "<AclMessage request from buyer@factory to seller@factory>"


def test_a_decode_error_says_where() -> None:
    encoded = acl.encode(full_message(), "string")
    with pytest.raises(DecodeError) as caught:
        acl.decode(encoded[:-1], "string")
    assert caught.value.offset == len(encoded) - 1
    assert "expected" in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, sealbus.SealbusError)
    with pytest.raises(DecodeError):
        acl.decode(b"")


def test_an_encode_error_names_the_field() -> None:
    message = AclMessage("inform", "a@b", "a\x00b")
    with pytest.raises(EncodeError) as caught:
        acl.encode(message, "xml")
    assert "content" in caught.value.field
    assert caught.value.field in str(caught.value)


def test_an_unknown_representation_is_refused_with_those_there_are() -> None:
    with pytest.raises(AclError, match="bitefficient"):
        acl.encode(full_message(), "morse")


def test_explain_accounts_for_every_byte() -> None:
    encoded = acl.encode(full_message())
    explanation = acl.explain(encoded)
    assert explanation.encoding == acl.representation_name("bitefficient")
    assert explanation.error is None
    covered = [at for piece in explanation.pieces for at in range(piece.start, piece.end)]
    assert covered == list(range(len(encoded)))
    assert any("propose" in piece.meaning for piece in explanation.pieces)
    assert all(piece.reference for piece in explanation.pieces)
    assert "propose" in str(explanation)


def test_explain_goes_as_far_as_it_can() -> None:
    encoded = acl.encode(full_message(), "string")
    explanation = acl.explain(encoded[:40], "string")
    assert explanation.pieces
    assert explanation.error is not None
    assert explanation.error.offset == 40
    with pytest.raises(AclError, match="no encoding"):
        acl.explain(b"\x00\x01")


def test_validate_tells_what_is_against_the_standard() -> None:
    assert acl.validate(AclMessage("inform", "b@f", "hi", sender="a@f", language="x-text")) == []
    findings = acl.validate(AclMessage("inform", "b@f", sender="a@f", protocol="fipa-request"))
    assert [finding.field for finding in findings if finding.severity == "error"] == ["conversation-id"]
    assert findings[0].message
    assert findings[0].reference

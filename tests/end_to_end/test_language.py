"""`sealbus acl`: messages through pipes, in every encoding."""

import base64
import itertools
import json

import pytest
from harness import sealbus

TEXT = b"""(request
  :sender (agent-identifier :name buyer@factory :addresses (sequence http://127.0.0.1:7778/acc))
  :receiver (set (agent-identifier :name seller@factory))
  :content "((action (agent-identifier :name seller@factory) (sell \\"book\\" 12)))"
  :language fipa-sl :protocol fipa-request :reply-with order-1 :conversation-id sale-7)"""
ENCODINGS = ["string", "bitefficient", "xml", "json"]


def convert(message: bytes, source: str, target: str) -> bytes:
    return sealbus("acl", "convert", "--from", source, "--to", target, stdin=message).stdout


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(ENCODINGS, 2)))
def test_every_pair_of_encodings_keeps_the_message(first, second):
    plain = convert(TEXT, "string", "string")
    there = convert(convert(TEXT, "string", first), first, second)
    assert convert(there, second, "string") == plain


def test_the_json_form_has_the_parameters():
    message = json.loads(convert(TEXT, "string", "json"))
    assert message["performative"] == "request"
    assert message["protocol"] == "fipa-request"
    assert '(sell "book" 12)' in message["content"]


def test_a_known_encoding_is_exact_to_the_byte():
    assert convert(b"(inform)", "string", "bitefficient") == bytes.fromhex("fa100801")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_validate_recognises_each_encoding_and_says_what_it_is(encoding):
    message = convert(TEXT, "string", encoding)
    told = json.loads(sealbus("acl", "validate", "--json", stdin=message).stdout)
    assert told["valid"] and told["performative"] == "request" and told["bytes"] == len(message)
    assert b"valid request" in sealbus("acl", "validate", "--from", encoding, stdin=message).stdout


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"(request :sender)", ["byte 16"]),
        (b"(request :content \"no end", ["byte"]),
        (bytes.fromhex("fa1008"), ["byte 3"]),
        (bytes.fromhex("fa20080101"), ["byte 1"]),
        (b"<fipa-message act='inform'><content>", ["byte"]),
        (b'{"performative": "inform", "contend": 1}', ["contend"]),
    ],
)
def test_an_invalid_message_is_an_error_with_its_place(message, said):
    done = sealbus("acl", "validate", stdin=message, expect=1)
    for word in said:
        assert word in done.stderr.decode()
    assert not done.stdout


def test_what_an_encoding_cannot_carry_is_named():
    nul = convert(b"(inform :content #3\"a\x00b)", "string", "bitefficient")
    done = sealbus("acl", "convert", "--from", "bitefficient", "--to", "xml", stdin=nul, expect=None)
    if done.returncode != 0:
        assert "content" in done.stderr.decode()
    else:
        assert convert(done.stdout, "xml", "bitefficient") == nul


def test_unknown_encodings_are_a_usage_error_that_lists_the_known():
    done = sealbus("acl", "convert", "--from", "morse", "--to", "xml", stdin=b"", expect=2)
    for encoding in ENCODINGS:
        assert encoding in done.stderr.decode()
    sealbus("acl", "validate", stdin=b"\x7f\x00", expect=2)


def test_explain_covers_every_byte_once_and_cites_the_standard():
    message = convert(TEXT, "string", "bitefficient")
    pieces = json.loads(sealbus("acl", "explain", "--json", stdin=message).stdout)
    position = 0
    for piece in pieces:
        assert piece["offset"] == position
        assert bytes.fromhex(piece["bytes"]) == message[position : position + len(piece["bytes"]) // 2]
        position += len(piece["bytes"]) // 2
        assert piece["meaning"]
    assert position == len(message)
    assert any("FIPA00069" in piece["reference"] for piece in pieces)
    shown = sealbus("acl", "explain", stdin=message).stdout.decode()
    assert "buyer@factory" in shown and "conversation-id" in shown


def test_explain_refuses_what_is_not_a_message():
    done = sealbus("acl", "explain", "--from", "bitefficient", stdin=bytes.fromhex("fa100803"), expect=1)
    assert "byte 4" in done.stderr.decode()


def test_a_file_may_be_named(tmp_path):
    file = tmp_path / "message.acl"
    file.write_bytes(TEXT)
    assert b"valid request" in sealbus("acl", "validate", file).stdout
    done = sealbus("acl", "validate", tmp_path / "none", expect=1)
    assert "none" in done.stderr.decode()


def test_what_is_converted_is_told_to_programs_as_json():
    message = b'(inform :receiver (set (agent-identifier :name a@p)) :content "hi")'
    convert = ("acl", "convert", "--from", "string", "--json", "--to")
    told = json.loads(sealbus(*convert, "string", stdin=message).stdout)
    assert told.keys() == {"encoding", "text"} and told["encoding"] == "fipa.acl.rep.string.std"
    assert "a@p" in told["text"]
    told = json.loads(sealbus(*convert, "bitefficient", stdin=message).stdout)
    assert told.keys() == {"encoding", "base64"}
    binary = base64.b64decode(told["base64"])
    assert binary == sealbus("acl", "convert", "--from", "string", "--to", "bitefficient", stdin=message).stdout

#!/usr/bin/env python3
# Longer than 500 lines: a reader who trusts nothing of Sealbus reads and runs this file alone.
"""Verifies a file of evidence of a Sealbus platform, with nothing of Sealbus.

    tools/verify_evidence.py --root factory.pem --against seen.checkpoint --quorum 2 --json order-17.evidence

It reads the formats of docs/evidence.md. It believes the root certificate, and nothing else in the file.
Exit code 0: all of it is proved. 1: it is not, and standard error says why. It needs Python 3.11 and `cryptography` with ML-DSA (50 has it).
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA65PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

LOG, WITNESS = 1, 4
PublicKey = Ed25519PublicKey | MLDSA65PublicKey
KINDS: tuple[Any, ...] = (Ed25519PublicKey, MLDSA65PublicKey)  # as batch keys number them, from 1
LENGTHS = {Ed25519PublicKey: (32, 64), MLDSA65PublicKey: (1952, 3309)}  # of keys and signatures
ML_DSA_65 = b"\xffsealbus ml-dsa-65 log v1\0"  # in the place of LOG
LEVELS = {3: "signed", 4: "sealed"}
REASONS = ("killed", "moved", "node-lost", "by-operator", "superseded", "ended")
IDENTITY = "1.2.840.113556.1.8000.2554.42964.34295.20436.19583.42606.4912364.344408.2"
HOLDING = IDENTITY[:-1] + "1"
SECOND = "2.5.29.72"  # subjectAltPublicKeyInfo
P = (1 << 255) - 19
ORDER_8 = 0x5FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
WEAK = (0, 1, P - 1, ORDER_8, P - ORDER_8)  # the values of y of keys that anybody can sign for
SKEW, PAGES = 10, 1024  # seconds that clocks may differ; half the pages of a deny list
MOST = 1024  # messages of a batch
ACTS = (
    "accept-proposal agree cancel cfp confirm disconfirm failure inform inform-if inform-ref not-understood propagate "
    "propose proxy query-if query-ref refuse reject-proposal request request-when request-whenever subscribe"
).split()


def need(condition: bool, why: str) -> None:
    if not condition:
        raise ValueError(why)


def sha256(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def field(text: str) -> bytes:
    return struct.pack(">Q", len(text.encode())) + text.encode()


def unbase64(text: Any) -> bytes:
    raw = base64.b64decode(text, validate=True)
    need(base64.b64encode(raw).decode() == text, "base64 is not in its one form")
    return raw


def spki(key: PublicKey) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def kind_of(key: PublicKey) -> Any:
    return next(kind for kind in KINDS if isinstance(key, kind))


def fields(value: Any, **kinds: Any) -> list[Any]:
    """The members of an object, which has these and no others."""
    need(type(value) is dict and value.keys() == kinds.keys(), "other members are wanted")
    for name, kind in kinds.items():
        found = value[name]
        need(isinstance(found, kind) and not isinstance(found, bool), f"{name} is of another type")
        need(not isinstance(found, int) or 0 <= found < 1 << 64, f"{name} is out of range")
        need(name == "earlier" or type(found) is not list or all(type(it) is str for it in found), f"{name}: no texts")
    return [value[name] for name in kinds]


class Bytes:  # they are read from their beginning
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        self.at += count
        need(self.at <= len(self.data), "bytes are missing")
        return self.data[self.at - count : self.at]

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def until_zero(self) -> bytes:
        end = self.data.index(0, self.at)
        return self.take(end + 1 - self.at)[:-1]


def node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01", left, right)


def split(size: int) -> int:
    return 1 << (size - 1).bit_length() - 1


def included(index: int, size: int, leaf: bytes, proof: list[bytes]) -> bytes:
    """The root, by an inclusion proof."""
    if size == 1:
        need(index == 0 and not proof, "the inclusion proof does not fit the log's size")
        return leaf
    *rest, last = proof
    if index < (left := split(size)):
        return node(included(index, left, leaf, rest), last)
    return node(last, included(index - left, size - left, leaf, rest))


def depth(index: int, size: int) -> int:
    """The hashes in an inclusion proof."""
    if size == 1:
        return 0
    left = split(size)
    return 1 + (depth(index, left) if index < left else depth(index - left, size - left))


def continued(old: int, size: int, proof: list[bytes], old_root: bytes, is_whole: bool = True) -> tuple[bytes, bytes]:
    """The roots of the old and the new tree, by a consistency proof. The old tree is not empty."""
    if old == size:
        need(len(proof) == (0 if is_whole else 1), "the consistency proof does not fit the sizes")
        return (old_root, old_root) if is_whole else (proof[0], proof[0])
    *rest, last = proof
    if old <= (left := split(size)):
        one, other = continued(old, left, rest, old_root, is_whole)
        return one, node(other, last)
    one, other = continued(old - left, size - left, rest, old_root, False)
    return node(last, one), node(last, other)


class Certificate:
    def __init__(self, der: bytes) -> None:
        self.der, self.x509 = der, x509.load_der_x509_certificate(der)
        key, extensions = self.x509.public_key(), self.x509.extensions
        if not isinstance(key, Ed25519PublicKey | MLDSA65PublicKey):
            raise ValueError("a key is neither Ed25519 nor ML-DSA-65")
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        (self.uri,) = names.get_values_for_type(x509.UniformResourceIdentifier)
        self.key, self.serial = key, self.x509.serial_number.to_bytes(16, "big")
        self.start = int(self.x509.not_valid_before_utc.timestamp())
        self.end = int(self.x509.not_valid_after_utc.timestamp())
        self.platform = self.uri.removeprefix("spiffe://").split("/")[0]
        self.is_ca = "/authority/" in self.uri
        constraints = [it.value for it in extensions if isinstance(it.value, x509.BasicConstraints)]
        need(self.is_ca == any(it.ca for it in constraints), f"{self.uri} is no CA, or a CA under another name")
        need(self.is_ca or isinstance(key, Ed25519PublicKey), f"the key of {self.uri} is not Ed25519")
        own = {it.oid.dotted_string: it.value.value for it in extensions if it.oid.dotted_string in (SECOND, IDENTITY)}
        need(not own or self.uri.split("/")[3] == "agent", f"{self.uri} is no agent and has what an agent may have")
        self.second = self.read_second(own[SECOND]) if SECOND in own else None
        self.identity = self.check_identity(own[IDENTITY]) if IDENTITY in own else None
        held = next((it.value.value for it in extensions if it.oid.dotted_string == HOLDING), b"\x0c\0")
        words = held[3 if held[1] == 0x81 else 2 :].decode().split(" ")  # a renewal names the number and start of its original
        self.originals = [(self.serial, self.start), *((bytes.fromhex(it), int(words[3])) for it in words[2:3])]

    def read_second(self, value: bytes) -> PublicKey:
        key = load_der_public_key(value)
        if not isinstance(key, MLDSA65PublicKey):
            raise ValueError("a second key is not ML-DSA-65")
        need(spki(key) == value, "a second key is not in its one form")
        return key

    def proof_key(self, kind: Any) -> PublicKey:
        """The key for proofs, which is of the algorithm of the platform's signatures."""
        own: PublicKey
        (own,) = [it for it in (self.key, self.second) if isinstance(it, kind)]
        return own

    def check_identity(self, value: bytes) -> str:
        """The fingerprint of the long-lived identity, which signed for this agent and this key."""
        need(value[:2] == b"\x04\x60" and len(value) == 98, "a long-lived identity cannot be read")
        need(int.from_bytes(value[2:34], "little") % (1 << 255) % P not in WEAK, "anybody can sign for the identity")
        public = Ed25519PublicKey.from_public_bytes(value[2:34])
        said = b"sealbus long-lived identity v1\0" + field(self.uri)
        for theirs in [spki(it) for it in (self.key, self.second) if it]:
            said += struct.pack(">Q", len(theirs)) + theirs
        public.verify(value[34:], said)
        return sha256(spki(public)).hex()


def read_chain(data: Bytes, is_all: bool = True) -> list[Certificate]:
    chain = [Certificate(data.take(data.number(2))) for _ in range(data.number(1))]
    need(0 < len(chain) <= 4 and (not is_all or data.at == len(data.data)), "they are no certificates")
    return chain


def check_chain(chain: list[Certificate], root: Certificate, then: int) -> None:
    """Each certificate is signed by the next, the last one by the root, and all are valid at that time."""
    for certificate, issuer in zip(chain, [*chain[1:], root], strict=True):
        need(certificate.platform == root.platform, f"{certificate.uri} is of another platform")
        need(issuer.is_ca, f"{issuer.uri} is no CA")
        is_alike = not certificate.is_ca or kind_of(certificate.key) is kind_of(root.key)
        need(is_alike, f"the key of {certificate.uri} is of another algorithm than the root's")
        certificate.x509.verify_directly_issued_by(issuer.x509)
        need(certificate.start - SKEW <= then <= certificate.end + SKEW, f"{certificate.uri} was not certified then")


class Checkpoint:
    def __init__(self, note: str) -> None:
        head, separator, tail = note.rpartition("\n\n")
        need(bool(separator) and head.count("\n") == 2 and tail.endswith("\n"), "it is no checkpoint")
        self.text = head + "\n"
        self.origin, size, root = head.split("\n")
        need(size.isascii() and size.isdigit() and str(int(size)) == size, "it states no size")
        self.size, self.root = int(size), unbase64(root)
        need(len(self.root) == 32, "it states no root")
        lines = [line.split(" ") for line in tail[:-1].split("\n")]
        need(all(len(line) == 3 and line[0] == "\u2014" for line in lines), "a line is no signature")
        self.signatures = [(name, unbase64(signature)) for _, name, signature in lines]

    def signed(self, name: str, kind: int, public: PublicKey) -> int:
        """The latest time that a good signature of this key states, 0 for a log."""
        raw = public.public_bytes(Encoding.Raw, PublicFormat.Raw)
        mark = bytes([kind]) if isinstance(public, Ed25519PublicKey) else ML_DSA_65
        hint = sha256(name.encode(), b"\n", mark, raw)[:4]
        times = []
        for rest in [made[4:] for signer, made in self.signatures if (signer, made[:4]) == (name, hint)]:
            text, at = self.text, 0
            if kind == WITNESS:
                at, rest = int.from_bytes(rest[:8], "big"), rest[8:]
                text = f"cosignature/v1\ntime {at}\n{text}"
            with suppress(InvalidSignature):
                public.verify(rest, text.encode())
                times.append(at)
        need(bool(times), f"{name} has not signed the checkpoint")
        return max(times)


class DenyList:
    def __init__(self, raw: bytes, root: Certificate) -> None:
        data = Bytes(raw)
        need(data.take(21) == b"sealbus deny list v2\0", "it is no deny list")
        authority = read_chain(data, is_all=False)[0]
        check_chain([authority], root, authority.end)
        need(authority.is_ca, f"{authority.uri} is no CA")
        self.version, _ = data.number(8), data.number(8)
        counts, digest = (data.number(4), data.number(4)), data.take(32)
        signed = raw[: data.at]
        authority.key.verify(data.take(LENGTHS[kind_of(authority.key)][1]), signed)
        need(data.number(8) == 0, "the deny list is not whole")
        self.serials, self.identities = dict[bytes, dict[str, Any]](), dict[str, tuple[int, dict[str, Any]]]()
        pages = [bytearray() for _ in range(2 * PAGES)]
        for _ in range(data.number(4)):
            start, serial = data.at, data.take(16)
            self.serials[serial] = self.denial(data)
            pages[int.from_bytes(serial[14:], "big") % PAGES] += raw[start : data.at]
        for _ in range(data.number(4)):
            start, name = data.at, data.take(data.number(2))
            before, value = data.number(8), 0xCBF29CE484222325
            self.identities[name.decode()] = (before, self.denial(data))
            for byte in name:
                value = (value ^ byte) * 0x100000001B3 % (1 << 64)
            pages[PAGES + value % PAGES] += raw[start : data.at]
        need(data.at == len(raw), "bytes follow the deny list")
        need((len(self.serials), len(self.identities)) == counts, "entries of the deny list are missing")
        entries = sha256(b"sealbus deny list entries v3\0", *(sha256(bytes(page)) for page in pages))
        need(entries == digest, "the deny list's entries are not those that were signed")

    def of(self, chain: list[Certificate]) -> dict[str, Any] | None:
        """The denial of a CA behind a certificate; else its own, or that of its original: an operator's first."""
        before, by_name = self.identities.get(chain[0].uri, (0, None))
        found = [self.serials.get(it.serial) for it in chain[1:]]
        if not any(found):
            for serial, start in chain[0].originals:
                found += [self.serials.get(serial), by_name if start < before else None]
        return min((it for it in found if it), key=lambda it: it["reason"] != "by-operator", default=None)

    def denial(self, data: Bytes) -> dict[str, Any]:
        at, reason, _ = data.number(8), data.number(1), data.number(8)
        need(reason < len(REASONS), "the deny list gives an unknown reason")
        return {"at": at, "reason": REASONS[reason]}


class Acl(Bytes):
    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        need(self.number(1) == 0xFA and self.number(1) >> 4 == 1, "it is no ACL message")
        act = self.number(1)
        need(act <= len(ACTS), "it has an unknown act")
        self.performative = ACTS[act - 1] if act else self.word()
        self.found, self.raw = dict[int, Any](), dict[int, Any]()
        while (code := self.number(1)) != 1:
            start = self.at
            if code == 0:  # a user-defined parameter
                self.word()
                self.expression()
                continue
            need(2 <= code <= 13 and code not in self.found, "an ACL parameter is unknown, or there twice")
            if code == 2:
                self.found[code] = self.aid()
            elif code in (3, 8):
                self.found[code] = [self.aid() for _ in self.until_one()]
            elif code == 6:  # a time: a letter may follow its nine bytes
                self.found[code] = self.take(9 + (self.number(1) >> 2 & 1))
            else:
                self.found[code] = b"" if code == 4 and self.data[self.at] <= 13 else self.expression()
            # Agents are compared by their names, expressions byte by byte.
            self.raw[code] = self.found[code] if code in (2, 3, 8) else self.data[start : self.at]

    def until_one(self) -> Iterator[None]:
        while self.data[self.at] != 1:
            yield
        self.take(1)

    def word(self) -> str:
        need(self.number(1) == 0x10, "a word is wanted")
        return self.until_zero().decode()

    def aid(self) -> str:
        need(self.number(1) == 2, "an agent is wanted")
        name = self.word()
        for _ in self.until_one():
            code = self.number(1)
            need(2 <= code <= 4, "an agent's parameter is unknown")
            if code == 4:
                self.word()
                self.expression()
                continue
            for _ in self.until_one():
                self.word() if code == 2 else self.aid()
        return name

    def expression(self) -> bytes | None:
        """The value, if it is one text or one byte string."""
        self.at += self.data[self.at] == 0xFF  # text in the string encoding
        found, depth, count = None, 0, 0
        while True:
            tag, count = self.number(1), count + 1
            kind, bracket = tag & 15, tag >> 4
            need(tag in (0x60, 0x40) or bracket in (1, 5, 7), "an expression is wanted")
            depth += {6: 1, 7: 1, 4: -1, 5: -1, 1: 0}[bracket]
            if kind in (0, 4) and bracket not in (4, 6):
                found = self.until_zero()
            elif kind in (2, 3):
                while self.number(1) & 15:
                    pass
            elif tag not in (0x60, 0x40):
                width = {6: 1, 7: 2, 9 if bracket == 1 else 8: 4}.get(kind, 0)
                need(width > 0, "an expression is wanted")
                found = self.take(self.number(width))
            need(depth >= 0, "an expression ends too early")
            if depth == 0:
                return found if count == 1 else None

    def report(self) -> dict[str, Any]:
        told = {"performative": self.performative, "in_reply_to": self.text(7), "content": self.text(4)}
        return told | {"content_sha256": sha256(self.found[4]).hex() if 4 in self.found else None}

    def text(self, code: int) -> str | None:
        found = self.found.get(code)
        text = None if found is None else found.decode(errors="replace")
        return text if text is not None and text.encode() == found else None


class File:
    def __init__(self, raw: bytes, options: argparse.Namespace) -> None:
        self.options, self.line, self.least = options, 1, 0  # the first message whose words may be disclosed next
        need(raw.endswith(b"\n") and raw.count(b"\n") > 1, "the file is cut short")
        body = raw[: raw.rindex(b"\n", 0, -1) + 1]
        last = b'{"sha256":"%s"}\n' % hashlib.sha256(body).hexdigest().encode()
        need(raw == body + last, "the file was changed or cut short")
        self.lines = body[:-1].split(b"\n")
        self.authors, self.signatures, self.acls = list[SimpleNamespace](), set[bytes](), list[Acl]()

    def next(self, kind: str) -> Any:
        """The next line, whose only member has this name."""
        def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            need(len({name for name, _ in pairs}) == len(pairs), "a member is there twice")
            return dict(pairs)

        self.line += 1
        value = json.loads(self.lines[self.line - 2].decode(), object_pairs_hook=once)
        need(list(value) == [kind], f"a line {kind} is wanted")
        return value[kind]

    def report(self) -> dict[str, Any]:
        head = self.next("evidence")
        version, platform, *_ = fields(head, version=int, platform=str, exported=int, asked=str, gaps=list)
        need(version == 2, f"the format has version {version}")
        self.root = Certificate(unbase64(self.next("root")))
        need(self.root.platform == platform, "the root is of another platform")
        check_chain([self.root], self.root, self.root.start)
        need(self.options.root in (None, self.root.der), "the root certificate is not the one that was given")
        log = self.check_log(self.next("log"))
        self.denied = DenyList(unbase64(self.next("denied")), self.root)
        messages: list[dict[str, Any]] = []
        while self.line <= len(self.lines):
            start = self.lines[self.line - 1][:13]
            if start == b'{"disclosed":':
                self.check_disclosed(self.next("disclosed"), messages)
            elif start[:11] == b'{"message":' and self.least == 0:
                messages.append(self.check_message(self.next("message")))
            else:
                need(not messages, "such a line has no place here")
                self.authors.append(self.check_certificate(self.next("certificate")))
        need(len({(it["serial"], it["number"]) for it in messages}) == len(messages), "a message stands there twice")
        told = {"platform": platform, "root": sha256(self.root.der).hex(), "exporter": head, "log": log}
        return told | {"denied_version": self.denied.version, "messages": messages}

    def check_log(self, line: Any) -> dict[str, Any]:
        raw, note, witnesses, earlier = fields(line, authority=str, checkpoint=str, witnesses=list, earlier=list)
        authority = Certificate(unbase64(raw))
        check_chain([authority], self.root, authority.end)
        need(authority.is_ca, f"{authority.uri} is no CA")
        name = f"{authority.uri}/issuance"

        def opened(note: str) -> Checkpoint:
            found = Checkpoint(note)
            need(found.origin == name, "the checkpoint is of another log")
            found.signed(name, LOG, authority.key)
            return found

        self.checkpoint = opened(note)
        cosigned: list[dict[str, Any]] = []
        for raw in witnesses:
            chain = read_chain(Bytes(unbase64(raw)))
            uri = chain[0].uri
            is_node = uri.startswith(f"spiffe://{self.root.platform}/node/") and uri.count("/") == 4
            need(is_node, f"{uri} is no node")
            need(uri not in [it["witness"] for it in cosigned], f"{uri} is there twice among the witnesses")
            at = self.checkpoint.signed(uri, WITNESS, chain[0].key)
            check_chain(chain, self.root, at)
            cosigned.append({"witness": uri, "at": at * 1000})
        for text in self.options.witness:
            uri, _, key = text.split("+", 2)
            public = Ed25519PublicKey.from_public_bytes(unbase64(key)[1:])
            at = self.checkpoint.signed(uri, WITNESS, public)
            if uri not in [it["witness"] for it in cosigned]:
                cosigned.append({"witness": uri, "at": at * 1000})
        need(len(cosigned) >= self.options.quorum, f"only {len(cosigned)} witnesses cosigned the checkpoint")
        known = [self.checkpoint]
        for each in earlier:
            note, proof = fields(each, checkpoint=str, proof=list)
            old, hashes = opened(note), [unbase64(part) for part in proof]
            need(0 < old.size <= self.checkpoint.size, "the log was cut off")
            roots = continued(old.size, self.checkpoint.size, hashes, old.root)
            need(roots == (old.root, self.checkpoint.root), f"the log does not continue its {old.size} first entries")
            known.append(old)
        for seen in [opened(path.read_text()) for path in self.options.against]:
            shown = any((seen.size, seen.root) == (it.size, it.root) for it in known)
            need(shown, f"the file does not show that the log continues the checkpoint of {seen.size} certificates")
        told = {"origin": name, "size": self.checkpoint.size, "root": self.checkpoint.root.hex()}
        return told | {"cosignatures": cosigned, "continues": [it.size for it in known[1:]]}

    def check_certificate(self, line: Any) -> SimpleNamespace:
        raw, entry, index, proof = fields(line, chain=str, entry=str, index=int, proof=list)
        chain, leaf = read_chain(Bytes(unbase64(raw))), unbase64(entry)
        own, record = chain[0], json.loads(leaf)
        check_chain(chain, self.root, own.start)
        need(own.uri.startswith(f"spiffe://{self.root.platform}/agent/"), f"{own.uri} is no agent")
        need((record["certificate"], record["identity"]) == (sha256(own.der).hex(), own.uri), "the entry is of another")
        need(record.get("long_lived_identity") == own.identity, "the entry names another long-lived identity")
        need(index < self.checkpoint.size, "the log has no such entry")
        root = included(index, self.checkpoint.size, sha256(b"\0", leaf), [unbase64(part) for part in proof])
        need(root == self.checkpoint.root, "the log does not contain the certificate")
        start, end = max(it.start for it in chain) - SKEW, min(it.end for it in chain) + SKEW
        name = f"{own.uri.rpartition('/')[2]}@{own.platform}"
        return SimpleNamespace(own=own, name=name, start=start, end=end, entry=index, revoked=self.denied.of(chain))

    def check_message(self, line: Any) -> dict[str, Any]:
        number, channel, qos, receivers, raw, proof = fields(
            line, certificate=int, channel=str | None, qos=str, receivers=list, message=str, proof=str
        )
        need(number < len(self.authors), "the file lacks the author's certificate")
        author, message, data = self.authors[number], unbase64(raw), Bytes(unbase64(proof))
        said = b"sealbus message v1\0" + (b"\0" if channel is None else b"\1" + field(channel))
        said += field(qos) + struct.pack(">Q", len(receivers))
        said += b"".join(field(receiver) for receiver in receivers) + sha256(message)
        version, level, algorithm = data.number(1), data.number(1), data.number(1)
        need(version == 2 and level in LEVELS, "the proof is of another version or level")
        kind = kind_of(self.root.key)
        need(algorithm == 1 + KINDS.index(kind), "the batch key is of another algorithm than the root's")
        key_length, length = LENGTHS[kind]
        public, word, then = data.take(key_length), data.take(length), data.number(8)
        authors, rank, serial = data.number(2), data.number(2), data.take(16)
        first, count, place = data.number(8), data.number(2), data.number(2)
        need(place < count and rank < authors and authors + count <= MOST + 1, "the batch has no such message")
        need(first + count < 1 << 64, "the message's number is too large")
        certificate, name, key = author.own, author.name, bytes([algorithm]) + public
        need(serial == certificate.serial, "the proof needs another certificate")
        need(then // 1000 <= time.time() + SKEW, "the stated time is yet to come")
        need(author.start <= then // 1000 <= author.end, f"{name} had no certificate at the stated time")
        holder = serial + sha256(certificate.der)
        delegation = b"sealbus delegation v1\0" + field(self.root.platform) + field(name) + holder + key
        self.signed(certificate.proof_key(kind), word, delegation)
        root = included(place, count, sha256(b"\0", said), self.path(data, place, count))
        entry = sha256(b"\0sealbus author v1\0", holder, struct.pack(">QQ", first, count), root)
        top = included(rank, authors, entry, self.path(data, rank, authors))
        batch = b"sealbus batch v2\0" + bytes([level]) + field(self.root.platform) + key
        batch += struct.pack(">QQ", then, authors) + top
        self.signed(kind.from_public_bytes(public), data.take(length), batch)
        need(data.at == len(data.data), "the proof is too long")
        acl = Acl(message)
        need(acl.found.get(2) == name, f"{name} signed a message that names another sender")
        self.acls.append(acl)
        report = {"author": name, "identity": certificate.identity, "serial": serial.hex()}
        report |= {"entry": author.entry, "number": first + place, "time": then}
        report |= {"level": LEVELS[level], "channel": channel, "qos": qos, "receivers": receivers}
        return report | acl.report() | {"conversation": acl.text(13), "revoked": author.revoked, "disclosed": None}

    def path(self, data: Bytes, index: int, size: int) -> list[bytes]:
        """The hashes of an inclusion proof."""
        return [data.take(32) for _ in range(depth(index, size))]

    def signed(self, key: PublicKey, signature: bytes, statement: bytes) -> None:
        """Checks a signature, unless it was found true before: a batch has many messages."""
        known = key.public_bytes_raw() + signature + statement
        if known not in self.signatures:
            key.verify(signature, statement)
            self.signatures.add(known)

    def check_disclosed(self, line: Any, messages: list[dict[str, Any]]) -> None:
        number, salt, inside = fields(line, message=int, salt=str, inside=str)
        need(self.least <= number < len(self.acls), "the file has no such message, or its words stand before")
        self.least, outer, words = number + 1, self.acls[number], Acl(unbase64(inside))
        content = outer.found.get(4) or b""
        # The commitment's place in a message that brings its secret, and in one that names it.
        place = {b"\3": 1141, b"\4": 13}.get(content[:1], 0)
        is_direct = messages[number]["channel"] is None
        need(outer.performative == "sealed" and place > 0 and is_direct, "the message was not sealed, or is not direct")
        committed = sha256(b"sealbus commitment v1\0", unbase64(salt), words.data)
        need(len(unbase64(salt)) == 32 and content[place : place + 32] == committed, "the author committed to other words")
        need(all(words.raw.get(it) == outer.raw.get(it) for it in (2, 3, 5, 13)), "the words have other names outside")
        messages[number]["disclosed"] = words.report()


def load(path: str) -> bytes:
    raw = Path(path).read_bytes()
    return x509.load_pem_x509_certificates(raw)[0].public_bytes(Encoding.DER) if b"-----BEGIN" in raw else raw


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path, help="the file of evidence")
    parser.add_argument("--root", type=load, help="the platform's root certificate, PEM or DER")
    parser.add_argument("--against", type=Path, action="append", default=[], help="a checkpoint that somebody saw")
    parser.add_argument("--witness", action="append", default=[], help="a key, name+hint+key, that must have cosigned")
    parser.add_argument("--quorum", type=int, default=0, help="how many witnesses must have cosigned")
    parser.add_argument("--json", action="store_true", help="write the report as JSON")
    options = parser.parse_args()
    file, why = None, "a signature is wrong: something was changed, or is of another batch, channel or platform"
    try:
        file = File(options.file.read_bytes(), options)
        report = file.report()
    except Exception as error:  # whatever cannot be read is not proved
        line = file.line - 1 if file else 1
        print(f"wrong: line {line}: {why if isinstance(error, InvalidSignature) else error!r}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(report))
        return 0
    print(f"root {report['root']}: {'the one that you gave' if options.root else 'NOT COMPARED, give --root'}")
    print(f"log {report['log']}\nthe exporter says {report['exporter']}")
    for it in report["messages"]:
        when, to = datetime.fromtimestamp(it["time"] / 1000, UTC), it["receivers"] or "all subscribers"
        print(f"{when:%Y-%m-%d %H:%M:%S.%f}Z  {it['author']} to {to} {ascii(it['channel'] or '')}")
        print(f"  {ascii(it['performative'])} {it['content']!r} (SHA-256 {it['content_sha256']})")
        print(f"  message {it['number']} under certificate {it['serial']}; revoked: {it['revoked'] or 'no'}")
        if it["identity"]:
            print(f"  long-lived identity {it['identity']}")
        if it["disclosed"]:
            print(f"  inside, as its author committed to: {it['disclosed']}")
    for identity in sorted({it["identity"] for it in report["messages"] if it["identity"]}):
        own = [it for it in report["messages"] if it["identity"] == identity]
        names, serials = ({it[key] for it in own} for key in ("author", "serial"))
        print(f"one agent, by its long-lived identity {identity}: {sorted(names)}, certificates {sorted(serials)}")
    if not report["log"]["cosignatures"]:
        print("NO WITNESS COSIGNED THE LOG: its CA may have shown it to nobody else.")
    print(f"{len(report['messages'])} messages. Proved: each author wrote exactly this, for these receivers.")
    print("Not proved: that a message arrived, that the stated time is the true one, that no message is missing,")
    print(f"that nobody was revoked after version {report['denied_version']} of the deny list.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

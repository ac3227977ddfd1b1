#!/usr/bin/env python3
"""Verifies the issuance log of a Sealbus platform, with nothing of Sealbus.

    tools/verify_log.py --root factory.pem --folder STATE/log/ca
    tools/verify_log.py --root factory.pem --address 10.0.0.7:7400

It reads the formats of docs/evidence.md: C2SP tlog-tiles, tlog-checkpoint, signed-note and tlog-cosignature. It builds the
Merkle tree of RFC 9162 from the entries, and compares every tile, the checkpoint, its signature and its cosignatures.
Exit code 0: all of it fits. 1: it does not; the reason is on standard error.

It needs Python 3.11 and `cryptography` with ML-DSA (50 has it).
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import http.client
import json
import ssl
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA65PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

WIDTH = 256
LOG, WITNESS = 1, 4
ML_DSA_65 = b"\xffsealbus ml-dsa-65 log v1\0"  # in the place of LOG
LARGEST_FILE = 2 << 20
# As many chains of certificates as a note has signatures: 1024, each of up to four certificates.
LARGEST_WITNESSES = 48 << 20
Extension = TypeVar("Extension", bound=x509.ExtensionType)


class Wrong(Exception):
    """The log is not what it must be."""


def extension(certificate: x509.Certificate, kind: type[Extension]) -> Extension:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound as error:
        raise Wrong(f"the certificate of {certificate.subject.rfc4514_string()}: {error}") from error


# ---- the tree (RFC 9162 section 2.1)


def sha256(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def root_of(hashes: list[bytes]) -> bytes:
    """The root of the tree over these hashes."""
    if not hashes:
        return sha256()
    # Pairs are joined level by level. The last hash of an odd level goes up as it is.
    while len(hashes) > 1:
        joined = [sha256(b"\x01", hashes[at], hashes[at + 1]) for at in range(0, len(hashes) - 1, 2)]
        hashes = joined + hashes[len(joined) * 2 :]
    return hashes[0]


# ---- paths (C2SP tlog-tiles)


def tile_path(level: int | str, index: int, width: int) -> str:
    groups = [f"{index % 1000:03}"]
    while index >= 1000:
        index //= 1000
        groups.insert(0, f"x{index % 1000:03}")
    partial = "" if width == WIDTH else f".p/{width}"
    return f"tile/{level}/{'/'.join(groups)}{partial}"


# ---- where the files are


class Source(Protocol):
    def read(self, path: str) -> bytes | None: ...


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, path: str) -> bytes | None:
        try:
            return (self.path / path).read_bytes()
        except FileNotFoundError:
            return None


class Platform:
    """The port at which nodes join. TLS believes the platform's root alone."""

    def __init__(self, address: str, root: x509.Certificate, name: str) -> None:
        host, _, port = address.rpartition(":")
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        made.load_verify_locations(cadata=root.public_bytes(Encoding.PEM).decode())
        made.set_alpn_protocols(["http/1.1"])
        self.connection = http.client.HTTPSConnection(host.strip("[]"), int(port), timeout=60, context=made)
        self.name = name

    def read(self, path: str) -> bytes | None:
        for is_last in (False, True):
            try:
                self.connection.request("GET", f"/log/{self.name}/{path}")
                answer = self.connection.getresponse()
                body = answer.read(LARGEST_WITNESSES if path == "witnesses.pem" else LARGEST_FILE)
            except (http.client.HTTPException, OSError):
                # The platform ends each connection after a while.
                self.connection.close()
                if is_last:
                    raise Wrong(f"the platform does not answer for {path}") from None
                continue
            if answer.status == 404:
                return None
            if answer.status != 200:
                raise Wrong(f"the platform answered {answer.status} for {path}")
            return body
        return None


def needed(source: Source, path: str) -> bytes:
    found = source.read(path)
    if found is None:
        raise Wrong(f"the log has no file {path}")
    return found


def tile(source: Source, level: int | str, index: int, width: int) -> bytes:
    """A tile or bundle. The full one takes the place of a partial one as the log grows."""
    found = source.read(tile_path(level, index, width))
    return needed(source, tile_path(level, index, WIDTH)) if found is None else found


# ---- notes (C2SP signed-note, tlog-checkpoint, tlog-cosignature)


@dataclass(frozen=True)
class Key:
    name: str
    kind: int
    public: Ed25519PublicKey | MLDSA65PublicKey

    def hint(self) -> bytes:
        raw = self.public.public_bytes(Encoding.Raw, PublicFormat.Raw)
        kind = bytes([self.kind]) if isinstance(self.public, Ed25519PublicKey) else ML_DSA_65
        return sha256(self.name.encode(), b"\n", kind, raw)[:4]

    @classmethod
    def parse(cls, text: str) -> Key:
        name, hint, key = text.split("+", 2)
        raw = base64.b64decode(key, validate=True)
        made = cls(name, raw[0], Ed25519PublicKey.from_public_bytes(raw[1:]))
        if made.hint().hex() != hint or made.kind not in (LOG, WITNESS):
            raise Wrong(f"{text} is no key")
        return made


@dataclass(frozen=True)
class Checkpoint:
    origin: str
    size: int
    root: bytes
    text: str
    signatures: list[tuple[str, bytes]]

    @classmethod
    def parse(cls, note: str) -> Checkpoint:
        head, separator, tail = note.rpartition("\n\n")
        lines = head.split("\n")
        if not separator or len(lines) != 3 or not tail.endswith("\n"):
            raise Wrong("the checkpoint is no signed note of three lines")
        origin, size, root = lines
        if not size.isascii() or not size.isdigit() or str(int(size)) != size:
            raise Wrong("the checkpoint states no size")
        signatures = []
        for line in tail[:-1].split("\n"):
            dash, name, signature = line.split(" ")
            if dash != "\u2014":
                raise Wrong("a line of the checkpoint is no signature")
            signatures.append((name, base64.b64decode(signature, validate=True)))
        hashed = base64.b64decode(root, validate=True)
        if len(hashed) != 32 or base64.b64encode(hashed).decode() != root:
            raise Wrong("the checkpoint states no root")
        return cls(origin, int(size), hashed, head + "\n", signatures)

    def signed(self, key: Key) -> int | None:
        """The latest time that a good signature of this key states, 0 for a log. None if there is none."""
        times = []
        for name, signature in self.signatures:
            if name != key.name or signature[:4] != key.hint():
                continue
            rest, text, at = signature[4:], self.text, 0
            if key.kind == WITNESS:
                (at,) = struct.unpack(">Q", rest[:8])
                rest, text = rest[8:], f"cosignature/v1\ntime {at}\n{text}"
            try:
                key.public.verify(rest, text.encode())
            except InvalidSignature:
                continue
            times.append(at)
        return max(times, default=None)


# ---- certificates


def uri_of(certificate: x509.Certificate) -> str:
    names = extension(certificate, x509.SubjectAlternativeName)
    (uri,) = names.get_values_for_type(x509.UniformResourceIdentifier)
    return uri


def public_of(certificate: x509.Certificate) -> Ed25519PublicKey | MLDSA65PublicKey:
    key = certificate.public_key()
    if not isinstance(key, Ed25519PublicKey | MLDSA65PublicKey):
        raise Wrong(f"the key of {certificate.subject} is neither Ed25519 nor ML-DSA-65")
    return key


def issued_by(certificate: x509.Certificate, issuer: x509.Certificate, at: datetime) -> None:
    """Checks that `issuer`, which must be a CA, signed `certificate`, and that it was valid at that time."""
    if not extension(issuer, x509.BasicConstraints).ca:
        raise Wrong(f"{uri_of(issuer)} is no CA")
    if "/authority/" in uri_of(certificate) and type(public_of(certificate)) is not type(public_of(issuer)):
        raise Wrong(f"the key of {uri_of(certificate)} is of another algorithm than the root's")
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError) as error:
        raise Wrong(f"{uri_of(certificate)} is not certified by {uri_of(issuer)}") from error
    if not certificate.not_valid_before_utc <= at <= certificate.not_valid_after_utc:
        raise Wrong(f"the certificate of {uri_of(certificate)} is not valid at {at}")


def platform_of(uri: str) -> str:
    return uri.removeprefix("spiffe://").split("/")[0]


def log_key(source: Source, root: x509.Certificate) -> tuple[Key, x509.Certificate]:
    """The key of the log: that of its CA, which the root has certified."""
    authority = x509.load_pem_x509_certificates(needed(source, "authority.pem"))[0]
    issued_by(authority, root, datetime.now(UTC))
    uri = uri_of(authority)
    if "/authority/" not in uri or platform_of(uri) != platform_of(uri_of(root)):
        raise Wrong(f"{uri} is no CA of this platform")
    return Key(f"{uri}/issuance", LOG, public_of(authority)), authority


def cosignatures(
    source: Source, checkpoint: Checkpoint, root: x509.Certificate, outside: list[Key]
) -> Iterator[tuple[str, datetime]]:
    """The good cosignatures: those of the platform's nodes, and those of the given keys."""
    for key in outside:
        if (at := checkpoint.signed(key)) is None:
            raise Wrong(f"{key.name} has not cosigned the checkpoint")
        yield key.name, datetime.fromtimestamp(at, UTC)
    pem = needed(source, "witnesses.pem")
    chain = x509.load_pem_x509_certificates(pem) if pem.strip() else []
    for node, issuer in zip(chain, chain[1:], strict=False):
        uri = uri_of(node)
        # A process, whose URI begins with its node's, is no witness.
        if uri.split("/")[3:4] != ["node"] or uri.count("/") != 4:
            continue
        if (at := checkpoint.signed(Key(uri, WITNESS, public_of(node)))) is None:
            continue
        try:
            when = datetime.fromtimestamp(at, UTC)
            issued_by(node, issuer, when)
            issued_by(issuer, root, when)
        except (Wrong, ValueError, OverflowError, OSError):
            continue  # A node states the time itself. A wrong one harms no other witness.
        if platform_of(uri) == platform_of(uri_of(root)):
            yield uri, when


# ---- the log


def entries_of(source: Source, size: int) -> Iterator[bytes]:
    for index in range(-(-size // WIDTH)):
        width = min(WIDTH, size - index * WIDTH)
        path = tile_path("entries", index, width)
        rest = tile(source, "entries", index, width)
        for _ in range(width):
            if len(rest) < 2 or len(rest) < 2 + (length := int.from_bytes(rest[:2], "big")):
                raise Wrong(f"{path} has too few entries")
            yield rest[2 : 2 + length]
            rest = rest[2 + length :]
        if rest and source.read(path) is not None:
            raise Wrong(f"{path} has too many entries")


def audit(
    source: Source, checkpoint: Checkpoint, seen: list[Checkpoint]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the entries. It ends only if all tiles, the root, and the checkpoints that others saw fit them."""
    for other in seen:
        if other.size > checkpoint.size:
            raise Wrong(f"somebody saw {other.size} entries, and the log has {checkpoint.size}: it was cut off")
    leaves: list[bytes] = []
    for index, leaf in enumerate(entries_of(source, checkpoint.size)):
        leaves.append(sha256(b"\x00", leaf))
        yield index, json.loads(leaf)
    for other in [checkpoint, *seen]:
        if root_of(leaves[: other.size]) != other.root:
            raise Wrong(f"the entries do not have the root of the checkpoint of {other.size} entries")
    level, hashes = 0, leaves
    while hashes:
        for index in range(-(-len(hashes) // WIDTH)):
            expected = hashes[index * WIDTH : (index + 1) * WIDTH]
            found = tile(source, level, index, len(expected))
            path = tile_path(level, index, len(expected))
            if found[: 32 * len(expected)] != b"".join(expected) or len(found) > 32 * WIDTH:
                raise Wrong(f"{path} does not have the hashes of the entries")
            if len(found) != 32 * len(expected) and source.read(path) is not None:
                raise Wrong(f"{path} has too many hashes")
        whole = len(hashes) // WIDTH
        hashes = [root_of(hashes[at * WIDTH : (at + 1) * WIDTH]) for at in range(whole)]
        level += 1


def load(path: Path) -> x509.Certificate:
    raw = path.read_bytes()
    if b"-----BEGIN" in raw:
        return x509.load_pem_x509_certificates(raw)[0]
    return x509.load_der_x509_certificate(raw)


def verify(arguments: argparse.Namespace) -> None:
    root = load(arguments.root)
    source: Source
    if arguments.folder is not None:
        source = Folder(arguments.folder)
    else:
        source = Platform(arguments.address, root, arguments.ca)
    key, _ = log_key(source, root)
    checkpoint = Checkpoint.parse(needed(source, "checkpoint").decode())
    seen = [Checkpoint.parse(path.read_text()) for path in arguments.against]
    for each in [checkpoint, *seen]:
        if each.origin != key.name or each.signed(key) is None:
            raise Wrong(f"a checkpoint of {each.origin} is not signed by {key.name}")
    witnesses = dict(cosignatures(source, checkpoint, root, [Key.parse(text) for text in arguments.witness]))
    if len(witnesses) < arguments.quorum:
        raise Wrong(f"{len(witnesses)} witnesses cosigned the checkpoint, and {arguments.quorum} must")
    certificates = [(load(path), path) for path in arguments.certificate]
    wanted = {sha256(it.public_bytes(Encoding.DER)).hex(): (it, path) for it, path in certificates}
    shown = []
    for index, record in audit(source, checkpoint, seen):
        # A CA also enters what another one of the platform, which is lost, could not publish.
        if platform_of(record["authority"]) != platform_of(uri_of(root)):
            raise Wrong(f"entry {index} is of {record['authority']}")
        if (found := wanted.pop(record["certificate"], None)) is None:
            continue
        # An entry under another name would hide the certificate from its owner.
        if (owner := uri_of(found[0])) != record["identity"]:
            raise Wrong(f"entry {index} hides the certificate of {owner} under the name {record['identity']}")
        shown.append(f"the certificate of {owner} is entry {index}")
    for lacking in wanted.values():
        raise Wrong(f"the log lacks the certificate {lacking[1]}")
    print(f"{checkpoint.origin}\n{checkpoint.size} certificates, root {checkpoint.root.hex()}: whole")
    for name, at in witnesses.items():
        print(f"cosigned by {name} at {at:%Y-%m-%d %H:%M:%SZ}")
    for line in shown:
        print(line)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, required=True, help="the platform's root certificate, PEM or DER")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--folder", type=Path, help="the folder of the log")
    place.add_argument("--address", help="the port at which nodes join, HOST:PORT")
    parser.add_argument("--ca", default="ca", help="the name of the CA (default: ca)")
    parser.add_argument("--against", type=Path, action="append", default=[], help="a checkpoint that somebody saw")
    parser.add_argument("--certificate", type=Path, action="append", default=[], help="must be in the log")
    parser.add_argument("--witness", action="append", default=[], help="a key, name+hint+key, that must have cosigned")
    parser.add_argument("--quorum", type=int, default=0, help="how many witnesses must have cosigned")
    try:
        verify(parser.parse_args())
    except (Wrong, ValueError, KeyError, IndexError, OverflowError, struct.error, OSError) as error:
        print(f"wrong: {error or type(error).__name__}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

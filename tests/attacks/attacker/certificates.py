"""Certificates of a CA of the attacker's own, under the names of the platform."""

from __future__ import annotations

import base64
import datetime
import hashlib
import ipaddress
import json
import struct

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from attacker.mesh import Credential


LOCALHOST = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


def begun(
    subject: x509.Name, public: Ed25519PrivateKey, issuer: x509.Name, uri: str, *more: x509.GeneralName
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.timezone.utc)
    names = x509.SubjectAlternativeName([*more, x509.UniformResourceIdentifier(uri)])
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public.public_key())
        .serial_number(x509.random_serial_number() >> 40)
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(names, critical=False)
    )


def end(builder: x509.CertificateBuilder) -> x509.CertificateBuilder:
    """The certificate of one that connects and is connected to."""
    uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    return builder.add_extension(uses, critical=False)


def foreign_process(platform: str = "factory") -> Credential:
    """A process of a platform of this name, certified by nobody that it knows."""
    issuer_key, key = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca-1")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    root = f"spiffe://{platform}"
    authority = (
        begun(issuer, issuer_key, issuer, f"{root}/authority/ca-1")
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(issuer_key, None)
    )
    process = f"{root}/node/node-1/process/{'0' * 31}1"
    leaf = end(begun(subject, key, issuer, process, LOCALHOST)).sign(issuer_key, None)
    return Credential(key, [certificate.public_bytes(Encoding.DER) for certificate in (leaf, authority)])


def secret_agent(name: str, ca: Ed25519PrivateKey, authority: bytes, platform: str = "factory") -> Credential:
    """An agent that a thief of the CA's key certifies. No log has the certificate."""
    key = Ed25519PrivateKey.generate()
    subject = x509.Name([x509.NameAttribute(NameOID.USER_ID, name)])
    issuer = x509.load_der_x509_certificate(authority)
    leaf = end(begun(subject, key, issuer.subject, f"spiffe://{platform}/agent/{name}", LOCALHOST)).sign(ca, None)
    return Credential(key, [leaf.public_bytes(Encoding.DER), authority])


def secret_log(secret: Credential, ca: Ed25519PrivateKey) -> bytes:
    """The proof that a certificate is in a log that the thief shows to nobody, by docs/evidence.md alone."""
    leaf, authority = [x509.load_der_x509_certificate(der) for der in secret.chain]
    names = authority.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    (uri,) = names.get_values_for_type(x509.UniformResourceIdentifier)
    start, end = [int(it.timestamp()) for it in (leaf.not_valid_before_utc, leaf.not_valid_after_utc)]
    entry = {
        "identity": secret.identity(),
        "address": "127.0.0.1",
        "on_behalf_of": None,
        "authority": uri,
        "serial": f"{leaf.serial_number:032x}",
        "not_before": start,
        "not_after": end,
        "issued_at": start,
        "certificate": hashlib.sha256(secret.chain[0]).hexdigest(),
    }
    root = hashlib.sha256(b"\0" + json.dumps(entry, separators=(",", ":")).encode()).digest()
    checkpoint = f"{uri}/issuance\n1\n{base64.b64encode(root).decode()}\n"
    return b"\1" + struct.pack(">QQH", 0, start, 0) + ca.sign(checkpoint.encode())

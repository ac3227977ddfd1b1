"""Certificates of a CA of the attacker's own, under the names of the platform."""

from __future__ import annotations

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from attacker.mesh import Credential


def foreign_process(platform: str = "factory") -> Credential:
    """A process of a platform of this name, certified by nobody that it knows."""
    now = datetime.datetime.now(datetime.timezone.utc)
    issuer_key, key = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca-1")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])

    def begun(name: x509.Name, public: Ed25519PrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(public.public_key())
            .serial_number(x509.random_serial_number() >> 40)
            .not_valid_before(now - datetime.timedelta(minutes=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
        )

    def uri(text: str, *more: x509.GeneralName) -> x509.SubjectAlternativeName:
        return x509.SubjectAlternativeName([*more, x509.UniformResourceIdentifier(f"spiffe://{platform}/{text}")])

    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))

    authority = (
        begun(issuer, issuer_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(uri("authority/ca-1"), critical=False)
        .sign(issuer_key, None)
    )
    leaf = (
        begun(subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
        .add_extension(uri(f"node/node-1/process/{'0' * 31}1", address), critical=False)
        .sign(issuer_key, None)
    )
    return Credential(key, [certificate.public_bytes(Encoding.DER) for certificate in (leaf, authority)])

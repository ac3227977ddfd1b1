"""An authorization server of another maker (Authlib), and certificates of an authority that Sealbus does not know."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import threading
import time
from pathlib import Path
from typing import Any

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin, grants
from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from flask import Flask, jsonify, request
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey
from werkzeug.serving import make_server

Certificate = x509.Certificate


class Authority:
    """An authority with files for each name it certifies: `NAME.pem`, `NAME.key`, and its own `authority.pem`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority")])
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        builder = self._builder(self.name, self.key).add_extension(x509.BasicConstraints(True, None), critical=True)
        own = builder.add_extension(usage, critical=True).sign(self.key, hashes.SHA256())
        self.file.write_bytes(own.public_bytes(serialization.Encoding.PEM))

    @property
    def file(self) -> Path:
        return self.folder / "authority.pem"

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(self.name).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        return builder.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))

    def certify(self, name: str, host: str | None = None) -> Certificate:
        """Certifies this host, or else this machine."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        names = [x509.DNSName(host)] if host else names
        builder = self._builder(subject, key).add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
        certificate = builder.sign(self.key, hashes.SHA256())
        (self.folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        form = serialization.PrivateFormat.PKCS8
        secret = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        (self.folder / f"{name}.key").write_bytes(secret)
        return certificate

    def context(self, client: str | None = None) -> ssl.SSLContext:
        """A client's trust, and the certificate that it shows."""
        context = ssl.create_default_context(cafile=self.file)
        if client:
            context.load_cert_chain(self.folder / f"{client}.pem", self.folder / f"{client}.key")
        return context


class App(ClientMixin):  # type: ignore[misc]
    """A client of the authorization server."""

    def __init__(self, name: str, secret: str, scopes: str) -> None:
        self.name, self.secret, self.scopes = name, secret, scopes

    def get_client_id(self) -> str:
        return self.name

    def get_default_redirect_uri(self) -> str:
        return ""

    def get_allowed_scope(self, scope: str) -> str:
        return " ".join(it for it in (scope or "").split() if it in self.scopes.split())

    def check_redirect_uri(self, _uri: str) -> bool:
        return False

    def check_client_secret(self, secret: str) -> bool:
        return secret == self.secret

    def check_endpoint_auth_method(self, method: str, _endpoint: str) -> bool:
        return method in ("client_secret_basic", "client_secret_post")

    def check_response_type(self, _kind: str) -> bool:
        return False

    def check_grant_type(self, kind: str) -> bool:
        return kind == "client_credentials"


class Login:
    """The server, in a thread, over TLS with a certificate of the authority."""

    def __init__(self, authority: Authority, apps: list[App]) -> None:
        authority.certify("login")
        self.keys = KeySet([RSAKey.generate_key(2048, {"kid": "first", "use": "sig", "alg": "RS256"}, private=True)])
        self.key = self.keys.keys[0]
        self.fetched = 0
        flask = Flask("login")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.folder / "login.pem", authority.folder / "login.key")
        self.server = make_server("127.0.0.1", 0, flask, threaded=True, ssl_context=context)
        self.issuer = f"https://localhost:{self.server.server_port}"
        self._route(flask, {app.name: app for app in apps})
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def _route(self, flask: Flask, apps: dict[str, App]) -> None:
        login = self

        class Tokens(JWTBearerTokenGenerator):  # type: ignore[misc]
            def get_jwks(self) -> Any:
                return login.key

            def get_audiences(self, client: App, user: object, scope: str) -> str:
                return request.form.get("resource", client.name)

        server = AuthorizationServer(flask, query_client=apps.get, save_token=lambda token, request: None)
        server.register_grant(grants.ClientCredentialsGrant)
        server.register_token_generator("default", Tokens(issuer=self.issuer))

        @flask.get("/.well-known/oauth-authorization-server")
        def metadata() -> Any:
            return jsonify(
                issuer=self.issuer,
                token_endpoint=f"{self.issuer}/token",
                authorization_endpoint=f"{self.issuer}/authorize",
                jwks_uri=f"{self.issuer}/keys",
                response_types_supported=["code"],
                grant_types_supported=["client_credentials"],
                token_endpoint_auth_methods_supported=["client_secret_basic"],
                code_challenge_methods_supported=["S256"],
            )

        @flask.get("/keys")
        def keys() -> Any:
            self.fetched += 1
            return jsonify(self.keys.as_dict(private=False))

        @flask.post("/token")
        def token() -> Any:
            return server.create_token_response()

    def sign(self, key: Any = None, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token by hand: good, but for what is given."""
        now = int(time.time())
        said = {"iss": self.issuer, "sub": "app-1", "iat": now, "exp": now + 600, **claims}
        head = {"alg": "RS256", "typ": "at+jwt", "kid": "first", **(header or {})}
        said = {name: value for name, value in said.items() if value is not None}
        head = {name: value for name, value in head.items() if value is not None}
        return jwt.encode(head, said, key or self.key, algorithms=[head["alg"]])

    def rotate(self) -> None:
        """Another key in place of the first."""
        self.key = RSAKey.generate_key(2048, {"kid": "second", "use": "sig", "alg": "RS256"}, private=True)
        self.keys = KeySet([self.key])

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

"""The platform's broker, reached with pika: an AMQP client that knows nothing of Sealbus."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import os
import ssl
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pika
import pika.credentials
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509.oid import NameOID

from harness import DEADLINE
from operator_brokers import PATIENT, program

MESSAGES = "sealbus.messages"
CHANNELS = "sealbus.channels"


class Broker:
    """The broker of the platform whose state is in `state`."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.folder = state / "broker"
        ports = json.loads((self.folder / "ports.json").read_text())
        self.port: int = ports["amqp"]
        self.management: int = ports["management"]
        self.mapper: int = ports["mapper"]
        self.password: str = json.loads((self.folder / "passwords.json").read_text())["operator"]

    # ---- as the operator

    def ask(self, path: str, method: str = "GET") -> Any:
        """An answer of the management interface; None if there is no such thing."""
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        # The broker is known by its SPIFFE identity, not by a host name.
        context.check_hostname = False
        request = urllib.request.Request(f"https://127.0.0.1:{self.management}/api/{path}", method=method)
        secret = base64.b64encode(f"sealbus-operator:{self.password}".encode()).decode()
        request.add_header("Authorization", f"Basic {secret}")
        until = time.monotonic() + DEADLINE
        while True:
            try:
                with urllib.request.urlopen(request, context=context, timeout=60) as answer:
                    text = answer.read()
                return json.loads(text) if text else None
            except urllib.error.HTTPError as error:
                with error:
                    if error.code == 404:
                        return None
                    # The broker fails at a list of which it is just removing something.
                    if error.code != 500 or method != "GET" or time.monotonic() > until:
                        raise
            time.sleep(0.1)

    def users(self) -> set[str]:
        return {user["name"] for user in self.ask("users")}

    def queues(self) -> set[str]:
        return {queue["name"] for queue in self.ask("queues/factory?columns=name")}

    def control(self, *arguments: str) -> str:
        """The output of `rabbitmqctl`."""
        environment = {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self.folder),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_NODENAME": f"sealbus{self.port}@localhost",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self.mapper),
            "RABBITMQ_CTL_ERL_ARGS": PATIENT,
        }
        done = subprocess.run(
            [program("rabbitmqctl"), "--quiet", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            env=environment,
        )
        assert done.returncode == 0, f"rabbitmqctl {arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def process_at(self, pid: int) -> str | None:
        """The process that the system knows by `pid`, as a path `node/…/process/…`; None if it is not connected."""
        own = ports_of(pid)
        for connection in self.ask("connections?columns=peer_port,user"):
            user = connection.get("user", "")
            if connection.get("peer_port") in own and user.startswith("UID=node/"):
                return str(user.removeprefix("UID=").partition(",")[0])
        return None

    # ---- as an attacker

    def certificate(self, folder: Path, name: str, foreign: bool = False) -> tuple[Path, Path]:
        """A certificate for the agent, or the process, `name` and its key, as that one itself has them: signed by the platform's CA,
        whose key lies in the Master's state, or by a foreign one of the same name."""
        chain, key = self._issuer()
        issuer = x509.load_der_x509_certificate(chain[0])
        if foreign:
            key = ed25519.Ed25519PrivateKey.generate()
        own = ed25519.Ed25519PrivateKey.generate()
        now = datetime.datetime.now(datetime.timezone.utc)
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1"),
                x509.NameAttribute(NameOID.USER_ID, name),
            ]
        )
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer.subject)
            .public_key(own.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=1))
            .not_valid_after(now + datetime.timedelta(minutes=30))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
            )
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
                critical=False,
            )
            .sign(key, None)
        )
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        pem += issuer.public_bytes(serialization.Encoding.PEM)
        file = name.replace("/", "-")
        certificate_file = folder / f"{file}.pem"
        key_file = folder / f"{file}.key"
        certificate_file.write_bytes(pem)
        key_file.write_bytes(
            own.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return certificate_file, key_file

    def _issuer(self) -> tuple[list[bytes], ed25519.Ed25519PrivateKey]:
        text = (self.state / "ca.key").read_bytes()
        key = serialization.load_pem_private_key(text, None)
        assert isinstance(key, ed25519.Ed25519PrivateKey)
        # The chain is written one certificate after the other, each behind its length.
        data = (self.state / "ca.chain").read_bytes()
        start = data.index(b"\x30\x82")
        length = 4 + int.from_bytes(data[start + 2 : start + 4], "big")
        return [data[start : start + length]], key

    def connect(
        self,
        certificate: tuple[Path, Path] | None,
        *,
        plain: bool = False,
        password: tuple[str, str] | None = None,
    ) -> pika.BlockingConnection:
        """A connection with this certificate (SASL EXTERNAL), or with a user and password."""
        options = None
        if not plain:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.load_verify_locations(self.folder / "ca.pem")
            if certificate is not None:
                context.load_cert_chain(*certificate)
            options = pika.SSLOptions(context)
        credentials: Any = pika.credentials.ExternalCredentials()
        if password is not None:
            credentials = pika.PlainCredentials(*password)
        return pika.BlockingConnection(
            pika.ConnectionParameters(
                host="127.0.0.1",
                port=self.port,
                virtual_host="factory",
                credentials=credentials,
                ssl_options=options,
                socket_timeout=300,
                stack_timeout=300,
                blocked_connection_timeout=300,
            )
        )


def ports_of(pid: int) -> set[int]:
    """The local ports of the TCP connections that the program has."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
        except FileNotFoundError:
            continue
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {int(line[1].rsplit(":", 1)[1], 16) for line in lines if line[9] in inodes}


def queue_of(agent: str) -> str:
    return f"Agent-{agent}@factory-MessageQueue"


def transient_queue_of(agent: str) -> str:
    return f"Agent-{agent}@factory-TransientMessageQueue"


def queue_of_process(process: str) -> str:
    """The queue of a process, by its path."""
    return f"Process-{process.rsplit('/', 1)[1]}-FrameQueue"


def user_of(name: str) -> str:
    """The user that an agent is, or a process by its path."""
    return f"UID={name},CN=127.0.0.1"

"""The issuance log of a running platform: read and verified by strangers, and by a program that uses nothing of Sealbus."""

from __future__ import annotations

import base64
import hashlib
import http.server
import importlib.util
import json
import re
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import NameOID
from harness import DEADLINE, PROGRAMS, ROOT, one_worker, sealbus, wait_for

VERIFIER = ROOT / "tools" / "verify_log.py"
MANIFEST = one_worker('level = "tls"')


@pytest.fixture
def factory(platform):
    started = platform(MANIFEST).up()
    started.active("worker")
    return started


def published(factory) -> dict:
    """The log once it holds every certificate so far and its node has cosigned it."""
    size = len(factory.ask("ca", "list"))

    def look():
        done = factory.tell("ca", "log", "verify", "--json", "--quorum", "1", expect=None)
        if done.returncode != 0:
            return None
        found = factory.ask("ca", "log", "verify", "--quorum", "1")
        return found if found["size"] >= size else None

    return wait_for(look, "a cosigned checkpoint", also=factory.logs)


def root_of(factory) -> Path:
    path = factory.directory / "factory.pem"
    path.write_bytes(factory.tell("ca", "root").stdout)
    return path


def copied(factory, name: str) -> Path:
    """A copy of the log's files, at a moment at which nothing is written."""
    place = factory.directory / name
    log = factory.state / "log" / "ca"

    def copy():
        shutil.rmtree(place, ignore_errors=True)
        before = (log / "checkpoint").read_bytes()
        # A draft becomes the file of its name at any moment.
        shutil.copytree(log, place, ignore=shutil.ignore_patterns("*.draft"))
        return (log / "checkpoint").read_bytes() == before == (place / "checkpoint").read_bytes()

    wait_for(copy, "the log to stand still")
    return place


def verifier(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, VERIFIER, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)


def test_anyone_verifies_the_log(factory):
    found = published(factory)
    assert found["origin"] == "spiffe://factory/authority/ca/issuance"
    assert [it["witness"] for it in found["cosignatures"]] == ["spiffe://factory/node/node-1"]
    root = root_of(factory)
    log = copied(factory, "log")
    port = address_of(factory)
    sealbus("ca", "log", "verify", "--root", root, "--address", port, "--quorum", "1")
    sealbus("ca", "log", "verify", "--root", root, "--folder", log, "--quorum", "1")
    for place in (("--address", port), ("--folder", log)):
        done = verifier("--root", root, *place, "--quorum", "1")
        assert done.returncode == 0, done.stderr
        assert "cosigned by spiffe://factory/node/node-1" in done.stdout
    # The node kept the checkpoints that it cosigned.
    (kept,) = factory.directory.rglob("witness/ca.checkpoint")
    sealbus("ca", "log", "verify", "--root", root, "--address", port, "--against", kept)
    done = verifier("--root", root, "--address", port, "--against", kept)
    assert done.returncode == 0, done.stderr
    # A platform that hands out another log than the one that is asked for is not believed.
    refused = sealbus("ca", "log", "verify", "--root", root, "--folder", log, "--ca", "ca-2", expect=1)
    assert b"the log of the CA ca-2 is wanted" in refused.stderr
    # Another platform's root makes nobody believe it.
    other = factory.directory / "other.pem"
    other.write_bytes(secretly(Ed25519PrivateKey.generate(), "worker").public_bytes(Encoding.PEM))
    assert verifier("--root", other, "--folder", log).returncode == 1
    sealbus("ca", "log", "verify", "--root", other, "--folder", log, expect=1)


def address_of(factory) -> str:
    """Where nodes join, as `up` prints it."""
    found = re.search(r"nodes join at (\S+): ", factory.master.output())
    assert found, factory.master.output()
    return found[1]


def test_an_owner_sees_each_certificate_in_its_name(factory):
    published(factory)
    shown = factory.ask("ca", "monitor", "worker")
    assert shown["identity"] == "spiffe://factory/agent/worker"
    assert shown["on_behalf_of"] == "spiffe://factory/node/node-1"
    (listed,) = [it for it in factory.ask("ca", "list") if it["identity"] == shown["identity"]]
    assert listed["serial"] == shown["serial"]
    assert f"entry {listed['index']} " in factory.tell("ca", "monitor", "worker").stdout.decode()
    assert factory.tell("ca", "monitor", "nobody").stdout == b""
    # Witnesses would notice a log that only its owner is shown.
    factory.tell("ca", "monitor", "worker", "--quorum", "1")
    refused = factory.tell("ca", "monitor", "worker", "--quorum", "2", expect=1)
    assert b"1 witnesses cosigned the checkpoint, and 2 must" in refused.stderr


def secretly(key: Ed25519PrivateKey, agent: str, issuer: x509.Certificate | None = None) -> x509.Certificate:
    """A certificate that its issuer has entered nowhere."""
    name = x509.Name([x509.NameAttribute(NameOID.USER_ID, agent)])
    uri = x509.UniformResourceIdentifier(f"spiffe://factory/agent/{agent}")
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer.subject if issuer else name)
        .public_key(Ed25519PrivateKey.generate().public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([uri]), critical=False)
        .sign(key, None)
    )


def test_a_certificate_that_the_log_lacks(factory):
    published(factory)
    root = root_of(factory)
    log = copied(factory, "log")
    host, _, port = factory.agents()["worker"]["address"].rpartition(":")
    shown = factory.directory / "shown.pem"
    shown.write_text(shown_by(host, int(port)))
    found = sealbus("ca", "log", "verify", "--root", root, "--folder", log, "--certificate", shown)
    assert b"is entry" in found.stdout
    done = verifier("--root", root, "--folder", log, "--certificate", shown)
    assert "is entry" in done.stdout, done.stderr
    # Somebody with the CA's key makes a certificate without the CA service.
    key = load_pem_private_key((factory.state / "ca.key").read_bytes(), None)
    assert isinstance(key, Ed25519PrivateKey)
    authority = x509.load_pem_x509_certificates((log / "authority.pem").read_bytes())[0]
    made = secretly(key, "worker", authority)
    made.verify_directly_issued_by(authority)
    secret = factory.directory / "secret.pem"
    secret.write_bytes(made.public_bytes(Encoding.PEM))
    refused = sealbus("ca", "log", "verify", "--root", root, "--folder", log, "--certificate", secret, expect=1)
    assert b"the log lacks the certificate" in refused.stderr
    done = verifier("--root", root, "--folder", log, "--certificate", secret)
    assert done.returncode == 1 and "the log lacks the certificate" in done.stderr


def test_an_entry_hides_no_certificate_under_another_name(factory):
    """A CA that enters a secret certificate in the name of somebody who does not look."""
    published(factory)
    root = root_of(factory)
    log = copied(factory, "log")
    host, _, port = factory.agents()["worker"]["address"].rpartition(":")
    shown = factory.directory / "shown.pem"
    shown.write_text(shown_by(host, int(port)))
    der = x509.load_pem_x509_certificate(shown.read_bytes()).public_bytes(Encoding.DER)
    hidden = {
        "identity": "spiffe://factory/agent/nobody",
        "address": "127.0.0.1",
        "on_behalf_of": None,
        "authority": "spiffe://factory/authority/ca",
        "serial": "01" * 16,
        **dict.fromkeys(("not_before", "not_after", "issued_at"), 1_800_000_000),
        "certificate": hashlib.sha256(der).hexdigest(),
    }
    leaf = json.dumps(hidden, separators=(",", ":")).encode()
    place, hashed = factory.directory / "lie", hashlib.sha256(b"\0" + leaf).digest()
    for path, content in (("0", hashed), ("entries", struct.pack(">H", len(leaf)) + leaf)):
        (place / "tile" / path / "000.p").mkdir(parents=True)
        (place / "tile" / path / "000.p" / "1").write_bytes(content)
    shutil.copy2(log / "authority.pem", place)
    (place / "witnesses.pem").touch()
    key = load_pem_private_key((factory.state / "ca.key").read_bytes(), None)
    assert isinstance(key, Ed25519PrivateKey)
    origin = "spiffe://factory/authority/ca/issuance"
    text = f"{origin}\n1\n{base64.b64encode(hashed).decode()}\n"
    hint = bytes.fromhex(vkey(origin, 1, key.public_key().public_bytes_raw()).split("+")[1])
    signature = base64.b64encode(hint + key.sign(text.encode())).decode()
    (place / "checkpoint").write_text(f"{text}\n\u2014 {origin} {signature}\n")
    asked = ("--root", root, "--folder", place)
    sealbus("ca", "log", "verify", *asked)
    refused = sealbus("ca", "log", "verify", *asked, "--certificate", shown, expect=1)
    assert b"under the name spiffe://factory/agent/nobody" in refused.stderr
    done = verifier(*asked, "--certificate", shown)
    assert done.returncode == 1 and "under the name spiffe://factory/agent/nobody" in done.stderr


def test_the_other_verifier_counts_nodes_that_tell_the_time():
    """A process is no witness, and a node that states a wrong time harms no other."""
    spec = importlib.util.spec_from_file_location("verify_log", VERIFIER)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its data classes look it up
    spec.loader.exec_module(module)
    keys = {name: Ed25519PrivateKey.generate() for name in ("root", "ca", "liar", "honest", "process")}
    uris = {name: f"spiffe://factory/authority/{name}" for name in ("root", "ca")}
    uris |= {name: f"spiffe://factory/node/{name}" for name in ("liar", "honest")}
    uris["process"] = f"{uris['honest']}/process/{'0' * 32}"

    def made(name: str, issuer: str) -> x509.Certificate:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.USER_ID, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.USER_ID, issuer)]))
            .public_key(keys[name].public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uris[name])]), critical=False)
            .add_extension(x509.BasicConstraints(ca=name in ("root", "ca"), path_length=None), critical=True)
            .sign(keys[issuer], None)
        )

    root, ca = made("root", "root"), made("ca", "root")
    text, signatures, pem = "origin\n1\nroot\n", [], b""
    present = int(datetime.now(UTC).timestamp())
    for name, at in (("liar", 1 << 60), ("process", present), ("honest", present)):
        hint = module.Key(uris[name], module.WITNESS, keys[name].public_key()).hint()
        signed = keys[name].sign(f"cosignature/v1\ntime {at}\n{text}".encode())
        signatures.append((uris[name], hint + struct.pack(">Q", at) + signed))
        pem += b"".join(it.public_bytes(Encoding.PEM) for it in (made(name, "ca"), ca))
    checkpoint = module.Checkpoint("origin", 1, b"", text, signatures)
    found = dict(module.cosignatures(SimpleNamespace(read=lambda _: pem), checkpoint, root, []))
    assert list(found) == [uris["honest"]]


def shown_by(host: str, port: int) -> str:
    """The certificate that a process of agents shows to every client."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    made.set_alpn_protocols(["sealbus-mesh/1/tls"])
    with socket.create_connection((host, port), DEADLINE) as plain, made.wrap_socket(plain) as stream:
        der = stream.getpeercert(binary_form=True)
    assert der is not None
    return ssl.DER_cert_to_PEM_cert(der)


def test_a_changed_bit_in_any_file(factory):
    published(factory)
    root = root_of(factory)
    log = copied(factory, "log")
    tree = ("--root", root, "--folder", log, "--quorum", "1")
    sealbus("ca", "log", "verify", *tree)
    assert verifier(*tree).returncode == 0
    # Older partial files, and what lies after the first certificate of the authority, are nobody's business.
    size = int((log / "checkpoint").read_text().split("\n")[1])
    needed = {log / "checkpoint", log / "witnesses.pem", log / "authority.pem"}
    needed |= {log / f"tile/{kind}/000.p/{size}" for kind in ("0", "entries")}
    for path in sorted(needed):
        whole = path.read_bytes()
        place = whole.index(b"\n") + 200 if path.suffix == ".pem" else len(whole) // 2
        changed = bytearray(whole)
        changed[place] ^= 1
        path.write_bytes(changed)
        refused = sealbus("ca", "log", "verify", *tree, expect=None)
        assert refused.returncode != 0, path
        assert verifier(*tree).returncode == 1, path
        path.write_bytes(whole)
    sealbus("ca", "log", "verify", *tree)


def test_a_log_that_was_cut_off_or_rewritten(platform):
    factory = platform(MANIFEST).up()
    factory.active("worker")
    old = published(factory)
    root = root_of(factory)
    assert factory.master.end() == 0
    # A thief, or an operator with a backup, puts the CA back. The node remembers.
    backup = factory.directory / "backup"
    backup.mkdir()
    shutil.copy2(factory.state / "state.redb", backup)
    shutil.copytree(factory.state / "log", backup / "log")
    factory.up()
    factory.active("worker")
    later = wait_for(lambda: it if (it := published(factory))["size"] > old["size"] else None, "more certificates")
    rewritten = copied(factory, "rewritten")
    assert factory.master.end() == 0
    (kept,) = factory.directory.rglob("witness/ca.checkpoint")
    seen = factory.directory / "seen.checkpoint"
    shutil.copy2(kept, seen)
    assert later["size"] >= int(seen.read_text().split("\n")[1]) > old["size"]
    shutil.copy2(backup / "state.redb", factory.state)
    shutil.rmtree(factory.state / "log")
    shutil.copytree(backup / "log", factory.state / "log")

    cut = ("--root", root, "--folder", factory.state / "log" / "ca", "--against", seen)
    refused = sealbus("ca", "log", "verify", *cut, expect=1)
    assert b"it was cut off" in refused.stderr
    done = verifier(*cut)
    assert done.returncode == 1 and "it was cut off" in done.stderr

    factory.up()
    factory.active("worker")
    refused = wait_for(
        lambda: it if (it := factory.tell("ca", "log", "verify", expect=None)).returncode == 1 else None,
        "the witness to be heard",
        also=factory.logs,
    )
    assert b"a witness does not believe this log: node-1" in refused.stderr
    refused = factory.tell("ca", "monitor", "worker", expect=1)
    assert b"a witness does not believe this log: node-1" in refused.stderr
    assert any(alarm.startswith("node-1: ") for alarm in factory.ask("status")["log_alarms"])
    assert "THE ISSUANCE LOG IS NOT WHAT IT WAS" in factory.logs()
    # The node still holds the checkpoint that it saw, and both checkpoints as evidence.
    assert kept.read_bytes() == seen.read_bytes()
    (alarm,) = factory.directory.rglob("witness/ca.alarm")
    assert alarm.read_text().startswith(seen.read_text())
    # The log that grew anew is another view of the same log.
    grown = wait_for(
        lambda: it if int((it := copied(factory, "grown") / "checkpoint").read_text().split("\n")[1]) >= later["size"]
        else renewed(factory),
        "the log to grow",
        also=factory.logs,
    )
    other = ("--root", root, "--folder", grown.parent, "--against", seen)
    refused = sealbus("ca", "log", "verify", *other, expect=1)
    assert b"history was rewritten" in refused.stderr
    done = verifier(*other)
    assert done.returncode == 1 and "do not have the root" in done.stderr
    sealbus("ca", "log", "verify", "--root", root, "--folder", rewritten, "--against", seen)


def renewed(factory) -> None:
    """Has one more certificate issued."""
    factory.tell("kill", "worker")
    factory.tell("start", "worker", expect=None)
    factory.active("worker")


def test_an_outside_witness_of_the_manifest_cosigns(platform):
    """The witness is a program of its own, which remembers across the platform's life."""
    factory = platform(MANIFEST)
    factory.up()
    assert factory.master.end() == 0
    # The log's key is the CA's own, which is there after the first start.
    ca = load_pem_private_key((factory.state / "ca.key").read_bytes(), None)
    own = Ed25519PrivateKey.generate()
    log = vkey("spiffe://factory/authority/ca/issuance", 1, ca.public_key().public_bytes_raw())
    key = vkey("witness.example", 4, own.public_key().public_bytes_raw())
    files = [factory.directory / name for name in ("port", "state.json")]
    program = PROGRAMS / "outside_witness.py"
    factory.program(sys.executable, program, *files, log, own.private_bytes_raw().hex(), name="witness")
    port = wait_for(lambda: files[0].exists() and files[0].read_text(), "the witness", also=factory.logs)
    with factory.manifest.open("a") as manifest:
        manifest.write(f'\n[[witness]]\nurl = "http://127.0.0.1:{port}/factory"\nkey = "{key}"\n')
    factory.up()
    factory.active("worker")
    found = wait_for(
        lambda: factory.tell("ca", "log", "verify", "--witness", key, "--quorum", "2", expect=None).returncode == 0,
        "both witnesses to cosign",
        also=factory.logs,
    )
    assert found
    log_folder = copied(factory, "log")
    done = verifier("--root", root_of(factory), "--folder", log_folder, "--witness", key, "--quorum", "2")
    assert "cosigned by witness.example" in done.stdout, done.stderr
    # It goes on from the checkpoint that it saw: the next one needs a proof.
    size = json.loads(files[1].read_text())["size"]
    renewed(factory)
    wait_for(lambda: json.loads(files[1].read_text())["size"] > size, "the next checkpoint", also=factory.logs)


@pytest.mark.parametrize(("status", "body"), [(409, b"1000000\n"), (422, b"")])
def test_an_objection_that_nobody_signed_is_a_warning_and_no_more(platform, status, body):
    """Anybody on the way to an outside witness can answer in its name."""

    class Stranger(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        factory = platform(MANIFEST)
        key = vkey("witness.example", 4, Ed25519PrivateKey.generate().public_key().public_bytes_raw())
        with factory.manifest.open("a") as manifest:
            manifest.write(f'\n[[witness]]\nurl = "http://127.0.0.1:{server.server_port}/factory"\nkey = "{key}"\n')
        factory.up()
        factory.active("worker")

        def warning() -> list[str]:
            warnings = factory.ask("status")["warnings"]
            return [each for each in warnings if each.startswith("witness-objects: witness.example ")]

        wait_for(warning, "the warning", also=factory.logs)
        assert factory.ask("status")["log_alarms"] == []
        published(factory)
        factory.tell("ca", "monitor", "worker")
        # The witness did not cosign: this is seen by everybody who believes it.
        refused = factory.tell("ca", "log", "verify", "--witness", key, expect=1)
        assert b"witness.example" in refused.stderr
        server.shutdown()


def vkey(name: str, kind: int, raw: bytes) -> str:
    key = bytes([kind]) + raw
    hint = hashlib.sha256(name.encode() + b"\n" + key).hexdigest()[:8]
    return f"{name}+{hint}+{base64.b64encode(key).decode()}"

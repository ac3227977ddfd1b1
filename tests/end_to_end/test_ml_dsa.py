"""A platform whose root, CA and proofs are signed with ML-DSA-65."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA65PrivateKey, MLDSA65PublicKey
from cryptography.hazmat.primitives.serialization import Encoding
from harness import DEADLINE, PROGRAMS, ROOT, sealbus, wait_for
from test_evidence import alone, changed, messages, verifier  # noqa: F401

VERIFY_LOG = ROOT / "tools" / "verify_log.py"
sys.path.insert(0, str(VERIFY_LOG.parent))
import verify_log  # noqa: E402


def manifest(folder: Path) -> str:
    return f"""
        [platform]
        name = "factory"
        level = "signed"
        signatures = "ml-dsa-65"
        nodes = 2

        [[agent]]
        name = "source"
        command = ["PYTHON", "{PROGRAMS}/notary.py"]
        identity = "{folder}/source.key"
        environment = {{ SLOW = "{folder}/slow" }}
        node = "node-1"

        [[agent]]
        name = "sink"
        command = ["PYTHON", "{PROGRAMS}/notary.py"]
        environment = {{ SLOW = "{folder}/slow" }}
        node = "node-2"

        [evidence]
        agents = ["sink"]
        """


def test_everything_that_lasts_is_signed_with_it(platform, tmp_path):
    identity = json.loads(sealbus("identity", tmp_path / "source.key", "--json").stdout)["identity"]
    factory = platform(manifest(tmp_path)).up()
    factory.active("source", "sink")
    root = tmp_path / "factory.pem"
    root.write_bytes(factory.tell("ca", "root").stdout)
    assert isinstance(x509.load_pem_x509_certificate(root.read_bytes()).public_key(), MLDSA65PublicKey)

    def ask(agent: str, *order: Any) -> Any:
        return json.loads(factory.send(agent, json.dumps(order)))

    def heard(*texts: str) -> None:
        wait_for(lambda: set(texts) <= {it[2] for it in ask("sink", "heard")}, str(texts), also=factory.logs)

    texts = [str(number) for number in range(20)]
    ask("source", "say", "sink", texts)
    ask("source", "post", "sink", ["kept"])
    ask("source", "publish", ["event"])
    ask("source", "seal", "sink", ["secret"])
    heard(*texts, "kept", "event", "secret")
    how = {text: how for _, _, text, how in ask("sink", "heard")}
    assert how["0"] == how["kept"] == "signed" and how["secret"] == "sealed signed"

    def exported() -> list[dict[str, Any]] | None:
        path = tmp_path / "all.evidence"
        path.unlink(missing_ok=True)
        factory.tell("evidence", "export", "--agent", "sink", "--quorum", "1", path)
        arguments = [path, "--root", root, "--quorum", "1", "--json"]
        report = json.loads(sealbus("evidence", "verify", *arguments).stdout)
        assert report == alone(*arguments)
        said = [it for it in report["messages"] if it["author"] == "source@factory" and it["channel"] is None]
        return said if {*texts, "kept"} <= {it["content"] for it in said} else None

    said = wait_for(exported, "the record", also=factory.logs)
    assert {it["identity"] for it in said} == {identity}
    path = tmp_path / "all.evidence"
    lines = [json.loads(line) for line in path.read_bytes().splitlines()[:-1]]
    chains = [base64.b64decode(line["certificate"]["chain"]) for line in lines if "certificate" in line]
    own = x509.load_der_x509_certificate(chains[0][3 : 3 + int.from_bytes(chains[0][1:3], "big")])
    assert isinstance(own.public_key(), Ed25519PublicKey)

    # Both verifiers refuse a proof in which anything was changed.
    def bent(at: int):
        def change(lines: list[Any]) -> None:
            message = messages(lines)[0]
            proof = bytearray(base64.b64decode(message["proof"]))
            proof[at] ^= 1
            message["proof"] = base64.b64encode(proof).decode()

        return change

    for at in (2, 3, 1000, 2000, 5000, -1, -3000):
        forged = changed(path, bent(at))
        sealbus("evidence", "verify", forged, "--root", root, expect=1)
        assert alone(forged, "--root", root) is None, at

    # The log, read by strangers too.
    def verified() -> bool:
        return factory.tell("ca", "log", "verify", "--quorum", "1", expect=None).returncode == 0

    wait_for(verified, "a cosigned log", also=factory.logs)
    command = [sys.executable, str(VERIFY_LOG), "--root", str(root), "--folder", str(factory.state / "log" / "ca")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    # The deny list is signed with it, and believed.
    factory.tell("ca", "revoke", "source", "--reason", "it leaked")
    wait_for(lambda: factory.agents()["source"]["state"] != "active", "the revocation", also=factory.logs)


def test_the_choice_is_made_once(platform, tmp_path):
    factory = platform('[platform]\nname = "factory"\nlevel = "signed"\n').up()
    factory.down()
    factory.manifest.write_text('[platform]\nname = "factory"\nlevel = "signed"\nsignatures = "ml-dsa-65"\n')
    done = sealbus("up", factory.manifest, "--state", factory.state, expect=None)
    assert done.returncode and "is for a new platform" in done.stderr.decode(), done.stderr


def test_the_roots_algorithm_counts_and_not_the_manifests_word(platform):
    """A manifest that leaves the algorithm out, or an argument, changes nothing about the root."""
    head = '[platform]\nname = "factory"\nlevel = "{}"\n'
    factory = platform(head.format("signed") + 'signatures = "ml-dsa-65"\n').up()
    factory.down()
    chosen = head.format("signed") + 'signatures = "ml-dsa-65"\n'
    key = b"\4" + bytes(32)
    hint = hashlib.sha256(b"w.example\n" + key).hexdigest()[:8]
    key = f"w.example+{hint}+{base64.b64encode(key).decode()}"
    witness = f'[[witness]]\nurl = "http://127.0.0.1:1/x"\nkey = "{key}"\n'
    for text, arguments, why in (
        (head.format("auth"), [], "below the level signed"),
        (chosen, ["--level", "auth"], "below the level signed"),
        (head.format("signed") + witness, [], "witnesses outside"),
    ):
        factory.manifest.write_text(text)
        done = sealbus("up", factory.manifest, "--state", factory.state, *arguments, expect=None)
        assert done.returncode and why in done.stderr.decode(), done.stderr


def test_what_does_not_go_with_it_is_named(platform):
    factory = platform('[platform]\nname = "factory"\nsignatures = "ml-dsa-65"\n')
    done = sealbus("up", "--check", factory.manifest, expect=None)
    assert done.returncode and "signed and sealed" in done.stderr.decode(), done.stderr


def test_the_other_verifiers_believe_no_authority_of_another_algorithm(verifier):  # noqa: F811
    """Somebody who breaks Ed25519 has no use for a classical authority below a root of ML-DSA-65."""
    now = datetime.now(UTC)

    def certificate(key: Any, signer: Any, name: str) -> x509.Certificate:
        uri = f"spiffe://factory/authority/{name}"
        issuer, subject = (x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, it)]) for it in ("root", name))
        start, end = now - timedelta(minutes=1), now + timedelta(hours=1)
        built = x509.CertificateBuilder(issuer, subject, key.public_key(), 7, start, end)
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)])
        built = built.add_extension(names, critical=False)
        return built.add_extension(x509.BasicConstraints(True, 0), critical=True).sign(signer, None)

    def read(one: x509.Certificate) -> Any:
        return verifier.Certificate(one.public_bytes(Encoding.DER))

    kinds = (Ed25519PrivateKey, MLDSA65PrivateKey)
    for signer in (kind.generate() for kind in kinds):
        root = certificate(signer, signer, "root")
        for key in (kind.generate() for kind in kinds):
            authority = certificate(key, signer, "ca")
            authority.verify_directly_issued_by(root)
            if type(key) is type(signer):
                verifier.check_chain([read(authority)], read(root), int(now.timestamp()))
                verify_log.issued_by(authority, root, now)
                continue
            with pytest.raises(ValueError, match="another algorithm"):
                verifier.check_chain([read(authority)], read(root), int(now.timestamp()))
            with pytest.raises(verify_log.Wrong, match="another algorithm"):
                verify_log.issued_by(authority, root, now)

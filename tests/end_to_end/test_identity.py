"""Long-lived identities: certificates of one agent that anybody recognises, without trust in the CA."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from harness import DEADLINE, PROGRAMS, documented_keys, one_worker, sealbus, wait_for
from test_evidence import alone, verifier  # noqa: F401

EXTENSION = x509.ObjectIdentifier("1.2.840.113556.1.8000.2554.42964.34295.20436.19583.42606.4912364.344408.2")


def key(path: Path) -> str:
    told = json.loads(sealbus("identity", path, "--json").stdout)
    assert told.keys() == documented_keys()["identity"] and told["is_new"]
    return told["identity"]


def manifest(folder: Path, node: str = "") -> str:
    return f"""
        [platform]
        name = "factory"
        level = "signed"
        lifetime = "8s"
        nodes = 2

        [[agent]]
        name = "source"
        command = ["PYTHON", "{PROGRAMS}/notary.py"]
        identity = "{folder}/source.key"
        environment = {{ SLOW = "{folder}/slow" }}
        {node}

        [[agent]]
        name = "sink"
        command = ["PYTHON", "{PROGRAMS}/notary.py"]
        environment = {{ SLOW = "{folder}/slow" }}

        [evidence]
        agents = ["sink"]
        """


class Scene:
    def __init__(self, platform, folder: Path) -> None:
        self.folder = folder
        self.identity = key(folder / "source.key")
        self.factory = platform(manifest(folder)).up()
        self.factory.active("source", "sink")
        self.root = folder / "factory.pem"
        self.root.write_bytes(self.factory.tell("ca", "root").stdout)
        self.count = 0

    def say(self, text: str) -> None:
        self.factory.send("source", json.dumps(["say", "sink", [text]]))

        def heard() -> bool:
            return any(it[2] == text for it in json.loads(self.factory.send("sink", '["heard"]')))

        wait_for(heard, text, also=self.factory.logs)

    def said(self, texts: list[str]) -> list[dict[str, Any]]:
        """The messages of the source, as both verifiers report them."""

        def exported() -> list[dict[str, Any]] | None:
            self.count += 1
            path = self.folder / f"{self.count}.evidence"
            self.factory.tell("evidence", "export", "--agent", "sink", path)
            arguments = [path, "--root", self.root, "--json"]
            report = json.loads(sealbus("evidence", "verify", *arguments).stdout)
            assert report == alone(*arguments)
            found = [it for it in report["messages"] if it["author"] == "source@factory"]
            return found if [it["content"] for it in found if it["content"] in texts] == texts else None

        return wait_for(exported, f"the record of {texts}", also=self.factory.logs)

    def certified(self) -> list[str]:
        listed = self.factory.ask("ca", "list")
        return [each["serial"] for each in listed if each["identity"].endswith("/agent/source")]


def test_certificates_of_one_agent_are_one_agent_through_renewals_a_restart_and_a_move(platform, tmp_path):
    scene = Scene(platform, tmp_path)
    factory = scene.factory
    scene.say("first")
    wait_for(lambda: len(scene.certified()) >= 3, "two renewals", also=factory.logs)
    scene.say("renewed")
    factory.tell("restart", "source")
    factory.active("source")
    scene.say("restarted")
    here = factory.agents()["source"]["node"]
    factory.tell("move", "source", "node-2" if here == "node-1" else "node-1")
    wait_for(lambda: factory.agents()["source"]["node"] != here, "the move", also=factory.logs)
    factory.active("source")
    scene.say("moved")
    texts = ["first", "renewed", "restarted", "moved"]
    found = scene.said(texts)
    assert {it["identity"] for it in found} == {scene.identity}
    serials = {it["serial"] for it in found if it["content"] in texts}
    assert len(serials) == 4
    path = tmp_path / f"{scene.count}.evidence"
    verified = sealbus("evidence", "verify", path, "--root", scene.root).stdout.decode()
    command = [sys.executable, str(PROGRAMS.parents[2] / "tools" / "verify_evidence.py"), "--root", str(scene.root), str(path)]
    stranger = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=True).stdout
    for text in (verified, stranger):
        (line,) = [line for line in text.splitlines() if line.startswith("one agent")]
        assert scene.identity in line and all(serial in line for serial in serials), line
    # The log tells the owner, too, and strangers read it.
    monitored = factory.tell("ca", "monitor", "source").stdout.decode().splitlines()
    assert len(monitored) >= 4 and all(f"long-lived identity {scene.identity}" in line for line in monitored)
    monitored = factory.tell("ca", "monitor", "sink").stdout.decode()
    assert monitored and "long-lived" not in monitored
    assert factory.ask("ca", "log", "verify")["size"] >= 4


def test_without_its_key_an_agent_does_not_start(platform, tmp_path):
    folder = tmp_path / "keys"
    folder.mkdir()
    factory = platform(manifest(folder)).up()
    factory.active("sink")

    def says(word: str) -> bool:
        return word in factory.tell("logs", "source", expect=None).stdout.decode()

    wait_for(lambda: says("source.key: No such file"), "the missing key", also=factory.logs)
    key(folder / "source.key")
    (folder / "source.key").chmod(0o644)
    factory.tell("start", "source", expect=None)
    wait_for(lambda: says("chmod 600"), "the open key", also=factory.logs)
    (folder / "source.key").chmod(0o600)
    factory.tell("start", "source", expect=None)
    factory.active("source")


def test_a_key_is_made_once(tmp_path):
    path = tmp_path / "own.key"
    fingerprint = key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    told = json.loads(sealbus("identity", path, "--json").stdout)
    assert told == {"identity": fingerprint, "is_new": False}
    path.chmod(0o644)
    assert "chmod 600" in sealbus("identity", path, expect=1).stderr.decode()
    path.write_text("no key")
    path.chmod(0o600)
    assert "own.key" in sealbus("identity", path, expect=1).stderr.decode()


PROGRAM = """
import asyncio
import sys
from sealbus import Agent, Platform

async def main():
    async with Platform() as platform:
        agent = await platform.start(Agent("seller", identity=sys.argv[1]))
        print(agent.aid.name)

asyncio.run(main())
"""


def test_a_program_gives_its_agent_an_identity(platform, tmp_path):
    """With a ticket, an agent shows its identity by an argument or a variable. A long-lived identity is its own agent's."""
    identity = key(tmp_path / "own.key")
    factory = platform(one_worker()).up()
    factory.active("worker")

    def run(arguments: list[Path | str], **variables: str) -> subprocess.CompletedProcess[str]:
        ticket = factory.ask("ticket", "seller")["ticket"]
        command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
        environment = {**os.environ, "SEALBUS_TICKET": ticket, **variables}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False)

    done = run([tmp_path / "own.key"])
    assert (done.returncode, done.stdout) == (0, "seller@factory\n"), done.stderr
    done = run([tmp_path / "none.key"])
    assert done.returncode and "none.key" in done.stderr, done.stderr
    done = run([tmp_path / "own.key"], SEALBUS_IDENTITY=str(tmp_path / "none.key"))
    assert done.returncode and "none.key" in done.stderr, done.stderr

    def monitored() -> list[dict[str, Any]]:
        lines = factory.tell("ca", "monitor", "seller", "--json").stdout.decode().splitlines()
        return [json.loads(line) for line in lines]

    (record,) = wait_for(monitored, "the log's entry", also=factory.logs)
    assert record["long_lived_identity"] == identity


def test_the_other_verifier_believes_no_made_up_identity(verifier):  # noqa: F811
    """A dishonest CA could write these: the statement of another agent, one for another key, and changed bits."""
    owner, certified, other = (Ed25519PrivateKey.generate() for _ in range(3))

    def spki(one: Ed25519PrivateKey) -> bytes:
        return one.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    def value(uri: str, about: Ed25519PrivateKey) -> bytes:
        said = b"sealbus long-lived identity v1\0"
        for field in (uri.encode(), spki(about)):
            said += len(field).to_bytes(8, "big") + field
        raw = owner.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return b"\x04\x60" + raw + owner.sign(said)

    def certificate(extension: bytes, uri: str = "spiffe://factory/agent/seller") -> Any:
        now, nobody = datetime.now(UTC), x509.Name([])
        built = x509.CertificateBuilder(nobody, nobody, certified.public_key(), 7, now, now + timedelta(hours=1))
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)])
        built = built.add_extension(names, critical=False)
        built = built.add_extension(x509.UnrecognizedExtension(EXTENSION, extension), critical=False)
        return verifier.Certificate(built.sign(certified, None).public_bytes(Encoding.DER))

    good = value("spiffe://factory/agent/seller", certified)
    assert certificate(good).identity == verifier.sha256(spki(owner)).hex()
    refused = (ValueError, InvalidSignature)
    with pytest.raises(refused):
        certificate(value("spiffe://factory/agent/buyer", certified))
    with pytest.raises(refused):
        certificate(value("spiffe://factory/agent/seller", other))
    with pytest.raises(refused):
        certificate(good, "spiffe://factory/node/seller")
    for wrong in (good[:-1], good + b"\0", b""):
        with pytest.raises(refused):
            certificate(wrong)
    for at in range(len(good)):
        with pytest.raises(refused):
            certificate(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])

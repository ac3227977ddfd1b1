"""Evidence of a running platform: exported into a file, and verified by two programs that share nothing."""

from __future__ import annotations

import argparse
import base64
import hashlib
import importlib.util
import json
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from harness import DEADLINE, PROGRAMS, ROOT, documented_keys, sealbus, wait_for

VERIFIER = ROOT / "tools" / "verify_evidence.py"
TEXTS = [str(number) for number in range(20)]


@pytest.fixture(scope="module")
def verifier() -> Any:
    spec = importlib.util.spec_from_file_location("verify_evidence", VERIFIER)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Scene:
    """A platform whose agent `sink` is recorded, and the root certificate."""

    def __init__(self, platform, folder: Path) -> None:
        self.folder = folder
        self.factory = platform(
            f"""
            [platform]
            name = "factory"
            level = "signed"
            nodes = 2

            [[agent]]
            name = "source"
            command = ["PYTHON", "{PROGRAMS}/notary.py"]
            node = "node-1"
            environment = {{ SLOW = "{folder}/slow" }}
            read = ["{folder}"]

            [[agent]]
            name = "sink"
            command = ["PYTHON", "{PROGRAMS}/notary.py"]
            node = "node-2"
            environment = {{ SLOW = "{folder}/slow" }}
            read = ["{folder}"]

            [evidence]
            agents = ["sink"]
            """
        ).up()
        self.factory.active("source", "sink")
        self.root = folder / "factory.pem"
        self.root.write_bytes(self.factory.tell("ca", "root").stdout)
        self.count = 0

    def ask(self, agent: str, *order: Any) -> Any:
        return json.loads(self.factory.send(agent, json.dumps(order)))

    def heard(self, whence: str, texts: list[str]) -> None:
        def all_there() -> bool:
            found = [text for where, _, text, _ in self.ask("sink", "heard") if where == whence]
            return [text for text in found if text in texts] == texts

        wait_for(all_there, f"all of {whence}", also=self.factory.logs)

    def exported(self, *wanted: str) -> Path:
        self.count += 1
        path = self.folder / f"{self.count}.evidence"
        told = self.factory.ask("evidence", "export", *wanted, path)
        assert told.keys() == documented_keys()["evidence export"]
        return path

    def report(self, path: Path, *options: str | Path) -> dict[str, Any]:
        """The report that both verifiers give."""
        arguments = [path, "--root", self.root, "--json", *options]
        ours = json.loads(sealbus("evidence", "verify", *arguments).stdout)
        assert ours == alone(*arguments)
        assert ours.keys() == documented_keys()["evidence verify"]
        return ours

    def refused(self, path: Path, word: str = "", *options: str | Path) -> None:
        arguments = [path, "--root", self.root, *options]
        done = sealbus("evidence", "verify", *arguments, expect=1)
        assert word in done.stderr.decode(), done.stderr
        assert alone(*arguments) is None, word


def alone(*arguments: str | Path) -> dict[str, Any] | None:
    """The report of the program in Python; none if it refuses the file."""
    command = [sys.executable, VERIFIER, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert (done.returncode == 0) == (not done.stderr), done.stderr
    return json.loads(done.stdout) if done.returncode == 0 else None


@pytest.fixture
def scene(platform, tmp_path) -> Scene:
    return Scene(platform, tmp_path)


def sealed_again(lines: list[bytes]) -> bytes:
    """These lines, with a last line that fits them: what a forger would write."""
    body = b"".join(line + b"\n" for line in lines)
    return body + b'{"sha256":"%s"}\n' % hashlib.sha256(body).hexdigest().encode()


def changed(path: Path, change: Callable[[list[Any]], None]) -> Path:
    """A copy of the file in which `change` has changed the lines."""
    lines = [json.loads(line) for line in path.read_bytes().splitlines()[:-1]]
    change(lines)
    copy = path.with_suffix(".forged")
    copy.write_bytes(sealed_again([json.dumps(line, separators=(",", ":")).encode() for line in lines]))
    return copy


def messages(lines: list[Any]) -> list[Any]:
    return [line["message"] for line in lines if "message" in line]


def test_who_said_what_is_proved_to_others(scene):
    scene.ask("source", "say", "sink", TEXTS)
    scene.heard("direct", TEXTS)
    scene.ask("source", "publish", TEXTS)
    scene.heard("/records", TEXTS)
    (scene.folder / "slow").touch()
    scene.ask("source", "post", "sink", ["kept"])
    (scene.folder / "slow").unlink()
    scene.heard("kept", ["kept"])

    def recorded() -> list[dict[str, Any]] | None:
        found = scene.report(scene.exported("--agent", "sink"))["messages"]
        return found if sum(it["author"] == "source@factory" for it in found) > len(TEXTS) else None

    found = wait_for(recorded, "the record", also=scene.factory.logs)
    direct = [it for it in found if it["author"] == "source@factory"]
    assert [it["content"] for it in direct] == [*TEXTS, "kept"]
    assert all(it["receivers"] == ["sink@factory"] and it["channel"] is None for it in direct)
    assert [it["number"] for it in direct] == sorted({it["number"] for it in direct})
    # A conversation is found by its name.
    asked = next(it for it in found if it["conversation"])
    alike = scene.report(scene.exported("--conversation", asked["conversation"]))["messages"]
    assert asked in alike and {it["conversation"] for it in alike} == {asked["conversation"]}
    # The log of a persistent channel is evidence without being asked for.
    path = scene.exported("--channel", "/records", "--quorum", "1")
    report = scene.report(path, "--quorum", "1")
    assert [it["content"] for it in report["messages"]] == TEXTS
    assert all("persistent" in it["qos"] and it["channel"] == "/records" for it in report["messages"])
    assert report["log"]["cosignatures"] and not report["exporter"]["gaps"]
    # The text for people says what is not proved.
    shown = sealbus("evidence", "verify", path, "--root", scene.root).stdout.decode()
    assert "source@factory to all subscribers on /records" in shown and "Not proved" in shown
    assert "NOT COMPARED" in sealbus("evidence", "verify", "-", stdin=path.read_bytes()).stdout.decode()


def test_no_bit_can_be_changed(scene, verifier):
    scene.ask("source", "publish", ["first", "second"])
    path = scene.exported("--channel", "/records", "--quorum", "1")
    report = scene.report(path)
    raw = path.read_bytes()
    root = verifier.load(str(scene.root))
    options = argparse.Namespace(root=root, witness=[], against=[], quorum=0)

    def judged(file: bytes) -> dict[str, Any] | None:
        try:
            return verifier.File(file, options).report()
        except Exception:
            return None

    assert judged(raw) == report
    chance = random.Random(7)
    for at in range(len(raw)):
        assert judged(raw[:at] + bytes([raw[at] ^ 1 << chance.randrange(8)]) + raw[at + 1 :]) is None, at
    # No byte of a proof is without meaning, to one who mends the last line.
    proof = base64.b64decode(messages([json.loads(line) for line in raw.splitlines()[:-1]])[0]["proof"])
    for at in range(len(proof)):
        bent = proof[:at] + bytes([proof[at] ^ 1 << chance.randrange(8)]) + proof[at + 1 :]

        def replaced(lines, bent=bent):
            messages(lines)[0]["proof"] = base64.b64encode(bent).decode()

        assert judged(changed(path, replaced).read_bytes()) is None, at
    copy = path.with_suffix(".changed")
    for at in chance.sample(range(len(raw)), 16):
        copy.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << chance.randrange(8)]) + raw[at + 1 :])
        scene.refused(copy)
    # A forger also makes the last line fit. Then both programs refuse the change, or both find the same: what the
    # exporter says, and the number of cosignatures, are proved by nobody.
    lines = raw.splitlines()[:-1]
    unproved = ("exporter", "log")
    for _ in range(64):
        row = chance.randrange(len(lines))
        line = bytearray(lines[row])
        line[chance.randrange(len(line))] ^= 1 << chance.randrange(8)
        if b"\n" in line:
            continue
        forged = sealed_again([*lines[:row], bytes(line), *lines[row + 1 :]])
        copy.write_bytes(forged)
        found = judged(forged)
        done = sealbus("evidence", "verify", copy, "--root", scene.root, "--json", expect=None)
        assert (done.returncode == 0) == (found is not None), (row, bytes(line), done.stderr)
        if found is not None:
            assert json.loads(done.stdout) == found
            assert {**found, **{name: report[name] for name in unproved}} == report, bytes(line)


def test_what_a_forger_tries(scene):
    scene.ask("source", "publish", ["first", "second"])
    early = scene.exported("--channel", "/records", "--quorum", "1")
    report = scene.report(early)
    seen = scene.folder / "early.checkpoint"
    seen.write_text(json.loads(early.read_bytes().splitlines()[2])["log"]["checkpoint"])
    scene.report(early, "--against", seen)

    def another_channel(lines):
        messages(lines)[0]["channel"] = "/news"

    def another_receiver(lines):
        messages(lines)[0]["receivers"] = ["sink@factory"]

    def proof_of_another(lines):
        one, other = messages(lines)
        one["proof"], other["proof"] = other["proof"], one["proof"]

    def said_twice(lines):
        lines.append(lines[-1])

    def another_level(lines):
        proof = bytearray(base64.b64decode(messages(lines)[0]["proof"]))
        proof[1] = 4
        messages(lines)[0]["proof"] = base64.b64encode(proof).decode()

    def delegation_of_another(lines):
        # The key stays, and the agent's word is another one.
        proof = bytearray(base64.b64decode(messages(lines)[0]["proof"]))
        proof[35:99] = bytes(64)
        messages(lines)[0]["proof"] = base64.b64encode(proof).decode()

    def certificate_beside_the_log(lines):
        certificate = next(line["certificate"] for line in lines if "certificate" in line)
        certificate["index"] += 1

    def without_a_log_entry(lines):
        certificate = next(line["certificate"] for line in lines if "certificate" in line)
        certificate["entry"] = base64.b64encode(b'{"identity":"spiffe://factory/agent/source"}').decode()

    def another_platform(lines):
        lines[0]["evidence"]["platform"] = "other"

    for change in (
        another_channel,
        another_receiver,
        proof_of_another,
        said_twice,
        another_level,
        delegation_of_another,
        certificate_beside_the_log,
        without_a_log_entry,
        another_platform,
    ):
        scene.refused(changed(early, change))

    def witness_twice(lines):
        log = lines[2]["log"]
        log["witnesses"] = log["witnesses"][:1] * 2

    scene.refused(changed(early, witness_twice), "twice among the witnesses", "--quorum", "2")

    # The log goes on: the later file shows that it continues what was seen, and the early one cannot be passed off.
    scene.factory.send("source", json.dumps(["publish", ["third"]]))
    scene.factory.tell("ca", "revoke", "source", "--reason", "it leaked")
    late = scene.folder / "late.evidence"

    def exported() -> bool:
        late.unlink(missing_ok=True)
        scene.factory.tell("evidence", "export", "--channel", "/records", "--against", seen, late)
        return scene.report(late)["messages"][0]["revoked"] is not None

    wait_for(exported, "the revocation", also=scene.factory.logs)
    found = scene.report(late, "--against", seen)
    assert found["log"]["continues"] == [report["log"]["size"]]
    # The author's earlier words stay proved; the revocation is told.
    assert [it["content"] for it in found["messages"]] == ["first", "second", "third"]
    assert {it["revoked"]["reason"] for it in found["messages"]} == {"by-operator"}
    assert "revoked" in sealbus("evidence", "verify", late).stdout.decode()

    def truncated_log(lines):
        early_lines = [json.loads(line) for line in early.read_bytes().splitlines()[:-1]]
        lines[2]["log"]["checkpoint"] = early_lines[2]["log"]["checkpoint"]

    if found["log"]["size"] > report["log"]["size"]:
        scene.refused(changed(late, truncated_log))

    # Another platform's root.
    other = scene.folder / "other.pem"
    certificate = json.loads(early.read_bytes().splitlines()[2])["log"]["authority"]
    other.write_bytes(base64.b64decode(certificate))
    sealbus("evidence", "verify", early, "--root", other, expect=1)
    assert alone(early, "--root", other) is None


def test_a_witness_that_lies_prevents_no_evidence(scene):
    scene.ask("source", "publish", ["said"])
    folder = scene.factory.directory
    kept = min(wait_for(lambda: list(folder.rglob("witness/ca.checkpoint")), "a checkpoint that a node has cosigned"))

    def alarmed() -> list[str]:
        lines = kept.read_text().split("\n")
        if lines[1] != "1000000":
            # The node claims to have seen more entries than the log has. The next certificate makes the Master ask it.
            kept.write_text("\n".join([lines[0], "1000000", *lines[2:]]))
            scene.factory.tell("kill", "source")
            scene.factory.tell("start", "source", expect=None)
            scene.factory.active("source")
        return scene.factory.ask("status")["log_alarms"]

    wait_for(alarmed, "the alarm", also=scene.factory.logs)
    report = scene.report(scene.exported("--channel", "/records"))
    assert [it["content"] for it in report["messages"]] == ["said"]
    (gap,) = [gap for gap in report["exporter"]["gaps"] if "does not believe the log" in gap]
    assert "was cut off" in gap


def test_the_other_verifier_takes_a_message_of_the_largest_batch(verifier):
    """The proof is made here as docs/evidence.md describes it."""
    count, place, then = 1024, 700, 1_700_000_000_000
    author, batch = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    serial, der, field, sha256 = bytes(15) + b"\7", b"certificate", verifier.field, verifier.sha256
    holder, key = serial + sha256(der), b"\1" + batch.public_key().public_bytes_raw()
    message = b"\xfa\x10\x08\2\2\x10source@factory\0\1\1"
    said = b"sealbus message v1\0\0" + field("") + struct.pack(">Q", 1) + field("sink@factory") + sha256(message)
    leaves = [sha256(b"\0", b"another %d" % number) for number in range(count)]
    leaves[place] = sha256(b"\0", said)

    def tree(leaves: list[bytes]) -> bytes:
        if len(leaves) == 1:
            return leaves[0]
        left = verifier.split(len(leaves))
        return verifier.node(tree(leaves[:left]), tree(leaves[left:]))

    def path(index: int, leaves: list[bytes]) -> list[bytes]:
        if len(leaves) == 1:
            return []
        left = verifier.split(len(leaves))
        if index < left:
            return [*path(index, leaves[:left]), tree(leaves[left:])]
        return [*path(index - left, leaves[left:]), tree(leaves[:left])]

    entry = sha256(b"\0sealbus author v1\0", holder, struct.pack(">QQ", 0, count), tree(leaves))
    delegation = b"sealbus delegation v1\0" + field("factory") + field("source@factory") + holder + key
    signed = b"sealbus batch v2\0\3" + field("factory") + key + struct.pack(">QQ", then, 1) + entry
    proof = b"\2\3" + key + author.sign(delegation) + struct.pack(">QHH", then, 1, 0) + serial
    proof += struct.pack(">QHH", 0, count, place) + b"".join(path(place, leaves)) + batch.sign(signed)
    file = verifier.File.__new__(verifier.File)
    file.root = SimpleNamespace(key=author.public_key(), platform="factory")
    own = SimpleNamespace(serial=serial, der=der, identity=None, proof_key=lambda _: author.public_key())
    file.authors = [SimpleNamespace(own=own, name="source@factory", start=0, end=1 << 40, entry=0, revoked=None)]
    file.signatures, file.acls = set(), []
    line = {"certificate": 0, "channel": None, "qos": "", "receivers": ["sink@factory"]}
    line |= {"message": base64.b64encode(message).decode(), "proof": base64.b64encode(proof).decode()}
    assert file.check_message(line)["number"] == place


def test_evidence_outlives_certificates(scene, verifier, monkeypatch):
    """Ten years later, every certificate has ended, and the file still proves what it proved."""
    scene.ask("source", "publish", ["once"])
    path = scene.exported("--channel", "/records")
    options = argparse.Namespace(root=verifier.load(str(scene.root)), witness=[], against=[], quorum=0)
    now = verifier.time.time()
    monkeypatch.setattr(verifier.time, "time", lambda: now + 10 * 365 * 24 * 3600)
    (said,) = verifier.File(path.read_bytes(), options).report()["messages"]
    assert said["content"] == "once"


def test_only_signed_messages_are_recorded(platform):
    factory = platform('[platform]\nname = "factory"\nlevel = "tls"\n[evidence]\nagents = ["sink"]\n')
    done = sealbus("up", factory.manifest, "--state", factory.state, expect=None)
    assert done.returncode and "agents without certificates sign nothing" in done.stderr.decode(), done.stderr

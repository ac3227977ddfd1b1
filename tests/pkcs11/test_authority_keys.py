"""The keys of the root and of the CA are in a token, and the platform works as with keys in files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Platform, one_worker, sealbus
from softhsm import PIN, Token

Make = Callable[[str], Platform]


@pytest.fixture
def factory(platform: Make) -> Platform:
    return platform(one_worker())


def place(factory: Platform, *keys: str, expect: int = 0) -> str:
    """`sealbus ca keys`: its output, or its error."""
    done = factory.tell("ca", "keys", factory.manifest, *keys, expect=expect)
    return (done.stdout if expect == 0 else done.stderr).decode()


def works(factory: Platform) -> None:
    factory.active("worker")
    assert json.loads(factory.send("worker", '["echo", "still here"]')) == "still here"


def private_keys(folder: Path) -> list[str]:
    """The authorities' files that hold a private key."""
    found = [each for each in folder.rglob("*") if each.is_file() and each.name in ("root.key", "ca.key", "ca.new.key")]
    return [each.name for each in found if b"PRIVATE" in each.read_bytes()]


def openssl(*arguments: str | Path) -> str:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_platform_lives_with_both_keys_in_a_token(factory: Platform, token: Token) -> None:
    said = place(factory, "--root", token.key("root"), "--ca", token.key("ca"))
    assert "root" in said and "CA" in said
    factory.up()
    works(factory)
    # The keys were used, and are nowhere else.
    assert (factory.state / "root.key").read_text().strip() == token.key("root")
    assert (factory.state / "ca.key").read_text().strip() == token.key("ca")
    assert private_keys(factory.state) == []
    root = factory.ask("ca", "root")
    assert root
    # The log's checkpoints are the CA's signatures, too, and so is the list of what is revoked.
    factory.tell("ca", "log", "verify")
    factory.tell("ca", "revoke", "worker", "--reason", "a test")
    assert factory.master is not None
    assert factory.master.end() == 0
    factory.up()
    factory.tell("ca", "log", "verify")


def test_the_certificates_are_of_the_keys_in_the_token(factory: Platform, token: Token, tmp_path: Path) -> None:
    done = factory.tell("ca", "keys", factory.manifest, "--root", token.key("root"), "--ca", token.key("ca"), "--json")
    made = json.loads(done.stdout)
    factory.up()
    root = tmp_path / "root.pem"
    root.write_bytes(factory.tell("ca", "root").stdout)
    openssl("verify", "-CAfile", root, root)
    public = openssl("x509", "-in", root, "-noout", "-pubkey")
    der = subprocess.run(["openssl", "pkey", "-pubin", "-outform", "DER"], input=public.encode(), capture_output=True, check=True)
    assert der.stdout[-32:].hex() == made["root"]
    assert made["ca"] and made["ca"] != made["root"]


def test_keys_are_made_once(factory: Platform, token: Token) -> None:
    keys = ("--root", token.key("root"), "--ca", token.key("ca"))
    first = place(factory, *keys)
    assert place(factory, *keys) == first
    assert "is there already" in place(factory, "--ca", token.key("other"), expect=1)
    factory.up()
    works(factory)
    assert "is there already" in place(factory, *keys, expect=1)
    works(factory)


def test_a_root_in_a_token_certifies_another_masters_ca_in_a_token(
    factory: Platform, token: Token, tmp_path: Path
) -> None:
    place(factory, "--root", token.key("root"), "--ca", token.key("ca"))
    factory.up()
    safe, other = tmp_path / "safe", tmp_path / "other"
    safe.mkdir(mode=0o700)
    (factory.state / "root.key").rename(safe / "root.key")
    (safe / "root.der").write_bytes((factory.state / "root.der").read_bytes())
    here = ("--state", other)
    sealbus("ca", "keys", factory.manifest, "--ca", token.key("ca-2"), *here)
    request = tmp_path / "request.pem"
    request.write_bytes(sealbus("ca", "request", factory.manifest, *here).stdout)
    openssl("req", "-in", request, "-noout", "-verify")
    chain = sealbus("ca", "certify", request, "--root", safe).stdout.decode()
    end = "-----END CERTIFICATE-----\n"
    authority, root = (part + end for part in chain.removesuffix("\n").removesuffix(end.strip()).split(end))
    (tmp_path / "authority.pem").write_text(authority)
    (tmp_path / "root.pem").write_text(root)
    openssl("verify", "-CAfile", tmp_path / "root.pem", tmp_path / "authority.pem")
    assert private_keys(other) == []


def test_the_fault_of_a_token_is_named(factory: Platform, token: Token) -> None:
    for text, key in [
        ("refuses the PIN", token.key("ca")),
        ("0 tokens", token.key("ca", token="elsewhere")),
        ("cannot be used", token.key("ca").replace(str(token.library), "/nowhere.so")),
        ("cannot be read", token.key("ca").replace(str(token.pin), "/nowhere")),
    ]:
        token.write_pin("9999" if "PIN" in text else PIN)
        assert text in place(factory, "--ca", key, expect=1)
    token.write_pin(PIN, mode=0o644)
    assert "others may read it" in place(factory, "--ca", token.key("ca"), expect=1)
    token.write_pin(PIN)
    token.keep_p256("ca")
    assert "not a pair of Ed25519 keys" in place(factory, "--ca", token.key("ca"), expect=1)
    # Nothing of all that is left, and the next key is good.
    place(factory, "--ca", token.key("ca-1"))
    factory.up()
    works(factory)


def test_a_master_does_not_start_without_its_token(factory: Platform, token: Token) -> None:
    place(factory, "--root", token.key("root"), "--ca", token.key("ca"))
    factory.up()
    works(factory)
    assert factory.master is not None
    assert factory.master.end() == 0
    objects = token.folder / "objects"
    os.rename(objects, token.folder / "away")
    objects.mkdir()
    refused = factory.tell("up", factory.manifest, expect=None)
    assert refused.returncode != 0
    assert "0 tokens" in refused.stderr.decode()
    objects.rmdir()
    os.rename(token.folder / "away", objects)
    factory.up()
    works(factory)


def test_a_backup_holds_names_in_place_of_keys(factory: Platform, token: Token) -> None:
    place(factory, "--root", token.key("root"), "--ca", token.key("ca"))
    factory.up()
    works(factory)
    backup = factory.directory / "factory.backup"
    factory.tell("backup", backup, "--with-keys")
    held = backup.read_bytes()
    assert token.key("ca").encode() in held and b"PRIVATE" not in held
    assert factory.master is not None
    factory.master.kill()
    shutil.rmtree(factory.state)
    factory.tell("restore", backup)
    assert (factory.state / "ca.key").read_text().strip() == token.key("ca")
    factory.up()
    works(factory)
    factory.tell("ca", "log", "verify")

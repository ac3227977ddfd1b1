"""Several Masters, each with a CA of its own, whose keys never leave their machines."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable
from typing import Any

from etcd import Etcd
from harness import SEALBUS, Platform, sealbus, wait_for
from test_etcd import manifest
from test_standby import Masters, beside, stands_by

Make = Callable[[str], Platform]
Start = Callable[[int], Etcd]
BROKER = """
[rabbitmq]
addresses = ["127.0.0.1:5671"]
management = ["127.0.0.1:15671"]
operator = "manager"
password-file = "operator.secret"
"""


def refused_broker(master: Platform) -> str:
    """Why the CA of a Master that does not run certifies no broker."""
    with_broker = master.directory / "broker.toml"
    with_broker.write_text(master.manifest.read_text().replace("[platform]", '[platform]\ntransport = "rabbitmq"') + BROKER)
    written = ("--write-config", master.directory / "broker", "--state", master.state)
    return sealbus("broker", "rabbitmq", with_broker, *written, expect=1).stderr.decode()


def issuers(masters: Masters, *names: str) -> set[str]:
    """The CAs of the valid certificates of agents."""
    listed = masters.leading(lambda master: master.ask("ca", "list", "--valid"))
    wanted = {f"spiffe://factory/agent/{name}" for name in names}
    found = {each["identity"]: each["log"] for each in sorted(listed, key=lambda it: it["not_before"])}
    return {found[name] for name in wanted}


def authorities(masters: Masters) -> dict[str, Any]:
    found = masters.leading(lambda master: master.ask("ca", "authorities"))
    return {each["name"]: each for each in found}


def logs(masters: Masters) -> dict[str, int]:
    """The sizes of all issuance logs, which are sound."""
    verified = masters.leading(lambda master: master.tell("ca", "log", "verify", "--json"))
    return {log["origin"]: log["size"] for log in map(json.loads, verified.stdout.splitlines())}


def talk(masters: Masters) -> None:
    """Both agents answer the operator, and one hears the other."""

    def heard() -> int:
        return len(masters.asked("seller", '["heard"]').get("buyer", []))

    before = heard()

    def again() -> bool:
        # While certificates are replaced, messages may come back.
        masters.asked("buyer", json.dumps(["send", "seller", 10, 10]))
        return heard() > before

    wait_for(again, "messages to be heard", also=lambda: "".join(it.logs() for it in masters.masters))


def test_each_master_certifies_with_a_ca_of_its_own_and_a_former_ca_is_revoked_and_replaced(
    platform: Make, cluster: Start
) -> None:
    etcd = cluster(1)
    first = platform(manifest(etcd, "seller", "buyer")).up("--json")
    first.node("node-1")
    before = Masters(first).place("seller", "buyer")
    second = beside(first, platform(manifest(etcd, "seller", "buyer")))
    masters = Masters(first, second)
    (leader, standby) = masters.listed(2)
    assert leader["authority"] == "ca" and standby["authority"].startswith("ca-"), (leader, standby)
    new = standby["authority"]
    keys = {(master.state / "ca.key").read_bytes() for master in (first, second)}
    assert len(keys) == 2 and not (second.state / "root.key").exists()
    assert issuers(masters, "seller", "buyer") == {"ca"}
    itself = first.tell("ca", "revoke", "--authority", "ca", expect=None)
    assert itself.returncode != 0 and b"hand-over" in itself.stderr, itself.stderr

    masters.tell("masters", "hand-over")
    wait_for(lambda: masters.listed(2)[0]["authority"] == new, "the other Master to lead")
    masters.alive_again()
    assert masters.place("seller", "buyer") == before
    # Certificates of the other CA are still believed, and those of this one, too.
    talk(masters)
    assert authorities(masters)[new]["certifies"]
    late = masters.leading(lambda master: master.tell("ca", "revoke", "--authority", "ca-0", expect=None))
    assert late.returncode != 0 and b"ca authorities" in late.stderr, late.stderr

    # The machine of the first Master is stolen. Its CA is revoked, and the agents get certificates of the other one.
    assert first.master is not None and second.master is not None
    first.master.kill()
    masters = Masters(second)
    second.tell("ca", "revoke", "--authority", "ca", "--reason", "stolen")
    assert "stolen" in authorities(masters)["ca"]["revoked"]
    wait_for(lambda: issuers(masters, "seller", "buyer") == {new}, "new certificates", also=second.logs)
    assert masters.place("seller", "buyer") == before
    talk(masters)

    # A Master whose CA was revoked does not come back with it.
    refused = sealbus("up", first.manifest, "--state", first.state, expect=1).stderr.decode()
    assert "was revoked" in refused and "--join" in refused, refused
    assert not (first.state / "ca.key").exists()
    # The root's key is on the first machine. It certifies the CA that replaces the revoked one.
    root = first.directory / "root"
    root.mkdir(mode=0o700)
    shutil.move(first.state / "root.key", root / "root.key")
    shutil.copy2(first.state / "root.der", root / "root.der")
    token = second.ask("token", "--master")["token"]
    away = sealbus("up", first.manifest, "--state", first.state, "--join", token, expect=5).stderr.decode()
    assert "root's key" in away and "sealbus ca certify" in away, away
    request, certified = first.directory / "request.pem", first.directory / "ca.pem"
    request.write_bytes(sealbus("ca", "request", first.manifest, "--state", first.state).stdout)
    certified.write_bytes(sealbus("ca", "certify", request, "--root", root).stdout)
    wrong = sealbus("up", second.manifest, "--state", first.directory / "other", "--join", certified, expect=1)
    assert b"another key" in wrong.stderr, wrong.stderr
    join = ("--join", certified, "--state", first.state)
    first.master = first.program(SEALBUS, "up", first.manifest, *join, "--json", name="again")
    stands_by(first)
    masters = Masters(first, second)

    def is_told() -> bool:
        return masters.listed(2)[1]["authority"] not in ("ca", new)

    wait_for(is_told, "the CA in place of the revoked one", also=first.logs)
    (_, standby) = masters.listed(2)
    masters.tell("masters", "hand-over")
    wait_for(lambda: masters.listed(2)[0]["authority"] == standby["authority"], "the replaced Master to lead")
    masters.alive_again()
    talk(masters)
    # The new leader still denies what was revoked before.
    assert authorities(masters)["ca"]["revoked"]
    origins = {f"spiffe://factory/authority/{name}/issuance" for name in ("ca", new, standby["authority"])}
    wait_for(lambda: set(logs(masters)) == origins, "the logs of all CAs")


def test_a_token_for_a_master_is_good_once_and_for_nothing_else(platform: Make, cluster: Start) -> None:
    etcd = cluster(1)
    first = platform(manifest(etcd)).up("--json")
    second = platform(manifest(etcd))
    node = first.ask("token")["token"]
    refused = sealbus("up", second.manifest, "--state", second.state, "--join", node, expect=1).stderr.decode()
    assert "token for a Master is needed" in refused, refused
    token = first.ask("token", "--master")["token"]
    as_node = sealbus("node", "--token", token, "--state", first.directory / "node", expect=2).stderr.decode()
    assert "join token is needed" in as_node, as_node
    second.master = second.program(
        SEALBUS, "up", second.manifest, "--join", token, "--state", second.state, "--json", name="up"
    )
    stands_by(second)
    third = platform(manifest(etcd))
    twice = sealbus("up", third.manifest, "--state", third.state, "--join", token, expect=5).stderr.decode()
    assert "was used already" in twice, twice
    # A Master that has joined passes over its old token.
    assert second.master is not None
    second.master.kill()
    second.master = second.program(
        SEALBUS, "up", second.manifest, "--join", token, "--state", second.state, "--json", name="again"
    )
    stands_by(second)
    alone = platform(manifest(None)).up()
    single = alone.tell("token", "--master", expect=None)
    assert single.returncode != 0 and b"etcd" in single.stderr, single.stderr


def test_two_masters_that_begin_a_platform_at_once_make_one_root(platform: Make, cluster: Start) -> None:
    etcd = cluster(1)
    both = [platform(manifest(etcd)) for _ in range(2)]
    for master in both:
        master.master = master.program(SEALBUS, "up", master.manifest, "--state", master.state, "--json", name="up")

    def refused() -> list[Platform]:
        return [master for master in both if master.master is not None and master.master.process.poll() is not None]

    (late,) = wait_for(refused, "one of them to be refused", also=lambda: "".join(it.logs() for it in both))
    (first,) = (master for master in both if master is not late)
    assert late.master is not None
    assert late.master.wait() == 1 and "whose root is" in late.master.output(), late.master.output()
    assert not (late.state / "root.key").exists()
    masters = Masters(first)
    (leader,) = masters.listed(1)
    assert leader["authority"] == "ca"
    kept = etcd.ctl("get", "/sealbus/factory/rows/root", "--print-value-only").strip()
    assert kept and kept in late.master.output()
    # It comes with a token, and then has the same root.
    token = first.ask("token", "--master")["token"]
    words = ("up", late.manifest, "--join", token, "--state", late.state, "--json")
    late.master = late.program(SEALBUS, *words, name="again")
    stands_by(late)
    assert (first.state / "root.der").read_bytes() == (late.state / "root.der").read_bytes()


def test_a_master_on_a_copied_state_directory_is_refused_while_the_other_one_runs(
    platform: Make, cluster: Start
) -> None:
    etcd = cluster(1)
    first = platform(manifest(etcd)).up("--json")
    (leader,) = Masters(first).listed(1)
    # All of it, with the name of its instance, and what a thief of the CA needs.
    copied, stolen = platform(manifest(etcd)), platform(manifest(etcd))
    names = {
        copied: [file.name for file in first.state.iterdir() if file.is_file()],
        stolen: ["ca.key", "ca.chain", "root.der"],
    }
    assert "instance" in names[copied]
    for second, files in names.items():
        second.state.mkdir(mode=0o700)
        for name in files:
            shutil.copy2(first.state / name, second.state / name)
        refused = sealbus("up", second.manifest, "--state", second.state, expect=1).stderr.decode()
        assert leader["enrolment"] in refused and str(second.state) in refused, refused
        assert "sealbus token --master" in refused, refused
        # Its CA certifies no broker there either.
        refused = refused_broker(second)
        assert leader["enrolment"] in refused, refused
        # The first one still changes the state.
        first.ask("token")
    (now,) = Masters(first).listed(1)
    assert now["term"] == leader["term"]
    # A state directory may move to another machine once its Master has ended.
    assert first.master is not None
    first.master.kill()
    shutil.rmtree(copied.state)
    shutil.copytree(first.state, copied.state, ignore=shutil.ignore_patterns("*.sock"))
    copied.up("--json")
    (moved,) = Masters(copied).listed(1)
    assert moved["authority"] == leader["authority"] and moved["term"] > leader["term"]


def test_the_state_of_a_master_that_does_not_run_certifies_no_broker_while_another_one_leads(
    platform: Make, cluster: Start
) -> None:
    etcd = cluster(1)
    first = platform(manifest(etcd)).up("--json")
    second = beside(first, platform(manifest(etcd)))
    assert second.master is not None
    second.master.kill()
    (leader,) = Masters(first).listed(1)
    refused = refused_broker(second)
    assert leader["enrolment"] in refused and "leads this platform" in refused, refused
    # The first one still leads, and changes the state.
    first.ask("token")
    (now,) = Masters(first).listed(1)
    assert now["term"] == leader["term"]


def test_a_master_that_finds_its_twin_beside_its_own_row_has_changed_nothing(platform: Make, cluster: Start) -> None:
    etcd = cluster(1)
    first = platform(manifest(etcd)).up("--json")
    assert first.master is not None
    first.master.kill()
    name = (first.state / "instance").read_text()
    row = f"/sealbus/factory/instance/{name}"
    wait_for(lambda: not etcd.ctl("get", row), "the row of the Master that was killed to go")
    # The first half of a large change of its twin, and an act that the twin may have handed in already.
    staged = f"/sealbus/factory/staged/{name}/mark/000000"
    etcd.ctl("put", staged, "first half")
    acts = first.state / "unstored.log"
    acts.write_text(json.dumps([7, {"act": "revoked", "what": "thief", "said": "stolen", "at": int(time.time())}]))

    def shared() -> list[tuple[str, int]]:
        """All keys but the row, and when each was written."""
        found = json.loads(etcd.ctl("get", "--prefix", "/sealbus/factory/", "-w", "json"))
        keys = [(base64.b64decode(each["key"]).decode(), each["mod_revision"]) for each in found["kvs"]]
        return [(key, written) for key, written in keys if key != row]

    before = shared()
    assert staged in dict(before)
    # It looks for twins, and finds none. It then reads this file, which comes once its twin has begun.
    gate = first.state / "enrolment.port"
    port = gate.read_text()
    gate.unlink()
    os.mkfifo(gate)
    first.master = first.program(SEALBUS, "up", first.manifest, "--state", first.state, name="again")

    def opened() -> int | None:
        with contextlib.suppress(OSError):
            return os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
        return None

    writer = wait_for(opened, "the Master to read its port", also=first.logs)
    facts = {"host": "mill", "enrolment": "10.0.0.1:7700", "since": 0, "beat": 1}
    etcd.ctl("put", row, f"{name}\n{json.dumps(facts)}")
    os.write(writer, port.encode())
    os.close(writer)
    assert first.master.wait() == 1
    said = first.master.output()
    assert "10.0.0.1:7700" in said and "the name" in said, said
    assert shared() == before and "thief" in acts.read_text()
    # Once it is alone, it removes what nobody commits any more.
    etcd.ctl("del", row)
    gate.unlink()
    gate.write_text(port)
    first.up("--json")
    assert not etcd.ctl("get", staged)

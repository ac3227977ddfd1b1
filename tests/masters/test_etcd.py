"""A Master whose state is in etcd: it outlives kills of the Master, of its machine's disk and of members of etcd."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable

from etcd import Etcd
from harness import PROGRAMS, SEALBUS, Platform, sealbus, wait_for

Make = Callable[[str], Platform]
Start = Callable[[int], Etcd]


def manifest(etcd: Etcd | None, *names: str) -> str:
    agents = [
        f"""
    [[agent]]
    name = "{name}"
    command = ["PYTHON", "{PROGRAMS}/worker.py"]
    restart = "always"
"""
        for name in names
    ]
    return """
    [platform]
    name = "factory"
    nodes = 0
""" + "".join(agents) + (etcd.manifest() if etcd else "")


def rows(etcd: Etcd) -> list[str]:
    keys = etcd.ctl("get", "--prefix", "/sealbus/factory/rows/", "--keys-only").split()
    return [key.removeprefix("/sealbus/factory/rows/") for key in keys]


def test_the_state_is_in_etcd_and_outlives_the_master_and_any_member(platform: Make, cluster: Start) -> None:
    etcd = cluster(3)
    factory = platform(manifest(etcd, "seller", "buyer"))
    checked = json.loads(sealbus("store", "check", factory.manifest, "--json").stdout)
    assert len(checked["members"]) == 3 and sum(member["leads"] for member in checked["members"]) == 1
    assert checked["faults"] == [] and checked["write_p99"] > 0
    factory.up()
    factory.node("node-1")
    places = {name: agent["pid"] for name, agent in factory.active("seller", "buyer").items()}
    assert not (factory.state / "state.redb").exists()
    assert {"term", "root", "node/node-1"} <= set(rows(etcd))

    # A second Master on this state directory must not begin.
    refused = sealbus("up", factory.manifest, "--state", factory.state, expect=1).stderr.decode()
    assert "open in another process" in refused, refused

    for name in etcd.clients:
        etcd.kill(name)
        factory.tell("df", "register", "seller", "--type", f"without-{name}", "--name", name)
        etcd.start(name)
        etcd.await_healthy()
        etcd.signal(name, signal.SIGSTOP)
        factory.tell("df", "register", "seller", "--type", f"beside-{name}", "--name", f"beside-{name}")
        etcd.signal(name, signal.SIGCONT)
        etcd.await_healthy()

    assert factory.master is not None
    factory.master.kill()
    factory.up()
    after = {name: agent["pid"] for name, agent in factory.active("seller", "buyer").items()}
    assert after == places
    found = json.dumps(factory.ask("df", "search"))
    for name in etcd.clients:
        assert f"without-{name}" in found and f"beside-{name}" in found, found


def test_a_master_without_etcd_waits_and_goes_on(platform: Make, cluster: Start) -> None:
    etcd = cluster(1)
    factory = platform(manifest(etcd, "seller", "buyer")).up()
    factory.node("node-1")
    factory.active("seller", "buyer")
    etcd.kill("etcd-1")
    refused = factory.tell("df", "register", "seller", "--type", "tea", "--name", "shop", expect=None)
    assert refused.returncode != 0 and b"etcd-away" in refused.stderr, refused.stderr

    def warned() -> bool:
        return any("etcd-away" in warning for warning in factory.ask("status")["warnings"])

    wait_for(warned, "a warning that etcd is away", also=factory.logs)
    etcd.start("etcd-1")

    def registered() -> bool:
        return factory.tell("df", "register", "seller", "--type", "tea", "--name", "shop", expect=None).returncode == 0

    wait_for(registered, "etcd to be used again", also=factory.logs)
    wait_for(lambda: not warned(), "the warning to go", also=factory.logs)
    assert factory.send("seller", '["where"]')


def test_a_lost_machine_is_replaced_by_one_whose_ca_the_root_certifies(platform: Make, cluster: Start) -> None:
    etcd = cluster(1)
    factory = platform(manifest(etcd, "seller")).up()
    node = factory.node("node-1")
    before = factory.active("seller")["seller"]["pid"]
    size = json.loads(sealbus("ca", "log", "verify", "--json", "--state", factory.state).stdout)
    root = factory.directory / "root"
    root.mkdir(mode=0o700)
    for name in ("root.key", "root.der"):
        shutil.copy2(factory.state / name, root / name)
    # The machine is lost while a checkpoint waits for its witness, and the files of its log are already there.
    log = factory.state / "log" / "ca"

    def is_ahead() -> bool:
        written = max(int(file.name) for file in (log / "tile/entries/000.p").glob("[0-9]*") if file.name.isdigit())
        return written > int((log / "checkpoint").read_text().splitlines()[1])

    token = factory.ask("token", "--name", "node-2")["token"]
    node.process.send_signal(signal.SIGSTOP)
    factory.program(SEALBUS, "node", "--token", token, "--state", factory.directory / "node-2", name="node-2")
    wait_for(is_ahead, "a checkpoint that waits for its witness", also=factory.logs)
    assert factory.master is not None
    factory.master.kill()
    node.process.send_signal(signal.SIGCONT)
    shutil.rmtree(factory.state)

    # Another platform's Master of the same name must not touch the state.
    refused = sealbus("up", factory.manifest, "--state", factory.state, expect=1).stderr.decode()
    assert "sealbus up --join" in refused, refused
    shutil.rmtree(factory.state)
    request = factory.directory / "request.pem"
    request.write_bytes(sealbus("ca", "request", factory.manifest, "--state", factory.state).stdout)
    # The key stays the same until it is certified, so that a request may be made twice.
    assert sealbus("ca", "request", factory.manifest, "--state", factory.state).stdout == request.read_bytes()
    certified = factory.directory / "ca.pem"
    certified.write_bytes(sealbus("ca", "certify", request, "--root", root).stdout)
    factory.up("--join", certified)
    assert factory.active("seller")["seller"]["pid"] == before
    lines = sealbus("ca", "log", "verify", "--json", "--state", factory.state).stdout.splitlines()
    logs = {log["origin"]: log["size"] for log in map(json.loads, lines)}
    assert len(logs) == 2 and logs["spiffe://factory/authority/ca/issuance"] >= size["size"] > 0, (logs, size)


def test_a_platform_moves_to_etcd_by_a_backup(platform: Make, cluster: Start) -> None:
    etcd = cluster(1)
    factory = platform(manifest(None, "seller")).up()
    factory.node("node-1")
    before = factory.active("seller")["seller"]["pid"]
    backup = factory.directory / "factory.backup"
    factory.tell("backup", backup, "--with-keys")
    assert factory.master is not None
    factory.master.kill()
    wanted = platform(manifest(etcd, "seller")).manifest.read_text()
    factory.manifest.write_text(wanted)
    refused = sealbus("up", factory.manifest, "--state", factory.state, expect=1).stderr.decode()
    assert "state.redb" in refused and "backup" in refused, refused
    shutil.move(factory.state, factory.directory / "before")
    factory.tell("restore", backup, "--manifest", factory.manifest)
    again = factory.directory / "again"
    twice = sealbus("restore", backup, "--manifest", factory.manifest, "--state", again, expect=1).stderr.decode()
    assert "etcd holds" in twice, twice
    # No Master leads on half a state, and what an interrupted restore left overruns none that is complete.
    etcd.ctl("put", "/sealbus/factory/rows/restoring", "another")
    refused = sealbus("up", factory.manifest, "--state", factory.state, expect=1).stderr.decode()
    assert "restore-unfinished" in refused, refused
    etcd.ctl("del", "/sealbus/factory/rows/restoring")
    draft = factory.state / "restored.draft"
    draft.write_text("another")
    refused = factory.tell("restore", backup, "--manifest", factory.manifest, expect=1).stderr.decode()
    assert "restored.draft" in refused, refused
    draft.unlink()
    factory.up()
    assert factory.active("seller")["seller"]["pid"] == before
    # Without [store] the state would seem to be lost.
    factory.master.kill()
    factory.manifest.write_text(platform(manifest(None, "seller")).manifest.read_text())
    refused = sealbus("up", factory.manifest, "--state", factory.state, expect=1).stderr.decode()
    assert "the state is in etcd" in refused, refused

"""A Master that goes on from an older copy of its state: its nodes give back the lost part."""

import json
import shutil

import pytest
from harness import PROGRAMS, SEALBUS, one_worker, sealbus, wait_for


def test_a_revocation_outlives_the_copy_of_the_store_that_has_none(platform):
    factory = platform(one_worker()).up()
    factory.active("worker")
    factory.node("node-2")
    factory.tell("move", "worker", "node-2")
    serial = factory.active("worker")["worker"]["serial"]
    factory.master.kill()
    copy = factory.directory / "state.redb"
    shutil.copy2(factory.state / "state.redb", copy)
    factory.up()
    factory.active("worker")
    factory.tell("ca", "revoke", "worker", "--reason", "stolen")

    def revoked() -> bool:
        return any(each["revoked"] for each in factory.ask("ca", "list") if each["serial"] == serial)

    wait_for(revoked, "the revocation", also=factory.logs)
    # Its process has ended, so node-2 knows of the revocation.
    wait_for(lambda: factory.agents()["worker"]["state"] != "active", "the worker to be cut off", also=factory.logs)
    factory.master.kill()
    shutil.copy2(copy, factory.state / "state.redb")
    factory.up()
    wait_for(revoked, "the node to hand the deny list back", also=factory.logs)
    wait_for(
        lambda: "deny-list-handed-back" in factory.master.output(), "the operator to be told", also=factory.logs
    )


def workers(*names):
    """A platform without nodes of its own, with one worker of each name."""
    agents = [f"""
    [[agent]]
    name = "{name}"
    command = ["PYTHON", "{PROGRAMS}/worker.py"]
    restart = "always"
""" for name in names]
    return """
    [platform]
    name = "factory"
    nodes = 0
""" + "".join(agents)


# With the root's key, the Master makes another CA.
@pytest.mark.parametrize("kept", ["ca.key", "root.key"])
def test_a_platform_whose_master_lost_its_disk_goes_on_from_a_backup(platform, kept):
    names = ("seller", "buyer", "thief")
    factory = platform(workers(*names)).up()
    factory.node("node-1")
    factory.active(*names)
    backup = factory.directory / "factory.backup"
    factory.tell("backup", backup)
    assert backup.stat().st_mode & 0o777 == 0o600

    # All of this is unknown to the backup: a revocation, a node, and an agent.
    factory.tell("ca", "revoke", "thief", "--reason", "stolen")
    wait_for(lambda: factory.agents()["thief"]["state"] != "active", "the thief to be cut off", also=factory.logs)
    factory.node("node-2")
    known = platform(workers(*names, "late")).manifest
    factory.manifest.write_text(known.read_text())
    factory.tell("apply", factory.manifest, "--yes")
    factory.active("late")
    places = {name: factory.send(name, '["where"]') for name in ("seller", "buyer", "late")}
    factory.send("seller", '["send", "buyer", 2000, 5000]')

    key = (factory.state / kept).read_bytes()
    factory.master.kill()
    shutil.rmtree(factory.state)
    refused = factory.tell("restore", backup, expect=1).stderr.decode()
    assert "has no private keys" in refused and "ca.key" in refused, refused
    (factory.state / kept).write_bytes(key)
    factory.tell("restore", backup)
    assert "is there already" in factory.tell("restore", backup, expect=1).stderr.decode()
    factory.up()
    wait_for(lambda: "goes on from its backup" in factory.master.output(), "the nodes to be heard", also=factory.logs)
    agents = factory.active(*places)
    assert agents["thief"]["state"] != "active", agents["thief"]
    assert "revoked by an operator" in str(agents["thief"]), agents["thief"]
    assert {node["state"] for node in factory.nodes().values()} == {"alive"}
    assert {name: factory.send(name, '["where"]') for name in places} == places

    # Messages on their way arrived. Agents that the restored Master adopted can be written to, and revoked.
    def heard(name):
        return json.loads(factory.send(name, '["heard"]'))

    wait_for(lambda: len(sum(heard("buyer").values(), [])) == 2000, "all messages to be heard", also=factory.logs)
    failures = json.loads(factory.send("seller", '["failures"]'))
    # The operator's process was the lost Master: an answer to it may have been on its way.
    assert [each for each in failures if "operator@factory" not in each] == []
    factory.send("seller", '["send", "late", 3, 0]')
    wait_for(lambda: sum(heard("late").values(), []) == [0, 1, 2], "the late one to be written to", also=factory.logs)
    factory.tell("ca", "revoke", "late")
    wait_for(lambda: factory.agents()["late"]["state"] != "active", "the late one to be cut off", also=factory.logs)


def test_a_backup_that_ends_in_the_middle_has_no_name(platform):
    factory = platform(workers()).up()
    backup = factory.directory / "half"
    # The system ends a program that writes more than one block.
    script = 'ulimit -f 1; exec "$0" backup "$1" --state "$2"'
    ended = factory.program("bash", "-c", script, SEALBUS, backup, factory.state, name="backup")
    assert ended.wait() != 0
    assert not backup.exists()
    factory.tell("backup", backup)


def test_what_is_no_backup_is_refused_by_name(platform):
    factory = platform(workers()).up()
    backup = factory.directory / "whole"
    factory.tell("backup", backup, "--with-keys")
    whole = backup.read_bytes()
    assert b"PRIVATE KEY" in whole
    assert "exists" in factory.tell("backup", backup, expect=1).stderr.decode()
    damaged = whole.replace(b"PRIVATE KEY", b"private key", 1)
    later = whole.replace(b"sealbus backup 1", b"sealbus backup 2", 1)
    for contents, why in (
        (whole[:-1], "cut off"),
        (damaged, "damaged"),
        (whole + b" ", "something follows its end"),
        (b"PK\x03\x04 of another program", "no backup of Sealbus"),
        (later, "another version"),
        (b"", "no backup of Sealbus"),
    ):
        wrong = factory.directory / "wrong"
        wrong.write_bytes(contents)
        state = factory.directory / "restored"
        said = sealbus("restore", wrong, "--state", state, expect=1).stderr.decode()
        assert why in said and "cannot be restored" in said, said
        assert not state.exists()
    # With its keys, a backup needs nothing else, not even to be a file.
    sealbus("restore", "-", "--state", state, stdin=whole)
    assert {"state.redb", "root.der", "root.key", "ca.key", "ca.chain"} <= {path.name for path in state.iterdir()}

"""An agent's program attacks its node and the agent beside it, in every mode of isolation that this machine has."""

import json
from pathlib import Path

import pytest
from harness import Platform, alive, sealbus, wait_for

HOSTILE = Path(__file__).resolve().parent / "programs" / "hostile.py"

#: A file of the hostile program, where every program of the machine may write.
COMMON = Path("/tmp/sealbus-hostile")

#: For each mode, the attacks that succeed. Without isolation, all attacks succeed that need no help of the machine.
SUCCEED: dict[str, set[str]] = {
    "none": {
        "read the node's key",
        "read the operators' key",
        "read the node's log",
        "read the victim's folder",
        "read past the root",
        "change its own program",
        "write beside its program",
        "write to the common folder",
        "signal the victim",
        "signal the node",
        "read the victim's variables",
        "read the victim's command line",
        "limit the victim",
        "slow the victim",
        "move the victim",
        "connect to the operators",
        "connect to the victim's name",
        "share the victim's memory",
        "gain privileges",
    },
    "landlock": set(),
    "namespace": set(),
    "uid": set(),
}

MANIFEST = """
    [platform]
    name = "factory"

    [[agent]]
    name = "victim"
    command = ["PYTHON", "FOLDER/hostile.py", "victim"]
    environment = {{ HOME = "{home}" }}
    unix-sockets = true
    restart = "never"

    [[agent]]
    name = "hostile"
    command = ["PYTHON", "FOLDER/hostile.py"]
    environment = {{ ORDERS = "FOLDER/orders", HOME = "{own}" }}
    restart = "never"
"""


def working() -> dict[str, str | None]:
    """The modes of this machine; of those that do not work, why."""
    told = json.loads(sealbus("node", "--check", "--json").stdout)
    return {each["isolation"]: each["problem"] for each in told} | {"none": None}


@pytest.fixture(scope="module")
def modes() -> dict[str, str | None]:
    return working()


def needs(modes: dict[str, str | None], mode: str) -> None:
    problem = modes[mode]
    if problem is not None:
        pytest.skip(f"{mode}: {problem}")


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """A folder that every user reaches."""
    folder = tmp_path / "p"
    folder.mkdir()
    for each in [folder, *folder.parents][:-2]:
        each.chmod(0o755)
    return folder


def lines(factory: Platform, agent: str) -> list[str]:
    return factory.tell("logs", agent, expect=None).stdout.decode().splitlines()


@pytest.mark.parametrize("mode", SUCCEED)
def test_a_hostile_program_achieves_what_its_isolation_permits_and_no_more(mode, modes, open_folder):
    needs(modes, mode)
    (open_folder / "orders").mkdir()
    (open_folder / "hostile.py").write_text(HOSTILE.read_text())
    work = open_folder / "state" / "node-1" / "work"
    own = {name: work / name for name in ("victim", "hostile")}
    text = MANIFEST.format(home=own["victim"], own=own["hostile"])
    factory = Platform(open_folder, text.replace("FOLDER", str(open_folder)))
    if mode == "none":
        for folder in own.values():
            folder.mkdir(parents=True)
    try:
        factory.up("--isolation", mode)
        wait_for(lambda: "the victim is there" in "\n".join(lines(factory, "victim")), "the victim", also=factory.logs)
        assert factory.nodes()["node-1"]["isolation"] == mode
        victim = factory.agents()["victim"]["pid"]
        (node,) = {int(each) for each in pids_of_node(factory)}
        orders = {"state": str(factory.state), "victim": victim, "node": node}
        draft = open_folder / "orders" / "draft"
        draft.write_text(json.dumps(orders))
        draft.chmod(0o644)
        draft.rename(open_folder / "orders" / "orders.json")

        def told():
            found = [json.loads(line) for line in lines(factory, "hostile") if line.startswith("{")]
            return found if found and "left" in found[-1] else None

        *attempts, last = wait_for(told, "the attacks to be over", also=factory.logs)
        succeeded = {each["attack"] for each in attempts if each["succeeded"]}
        if mode == "none":
            assert SUCCEED[mode] <= succeeded
            return
        assert succeeded == SUCCEED[mode], attempts
        assert (own["hostile"] / "notes").exists()
        assert alive(victim)
        left = last["left"]
        assert alive(left)
        factory.tell("kill", "hostile")
        wait_for(lambda: not alive(left), "what the program left behind to end", also=factory.logs)
    finally:
        factory.down()
        COMMON.unlink(missing_ok=True)


def pids_of_node(factory: Platform) -> list[int]:
    mark = b"\0node\0--name\0node-1\0"
    return [pid for pid in factory.pids() if mark in Path(f"/proc/{pid}/cmdline").read_bytes()]


def note_of(factory: Platform, agent: str) -> str:
    return str(factory.agents().get(agent, {}).get("note"))


def test_no_program_runs_with_less_isolation_than_it_asks_for(platform, modes):
    needs(modes, "landlock")
    factory = platform(
        """
        [platform]
        name = "factory"
        isolation = "uid"

        [[agent]]
        name = "careful"
        command = ["PYTHON", "-c", "print('ran', flush=True)"]

        [[agent]]
        name = "careless"
        command = ["PYTHON", "-c", "print('ran', flush=True)"]
        isolation = "landlock"
        """
    ).up("--isolation", "landlock")
    wait_for(lambda: "ran" in lines(factory, "careless"), "the other agent to run", also=factory.logs)
    wait_for(lambda: "node-1 cannot isolate its program by uid" in note_of(factory, "careful"), "the reason", also=factory.logs)


def test_a_program_that_cannot_be_sealed_is_not_started(platform, modes, tmp_path):
    needs(modes, "landlock")
    nowhere = tmp_path / "nowhere"
    factory = platform(
        f"""
        [platform]
        name = "factory"

        [[agent]]
        name = "lost"
        command = ["PYTHON", "-c", "print('ran', flush=True)"]
        write = ["{nowhere}"]
        """
    ).up()

    def told():
        # The node tries again, and has no reason to tell meanwhile.
        note = note_of(factory, "lost")
        return note if str(nowhere) in note else ""

    assert wait_for(told, "the reason", also=factory.logs).count("it cannot find what it may read and write") == 1
    assert "ran" not in lines(factory, "lost")


def test_a_program_reaches_what_the_manifest_opens(platform, modes, tmp_path):
    needs(modes, "landlock")
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "in").write_text("read")
    closed = tmp_path / "closed"
    closed.write_text("secret")
    code = f"open('{shared}/out', 'w').write(open('{shared}/in').read()); print('done', flush=True); open('{closed}')"
    factory = platform(
        f"""
        [platform]
        name = "factory"

        [[agent]]
        name = "clerk"
        command = ["PYTHON", "-c", "{code}"]
        write = ["{shared}"]
        restart = "never"
        """
    ).up()
    wait_for(lambda: "done" in lines(factory, "clerk"), "the program to write", also=factory.logs)
    assert (shared / "out").read_text() == "read"
    text = wait_for(
        lambda: (found := "\n".join(lines(factory, "clerk"))) if "Error" in "\n".join(lines(factory, "clerk")) else None,
        "the program to fail",
        also=factory.logs,
    )
    assert "PermissionError" in text or "FileNotFoundError" in text

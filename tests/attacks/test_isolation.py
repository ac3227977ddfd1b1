"""An agent's program attacks its node and the agent beside it, in every mode of isolation that this machine has."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from harness import Platform, alive, sealbus, wait_for
from isolated import HERE, lines, needs, node_of, note_of, order, provide, said
from programs.kernel import handle_of

#: A file of the hostile program, where every program of the machine may write.
COMMON = Path("/tmp/sealbus-hostile")
#: Sockets behind which a program with the rights of root may wait.
CONTAINERS = [Path(path) for path in ("/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock")]

#: Sockets of the node's user in a folder that the program may read. The mode `namespace` does not hide them, and `landlock` allows
#: no unix sockets at all.
OF_THE_USER = {
    "connect to another service of the user",
    "write to another service of the user",
    "write to another service of the user by a pair",
}

#: Landlock limits what is opened, and not whose rights are changed.
CHANGE_RIGHTS = "change the rights to the node's key"

#: For each mode, the attacks that succeed. Without isolation, all attacks succeed that need no help of the machine.
SUCCEED: dict[str, set[str]] = {
    "none": {
        "read the node's key",
        "read the operators' key",
        "read the node's log",
        "read the victim's folder",
        "read past the root",
        CHANGE_RIGHTS,
        "read the node's key by a hard link",
        "read the node's key by a symbolic link",
        "change its own program",
        "write beside its program",
        "move a file of its own beside its program",
        "move a file away from its program",
        "link a file of its own program",
        "write to the common folder",
        "signal the victim",
        "signal the node",
        "signal the Master",
        "read the victim's variables",
        "read the victim's command line",
        "list the victim's files",
        "open a file of the victim",
        "limit the victim",
        "slow the victim",
        "move the victim",
        "connect to the operators",
        "connect to the victim's name",
        "write to the victim's name",
        "write to the victim's name by a pair",
        "share the victim's memory",
        "gain privileges",
        "look into what begins",
        "connect to a service in the folder of all",
        *OF_THE_USER,
    },
    "landlock": {CHANGE_RIGHTS},
    "namespace": OF_THE_USER,
    "uid": set(),
}

#: The reasons for which an attack fails. The kernel refuses most with these.
REFUSED = {"EACCES", "EPERM"}
#: A mode hides the folder, or Landlock takes a file to no place with other rights.
HIDDEN, ELSEWHERE = REFUSED | {"ENOENT"}, REFUSED | {"EXDEV"}
REASONS: dict[str, set[str | None]] = {
    "read the node's key": HIDDEN,
    "read the operators' key": HIDDEN,
    "read the node's log": HIDDEN,
    "read the victim's folder": HIDDEN,
    "read past the root": HIDDEN,
    CHANGE_RIGHTS: HIDDEN,
    "read the node's key by a hard link": HIDDEN | ELSEWHERE,
    "read the node's key by a symbolic link": HIDDEN,
    "move a file of its own beside its program": ELSEWHERE,
    "move a file away from its program": ELSEWHERE,
    "link a file of its own program": ELSEWHERE,
    "mount the node's folder": {"EPERM"},
    "take the node's folder as a mount": {"EPERM"},
    "open the node's key by its number": {"EPERM"},
    "connect to the operators": HIDDEN,
    "connect to a service in the folder of all": HIDDEN,
    # Programs have System V's shared memory of their own.
    "share the victim's memory": HIDDEN,
    "make a process in a user namespace by clone3": {"ENOSYS"},
    # In the mode `landlock` the socket itself cannot be reached.
    "attach by the victim's ticket": {"invalid-secret", "EPERM"},
    "attach over the network by the victim's ticket": {"invalid-secret"},
    # These have no error.
    "gain privileges": {None},
    "gain capabilities": {None},
    "dump core": {None},
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

    [[agent]]
    name = "planter"
    command = ["PYTHON", "FOLDER/hostile.py", "planter"]
    environment = {{ LD_PRELOAD = "FOLDER/preloaded.so", CONFIG = "FOLDER/shared/config", SECRET = "{secret}" }}
    read = ["FOLDER/shared/config"]
    write = ["FOLDER/shared"]
    restart = "never"
"""


def compiled(folder: Path, name: str, source: str, *options: str) -> Path:
    """Compiles a program of an attack. A linker is there: Rust needs one."""
    made = folder / name
    subprocess.run(["cc", *options, "-o", made, HERE / "programs" / source], check=True)
    return made


def becomes_root(folder: Path) -> str | None:
    """A program that runs as root whoever starts it; none if this user can make none, or the machine heeds none there."""
    if os.getuid() != 0:
        return None
    program = compiled(folder, "becomes-root", "becomes_root.c")
    program.chmod(0o4755)
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program]
    return str(program) if subprocess.run(as_nobody, check=False).returncode == 0 else None


def service_at(path: Path, kind: socket.SocketKind, mode: int = 0o600) -> socket.socket:
    """A socket of a service of the node's user, such as Docker's is one of root."""
    service = socket.socket(socket.AF_UNIX, kind)
    service.bind(str(path))
    path.chmod(mode)
    if kind == socket.SOCK_STREAM:
        service.listen()
    return service


def orders(factory: Platform, folder: Path, common: Path, victim: dict[str, object]) -> dict[str, object]:
    """All that the hostile program is told: paths, processes, and secrets that it could not find."""
    node = factory.state / "node-1"
    (socket_of_node,) = node.rglob("node.sock")
    assert factory.master is not None
    return victim | {
        "state": str(factory.state),
        "victim": factory.agents()["victim"]["pid"],
        "node": node_of(factory),
        "Master": factory.master.pid,
        "socket": str(socket_of_node),
        "door": f"127.0.0.1:{json.loads((node / 'port.json').read_text())}",
        "handle": handle_of(node / "node.json"),
        "service": str(folder / "service.sock"),
        "letters": str(folder / "letters.sock"),
        "common": str(common),
        "containers": next((str(path) for path in CONTAINERS if os.access(path, os.W_OK)), None),
        "setuid": becomes_root(folder),
    }


@pytest.fixture
def folder_of_all():
    """A folder in the one in which programs of all users meet."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("mode", SUCCEED)
def test_a_hostile_program_achieves_what_its_isolation_permits_and_no_more(mode, modes, open_folder, folder_of_all):
    needs(modes, mode)
    provide(open_folder, "hostile.py")
    (open_folder / "movable").write_text("")
    secret = open_folder.parent / "secret"
    secret.write_text("a secret of the node's user")
    secret.chmod(0o600)
    shared = open_folder / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (shared / "config").write_text("a setting")
    notes = shared / "loaded"
    compiled(open_folder, "preloaded.so", "preloaded.c", "-shared", "-fPIC", f'-DNOTES="{notes}"')
    work = open_folder / "state" / "node-1" / "work"
    own = {name: work / name for name in ("victim", "hostile")}
    text = MANIFEST.format(home=own["victim"], own=own["hostile"], secret=secret)
    factory = Platform(open_folder, text.replace("FOLDER", str(open_folder)))
    if mode == "none":
        for folder in own.values():
            folder.mkdir(parents=True)
    kinds = {"service.sock": socket.SOCK_STREAM, "letters.sock": socket.SOCK_DGRAM}
    services = [service_at(open_folder / name, kind) for name, kind in kinds.items()]
    # No right of its own keeps anybody away from this one.
    common = folder_of_all / "service.sock"
    services.append(service_at(common, socket.SOCK_STREAM, 0o777))

    def started_again():
        text = "\n".join(lines(factory, "planter"))
        return text if "which the program may change" in text or secret.read_text() in text else None

    def attempted():
        found = said(factory, "hostile")
        return found if found[-1].get("attack") == "look into what begins" else None

    try:
        factory.up("--isolation", mode)
        (victim,) = wait_for(lambda: said(factory, "victim"), "the victim", also=factory.logs)
        assert factory.nodes()["node-1"]["isolation"] == mode
        told = orders(factory, open_folder, common, victim)
        order(open_folder, "orders.json", told)
        wait_for(lambda: "planted" in lines(factory, "planter"), "the link to be planted", also=factory.logs)
        wait_for(lambda: any("left" in each for each in said(factory, "hostile")), "the attacks", also=factory.logs)
        # The hostile program looks into the launcher, and the launcher meets the link.
        factory.tell("start", "planter", "--timeout", "1s", expect=None)
        planters = wait_for(started_again, "the other start of the planter", also=factory.logs)
        order(open_folder, "over")
        attempts = wait_for(attempted, "the attacks to be over", also=factory.logs)
        (left,) = [each["left"] for each in attempts if "left" in each]
        attempts = [each for each in attempts if "attack" in each]
        succeeded = {each["attack"] for each in attempts if each["succeeded"]}
        permitted = set(SUCCEED[mode])
        if told["containers"] and mode in ("none", "namespace"):
            permitted.add("connect to containers")
        if mode == "landlock" and os.getuid() != 0:
            # Only root empties the set of capabilities that programs may gain. Such a program gains none, because no privilege is new.
            permitted.add("gain capabilities")
        if mode == "none":
            assert permitted <= succeeded, attempts
            assert f"the planter reads {secret.read_text()}" in planters
            assert set(notes.read_text()) == {"0"}
            return
        assert succeeded == permitted, attempts
        failed = [each for each in attempts if not each["succeeded"]]
        wrong = [each for each in failed if each["error"] not in REASONS.get(each["attack"], REFUSED)]
        assert not wrong
        assert "which the program may change" in planters and secret.read_text() not in planters
        # The library of a program's environment never was in its launcher.
        assert set(notes.read_text()) == {"1"}
        assert (own["hostile"] / "notes").exists()
        assert alive(told["victim"])
        assert alive(left)
        factory.tell("kill", "hostile")
        wait_for(lambda: not alive(left), "what the program left behind to end", also=factory.logs)
    finally:
        factory.down()
        for service in services:
            service.close()
        (open_folder / "becomes-root").unlink(missing_ok=True)
        COMMON.unlink(missing_ok=True)


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


#: A program that writes to its shared folder, and says what it is and whether it sees somebody else's file.
CLERK = """
import json, os, sys

shared, name, foreign = *sys.argv[1:], os.environ["FOREIGN"]
open(f"{shared}/{name}", "w").write("written")
print(json.dumps({"prefix": sys.prefix, "sees": os.path.exists(foreign), "shared": os.listdir(shared)}), flush=True)
"""


@pytest.mark.parametrize("mode", [mode for mode in SUCCEED if mode != "none"])
@pytest.mark.parametrize("place", ["/tmp", "/var/tmp"])
def test_a_program_in_a_meeting_place_sees_its_own_there_and_nothing_else(mode, place, modes, platform):
    needs(modes, mode)
    with tempfile.TemporaryDirectory(dir=place) as own, tempfile.TemporaryDirectory(dir=place) as others:
        folder, foreign = Path(own), Path(others) / "file"
        shared = folder / "shared"
        shared.mkdir()
        foreign.write_text("")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        (folder / "clerk.py").write_text(CLERK)
        for each in (folder, foreign.parent):
            each.chmod(0o755)
        shared.chmod(0o777)
        agent = f"""
            [[agent]]
            name = "NAME"
            command = ["{folder}/venv/bin/python", "{folder}/clerk.py", "{shared}", "NAME"]
            environment = {{ FOREIGN = "{foreign}" }}
            write = ["{shared}"]
            restart = "never"
        """
        wide = agent.replace("NAME", "wide") + '    read = ["/"]\n'
        factory = platform('    [platform]\n    name = "factory"\n' + agent.replace("NAME", "narrow") + wide)
        factory.up("--isolation", mode)
        for name in ("narrow", "wide"):
            (told,) = wait_for(lambda name=name: said(factory, name), f"the {name} program", also=factory.logs)
            assert told["prefix"] == str(folder / "venv")
            # Without a view of its own, it sees that there is a file, and may not open it.
            assert told["sees"] == (mode == "landlock"), name
            assert name in told["shared"]
            assert (shared / name).read_text() == "written"


@pytest.mark.parametrize("mode", [mode for mode in SUCCEED if mode != "none"])
@pytest.mark.parametrize("place", ["/tmp", "/var/tmp"])
def test_a_program_that_a_link_in_a_meeting_place_names_runs(mode, place, modes, platform):
    needs(modes, mode)
    with tempfile.TemporaryDirectory(dir=place) as folder:
        link = Path(folder) / "python"
        link.symlink_to(sys.executable)
        factory = platform(
            f"""
            [platform]
            name = "factory"

            [[agent]]
            name = "linked"
            command = ["{link}", "-c", "import json; print('ran', flush=True)"]
            restart = "never"
            """
        ).up("--isolation", mode)
        wait_for(lambda: "ran" in lines(factory, "linked"), "the program to run", also=factory.logs)


def test_a_user_of_its_own_reaches_its_interpreter_in_a_closed_home_and_nothing_else_there(modes, open_folder):
    needs(modes, "uid")
    home, shared = open_folder / "home", open_folder / "shared"
    venv, secret = home / "venv", home / "secret"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    secret.write_text("for those who pass the home")
    secret.chmod(0o644)
    (open_folder / "clerk.py").write_text(CLERK)
    shared.mkdir()
    for folder, mode in ((venv, 0o700), (home, 0o700), (shared, 0o777)):
        folder.chmod(mode)
    factory = Platform(
        open_folder,
        f"""
        [platform]
        name = "factory"

        [[agent]]
        name = "clerk"
        command = ["{venv}/bin/python", "{open_folder}/clerk.py", "{shared}", "clerk"]
        environment = {{ FOREIGN = "{secret}" }}
        isolation = "uid"
        read = ["/"]
        write = ["{shared}"]
        restart = "never"
        """,
    )
    try:
        factory.up()
        (told,) = wait_for(lambda: said(factory, "clerk"), "the program", also=factory.logs)
        assert told == {"prefix": str(venv), "sees": False, "shared": ["clerk"]}
    finally:
        factory.down()


@pytest.mark.parametrize("closed", ["data", "venv/bin"])
def test_a_folder_that_is_closed_to_a_programs_user_is_named_with_its_remedy(closed, modes, open_folder):
    needs(modes, "uid")
    venv, data = open_folder / "venv", open_folder / "data"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    data.mkdir(mode=0o755)
    (open_folder / closed).chmod(0o700)
    factory = Platform(
        open_folder,
        f"""
        [platform]
        name = "factory"

        [[agent]]
        name = "clerk"
        command = ["{venv}/bin/python", "-c", "print('ran', flush=True)"]
        isolation = "uid"
        read = ["{data}"]
        """,
    )
    command = {"data": f"`chmod o+rx {data}`", "venv/bin": f"`chmod o+x {venv}/bin`"}[closed]
    try:
        factory.up()

        def told():
            # The node tries again, and has no reason to tell meanwhile.
            note = note_of(factory, "clerk")
            return note if "closed to its user" in note else ""

        note = wait_for(told, "the reason", also=factory.logs)
        assert "it cannot reach its files" in note and command in note
        assert "ran" not in lines(factory, "clerk")
    finally:
        factory.down()


def test_the_check_says_what_a_node_with_these_arguments_gives(modes):
    def told(*arguments: str) -> str:
        return sealbus("node", "--check", *arguments).stdout.decode()

    text = told()
    for mode, problem in modes.items():
        if mode != "none":
            works = "works\n" if problem is None else "does not work; a program is not started, because it cannot "
            assert f"{mode}: {works}" in text
        best = told("--isolation", mode)
        if mode == "none":
            assert "programs of this node are not isolated\n" in best
        elif problem is None:
            assert f"the strongest isolation of this node's programs is {mode}\n" in best
        else:
            assert f"a node with --isolation {mode} does not start here\n" in best

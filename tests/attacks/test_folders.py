"""Another user of the machine, and a careless one: folders made before, open umasks, links in the way."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from harness import SEALBUS, Platform, clean_environment, sealbus, wait_for
from pair import MANIFEST, Pair

NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")


def open_to_others(folder: Path) -> list[str]:
    """The files in and under a folder that others may read, write or enter."""
    found = []
    for path in [folder, *folder.rglob("*")]:
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            # The platform runs, and puts drafts in the place of files.
            continue
        if not stat.S_ISLNK(mode) and mode & 0o077 and not inside_closed(path, folder):
            found.append(f"{path} {mode:o}")
    return found


def inside_closed(path: Path, folder: Path) -> bool:
    """Whether others cannot come so far."""
    return any(parent.lstat().st_mode & 0o077 == 0 for parent in path.parents if parent == folder or folder in parent.parents)


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_a_state_folder_that_was_made_before_is_closed(platform, mode):
    factory = platform(MANIFEST)
    factory.state.mkdir()
    factory.state.chmod(mode)
    factory.up()
    Pair(factory).talks()
    assert open_to_others(factory.state) == []
    assert factory.state.stat().st_mode & 0o777 == 0o700
    # A node's own folder likewise.
    folder = factory.directory / "node-3"
    folder.mkdir()
    folder.chmod(mode)
    factory.node("node-3")
    assert folder.stat().st_mode & 0o777 == 0o700


def test_an_open_umask_opens_nothing(platform):
    factory = platform(MANIFEST)
    before = os.umask(0)
    try:
        factory.up()
    finally:
        os.umask(before)
    Pair(factory).talks()
    assert open_to_others(factory.state) == []
    for path in factory.state.rglob("*"):
        mode = path.lstat().st_mode
        # A node's socket is also for the users that it gives to programs, which reach no other file here.
        if path.suffix == ".key" or path.name in ("node.json", "admin.sock"):
            assert mode & 0o177 == 0, f"{path} {mode:o}"


def as_another(*words: str | Path) -> subprocess.CompletedProcess[bytes]:
    arguments = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *map(str, words)]
    return subprocess.run(arguments, capture_output=True, timeout=120, env=clean_environment(), check=False)


@as_root
def test_another_user_reaches_nothing(platform):
    factory = platform(MANIFEST).up()
    pair = Pair(factory)
    # Everything above the state folder is open, as on many machines.
    opened = []
    for parent in factory.state.parents:
        if parent.stat().st_mode & 0o005 != 0o005:
            opened.append((parent, parent.stat().st_mode))
            parent.chmod(parent.stat().st_mode | 0o005)
    try:
        for path in [factory.state, *factory.state.rglob("*")]:
            done = as_another("test", "-r", path)
            assert done.returncode == 1, path
        assert as_another("ls", factory.state).returncode != 0
        for agent in factory.agents().values():
            assert as_another("cat", f"/proc/{agent['pid']}/environ").returncode != 0
        # Even where the socket itself is open, its owner's processes alone are let in.
        factory.state.chmod(0o755)
        (factory.state / "admin.sock").chmod(0o666)
        done = as_another(SEALBUS, "ps", "--state", factory.state)
        assert done.returncode != 0
    finally:
        for parent, mode in opened:
            parent.chmod(mode)
    pair.talks()


@as_root
def test_a_state_folder_of_another_user_is_refused(platform):
    factory = platform(MANIFEST)
    factory.state.mkdir()
    os.chown(factory.state, NOBODY, NOBODY)
    done = sealbus("up", factory.manifest, "--state", factory.state, expect=None)
    assert done.returncode != 0 and str(NOBODY) in done.stderr.decode()
    assert not factory.pids()


def test_the_demo_follows_no_link_that_was_there_before(tmp_path):
    """Others write to the folder for temporary files too."""
    precious = tmp_path / "precious"
    precious.write_text("untouched")
    temporary = tmp_path / "temporary"
    temporary.mkdir(mode=0o777)
    for name in ("sealbus-demo", "sealbus-demo-none", "sealbus-demo-tls", "sealbus-demo-auth"):
        (temporary / name).symlink_to(tmp_path / "lured")
        (temporary / f"{name}.log").symlink_to(precious)
    environment = clean_environment({"TMPDIR": str(temporary)})
    demo = subprocess.Popen(
        [SEALBUS, "demo", "--level", "none", "--python", sys.executable, "--report", tmp_path / "report.json"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment,
    )

    def begun():
        return [path for path in temporary.iterdir() if not path.is_symlink()]

    try:
        for folder in wait_for(begun, "the demo to make its folder"):
            assert folder.stat().st_mode & 0o077 == 0, folder
    finally:
        demo.send_signal(signal.SIGINT)
        demo.wait(120)
    assert precious.read_text() == "untouched"
    assert not (tmp_path / "lured").exists()

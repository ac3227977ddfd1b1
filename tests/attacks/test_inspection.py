"""Another process of the same user, which nothing isolates, looks into the Master, a node and an attached program."""

import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest
from harness import PROGRAMS, SEALBUS, Platform, Program, clean_environment, wait_for
from isolated import needs, node_of

NOBODY = 65534
#: Without isolation the program, too, has nothing but its own protection.
WORKER = f"""
    [[agent]]
    name = "worker"
    command = ["PYTHON", "{PROGRAMS}/worker.py"]
    isolation = "none"
"""


@pytest.fixture(scope="module")
def core_files():
    """Lets processes leave core files, as far as the machine does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


@pytest.fixture(scope="module", params=["root", "user"])
def by(request, modes, tmp_path_factory):
    """A folder of the platform's user, and the words before its commands. Root may do anything, and so gives up the right to
    trace others."""
    folder = tmp_path_factory.mktemp("p")
    if request.param == "root":
        if os.getuid() != 0:
            pytest.skip("only root can run a platform as root")
        needs(modes, "uid")
        return folder, ["env", f"--chdir={folder}", "setpriv", "--bounding-set=-sys_ptrace"]
    if os.getuid() != 0:
        return folder, ["env", f"--chdir={folder}"]
    for each in [folder, *folder.parents][:-2]:
        each.chmod(0o755)
    os.chown(folder, NOBODY, NOBODY)
    words = ["env", f"--chdir={folder}", "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    if subprocess.run([*words, SEALBUS, "version"], capture_output=True, check=False).returncode != 0:
        pytest.skip(f"another user does not reach {SEALBUS}")
    return folder, words


@pytest.fixture(scope="module")
def factory(by, core_files):
    """A platform of that user, in the strongest mode that works."""
    folder, words = by
    # Another user than that of the tests may not reach their Python.
    is_own = not any(word.startswith("--reuid") for word in words)
    factory = Platform(folder, '[platform]\nname = "factory"\n' + (WORKER if is_own else ""))
    try:
        factory.up(run_by=words)
        wait_for(lambda: factory.nodes().get("node-1", {}).get("state") == "alive", "the node", also=factory.logs)
        if is_own:
            factory.active("worker")
        yield factory
    finally:
        factory.down()


@pytest.fixture(scope="module")
def open_process(by, factory):
    """A process of the same user that protects itself by nothing."""
    folder, words = by
    program = Program([*words, "sleep", "1000"], folder / "open.log")
    # Until then it is the program that changes its user.
    wait_for(lambda: Path(f"/proc/{program.pid}/comm").read_text() == "sleep\n", "the open process")
    yield program
    program.kill()


def is_refused(words, *command):
    environment = clean_environment({"LC_ALL": "C"})
    done = subprocess.run([*words, *command], capture_output=True, env=environment, timeout=60, check=False)
    return b"Permission denied" in done.stderr


def looks_into(words, pid):
    """The attempts to look into a process, and whether each was refused."""
    attempts = {
        "memory": ["head", "-c", "1", f"/proc/{pid}/mem"],
        "open file": ["head", "-c", "1", f"/proc/{pid}/fd/1"],
        "program": ["readlink", "-v", f"/proc/{pid}/exe"],
    }
    if "--bounding-set=-sys_ptrace" not in words:
        # On newer kernels the right to mount, which root needs here, opens these, too.
        attempts |= {"variables": ["cat", f"/proc/{pid}/environ"], "map of memory": ["cat", f"/proc/{pid}/maps"]}
    return {name: is_refused(words, *command) for name, command in attempts.items()}


def test_nobody_of_the_same_user_looks_into_the_platforms_processes(by, factory, open_process):
    _, words = by
    assert not any(looks_into(words, open_process.pid).values())
    pids = {"Master": factory.master.pid, "node": node_of(factory)}
    pids |= {name: agent["pid"] for name, agent in factory.agents().items() if name == "worker"}
    for name, pid in pids.items():
        assert all(looks_into(words, pid).values()), f"{name}: {looks_into(words, pid)}"


def leaves_a_core(program):
    program.process.send_signal(signal.SIGABRT)
    ended = os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
    assert ended.si_status == signal.SIGABRT
    return ended.si_code == os.CLD_DUMPED


def test_a_master_that_crashes_leaves_no_core(factory, open_process):
    if not leaves_a_core(open_process):
        pytest.skip("this machine keeps no core files")
    assert not leaves_a_core(factory.master)

"""A program of an agent that attacks its node and the agent beside it, and prints the result of each attempt.

It needs nothing but Python: it never attaches. The test writes the paths and the victim's process id into the file
ORDERS when the victim is there. As the victim (its only argument), it has something to lose.
"""

import ctypes
import json
import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
SHARED_KEY = 0x5EA1B05
SHARED_SIZE = 4096
ABSTRACT = "\0sealbus-victim"
IPC_CREAT = 0o1000
CLONE_NEWUSER = 0x10000000
PTRACE_ATTACH = 16
IO_URING_SETUP = 425


def checked(result):
    if result == -1:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def victim():
    Path(os.environ["HOME"], "secret").write_text("mine")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(ABSTRACT)
    listener.listen()
    # In some modes it may not share memory itself.
    LIBC.shmget(SHARED_KEY, SHARED_SIZE, IPC_CREAT | 0o600)
    print("the victim is there", flush=True)
    time.sleep(3600)


def read(path):
    return lambda: bool(Path(path).read_bytes()) or True


def connect(address):
    def attempt():
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(address)
        return True

    return attempt


def write(path):
    def attempt():
        with open(path, "a"):
            return True

    return attempt


def no_new_privileges():
    return "NoNewPrivs:\t0" in Path("/proc/self/status").read_text()


def capabilities():
    status = Path("/proc/self/status").read_text().splitlines()
    (bounding,) = (line for line in status if line.startswith("CapBnd"))
    return int(bounding.split()[1], 16) != 0


def control_group():
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if " - cgroup2 " in line]
    groups = [line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")]
    return Path("".join(mounts[:1] + groups))


def make_and_remove(folder):
    def attempt():
        folder.mkdir()
        folder.rmdir()
        return True

    return attempt


def leave_a_child():
    """A child that has left the program's process group, and has no parent."""
    code = "import os,time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\nprint(os.getpid(), flush=True)\n"
    code += "os.closerange(0, 3)\ntime.sleep(3600)"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, timeout=60)
    return int(done.stdout)


def attacks(orders):
    state, pid = Path(orders["state"]), orders["victim"]
    node = state / "node-1"
    group = control_group()
    return {
        "read the node's key": read(node / "node.json"),
        "read the operators' key": read(state / "admin.key"),
        "read the node's log": read(node / "node.log"),
        "read the victim's folder": read(node / "work" / "victim" / "secret"),
        "read past the root": read(f"/proc/self/root{node}/node.json"),
        "read through the victim": read(f"/proc/{pid}/root{node}/node.json"),
        "read the system's passwords": read("/etc/shadow"),
        "change its own program": write(__file__),
        "write beside its program": write(Path(__file__).with_name("intruder.py")),
        "write to the common folder": write("/tmp/sealbus-hostile"),
        "signal the victim": lambda: os.kill(pid, 0) or True,
        "signal the node": lambda: os.kill(orders["node"], 0) or True,
        "read the victim's variables": read(f"/proc/{pid}/environ"),
        "read the victim's command line": read(f"/proc/{pid}/cmdline"),
        "trace the victim": lambda: checked(LIBC.ptrace(PTRACE_ATTACH, pid, None, None)) == 0,
        "limit the victim": lambda: bool(resource.prlimit(pid, resource.RLIMIT_NOFILE)),
        "slow the victim": lambda: os.setpriority(os.PRIO_PROCESS, pid, 5) or True,
        "move the victim": lambda: os.sched_setaffinity(pid, os.sched_getaffinity(0)) or True,
        "connect to the operators": connect(str(state / "admin.sock")),
        "connect to the victim's name": connect(ABSTRACT),
        "share the victim's memory": lambda: checked(LIBC.shmget(SHARED_KEY, SHARED_SIZE, 0)) >= 0,
        "make a user namespace": lambda: checked(LIBC.unshare(CLONE_NEWUSER)) == 0,
        "use io_uring": lambda: checked(LIBC.syscall(IO_URING_SETUP, 1, ctypes.create_string_buffer(256))) >= 0,
        "limit itself anew": write(group / "cgroup.max.descendants"),
        "leave its control group": write(group.parent / "cgroup.procs"),
        "take its controllers away": write(group.parent / "cgroup.subtree_control"),
        "make a control group": make_and_remove(group / "more"),
        "gain privileges": no_new_privileges,
        "gain capabilities": capabilities,
    }


def main():
    place = Path(os.environ["ORDERS"])
    while not (place / "orders.json").exists():
        time.sleep(0.05)
    orders = json.loads((place / "orders.json").read_text())
    for name, attempt in attacks(orders).items():
        try:
            succeeded, error = attempt(), None
        except OSError as problem:
            succeeded, error = False, str(problem)
        print(json.dumps({"attack": name, "succeeded": succeeded, "error": error}), flush=True)
    Path(os.environ["HOME"], "notes").write_text("an agent's own folder is its own")
    print(json.dumps({"left": leave_a_child()}), flush=True)
    time.sleep(3600)


victim() if sys.argv[1:] == ["victim"] else main()

"""A program of an agent that attacks its node and the agent beside it, and prints the result of each attempt.

It needs nothing but Python: it never attaches as itself. The test writes the paths, the processes and the stolen secrets
into the file ORDERS when the victim is there. As the victim (its only argument), it has something to lose; as the planter,
it puts a link in the way of its own next start.
"""

import ctypes
import errno
import json
import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import kernel
from kernel import LIBC, checked
from rpc import ATTACHING, Rpc, over_tls, over_unix

SECRET = b"mine and nobody else's"
SHARED_KEY = 0x5EA1B05
SHARED_SIZE = 4096
ABSTRACT = "\0sealbus-victim"
LETTERS = "\0sealbus-victim-letters"
NO_NEW_PRIVILEGES, IN_BOUNDING_SET = 39, 23


class Refused(Exception):
    """The node's answer."""


def victim():
    Path(os.environ["HOME"], "secret").write_bytes(SECRET)
    held = ctypes.create_string_buffer(SECRET)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(ABSTRACT)
    listener.listen()
    letters = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    letters.bind(LETTERS)
    # In some modes it may not share memory itself.
    LIBC.shmget(SHARED_KEY, SHARED_SIZE, kernel.IPC_CREAT | 0o600)
    there = {"address": ctypes.addressof(held), "descriptor": listener.fileno(), "ticket": os.environ["SEALBUS_TICKET"]}
    print(json.dumps(there), flush=True)
    time.sleep(3600)


def planter():
    config, secret = Path(os.environ["CONFIG"]), Path(os.environ["SECRET"])
    try:
        print("the planter reads", config.read_text(), flush=True)
    except OSError as error:
        print("the planter reads nothing:", error, flush=True)
    config.unlink()
    config.symlink_to(secret)
    print("planted", flush=True)


def read(path):
    return lambda: Path(path).read_bytes() and None


def write(path):
    return lambda: open(path, "a").close()


def connect(address):
    def attempt():
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(address)

    return attempt


def send(address):
    def attempt():
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as peer:
            peer.sendto(b"hello", address)

    return attempt


def send_by_a_pair(address):
    """A program that may make no sockets may still have a pair, and connects one of it anew."""

    def attempt():
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with one, other:
            one.connect(address)
            one.send(b"hello")

    return attempt


def attach(opening, ticket):
    """Shows a ticket to the node."""

    def attempt():
        with Rpc(opening()) as rpc:
            answer = rpc.call(ask="attach", ticket=ticket, now=time.time_ns() // 1_000_000)
        if "fault" in answer:
            raise Refused(answer["fault"]["code"])
        return answer["answer"] == "welcome"

    return attempt


def read_memory_file(pid, address):
    def attempt():
        with open(f"/proc/{pid}/mem", "rb") as memory:
            if address:
                memory.seek(address)
                return memory.read(len(SECRET)) == SECRET

    return attempt


def link_and_read(make, target, place):
    def attempt():
        make(target, place)
        place.read_bytes()

    return attempt


def run(program):
    """A program that exits with the number of its error."""

    def attempt():
        code = subprocess.run([program], check=False).returncode
        if code:
            raise OSError(code, os.strerror(code))

    return attempt


def dump_core():
    pid = os.fork()
    if pid == 0:
        os.chdir(os.environ["HOME"])
        _, most = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (most, most))
        os.abort()
    _, status = os.waitpid(pid, 0)
    return os.WCOREDUMP(status)


def control_group():
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if " - cgroup2 " in line]
    groups = [line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")]
    return Path("".join(mounts[:1] + groups))


def make_and_remove(folder):
    def attempt():
        folder.mkdir()
        folder.rmdir()

    return attempt


def leave_a_child():
    """A child that has left the program's process group, and has no parent."""
    code = "import os,time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\nprint(os.getpid(), flush=True)\n"
    code += "os.closerange(0, 3)\ntime.sleep(3600)"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, timeout=60)
    return int(done.stdout)


def attacks_on_files(orders):
    state, beside, own = Path(orders["state"]), Path(__file__).parent, Path(os.environ["HOME"])
    node = state / "node-1"
    own.joinpath("mine").write_text("")
    own.joinpath("mount").mkdir(exist_ok=True)
    return {
        "read the node's key": read(node / "node.json"),
        "read the operators' key": read(state / "admin.key"),
        "read the node's log": read(node / "node.log"),
        "read the victim's folder": read(node / "work" / "victim" / "secret"),
        "read past the root": read(f"/proc/self/root{node}/node.json"),
        "read the system's passwords": read("/etc/shadow"),
        "change the rights to the node's key": lambda: (node / "node.json").chmod(0o600),
        "read the node's key by a hard link": link_and_read(os.link, node / "node.json", own / "hard"),
        "read the node's key by a symbolic link": link_and_read(os.symlink, node / "node.json", own / "soft"),
        "change its own program": write(__file__),
        "write beside its program": write(beside / "intruder.py"),
        "move a file of its own beside its program": lambda: os.rename(own / "mine", beside / "moved.py"),
        "move a file away from its program": lambda: os.rename(beside / "movable", own / "taken"),
        "link a file of its own program": lambda: os.link(__file__, own / "linked"),
        "write to the common folder": write("/tmp/sealbus-hostile"),
        "mount the node's folder": lambda: kernel.bind(node, own / "mount"),
        "take the node's folder as a mount": lambda: kernel.open_tree(node),
        "limit itself anew": write(orders["group"] / "cgroup.max.descendants"),
        "leave its control group": write(orders["group"].parent / "cgroup.procs"),
        "take its controllers away": write(orders["group"].parent / "cgroup.subtree_control"),
        "make a control group": make_and_remove(orders["group"] / "more"),
    } | ({"open the node's key by its number": lambda: kernel.open_by_handle(own, orders["handle"])} if orders["handle"] else {})


def attacks_on_a_process(whose, pid, address, descriptor, node):
    return {
        f"signal the {whose}": lambda: os.kill(pid, 0),
        f"read the {whose}'s variables": read(f"/proc/{pid}/environ"),
        f"read the {whose}'s command line": read(f"/proc/{pid}/cmdline"),
        f"read the {whose}'s memory": read_memory_file(pid, address),
        f"list the {whose}'s files": lambda: os.listdir(f"/proc/{pid}/fd") and None,
        f"open a file of the {whose}": read(f"/proc/{pid}/fd/1"),
        f"read through the {whose}": read(f"/proc/{pid}/root{node}/node.json"),
        f"copy the {whose}'s memory": lambda: kernel.read_memory(pid, address, len(SECRET)) == SECRET,
        f"take a file of the {whose}": lambda: kernel.take_descriptor(pid, descriptor),
        f"trace the {whose}": lambda: kernel.trace(pid),
        f"enter the {whose}'s mounts": lambda: kernel.enter(pid, "mnt"),
        f"limit the {whose}": lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE) and None,
        f"slow the {whose}": lambda: os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid)),
        f"move the {whose}": lambda: os.sched_setaffinity(pid, os.sched_getaffinity(0)),
    }


def attacks_on_sockets(orders):
    state, ticket = Path(orders["state"]), orders["ticket"]
    return {
        "connect to the operators": connect(str(state / "admin.sock")),
        "connect to the victim's name": connect(ABSTRACT),
        "write to the victim's name": send(LETTERS),
        "write to the victim's name by a pair": send_by_a_pair(LETTERS),
        "connect to another service of the user": connect(orders["service"]),
        "connect to a service in the folder of all": connect(orders["common"]),
        "write to another service of the user": send(orders["letters"]),
        "write to another service of the user by a pair": send_by_a_pair(orders["letters"]),
        "attach by the victim's ticket": attach(lambda: over_unix(orders["socket"]), ticket),
        "attach over the network by the victim's ticket": attach(lambda: over_tls(orders["door"], ATTACHING), ticket),
    } | ({"connect to containers": connect(orders["containers"])} if orders["containers"] else {})


def attacks_on_the_kernel(orders):
    return {
        "share the victim's memory": lambda: checked(LIBC.shmget(SHARED_KEY, SHARED_SIZE, 0)),
        "make a user namespace": lambda: checked(LIBC.unshare(kernel.CLONE_NEWUSER)),
        "make a process in a user namespace": lambda: kernel.clone(kernel.CLONE_NEWUSER),
        "make a process in a user namespace by clone3": lambda: kernel.clone3(kernel.CLONE_NEWUSER),
        "use io_uring": lambda: kernel.call(kernel.IO_URING_SETUP, 1, ctypes.create_string_buffer(256)),
        "gain privileges": lambda: LIBC.prctl(NO_NEW_PRIVILEGES, 0, 0, 0, 0) == 0,
        "gain capabilities": lambda: any(LIBC.prctl(IN_BOUNDING_SET, it, 0, 0, 0) == 1 for it in range(64)),
        "dump core": dump_core,
    } | ({"become root by a setuid program": run(orders["setuid"])} if orders["setuid"] else {})


def attempted(attempt):
    """Whether an attempt succeeded, and otherwise the reason."""
    try:
        return attempt() is not False, None
    except OSError as problem:
        return False, errno.errorcode.get(problem.errno, "OSError")
    except Refused as refused:
        return False, str(refused)
    except Exception as problem:
        return False, f"broken: {problem!r}"


def in_a_child(attempt):
    """An attempt that succeeds may change its process."""
    result, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(told, json.dumps(attempted(attempt)).encode())
        os._exit(0)
    os.close(told)
    with open(result) as read_end:
        text = read_end.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else (False, "broken: its process ended")


def look_into_what_begins(over):
    """Looks into every process that begins on the machine until `over` is there: launchers, programs, and commands of operators."""

    def newest():
        return int(Path("/proc/loadavg").read_text().split()[4])

    first, refusal = newest(), None
    while not over.exists():
        last = newest()
        # The numbers begin anew some time.
        first = min(first, last)
        for pid in range(max(first + 1, last - 20), last + 1):
            files = f"/proc/{pid}/fd"
            for look in (read(f"/proc/{pid}/environ"), read_memory_file(pid, None), lambda: os.listdir(files) and None):
                succeeded, error = attempted(look)
                if succeeded:
                    return True, None
                if error in ("EACCES", "EPERM"):
                    refusal = error
        time.sleep(0.001)
    return False, refusal


def tell(attack, succeeded, error):
    print(json.dumps({"attack": attack, "succeeded": succeeded, "error": error}), flush=True)


def main():
    place = Path(os.environ["ORDERS"])
    while not (place / "orders.json").exists():
        time.sleep(0.05)
    orders = json.loads((place / "orders.json").read_text()) | {"group": control_group()}
    node = Path(orders["state"]) / "node-1"
    every = attacks_on_files(orders) | attacks_on_sockets(orders) | attacks_on_the_kernel(orders)
    every |= attacks_on_a_process("victim", orders["victim"], orders["address"], orders["descriptor"], node)
    for whose in ("node", "Master"):
        every |= attacks_on_a_process(whose, orders[whose], None, 1, node)
    for name, attempt in every.items():
        tell(name, *in_a_child(attempt))
    Path(os.environ["HOME"], "notes").write_text("an agent's own folder is its own")
    print(json.dumps({"left": leave_a_child()}), flush=True)
    tell("look into what begins", *look_into_what_begins(place / "over"))
    time.sleep(3600)


match sys.argv[1:]:
    case ["victim"]:
        victim()
    case ["planter"]:
        planter()
    case _:
        main()

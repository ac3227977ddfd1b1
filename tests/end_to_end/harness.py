"""Starts real platforms and asks them through the command line, as an operator would.

Nothing here sleeps for a guessed time: everything waits for what it needs, until a deadline.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[2]
SEALBUS = Path(os.environ.get("SEALBUS_BINARY", ROOT / "target" / "debug" / "sealbus"))
PROGRAMS = Path(__file__).resolve().parent / "programs"


def documented_keys() -> dict[str, set[str]]:
    """The keys that docs/command-line.md gives to the JSON of each command."""
    page = (ROOT / "docs" / "command-line.md").read_text()
    tables = re.findall(r"### `sealbus ([^`]+)`\n\n((?:\|.*\n)+)", page)
    firsts = {command: " ".join(line.split("|")[1] for line in table.splitlines()[2:]) for command, table in tables}
    return {command: set(re.findall(r"`([^`]+)`", first)) for command, first in firsts.items()}


def memory(pid: int) -> int:
    """The most memory that a process has had so far, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) // 1024
    raise AssertionError(f"process {pid} has ended")


@contextmanager
def bounded(pids: dict[str, int], growth: int) -> Iterator[None]:
    """No process takes more than `growth` MiB more than ever before."""
    before = {name: memory(pid) for name, pid in pids.items()}
    yield
    grown = {name: memory(pid) - before[name] for name, pid in pids.items()}
    assert max(grown.values()) <= growth, f"MiB more: {grown}"


def wrong_clock(folder: Path) -> Path:
    """The library that makes a program's clock wrong. A linker is there: Rust needs one."""
    library = folder / "shifted_clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, PROGRAMS / "shifted_clock.c"], check=True)
    return library


def one_worker(platform: str = "") -> str:
    """The manifest of a platform `factory` with one agent, `worker`, and these further lines about the platform."""
    return f"""
    [platform]
    name = "factory"
{platform}
    [[agent]]
    name = "worker"
    command = ["PYTHON", "{PROGRAMS}/worker.py"]
"""
DEADLINE = 120.0

Result = TypeVar("Result")


def wait_for(
    look: Callable[[], Result | None],
    what: str,
    deadline: float = DEADLINE,
    also: Callable[[], str] = lambda: "",
) -> Result:
    """Looks again and again until `look` returns something true; fails with a word on the awaited event.

    The longer it waits, the less often it looks: a look often starts a program, and others need the processor.
    """
    began = time.monotonic()
    while True:
        found = look()
        if found:
            return found
        waited = time.monotonic() - began
        if waited > deadline:
            raise AssertionError(f"waited {deadline:g} s in vain for {what}\n{also()}")
        time.sleep(min(0.02 + waited / 8, 0.5))


def alive(pid: int) -> bool:
    """Whether the process runs (and is not a corpse that waits for its parent)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


def sealbus(
    *arguments: str | Path,
    expect: int | None = 0,
    stdin: bytes | None = None,
    timeout: float = DEADLINE,
    environment: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Runs the command line; fails unless it exits with `expect` (None: any code)."""
    done = subprocess.run(
        [SEALBUS, *map(str, arguments)],
        input=stdin if stdin is not None else b"",
        capture_output=True,
        timeout=timeout,
        env=clean_environment(environment),
        check=False,
    )
    if expect is not None and done.returncode != expect:
        raise AssertionError(
            f"sealbus {' '.join(map(str, arguments))} exited with {done.returncode}, not {expect}\n"
            f"{done.stdout.decode(errors='replace')}\n{done.stderr.decode(errors='replace')}"
        )
    return done


def clean_environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    """The environment without what would point a program at another platform. `python` is the one that runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SEALBUS_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    return kept | {"NO_COLOR": "1", "PATH": path} | (extra or {})


class Program:
    """A process of the test's own, with its output in a file."""

    def __init__(
        self,
        arguments: Iterable[str | Path],
        log: Path,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [str(argument) for argument in arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=clean_environment(environment),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL, to this process alone."""
        self.process.kill()
        self.process.wait(DEADLINE)

    def end(self) -> int:
        """SIGTERM, and its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.process.args} did not end on SIGTERM:\n{self.output()}") from None

    def wait(self, deadline: float = DEADLINE) -> int:
        """Its exit code, once it has ended by itself."""
        try:
            return self.process.wait(deadline)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.process.args} did not end:\n{self.output()}") from None


def callers(port: int) -> set[int]:
    """The TCP ports whose sockets are connected to this one, whoever has them. The other side need not have accepted them."""
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, here, there, state, *_ = line.split()
        if state == "01" and int(there.split(":")[1], 16) == port:
            found.add(int(here.split(":")[1], 16))
    return found


class Platform:
    """A platform started by `sealbus up`, in a directory of its own."""

    def __init__(self, directory: Path, manifest: str) -> None:
        self.directory = directory
        self.state = directory / "state"
        self.manifest = directory / "platform.toml"
        self.manifest.write_text(textwrap.dedent(manifest).replace("PYTHON", sys.executable))
        self.programs: list[Program] = []
        self.master: Program | None = None

    # ---- life

    def up(self, *arguments: str | Path, deadline: float = DEADLINE, run_by: Iterable[str | Path] = ()) -> Platform:
        """Starts (or starts again) the Master, and waits until it answers; `run_by` is what starts its program, as in `node`."""
        self.master = self.program(*run_by, SEALBUS, "up", self.manifest, "--state", self.state, *arguments, name="up")
        wait_for(self._answers, "the Master to answer", deadline, also=self.logs)
        return self

    def _answers(self) -> bool:
        assert self.master is not None
        if self.master.process.poll() is not None:
            raise AssertionError(f"`sealbus up` ended by itself:\n{self.master.output()}")
        return sealbus("nodes", "--json", "--state", self.state, expect=None).returncode == 0

    def node(
        self, name: str, *arguments: str | Path, run_by: Iterable[str] = ()
    ) -> Program:
        """Adds a Remote Node with a fresh token; `run_by` is what starts its program, if it is not started directly."""
        token = self.ask("token", "--name", name)["token"]
        node = (SEALBUS, "node", "--token", token, "--state", self.directory / name)
        program = self.program(*run_by, *node, *arguments, name=name)
        wait_for(lambda: self.nodes().get(name, {}).get("state") == "alive", f"{name} to join", also=self.logs)
        return program

    @contextmanager
    def node_replaced(self, name: str) -> Iterator[Callable[[], Program]]:
        """For a block that kills a node and starts it again with the given function. The Master does not run until the new node
        calls it, and such time counts against no node: a slow start is not taken for the node's death."""
        assert self.master is not None
        door = int(self.ask("status")["enrolment"].rsplit(":", 1)[1])

        def start() -> Program:
            return self.program(SEALBUS, "node", "--state", self.directory / name, name=f"{name}-again")

        self.master.process.send_signal(signal.SIGSTOP)
        try:
            before = callers(door)
            yield start
            wait_for(lambda: callers(door) - before, f"{name} to call the Master", also=self.logs)
        finally:
            self.master.process.send_signal(signal.SIGCONT)

    def program(
        self, *arguments: str | Path, name: str, environment: dict[str, str] | None = None
    ) -> Program:
        program = Program(arguments, self.directory / f"{name}.log", environment)
        self.programs.append(program)
        return program

    def down(self) -> None:
        """Ends the programs that still run, and the platform's processes that outlived them."""
        pids = {pid for pid in self.pids() if alive(pid)}
        for program in reversed(self.programs):
            if program.process.poll() is None:
                program.process.send_signal(signal.SIGTERM)
        for program in self.programs:
            try:
                program.process.wait(60)
            except subprocess.TimeoutExpired:
                program.kill()
        # Processes that were started meanwhile, too.
        for pid in pids | self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def pids(self, within: Path | None = None) -> set[int]:
        """Every process whose environment or command line names this platform's directory, or one within it, such as a node's."""
        marks = str(within or self.directory).encode()
        found = set()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            # The Master and nodes show only root their environment.
            for name in ("cmdline", "environ"):
                try:
                    if marks in (entry / name).read_bytes():
                        found.add(int(entry.name))
                except (FileNotFoundError, PermissionError, ProcessLookupError):
                    continue
        return found

    def ports(self) -> set[int]:
        """The TCP ports on which processes of this platform listen."""
        inodes = set()
        for pid in self.pids():
            try:
                links = os.listdir(f"/proc/{pid}/fd")
                inodes |= {os.readlink(f"/proc/{pid}/fd/{link}") for link in links}
            except (FileNotFoundError, PermissionError, ProcessLookupError):
                continue
        ports = set()
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                ports.add(int(fields[1].split(":")[1], 16))
        return ports

    # ---- asking

    def ask(self, *arguments: str | Path) -> Any:
        """A command's result, read from its JSON."""
        return json.loads(sealbus(*arguments, "--json", "--state", self.state).stdout)

    def tell(self, *arguments: str | Path, expect: int | None = 0) -> subprocess.CompletedProcess[bytes]:
        """A command's exit code and what it printed for people."""
        return sealbus(*arguments, "--state", self.state, expect=expect)

    def agents(self) -> dict[str, Any]:
        """The agents by local name."""
        return {agent["name"].split("@")[0]: agent for agent in self.ask("ps")}

    def nodes(self) -> dict[str, Any]:
        return {node["name"]: node for node in self.ask("nodes")}

    def active(self, *names: str, deadline: float = DEADLINE) -> dict[str, Any]:
        """Waits until the agents named are active; returns all agents."""

        def look() -> dict[str, Any] | None:
            agents = self.agents()
            ready = all(agents.get(name, {}).get("state") == "active" for name in names)
            return agents if ready else None

        return wait_for(look, f"{', '.join(names)} to be active", deadline, also=self.logs)

    def send(self, receiver: str, content: str, *arguments: str, wait: str = "100s") -> str:
        """Sends a request as the operator; the content of the reply."""
        answer = self.ask(
            "send", receiver, content, "--performative", "request", "--timeout", wait, *arguments
        )
        (reply,) = answer["replies"]
        return content_of(reply)

    def refusals(self) -> list[dict[str, Any]]:
        return list(self.ask("ps", "--refused"))

    def events(self, agent: str | None = None) -> list[dict[str, Any]]:
        return list(self.ask("ca", "log", *(["--agent", agent] if agent else [])))

    def logs(self) -> str:
        """The end of every log, for a failed test to show."""
        shown = []
        for log in sorted(self.directory.rglob("*.log")):
            text = log.read_text(errors="replace").splitlines()[-40:]
            shown.append(f"---- {log.relative_to(self.directory)}\n" + "\n".join(text))
        return "\n".join(shown)


def content_of(message: str) -> str:
    """The content of a message in FIPA's string encoding, by way of the JSON one."""
    done = sealbus("acl", "convert", "--from", "string", "--to", "json", stdin=message.encode())
    content = json.loads(done.stdout)["content"]
    return str(content)

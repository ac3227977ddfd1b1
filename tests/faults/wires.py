"""A machine for each node: a network namespace on a wire that can be cut, and a disk that can be full."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

#: A bucket of tokens that is too small for any packet.
NOTHING_PASSES = ("tbf", "rate", "8bit", "burst", "1", "limit", "1")
#: Machines need root, and the programs `ip` and `tc` (iproute2).
ARE_POSSIBLE = os.getuid() == 0 and shutil.which("ip") is not None


def run(*words: str | Path) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, words))}: {done.stderr}")


class Wires:
    """Namespaces behind one bridge. The Master is at the bridge's own address."""

    def __init__(self) -> None:
        self.mark = f"{os.getpid() % 0xFFFFF:x}"
        low = os.getpid() % 250 + 1
        self.net = f"10.{os.getpid() // 250 % 250 + 1}.{low}"
        self.bridge = f"sb{self.mark}"
        self.machines: list[str] = []

    @property
    def master(self) -> str:
        return f"{self.net}.1"

    def __enter__(self) -> Wires:
        run("ip", "link", "add", self.bridge, "type", "bridge")
        run("ip", "address", "add", f"{self.master}/24", "dev", self.bridge)
        run("ip", "link", "set", self.bridge, "up")
        return self

    def __exit__(self, *_: object) -> None:
        for number, machine in enumerate(self.machines, 1):
            # The kernel takes its time to end a namespace with the wire in it. The next walk uses the same names.
            subprocess.run(["ip", "link", "delete", self.wire(number)], check=False, capture_output=True)
            subprocess.run(["ip", "netns", "delete", machine], check=False, capture_output=True)
        subprocess.run(["ip", "link", "delete", self.bridge], check=False, capture_output=True)

    def machine(self) -> tuple[tuple[str, ...], str]:
        """The words that run a program on a new machine, and that machine's address."""
        number = len(self.machines) + 1
        name, address = f"sb{self.mark}n{number}", f"{self.net}.{number + 1}"
        self.machines.append(name)
        run("ip", "netns", "add", name)
        run("ip", "link", "add", self.wire(number), "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "link", "set", self.wire(number), "master", self.bridge, "up")
        for words in (("address", "add", f"{address}/24", "dev", "eth0"), ("link", "set", "eth0", "up"), ("link", "set", "lo", "up")):
            run("ip", "-n", name, *words)
        return ("ip", "netns", "exec", name), address

    def wire(self, number: int) -> str:
        return f"sb{self.mark}w{number}"

    def cut(self, number: int) -> None:
        run("ip", "link", "set", self.wire(number), "down")

    def mend(self, number: int) -> None:
        run("ip", "link", "set", self.wire(number), "up")

    def part(self, number: int, other: int) -> None:
        """The one machine sends nothing more to the other, and so hears no answer of it."""
        run("ip", "-n", self.machines[number - 1], "route", "add", "blackhole", f"{self.net}.{other + 1}/32")

    def join(self, number: int, other: int) -> None:
        """The one machine sends to the other again."""
        run("ip", "-n", self.machines[number - 1], "route", "delete", "blackhole", f"{self.net}.{other + 1}/32")

    def deafen(self, number: int) -> None:
        """The machine hears nothing more, and is heard."""
        run("tc", "qdisc", "add", "dev", self.wire(number), "root", *NOTHING_PASSES)

    def silence(self, number: int) -> None:
        """The machine is not heard any more, and hears."""
        run("tc", "-n", self.machines[number - 1], "qdisc", "add", "dev", "eth0", "root", *NOTHING_PASSES)

    def open_both_ways(self, number: int) -> None:
        for words in (("-n", self.machines[number - 1], "qdisc", "del", "dev", "eth0"), ("qdisc", "del", "dev", self.wire(number))):
            # The way that is open has no such rule.
            subprocess.run(["tc", *words, "root"], check=False, capture_output=True)


class Disk:
    """A small file system of its own under a folder."""

    def __init__(self, folder: Path, megabytes: int = 64) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "sealbus-faults", folder)

    def fill(self) -> None:
        try:
            with (self.folder / "ballast").open("wb", buffering=0) as ballast:
                while True:
                    ballast.write(bytes(1 << 16))
        except OSError:
            pass

    def make_room(self) -> None:
        (self.folder / "ballast").unlink(missing_ok=True)

    def forbid_writing(self) -> bool:
        """Makes it read-only. Returns whether it is: it is not as long as a file is open for writing."""
        words = ["mount", "-o", "remount,ro", self.folder]
        return subprocess.run(words, check=False, capture_output=True).returncode == 0

    def allow_writing(self) -> None:
        run("mount", "-o", "remount,rw", self.folder)

    def remove(self) -> None:
        subprocess.run(["umount", "-l", self.folder], check=False, capture_output=True)

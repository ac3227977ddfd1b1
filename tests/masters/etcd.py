"""A cluster of Debian's etcd on loopback addresses, with the certificates that `sealbus store certify` makes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from harness import DEADLINE, sealbus, wait_for
from ports import free_port


class Etcd:
    """Members `etcd-1`, `etcd-2`, …, which run until `end`: on this machine, or each on one of `machines` (the words that run a
    program there, and its address). Their data lie in `data`, if not in the folder."""

    def __init__(
        self,
        folder: Path,
        count: int,
        host: str = "127.0.0.1",
        machines: Sequence[tuple[tuple[str, ...], str]] = (),
        data: Path | None = None,
    ) -> None:
        self.folder = folder
        self.data = data or folder
        names = [f"etcd-{number}" for number in range(1, count + 1)]
        where = dict(zip(names, machines or [((), host)] * count, strict=True))
        self.run_by = {name: by for name, (by, _) in where.items()}
        self.hosts = {name: host for name, (_, host) in where.items()}
        members = [part for name in names for part in ("--member", f"{name}={self.hosts[name]},localhost")]
        sealbus("store", "certify", folder, *members, "--client", "master-1")
        # On a machine of its own a member has all ports.
        self.clients = {name: 2379 if machines else free_port(host) for name in names}
        self.peers = {name: 2380 if machines else free_port(host) for name in names}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        for name in names:
            self.start(name)

    @property
    def addresses(self) -> list[str]:
        return [self.address(name) for name in self.clients]

    def address(self, name: str) -> str:
        return f"https://{self.hosts[name]}:{self.clients[name]}"

    def manifest(self) -> str:
        """The section of the manifest."""
        addresses = ", ".join(f'"{address}"' for address in self.addresses)
        return f"""
    [store]
    etcd = [{addresses}]
    credentials = "{self.folder}/master-1"
"""

    def start(self, name: str) -> None:
        files = self.folder / name
        client = self.address(name)
        peers = {each: f"https://{self.hosts[each]}:{port}" for each, port in self.peers.items()}
        peer = peers[name]
        cluster = ",".join(f"{each}={address}" for each, address in peers.items())
        tls = [
            option
            for side in ("", "peer-")
            for option in (
                f"--{side}trusted-ca-file={files}/ca.pem",
                f"--{side}cert-file={files}/member.pem",
                f"--{side}key-file={files}/member.key",
                f"--{side}client-cert-auth",
            )
        ]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [
                    *self.run_by[name],
                    "etcd",
                    f"--name={name}",
                    f"--data-dir={self.data}/data-{name}",
                    f"--listen-client-urls={client}",
                    f"--advertise-client-urls={client}",
                    f"--listen-peer-urls={peer}",
                    f"--initial-advertise-peer-urls={peer}",
                    f"--initial-cluster={cluster}",
                    "--logger=zap",
                    *tls,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self, name: str) -> None:
        self.running[name].kill()
        self.running[name].wait(DEADLINE)

    def signal(self, name: str, number: signal.Signals) -> None:
        self.running[name].send_signal(number)

    def words(self, *words: str, name: str = "etcd-1") -> list[str]:
        """The words that run etcdctl, which knows nothing of Sealbus."""
        files = self.folder / "master-1"
        return [
            "etcdctl",
            f"--endpoints={self.address(name)}",
            f"--cacert={files}/ca.pem",
            f"--cert={files}/client.pem",
            f"--key={files}/client.key",
            "--command-timeout=20s",
            *words,
        ]

    def ctl(self, *words: str, name: str = "etcd-1") -> str:
        """The output of etcdctl."""
        done = subprocess.run(
            self.words(*words, name=name),
            capture_output=True,
            timeout=DEADLINE,
            env=os.environ | {"ETCDCTL_API": "3"},
            check=True,
        )
        return done.stdout.decode()

    def leader(self) -> str | None:
        """The member that leads, if there is one."""
        for name in self.clients:
            try:
                (found,) = json.loads(self.ctl("endpoint", "status", "-w", "json", name=name))
            except subprocess.CalledProcessError:
                continue
            if found["Status"]["leader"] == found["Status"]["header"]["member_id"]:
                return name
        return None

    def await_healthy(self) -> None:
        def healthy() -> bool:
            try:
                return all("true" in self.ctl("endpoint", "health", "-w", "json", name=name) for name in self.clients)
            except subprocess.CalledProcessError:
                return False

        wait_for(healthy, "etcd to answer", also=self.logs)

    def logs(self) -> str:
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join("\n".join(log.read_text(errors="replace").splitlines()[-10:]) for log in logs)

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()

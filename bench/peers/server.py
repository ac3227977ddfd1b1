"""The processes of a server of the papers' benchmark, and what all servers need: ports, certificates and patience."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
PEERS = Path(os.environ.get("SEALBUS_PEERS", CACHE / "sealbus" / "peers"))
PKI = PEERS / "pki"
PATIENCE = 80
Values = dict[str, Any]


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def certificate_of(name: str) -> Values:
    """The certificate that a client shows, and the authority that it believes."""
    return {
        "authority": str(PKI / "ca.pem"),
        "certificate": str(PKI / f"{name}.pem"),
        "key": str(PKI / f"{name}.key"),
    }


def until(holds: Callable[[], bool]) -> None:
    """Waits until this holds."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            sys.exit(f"the server was not ready after {PATIENCE} s")
        time.sleep(0.02)


class Server:
    """Processes, and the folder they work in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.farewells: list[Callable[[], object]] = []

    def start(self, command: list[str | Path], **options: Any) -> subprocess.Popen[bytes]:
        """Starts a process. Its output goes to our standard error."""
        process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            cwd=self.folder,
            **options,
        )
        self.processes.append(process)
        return process

    def wait(self, port: int) -> None:
        """Waits until somebody listens."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for process in self.processes:
                if process.poll() is not None:
                    sys.exit(f"the server ended with {process.returncode}")
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)
        sys.exit(f"nobody listens on port {port} after {PATIENCE} s")

    def stop(self) -> None:
        """Ends all processes."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for farewell in self.farewells:
            farewell()

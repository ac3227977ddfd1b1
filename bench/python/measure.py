"""Python to Python in two processes, beside the floor, in one run.

``python measure.py --sealbus PATH [--level LEVEL] [--json FILE]``: the platform is a real one, started by the binary,
with two agents on a node of its own each. The floor is a bare echo over mutual TLS on uvloop (``floor.py``).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import report
from awake import awake
from workload import resident

HERE = Path(__file__).parent
PATIENCE = 120
LOOPS = ("sealbus", "uvloop", "asyncio")


def make_certificates(directory: Path) -> None:
    """An authority, and a certificate for both sides of the floor."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)

    key = ["-newkey", "ed25519", "-noenc"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    openssl("req", *key, "-keyout", "peer.key", "-out", "peer.csr", "-subj", "/CN=peer")
    (directory / "extensions").write_text("subjectAltName=IP:127.0.0.1")
    signer = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "extensions"]
    openssl("x509", "-req", "-in", "peer.csr", "-out", "peer.pem", *signer)


def floor() -> dict[str, Any]:
    """The bare echo's figures."""
    with tempfile.TemporaryDirectory() as name:
        make_certificates(Path(name))
        command = [sys.executable, str(HERE / "floor.py"), name]
        server = subprocess.Popen([*command, "serve"], stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            port = server.stdout.readline().strip()
            measured = subprocess.run(
                [*command, "measure", port], check=True, capture_output=True, text=True
            )
            figures: dict[str, Any] = json.loads(measured.stdout)
            return figures
        finally:
            server.terminate()
            server.wait()


def bare_interpreter() -> int:
    """Resident memory in bytes of an interpreter that has imported nothing."""
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as interpreter:
        assert interpreter.stdout is not None
        interpreter.stdout.readline()
        found = resident(interpreter.pid)
        interpreter.communicate(b"\n")
    return found


def agents(sealbus: Path, level: str, loop: str) -> dict[str, Any]:
    """The figures of two agents of a platform."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        figures_file = directory / "figures" / "report.json"
        figures_file.parent.mkdir()
        program = [sys.executable, str(HERE / "agents.py"), loop]
        (directory / "platform.toml").write_text(
            f'[platform]\nname = "bench"\nlevel = "{level}"\nnodes = 2\n\n'
            f'[[agent]]\nname = "mirror"\ncommand = {json.dumps([*program, "mirror"])}\n\n'
            f'[[agent]]\nname = "driver"\ncommand = {json.dumps([*program, "driver", str(figures_file)])}\nwrite = ["figures"]\n'
        )
        log = directory / "log"
        with log.open("w") as output:
            platform = subprocess.Popen(
                [sealbus, "up", "platform.toml", "--state", "state"],
                cwd=directory,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            deadline = time.monotonic() + PATIENCE
            while not figures_file.exists():
                if platform.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"no figures for {loop} at level {level}:\n{log.read_text()}")
                time.sleep(0.05)
            figures: dict[str, Any] = json.loads(figures_file.read_text())
            return figures
        finally:
            platform.send_signal(signal.SIGTERM)
            platform.wait()


def main() -> None:
    """Measures, prints a table and writes the report."""
    parser = report.options()
    parser.add_argument("--level", default="auth", help="the security level")
    arguments = parser.parse_args()
    sealbus = arguments.sealbus.absolute()

    figures: dict[str, Any] = {"level": arguments.level, "processors": os.cpu_count()}
    figures["bare_interpreter_bytes"] = bare_interpreter()
    with awake():
        figures["floor"] = floor()
        for loop in LOOPS:
            figures[loop] = agents(sealbus, arguments.level, loop)
    report.write(arguments.json, figures)

    heads = ["128 B µs", "p99", "16 KiB µs", "p99", "one by one/s", "batches/s"]
    print(f"Python to Python, two processes, level {arguments.level}; messages of 64 B in the streams")
    print(f"{'':24}" + "".join(f"{head:>14}" for head in heads))
    for row in ("floor", *LOOPS):
        measured = figures[row]
        cells = []
        for size in (128, 16_384):
            trip = measured[f"round_trip_{size}"]
            cells += [f"{trip['p50_us']:.1f}", f"{trip['p99_us']:.1f}"]
        for way in ("one_by_one", "batches"):
            rate = measured.get(f"stream_64_{way}")
            cells.append("" if rate is None else f"{rate:,.0f}")
        title = "uvloop, bare mutual TLS" if row == "floor" else f"agents on {row}"
        print(f"{title:24}" + "".join(f"{cell:>14}" for cell in cells))
    bare = figures["bare_interpreter_bytes"]
    for row in LOOPS:
        measured = figures[row]
        typed, processor = (measured[f"typed{unit}"] / measured[f"text{unit}"] for unit in ("_us", "_processor_us"))
        before, after = ((measured[f"resident{when}_bytes"] - bare) / 2**20 for when in ("", "_after_streams"))
        print(
            f"agents on {row}: a request with typed bodies costs {typed:.2f} x one in text, {processor:.2f} x by processor; "
            f"resident above the bare interpreter {before:.0f} MiB, {after:.0f} MiB after the streams"
        )
    print(f"resident in the bare interpreter: {bare / 2**20:.0f} MiB; of the two processes with one agent each, the larger one counts")


if __name__ == "__main__":
    main()

"""A2A over JSON-RPC: Sealbus beside the official SDK's own server, with the same agent, in one run.

``python a2a_gateway.py --sealbus PATH [--json FILE]`` measures in turns the SDK's server, a program with Sealbus inside (``run(…, a2a=…)``), and a
platform whose gateway is a process of its own (``sealbus up``):

- requests a second: ``SendMessage`` over so many connections at a time, each answered when its task is done;
- the first part of a stream: from the request until the first ``artifactUpdate`` is there, one stream after the other;
- memory: the growth of all processes of the server by so many open streams.

It prints them side by side, with the goals: five times the SDK's requests a second, a third of its time until the first part, and at
most 64 MiB for 1,000 open streams.

The client is one process of raw asyncio, the same for all, and no part of the figures for memory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import report
from awake import awake

HERE = Path(__file__).parent
PATIENCE = 120.0
CALLERS = 8
"""A caller of Sealbus has a quota: these share the work."""
PATH = "/agents/echo"
CARD = f"{PATH}/.well-known/agent-card.json"


class Server:
    """A running server: its port, its keys, and the processes that count."""

    def __init__(self, port: int, keys: list[str], pids: list[int]) -> None:
        self.port, self.keys, self.pids = port, keys, pids

    def memory(self) -> int:
        """The memory of its processes, in KiB."""
        pages = (Path(f"/proc/{pid}/statm").read_text().split()[1] for pid in self.pids)
        return sum(int(it) for it in pages) * 4


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def until_there(port: int, key: str | None) -> None:
    """Waits until the agent has its card."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{CARD}")
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(request):
                return
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def callers(sealbus: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Keys, and the callers who hold them."""
    command = [str(sealbus), "gateway", "key", "--a2a", "--json"]
    made = [json.loads(subprocess.check_output([*command, f"caller-{number}"])) for number in range(CALLERS)]
    return [it["key"] for it in made], [{"name": it["caller"], "key": it["hash"]} for it in made]


@contextmanager
def official(_: Path, __: Path) -> Iterator[Server]:
    with ExitStack() as stack:
        port = free_port()
        yield process(stack, port, [], "official", str(port))


@contextmanager
def program(sealbus: Path, _: Path) -> Iterator[Server]:
    keys, known = callers(sealbus)
    with ExitStack() as stack:
        port = free_port()
        door = {"listen": f"127.0.0.1:{port}", "caller": known}
        yield process(stack, port, keys, "program", json.dumps(door))


def process(stack: ExitStack, port: int, keys: list[str], *arguments: str) -> Server:
    command = [sys.executable, str(HERE / "a2a_agents.py"), *arguments]
    started = stack.enter_context(subprocess.Popen(command))
    stack.callback(started.terminate)
    until_there(port, keys[0] if keys else None)
    return Server(port, keys, [started.pid])


@contextmanager
def platform(sealbus: Path, folder: Path) -> Iterator[Server]:
    keys, known = callers(sealbus)
    port = free_port()
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(dir=folder))
        agent = json.dumps([sys.executable, str(HERE / "a2a_agents.py"), "agent"])
        text = f'[platform]\nname = "bench"\n[gateway.a2a]\nlisten = "127.0.0.1:{port}"\n[[agent]]\nname = "echo"\ncommand = {agent}\n'
        for caller in known:
            text += f'[[gateway.a2a.caller]]\nname = "{caller["name"]}"\nkey = "{caller["key"]}"\n'
        (directory / "platform.toml").write_text(text)
        command = [str(sealbus), "--state", str(directory / "state")]
        log = stack.enter_context((directory / "log").open("w"))
        up = subprocess.Popen([*command, "up", str(directory / "platform.toml")], stdout=log, stderr=subprocess.STDOUT)
        stack.enter_context(up)
        stack.callback(up.terminate)
        until_there(port, keys[0])
        told = json.loads(subprocess.check_output([*command, "ps", "--json"]))
        # The callers live in the gateway's process.
        pids = {int(it["pid"]) for it in told if it["name"].split("@")[0] in ("echo", "caller-0")}
        assert len(pids) == 2, told
        yield Server(port, keys, sorted(pids))


class Client:
    """A connection, which asks one request after the other."""

    def __init__(self, server: Server, number: int) -> None:
        self.server, self.number, self.count = server, number, 0
        key = server.keys[number % len(server.keys)] if server.keys else None
        self.key = f"Authorization: Bearer {key}\r\n" if key else ""

    async def open(self) -> Client:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.server.port, limit=1 << 20)
        return self

    def ask(self, method: str, text: str) -> None:
        self.count += 1
        message = {"messageId": f"{time.monotonic_ns()}-{self.number}-{self.count}", "role": "ROLE_USER", "parts": [{"text": text}]}
        body = json.dumps({"jsonrpc": "2.0", "id": self.count, "method": method, "params": {"message": message}}).encode()
        accept = "text/event-stream" if method == "SendStreamingMessage" else "application/json"
        head = (
            f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{self.server.port}\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n"
            f"Accept: {accept}\r\n{self.key}Content-Length: {len(body)}\r\n\r\n"
        )
        self.writer.write(head.encode() + body)

    async def head(self) -> dict[str, str]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        status, *lines = head.strip().split("\r\n")
        if " 200 " not in f"{status} ":
            raise RuntimeError(f"the server answered {status}: {lines}")
        return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}

    async def send(self, text: str) -> None:
        """Asks, and waits until the task is done."""
        self.ask("SendMessage", text)
        fields = await self.head()
        body = await self.reader.readexactly(int(fields["content-length"]))
        if b"TASK_STATE_COMPLETED" not in body:
            raise RuntimeError(f"the task was not done: {body[:500]!r}")

    async def stream(self, text: str) -> float:
        """Asks, and waits until the first part is there. Returns the seconds."""
        begun = time.perf_counter()
        self.ask("SendStreamingMessage", text)
        await self.head()
        await self.reader.readuntil(b'"artifactUpdate"')
        return time.perf_counter() - begun

    def close(self) -> None:
        self.writer.transport.abort()


async def rate(server: Server, connections: int, requests: int) -> float:
    """Requests a second."""
    clients = [await Client(server, number).open() for number in range(connections)]

    async def work(client: Client, count: int) -> None:
        for _ in range(count):
            await client.send("hello")

    await asyncio.gather(*(work(client, 10) for client in clients))
    begun = time.perf_counter()
    await asyncio.gather(*(work(client, requests // connections) for client in clients))
    took = time.perf_counter() - begun
    for client in clients:
        client.close()
    return requests // connections * connections / took


async def first_part(server: Server, count: int) -> list[float]:
    """The time until the first part of a stream is there, in milliseconds, sorted. Each stream has a connection of its own."""
    times = []
    for number in range(count + 10):
        client = await Client(server, number).open()
        took = await client.stream("hello")
        client.close()
        times.append(took * 1_000)
    return sorted(times[10:])


async def streams(server: Server, count: int) -> int:
    """The growth of the server by so many open streams, in KiB."""
    before = server.memory()
    clients = []
    for begin in range(0, count, 50):
        batch = [await Client(server, number).open() for number in range(begin, min(begin + 50, count))]
        await asyncio.gather(*(client.stream("wait") for client in batch))
        clients += batch
    after = server.memory()
    for client in clients:
        client.close()
    return after - before


SYSTEMS = {"a2a-sdk": official, "program": program, "platform": platform}


def measure(sealbus: Path, folder: Path, arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Each system in turn, `rounds` times; the median of each figure."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in SYSTEMS}
    # No file is removed between rounds: ext4 makes files slowly for minutes after many were removed.
    for _ in range(arguments.rounds):
        for name, start in SYSTEMS.items():
            with start(sealbus, folder) as server:
                per_second = asyncio.run(rate(server, arguments.connections, arguments.requests))
                times = asyncio.run(first_part(server, arguments.first))
                grown = asyncio.run(streams(server, arguments.streams))
            figures = {
                "requests_per_second": per_second,
                "first_part_p50_ms": median(times),
                "first_part_p99_ms": times[len(times) * 99 // 100],
                "open_streams_kib": float(grown),
            }
            found[name].append(figures)
            print(f"{name}: {json.dumps({it: round(value, 2) for it, value in figures.items()})}", file=sys.stderr)
    return {name: {it: median(each[it] for each in rounds) for it in rounds[0]} for name, rounds in found.items()}


def row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def table(figures: dict[str, dict[str, float]], streams: int) -> Iterator[str]:
    """The figures side by side, each with its ratio to the SDK's, and the goals."""
    peer = figures["a2a-sdk"]
    lines: list[tuple[str, str, float, str, Callable[[float, float], bool] | None]] = [
        ("requests a second", "requests_per_second", 1, "at least 5 ×", lambda _, ratio: ratio >= 5),
        ("first part, median, ms", "first_part_p50_ms", 1, "at most 0.33 ×", lambda _, ratio: ratio <= 1 / 3),
        ("first part, p99, ms", "first_part_p99_ms", 1, "", None),
        (f"{streams} open streams, MiB", "open_streams_kib", 1024, "at most 64 MiB", lambda value, _: value <= 64),
    ]
    yield row(["", *figures, "goal"])
    yield row(["---"] * (len(figures) + 2))
    for name, key, unit, goal, is_reached in lines:
        cells = []
        for system, each in figures.items():
            value, ratio = each[key] / unit, each[key] / peer[key] if peer[key] else float("inf")
            cell = f"{value:.1f}" if system == "a2a-sdk" else f"{value:.1f} ({ratio:.2f} ×)"
            if is_reached and system != "a2a-sdk":
                cell += ", reached" if is_reached(value, ratio) else ", MISSED"
            cells.append(cell)
        yield row([name, *cells, goal])


def main() -> None:
    parser = report.options()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--requests", type=int, default=4_000)
    parser.add_argument("--first", type=int, default=300)
    parser.add_argument("--streams", type=int, default=1_000)
    arguments = parser.parse_args()
    with awake(), tempfile.TemporaryDirectory() as folder:
        figures = measure(arguments.sealbus.resolve(), Path(folder), arguments)
    peer = figures["a2a-sdk"]
    ratios: dict[str, Any] = {
        name: {it: round(value / peer[it], 3) if peer[it] else None for it, value in each.items()}
        for name, each in figures.items()
        if name != "a2a-sdk"
    }
    print("\n".join(table(figures, arguments.streams)))
    report.write(arguments.json, {"figures": figures, "beside a2a-sdk": ratios})


if __name__ == "__main__":
    main()

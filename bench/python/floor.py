"""The floor of the Python benchmark: an echo over mutual TLS 1.3 on uvloop, with nothing above it.

``python floor.py DIRECTORY serve`` serves on a port of the system's choice, which it prints; ``python floor.py DIRECTORY
measure PORT`` prints the figures, in JSON. DIRECTORY holds ``ca.pem``, ``peer.pem`` and ``peer.key``.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from pathlib import Path
from statistics import quantiles
from typing import cast

import uvloop

ROUND_TRIPS = 20_000


def context(directory: Path, purpose: ssl.Purpose) -> ssl.SSLContext:
    """Both sides show a certificate and check the other's."""
    made = ssl.create_default_context(purpose, cafile=str(directory / "ca.pem"))
    made.load_cert_chain(directory / "peer.pem", directory / "peer.key")
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.check_hostname = False
    made.verify_mode = ssl.CERT_REQUIRED
    return made


class Echo(asyncio.Protocol):
    """Sends back the bytes that it gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Caller(asyncio.Protocol):
    """Sends a message, waits for all of it to come back, and sends it again."""

    def __init__(self, size: int) -> None:
        self.message = bytes(size)
        self.done: asyncio.Future[list[float]] = asyncio.get_running_loop().create_future()
        self.took: list[float] = []
        self.missing = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)
        self.send()

    def send(self) -> None:
        """One more round."""
        self.missing = len(self.message)
        self.began = time.perf_counter_ns()
        self.transport.write(self.message)

    def data_received(self, data: bytes) -> None:
        self.missing -= len(data)
        if self.missing > 0:
            return
        self.took.append((time.perf_counter_ns() - self.began) / 1000)
        if len(self.took) < ROUND_TRIPS:
            self.send()
        else:
            self.transport.close()
            self.done.set_result(self.took)


async def serve(directory: Path) -> None:
    """Until it is ended."""
    tls = context(directory, ssl.Purpose.CLIENT_AUTH)
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0, ssl=tls)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def measure(directory: Path, port: int) -> None:
    """Microseconds of a round trip."""
    figures = {}
    tls = context(directory, ssl.Purpose.SERVER_AUTH)
    for size in (128, 16_384):
        _, caller = await asyncio.get_running_loop().create_connection(
            lambda size=size: Caller(size),  # type: ignore[misc]
            "127.0.0.1",
            port,
            ssl=tls,
        )
        took = (await caller.done)[ROUND_TRIPS // 10 :]
        percentiles = quantiles(took, n=100)
        figures[f"round_trip_{size}"] = {
            "p50_us": percentiles[49],
            "p99_us": percentiles[98],
            "least_us": min(took),
        }
    print(json.dumps(figures))


def main() -> None:
    """Plays the part named on the command line."""
    match sys.argv[1:]:
        case [directory, "serve"]:
            uvloop.run(serve(Path(directory)))
        case [directory, "measure", port]:
            uvloop.run(measure(Path(directory), int(port)))
        case _:
            sys.exit("usage: floor.py DIRECTORY serve | measure PORT")


if __name__ == "__main__":
    main()

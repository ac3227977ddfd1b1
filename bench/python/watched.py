"""The cost of watching: the messages a second of a busy pair with and without a window, in turns, and the window's own use.

``python watched.py --sealbus PATH [--seconds N] [--turns N] [--json FILE]``: a real platform with two nodes at level ``auth``. `source`
on the one writes to `sink` on the other as fast as it can. In every second turn a page's streams are open: one as for the overview, which
reads counters alone, or one as for the map, which also asks for messages. Both are read as they come, by this program and not by
a browser, which would take processors from the pair. Ratios are those of neighbouring turns.

``python watched.py source`` and ``python watched.py sink`` are the programs of the agents.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import report
from sealbus import AclMessage, Agent, Message, Performative, run

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 300
BATCH = 1_000
#: The requests of the page for its overview, and for its map.
LOOKS: dict[str, dict[str, object] | None] = {"counters": None, "messages": {"id": 7}}


class Source(Agent):
    """Writes for the requested number of seconds, and reports how many messages a second were taken."""

    async def on_message(self, message: Message) -> None:
        """Measures."""
        if message.performative != Performative.REQUEST:
            return
        inform = AclMessage(Performative.INFORM, "sink", "x" * 64)
        began, sent = time.monotonic(), 0
        while time.monotonic() < began + float(message.text):
            await self.send_many([inform] * BATCH)
            sent += BATCH
        await self.request(AclMessage(Performative.REQUEST, "sink"), timeout=PATIENCE)
        await self.reply(message, Performative.INFORM, str(sent / (time.monotonic() - began)))


class Sink(Agent):
    """Reads, and answers requests. An answer says that all earlier messages were read."""

    async def setup(self) -> None:
        """Reads for ever."""
        while True:
            for each in await self.receive_many(BATCH):
                if each.performative == Performative.REQUEST:
                    await self.reply(each, Performative.INFORM)


MANIFEST = "[platform]\nname = 'factory'\nnodes = 2\n" + "".join(
    f"[[agent]]\nname = '{name}'\ncommand = ['PYTHON', '{Path(__file__).resolve()}', '{name}']\nnode = '{node}'\n"
    for name, node in (("source", "node-1"), ("sink", "node-2"))
)


class Page:
    """A session of a window, as a page has it."""

    def __init__(self, link: str) -> None:
        self.place, _, once = link.removeprefix("http://").partition("/#once=")
        self.key = ""
        self.key = json.loads(self.post("/session", {"once": once}).read())["session"]

    def post(self, path: str, body: object) -> http.client.HTTPResponse:
        """Asks the window."""
        connection = http.client.HTTPConnection(self.place, timeout=PATIENCE)
        fields = {"Sealbus-Session": self.key} if self.key else {}
        connection.request("POST", path, json.dumps(body), fields)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        return answer

    @contextmanager
    def reads(self, watch: dict[str, object] | None) -> Iterator[None]:
        """The page's stream, read as it comes."""
        is_over, began = threading.Event(), threading.Event()

        def read() -> None:
            stream = self.post("/stream", {"watch": watch})
            while not is_over.is_set() and stream.readline():
                began.set()
            stream.close()

        thread = threading.Thread(target=read)
        thread.start()
        began.wait(PATIENCE)
        try:
            yield
        finally:
            is_over.set()
            thread.join()


def worked(pid: int) -> float:
    """The seconds of processor that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> float:
    """The most that was resident in a process, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def measure(sealbus: Path, seconds: float, turns: int) -> dict[str, Any]:
    """The figures of all turns."""
    sys.path.append(str(ROOT / "tests" / "end_to_end"))
    os.environ["SEALBUS_BINARY"] = str(sealbus)
    from harness import Platform

    with tempfile.TemporaryDirectory() as folder:
        factory = Platform(Path(folder), MANIFEST)
        window = None
        try:
            factory.up().active("source", "sink")
            command = [sealbus, "window", "--state", factory.state, "--no-open", "--json"]
            window = subprocess.Popen([str(it) for it in command], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
            assert window.stdout is not None
            page = Page(json.loads(window.stdout.readline())["link"])

            def rate() -> float:
                return float(factory.send("source", str(seconds)))

            rate()
            figures: dict[str, Any] = {}
            for name, watch in LOOKS.items():
                quiet, watched, shares = [], [], []
                for _ in range(turns):
                    quiet.append(rate())
                    with page.reads(watch):
                        before, began = worked(window.pid), time.monotonic()
                        watched.append(rate())
                        shares.append((worked(window.pid) - before) / (time.monotonic() - began))
                figures[name] = {
                    "quiet_per_s": median(quiet),
                    "watched_per_s": median(watched),
                    "ratio": median(one / other for one, other in zip(watched, quiet, strict=True)),
                    "window_share_of_a_core": median(shares),
                }
            figures["window_resident_mib"] = resident(window.pid)
            return figures
        finally:
            if window is not None:
                window.terminate()
                window.wait()
            factory.down()


def main() -> None:
    """Measures, or is one of the agents."""
    if sys.argv[1:] in (["source"], ["sink"]):
        run({"source": Source, "sink": Sink}[sys.argv[1]](sys.argv[1]))
        return
    parser = report.options()
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--turns", type=int, default=7)
    given = parser.parse_args()
    figures = measure(given.sealbus.resolve(), given.seconds, given.turns)
    report.write(given.json, figures)
    for name, each in figures.items():
        print(name, json.dumps(each))


if __name__ == "__main__":
    main()

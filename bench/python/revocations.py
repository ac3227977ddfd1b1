"""How fast revocations take effect: agents are revoked one by one at a rate, and others stop hearing them.

``python revocations.py --sealbus PATH [--agents N] [--rate N] [--json FILE]``: a real platform at level ``auth``. Agents in eight
processes talk to one that listens. An operator revokes all of them through ``admin.sock``. The figure is the time from the
Master's answer to the last message that the listener got from that agent: a message before the answer counts as 0.

``python revocations.py member PREFIX COUNT`` and ``python revocations.py listener REPORT`` are the programs of the agents.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import report
from sealbus import AclMessage, Agent, Message, Performative, SealbusError, run

PATIENCE = 300
PROCESSES = 8
#: One in this many agents talks. The others are only revoked.
TALKERS = 20
#: Seconds between two messages of a talker, and so the resolution of the figures.
PAUSE = 0.01
#: The time that messages under way get to arrive.
AFTER = 3.0


class Member(Agent):
    """Talks until it is revoked."""

    #: Seconds between two messages.
    pause = PAUSE

    async def setup(self) -> None:
        """The first agents of each process talk."""
        if int(self.aid.local_name.rpartition("-")[2]) % TALKERS == 0:
            self.create_task(self.talk())

    async def talk(self) -> None:
        """One message after the other."""
        while True:
            try:
                await self.send(AclMessage(Performative.INFORM, "listener"))
            except SealbusError:
                return
            await asyncio.sleep(self.pause)


class Listener(Agent):
    """Notes when it heard each agent last."""

    def __init__(self, notes: Path) -> None:
        super().__init__("listener")
        self.notes = notes
        self.heard: dict[str, float] = {}

    async def on_message(self, message: Message) -> None:
        """Notes the time, by the clock that all processes share; writes all times when it is asked to."""
        if message.performative == Performative.REQUEST:
            self.notes.write_text(json.dumps(self.heard))
            await self.reply(message, Performative.INFORM, "written")
        elif message.sender is not None:
            self.heard[message.sender.local_name] = time.monotonic()


class Operator:
    """A connection to the Master that carries many orders at once."""

    def __init__(self, state: Path, name: str = "admin.sock", patience: float = PATIENCE) -> None:
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.settimeout(patience)
        self.stream.connect(str(state / name))
        self.calls = 0
        challenge = decoded(self.call(ask="challenge")["challenge"])
        key = decoded((state / "admin.key").read_text().strip())
        proof = hmac.digest(key, b"sealbus operator v1\0" + challenge, "sha256")
        self.call(ask="prove", proof=base64.urlsafe_b64encode(proof).rstrip(b"=").decode())

    def begin(self, **body: Any) -> int:
        """Sends an order, and returns its number."""
        self.calls += 1
        text = json.dumps({"call": {"id": self.calls, "body": body}}).encode()
        self.stream.sendall(struct.pack(">I", len(text)) + text)
        return self.calls

    def call(self, **body: Any) -> dict[str, Any]:
        """Sends an order, and returns its answer."""
        number = self.begin(**body)
        answered, answer = self.read()
        assert answered == number
        return answer

    def read(self) -> tuple[int, dict[str, Any]]:
        """The next answer, and the number of its order."""
        (length,) = struct.unpack(">I", self.exactly(4))
        frame = json.loads(self.exactly(length))
        if "answer" not in frame:
            sys.exit(f"the Master says {frame}")
        return frame["answer"]["id"], frame["answer"]["body"]

    def exactly(self, length: int) -> bytes:
        """Reads this many bytes."""
        data = b""
        while len(data) < length:
            part = self.stream.recv(length - len(data))
            if not part:
                sys.exit("the Master ended the connection")
            data += part
        return data


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def manifest(agents: int, notes: Path) -> str:
    program = [sys.executable, str(Path(__file__).absolute())]
    each = agents // PROCESSES
    lines = ['[platform]\nname = "bench"\nnodes = 2\n']
    for prefix in prefixes():
        names = json.dumps([f"{prefix}-{number}" for number in range(each)])
        command = json.dumps([*program, "member", prefix, str(each)])
        lines.append(f'[[agent]]\nname = "{prefix}"\nagents = {names}\ncommand = {command}\nrestart = "never"\nnode = "node-1"\n')
    command = json.dumps([*program, "listener", str(notes)])
    folder = json.dumps([str(notes.parent)])
    lines.append(f'[[agent]]\nname = "listener"\ncommand = {command}\nwrite = {folder}\nnode = "node-2"\n')
    return "\n".join(lines)


def prefixes() -> list[str]:
    return [f"crowd{number}" for number in range(PROCESSES)]


def measure(sealbus: Path, agents: int, rate: float) -> dict[str, Any]:
    """Revokes all agents of a platform, and compares the answers with the messages that the listener heard."""
    names = [f"{prefix}-{number}" for number in range(agents // PROCESSES) for prefix in prefixes()]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        notes = directory / "figures" / "heard.json"
        notes.parent.mkdir()
        (directory / "platform.toml").write_text(manifest(agents, notes))
        log = directory / "log"
        with log.open("w") as output:
            platform = subprocess.Popen(
                [sealbus, "up", "platform.toml", "--state", "state"], cwd=directory, stdout=output, stderr=subprocess.STDOUT
            )

        def tell(*words: str) -> Any:
            command = [str(sealbus), *words, "--state", "state", "--json"]
            done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
            return json.loads(done.stdout) if done.returncode == 0 else None

        try:
            wait_until(lambda: active(tell("ps")) > agents, log, platform)
            time.sleep(AFTER)
            operator = Operator(next((directory / "state").rglob("admin.sock")).parent)
            answered: dict[str, float] = {}

            def read(orders: dict[int, str]) -> None:
                while len(answered) < len(names):
                    number, _ = operator.read()
                    answered[orders[number]] = time.monotonic()

            orders = {operator.calls + 1 + place: agent for place, agent in enumerate(names)}
            reading = threading.Thread(target=read, args=(orders,), daemon=True)
            reading.start()
            begun = time.monotonic()
            for place, agent in enumerate(names):
                time.sleep(max(0.0, begun + place / rate - time.monotonic()))
                operator.begin(ask="revoke", what=agent, reason="measured")
            reading.join(PATIENCE)
            time.sleep(AFTER)
            tell("send", "listener", "write", "--performative", "request", "--timeout", "60s")
            heard: dict[str, float] = json.loads(notes.read_text())
        finally:
            platform.send_signal(signal.SIGTERM)
            platform.wait()
    late = sorted(max(0.0, last - answered[agent]) for agent, last in heard.items())
    seconds = max(answered.values()) - begun
    return {
        "agents": len(names),
        "talkers": len(late),
        "answers_a_second": len(answered) / seconds,
        "p50_ms": 1000 * late[len(late) // 2],
        "p99_ms": 1000 * late[len(late) * 99 // 100],
        "last_ms": 1000 * late[-1],
    }


def active(listed: Any) -> int:
    agents = listed if isinstance(listed, list) else (listed or {}).get("agents", [])
    return sum(agent.get("state") == "active" for agent in agents)


def wait_until(look: Any, log: Path, platform: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not look():
        if platform.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"the agents do not run:\n{log.read_text()}")
        time.sleep(0.5)


def main() -> None:
    """Measures, prints the figures and writes the report."""
    if sys.argv[1:2] == ["member"]:
        return run(*[Member(f"{sys.argv[2]}-{number}") for number in range(int(sys.argv[3]))])
    if sys.argv[1:2] == ["listener"]:
        return run(Listener(Path(sys.argv[2])))
    parser = report.options()
    parser.add_argument("--agents", type=int, default=2000, help="agents to revoke")
    parser.add_argument("--rate", type=float, default=1000, help="revocations a second")
    arguments = parser.parse_args()
    figures = measure(arguments.sealbus.absolute(), arguments.agents, arguments.rate)
    report.write(arguments.json, figures)
    for figure, value in figures.items():
        print(f"{figure:20}{value:12,.1f}")


if __name__ == "__main__":
    main()

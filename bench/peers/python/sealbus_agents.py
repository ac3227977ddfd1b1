"""One side of a run, as a program that a platform of Sealbus runs:  sealbus_agents.py SIDE SOCKET [spade]

With ``spade`` the agents are those of spade_peer.py, on `sealbus.spade`.

The agents of the side are opened as orders ask for them; the orders come over a unix socket (relay.py), one connection for each
run. With ``relay`` as SIDE it passes the standard input on to the socket of the side that the first order names.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import threading
from pathlib import Path
from typing import Any

from driver import Driver, Tally, Values, serve


class Peer:
    """Agents of Sealbus, through the Python package as its users use it."""

    client = "sealbus (Python package)"

    def __init__(self, platform: Any, agents: dict[str, Any]) -> None:
        self.platform = platform
        # The open agents. The next run takes them again.
        self.agents = agents
        self.tasks: list[asyncio.Task[None]] = []
        self.channel = ""
        self.subscriptions: list[Any] = []

    async def open(self, name: str) -> Any:
        from sealbus import Agent

        if name not in self.agents:
            self.agents[name] = await self.platform.start(Agent(name))
            # As start_all does. Without this, the others keep their messages until the platform has learned of the
            # agents.
            await self.platform.pump.call(self.platform._joined.announce)
        return self.agents[name]

    async def connect(self, order: Values, tally: Tally) -> list[Any]:
        scenario = order["scenario"]
        if order["role"] == "receive":
            for number in range(scenario["receivers"]):
                agent = await self.open(f"receiver-{number + 1}")
                if scenario["shape"] == "broadcast":
                    # A channel for each run, so nothing is left of an earlier one.
                    self.channel = f"/bench/{order['run']}"
                    subscription = await agent.subscribe(self.channel)
                    self.subscriptions.append(subscription)
                    work = self.hear(subscription, number, scenario["size"], tally)
                else:
                    work = self.listen(agent, number, scenario, tally)
                self.tasks.append(asyncio.create_task(work))
            if self.channel:
                # This one is announced after all others, so a publisher that reaches it reaches all.
                self.subscriptions.append(await agent.subscribe(f"{self.channel}/all"))
            return []
        speakers: list[Any] = []
        if scenario["shape"] == "broadcast":
            return await self.publishers(scenario["senders"], order["there"])
        for number in range(scenario["senders"]):
            agent = await self.open(f"sender-{number + 1}")
            target = 0 if scenario["shape"] == "many_to_one" else number
            speakers.append(Speaker(agent, agent.peer(f"receiver-{target + 1}")))
        return speakers

    async def publishers(self, number: int, channel: str) -> list[Any]:
        agents = [await self.open(f"sender-{it + 1}") for it in range(number)]
        last = await agents[0].channel(f"{channel}/all")
        while not (await last.publish("")).processes:
            await asyncio.sleep(0.01)
        return [Publisher(await agent.channel(channel)) for agent in agents]

    async def listen(self, agent: Any, number: int, scenario: Values, tally: Tally) -> None:
        from sealbus import Performative

        while True:
            for message in await agent.receive_many():
                if scenario["kind"] == "stream":
                    tally.count(number, message.content_bytes, scenario["size"])
                else:
                    await agent.reply(message, Performative.INFORM, message.content)
                    tally.answer()

    async def hear(self, subscription: Any, number: int, size: int, tally: Tally) -> None:
        async for event in subscription:
            tally.count(number, event.content_bytes, size)

    def here(self) -> str:
        """The channel of a broadcast."""
        return self.channel

    async def meet(self, there: Any) -> None:
        pass

    async def leave(self) -> None:
        for task in self.tasks:
            task.cancel()
        for subscription in self.subscriptions:
            subscription.cancel()


class Speaker:
    def __init__(self, agent: Any, receiver: Any) -> None:
        from sealbus import AclMessage, Performative

        self.agent = agent
        self.inform = AclMessage(Performative.INFORM, receiver)
        self.question = AclMessage(Performative.REQUEST, receiver)

    async def send(self, content: bytes) -> None:
        await self.agent.send(self.inform.with_content(content))

    async def ask(self, content: bytes) -> bytes:
        answer = await self.agent.request(self.question.with_content(content), timeout=20)
        return bytes(answer.content_bytes)


class Publisher:
    def __init__(self, channel: Any) -> None:
        self.channel = channel

    async def send(self, content: bytes) -> None:
        await self.channel.publish(content)


async def follow(
    peer: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Plays one run."""
    lines: asyncio.Queue[str | None] = asyncio.Queue()

    async def read() -> None:
        while line := await reader.readline():
            lines.put_nowait(line.decode())
        lines.put_nowait(None)

    reading = asyncio.create_task(read())
    await serve(Driver(peer), lines, lambda line: writer.write(line.encode() + b"\n"))
    writer.close()
    reading.cancel()


async def live(side: str, path: Path, is_spade: bool) -> None:
    """Serves runs on the platform, until it ends."""
    from sealbus import Platform
    from sealbus.spade.container import Container

    async with Platform() as platform, Container(platform):
        agents: dict[str, Any] = {}
        # One agent keeps the program on the platform.
        await Peer(platform, agents).open(f"{side}-1")

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            peer = importlib.import_module("spade_peer").Peer() if is_spade else Peer(platform, agents)
            await follow(peer, reader, writer)

        # Orders are long lines.
        part = path.with_suffix(".part")
        await asyncio.start_unix_server(accept, part, limit=1 << 24)
        part.rename(path)
        await platform.wait()


def relay() -> None:
    """Passes lines between the instrument and a side's socket."""
    import socket

    line = sys.stdin.readline()
    order = json.loads(line)
    with socket.socket(socket.AF_UNIX) as side:
        side.connect(order["system"]["sockets"][order["role"]])

        def forward() -> None:
            text = line
            while text:
                side.sendall(text.encode())
                text = sys.stdin.readline()
            side.shutdown(socket.SHUT_WR)

        threading.Thread(target=forward, daemon=True).start()
        for answer in side.makefile():
            sys.stdout.write(answer)
            sys.stdout.flush()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["relay"]:
            relay()
        case [side, path, *of]:
            from sealbus import EventLoop

            with asyncio.Runner(loop_factory=EventLoop) as runner:
                runner.run(live(side, Path(path), of == ["spade"]))
        case _:
            sys.exit("usage: sealbus_agents.py relay | SIDE SOCKET")

"""SPADE agents, over XMPP, or the same program on `sealbus.spade` where Sealbus is installed. Those of a side share a process, and
the two sides do not, or SPADE would leave XMPP out."""

from __future__ import annotations

import asyncio
from typing import Any

try:
    from sealbus.spade.agent import Agent
    from sealbus.spade.behaviour import CyclicBehaviour
    from sealbus.spade.message import Message

    CLIENT = "sealbus.spade"
except ImportError:
    from spade.agent import Agent
    from spade.behaviour import CyclicBehaviour
    from spade.message import Message

    CLIENT = "SPADE 4.1.4"

Values = dict[str, Any]
PASSWORD = "benchmark"
FIRST = 2
"""The number of the first agent; on Sealbus number 1 keeps the program on the platform."""


class Listener(CyclicBehaviour):
    """Counts, or answers."""

    def __init__(self, number: int, scenario: Values, tally: Any) -> None:
        super().__init__()
        self.number, self.scenario, self.tally = number, scenario, tally

    async def run(self) -> None:
        message = await self.receive(timeout=60)
        if message is None:
            return
        if self.scenario["kind"] == "stream":
            self.tally.count(self.number, message.body.encode(), self.scenario["size"])
            return
        await self.send(Message(to=str(message.sender), body=message.body))
        self.tally.answer()


class Speaker(CyclicBehaviour):
    """Sends when it is told to; its run only keeps it alive."""

    def __init__(self, receivers: list[str]) -> None:
        super().__init__()
        self.receivers = receivers
        self.over = asyncio.Event()

    async def run(self) -> None:
        await self.over.wait()
        self.kill()


class Handle:
    def __init__(self, speaker: Speaker) -> None:
        self.speaker = speaker

    async def send(self, content: bytes) -> None:
        body = content.decode()
        for receiver in self.speaker.receivers:
            await self.speaker.send(Message(to=receiver, body=body))

    async def ask(self, content: bytes) -> bytes:
        await self.send(content)
        answer = await self.speaker.receive(timeout=20)
        return b"" if answer is None else answer.body.encode()


class Peer:
    client = CLIENT

    def __init__(self) -> None:
        self.agents: list[Agent] = []
        self.run = ""

    async def start(self, name: str, port: int, behaviour: CyclicBehaviour) -> None:
        agent = Agent(self.jid(name), PASSWORD, port=port)
        agent.add_behaviour(behaviour)
        await agent.start(auto_register=True)
        self.agents.append(agent)

    def jid(self, name: str) -> str:
        """The server keeps accounts, so each run has its own; the platform knows its agents by name and number."""
        return f"{name}-{self.run}@localhost" if CLIENT.startswith("SPADE") else f"{name}@localhost"

    async def connect(self, order: Values, tally: Any) -> list[Handle]:
        scenario, port = order["scenario"], order["system"].get("port", 5222)
        self.run = order["run"] if order["role"] == "receive" else order["there"]
        count = scenario["receivers"]
        if order["role"] == "receive":
            for number in range(count):
                listener = Listener(number, scenario, tally)
                await self.start(f"receiver-{number + FIRST}", port, listener)
            return []
        handles = []
        for number in range(scenario["senders"]):
            targets = {"one_to_one": [number], "many_to_one": [0]}
            receivers = targets.get(scenario["shape"], range(count))
            names = [self.jid(f"receiver-{it + FIRST}") for it in receivers]
            speaker = Speaker(names)
            await self.start(f"sender-{number + FIRST}", port, speaker)
            handles.append(Handle(speaker))
        return handles

    def here(self) -> str:
        return self.run

    async def meet(self, there: Any) -> None:
        pass

    async def leave(self) -> None:
        if CLIENT.startswith("sealbus"):
            # The program lives on, and the next run takes the names again.
            await asyncio.gather(*(agent.stop() for agent in self.agents))

"""SPADE agents over XMPP. Those of a side share a process, and the two sides do not, or SPADE would leave XMPP out."""

from __future__ import annotations

import asyncio
from typing import Any

from spade.agent import Agent
from spade.behaviour import CyclicBehaviour
from spade.message import Message

Values = dict[str, Any]
PASSWORD = "benchmark"


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
    client = "SPADE 4.1.4"

    def __init__(self) -> None:
        self.agents: list[Agent] = []
        self.run = ""

    async def start(self, name: str, port: int, behaviour: CyclicBehaviour) -> None:
        agent = Agent(f"{name}-{self.run}@localhost", PASSWORD, port=port)
        agent.add_behaviour(behaviour)
        await agent.start(auto_register=True)
        self.agents.append(agent)

    async def connect(self, order: Values, tally: Any) -> list[Handle]:
        scenario, port = order["scenario"], order["system"]["port"]
        self.run = order["run"] if order["role"] == "receive" else order["there"]
        count = scenario["receivers"]
        if order["role"] == "receive":
            for number in range(count):
                listener = Listener(number, scenario, tally)
                await self.start(f"receiver-{number}", port, listener)
            return []
        handles = []
        for number in range(scenario["senders"]):
            targets = {"one_to_one": [number], "many_to_one": [0]}
            receivers = targets.get(scenario["shape"], range(count))
            names = [f"receiver-{it}-{self.run}@localhost" for it in receivers]
            speaker = Speaker(names)
            await self.start(f"sender-{number}", port, speaker)
            handles.append(Handle(speaker))
        return handles

    def here(self) -> str:
        return self.run

    async def meet(self, there: Any) -> None:
        pass

    async def leave(self) -> None:
        pass

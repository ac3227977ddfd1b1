"""An agent that does several things at once, and something by itself: the words are a JSON list in a request.

===============  ==============================================================================
["work", s]      takes so many seconds, and answers where it was done
["report"]       answers what was done, how much is being done, and how often the clock ticked
===============  ==============================================================================

The list of work done and the ticks move with it.
"""

import asyncio
import json
import os

import sealbus
from sealbus import Agent, Message, Performative, every, on


class Office(Agent):
    def __init__(self) -> None:
        super().__init__()
        self.working = 0
        self.done: list[float] = []
        self.ticks = 0

    @on(Performative.REQUEST, concurrency=4)
    async def handle(self, request: Message) -> None:
        match json.loads(request.text):
            case ["work", seconds]:
                self.working += 1
                await asyncio.sleep(seconds)
                self.working -= 1
                self.done.append(seconds)
                await self.reply(request, Performative.INFORM, str(os.getpid()))
            case ["report"]:
                report = {"working": self.working, "done": self.done, "ticks": self.ticks}
                await self.reply(request, Performative.INFORM, json.dumps(report))

    @every(0.01)
    async def tick(self) -> None:
        self.ticks += 1

    async def save(self) -> bytes:
        return json.dumps([self.done, self.ticks]).encode()

    async def restore(self, state: bytes) -> None:
        self.done, self.ticks = json.loads(state)


sealbus.run(Office())

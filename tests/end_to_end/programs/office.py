"""An agent that does several things at once, and something by itself: the words are a JSON list in a request.

===============  ==============================================================================
["work", n]      goes on until a little after the agent is told to move, and answers where it was done
["report"]       answers what was done, how much is being done, and how often the clock ticked
===============  ==============================================================================

The list of work done and the ticks move with it.
"""

import asyncio
import json
import os

import sealbus
from sealbus import Agent, Message, Performative, every, life, on

# A busy machine cuts no work off: a process gives up its move before, after 15 s.
life.MOVE_GRACE = 40.0


class Office(Agent):
    def __init__(self) -> None:
        super().__init__()
        self.working = 0
        self.done: list[int] = []
        self.ticks = 0

    @on(Performative.REQUEST, concurrency=4)
    async def handle(self, request: Message) -> None:
        match json.loads(request.text):
            case ["work", number]:
                self.working += 1
                # Handlers that run side by side begin with nothing new once the agent must come to rest.
                while self._living.handlers._is_open.is_set():
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.5)
                self.working -= 1
                self.done.append(number)
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

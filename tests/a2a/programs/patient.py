"""An agent whose work ends when a file says so. The first argument is the folder of its notes."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from sealbus import AclMessage, Agent, Message, Performative, ServiceDescription, on, run, tool

NOTES = Path(sys.argv[1])


async def note(name: str) -> None:
    while not (NOTES / name).exists():
        await asyncio.sleep(0.02)


class Painter(Agent):
    async def setup(self) -> None:
        await self.df.register(*self.tools())

    @tool
    async def paint(self, name: str) -> AsyncIterator[str]:
        """Paints until the note of this name is there."""
        yield f"begun by {os.getpid()}"
        await note(name)
        yield "done"


class Adviser(Agent):
    """Asks back, and says how often it was asked to give this advice."""

    async def setup(self) -> None:
        await self.df.register(ServiceDescription("adviser", "advice", protocols=["fipa-request"]))

    @on(Performative.REQUEST)
    async def asked(self, message: Message) -> None:
        question = AclMessage(
            Performative.QUERY_REF, message.sender, "which colour?", conversation_id=message.conversation_id
        )
        answer = await self.request(question)
        attempt = message.user_defined.get("X-A2A-Attempt", "1")
        await self.reply(message, Performative.INFORM, f"{answer.text}, attempt {attempt}")


run(Painter("painter"), Adviser("adviser"))

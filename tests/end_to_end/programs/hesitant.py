"""Two agents are placed in this program, and it starts only the first, which echoes its messages."""

import asyncio
import os

from sealbus import Agent, Message, Performative, Platform


class Echo(Agent):
    async def on_message(self, message: Message) -> None:
        await self.reply(message, Performative.INFORM, message.text)


async def main() -> None:
    async with Platform() as platform:
        await platform.start(Echo(os.environ["NAME"]))
        await platform.wait()


asyncio.run(main())

"""An agent that needs no orders: `talker.py [RECEIVER]` prints what it hears, one line for each message, and sends numbers to
the receiver, if there is one."""

import asyncio
import sys

import sealbus
from sealbus import AclMessage, Agent, Message, Performative


class Talker(Agent):
    async def setup(self) -> None:
        for receiver in sys.argv[1:]:
            self.create_task(self.talk(receiver))

    async def talk(self, receiver: str) -> None:
        number = 0
        while True:
            await self.send(AclMessage(Performative.INFORM, receiver, str(number)))
            number += 1
            await asyncio.sleep(0.02)

    async def on_message(self, message: Message) -> None:
        assert message.sender is not None
        content = " ".join((message.content_text or "").split())
        print(f"heard {message.performative.value} {message.sender.local_name} {content}", flush=True)


if __name__ == "__main__":
    sealbus.run(Talker())

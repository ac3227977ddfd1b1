"""An agent on the channel /news that needs nobody to tell it what to do: files in the directory NOTES do, so that it can be
directed while the platform is dead.

While `NAME-publishes` is there it publishes numbers, one after the other; from when `NAME-listens` is there it
subscribes and notes what it hears in `NAME-heard`, a line each: who published, and the number. How many were
accepted is in `NAME-published`, which is written when it stops. Each message that comes back to it is a line
in `NAME-lost`.
"""

import asyncio
import os
from pathlib import Path

import sealbus
from sealbus import Agent, Message, Performative, SendError

NOTES = Path(os.environ["NOTES"])
#: Seconds between two numbers.
PAUSE = float(os.environ.get("PAUSE", "0.002"))


class Herald(Agent):
    def file(self, what: str) -> Path:
        return NOTES / f"{self.name}-{what}"

    async def setup(self) -> None:
        self.create_task(self.publish())
        self.create_task(self.listen())
        self.file("ready").touch()

    async def on_message(self, message: Message) -> None:
        if message.performative == Performative.FAILURE:
            with self.file("lost").open("a") as lost:
                lost.write(f"{message.content_text}\n")

    async def publish(self) -> None:
        while not self.file("publishes").exists():
            await asyncio.sleep(0.02)
        news = await self.channel("/news")
        number = 0
        while self.file("publishes").exists():
            try:
                await news.publish(str(number))
                number += 1
            except SendError:
                pass  # A process is silent: the same number again.
            await asyncio.sleep(PAUSE)
        self.file("published").write_text(str(number))

    async def listen(self) -> None:
        while not self.file("listens").exists():
            await asyncio.sleep(0.02)
        subscription = await self.subscribe("/news")
        self.file("subscribed").touch()
        with self.file("heard").open("a", buffering=1) as heard:
            async for event in subscription:
                heard.write(f"{event.sender_name} {event.text}\n")


if __name__ == "__main__":
    sealbus.run(Herald(os.environ.get("NAME", "herald")))

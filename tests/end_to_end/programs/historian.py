"""Publishes numbers on the persistent channel /history, or notes the events there.

historian.py write NAME: publishes 0, 1, 2 … while the file `write` is in the directory NOTES, and notes in `NAME-acknowledged`
which were acknowledged. After a kill it goes on behind the last that it had begun.

historian.py read NAME: a durable subscription; notes in the file NAME for each event: number, log, again, missed, publisher, text.
"""

import asyncio
import os
import sys
from pathlib import Path

from sealbus import Agent, ChannelError, SendError, run

NOTES = Path(os.environ["NOTES"])


def note(name: str, line: str) -> None:
    with (NOTES / name).open("a") as notes:
        notes.write(f"{line}\n")


class Writer(Agent):
    async def setup(self) -> None:
        self.create_task(self.write())

    async def write(self) -> None:
        name = self.aid.local_name
        channel = await self.channel("/history")
        begun = NOTES / f"{name}-begun"
        number = len(begun.read_text().splitlines()) if begun.exists() else 0
        while True:
            while not (NOTES / "write").exists():
                await asyncio.sleep(0.02)
            note(begun.name, str(number))
            try:
                await channel.publish(str(number))
            except (ChannelError, SendError) as error:
                note(f"{name}-errors", str(error))
            else:
                note(f"{name}-acknowledged", str(number))
            number += 1


class Reader(Agent):
    async def setup(self) -> None:
        self.create_task(self.read())

    async def read(self) -> None:
        name = self.aid.local_name
        note(f"{name}-began", str(os.getpid()))
        async for event in await self.subscribe("/history", durable="history", since=1000000):
            again = "again" if event.may_be_again else "new"
            note(name, f"{event.number} {event.log} {again} {event.missed} {event.sender_name} {event.text}")


run({"write": Writer, "read": Reader}[sys.argv[1]](sys.argv[2]))

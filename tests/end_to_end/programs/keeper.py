"""An agent that sends and notes persistent messages, told what to do in requests whose content is a JSON list.

==================================  =======================================================
["post", receiver, first, count]    sends the numbers persistently; answers how many were taken
["post one", receiver, text, with]  sends one, with these options; answers "accepted" or the error
["post large", receiver, bytes, n]  sends one of that length that begins with the number n; answers the same
["notices"]                         answers what the platform told it: performatives and contents
["where"]                           answers its process id
==================================  =======================================================

It notes each persistent message in the file of its name in the directory NOTES, a line each: when, the number it was
kept under, whether it may be there again, who sent it, the text. While NOTES holds a file `NAME-down` it does not start.
"""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import sealbus
from sealbus import AclMessage, Agent, Message, Performative

NOTES = Path(os.environ["NOTES"])


class Keeper(Agent):
    def __init__(self) -> None:
        super().__init__()
        self.notices: list[list[str]] = []

    async def on_message(self, message: Message) -> None:
        if message.provenance == "platform":
            self.notices.append([str(message.performative), message.content_text or ""])
        elif message.kept_number is not None:
            again = "again" if message.may_be_again else "new"
            line = f"{time.time()} {message.kept_number} {again} {message.sender_name} {message.content_text}\n"
            with (NOTES / self.aid.local_name).open("a") as notes:
                notes.write(line)
            while (NOTES / "slow").exists():
                await asyncio.sleep(0.01)
        elif message.performative == Performative.REQUEST:
            answer = await self.obey(*json.loads(message.content_text or ""))
            await self.reply(message, Performative.INFORM, json.dumps(answer))

    async def obey(self, order: str, *arguments: Any) -> Any:
        match order, *arguments:
            case "post", receiver, first, count:
                for number in range(first, first + count):
                    message = AclMessage(Performative.INFORM, receiver, str(number))
                    await self.send(message, persistent=True)
                return count
            case "post one", receiver, text, options:
                try:
                    message = AclMessage(Performative.INFORM, receiver, text)
                    await self.send(message, persistent=True, **options)
                except sealbus.SealbusError as error:
                    return str(error)
                return "accepted"
            case "post large", receiver, length, number:
                return await self.obey("post one", receiver, f"{number} ".ljust(length, "."), {})
            case ("notices",):
                return self.notices
            case ("where",):
                return os.getpid()
        raise ValueError(f"what is {order}?")


if __name__ == "__main__":
    while (NOTES / f"{os.environ['NAME']}-down").exists():
        time.sleep(0.02)
    sealbus.run(Keeper())

"""An agent that says what it is told to, and notes what it hears, with what is known of the author.

It is told what to do in requests whose content is a JSON list.

==========================  =============================================================
["say", receiver, texts]    sends the texts
["post", receiver, texts]   sends them persistently
["vow", receiver, texts]    sends them at level `signed`
["bond", receiver, texts]   sends them persistently at level `signed`
["attest", level, receiver, texts]
                            sends them persistently at this level, and asks the receiver for a receipt
["seal", receiver, texts]   sends them at level `sealed`, or answers why not
["will", receiver, texts]   sends them persistently at level `sealed`, or answers why not
["publish", texts]          publishes them on /news, and persistently on /records
["quote", qos, texts]       publishes them on /quotes with this QoS, or answers why not
["each", orders]            obeys each of these orders
["words"]                   answers the words of the sealed messages that it heard, for others
["heard"]                   answers what it heard: [from where, sender, text, provenance], with "sealed " before the
                            provenance of what was sealed
==========================  =============================================================

Its notes move with it. While a file named by SLOW exists, the agent `sink` takes its time for each message.
"""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from sealbus import AclMessage, Agent, ChannelError, Message, Performative, SendError, run

SLOW = Path(os.environ["SLOW"])


class Notary(Agent):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[list[str]] = []
        self.words: list[str] = []

    async def save(self) -> bytes:
        return json.dumps(self.heard).encode()

    async def restore(self, state: bytes) -> None:
        self.heard = json.loads(state)

    async def setup(self) -> None:
        self.create_task(self.follow("/news"))
        self.create_task(self.follow("/quotes"))
        # It reads the logs from their beginning, also after a move.
        self.create_task(self.follow("/records", since=1_000_000))

    async def follow(self, channel: str, **options: Any) -> None:
        async for event in await self.subscribe(channel, **options):
            self.note(channel, event)

    def note(self, whence: str, message: Message) -> None:
        how = ("sealed " if message.is_sealed else "") + message.provenance
        if message.disclosure is not None:
            self.words.append(message.disclosure)
        self.heard.append([whence, message.sender_name or "", message.content_text or "", how])

    async def on_message(self, message: Message) -> None:
        for _ in range(10):
            if self.aid.local_name == "sink" and SLOW.exists():
                await asyncio.sleep(0.3)
        if message.performative != Performative.REQUEST:
            self.note("kept" if message.kept_number is not None else "direct", message)
            return
        answer = await self.obey(*json.loads(message.content_text or ""))
        await self.reply(message, Performative.INFORM, json.dumps(answer))

    async def obey(self, order: str, *arguments: Any) -> Any:
        match order, *arguments:
            case ("say" | "post" | "vow" | "bond"), receiver, texts:
                persistent, level = order in ("post", "bond"), "signed" if order in ("vow", "bond") else None
                for text in texts:
                    message = AclMessage(Performative.INFORM, receiver, text)
                    await self.send(message, persistent=persistent, level=level)
            case "attest", level, receiver, texts:
                for text in texts:
                    message = AclMessage(Performative.INFORM, receiver, text)
                    await self.send(message, persistent=True, level=level, receipt="agent")
            case ("seal" | "will"), receiver, texts:
                try:
                    for text in texts:
                        message = AclMessage(Performative.INFORM, receiver, text)
                        await self.send(message, persistent=order == "will", level="sealed")
                except SendError as error:
                    return str(error)
            case "publish", texts:
                news = await self.channel("/news")
                records = await self.channel("/records", qos="persistent,ack=disk")
                for text in texts:
                    await news.publish(text)
                    await records.publish(text)
            case "quote", qos, texts:
                try:
                    quotes = await self.channel("/quotes")
                    for text in texts:
                        await quotes.publish(text, qos=qos)
                except ChannelError as error:
                    return str(error)
            case "each", orders:
                for each in orders:
                    await self.obey(*each)
            case ("words",):
                return self.words
            case ("heard",):
                return self.heard
        return None


if __name__ == "__main__":
    run(Notary())

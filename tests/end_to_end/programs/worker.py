"""An agent that does what the tests tell it, in requests whose content is a JSON list of words.

===========================  ==============================================================
["echo", text]               answers the text
["print", text]              prints the text
["where"]                    answers its process id
["send", receiver, n, us]    sends the numbers 0 to n - 1 as informs, us microseconds apart
["sent"]                     answers how many of them `send` accepted, and whether it is done
["heard"]                    answers the numbers it was sent, by sender, in order of arrival
["failures"]                 answers the contents of the failure messages it got
["big", receiver, bytes]     sends content of that size; answers "accepted" or the error
["crash"]                    ends the process at once
===========================  ==============================================================

The messages that it heard move with it. THREADS is how many threads do the work of its connections. While a file named by SLOW exists, it reads nothing. While one named by HOLD exists, it
does not finish to save its state.
"""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import sealbus
from sealbus import AclMessage, Agent, Message, Performative


class Worker(Agent):
    def __init__(self) -> None:
        super().__init__()
        self.heard: dict[str, list[int]] = {}
        self.undelivered: list[str] = []
        self.accepted = 0
        self.sending: asyncio.Task[None] | None = None

    async def setup(self) -> None:
        print(f"{self.name} is set up", flush=True)

    async def teardown(self) -> None:
        print(f"{self.name} leaves", flush=True)

    async def save(self) -> bytes:
        print(f"{self.name} saves", flush=True)
        hold = os.environ.get("HOLD")
        while hold is not None and Path(hold).exists():
            await asyncio.sleep(0.02)
        return json.dumps(self.heard).encode()

    async def restore(self, state: bytes) -> None:
        self.heard = json.loads(state)
        print(f"{self.name} is restored", flush=True)

    async def on_message(self, message: Message) -> None:
        slow = os.environ.get("SLOW")
        while slow is not None and Path(slow).exists():
            await asyncio.sleep(0.02)
        assert message.sender is not None
        match message.performative:
            case Performative.INFORM:
                numbers = self.heard.setdefault(message.sender.local_name, [])
                numbers.append(int(message.content_text or ""))
            case Performative.FAILURE:
                self.undelivered.append(message.content_text or "")
            case Performative.REQUEST:
                answer = await self.obey(*json.loads(message.content_text or ""))
                await self.reply(message, Performative.INFORM, json.dumps(answer))

    async def obey(self, order: str, *arguments: Any) -> Any:
        match order, *arguments:
            case "echo", text:
                return text
            case "print", text:
                print(text, flush=True)
                return None
            case ("where",):
                return os.getpid()
            case "send", receiver, count, pause:
                self.accepted = 0
                self.sending = self.create_task(self.send_numbers(receiver, count, pause / 1e6))
                return None
            case ("sent",):
                return [self.accepted, self.sending is not None and self.sending.done()]
            case ("heard",):
                return self.heard
            case ("failures",):
                return self.undelivered
            case "big", receiver, size:
                try:
                    await self.send(AclMessage(Performative.INFORM, receiver, b"7" * size))
                except sealbus.SealbusError as error:
                    return str(error)
                return "accepted"
            case ("crash",):
                os._exit(3)
        raise ValueError(f"what is {order}?")

    async def send_numbers(self, receiver: str, count: int, pause: float) -> None:
        for number in range(count):
            await self.send(AclMessage(Performative.INFORM, receiver, str(number)))
            self.accepted = number + 1
            await asyncio.sleep(pause)


if __name__ == "__main__":
    sealbus.run(Worker(), threads=int(os.environ.get("THREADS", "1")))

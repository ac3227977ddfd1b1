"""An agent under faults. It writes its own history: a line of JSON for each event, in the file NAME in the folder NOTES.

talker.py send KIND RECEIVER: sends the numbers LIFE, LIFE + 1, LIFE + 2 … while the file `talk` is in NOTES. Each life has a
million numbers of its own, because an earlier one may go on for a while on a node that was cut off.
talker.py hear KIND: notes what arrives.

================================================  ==================================================================
["life", life]                                    a process begins
["begun", n]                                      the number is about to be sent
["accepted", n, log]                              `send` or `publish` has returned; `log`: the node that keeps the event
["unheard", n, log]                               … and nobody had subscribed: a transient event is for those who have
["refused", n, error]                             … or raised
["told", n, text]                                 a failure came back
["heard", sender, n, again, life, log, missed]    the number arrived in this life, from the log of the node `log` if the event was
                                                  kept; `missed`: so many events before it in that log are known to be gone
["saved", life]                                   the life ends by a move: it was not killed
["ended", life]                                   the process has ended in order
["silent"]                                        sends nothing more, until `talk` is there again
================================================  ==================================================================

KIND is `direct`, `sealed-direct`, `persistent`, `channel`, `sealed` or `durable`.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from sealbus import AclMessage, Agent, Message, Performative, SealbusError, run

NOTES = Path(os.environ["NOTES"])
PAUSE = 0.004
#: The numbers of a life.
LIFE = 1_000_000
CHANNELS = {"channel": "/news", "sealed": "/offers", "durable": "/history"}


class Talker(Agent):
    kind = sys.argv[2]
    life = 0

    def note(self, *event: Any) -> None:
        # One write for each line: a kill leaves no half of it behind another.
        line = json.dumps(event).encode() + b"\n"
        file = os.open(NOTES / self.aid.local_name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, line)
        os.close(file)

    async def on_message(self, message: Message) -> None:
        if message.performative == Performative.FAILURE:
            number = (message.in_reply_to or "").removeprefix("n")
            if number.isdigit():
                self.note("told", int(number), (message.content_text or "")[:1000])
        elif message.performative == Performative.INFORM and message.provenance != "platform":
            assert message.is_sealed == (self.kind == "sealed-direct")
            sender, _, number = (message.content_text or "").partition(" ")
            self.note("heard", sender, int(number), message.may_be_again, self.life, None, 0)

    async def save(self) -> bytes:
        self.note("saved", self.life)
        return b""

    async def setup(self) -> None:
        own = NOTES / self.aid.local_name
        history = own.read_text().splitlines() if own.exists() else []
        self.life = sum(json.loads(line)[0] == "life" for line in history)
        self.note("life", self.life)
        self.create_task(self.live())

    async def restore(self, state: bytes) -> None:
        # After a move this is called in place of `setup`.
        await self.setup()

    async def live(self) -> None:
        """Its work besides reading its mail."""


class Hearer(Talker):
    async def live(self) -> None:
        if self.kind not in CHANNELS:
            return
        options: dict[str, Any] = {"durable": "history", "since": 1_000_000} if self.kind == "durable" else {}
        async for event in await self.subscribe(CHANNELS[self.kind], **options):
            assert event.is_sealed == (self.kind == "sealed")
            sender, _, number = (event.text or "").partition(" ")
            self.note("heard", sender, int(number), event.may_be_again, self.life, event.log, event.missed)


class Sender(Talker):
    async def live(self) -> None:
        number = self.life * LIFE
        channel = await self.channel(CHANNELS[self.kind]) if self.kind in CHANNELS else None
        while True:
            if not (NOTES / "talk").exists():
                self.note("silent")
                while not (NOTES / "talk").exists():
                    await asyncio.sleep(0.02)
            self.note("begun", number)
            text = f"{self.aid.local_name} {number}"
            reached, log = True, None
            try:
                if channel is not None:
                    reach = await channel.publish(AclMessage(Performative.INFORM, content=text, reply_with=f"n{number}"))
                    reached = self.kind == "durable" or reach.here + reach.processes > 0
                    log = reach.kept.log if reach.kept else None
                else:
                    message = AclMessage(Performative.INFORM, sys.argv[3], text, reply_with=f"n{number}")
                    level = "sealed" if self.kind == "sealed-direct" else None
                    await self.send(message, persistent=self.kind == "persistent", level=level)
            except SealbusError as error:
                self.note("refused", number, str(error)[:300])
            else:
                self.note("accepted" if reached else "unheard", number, log)
            number += 1
            await asyncio.sleep(PAUSE)


if __name__ == "__main__":
    agent = {"send": Sender, "hear": Hearer}[sys.argv[1]]()
    run(agent)
    agent.note("ended", agent.life)

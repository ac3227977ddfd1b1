"""An agent of ``sealbus demo``: ``python -m sealbus.demo_agent sender|receiver``.

It follows the same conversation as the demo's Rust agents; the table is in ``crates/cli/src/demo/conversation.rs``.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from sealbus import AclMessage, Agent, Message, Performative, ServiceDescription, on, run


def in_json(value: Any) -> str:
    """A dataclass in the names that the demo's conversation uses."""
    return json.dumps({name.replace("_", "-"): item for name, item in asdict(value).items()})


@dataclass
class Sent:
    """The numbers of a sender."""

    sent: int = 0
    began: int = 0


class Sender(Agent):
    """Sends the requested number of timestamps to a receiver, at the requested pace."""

    async def setup(self) -> None:
        await self.df.register(ServiceDescription(self.name, "demo-sender"))

    @on(Performative.REQUEST)
    async def task(self, request: Message) -> None:
        """The demo asks for traffic."""
        task = json.loads(request.content_text or "")
        [receiver] = await self.df.search(ServiceDescription(task["service"], "demo-receiver"))
        inform = AclMessage(Performative.INFORM, receiver.name, conversation_id=task["conversation"])
        loop = asyncio.get_running_loop()
        interval = task["interval-us"] / 1e6
        begin = loop.time()
        sent = Sent(began=time.time_ns())
        for number in range(task["count"]):
            pause = begin + number * interval - loop.time()
            if pause > 0:
                await asyncio.sleep(pause)
            await self.send(inform.with_content(str(time.time_ns())))
            sent.sent += 1
        await self.reply(request, Performative.INFORM, in_json(sent))


@dataclass
class Received:
    """The numbers of a receiver in one conversation."""

    received: int = 0
    disordered: int = 0
    last: int = 0
    latencies_us: list[int] = field(default_factory=list)


class Receiver(Agent):
    """Counts the timestamps that it gets, and reports them on request."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.accounts: dict[str, Received] = {}
        self.newest: dict[str, int] = {}

    async def setup(self) -> None:
        await self.df.register(ServiceDescription(self.name, "demo-receiver"))

    @on(Performative.INFORM)
    async def timestamp(self, inform: Message) -> None:
        """A sender's message: its content is when it was sent."""
        now = time.time_ns()
        conversation = str(inform.conversation_id)
        account = self.accounts.setdefault(conversation, Received())
        account.received += 1
        account.last = now
        content = inform.content_text or ""
        if not content.isdecimal():
            account.disordered += 1
            return
        sent = int(content)
        newest = self.newest.get(conversation, 0)
        account.disordered += sent <= newest
        self.newest[conversation] = max(newest, sent)
        account.latencies_us.append(max(now - sent, 0) // 1000)

    @on(Performative.QUERY_REF)
    async def question(self, query: Message) -> None:
        """The demo asks for the counts."""
        conversation = json.loads(query.content_text or "")["conversation"]
        account = self.accounts.get(conversation, Received())
        await self.reply(query, Performative.INFORM, in_json(account))


def main() -> None:
    """Runs the agent of the role named on the command line."""
    match sys.argv[1:]:
        case ["sender"]:
            run(Sender())
        case ["receiver"]:
            run(Receiver())
        case _:
            sys.exit("usage: python -m sealbus.demo_agent sender|receiver")


if __name__ == "__main__":
    main()

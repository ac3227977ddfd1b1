"""Agents with tools of every kind, for callers from outside. The first argument is the folder where they note what
happened to them."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from sealbus import AclMessage, Agent, ChannelEvent, Failure, Message, Performative, Progress, Refuse, on, on_event, run, tool

NOTES = Path(sys.argv[1])
BACK = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"


@dataclass
class Steps:
    count: int
    pause: float = 0.0


class Clock(Agent):
    async def setup(self) -> None:
        await self.df.register(*self.tools())

    @tool
    async def slow(self, steps: Steps) -> AsyncIterator[str | Progress]:
        """Counts, and says how far it is."""
        (NOTES / "slow-begun").touch()
        try:
            for number in range(steps.count):
                await asyncio.sleep(steps.pause)
                yield Progress((number + 1) / steps.count, f"step {number + 1}")
                yield str(number)
        except (asyncio.CancelledError, GeneratorExit):
            (NOTES / "slow-cancelled").touch()
            raise

    @tool
    async def double(self, number: int) -> int:
        """Doubles a number."""
        return 2 * number

    @tool
    async def echo(self, text: str) -> str:
        """Says the same."""
        return text

    @tool
    async def refuse(self, text: str) -> str:
        """Refuses \x1b[31m\u202eeverything."""
        raise Refuse(f"not my job: {text}")


class Secretary(Agent):
    """Tells each request's sender its name, and the trace if asked for it; answers informs by a message of its own."""

    @on(Performative.REQUEST)
    async def asked(self, message: Message) -> None:
        if message.text == "the trace":
            told = json.dumps({name: str(value) for name, value in message.user_defined.items()})
            answer = message.create_reply(Performative.INFORM, told)
            await self.send(answer.replace(user_defined={"X-traceparent": BACK}))
            return
        if message.text == "for whom?":
            await self.reply(message, Performative.INFORM, " > ".join([*message.on_behalf_of, message.sender_name]))
            return
        await self.reply(message, Performative.INFORM, f"{message.sender_name} said {message.text}")

    @on(Performative.INFORM)
    async def told(self, message: Message) -> None:
        thanks = AclMessage(Performative.INFORM, message.sender, content=f"thanks for {message.text}")
        await self.send(thanks)


class Vault(Agent):
    async def setup(self) -> None:
        await self.df.register(*self.tools())

    @tool
    async def open(self, code: str) -> str:
        """Opens the vault."""
        return "gold"


class Herald(Agent):
    """Repeats the events of one channel on another, and passes requests on to the secretary."""

    @on(Performative.REQUEST)
    async def asked(self, message: Message) -> None:
        answer = await self.request(AclMessage(Performative.REQUEST, "secretary", message.text), timeout=60)
        await self.reply(message, Performative.INFORM, answer.text)

    @on_event("/orders")
    async def ordered(self, event: ChannelEvent) -> None:
        await self.publish("/news", f"{event.sender_name} ordered {event.text}")


@dataclass
class Nothing:
    """No argument is needed."""


class Kit(Agent):
    """Tools that the official kit asks for."""

    async def setup(self) -> None:
        await self.df.register(*self.tools())

    @tool(name="test_simple_text")
    async def test_simple_text(self, nothing: Nothing) -> str:
        """Says a text."""
        return "This is a simple text response for testing."

    @tool(name="test_error_handling")
    async def test_error_handling(self, nothing: Nothing) -> str:
        """Fails."""
        raise Failure("This tool intentionally returns an error for testing")

    @tool(name="test_tool_with_progress")
    async def test_tool_with_progress(self, nothing: Nothing) -> AsyncIterator[str | Progress]:
        """Says how far it is."""
        for done in (0.25, 0.5, 1):
            yield Progress(done)
            await asyncio.sleep(0.05)
        yield "done"


run(Clock("clock"), Secretary("secretary"), Vault("vault"), Herald("herald"), Kit("kit"))

"""Agents with tools and services, for A2A clients. The first argument is the folder of their notes."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from sealbus import AclMessage, Agent, Failure, Message, Performative, Progress, Refuse, ServiceDescription, on, run, tool

NOTES = Path(sys.argv[1])
BACK = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"


@dataclass
class Steps:
    count: int
    pause: float = 0.0


class Offering(Agent):
    async def setup(self) -> None:
        await self.df.register(*self.tools())


class Clock(Offering):
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
    async def double(self, number: int) -> dict[str, int]:
        """Doubles a number."""
        return {"result": 2 * number}

    @tool
    async def judge(self, text: str) -> str:
        """Refuses, fails, or says \x1b[31m\u202ethe same."""
        match text:
            case "refuse":
                raise Refuse("not my job")
            case "fail":
                raise Failure("it broke")
        return text


class Echo(Offering):
    calls = 0

    @tool
    async def echo(self, text: str) -> str:
        """Says the same, and how often it was asked."""
        self.calls += 1
        return f"{self.calls}: {text}"


class Vault(Offering):
    @tool
    async def open(self, code: str) -> str:
        """Opens the vault."""
        return "gold"


class Flood(Offering):
    @tool
    async def flood(self, text: str) -> AsyncIterator[str]:
        """Never ends."""
        while True:
            yield "x" * 100_000


class Oracle(Agent):
    """Asks back once or twice, in the conversation of the request, or tells of its trace."""

    async def setup(self) -> None:
        service = ServiceDescription("oracle", "advice", protocols=["fipa-request"])
        await self.df.register(service)

    @on(Performative.REQUEST)
    async def asked(self, message: Message) -> None:
        if message.text == "the trace":
            told = json.dumps({name: str(value) for name, value in message.user_defined.items()})
            answer = message.create_reply(Performative.INFORM, told)
            await self.send(answer.replace(user_defined={"X-traceparent": BACK}))
            return
        answers = []
        for text in ("which colour?", "and then?")[: 2 if message.text == "advise me twice" else 1]:
            question = AclMessage(Performative.QUERY_REF, message.sender, text, conversation_id=message.conversation_id)
            answer = await self.request(question)
            answers.append(str(answer.text))
        await self.reply(message, Performative.INFORM, f"you answered: {', '.join(answers)}")


run(Clock("clock"), Echo("echo"), Vault("vault"), Flood("flood"), Oracle("oracle"))

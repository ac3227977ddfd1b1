"""An agent whose tools ask neighbours in the platform's own words, and tell what they heard."""

import asyncio
from datetime import timedelta

from sealbus import AclMessage, Agent, Filter, Message, Performative, run, tool


def told(message: Message) -> dict[str, str]:
    return {
        "act": str(message.performative),
        "text": str(message.text or ""),
        "sender": message.sender_name,
        "provenance": message.provenance,
        "neighbour": str(message.user_defined.get("X-Sealbus-Neighbour", "")),
    }


class Customer(Agent):
    async def setup(self) -> None:
        await self.df.register(*self.tools())

    @tool
    async def request_of(self, wish: list[str]) -> dict[str, str]:
        """Asks a neighbour as any agent is asked. A question is answered with blue."""
        neighbour, text, *rest = wish
        deadline = timedelta(seconds=int(rest[0])) if rest else None
        message = AclMessage(Performative.REQUEST, neighbour, text, reply_by=deadline)
        reply = await self.request(message, timeout=100)
        if reply.performative == Performative.QUERY_REF:
            last = Filter(performative=Performative.INFORM, conversation_id=reply.conversation_id)
            waiting = asyncio.ensure_future(self.receive(last, timeout=100))
            await asyncio.sleep(0)
            await self.reply(reply, Performative.INFORM, "blue")
            reply = await waiting
        return told(reply)

    @tool
    async def parts_of(self, wish: list[str]) -> list[str]:
        """Takes the parts of an answer as they come."""
        neighbour, text = wish
        async with self.ask(neighbour, text, stream=str) as answer:
            return [part async for part in answer]

    @tool
    async def order_of(self, wish: list[str]) -> list[str]:
        """Calls for a proposal, and accepts it with these words."""
        neighbour, text, order = wish
        async with self.contract_net(text, to=[neighbour], timeout=100) as net:
            if not net.proposals:
                return [str(message.performative) for message in net.refused]
            (offer,) = net.proposals
            done = await offer.accept(order, timeout=100)
            return [str(offer.body), str(done.body)]


run(Customer("customer"))

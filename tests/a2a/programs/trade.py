"""Agents that trade: a seller that answers every act and tells what it heard, a buyer that asks a neighbour, a clerk that asks others
for its askers, and a keeper that tells on whose behalf it is asked."""

import json
import sys
from collections.abc import AsyncIterator

from sealbus import AclMessage, Agent, Message, Performative, SendError, ServiceDescription, on, run, tool


def heard(message: Message) -> dict[str, object]:
    """The facts that a message tells about itself."""
    texts = ("protocol", "ontology", "language", "conversation_id", "reply_with", "in_reply_to")
    told: dict[str, object] = {name: None if (it := getattr(message, name)) is None else str(it) for name in texts}
    told |= {"act": str(message.performative), "sender": message.sender_name, "chain": list(message.on_behalf_of)}
    told["provenance"] = str(message.user_defined.get("X-A2A-Provenance"))
    told["content"] = message.content.hex() if isinstance(message.content, bytes) else message.content
    told["parameters"] = {name: str(value) for name, value in message.user_defined.items() if not name.startswith("X-A2A-")}
    return told


class Seller(Agent):
    async def setup(self) -> None:
        await self.df.register(ServiceDescription("seller", "trade", protocols=["fipa-request"]), *self.tools())

    @tool
    async def count(self, to: int) -> AsyncIterator[str]:
        """Counts."""
        for number in range(to):
            yield str(number)

    @on(Performative.CFP)
    async def bid(self, call: Message) -> None:
        offer = call.create_reply(Performative.PROPOSE, json.dumps(heard(call)))
        await self.send(offer.replace(reply_with="offer-1", user_defined={"X-colour": "green"}))

    @on(Performative.ACCEPT_PROPOSAL)
    async def deliver(self, order: Message) -> None:
        await self.reply(order, Performative.INFORM, json.dumps(heard(order)))

    @on(Performative.QUERY_REF)
    async def tell(self, question: Message) -> None:
        await self.reply(question, Performative.INFORM, json.dumps(heard(question)))

    @on(Performative.QUERY_IF)
    async def decline(self, question: Message) -> None:
        await self.reply(question, Performative.REFUSE, "that is a secret")


class Buyer(Agent):
    async def setup(self) -> None:
        await self.df.register(*self.tools())

    @tool
    async def order(self, seller: str) -> list[dict[str, object]]:
        """Buys by a contract net, message by message, and tells what it heard."""
        call = AclMessage(
            Performative.CFP, seller, b"\x00\xfftea", protocol="fipa-contract-net", ontology="trade",
            conversation_id="sale-7", reply_with="call-1", user_defined={"X-colour": "red"},
        )  # fmt: skip
        offer = await self.request(call, timeout=100)
        accept = AclMessage(
            Performative.ACCEPT_PROPOSAL, seller, "two boxes", protocol="fipa-contract-net",
            conversation_id="sale-7", reply_with="order-1", in_reply_to=str(offer.reply_with),
        )  # fmt: skip
        done = await self.request(accept, timeout=100)
        return [heard(offer), heard(done)]

    @tool
    async def question(self, wish: list[str]) -> dict[str, object]:
        """Asks by this act, and tells the answer."""
        act, seller, text = wish
        return heard(await self.request(AclMessage(act, seller, text, conversation_id=f"question-{act}"), timeout=100))

    @tool
    async def counted(self, seller: str) -> list[str]:
        """Takes the parts of a tool's answer."""
        async with self.ask(seller, 3, tool="count", stream=str) as answer:
            return [part async for part in answer]


class Clerk(Agent):
    async def setup(self) -> None:
        await self.df.register(*self.tools())

    @tool
    async def fetch(self, text: str) -> str:
        """Asks the keeper."""
        try:
            return str((await self.request(AclMessage(Performative.REQUEST, "keeper", text), timeout=100)).text)
        except SendError as refused:
            return str(refused)


class Keeper(Agent):
    @on(Performative.REQUEST)
    async def keep(self, request: Message) -> None:
        await self.reply(request, Performative.INFORM, " > ".join([*request.on_behalf_of, request.sender_name]))


AGENTS = {"seller": Seller, "buyer": Buyer, "clerk": Clerk, "keeper": Keeper}
run(*(AGENTS[name](name) for name in sys.argv[1:]))

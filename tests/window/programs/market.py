"""A market to look at: sellers bid for what buyers call for, prices go over a channel, and a thief is refused."""

import asyncio
import sys
from dataclasses import dataclass

from sealbus import AclMessage, Agent, Message, Order, Performative, Refuse, every, on_contract_net, run


@dataclass
class Wish:
    book: str


@dataclass
class Offer:
    euros: float


class Seller(Agent):
    @on_contract_net(Wish)
    async def bid(self, wish: Message[Wish]) -> Offer:
        if self.name.startswith("seller-3"):
            raise Refuse("sold out")
        await self.publish("/prices/books", "12")
        return Offer(12.0)

    @bid.perform
    async def sell(self, order: Order[Offer]) -> str:
        return "sent by mail"


class Buyer(Agent):
    @every(1.5)
    async def buy(self) -> None:
        sellers = [f"seller-{number}" for number in (1, 2, 3)]
        async with self.contract_net(Wish("Emma"), to=sellers, reply=Offer, timeout=20) as net:
            await net.proposals[0].accept(timeout=20)


class Thief(Agent):
    @every(2.0)
    async def steal(self) -> None:
        await self.send(AclMessage(Performative.REQUEST, "seller-1", "the till"))


class Reader(Agent):
    async def setup(self) -> None:
        self.reading = asyncio.create_task(self.read())

    async def read(self) -> None:
        async with await self.subscribe("/prices/**") as prices:
            async for _ in prices:
                pass


if __name__ == "__main__":
    run({"seller": Seller, "buyer": Buyer, "thief": Thief, "reader": Reader}[sys.argv[1]]())

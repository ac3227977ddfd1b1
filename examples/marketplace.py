"""Sellers register their goods with the directory facilitator; a buyer finds them, asks for offers and takes the
cheapest. Nobody knows anybody's name beforehand.

Run it with `python examples/marketplace.py`.
"""

from sealbus import (
    AID,
    AclMessage,
    Agent,
    Filter,
    Message,
    Performative,
    Refuse,
    ServiceDescription,
    new_conversation_id,
    on,
    run,
)


class Seller(Agent):
    books = ("Middlemarch", "Emma")

    def __init__(self, name: str, price: int) -> None:
        super().__init__(name)
        self.price = price

    async def setup(self) -> None:
        await self.df.register(ServiceDescription("books by mail", "bookshop"))

    @on(Performative.CFP)
    async def offer(self, call: Message) -> None:
        if call.text not in self.books:
            raise Refuse(f"{call.text} is not in stock")
        await self.reply(call, Performative.PROPOSE, str(self.price))

    @on(Performative.ACCEPT_PROPOSAL)
    async def sell(self, order: Message) -> None:
        print(f"{self.name} sold {order.text!r} for {self.price}")
        await self.reply(order, Performative.INFORM, "done")

    async def teardown(self) -> None:
        await self.df.deregister()


class Buyer(Agent):
    async def setup(self) -> None:
        # Sellers may be a little later than the buyer: the directory tells when they come.
        shops = await self.df.subscribe("bookshop")
        sellers: set[AID] = set()
        while len(sellers) < 3:
            for entry in await shops.next():
                if entry.name and entry.services:
                    sellers.add(entry.name)
        await shops.cancel()

        sale = new_conversation_id()
        for seller in sellers:
            await self.send(
                AclMessage(Performative.CFP, seller, "Middlemarch", conversation_id=sale)
            )

        # Some answer may be a refusal.
        answers = [await self.receive(Filter(conversation_id=sale), timeout=5) for _ in sellers]
        offers = [answer for answer in answers if answer.performative is Performative.PROPOSE]
        for offer in offers:
            print(f"{offer.sender_name} offers {offer.text}")
        best = min(offers, key=lambda offer: int(offer.text))
        order = best.create_reply(Performative.ACCEPT_PROPOSAL, "Middlemarch")
        await self.request(order, timeout=5)
        self.stop_all()


if __name__ == "__main__":
    run(Seller("seller-1", 12), Seller("seller-2", 9), Seller("seller-3", 15), Buyer("buyer"))

"""A bookshop: the buyer finds a seller in the directory, asks it for a price, and prints the offer."""

from sealbus import AclMessage, Agent, Message, Performative, ServiceDescription, on, run


class Seller(Agent):
    async def setup(self) -> None:
        await self.df.register(ServiceDescription("books by mail", "bookshop"))

    @on(Performative.CFP)
    async def offer(self, call: Message) -> None:
        await self.reply(call, Performative.PROPOSE, f"{call.text} for 12 euros")


class Buyer(Agent):
    async def setup(self) -> None:
        async for shops in await self.df.subscribe("bookshop"):
            call = AclMessage(Performative.CFP, shops[0].name, "Middlemarch")
            offer = await self.request(call, timeout=60)
            print(f"{offer.sender_name} offers {offer.text}")
            self.stop_all()


if __name__ == "__main__":
    run(Seller("seller"), Buyer("buyer"))

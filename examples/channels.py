"""Shops publish offers on channels and answer questions; a buyer hears the cheap offers, and asks everyone. Nobody
knows anybody's name.

Run it with `python examples/channels.py`.
"""

from sealbus import AclMessage, Agent, ChannelEvent, Performative, on_event, on_question, run


class Shop(Agent):
    def __init__(self, name: str, price: float) -> None:
        super().__init__(name)
        self.price = price

    @on_event("/opening")
    async def open(self, event: ChannelEvent) -> None:
        price = {"price": self.price}
        await self.publish("/offers/tea", "a pound of tea", properties=price, qos="expiry=1h")

    @on_question("/wanted/*")
    async def wanted(self, question: ChannelEvent) -> None:
        # The dearest shop is too proud to answer: the buyer learns that at once.
        if self.price < 10:
            await self.reply(question, Performative.PROPOSE, f"{self.price} EUR")


class Buyer(Agent):
    async def setup(self) -> None:
        # The shops evaluate the filter, so dear offers are not even sent.
        async with await self.subscribe("/offers/**", filter="properties.price < 10") as offers:
            await self.publish("/opening", "the market is open")
            for _ in range(2):
                offer = await offers.next()
                print(f"{offer.sender_name} on {offer.channel}: {offer.text}")

        wanted = await self.channel("/wanted/tea")
        replies = wanted.request(AclMessage(Performative.CFP, content="10 pounds"), timeout=5)
        async for reply in replies:
            print(f"{reply.sender_name} proposes {reply.text}")
        print("no answer from", ", ".join(replies.missing))
        self.stop_all()


if __name__ == "__main__":
    run(Shop("shop-1", 7.5), Shop("shop-2", 9), Shop("shop-3", 12), Buyer("buyer"))

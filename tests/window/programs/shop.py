"""Two agents that talk all the time, in one program: the platform lives in it. It prints each answer."""

import sys

from sealbus import AclMessage, Agent, Message, Performative, every, on, run


class Buyer(Agent):
    @every(0.1)
    async def ask(self) -> None:
        await self.send(AclMessage(Performative.REQUEST, "seller", "a price"))

    @on(Performative.INFORM)
    async def hear(self, answer: Message) -> None:
        print(answer.text, flush=True)


class Seller(Agent):
    @on(Performative.REQUEST)
    async def answer(self, message: Message) -> None:
        await self.reply(message, Performative.INFORM, "12 EUR")


if __name__ == "__main__":
    run(Buyer("buyer"), Seller("seller"), name="shop", window="--window" in sys.argv)

"""A contract net: the owner of a fence asks three painters for offers, and the best one gets the work."""

from dataclasses import dataclass

from sealbus import AID, Agent, Message, Order, Refuse, ServiceDescription, on_contract_net, run


@dataclass
class Task:
    metres: int


@dataclass
class Offer:
    euros: float


class Painter(Agent):
    async def setup(self) -> None:
        await self.df.register(ServiceDescription(self.name, "painting"))

    @on_contract_net(Task)
    async def bid(self, call: Message[Task]) -> Offer:
        number = int(self.name.rsplit("-", 1)[1])
        if call.body.metres > 100 * number:
            raise Refuse("too long a fence")
        return Offer(call.body.metres * (4.0 + number))

    @bid.perform
    async def paint(self, order: Order[Offer]) -> str:
        return f"{self.name} has painted it for {order.offer.euros:g} euros"


class Owner(Agent):
    async def setup(self) -> None:
        # Painters may be a little later than the owner: the directory tells when they come.
        painters: set[AID] = set()
        async for entries in await self.df.subscribe("painting"):
            painters |= {entry.name for entry in entries if entry.name}
            if len(painters) == 3:
                break
        async with self.contract_net(Task(metres=120), to=painters, reply=Offer, timeout=60) as fence:
            best = min(fence.proposals, key=lambda offer: offer.body.euros)
            done = await best.accept(timeout=60)
        print(done.text)
        self.stop_all()


if __name__ == "__main__":
    run(Owner("owner"), *(Painter(f"painter-{number}") for number in (1, 2, 3)))

"""A supply chain: a factory haggles with suppliers over three rounds, and each supplier buys its steel in the same way.

Run it with `python examples/supply_chain.py`.
"""

from dataclasses import dataclass

from sealbus import Agent, Message, Order, Proposal, on_iterated_contract_net, run


@dataclass
class Wanted:
    pieces: int
    target: float


@dataclass
class Offer:
    euros: float


def price(proposal: Proposal[Offer]) -> float:
    return proposal.body.euros


class Mill(Agent):
    """Sells steel, each round a little cheaper, but never below its costs."""

    def __init__(self, name: str, asks: float, costs: float) -> None:
        super().__init__(name)
        self.asks = asks
        self.costs = costs

    @on_iterated_contract_net(Wanted)
    async def bid(self, call: Message[Wanted]) -> Offer:
        each = max(self.costs, min(self.asks, call.body.target * 1.1))
        return Offer(each * call.body.pieces)

    @bid.perform
    async def deliver(self, order: Order[Offer]) -> str:
        return f"steel of {self.name}"


class Supplier(Agent):
    """Makes parts. Before it promises a price, it asks the mills for theirs."""

    def __init__(self, name: str, margin: float) -> None:
        super().__init__(name)
        self.margin = margin

    @on_iterated_contract_net(Wanted)
    async def bid(self, call: Message[Wanted]) -> Offer:
        wanted = Wanted(call.body.pieces, call.body.target / 2)
        async with self.iterated_contract_net(wanted, to=["mill-1", "mill-2"], reply=Offer, timeout=5) as steel:
            return Offer(min(map(price, steel.proposals)) * self.margin)

    @bid.perform
    async def make(self, order: Order[Offer]) -> str:
        wanted = Wanted(100, 1)
        async with self.iterated_contract_net(wanted, to=["mill-1", "mill-2"], reply=Offer, timeout=5) as steel:
            bought = await min(steel.proposals, key=price).accept(timeout=60)
        return f"parts of {self.name}, made of {bought.text}"


class Factory(Agent):
    async def setup(self) -> None:
        suppliers, target = ["north", "south", "west"], 8.0
        async with self.iterated_contract_net(Wanted(100, target), to=suppliers, reply=Offer, timeout=10) as parts:
            for _ in range(2):
                best = sorted(parts.proposals, key=price)[:2]
                print("offers:", ", ".join(f"{it.agent.local_name} {price(it):g}" for it in best))
                target *= 0.8
                await parts.call_again(Wanted(100, target), best)
            winner = min(parts.proposals, key=price)
            done = await winner.accept(timeout=60)
            print(f"bought for {price(winner):g}: {done.text}")
        self.stop_all()


if __name__ == "__main__":
    suppliers = [Supplier("north", 1.5), Supplier("south", 1.4), Supplier("west", 1.6)]
    run(Factory("factory"), *suppliers, Mill("mill-1", 4, 2.5), Mill("mill-2", 3.8, 3))

"""Twenty painters bid for a fence; the best offer gets the work, the others are told, and nobody waits for a slow one.

Run it with `python examples/contract_net.py`.
"""

import asyncio
from dataclasses import dataclass

from sealbus import Agent, Message, Order, Refuse, on_contract_net, run


@dataclass
class Task:
    metres: int


@dataclass
class Offer:
    euros: float


class Painter(Agent):
    def __init__(self, number: int) -> None:
        super().__init__(f"painter-{number}")
        self.number = number

    @on_contract_net(Task)
    async def bid(self, call: Message[Task]) -> Offer:
        if self.number % 7 == 0:
            raise Refuse("fully booked")
        if self.number == 20:
            await asyncio.sleep(3600)
        return Offer(call.body.metres * (5 + self.number * 13 % 20))

    @bid.perform
    async def paint(self, order: Order[Offer]) -> str:
        return f"{self.name} has painted it for {order.offer.euros:g} euros"


class Owner(Agent):
    async def setup(self) -> None:
        painters = [f"painter-{number}" for number in range(1, 21)]
        async with self.contract_net(Task(metres=12), to=painters, reply=Offer, timeout=10) as fence:
            print(f"{len(fence.proposals)} offers, {len(fence.refused)} refusals, silent: {fence.silent}")
            best = min(fence.proposals, key=lambda offer: offer.body.euros)
            done = await best.accept(timeout=60)
        print(done.text)
        self.stop_all()


if __name__ == "__main__":
    run(Owner("owner"), *(Painter(number) for number in range(1, 21)))

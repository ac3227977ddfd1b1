"""A Dutch auction: the price falls until somebody buys, until the tulips are sold.

Run it with `python examples/dutch_auction.py`.
"""

from sealbus import Agent, Bid, Order, on_dutch_auction, run


class Florist(Agent):
    def __init__(self, name: str, limit: int, wants: int) -> None:
        super().__init__(name)
        self.limit = limit
        self.wants = wants

    @on_dutch_auction(int)
    async def bid(self, bid: Bid[int]) -> bool:
        return self.wants > 0 and bid.price <= self.limit

    @bid.perform
    async def bought(self, order: Order[bool]) -> None:
        self.wants -= 1


class Grower(Agent):
    async def setup(self) -> None:
        crates, price = 4, 30
        async with self.dutch_auction("tulips", to=["flora", "rosa", "viola"], timeout=0.5) as auction:
            while crates and price > 10:
                if sale := await auction.call(price):
                    print(f"{sale.agent.local_name} buys a crate for {price}")
                    crates -= 1
                else:
                    price -= 5
        print(f"{crates} crates are left")
        self.stop_all()


if __name__ == "__main__":
    run(Grower("grower"), Florist("flora", 25, 1), Florist("rosa", 20, 2), Florist("viola", 12, 5))

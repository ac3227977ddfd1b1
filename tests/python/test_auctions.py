"""Auctions in which bidders lead, are silent, leave, or have no room."""

import asyncio
from typing import Any

import pytest

from sealbus import (
    AclMessage,
    Agent,
    Bid,
    ConversationError,
    Message,
    Order,
    on,
    on_contract_net,
    on_dutch_auction,
    on_english_auction,
)
from sealbus.testing import TestBed


class Stuck(Agent):
    """Does not read its mailbox."""

    async def on_message(self, message: Message) -> None:
        await asyncio.Future()

    async def fill(self) -> None:
        large = AclMessage("inform", self.aid, bytes(100_000))
        # Its hook takes the first one.
        for _ in range(2):
            while self._living.handle.try_send(large) is None:
                pass
            await self.clock.sleep(0.01)


class Collector(Stuck):
    """Bids up to a limit, a moment after others."""

    def __init__(self, name: str, limit: int, room: bool = True) -> None:
        super().__init__(name)
        self.limit = limit
        self.room = room
        self.asked: list[int] = []
        self.bought: list[int] = []

    async def decide(self, price: int) -> bool:
        self.asked.append(price)
        if not self.room:
            await self.fill()
        await self.clock.sleep(0.1)
        return price <= self.limit

    @on_english_auction(int)
    async def bid(self, bid: Bid[int]) -> bool:
        return await self.decide(bid.price)

    @bid.perform
    async def pay(self, order: Order[Any]) -> str:
        return f"{self.name} pays {order.call.body}"

    @on_dutch_auction(int)
    async def buy(self, bid: Bid[int]) -> bool:
        return await self.decide(bid.price)

    @buy.perform
    async def fetch(self, order: Order[Any]) -> None:
        await self.clock.sleep(10)
        self.bought.append(order.call.body)


class Silent(Agent):
    async def on_message(self, message: Message) -> None:
        pass


class Hasty(Silent):
    """Bids at once, and leaves."""

    @on("cfp")
    async def bid(self, call: Message) -> None:
        await self.reply(call, "propose", "mine")
        await self.reply(call, "not-understood", "never mind")


class Fickle(Silent):
    """Leaves when it leads."""

    @on("cfp")
    async def bid(self, call: Message) -> None:
        await self.reply(call, "propose", "mine")

    @on("accept-proposal")
    async def lead(self, message: Message) -> None:
        await self.reply(message, "not-understood", "never mind")


async def test_a_leader_is_not_asked_in_silent_rounds_and_buys(testbed: TestBed) -> None:
    anna, _ = await testbed.start(Collector("anna", 100)), await testbed.start(Collector("ben", 15))
    house = await testbed.probe("house")

    async def hold() -> str:
        async with house.english_auction("a vase", to=["anna", "ben"], timeout=1) as auction:
            while await auction.call(20):
                pass
            for price in (30, 40, 50):
                assert await auction.call(price) is None
            return (await auction.sell(timeout=60)).text

    assert await testbed.clock.run(hold(), limit=30) == "anna pays 20"
    assert anna.asked == [20]


async def test_a_leader_alone_is_not_asked_either(testbed: TestBed) -> None:
    anna = await testbed.start(Collector("anna", 100))
    house = await testbed.probe("house")

    async def hold() -> str:
        async with house.english_auction("a vase", to="anna", timeout=1) as auction:
            assert await auction.call(20)
            for price in (30, 40, 50):
                assert await auction.call(price) is None
                await house.clock.sleep(1)
            return (await auction.sell(timeout=60)).text

    assert await testbed.clock.run(hold(), limit=30) == "anna pays 20"
    assert anna.asked == [20]


@pytest.mark.parametrize("kind", ["english_auction", "dutch_auction"])
async def test_a_bidder_that_has_left_does_not_win(testbed: TestBed, kind: str) -> None:
    await testbed.start(Collector("anna", 100))
    await testbed.start(Hasty("hasty"))
    house = await testbed.probe("house")

    async def hold() -> str:
        async with getattr(house, kind)("a vase", to=["anna", "hasty"], timeout=1) as auction:
            best = await auction.call(20)
            return str(best.agent.local_name)

    assert await testbed.clock.run(hold(), limit=30) == "anna"


async def test_a_leader_that_has_left_is_told_of(testbed: TestBed) -> None:
    await testbed.start(Fickle("fickle"))
    house = await testbed.probe("house")

    async def hold() -> None:
        async with house.english_auction("a vase", to="fickle", timeout=1) as auction:
            assert await auction.call(20)
            await house.clock.sleep(1)
            await auction.sell(timeout=60)

    with pytest.raises(ConversationError, match="never mind") as raised:
        await testbed.clock.run(hold(), limit=30)
    assert raised.value.outcome == "not-understood"


async def test_a_proposal_of_an_agent_that_has_left_is_told_of(testbed: TestBed) -> None:
    await testbed.start(Hasty("hasty"))
    house = await testbed.probe("house")

    async def buy() -> None:
        async with house.contract_net("x", to="hasty", timeout=1) as net:
            await house.clock.sleep(1)
            await net.proposals[0].accept(timeout=60)

    with pytest.raises(ConversationError, match="never mind") as raised:
        await testbed.clock.run(buy(), limit=30)
    assert raised.value.outcome == "not-understood"


@pytest.mark.parametrize("kind", ["english_auction", "dutch_auction"])
async def test_a_bidder_without_room_holds_no_auction_up(testbed: TestBed, kind: str) -> None:
    for name in ("anna", "zoe"):
        await testbed.start(Collector(name, 100))
    await testbed.start(Collector("mallory", 100, room=False))
    house = await testbed.probe("house")

    async def hold() -> None:
        async with getattr(house, kind)("a vase", to=["anna", "mallory", "zoe"], timeout=1) as auction:
            assert await auction.call(20)
            assert await auction.call(30)

    await testbed.clock.run(hold(), limit=3)


@pytest.mark.parametrize("pause", [0.0, 1.0])
async def test_the_end_of_an_auction_does_not_undo_a_purchase(testbed: TestBed, pause: float) -> None:
    anna = await testbed.start(Collector("anna", 100))
    house = await testbed.probe("house")

    async def hold() -> None:
        async with house.dutch_auction("tulips", to="anna", timeout=1) as auction:
            assert await auction.call(20)
            await house.clock.sleep(pause)

    await testbed.clock.run(hold(), limit=3)
    await testbed.clock.advance(20)
    assert anna.bought == [20]


async def test_an_order_for_a_bidder_without_room_ends_with_its_time(testbed: TestBed) -> None:
    class Bidder(Stuck):
        @on_contract_net()
        async def bid(self, call: Message) -> str:
            return "mine"

    bidder = await testbed.start(Bidder("mallory"))
    house = await testbed.probe("house")

    async def buy() -> None:
        async with house.contract_net("x", to="mallory", timeout=1) as net:
            await bidder.fill()
            await net.proposals[0].accept(timeout=5)

    with pytest.raises(TimeoutError, match="did not answer in time"):
        await testbed.clock.run(buy(), limit=10)

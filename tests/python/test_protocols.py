"""Every protocol of FIPA between agents, both roles: the usual course, refusals, failures, silence, and early ends.

Contract nets have a file of their own.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sealbus import (
    AclMessage,
    Agent,
    Bid,
    ConversationError,
    ConversationTimeout,
    Failure,
    Message,
    Order,
    Platform,
    ProtocolError,
    Proxy,
    Refuse,
    ServiceDescription,
    on,
    on_brokering,
    on_dutch_auction,
    on_english_auction,
    on_propose,
    on_query,
    on_recruiting,
    on_request,
    on_request_when,
    on_subscribe,
)
from sealbus.testing import TestBed


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    async with Platform() as platform:
        yield platform


class Witness(Agent):
    """Notes what no conversation takes."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.stray: list[Message] = []

    async def on_message(self, message: Message) -> None:
        self.stray.append(message)


async def settled(condition: Any) -> None:
    """Waits until something is so."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


# ----- request, query, propose


class Clerk(Agent):
    open = False

    @on_request()
    async def serve(self, request: Message) -> str | None:
        match request.text:
            case "refuse":
                raise Refuse("closed")
            case "fail":
                raise Failure("broken")
            case "crash":
                raise RuntimeError("4711")
            case "slow":
                await asyncio.sleep(3600)
            case "nothing":
                return None
        return request.text.upper()

    @on_query(int)
    async def double(self, query: Message[int]) -> int:
        return query.body * 2

    @on_request_when()
    async def when(self, request: Message) -> str:
        while not self.open:
            await asyncio.sleep(0.01)
        return "open"

    @on_propose()
    async def judge(self, proposal: Message) -> bool:
        return proposal.text == "good"


async def test_requests_and_queries(platform: Platform) -> None:
    clerk, guest = await platform.start(Clerk("clerk")), await platform.start(Witness("guest"))
    assert (await guest.request_action("tea", to="clerk", timeout=60)).text == "TEA"
    assert (await guest.request_action("nothing", to="clerk", timeout=60)).content is None
    for word, outcome, says in [("refuse", "refused", "closed"), ("fail", "failed", "broken")]:
        with pytest.raises(ConversationError, match=says) as raised:
            await guest.request_action(word, to="clerk", timeout=60)
        assert raised.value.outcome == outcome and raised.value.message is not None
    with pytest.raises(ConversationError, match="its log says why"):
        await guest.request_action("crash", to="clerk", timeout=60)
    with pytest.raises(ConversationTimeout):
        await guest.request_action("slow", to="clerk", timeout=0.2)
    with pytest.raises(ConversationError) as lost:
        await guest.request_action("tea", to="nobody", timeout=60)
    assert lost.value.outcome == "undeliverable"
    assert (await guest.query_ref(21, to="clerk", reply=int, timeout=60)).body == 42
    assert (await guest.query_if(1, to="clerk", reply=int, timeout=60)).body == 2
    with pytest.raises(ConversationError) as misfit:
        await guest.query_ref("x", to="clerk", timeout=60)
    assert misfit.value.outcome == "not-understood"
    async with guest.request_action("tea", to=["clerk", "nobody"], timeout=60) as request:
        assert [message.text for message in await request.all()] == ["TEA"]
        assert len(request.undelivered) == 1
    async with guest.request_when("the door is open", to="clerk", timeout=60) as waiting:
        await settled(lambda: waiting.agreed)
        assert not waiting.results
        clerk.open = True
        assert (await waiting.result()).text == "open"
    assert not guest.stray


async def test_a_request_is_decided_on_and_then_done(platform: Platform) -> None:
    class Worker(Agent):
        @on_request()
        async def decide(self, request: Message) -> None:
            if request.text == "no":
                raise Refuse("no")

        @decide.perform
        async def work(self, request: Message) -> str:
            return f"did {request.text}"

    await platform.start(Worker("worker"))
    boss = await platform.start(Agent("boss"))
    async with boss.request_action("it", to="worker", timeout=60) as request:
        assert (await request.result()).text == "did it"
        assert [agent.local_name for agent in request.agreed] == ["worker"]
    with pytest.raises(ConversationError, match="no"):
        await boss.request_action("no", to="worker", timeout=60)


async def test_proposals_are_accepted_and_rejected(platform: Platform) -> None:
    await platform.start(Clerk("clerk"))
    guest = await platform.start(Agent("guest"))
    assert await guest.propose("good", to="clerk", timeout=60)
    assert not await guest.propose("bad", to="clerk", timeout=60)
    with pytest.raises(ConversationError):
        await guest.propose("good", to="nobody", timeout=60)
    async with guest.propose("good", to=["clerk", "nobody"], timeout=60) as offer:
        assert len(offer.accepted) == 1 and not offer.rejected and len(offer.undelivered) == 1


# ----- subscribe


class Sensor(Agent):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.closed = 0

    @on_subscribe()
    async def values(self, subscription: Message) -> AsyncIterator[int]:
        most = 10**9 if subscription.text == "all" else int(subscription.text)
        if most < 0:
            raise Refuse("no")
        try:
            for number in range(most):
                yield number
                await asyncio.sleep(0)
        finally:
            self.closed += 1


async def test_subscriptions_begin_end_and_are_left(platform: Platform) -> None:
    sensor, reader = await platform.start(Sensor("sensor")), await platform.start(Agent("reader"))
    heard = []
    with pytest.raises(ConversationError, match="nothing more to tell"):
        async with reader.subscribe_to("3", to="sensor", reply=int, timeout=60) as news:
            async for message in news:
                heard.append(message.body)
    assert heard == [0, 1, 2]
    with pytest.raises(ConversationError) as refused:
        async with reader.subscribe_to("-1", to="sensor", timeout=60):
            pass
    assert refused.value.outcome == "refused"
    async with reader.subscribe_to("all", to="sensor", reply=int, timeout=60) as news:
        heard = []
        async for message in news:
            heard.append(message.body)
            if len(heard) == 500:
                break
    assert heard == list(range(500))
    await settled(lambda: sensor.closed == 2)
    async with reader.subscribe_to("all", to="sensor", timeout=60) as news:
        await news.cancel()
    await settled(lambda: sensor.closed == 3)


# ----- auctions


class Collector(Agent):
    def __init__(self, name: str, limit: int) -> None:
        super().__init__(name)
        self.limit = limit
        self.bought: list[int] = []

    @on_english_auction(int)
    async def bid(self, bid: Bid[int]) -> bool:
        assert bid.auction.text == "a vase"
        return bid.price <= self.limit

    @bid.perform
    async def pay(self, order: Order[Any]) -> str:
        self.bought.append(order.call.body)
        return f"{self.name} pays"

    @on_dutch_auction(int)
    async def buy(self, bid: Bid[int]) -> bool:
        return bid.price <= self.limit

    @buy.perform
    async def note(self, order: Order[Any]) -> None:
        self.bought.append(order.call.body)


async def test_an_english_auction_ends_with_the_highest_bid(testbed: TestBed) -> None:
    collectors = [await testbed.start(Collector(f"collector-{limit}", limit)) for limit in (20, 45, 30)]
    seller = await testbed.start(Witness("seller"))
    names = [collector.aid for collector in collectors]

    async def hold() -> None:
        async with seller.english_auction("a vase", to=names, timeout=1) as auction:
            price = 10
            while await auction.call(price):
                price += 10
            # It depends on who was first at the lower prices.
            assert price in (40, 50) and auction.leader is not None
            deal = await auction.sell(timeout=60)
            assert deal.text == "collector-45 pays"
        assert collectors[1].bought == [price - 10]
        async with seller.english_auction("a vase", to=names, timeout=1) as auction:
            assert await auction.call(100) is None
            with pytest.raises(ProtocolError, match="nobody has bid"):
                await auction.sell()

    await testbed.clock.run(hold())
    assert not seller.stray


async def test_a_dutch_auction_sells_to_the_first_bid(testbed: TestBed) -> None:
    collectors = [await testbed.start(Collector(f"collector-{limit}", limit)) for limit in (20, 45, 30)]
    seller = await testbed.start(Witness("seller"))
    sold: list[tuple[str, int]] = []

    async def hold() -> None:
        async with seller.dutch_auction("tulips", to=[it.aid for it in collectors], timeout=1) as auction:
            for price in (50, 40, 35):
                if sale := await auction.call(price):
                    sold.append((sale.agent.local_name, price))

    await testbed.clock.run(hold())
    assert sold == [("collector-45", 40), ("collector-45", 35)]
    await testbed.clock.settle()
    assert collectors[1].bought == [40, 35]
    assert not seller.stray


# ----- brokering and recruiting


class Broker(Agent):
    @on_brokering()
    async def find(self, proxy: Proxy) -> ServiceDescription:
        if proxy.service == "forbidden":
            raise Refuse("not here")
        return proxy.wanted

    @on_recruiting()
    async def hire(self, proxy: Proxy) -> ServiceDescription:
        return proxy.wanted


class Weather(Agent):
    async def setup(self) -> None:
        await self.df.register(ServiceDescription("weather", "weather"))

    @on_query()
    async def tell(self, query: Message) -> str:
        return f"{self.name}: {query.text} is fine"


async def test_a_broker_passes_answers_on_and_a_recruiter_brings_people_together(platform: Platform) -> None:
    await platform.start(Broker("finder"))
    for number in range(3):
        await platform.start(Weather(f"weather-{number}"))
    guest = await platform.start(Witness("guest"))
    async with asyncio.timeout(60):
        while len(await guest.df.search("weather")) < 3:
            await asyncio.sleep(0.01)
    question = AclMessage("query-ref", content="tomorrow", protocol="fipa-query")
    expected = {f"weather-{number}: tomorrow is fine" for number in range(3)}
    async with guest.broker(question, service="weather", to="finder", most=3, timeout=60) as answers:
        assert {message.text async for message in answers} == expected
    async with guest.recruit(question, service="weather", to="finder", most=3, timeout=60) as answers:
        senders = {message.sender_name.partition("@")[0] async for message in answers}
        assert senders == {"weather-0", "weather-1", "weather-2"}
    for service, outcome in [("forbidden", "refused"), ("plumber", "failed")]:
        with pytest.raises(ConversationError) as raised:
            async with guest.broker(question, service=service, to="finder", timeout=60) as answers:
                async for _ in answers:
                    pass
        assert raised.value.outcome == outcome
    assert not guest.stray


# ----- what ended conversations leave


async def test_nothing_is_left_of_ended_conversations(platform: Platform) -> None:
    await platform.start(Clerk("clerk"))
    guest = await platform.start(Witness("guest"))
    await asyncio.gather(*(guest.request_action(f"{number}", to="clerk", timeout=60) for number in range(200)))
    for life in platform._lives.values():
        await settled(lambda: not life.mailbox._waiters and not life.mailbox._owners)


async def test_a_late_answer_is_dropped_and_counted(platform: Platform) -> None:
    is_late = asyncio.Event()

    class Late(Agent):
        @on("request")
        async def serve(self, request: Message) -> None:
            await is_late.wait()
            await self.reply(request, "inform", "late")

    await platform.start(Late("late"))
    guest = await platform.start(Witness("guest"))
    with pytest.raises(ConversationTimeout):
        await guest.request_action("x", to="late", timeout=0.1)
    is_late.set()
    await settled(lambda: guest.late_messages)
    assert not guest.stray

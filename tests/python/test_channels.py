"""Agents on channels of an embedded platform."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from sealbus import (
    AclMessage,
    Agent,
    AgentFailed,
    ChannelError,
    ChannelEvent,
    FilterError,
    Performative,
    Platform,
    Reach,
    SendError,
    SubscriptionEnded,
    on_event,
    on_question,
)


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    async with Platform() as platform:
        yield platform


class Shop(Agent):
    """Hears offers with its handlers, and answers questions if it has a price."""

    def __init__(self, name: str, price: str | None = None) -> None:
        super().__init__(name)
        self.price = price
        self.heard: list[tuple[str, str, str]] = []
        self.prices: list[object] = []

    @on_event("/offers/**", filter="properties.price < 10")
    async def offer(self, event: ChannelEvent) -> None:
        self.heard.append((event.channel, event.mechanism, event.text))
        self.prices.append(event.properties["price"])
        await self.send(AclMessage("inform", "buyer", f"{self.name} heard {event.text}"))

    @on_question("/wanted/tea")
    async def wanted(self, question: ChannelEvent) -> None:
        if self.price is not None:
            await self.reply(question, Performative.PROPOSE, self.price)


async def test_events_and_messages_go_to_those_who_want_them(platform: Platform) -> None:
    buyer = await platform.start(Agent("buyer"))
    shops = [await platform.start(Shop("one")), await platform.start(Shop("two"))]
    channel = await buyer.channel("/offers/tea", qos="priority=7")
    assert (channel.path, channel.qos) == ("/offers/tea", "exactly-once,priority=7")
    assert await channel.publish("dear", properties={"price": 12}) == Reach(0, 0)
    assert await channel.publish("cheap", properties={"price": 7.5}) == Reach(2, 0)
    await channel.send("two", "for you", properties={"X-price": 1})
    texts = sorted([(await buyer.receive(timeout=60)).text for _ in range(3)])
    assert texts == ["one heard cheap", "two heard cheap", "two heard for you"]
    assert shops[0].heard == [("/offers/tea", "event", "cheap")]
    assert shops[0].prices == [7.5] and shops[1].prices[1:] == [1]
    assert shops[1].heard[1:] == [("/offers/tea", "message", "for you")]
    with pytest.raises(SendError, match="nobody@.* is not on /offers/tea"):
        await channel.send("nobody", "hello?")


async def test_everyone_is_asked_and_who_is_silent_is_known(platform: Platform) -> None:
    buyer = await platform.start(Agent("buyer"))
    for shop in (Shop("one", "9 EUR"), Shop("two", "8 EUR"), Shop("three")):
        await platform.start(shop)
    channel = await buyer.channel("/wanted/tea")
    replies = channel.request(AclMessage("cfp", content="10 kg"), timeout=60)
    prices = {reply.sender_name: reply.text async for reply in replies}
    assert prices == {f"one@{platform.name}": "9 EUR", f"two@{platform.name}": "8 EUR"}
    assert replies.missing == [f"three@{platform.name}"]

    answers = await channel.request("who has tea?", timeout=60, first=1).all()
    assert len(answers) == 1
    assert answers[0].performative is Performative.PROPOSE
    assert answers[0].mechanism == "reply"
    assert answers[0].is_trusted
    nobody = (await buyer.channel("/wanted/coffee")).request("anybody?", timeout=60)
    assert (await nobody.all(), nobody.missing) == ([], [])


async def test_a_subscription_is_an_iterator(platform: Platform) -> None:
    anna, ben = await platform.start(Agent("anna")), await platform.start(Agent("ben"))
    channel = await anna.channel("/news")
    async with await ben.subscribe("/*", filter="content.startsWith('n')") as news:
        for number in range(300):
            await channel.publish(f"n{number}")
            await channel.publish(f"x{number}")
        numbers = []
        async for event in news:
            assert (event.sender_name, event.provenance) == (anna.aid.name, "same-process")
            numbers.append(int(event.text[1:]))
            if len(numbers) == 300:
                break
        assert numbers == list(range(300))
        assert news.try_next() is None
        assert news.counters is not None
        assert news.counters.handed_out == 300
        assert news.counters.filter_errors == 0
    assert news.counters is None
    assert await channel.publish("n") == Reach(0, 0)


async def test_priorities_policies_and_limits(platform: Platform) -> None:
    anna, ben = await platform.start(Agent("anna")), await platform.start(Agent("ben"))
    channel = await anna.channel("/news")
    oldest = await ben.subscribe("/news", policy="drop-oldest", events=2)
    gone = await ben.subscribe("/news", policy="disconnect", events=2)
    for text, priority in (("a", 4), ("b", 4), ("c", 9), ("d", 4)):
        await channel.publish(text, qos=f"priority={priority}")
    assert [(await oldest.next()).text, (await oldest.next()).text] == ["c", "d"]
    assert oldest.counters is not None
    assert oldest.counters.dropped == 2
    assert sorted([(await gone.next()).text, (await gone.next()).text]) == ["a", "b"]
    with pytest.raises(SubscriptionEnded, match="slower than its channel"):
        await gone.next()


async def test_what_is_wrong_is_said_with_its_place(platform: Platform) -> None:
    anna = await platform.start(Agent("anna"))
    with pytest.raises(FilterError, match="column 19") as raised:
        await anna.subscribe("/news", filter="properties.price <")
    assert (raised.value.line, raised.value.column, raised.value.offset) == (1, 19, 18)
    for address, problem in (
        ("/a//b", "byte 3"),
        ("/a/*", "'\\*' stands for many channels"),
        ("cia://de/a/b", "<user>@<country>"),
        ("cia:level=sealed://a@de/b/", "cannot give level=sealed"),
        ("cia:soon://a@de/b/", "unknown promise"),
    ):
        with pytest.raises(ChannelError, match=problem):
            await anna.channel(address)
    with pytest.raises(ChannelError, match="ack=majority"):
        await anna.channel("/news", qos="ack=majority")
    with pytest.raises(ValueError, match="takes='questions': it is 'events', 'requests' or 'all'"):
        await anna.subscribe("/news", takes="questions")  # type: ignore[arg-type]
    channel = await anna.channel("cia://frank.kargl@de/dates/business/diary-agent")
    assert (channel.path, channel.agent) == ("/dates/business", "diary-agent")


async def test_a_wrong_handler_ends_its_agent_alone() -> None:
    class Wrong(Agent):
        @on_event("/news", filter="price < 10")
        async def news(self, event: ChannelEvent) -> None:
            raise AssertionError

    with pytest.raises(AgentFailed, match='there is no variable "price"'):
        async with Platform() as platform:
            anna = await platform.start(Agent("anna"))
            await platform.start(Wrong("wrong"))
            await (await anna.channel("/news")).publish("still here")
            anna.stop()
            await platform.wait()


async def test_only_the_latest_event_is_kept_for_who_is_slow(platform: Platform) -> None:
    heard: list[str] = []
    begun, go = asyncio.Event(), asyncio.Event()

    class Dashboard(Agent):
        @on_event("/sensors/*", keep="latest")
        async def show(self, event: ChannelEvent) -> None:
            heard.append(event.text)
            begun.set()
            await go.wait()

    await platform.start(Dashboard())
    anna = await platform.start(Agent("anna"))
    latest = await anna.subscribe("/sensors/*", keep="latest")
    await anna.publish("/sensors/a", "1")
    await begun.wait()
    for number in range(2, 10):
        await anna.publish("/sensors/a", str(number))
    go.set()
    while len(heard) < 2:
        await asyncio.sleep(0.001)
    assert heard == ["1", "9"]
    assert (await latest.next()).text == "9"
    assert latest.try_next() is None
    with pytest.raises(ValueError, match="keep='latest'"):
        await anna.subscribe("/sensors/*", keep="latest", policy="push-back")
    with pytest.raises(ValueError, match="'all' or 'latest'"):
        await anna.subscribe("/sensors/*", keep="newest")  # type: ignore[arg-type]


async def test_publishing_opens_each_channel_once(platform: Platform) -> None:
    anna = await platform.start(Agent("anna"))
    news = await anna.subscribe("/**")
    for number in range(3):
        assert await anna.publish("/news", str(number), qos="priority=7") == Reach(1, 0)
        event = await news.next()
        assert (event.text, event.priority) == (str(number), 7)
    assert await anna.channel("/news", qos="priority=7") is await anna.channel("/news", qos="priority=7")
    for number in range(1000):
        await anna.channel(f"/many/{number}")
    assert len(anna._living.channels._open) <= 256
    with pytest.raises(ChannelError):
        await anna.publish("no path", "x")

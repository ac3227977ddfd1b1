"""On whose behalf agents ask: the chain that messages carry by themselves, and the one that an agent sets."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from sealbus import (
    AclMessage,
    Agent,
    ChannelEvent,
    Filter,
    Message,
    Performative,
    Platform,
    SendError,
    on,
    on_behalf_of,
    on_question,
    tool,
)

REQUEST, INFORM = Performative.REQUEST, Performative.INFORM
CHAIN = "X-Sealbus-On-Behalf-Of"


class Store(Agent):
    """Tells who asks, and on whose behalf."""

    @on(REQUEST)
    async def fetch(self, message: Message) -> None:
        await self.reply(message, INFORM, " > ".join([*message.on_behalf_of, message.sender_name]))

    @on_question("/lost")
    async def find(self, question: ChannelEvent) -> None:
        await self.reply(question, INFORM, " > ".join([*question.on_behalf_of, question.sender_name]))


class Shop(Agent):
    """Asks another agent for each of its customers, in all ways."""

    next = "store"

    async def ask_next(self, text: str) -> str:
        try:
            return str((await self.request(AclMessage(REQUEST, self.next, text))).text)
        except SendError as refused:
            return str(refused)

    @on(REQUEST, ontology="mine", concurrency=9)
    async def sell_mine(self, message: Message) -> None:
        with on_behalf_of(None):
            await self.reply(message, INFORM, await self.ask_next(message.text))

    @on(REQUEST, ontology="task", concurrency=9)
    async def sell_in_a_task(self, message: Message) -> None:
        await self.reply(message, INFORM, await asyncio.create_task(self.ask_next(message.text)))

    @on(REQUEST, ontology="lost", concurrency=9)
    async def sell_lost(self, message: Message) -> None:
        channel = await self.channel("/lost")
        (found,) = await channel.request("where?", timeout=60, first=1).all()
        await self.reply(message, INFORM, found.text)

    @tool
    async def wrap(self, text: str) -> str:
        """Wraps."""
        return await self.ask_next(text)

    @on(REQUEST, concurrency=9)
    async def sell(self, message: Message) -> None:
        await self.reply(message, INFORM, await self.ask_next(message.text))

    @on(INFORM)
    async def hear(self, message: Message) -> None:
        await self.send(AclMessage(REQUEST, self.next, "x", reply_to="buyer", conversation_id="heard"))


@pytest.fixture
async def buyer() -> AsyncIterator[Agent]:
    async with Platform() as platform:
        await platform.start(Store("store"))
        await platform.start(Shop("shop"))
        yield await platform.start(Agent("buyer"))


def whole(buyer: Agent, *names: str) -> str:
    return " > ".join(f"{name}@{buyer.aid.name.partition('@')[2]}" for name in names)


async def asked(buyer: Agent, to: str, ontology: str | None = None) -> str:
    return str((await buyer.request(AclMessage(REQUEST, to, "tea", ontology=ontology), timeout=60)).text)


async def test_an_agent_asks_on_behalf_of_its_asker(buyer: Agent) -> None:
    assert await asked(buyer, "store") == whole(buyer, "buyer")
    for ontology in (None, "task", "wrap", "lost"):
        assert await asked(buyer, "shop", ontology) == whole(buyer, "buyer", "shop"), ontology
    assert await asked(buyer, "shop", "mine") == whole(buyer, "shop")


async def test_messages_that_are_sent_together_carry_the_chain_of_their_work(buyer: Agent) -> None:
    class Clerk(Agent):
        async def order(self) -> None:
            order = AclMessage(REQUEST, "store", reply_to="buyer", conversation_id="orders")
            await self.send_many([order, order])

        @on(REQUEST)
        async def pass_on(self, message: Message) -> None:
            await self.order()
            with on_behalf_of(None):
                await self.order()

    await buyer._living.platform.start(Clerk("clerk"))
    await buyer.send(AclMessage(REQUEST, "clerk", "tea"))
    told = [(await buyer.receive(Filter(conversation_id="orders"), timeout=60)).text for _ in range(4)]
    assert told == [whole(buyer, "buyer", "clerk")] * 2 + [whole(buyer, "clerk")] * 2


async def test_what_only_says_something_begins_no_chain(buyer: Agent) -> None:
    await buyer.send(AclMessage(INFORM, "shop", "rain"))
    told = await buyer.receive(Filter(conversation_id="heard"), timeout=60)
    assert told.text == whole(buyer, "shop")


async def test_an_answer_carries_no_chain(buyer: Agent) -> None:
    reply = await buyer.request(AclMessage(REQUEST, "shop", "tea"), timeout=60)
    assert reply.on_behalf_of == () and CHAIN not in reply.user_defined


async def test_work_without_a_handler_says_for_whom_it_is(buyer: Agent) -> None:
    async with Platform() as platform:
        await platform.start(Store("store"))
        clerk = await platform.start(Agent("clerk"))
        boss = await platform.start(Agent("boss"))
        await boss.send(AclMessage(REQUEST, "clerk", "tea"))
        order = await clerk.receive(Filter(performative=REQUEST), timeout=60)
        with on_behalf_of(order):
            assert await asked(clerk, "store") == whole(clerk, "boss", "clerk")
        assert await asked(clerk, "store") == whole(clerk, "clerk")


async def test_a_circle_is_refused_by_name(buyer: Agent) -> None:
    async with Platform() as platform:
        shops = {name: Shop(name) for name in ("one", "two", "three")}
        for (name, shop), following in zip(shops.items(), ("two", "three", "one"), strict=True):
            shop.next = following
            await platform.start(shop)
        asker = await platform.start(Agent("asker"))
        refused = await asked(asker, "one")
        assert "in a circle" in refused and refused.count("one@") >= 3, refused


async def test_a_long_chain_is_refused_by_name(buyer: Agent) -> None:
    async with Platform() as platform:
        for number in range(10):
            shop = Shop(f"shop-{number}")
            shop.next = f"shop-{number + 1}"
            await platform.start(shop)
        asker = await platform.start(Agent("asker"))
        refused = await asked(asker, "shop-0")
        assert "on behalf of 9 agents" in refused and "at most 8" in refused, refused


@pytest.mark.parametrize("chain", ["", "a@p  b@p", "a@p\tb@p", "x" * 513, "buyer@PLATFORM"])
async def test_a_chain_that_is_none_is_not_sent(buyer: Agent, chain: str) -> None:
    chain = chain.replace("PLATFORM", buyer.aid.name.partition("@")[2])
    with pytest.raises(SendError):
        await buyer.send(AclMessage(REQUEST, "store", "tea", user_defined={CHAIN: chain}))

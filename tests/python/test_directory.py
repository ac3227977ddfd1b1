"""Registering and finding services and agents."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from sealbus import (
    AID,
    AclMessage,
    Agent,
    AmsAgentDescription,
    DfAgentDescription,
    DirectoryError,
    Message,
    Platform,
    ServiceDescription,
    Undeliverable,
    _sealbus,
    on,
)


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    async with Platform() as platform:
        yield platform


SHOP = ServiceDescription("books by mail", "bookshop", properties={"stars": 5, "city": "Ulm"})


def test_descriptions_keep_what_they_were_given() -> None:
    assert (SHOP.name, SHOP.type, SHOP.properties) == (
        "books by mail",
        "bookshop",
        {"stars": 5, "city": "Ulm"},
    )
    entry = DfAgentDescription("anna@home", [SHOP], protocols=["fipa-request"])
    assert entry.name == AID("anna@home")
    assert entry.services == (SHOP,)
    assert entry.protocols == ("fipa-request",)
    assert entry == DfAgentDescription("anna@home", [SHOP], protocols=["fipa-request"])
    assert entry != DfAgentDescription("ben@home", [SHOP], protocols=["fipa-request"])
    assert "books by mail" in repr(entry)
    with pytest.raises(ValueError, match="no agent state 'asleep'"):
        AmsAgentDescription(state="asleep")
    with pytest.raises(ValueError, match="property"):
        ServiceDescription(properties={"x": [1]})  # type: ignore[dict-item]


async def test_a_service_is_found_by_type_and_by_more(platform: Platform) -> None:
    anna, ben = await platform.start(Agent("anna")), await platform.start(Agent("ben"))
    assert await ben.df.search("bookshop") == []
    await anna.df.register(SHOP)
    [found] = await ben.df.search("bookshop")
    assert (found.name, found.services) == (anna.aid, (SHOP,))
    assert await ben.df.search(ServiceDescription(properties={"city": "Ulm"})) == [found]
    assert await ben.df.search(ServiceDescription(properties={"city": "Bern"})) == []
    assert await ben.df.search(DfAgentDescription(anna.aid)) == [found]
    assert await ben.df.search("bakery") == []


async def test_a_registration_replaces_the_one_before(platform: Platform) -> None:
    anna = await platform.start(Agent("anna"))
    await anna.df.register(SHOP)
    bakery = ServiceDescription("bread", "bakery")
    await anna.df.register(bakery)
    assert await anna.df.search("bookshop") == []
    [found] = await anna.df.search("bakery")
    assert found.services == (bakery,)
    await anna.df.deregister()
    await anna.df.deregister()
    assert await anna.df.search("bakery") == []
    with pytest.raises(DirectoryError) as caught:
        await anna.df.modify(bakery)
    assert caught.value.exception == "not-registered"
    assert caught.value.agent == anna.aid.name


async def test_a_lease_ends(platform: Platform) -> None:
    anna = await platform.start(Agent("anna"))
    news = await anna.df.subscribe("bookshop")
    short = DfAgentDescription(lease_time=timedelta(seconds=1))
    await anna.df.register(SHOP, description=short)
    [entered] = await news.next(timeout=60)
    assert (entered.name, entered.services) == (anna.aid, (SHOP,))
    [gone] = await news.next(timeout=60)
    assert (gone.name, gone.services) == (anna.aid, ())
    assert await anna.df.search("bookshop") == []


async def test_a_search_may_be_limited(platform: Platform) -> None:
    for number in range(5):
        agent = await platform.start(Agent(f"shop-{number}"))
        await agent.df.register(SHOP)
    assert len(await agent.df.search("bookshop", most=2)) == 2
    assert len(await agent.df.search("bookshop")) == 5


async def test_a_subscriber_is_told_of_what_comes_and_goes(platform: Platform) -> None:
    anna, ben = await platform.start(Agent("anna")), await platform.start(Agent("ben"))
    await anna.df.register(SHOP)
    news = await ben.df.subscribe("bookshop")
    [first] = await news.next(timeout=60)
    assert (first.name, first.services) == (anna.aid, (SHOP,))
    cleo = await platform.start(Agent("cleo"))
    await cleo.df.register(SHOP)
    [second] = await news.next(timeout=60)
    assert second.name == cleo.aid
    await anna.df.deregister()
    [gone] = await news.next(timeout=60)
    assert (gone.name, gone.services) == (anna.aid, ())
    await news.cancel()
    await cleo.df.deregister()
    # The directory answers this after it has sent its news.
    await ben.df.search("bookshop")
    assert ben._living.handle.try_receive(news.filter) is None
    assert not ben._living.mailbox.is_awaited()


class Watcher(Agent):
    """Hears of shops in a task, and has hooks besides."""

    def __init__(self) -> None:
        super().__init__("watcher")
        self.heard: list[AID | None] = []
        self.others: list[Message] = []
        self.has_heard = asyncio.Event()
        self.may_go_on = asyncio.Event()

    async def setup(self) -> None:
        self.create_task(self.watch())

    async def watch(self) -> None:
        async for shops in await self.df.subscribe("bookshop"):
            self.heard += [shop.name for shop in shops]
            self.has_heard.set()
            await self.may_go_on.wait()

    @on("request")
    async def answer(self, request: Message) -> None:
        await self.reply(request, "inform", "done")

    async def on_message(self, message: Message) -> None:
        self.others.append(message)


async def test_news_wait_for_a_reader_that_does_something_else(platform: Platform) -> None:
    watcher = await platform.start(Watcher())
    anna, ben, cleo = [await platform.start(Agent(name)) for name in ("anna", "ben", "cleo")]
    async with asyncio.timeout(60):
        await anna.df.register(SHOP)
        await watcher.has_heard.wait()
        for shop in (ben, cleo):
            await shop.df.register(SHOP)
        # The directory answers this after it has sent its news, and the watcher's hook gets the request after the news.
        await anna.df.search("bookshop")
        await anna.request(AclMessage("request", watcher.aid))
        assert (watcher.heard, watcher.others) == ([anna.aid], [])
        watcher.may_go_on.set()
        while len(watcher.heard) < 3:
            await asyncio.sleep(0.001)
    assert (watcher.heard, watcher.others) == ([anna.aid, ben.aid, cleo.aid], [])


async def test_a_hook_takes_news_that_no_reader_asks_for(platform: Platform) -> None:
    class Listener(Agent):
        def __init__(self) -> None:
            super().__init__("listener")
            self.heard: asyncio.Queue[Message] = asyncio.Queue()

        async def setup(self) -> None:
            self.news = await self.df.subscribe("bookshop")

        async def on_message(self, message: Message) -> None:
            if self.news.filter.takes(message):
                self.heard.put_nowait(message)

    listener = await platform.start(Listener())
    anna = await platform.start(Agent("anna"))
    await anna.df.register(SHOP)
    async with asyncio.timeout(60):
        while (await listener.heard.get()).performative != "inform":
            pass


async def test_news_end_with_the_loop_or_the_block_over_them(platform: Platform) -> None:
    anna, ben, cleo = [await platform.start(Agent(name)) for name in ("anna", "ben", "cleo")]
    await anna.df.register(SHOP)
    async for _ in await ben.df.subscribe("bookshop"):
        break
    async with await ben.df.subscribe("bookshop") as news:
        assert await news.next(timeout=60)
    told = await cleo.df.subscribe("bookshop")
    await told.next(timeout=60)
    async with asyncio.timeout(60):
        while True:
            await anna.df.deregister()
            await told.next(timeout=60)
            await anna.df.register(SHOP)
            await told.next(timeout=60)
            handle, waiting = ben._living.handle, 0
            while handle.try_receive(None) is not None:
                waiting += 1
            if not waiting:
                break
        # No news are reserved for readers that have ended.
        while ben._living.mailbox.is_awaited():
            await asyncio.sleep(0.001)


async def test_only_the_owner_changes_its_entry(platform: Platform) -> None:
    anna, ben = await platform.start(Agent("anna")), await platform.start(Agent("ben"))
    await anna.df.register(SHOP)
    forged = _sealbus.df_deregister(AID(f"df@{platform.name}"), anna.aid)
    answer = await ben.request(forged, timeout=60)
    with pytest.raises(DirectoryError) as caught:
        _sealbus.directory_done(answer)
    assert caught.value.exception == "unauthorised"
    assert len(await ben.df.search("bookshop")) == 1


async def test_the_ams_knows_the_agents(platform: Platform) -> None:
    class Curious(Agent):
        async def setup(self) -> None:
            self.own = await self.ams.find(self.name)

    anna = await platform.start(Curious("anna"))
    entry = await anna.ams.find("anna")
    assert entry is not None
    assert entry.state == "active"
    names = {entry.name for entry in await anna.ams.search()}
    assert {anna.aid, AID(f"df@{platform.name}")} <= names
    assert await anna.ams.find("nobody") is None
    while not hasattr(anna, "own"):
        await asyncio.sleep(0.001)
    assert anna.own == entry


async def test_a_directory_elsewhere_is_asked_there(platform: Platform) -> None:
    anna = await platform.start(Agent("anna"))
    with pytest.raises(Undeliverable, match="librarian"):
        await anna.df.at(f"librarian@{platform.name}").search("bookshop")


async def test_an_answer_that_makes_no_sense_is_an_error(platform: Platform) -> None:
    class Librarian(Agent):
        @on("request")
        async def nonsense(self, request: Message) -> None:
            await self.reply(request, "inform", "how do I know?")

    await platform.start(Librarian("librarian"))
    anna = await platform.start(Agent("anna"))
    with pytest.raises(DirectoryError, match="cannot be read") as caught:
        await anna.df.at(anna.peer("librarian")).search("bookshop")
    assert caught.value.exception is None
    await anna.send(AclMessage("inform", anna.aid))


async def test_an_agent_learns_who_comes_and_goes(platform: Platform) -> None:
    watcher = await platform.start(Agent("watcher"))
    agents = await watcher.ams.subscribe()
    states: dict[str, str | None] = {}

    async def until(name: str, state: str | None) -> None:
        while states.get(name, "unknown") != state:
            for agent in await agents.next(timeout=60):
                assert agent.name is not None
                states[agent.name.local_name] = agent.state

    await until("watcher", "active")
    anna = await platform.start(Agent("anna"))
    await until("anna", "active")
    anna.stop()
    await until("anna", None)
    await agents.cancel()
    ended, agents = agents, await watcher.ams.subscribe()
    await platform.start(Agent("ben"))
    await until("ben", "active")
    # The AMS answers this after it has told all subscribers of ben.
    await watcher.ams.find("ben")
    assert watcher._living.handle.try_receive(ended.filter) is None


async def test_only_matching_agents_are_told_of(platform: Platform) -> None:
    watcher = await platform.start(Agent("watcher"))
    await platform.start(Agent("anna"))
    of_ben = await watcher.ams.subscribe(AmsAgentDescription(watcher.peer("ben")))
    ben = await platform.start(Agent("ben"))
    [news] = await of_ben.next(timeout=60)
    assert news.name == ben.aid

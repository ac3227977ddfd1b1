"""Contract nets between agents: the usual course, refusals, failures, silence, early ends, and messages against the rules."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from sealbus import (
    AID,
    AclMessage,
    Agent,
    ConversationError,
    ConversationTimeout,
    Failure,
    Message,
    NotUnderstood,
    Order,
    Platform,
    Proposal,
    ProtocolError,
    Refuse,
    ServiceDescription,
    on,
    on_contract_net,
    on_iterated_contract_net,
)
from sealbus.testing import TestBed

from test_protocols import Witness, settled


@dataclass
class Task:
    hours: int


@dataclass
class Price:
    euros: float


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    async with Platform() as platform:
        yield platform


class Bidder(Agent):
    def __init__(self, name: str, euros: float) -> None:
        super().__init__(name)
        self.euros = euros
        self.heard: list[str] = []

    async def setup(self) -> None:
        await self.df.register(ServiceDescription("painter", "painter"))

    @on_contract_net(Task)
    async def bid(self, call: Message[Task]) -> Price:
        if self.euros > 100:
            raise Refuse("busy")
        return Price(self.euros * call.body.hours)

    @bid.perform
    async def work(self, order: Order[Price]) -> str:
        if self.euros == 13:
            raise Failure("the ladder broke")
        self.heard.append("ordered")
        return f"done for {order.offer.euros:g}"

    @bid.rejected
    async def lost(self, order: Order[Price]) -> None:
        self.heard.append("rejected")


async def test_a_contract_net_finds_the_best_bid_and_rejects_the_others(testbed: TestBed) -> None:
    prices = [20, 10, 30, 200]
    bidders = [await testbed.start(Bidder(f"bidder-{price}", price)) for price in prices]
    buyer = await testbed.start(Witness("buyer"))
    await testbed.start(Agent("sleeper"))
    names: list[AID | str] = [bidder.aid for bidder in bidders]
    net = buyer.contract_net(Task(3), to=[*names, "sleeper", "nobody"], reply=Price, timeout=2)

    async def buy() -> None:
        async with net:
            assert sorted(proposal.body.euros for proposal in net.proposals) == [30, 60, 90]
            assert [message.sender_name for message in net.refused] == [bidders[3].aid.name]
            assert [agent.local_name for agent in net.silent] == ["sleeper"]
            assert [agent.local_name for agent in net.undelivered] == ["nobody"]
            assert not net.failed
            best = min(net.proposals, key=lambda proposal: proposal.body.euros)
            done = await best.accept(result=str, timeout=60)
            assert done.body == "done for 30"

    buying = asyncio.create_task(buy())
    # The time passes when all but the sleeper have answered.
    await settled(lambda: len(net.proposals) == 3 and net.refused and net.undelivered)
    await testbed.clock.advance(3)
    await buying
    await settled(lambda: all(bidder.heard for bidder in bidders[:3]))
    assert [bidder.heard for bidder in bidders] == [["rejected"], ["ordered"], ["rejected"], []]
    assert not buyer.stray


class Generous(Bidder):
    """Marks nothing anew."""

    async def bid(self, call: Message[Task]) -> Price:
        return Price((await super().bid(call)).euros - 1)

    async def work(self, order: Order[Price]) -> str:
        return f"gladly {await super().work(order)}"


class Late(Agent):
    """Mixed in before the agent whose method it replaces."""

    async def bid(self, call: Message[Task]) -> Price:
        raise Refuse("late")


class LateBidder(Late, Generous):
    pass


async def test_what_overrides_a_participant_takes_part_as_well(platform: Platform) -> None:
    await platform.start(Generous("generous", 5))
    await platform.start(LateBidder("late", 5))
    await platform.start(Bidder("plain", 5))
    buyer = await platform.start(Witness("buyer"))
    async with buyer.contract_net(Task(2), to=["generous", "late", "plain"], reply=Price, timeout=60) as net:
        assert sorted(proposal.body.euros for proposal in net.proposals) == [9, 10]
        assert [message.text for message in net.refused] == ["late"]
        best = min(net.proposals, key=lambda proposal: proposal.body.euros)
        assert (await best.accept(result=str, timeout=60)).body == "gladly done for 9"
    assert not buyer.stray


async def test_the_bidders_of_a_contract_net_may_come_from_the_directory(platform: Platform) -> None:
    for price in (5, 7):
        await platform.start(Bidder(f"bidder-{price}", price))
    buyer = await platform.start(Agent("buyer"))
    async with asyncio.timeout(60):
        while len(await buyer.df.search("painter")) < 2:
            await asyncio.sleep(0.01)
    painters = ServiceDescription.of_type("painter")
    async with buyer.contract_net(Task(1), to=painters, reply=Price, timeout=60) as net:
        assert sorted(proposal.body.euros for proposal in net.proposals) == [5, 7]
    with pytest.raises(ProtocolError, match="at least one participant"):
        async with buyer.contract_net(Task(1), to=ServiceDescription.of_type("plumber"), timeout=60):
            pass


async def test_a_failed_order_raises_and_another_bid_can_be_taken(platform: Platform) -> None:
    bidders = [await platform.start(Bidder(f"bidder-{price}", price)) for price in (13, 20)]
    buyer = await platform.start(Agent("buyer"))
    names = [bidder.aid for bidder in bidders]
    async with buyer.contract_net(Task(1), to=names, reply=Price, timeout=60) as net:
        first, second = sorted(net.proposals, key=lambda proposal: proposal.body.euros)
        with pytest.raises(ConversationError, match="the ladder broke") as raised:
            await first.accept(timeout=60)
        assert raised.value.outcome == "failed"
        assert (await second.accept(timeout=60)).text == "done for 20"
        with pytest.raises(ProtocolError):
            await second.accept(timeout=60)


async def test_a_bid_that_is_no_bid_is_answered_and_does_not_count(platform: Platform) -> None:
    class Odd(Agent):
        @on_contract_net()
        async def bid(self, call: Message) -> dict[str, str]:
            return {"euros": "many"}

    await platform.start(Odd("odd"))
    buyer = await platform.start(Agent("buyer"))
    async with buyer.contract_net(Task(1), to="odd", reply=Price, timeout=60) as net:
        assert not net.proposals and [message.performative for message in net.failed] == ["propose"]


async def test_a_bidder_answers_for_its_errors_and_lives(platform: Platform) -> None:
    class Faulty(Agent):
        @on_contract_net(Task)
        async def bid(self, call: Message[Task]) -> Price:
            if call.body.hours == 1:
                raise ValueError("the safe's number is 4711")
            if call.body.hours == 2:
                raise NotUnderstood("what?")
            return Price(1)

    faulty = await platform.start(Faulty("faulty"))
    buyer = await platform.start(Agent("buyer"))
    async with buyer.contract_net(Task(1), to="faulty", timeout=60) as net:
        [refusal] = net.refused
        assert refusal.text == "the agent failed at this; its log says why"
    async with buyer.contract_net(Task(2), to="faulty", timeout=60) as net:
        assert [message.text for message in net.failed] == ["what?"]
    async with buyer.contract_net("no task", to="faulty", timeout=60) as net:
        assert [message.performative for message in net.failed] == ["not-understood"]
    async with buyer.contract_net(Task(3), to="faulty", timeout=60) as net:
        assert len(net.proposals) == 1
    assert faulty.failures == 2


async def test_a_block_that_is_cancelled_stops_the_work(testbed: TestBed) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    class Slow(Agent):
        @on_contract_net()
        async def bid(self, call: Message) -> str:
            return "mine"

        @bid.perform
        async def work(self, order: Order[str]) -> None:
            begun.set()
            try:
                await asyncio.sleep(3600)
            finally:
                stopped.set()

    await testbed.start(Slow("slow"))
    buyer = await testbed.start(Agent("buyer"))

    async def buy() -> None:
        async with buyer.contract_net("x", to="slow", timeout=60) as net:
            await net.proposals[0].accept()

    task = asyncio.create_task(buy())
    async with asyncio.timeout(60):
        await begun.wait()
        task.cancel()
        await stopped.wait()
    with pytest.raises(asyncio.CancelledError):
        await task
    begun.clear()
    stopped.clear()
    async with buyer.contract_net("x", to="slow", timeout=60) as net:
        order = asyncio.create_task(net.proposals[0].accept(timeout=0.2))
        async with asyncio.timeout(60):
            await begun.wait()
        await testbed.clock.advance(1)
        with pytest.raises(ConversationTimeout):
            await order
    async with asyncio.timeout(60):
        await stopped.wait()


async def test_many_conversations_at_once_do_not_mix(platform: Platform) -> None:
    for number in range(5):
        await platform.start(Bidder(f"bidder-{number + 1}", number + 1))
    buyer = await platform.start(Witness("buyer"))

    async def buy(hours: int) -> str:
        names = [f"bidder-{number + 1}" for number in range(5)]
        async with buyer.contract_net(Task(hours), to=names, reply=Price, timeout=60) as net:
            assert sorted(it.body.euros for it in net.proposals) == [hours * price for price in range(1, 6)]
            best = min(net.proposals, key=lambda it: it.body.euros)
            return (await best.accept(timeout=60)).text

    done = await asyncio.gather(*(buy(hours) for hours in range(1, 41)))
    assert done == [f"done for {hours}" for hours in range(1, 41)]
    assert not buyer.stray


async def test_an_iterated_contract_net_goes_on_with_some(platform: Platform) -> None:
    class Haggler(Agent):
        def __init__(self, name: str, euros: float) -> None:
            super().__init__(name)
            self.euros = euros
            self.rejections = 0

        @on_iterated_contract_net(Task)
        async def bid(self, call: Message[Task]) -> Price:
            self.euros -= call.body.hours
            return Price(self.euros)

        @bid.perform
        async def work(self, order: Order[Price]) -> Price:
            return order.offer

        @bid.rejected
        async def lost(self, order: Order[Price]) -> None:
            self.rejections += 1

    hagglers = [await platform.start(Haggler(f"haggler-{euros}", euros)) for euros in (100, 80, 90)]
    buyer = await platform.start(Agent("buyer"))
    names = [haggler.aid for haggler in hagglers]

    def price(proposal: Proposal[Price]) -> float:
        return proposal.body.euros

    async with buyer.iterated_contract_net(Task(1), to=names, reply=Price, timeout=60) as net:
        cheap = sorted(net.proposals, key=price)[:2]
        assert [price(it) for it in cheap] == [79, 89]
        again = await net.call_again(Task(10), cheap)
        assert sorted(map(price, again)) == [69, 79]
        done = await min(again, key=price).accept(result=Price, timeout=60)
        assert done.body == Price(69)
    await settled(lambda: [it.rejections for it in hagglers] == [1, 0, 1])


async def test_bidders_that_have_left_are_not_called_again(platform: Platform) -> None:
    left = asyncio.Event()

    class Leaver(Agent):
        @on("cfp")
        async def bid(self, call: Message) -> None:
            await self.reply(call, "propose", Price(1))
            await self.reply(call, "not-understood", "gone")
            left.set()

    class Steady(Agent):
        @on_iterated_contract_net(Task)
        async def bid(self, call: Message[Task]) -> Price:
            await left.wait()
            return Price(call.body.hours)

        @bid.perform
        async def work(self, order: Order[Price]) -> str:
            return "done"

    await platform.start(Leaver("leaver"))
    await platform.start(Steady("steady"))
    buyer = await platform.start(Agent("buyer"))
    async with buyer.iterated_contract_net(Task(3), to=["leaver", "steady"], reply=Price, timeout=60) as net:
        gone, _ = sorted(net.proposals, key=lambda proposal: proposal.body.euros)
        [bid] = await net.call_again(Task(2))
        with pytest.raises(ConversationError, match="gone"):
            await gone.accept(timeout=60)
        assert (await bid.accept(result=str, timeout=60)).body == "done"


async def test_hostile_participants_do_not_disturb_a_conversation(platform: Platform) -> None:
    class Hostile(Agent):
        @on("cfp")
        async def shout(self, call: Message) -> None:
            for act in ("inform", "agree", "accept-proposal", "propose", "propose", "inform", "not-understood"):
                await self.reply(call, act, "x")

    await platform.start(Hostile("hostile"))
    await platform.start(Bidder("bidder-1", 1))
    buyer = await platform.start(Witness("buyer"))
    async with buyer.contract_net(Task(1), to=["hostile", "bidder-1"], timeout=60) as net:
        assert [proposal.agent.local_name for proposal in net.proposals if proposal.agent.local_name != "hostile"] == ["bidder-1"]
        await settled(lambda: net.refused_messages)


async def test_late_answers_go_to_who_wants_them(testbed: TestBed) -> None:
    gates = {name: asyncio.Event() for name in ("in-time", "in-the-block", "after-it")}

    class Slow(Agent):
        @on("cfp", body=Task)
        async def bid(self, call: Message[Task]) -> None:
            await gates[self.name].wait()
            await self.reply(call, "propose", Price(call.body.hours))

    bidders = [await testbed.start(Slow(name)) for name in gates]
    buyer = await testbed.start(Witness("buyer"))
    late: list[tuple[str | None, Any]] = []

    async def note(message: Message) -> None:
        late.append((message.sender_name, message.body_as(Price).euros))

    gates["in-time"].set()
    net = buyer.contract_net(Task(3), to=[bidder.aid for bidder in bidders], reply=Price, timeout=0.3)
    net.late = note

    async def call() -> None:
        async with net:
            gates["in-the-block"].set()
            await settled(lambda: len(late) == 1)

    calling = asyncio.create_task(call())
    await settled(lambda: net.proposals)
    await testbed.clock.advance(1)
    await calling
    gates["after-it"].set()
    await settled(lambda: len(late) == 2)
    assert late == [(bidders[1].aid.name, 3), (bidders[2].aid.name, 3)]
    assert buyer.late_messages == 0 and not buyer.stray
    # The latest conversations alone are remembered so.
    buyer._living.mailbox._lingering[0].forget()
    await bidders[0].send(AclMessage("inform", buyer.aid, conversation_id=net.id))
    # The bidders' answers to their rejections may come now, too.
    await settled(lambda: buyer.late_messages >= 1)
    assert len(late) == 2


async def test_messages_without_a_conversation_id_are_served_too(platform: Platform) -> None:
    await platform.start(Bidder("bidder-2", 2))
    probe = await platform.start(Agent("probe"))
    await probe.send(AclMessage("cfp", "bidder-2", body=Task(3), reply_with="call"))
    offer = await probe.receive(timeout=60)
    assert (offer.performative, offer.in_reply_to, offer.body_as(Price)) == ("propose", "call", Price(6))
    await probe.send(offer.create_reply("accept-proposal"))
    done = await probe.receive(timeout=60)
    assert (done.performative, done.text) == ("inform", "done for 6")

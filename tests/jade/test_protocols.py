"""The protocol objects of Python's agents with JADE's protocol classes, in both directions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from conftest import LIMIT, Jade, Ours
from sealbus import (
    AclMessage,
    Agent,
    ConversationError,
    Filter,
    Message,
    Order,
    Refuse,
    on_contract_net,
    on_iterated_contract_net,
    on_propose,
    on_query,
    on_request,
    on_request_when,
    on_subscribe,
)


class Worker(Agent):
    """Takes part in what JADE begins."""

    def __init__(self, name: str, price: int = 0) -> None:
        super().__init__(name)
        self.price = price
        self.closed = False
        self.rejected = False
        self.rejected_again = False

    @on_request()
    async def decide(self, request: Message) -> None:
        if request.text == "impossible":
            raise Refuse("not me")

    @decide.perform
    async def work(self, request: Message) -> str:
        return f"done {request.text}"

    @on_query()
    async def know(self, question: Message) -> str:
        if question.text == "impossible":
            raise Refuse("nobody knows")
        return f"known {question.performative} {question.text}"

    @on_request_when()
    async def wait(self, request: Message) -> None:
        if request.text == "impossible":
            raise Refuse("never")

    @wait.perform
    async def act(self, request: Message) -> str:
        await self.clock.sleep(0.02)
        return f"then {request.text}"

    @on_iterated_contract_net()
    async def haggle(self, call: Message) -> str:
        if not self.price:
            raise Refuse("sold out")
        return str(self.price - (2 if call.text == "cheaper" else 0))

    @haggle.perform
    async def deliver(self, order: Order[str]) -> str:
        return f"sold for {order.offer}"

    @haggle.rejected
    async def lost_again(self, order: Order[str]) -> None:
        self.rejected_again = True

    @on_contract_net()
    async def bid(self, call: Message) -> str:
        if not self.price:
            raise Refuse("sold out")
        return str(self.price)

    @bid.perform
    async def sell(self, order: Order[str]) -> str:
        return f"sold for {order.offer}"

    @bid.rejected
    async def lost(self, order: Order[str]) -> None:
        self.rejected = True

    @on_propose()
    async def judge(self, proposal: Message) -> bool:
        return proposal.text == "good"

    @on_subscribe()
    async def numbers(self, subscription: Message) -> AsyncIterator[str]:
        if subscription.text == "nothing":
            raise Refuse("nothing")
        try:
            number = 0
            while True:
                number += 1
                yield str(number)
                await self.clock.sleep(0.02)
        finally:
            self.closed = True


async def order(agent: Agent, jade: Jade, what: str, *workers: object) -> str | None:
    """Tells JADE's initiator to begin a protocol, and gives its report."""
    message = AclMessage(
        "inform",
        jade.aid("initiator"),
        what,
        ontology="order",
        reply_to=list(workers),  # type: ignore[arg-type]
        conversation_id=f"order-{what}",
    )
    await agent.send(message)
    report = await agent.receive(Filter(conversation_id=f"order-{what}"), timeout=LIMIT)
    return report.content_text


async def test_jade_begins(jade: Callable[..., Jade], ours: Ours) -> None:
    plat1 = jade(initiator="Initiator")
    agent = await ours.agent("agent")
    prices = {"dear": 9, "cheap": 7, "none": 0}
    workers = [await ours.platform.start(Worker(name, price)) for name, price in prices.items()]
    dear, cheap = workers[:2]
    one = ours.aid("cheap")
    assert await order(agent, plat1, "request work", one) == "agree inform done work"
    assert await order(agent, plat1, "request impossible", one) == "refuse"
    assert await order(agent, plat1, "query-if true?", one) == "inform known query-if true?"
    assert await order(agent, plat1, "query-ref what?", one) == "inform known query-ref what?"
    assert await order(agent, plat1, "query-if impossible", one) == "refuse"
    assert await order(agent, plat1, "request-when ready", one) == "agree inform then ready"
    assert await order(agent, plat1, "request-when impossible", one) == "refuse"
    assert await order(agent, plat1, "propose good", one) == "accepted"
    assert await order(agent, plat1, "propose bad", one) == "rejected"
    assert await order(agent, plat1, "subscribe nothing", one) == "refuse"
    assert await order(agent, plat1, "subscribe numbers", one) == "agree 1 2 3 cancel"
    report = await order(agent, plat1, "contract-net", *(ours.aid(name) for name in prices))
    assert report == "cheap sold for 7"
    report = await order(agent, plat1, "iterated-contract-net", *(ours.aid(name) for name in prices))
    assert report == "cheap sold for 5"
    async with agent.clock.timeout(LIMIT):
        while not (cheap.closed and dear.rejected and dear.rejected_again):
            await agent.clock.sleep(0.01)


async def test_we_begin(jade: Callable[..., Jade], ours: Ours) -> None:
    plat1 = jade(dear="Participant(9)", cheap="Participant(7)")
    agent = await ours.agent("agent")
    one = plat1.aid("cheap")
    async with agent.request_action("work", to=one, timeout=LIMIT) as request:
        assert (await request.result()).text == "done work"
        assert request.agreed == [one]
    with pytest.raises(ConversationError) as refused:
        await agent.request_action("impossible", to=one, timeout=LIMIT)
    assert refused.value.outcome == "refused"
    assert (await agent.query_if("true?", to=one, timeout=LIMIT)).text == "done true?"
    assert (await agent.query_ref("what?", to=one, timeout=LIMIT)).text == "done what?"
    with pytest.raises(ConversationError):
        await agent.query_ref("impossible", to=one, timeout=LIMIT)
    async with agent.request_when("ready", to=one, timeout=LIMIT) as request:
        assert (await request.result()).text == "done ready"
        assert request.agreed == [one]
    assert await agent.propose("good", to=one, timeout=LIMIT)
    assert not await agent.propose("bad", to=one, timeout=LIMIT)
    with pytest.raises(ConversationError):
        async with agent.subscribe_to("nothing", to=one, timeout=LIMIT):
            pass
    heard = []
    async with agent.subscribe_to("numbers", to=one, timeout=LIMIT) as numbers:
        async for number in numbers:
            heard.append(number.text)
            if len(heard) == 3:
                break
        await numbers.cancel(timeout=LIMIT)
        assert not numbers.silent
    assert heard == ["1", "2", "3"]
    async with agent.contract_net("box", to=[plat1.aid("dear"), one], timeout=LIMIT) as net:
        assert sorted(proposal.message.text for proposal in net.proposals) == ["7", "9"]
        best = min(net.proposals, key=lambda it: int(it.message.text))
        assert (await best.accept(timeout=LIMIT)).text == "sold for 7"
    async with agent.iterated_contract_net("box", to=[plat1.aid("dear"), one], timeout=LIMIT) as haggling:
        assert sorted(proposal.message.text for proposal in haggling.proposals) == ["7", "9"]
        cheaper = await haggling.call_again("cheaper", timeout=LIMIT)
        assert sorted(proposal.message.text for proposal in cheaper) == ["5", "7"]
        best = min(cheaper, key=lambda it: int(it.message.text))
        assert (await best.accept(timeout=LIMIT)).text == "sold for 5"

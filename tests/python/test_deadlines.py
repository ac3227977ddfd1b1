"""Work that is in vain before it begins, and deadlines that have passed or that a change of the system's time must not move."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from sealbus import AclMessage, Agent, ConversationTimeout, Message, Order, on_contract_net, on_request, tool
from sealbus.testing import TestBed


class Worker(Agent, supervise="end"):
    """Would end with an exception of its own."""

    def __init__(self) -> None:
        super().__init__("worker")
        self.ran: list[str] = []
        self.may_begin = asyncio.Event()

    async def setup(self) -> None:
        await self.may_begin.wait()


class Clerk(Worker):
    opening, answer = AclMessage("request", "worker", "x", protocol="fipa-request"), "inform"

    @on_request(str)
    async def asked(self, request: Message[str]) -> str:
        self.ran.append("asked")
        return request.body


class Writer(Worker):
    opening, answer = AclMessage("request", "worker", body={"text": "x"}, protocol="fipa-request", ontology="write"), "inform"

    @tool(name="write", concurrency=2)
    async def write(self, text: str) -> str:
        """Writes."""
        self.ran.append("asked")
        return text


class Bidder(Worker):
    opening, answer = AclMessage("cfp", "worker", "x", protocol="fipa-contract-net"), "propose"

    @on_contract_net()
    async def bid(self, call: Message) -> str:
        self.ran.append("asked")
        return "mine"

    @bid.perform
    async def work(self, order: Order[str]) -> str:
        self.ran.append("performed")
        return "done"


KINDS = [Clerk, Writer, Bidder]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_opening_whose_time_is_over_ends_no_agent(testbed: TestBed, kind: type[Clerk]) -> None:
    worker = await testbed.start(kind())
    worker.may_begin.set()
    probe = await testbed.probe()
    over = datetime.fromtimestamp(testbed.clock.time() - 1.0, UTC)
    await probe.send(kind.opening.replace(conversation_id="late", reply_with="late", reply_by=over))
    await probe.send(kind.opening.replace(conversation_id="good", reply_with="good"))
    while (answer := await probe.expect()).performative == "agree":
        pass
    assert (answer.performative, answer.conversation_id) == (kind.answer, "good")
    await probe.expect_nothing()
    assert (worker.failures, worker.ran) == (0, ["asked"])


@pytest.mark.parametrize("kind", KINDS)
async def test_an_opening_that_is_cancelled_before_its_work_begins_never_runs(testbed: TestBed, kind: type[Clerk]) -> None:
    worker = await testbed.start(kind())
    probe = await testbed.probe()
    opening = kind.opening.replace(conversation_id="x", reply_with="r")
    await probe.send_many([opening, opening.replace(performative="cancel", reply_with="enough")])
    worker.may_begin.set()
    assert (await probe.expect("inform")).in_reply_to == "enough"
    await probe.expect_nothing()
    assert (worker.failures, worker.ran) == (0, [])


async def test_an_order_that_comes_with_its_cancel_is_not_performed(testbed: TestBed) -> None:
    worker = await testbed.start(Bidder())
    worker.may_begin.set()
    probe = await testbed.probe()
    await probe.send(Bidder.opening.replace(conversation_id="x", reply_with="r"))
    order = (await probe.expect("propose")).create_reply("accept-proposal")
    await probe.send_many([order, order.replace(performative="cancel", reply_with="enough")])
    assert (await probe.expect("inform")).in_reply_to == "enough"
    await probe.expect_nothing()
    assert (worker.failures, worker.ran) == (0, ["asked"])


@pytest.fixture(params=[60.0, -3600.0], ids=["forward", "back"])
def step(request: pytest.FixtureRequest, testbed: TestBed) -> Callable[[], None]:
    """Changes the system's time, and not the clock by which all wait."""

    def step() -> None:
        testbed.clock._start += request.param

    return step


class Slow(Agent):
    @on_request()
    async def asked(self, request: Message) -> str:
        await self.clock.sleep(10)
        return "done"


async def test_a_change_of_the_system_s_time_loses_no_answer(testbed: TestBed, step: Callable[[], None]) -> None:
    await testbed.start(Slow("slow"))
    probe = await testbed.probe()
    asking = asyncio.ensure_future(probe.request_action("x", to="slow", timeout=30)._ask())
    await testbed.clock.advance(1)
    step()
    assert (await testbed.clock.run(asking, limit=20)).text == "done"


async def test_a_change_of_the_system_s_time_lengthens_no_wait(testbed: TestBed, step: Callable[[], None]) -> None:
    await testbed.start(Agent("mute"))
    probe = await testbed.probe()
    asking = asyncio.ensure_future(probe.request_action("x", to="mute", timeout=30)._ask())
    await testbed.clock.advance(1)
    step()
    await testbed.clock.advance(28)
    assert not asking.done()
    with pytest.raises(ConversationTimeout):
        await testbed.clock.run(asking, limit=2)

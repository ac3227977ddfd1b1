"""Agents in conversation on an embedded platform."""

import asyncio
import copy
from collections.abc import AsyncIterator

import pytest

from sealbus import (
    AID,
    AclMessage,
    Agent,
    AnswerNotTaken,
    Filter,
    Message,
    Performative,
    Platform,
    ReceiveTimeout,
    RequestTimeout,
    SendError,
    Undeliverable,
    on,
)


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    async with Platform() as platform:
        yield platform


class Echo(Agent):
    async def on_message(self, message: Message) -> None:
        if message.performative is Performative.REQUEST:
            await self.reply(message, Performative.INFORM, message.content)


# ----- sending and receiving


async def test_a_message_arrives_as_it_was_sent(platform: Platform) -> None:
    anna, ben = await platform.start(Agent("anna")), await platform.start(Agent("ben"))
    sent = AclMessage(
        Performative.PROPOSE,
        ben.aid,
        b"\x00\xff",
        ontology="trade",
        protocol="fipa-contract-net",
        conversation_id="sale 7",
        reply_with="r1",
        user_defined={"X-n": 1},
    )
    await anna.send(sent)
    received = await ben.receive(timeout=60)
    assert received == sent.replace(sender=anna.aid)
    assert received.sender_name == anna.aid.name == f"anna@{platform.name}"
    assert received.provenance == "same-process"
    assert received.is_trusted
    assert received.undelivered is None


async def test_a_copy_of_a_message_is_the_message(platform: Platform) -> None:
    anna = await platform.start(Agent("anna"))
    await anna.send(AclMessage("inform", "anna", "hello"))
    message = await anna.receive(timeout=60)
    assert copy.copy(message) is message
    assert copy.deepcopy([message])[0] is message


async def test_agents_are_who_they_say(platform: Platform) -> None:
    anna = await platform.start(Agent("anna"))
    assert (anna.name, anna.platform) == ("anna", platform.name)
    assert anna.peer("ben") == AID(f"ben@{platform.name}")
    assert anna.peer("ben@elsewhere") == AID("ben@elsewhere")
    with pytest.raises(SendError, match="ben"):
        await anna.send(AclMessage("inform", anna.aid, sender="ben"))


async def test_text_is_text_and_bytes_are_bytes(platform: Platform) -> None:
    anna = await platform.start(Agent("anna"))
    await anna.send_many([AclMessage("inform", "anna", "é"), AclMessage("inform", "anna", b"e")])
    assert (await anna.receive()).text == "é"
    with pytest.raises(ValueError, match="bytes"):
        _ = (await anna.receive()).text


async def test_a_message_goes_to_all_its_receivers(platform: Platform) -> None:
    agents = [await platform.start(Agent(name)) for name in ("anna", "ben", "cleo")]
    await agents[0].send(AclMessage("inform", ["ben", "cleo", "anna"], "hello"))
    for agent in agents:
        assert (await agent.receive(timeout=60)).text == "hello"


async def test_a_filter_leaves_the_rest_in_order(platform: Platform) -> None:
    anna, ben = await platform.start(Agent("anna")), await platform.start(Agent("ben"))
    for number in range(6):
        performative = "inform" if number % 2 else "request"
        await anna.send(AclMessage(performative, ben.aid, str(number), conversation_id=f"c{number % 3}"))
    assert (await ben.receive(Filter("inform"))).text == "1"
    assert (await ben.receive(Filter(conversation_id="c2"))).text == "2"
    assert (await ben.receive(Filter("inform") & Filter(conversation_id="c2"))).text == "5"
    assert (await ben.receive(~Filter("request"))).text == "3"
    assert (await ben.receive(Filter("inform") | Filter(sender=anna.aid))).text == "0"
    assert (await ben.receive()).text == "4"
    with pytest.raises(ReceiveTimeout, match=f"ben@{platform.name}.*performative cfp"):
        await ben.receive(Filter("cfp"), timeout=0.01)


async def test_a_filter_without_platform_is_refused(platform: Platform) -> None:
    with pytest.raises(ValueError, match="anna@PLATFORM"):
        Filter(sender="anna")


async def test_receive_times_out_and_goes_on(platform: Platform) -> None:
    anna = await platform.start(Agent("anna"))
    with pytest.raises(TimeoutError, match="anna"):
        await anna.receive(timeout=0.01)
    await anna.send(AclMessage("inform", "anna", "late"))
    assert (await anna.receive(timeout=60)).text == "late"


async def test_a_cancelled_receive_loses_no_message(platform: Platform) -> None:
    anna, ben = await platform.start(Agent("anna")), await platform.start(Agent("ben"))
    for number in range(200):
        waiting = asyncio.create_task(ben.receive())
        await asyncio.sleep(0)
        await anna.send(AclMessage("inform", ben.aid, str(number)))
        if number % 3:
            # Before, while and after the loop is told of the message.
            for _ in range(number % 5):
                await asyncio.sleep(0)
            waiting.cancel()
        try:
            received = await waiting
        except asyncio.CancelledError:
            received = await ben.receive(timeout=60)
        assert received.text == str(number)


async def test_several_waiters_each_get_theirs(platform: Platform) -> None:
    anna, ben = await platform.start(Agent("anna")), await platform.start(Agent("ben"))
    async with asyncio.TaskGroup() as group:
        waiting = [
            group.create_task(ben.receive(Filter(conversation_id=f"c{number}"), timeout=60))
            for number in range(100)
        ]
        any_other = group.create_task(ben.receive(timeout=60))
        await asyncio.sleep(0)
        for number in reversed(range(100)):
            await anna.send(AclMessage("inform", ben.aid, conversation_id=f"c{number}"))
        await anna.send(AclMessage("inform", ben.aid, "other"))
    assert [task.result().conversation_id for task in waiting] == [f"c{n}" for n in range(100)]
    assert any_other.result().text == "other"


async def test_requests_of_tasks_wait_side_by_side_and_on_message_gets_none_of_it(platform: Platform) -> None:
    class Asker(Agent):
        strays = 0

        async def on_message(self, message: Message) -> None:
            self.strays += 1

    asker = await platform.start(Asker("asker"))
    await platform.start(Echo("echo"))
    replies = await asyncio.gather(
        *(asker.request(AclMessage("request", "echo", str(n)), timeout=60) for n in range(500))
    )
    assert [reply.text for reply in replies] == [str(n) for n in range(500)]
    assert asker.strays == 0


async def test_whoever_agreed_is_told_when_nobody_waits_any_more(platform: Platform) -> None:
    class Worker(Agent):
        async def on_message(self, message: Message) -> None:
            if message.performative is Performative.REQUEST:
                await self.reply(message, Performative.AGREE)
                await self.send(AclMessage("inform", "asker", "agreed"))
            elif message.performative is Performative.CANCEL:
                # Nobody waits for this answer, and nobody gets it.
                await self.reply(message, Performative.INFORM, "stopped")
                await self.send(AclMessage("inform", "asker", "told"))

    asker = await platform.start(Agent("asker"))
    await platform.start(Worker("worker"))
    asking = asyncio.create_task(asker.request(AclMessage("request", "worker"), timeout=60))
    assert (await asker.receive(timeout=60)).text == "agreed"
    asking.cancel()
    assert (await asker.receive(timeout=60)).text == "told"


# ----- many messages


@pytest.mark.parametrize("batches", [False, True])
async def test_thousands_both_ways_none_lost_and_in_order(platform: Platform, batches: bool) -> None:
    count = 20_000
    anna, ben = await platform.start(Agent("anna")), await platform.start(Agent("ben"))

    async def speak(agent: Agent, other: Agent) -> None:
        if batches:
            for start in range(0, count, 500):
                await agent.send_many(
                    [AclMessage("inform", other.aid, str(n)) for n in range(start, start + 500)]
                )
        else:
            for number in range(count):
                await agent.send(AclMessage("inform", other.aid, str(number)))

    async def hear(agent: Agent) -> None:
        numbers: list[int] = []
        while len(numbers) < count:
            if batches:
                numbers += [int(message.text) for message in await agent.receive_many(timeout=60)]
            else:
                numbers.append(int((await agent.receive(timeout=60)).text))
        assert numbers == list(range(count))

    async with asyncio.TaskGroup() as group:
        group.create_task(speak(anna, ben))
        group.create_task(speak(ben, anna))
        group.create_task(hear(anna))
        group.create_task(hear(ben))


async def test_a_full_mailbox_holds_back_its_writers_only(platform: Platform) -> None:
    fast, slow = await platform.start(Agent("fast")), await platform.start(Agent("slow"))
    other = await platform.start(Agent("other"))
    large = AclMessage("inform", slow.aid, b"x" * 100_000)

    sent = 0

    async def flood() -> None:
        nonlocal sent
        while sent < 1000:
            await fast.send(large.replace(reply_with=sent))
            sent += 1

    flooding = asyncio.create_task(flood())
    before = -1
    while not 0 < sent == before:
        before = sent
        # A sender that finds room goes on in each turn of the loop.
        for _ in range(100):
            await asyncio.sleep(0)
    assert sent < 1000, "a mailbox took 100 MB"
    await fast.send(AclMessage("inform", other.aid, "still here"))
    assert (await other.receive(timeout=60)).text == "still here"
    numbers = [(await slow.receive(timeout=60)).reply_with for _ in range(1000)]
    assert numbers == [str(number) for number in range(1000)]
    await flooding


async def test_a_limit_on_the_wait_for_a_full_mailbox(platform: Platform) -> None:
    fast, slow = await platform.start(Agent("fast")), await platform.start(Agent("slow"))
    large = AclMessage("inform", slow.aid, b"x" * 100_000)
    accepted = 0
    with pytest.raises(TimeoutError):
        while accepted < 1000:
            async with asyncio.timeout(0.5):
                await fast.send(large.replace(reply_with=accepted))
            accepted += 1
    numbers = [(await slow.receive(timeout=60)).reply_with for _ in range(accepted)]
    assert numbers == [str(number) for number in range(accepted)]
    # The message whose wait was over was not sent.
    await fast.send(large.replace(reply_with="next"))
    assert (await slow.receive(timeout=60)).reply_with == "next"


async def test_batch_calls_refuse_what_makes_no_sense(platform: Platform) -> None:
    anna = await platform.start(Agent("anna"))
    await anna.send_many([])
    with pytest.raises(ValueError, match="at least one"):
        await anna.receive_many(0)
    with pytest.raises(TypeError):
        await anna.send_many(["hello"])  # type: ignore[list-item]
    await anna.send_many(AclMessage("inform", "anna", str(n)) for n in range(10))
    assert [m.text for m in await anna.receive_many(3)] == ["0", "1", "2"]
    assert len(await anna.receive_many()) == 7
    with pytest.raises(ReceiveTimeout):
        await anna.receive_many(timeout=0.01)


# ----- requests


async def test_a_request_finds_its_reply(platform: Platform) -> None:
    await platform.start(Echo("echo"))
    anna = await platform.start(Agent("anna"))
    reply = await anna.request(AclMessage("request", "echo", "hello"), timeout=60)
    assert (reply.text, reply.performative) == ("hello", Performative.INFORM)


async def test_many_requests_at_once_keep_apart(platform: Platform) -> None:
    await platform.start(Echo("echo"))
    anna = await platform.start(Agent("anna"))
    requests = [anna.request(AclMessage("request", "echo", str(n)), timeout=60) for n in range(300)]
    replies = await asyncio.gather(*requests)
    assert [reply.text for reply in replies] == [str(n) for n in range(300)]


async def test_a_request_passes_over_agree(platform: Platform) -> None:
    class Slow(Agent):
        async def on_message(self, message: Message) -> None:
            await self.reply(message, Performative.AGREE)
            await asyncio.sleep(0.01)
            await self.reply(message, Performative.FAILURE, "broken")

    await platform.start(Slow("slow"))
    anna = await platform.start(Agent("anna"))
    reply = await anna.request(AclMessage("request", "slow"), timeout=60)
    assert (reply.performative, reply.content) == ("failure", "broken")


async def test_a_request_without_reply_times_out(platform: Platform) -> None:
    deaf, anna = await platform.start(Agent("deaf")), await platform.start(Agent("anna"))
    with pytest.raises(RequestTimeout, match=r"deaf@.* did not reply within 0\.05 s") as caught:
        await anna.request(AclMessage("request", deaf.aid), timeout=0.05)
    assert caught.value.agent == anna.aid.name
    assert isinstance(caught.value, TimeoutError)


async def test_an_asker_that_reads_no_answers_holds_up_no_other(platform: Platform) -> None:
    refused: list[AnswerNotTaken] = []

    class Service(Agent):
        async def on_message(self, message: Message) -> None:
            try:
                await self.reply(message, Performative.INFORM, bytes(1 << 20))
            except AnswerNotTaken as problem:
                refused.append(problem)
                raise

    service = await platform.start(Service("service"))
    mallory, anna = await platform.start(Agent("mallory")), await platform.start(Agent("anna"))
    # Room for eight answers.
    for _ in range(30):
        await mallory.send(AclMessage(Performative.REQUEST, service.aid))
    reply = await anna.request(AclMessage(Performative.REQUEST, service.aid), timeout=60)
    assert reply.performative is Performative.INFORM
    assert len(refused) > 10 and "mallory@" in str(refused[0])
    await mallory.receive_many()
    await mallory.request(AclMessage(Performative.REQUEST, service.aid), timeout=60)


async def test_a_request_to_nobody_fails_at_once(platform: Platform) -> None:
    anna = await platform.start(Agent("anna"))
    with pytest.raises(Undeliverable, match="nobody"):
        await anna.request(AclMessage("request", "nobody"), timeout=60)


async def test_a_message_to_nobody_comes_back(platform: Platform) -> None:
    anna = await platform.start(Agent("anna"))
    await anna.send(AclMessage("inform", "nobody", conversation_id="c1", reply_with="r1"))
    failure = await anna.receive(timeout=60)
    assert (failure.performative, failure.provenance) == ("failure", "platform")
    assert (failure.conversation_id, failure.in_reply_to) == ("c1", "r1")
    assert failure.undelivered is not None
    assert failure.undelivered[0] == f"nobody@{platform.name}"


# ----- hooks


async def test_handlers_take_what_they_describe(platform: Platform) -> None:
    taken: list[tuple[str, str]] = []

    class Base(Agent):
        @on("cfp")
        async def call(self, message: Message) -> None:
            taken.append(("base call", message.text))

        @on(protocol="fipa-subscribe")
        async def subscription(self, message: Message) -> None:
            taken.append(("subscription", message.text))

    class Seller(Base):
        async def call(self, message: Message) -> None:
            taken.append(("call", message.text))

        @on(Performative.REQUEST, ontology="trade")
        async def trade(self, message: Message) -> None:
            taken.append(("trade", message.text))

        async def on_message(self, message: Message) -> None:
            taken.append(("rest", message.text))
            if message.text == "5":
                self.stop()

    await platform.start(Seller("seller"))
    anna = await platform.start(Agent("anna"))
    to = anna.peer("seller")
    await anna.send_many(
        [
            AclMessage("cfp", to, "1"),
            AclMessage("request", to, "2"),
            AclMessage("request", to, "3", ontology="trade"),
            AclMessage("inform", to, "4", protocol="fipa-subscribe"),
            AclMessage("inform", to, "5"),
        ]
    )
    while len(taken) < 5:
        await asyncio.sleep(0.001)
    assert taken == [("call", "1"), ("rest", "2"), ("trade", "3"), ("subscription", "4"), ("rest", "5")]


async def test_what_is_not_understood_is_said(platform: Platform) -> None:
    class Deaf(Agent):
        @on("cfp")
        async def call(self, message: Message) -> None: ...

    await platform.start(Deaf("deaf"))
    anna = await platform.start(Agent("anna"))
    reply = await anna.request(AclMessage("request", "deaf"), timeout=60)
    assert reply.performative is Performative.NOT_UNDERSTOOD
    await anna.send(AclMessage("not-understood", "deaf"))
    # An answer to that would come before the next one.
    reply = await anna.request(AclMessage("request", "deaf"), timeout=60)
    assert reply.performative is Performative.NOT_UNDERSTOOD
    assert anna._living.handle.try_receive(None) is None


async def test_hooks_run_one_after_the_other(platform: Platform) -> None:
    class Careful(Agent):
        inside = 0

        async def on_message(self, message: Message) -> None:
            assert self.inside == 0
            self.inside += 1
            answer = await self.request(AclMessage("request", "echo", message.content), timeout=60)
            self.inside -= 1
            await self.reply(message, "inform", answer.content)

    await platform.start(Echo("echo"))
    await platform.start(Careful("careful"))
    anna = await platform.start(Agent("anna"))
    requests = [anna.request(AclMessage("request", "careful", str(n)), timeout=60) for n in range(50)]
    assert [reply.text for reply in await asyncio.gather(*requests)] == [str(n) for n in range(50)]


async def test_a_task_beside_the_hooks_gets_its_own_replies(platform: Platform) -> None:
    replies: list[str] = []

    class Busy(Agent):
        async def setup(self) -> None:
            self.create_task(self.question())

        async def question(self) -> None:
            for number in range(100):
                reply = await self.request(AclMessage("request", "echo", str(number)), timeout=60)
                replies.append(reply.text)
            self.stop()

        async def on_message(self, message: Message) -> None:
            assert message.performative == "inform"
            assert message.content == "noise"

    await platform.start(Echo("echo"))
    await platform.start(Busy("busy"))
    anna = await platform.start(Agent("anna"))
    while len(replies) < 100:
        with_noise = AclMessage("inform", "busy", "noise")
        await anna.send(with_noise)
        await asyncio.sleep(0)
        if len(replies) >= 99:
            break
    while len(replies) < 100:
        await asyncio.sleep(0.001)
    assert replies == [str(n) for n in range(100)]


async def test_an_agent_starts_another(platform: Platform) -> None:
    class Parent(Agent):
        async def setup(self) -> None:
            child = await self.spawn(Echo("child"))
            assert child == self.peer("child")
            reply = await self.request(AclMessage("request", child, "hello"), timeout=60)
            self.heard = reply.text

    parent = await platform.start(Parent())
    while not hasattr(parent, "heard"):
        await asyncio.sleep(0.001)
    assert (parent.name, parent.heard) == ("parent", "hello")

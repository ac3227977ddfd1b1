"""Programs for SPADE on `sealbus.spade`: one test for each of SPADE's own examples, of the same classes and calls."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from sealbus import AclMessage, spade
from sealbus.spade import JID, NotOffered
from sealbus.spade.agent import Agent
from sealbus.spade.behaviour import (
    BehaviourNotFinishedException,
    CyclicBehaviour,
    FSMBehaviour,
    OneShotBehaviour,
    PeriodicBehaviour,
    State,
    TimeoutBehaviour,
)
from sealbus.spade.container import Container
from sealbus.spade.inbox import MOST_MESSAGES
from sealbus.spade.message import Message
from sealbus.spade.presence import ContactNotFound, PresenceShow, PresenceType, Stanza
from sealbus.spade.template import Template
from sealbus.testing import TestBed


@pytest_asyncio.fixture
async def container(testbed: TestBed) -> AsyncIterator[Container]:
    async with Container(testbed) as container:
        yield container


def agent(name: str) -> Agent:
    return Agent(f"{name}@localhost", "password")


def now(testbed: TestBed) -> datetime:
    return datetime.fromtimestamp(testbed.clock.time())


async def test_dummyagent(container: Container) -> None:
    class Dummy(Agent):
        greeting = ""

        async def setup(self) -> None:
            self.greeting = f"I am {self.jid}"

    dummy = Dummy("dummy@localhost", "password")
    assert not dummy.is_alive()
    await dummy.start()
    assert (dummy.greeting, dummy.name, dummy.is_alive()) == ("I am dummy@localhost", "dummy", True)
    await dummy.stop()
    assert not dummy.is_alive()


async def test_dummybehavior_and_counter_behav(testbed: TestBed, container: Container) -> None:
    lines: list[str] = []

    class Count(CyclicBehaviour):
        async def on_start(self) -> None:
            self.counter = 0

        async def run(self) -> None:
            lines.append(f"counter {self.counter}")
            self.counter += 1
            if self.counter > 2:
                self.kill(exit_code=10)
                return
            await self.agent._clock.sleep(1)

        async def on_end(self) -> None:
            lines.append(f"exit code {self.exit_code}")
            await self.agent.stop()

    dummy = agent("dummy")
    count = Count()
    dummy.add_behaviour(count)
    assert dummy.has_behaviour(count)
    with pytest.raises(BehaviourNotFinishedException):
        assert count.exit_code
    await dummy.start()
    await testbed.clock.run(spade.wait_until_finished(dummy))
    assert lines == ["counter 0", "counter 1", "counter 2", "exit code 10"]
    assert count.is_killed() and count.is_done() and not dummy.has_behaviour(count)


async def test_kill_behavior(testbed: TestBed, container: Container) -> None:
    class Wait(CyclicBehaviour):
        async def run(self) -> None:
            if await self.receive(timeout=1) is None:
                self.kill(exit_code="nothing came")

    dummy = agent("dummy")
    wait = Wait()
    await dummy.start()
    dummy.add_behaviour(wait)
    await testbed.clock.run(wait.join(), limit=2)
    assert wait.exit_code == "nothing came"


async def test_agent_inside_agent(container: Container) -> None:
    class Create(OneShotBehaviour):
        async def run(self) -> None:
            self.agent.inner = Agent(f"inner@{JID(str(self.agent.jid)).domain}", "password")
            await self.agent.inner.start(auto_register=True)

    outer: Any = agent("outer")
    create = Create()
    outer.add_behaviour(create)
    await outer.start()
    await create.join()
    assert outer.inner.is_alive() and container.has_agent("inner@localhost")
    assert container.get_agent("inner@localhost") is outer.inner


class Machine(FSMBehaviour):
    lines: list[str]

    async def on_start(self) -> None:
        self.lines = [f"starts at {self.current_state}"]

    async def on_end(self) -> None:
        self.lines.append(f"ends at {self.current_state}")
        await self.agent.stop()


class First(State):
    async def run(self) -> None:
        await self.send(Message(to=str(self.agent.jid), body="from the first to the third"))
        self.set_next_state("second")


class Second(State):
    async def run(self) -> None:
        self.set_next_state("third")


class Third(State):
    async def run(self) -> None:
        message = await self.receive(timeout=5)
        self.set("heard", message and message.body)


async def test_fsm_example(testbed: TestBed, container: Container) -> None:
    machine = Machine()
    machine.add_state(name="first", state=First(), initial=True)
    machine.add_state(name="second", state=Second())
    machine.add_state(name="third", state=Third())
    machine.add_transition(source="first", dest="second")
    machine.add_transition(source="second", dest="third")
    assert "first -> second;second -> third;" in machine.to_graphviz()
    automaton = agent("automaton")
    automaton.add_behaviour(machine)
    await automaton.start()
    await machine.get_state("second").join()
    await testbed.clock.run(spade.wait_until_finished(automaton))
    assert machine.lines == ["starts at first", "ends at third"]
    assert automaton.get("heard") == "from the first to the third"


async def test_humanintheloop(testbed: TestBed, container: Container) -> None:
    class Echo(CyclicBehaviour):
        async def run(self) -> None:
            message = await self.receive(timeout=60)
            if message:
                await self.send(message.make_reply())

    echo = agent("echo")
    echo.presence.approve_all = True
    echo.add_behaviour(Echo())
    await echo.start()
    human = await testbed.probe("human")
    answer = await human.request(AclMessage("query-ref", "echo", "anyone?", conversation_id="c-1"), timeout=60)
    assert (answer.text, answer.conversation_id, answer.sender_name) == ("anyone?", "c-1", f"echo@{testbed.name}")


async def test_join(testbed: TestBed, container: Container) -> None:
    order: list[str] = []

    class Long(TimeoutBehaviour):
        async def run(self) -> None:
            order.append("long")

    class Waiting(OneShotBehaviour):
        async def run(self) -> None:
            await long.join()
            order.append("waiting")

    dummy = agent("dummy")
    long, waiting = Long(now(testbed) + timedelta(seconds=5)), Waiting()
    dummy.add_behaviour(waiting)
    dummy.add_behaviour(long)
    await dummy.start()
    with pytest.raises(TimeoutError):
        await testbed.clock.run(long.join(timeout=1))
    await testbed.clock.run(waiting.join())
    assert order == ["long", "waiting"]


async def test_performance(container: Container) -> None:
    many = 3 * MOST_MESSAGES

    class Receive(OneShotBehaviour):
        async def run(self) -> None:
            self.agent.bodies = []
            while len(self.agent.bodies) < many:
                message = await self.receive(timeout=1000)
                assert message is not None
                self.agent.bodies.append(message.body)

    class Send(OneShotBehaviour):
        async def run(self) -> None:
            for number in range(many):
                await self.send(Message(to="receiver@localhost", body=str(number)))

    # A name is free again when its agent has stopped.
    for _ in range(2):
        receiver: Any = agent("receiver")
        sender, receive = agent("sender"), Receive()
        receiver.add_behaviour(receive)
        sender.add_behaviour(Send())
        await receiver.start()
        await sender.start()
        await receive.join()
        assert receiver.bodies == [str(number) for number in range(many)]
        await sender.stop()
        await receiver.stop()


async def test_periodic_example(testbed: TestBed, container: Container) -> None:
    times: list[float] = []
    heard: list[str | None] = []
    begin = testbed.clock.now()

    class Inform(PeriodicBehaviour):
        counter = 0

        async def run(self) -> None:
            times.append(testbed.clock.now() - begin)
            await self.send(Message(to=self.get("receiver_jid"), body=str(self.counter)))
            if self.counter == 2:
                self.kill()
            self.counter += 1

        async def on_end(self) -> None:
            await self.agent.stop()

    class Receive(CyclicBehaviour):
        async def run(self) -> None:
            message = await self.receive(timeout=10)
            if message:
                heard.append(message.body)
            else:
                self.kill()

        async def on_end(self) -> None:
            await self.agent.stop()

    receiver, sender = agent("receiver"), agent("sender")
    receiver.add_behaviour(Receive())
    sender.set("receiver_jid", "receiver@localhost")
    sender.add_behaviour(Inform(period=2, start_at=now(testbed) + timedelta(seconds=5)))
    await spade.start_agents([receiver, sender])
    await testbed.clock.run(spade.wait_until_finished([sender, receiver]))
    assert [round(moment, 3) for moment in times] == [5, 7, 9]
    assert heard == ["0", "1", "2"]


class Friend(Agent):
    """Notes the presence of others, and approves."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name}@localhost", "password")
        self.news: list[str] = []
        self.presence.on_subscribe = self.approve
        self.presence.on_subscribed = lambda jid: self.news.append(f"{jid} approves")
        self.presence.on_available = self.note
        self.presence.on_unavailable = self.note

    def approve(self, jid: str) -> None:
        self.presence.approve_subscription(jid)

    def note(self, jid: str, info: Any, last: Any) -> None:
        self.news.append(f"{jid} is {info.type.value} {info.show.value}")

    async def hears(self, *news: str) -> None:
        async with asyncio.timeout(300):
            while self.news != [*news]:
                await asyncio.sleep(0.01)


async def test_presence_subscribe_friends(container: Container) -> None:
    anna, berta = Friend("anna"), Friend("berta")
    await berta.start()
    await anna.start()
    anna.presence.subscribe("berta@localhost")
    await anna.hears("berta@localhost approves", "berta@localhost is available none")
    assert anna.presence.get_contact("berta@localhost").subscription == "to"
    assert berta.presence.get_contact("anna@localhost").subscription == "from"
    assert list(anna.presence.get_contacts()) == ["berta@localhost"]
    assert not berta.presence.get_contacts() and not berta.news
    anna.news.clear()
    berta.presence.set_presence(PresenceType.AVAILABLE, PresenceShow.DND, status="no tea", priority=3)
    await anna.hears("berta@localhost is available dnd")
    info = anna.presence.get_contact_presence("berta@localhost/any")
    assert (info.status, info.priority) == ("no tea", 3)
    with pytest.raises(ContactNotFound):
        anna.presence.get_contact("clara@localhost")
    anna.news.clear()
    await berta.stop()
    await anna.hears("berta@localhost is unavailable none")
    # Berta's own word may come after the AMS's.
    await anna.presence._hear(JID("berta@localhost"), Stanza(PresenceType.UNAVAILABLE))
    assert anna.news == ["berta@localhost is unavailable none"]


async def test_sub_both(container: Container) -> None:
    anna, berta = Friend("anna"), Friend("berta")
    await anna.start()
    # Berta is not there yet: the platform keeps the question for her.
    anna.presence.subscribe("berta@localhost")
    await berta.start()
    berta.presence.subscribe("anna@localhost")
    await anna.hears("berta@localhost approves", "berta@localhost is available none")
    await berta.hears("anna@localhost approves", "anna@localhost is available none")
    for friend, other in ((anna, "berta@localhost"), (berta, "anna@localhost")):
        assert friend.presence.get_contact(other).subscription == "both"
    anna.presence.unsubscribe("berta@localhost")
    async with asyncio.timeout(300):
        while berta.presence.get_contact("anna@localhost").subscription != "to":
            await asyncio.sleep(0.01)
    assert anna.presence.get_contact("berta@localhost").subscription == "from"


async def test_send_and_recv(testbed: TestBed, container: Container) -> None:
    heard: list[Message | None] = []

    class Inform(OneShotBehaviour):
        async def run(self) -> None:
            for performative in ("request", "inform"):
                message = Message(to=self.agent.receiver, body=performative, thread="t-1")
                message.set_metadata("performative", performative)
                message.set_metadata("farbe", "grün")
                await self.send(message)
                assert message.sent
            await self.agent.stop()

    class Receive(OneShotBehaviour):
        async def run(self) -> None:
            heard.append(await self.receive(timeout=10))
            await self.agent.stop()

    class Sender(Agent):
        def __init__(self, receiver: str, *arguments: Any) -> None:
            self.receiver = receiver
            super().__init__(*arguments)

        async def setup(self) -> None:
            self.add_behaviour(Inform())

    receiver = agent("receiver")
    template = Template()
    template.set_metadata("performative", "inform")
    receiver.add_behaviour(Receive(), template)
    sender = Sender("receiver@localhost", "sender@localhost", "password")
    await spade.start_agents([receiver, sender])
    await testbed.clock.run(spade.wait_until_finished(receiver))
    (message,) = heard
    assert message is not None
    assert (message.body, message.thread, message.sender, message.to) == (
        "inform", "t-1", JID("sender@localhost"), JID("receiver@localhost"),
    )  # fmt: skip
    assert message.metadata == {"performative": "inform", "farbe": "grün"}
    assert [event.body for _, event, _ in sender.traces.all()] == ["request", "inform"]
    assert [(event.body, behaviour is None) for _, event, behaviour in receiver.traces.received()] == [
        ("request", True), ("inform", False),
    ]  # fmt: skip


async def test_timeout_example(testbed: TestBed, container: Container) -> None:
    class Inform(TimeoutBehaviour):
        async def run(self) -> None:
            self.set("moment", testbed.clock.now())

    sender, begin = agent("sender"), testbed.clock.now()
    inform = Inform(start_at=now(testbed) + timedelta(seconds=5))
    sender.add_behaviour(inform)
    await sender.start()
    await testbed.clock.run(inform.join())
    assert round(sender.get("moment") - begin, 3) == 5


@pytest.mark.parametrize("name", ["web", "client"])
async def test_web_interface_and_what_else_is_not_offered(container: Container, name: str) -> None:
    with pytest.raises(NotOffered, match=f"SPADE's {name}: "):
        getattr(agent("dummy"), name)


@pytest.mark.parametrize("name", ["web", "upload_file", "send_file", "upload_and_send_file", "download_file"])
def test_what_behaviours_do_not_offer(name: str) -> None:
    with pytest.raises(NotOffered, match=f"SPADE's {name}: "):
        getattr(Machine(), name)
    with pytest.raises(AttributeError, match="no attribute 'wed'"):
        getattr(Machine(), "wed")


def test_what_the_module_and_messages_do_not_offer() -> None:
    with pytest.raises(NotOffered, match="sealbus logs"):
        getattr(spade, "web")
    with pytest.raises(NotOffered):
        getattr(Message(), "prepare")
    with pytest.raises(NotOffered, match="there are no XMPP stanzas"):
        Message.from_node(None)

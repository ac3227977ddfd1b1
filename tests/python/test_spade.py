"""A program for SPADE on `sealbus.spade` may rely on this, besides what SPADE's examples do (`test_spade_examples.py`)."""

import asyncio
import json
import logging
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from sealbus import AclMessage, AgentFailed, PlatformError, SendError, spade
from sealbus import Agent as Native
from sealbus.handlers import Handlers
from sealbus.spade import JID, NotOffered
from sealbus.spade.agent import Agent, AuthenticationFailure
from sealbus.spade.behaviour import (
    CyclicBehaviour,
    NotValidState,
    NotValidTransition,
    OneShotBehaviour,
    PeriodicBehaviour,
    State,
)
from sealbus.spade.container import Container
from sealbus.spade.fipa_message import (
    FIPAMessageBuilder,
    FIPAMessageParser,
    InvalidPerformativeError,
    PerformativeNotSetError,
)
from sealbus.spade.inbox import MOST_MESSAGES
from sealbus.spade.message import Message
from sealbus.spade.template import Template
from sealbus.testing import TestBed

from test_spade_examples import Friend, Machine, Third, agent, now


@pytest_asyncio.fixture
async def container(testbed: TestBed) -> AsyncIterator[Container]:
    async with Container(testbed) as container:
        yield container


async def test_what_run_raises_kills_the_behaviour_and_is_its_exit_code(container: Container) -> None:
    class Fails(CyclicBehaviour):
        has_ended = False

        async def run(self) -> None:
            raise LookupError("no tea")

        async def on_end(self) -> None:
            self.has_ended = True

    dummy, fails = agent("dummy"), Fails()
    dummy.add_behaviour(fails)
    await dummy.start()
    await fails.join()
    assert isinstance(fails.exit_code, LookupError) and fails.has_ended
    assert dummy.is_alive()


@pytest.mark.parametrize(("following", "kind"), [("nowhere", NotValidState), ("third", NotValidTransition)])
async def test_a_machine_ends_at_a_wrong_transition(
    container: Container, following: str, kind: type[Exception]
) -> None:
    class Wrong(State):
        async def run(self) -> None:
            self.set_next_state(following)

    machine = Machine()
    machine.add_state("first", Wrong(), initial=True)
    machine.add_state("third", Third())
    automaton = agent("automaton")
    automaton.add_behaviour(machine)
    await automaton.start()
    await machine.join()
    assert isinstance(machine.exit_code, kind) and machine.current_state == "first"


async def test_what_setup_raises_comes_out_of_start(container: Container) -> None:
    class Broken(Agent):
        async def setup(self) -> None:
            raise LookupError("no tea")

    with pytest.raises(LookupError, match="no tea"):
        await Broken("broken@localhost", "password").start()


async def test_stopping_interrupts_what_waits_and_ends_it(testbed: TestBed, container: Container) -> None:
    ended: list[str] = []

    class Reader(CyclicBehaviour):
        async def run(self) -> None:
            await self.receive(timeout=3600)
            ended.append("never")

        async def on_end(self) -> None:
            ended.append("reader")

    class Clockwork(PeriodicBehaviour):
        async def run(self) -> None:
            ended.append("never")

        async def on_end(self) -> None:
            ended.append("clockwork")

    dummy = agent("dummy")
    dummy.add_behaviour(Reader())
    dummy.add_behaviour(Clockwork(60, start_at=now(testbed) + timedelta(hours=1)))
    await dummy.start()
    await testbed.clock.settle()
    await dummy.stop()
    assert sorted(ended) == ["clockwork", "reader"] and not dummy.behaviours


async def test_a_behaviour_that_never_reads_holds_up_nobody(
    container: Container, caplog: pytest.LogCaptureFixture
) -> None:
    class Deaf(CyclicBehaviour):
        async def run(self) -> None:
            await asyncio.sleep(0.01)

    class Hears(CyclicBehaviour):
        last = ""

        async def run(self) -> None:
            message = await self.receive(timeout=60)
            if message:
                self.last = message.body or ""

    class Sends(OneShotBehaviour):
        async def run(self) -> None:
            for number in range(2 * MOST_MESSAGES):
                await self.send(Message(to="dummy@localhost", body=str(number)))

    dummy, deaf, hears = agent("dummy"), Deaf(), Hears()
    for behaviour in (deaf, hears, Sends()):
        dummy.add_behaviour(behaviour)
    await dummy.start()
    async with asyncio.timeout(300):
        while hears.last != str(2 * MOST_MESSAGES - 1):
            await asyncio.sleep(0.01)
    assert 0 < deaf.mailbox_size() <= MOST_MESSAGES
    newest = None
    while (message := await deaf.receive()) is not None:
        newest = message.body
    assert newest == hears.last


async def test_a_behaviour_that_reads_no_more_loses_the_oldest_messages(
    testbed: TestBed, container: Container, caplog: pytest.LogCaptureFixture
) -> None:
    class ReadsOnce(OneShotBehaviour):
        async def run(self) -> None:
            await self.receive(timeout=60)
            await over.wait()

    over = asyncio.Event()
    dummy, once = agent("dummy"), ReadsOnce()
    dummy.add_behaviour(once)
    await dummy.start()
    probe = await testbed.probe()
    for number in range(2 * MOST_MESSAGES):
        await probe.send(AclMessage("inform", "dummy", str(number)))
    with caplog.at_level(logging.WARNING, "spade.behaviour"):
        await testbed.clock.advance(60)
    assert "has read nothing" in caplog.text
    assert once.mailbox_size() == MOST_MESSAGES - 1
    over.set()


async def test_nobody_speaks_in_another_name(container: Container) -> None:
    class Forges(OneShotBehaviour):
        async def run(self) -> None:
            await self.send(Message(to="dummy@localhost", sender="boss@localhost", body="pay"))

    dummy, forges = agent("dummy"), Forges()
    dummy.add_behaviour(forges)
    await dummy.start()
    await forges.join()
    assert isinstance(forges.exit_code, SendError) and "in the name of boss@localhost" in str(forges.exit_code)


async def test_a_lost_message_is_logged_and_told_to_a_behaviour_that_asks(
    testbed: TestBed, container: Container, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []

    class Listens(CyclicBehaviour):
        async def run(self) -> None:
            message = await self.receive(timeout=60)
            if message:
                heard.append(f"{self.get('who')}: {message.sender}")

    class Sends(OneShotBehaviour):
        async def run(self) -> None:
            await self.send(Message(to="nobody@localhost", body="hello"))

    dummy = agent("dummy")
    dummy.set("who", "asked")
    dummy.add_behaviour(Sends(), Template(body="never"))
    dummy.add_behaviour(Listens(), Template(metadata={"performative": "failure"}))
    await dummy.start()
    async with asyncio.timeout(300):
        while not heard:
            await asyncio.sleep(0.01)
    assert heard == ["asked: ams@localhost"]
    assert "a message for nobody" in caplog.text


async def test_native_agents_see_ordinary_messages(testbed: TestBed, container: Container) -> None:
    class Calls(OneShotBehaviour):
        async def run(self) -> None:
            message = Message(to="native@localhost", body="box", thread="sale-7")
            message.set_metadata("performative", "cfp")
            message.set_metadata("ontology", "trade")
            message.set_metadata("reply-by", "2026-11-22T22:00:00+00:00")
            await self.send(message)
            await self.send(Message(to="native@localhost", body="plain"))
            self.agent.answer = await self.receive(timeout=60)

    native = await testbed.start(Native("native"))
    buyer: Any = agent("buyer")
    calls = Calls()
    buyer.add_behaviour(calls)
    await buyer.start()
    call = await native.receive(timeout=60)
    assert (call.performative, call.ontology, call.conversation_id, call.text) == ("cfp", "trade", "sale-7", "box")
    assert isinstance(call.reply_by, datetime) and call.reply_by.year == 2026
    plain = await native.receive(timeout=60)
    assert (plain.performative, plain.conversation_id) == ("inform", None)
    await native.reply(call, "propose", "12 EUR")
    await calls.join()
    answer = buyer.answer
    assert (answer.body, answer.thread, answer.get_metadata("performative")) == ("12 EUR", "sale-7", "propose")
    assert answer.sender == "native@localhost"
    await native.send(AclMessage("inform", "buyer", b"\xff\x00"))
    refused = await native.receive(timeout=60)
    assert refused.performative == "not-understood" and "text only" in refused.text


async def test_messages_of_the_builder_are_acl_messages(testbed: TestBed, container: Container) -> None:
    class Asks(OneShotBehaviour):
        async def run(self) -> None:
            me = str(self.agent.jid)
            await self.send(FIPAMessageBuilder.create_request_message(me, "native@localhost", "sell", {"box": 3}))
            self.agent.answer = await self.receive(timeout=60)

    native = await testbed.start(Native("native"))
    buyer: Any = agent("buyer")
    asks = Asks()
    buyer.add_behaviour(asks)
    await buyer.start()
    request = await native.receive(timeout=60)
    assert (request.performative, request.protocol, request.ontology) == ("request", "fipa-request", "action-request")
    assert isinstance(request.reply_by, datetime) and json.loads(request.text)["parameters"] == {"box": 3}
    await native.reply(request, "agree", '{"price": 12}')
    await asks.join()
    read = FIPAMessageParser(buyer.answer)
    assert read.is_valid_fipa_message(), read.validate_fipa_message()
    assert (read.get_performative(), read.parse_body()) == ("agree", {"price": 12})
    assert read.get_conversation_id() == request.conversation_id
    answer = FIPAMessageBuilder.create_response_message(buyer.answer, "thanks", "confirm")
    assert (answer.to, answer.get_metadata("performative")) == (JID("native@localhost"), "confirm")


def test_the_builder_knows_fipas_performatives() -> None:
    builder = FIPAMessageBuilder("anna@localhost", "berta@localhost").set_body("tea", as_json=False)
    with pytest.raises(PerformativeNotSetError):
        builder.build()
    with pytest.raises(InvalidPerformativeError, match="inform-ref"):
        builder.set_performative("infrom")
    message = builder.set_performative("inform").set_custom_metadata("price", 12).build()
    read = FIPAMessageParser(message)
    assert (read.get_language(), read.get_custom_metadata("price"), read.parse_body()) == ("string", "12", "tea")
    message.metadata = {"performative": "inform", "conversation-id": "c", "language": "json"}
    assert FIPAMessageParser(message).validate_fipa_message() == (False, "the body is not JSON")


async def test_a_contact_that_is_killed_is_unavailable_and_comes_back(testbed: TestBed, container: Container) -> None:
    anna, berta = Friend("anna"), Friend("berta")
    await spade.start_agents([anna, berta])
    anna.presence.subscribe("berta@localhost")
    await anna.hears("berta@localhost approves", "berta@localhost is available none")
    anna.news.clear()
    await testbed.kill("berta")
    await anna.hears("berta@localhost is unavailable none")
    anna.news.clear()
    await Friend("berta").start()
    await anna.hears("berta@localhost is available none")


async def test_a_flood_of_subscriptions_is_answered(
    testbed: TestBed, container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sealbus.spade.presence.MOST_UNSENT", 2)
    anna = Friend("anna")
    await anna.start()
    probe = await testbed.probe("berta")
    body = {"type": "subscribe", "show": "none", "status": "", "priority": 0, "is_here": True}
    for _ in range(20):
        await probe.send(AclMessage("inform", "anna", ontology="spade-presence", body=body))
    for _ in range(20):
        assert (await probe.receive(timeout=300)).body["type"] == "subscribed"


async def test_nobody_makes_himself_a_contact(testbed: TestBed, container: Container) -> None:
    anna = Friend("anna")
    await anna.start()
    probe = await testbed.probe("mallory")
    for said in ("subscribed", "available", "probe"):
        body = {"type": said, "show": "chat", "status": "", "priority": 0, "is_here": True}
        await probe.send(AclMessage("inform", "anna", ontology="spade-presence", body=body))
    await probe.send(AclMessage("inform", "anna", ontology="spade-presence", body={"type": "tea"}))
    await probe.expect("not-understood")
    assert not anna.news and not anna.presence.get_contacts()


async def test_an_agent_may_do_something_before_it_stops(testbed: TestBed) -> None:
    class Last(OneShotBehaviour):
        async def run(self) -> None:
            words.append("goodbye")

    class Polite(Agent):
        async def stop(self) -> None:
            last = Last()
            self.add_behaviour(last)
            await last.join()
            await super().stop()

    words: list[str] = []
    async with Container(testbed):
        asked, left = Polite("asked@localhost", "password"), Polite("left@localhost", "password")
        await spade.start_agents([asked, left])
        await asked.stop()
    assert words == ["goodbye", "goodbye"]


def test_templates_join() -> None:
    template = Template()
    template.metadata = {"performative": "inform"}
    message = Message(body="tea", metadata={"performative": "inform", "price": "12"})
    assert template.match(message) and not (~template).match(message)
    assert (template & Template(body="tea")).match(message) and not (template & Template(body="milk")).match(message)
    assert (template | Template(body="milk")).match(message) and not (template ^ Template(body="tea")).match(message)
    template |= Template(thread="t-1")  # type: ignore[assignment]
    assert template.match(Message(thread="t-1")) and not template.match(Message(thread="t-2"))
    with pytest.raises(TypeError, match="metadata are text"):
        message.set_metadata("price", 12)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a body is text"):
        Message(body={"price": 12})  # type: ignore[arg-type]


async def test_who_may_start(container: Container) -> None:
    await agent("dummy").start()
    with pytest.raises(AuthenticationFailure, match="dummy"):
        await agent("dummy").start()
    with pytest.raises(PlatformError, match="name the agent dummy@localhost"):
        await Agent("dummy@elsewhere", "password").start()
    with pytest.raises(ValueError, match="write node@domain"):
        Agent("localhost", "password")


async def test_an_agent_that_is_being_started_is_not_started_twice(container: Container) -> None:
    class Counts(Agent):
        lives = 0

        async def setup(self) -> None:
            self.lives += 1
            with pytest.raises(PlatformError, match="being started"):
                await self.start()

    dummy = Counts("dummy@localhost", "password")
    first, second = await asyncio.gather(dummy.start(), dummy.start(), return_exceptions=True)
    assert first is None and isinstance(second, PlatformError)
    assert "agent dummy@localhost is being started already" in str(second)
    assert dummy.is_alive() and dummy._on_platform.name == "dummy"
    await dummy.stop()
    await dummy.start()
    assert dummy.lives == 2


async def test_an_agent_that_ends_before_its_setup_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(handlers: Handlers) -> None:
        raise ValueError("out of order")

    monkeypatch.setattr(Handlers, "listed", broken)
    dummy = agent("dummy")
    # The platform's end tells of it as well.
    async with asyncio.timeout(60):
        with pytest.raises(AgentFailed, match="out of order"):
            async with Container():
                with pytest.raises(AgentFailed, match="out of order"):
                    await dummy.start()
                assert not dummy.is_alive()
                monkeypatch.undo()
                await dummy.start()
                assert dummy.is_alive()


async def test_an_agent_does_not_move_without_its_state(container: Container) -> None:
    dummy = agent("dummy")
    await dummy.start()
    with pytest.raises(NotOffered, match=r"derive it from sealbus\.Agent"):
        await dummy._on_platform.save()
    assert dummy.is_alive()


async def test_where_no_agent_can_live() -> None:
    with pytest.raises(PlatformError, match=r"spade\.run\(main\(\)\)"):
        await agent("dummy").start()


def test_quit_spade_ends_all_agents_and_run_ends() -> None:
    alive: list[bool] = []

    async def main() -> None:
        agents = [agent("anna"), agent("berta")]
        await spade.start_agents(agents)
        alive.extend(each.is_alive() for each in agents)
        spade.quit_spade()
        await spade.wait_until_finished(agents)
        alive.extend(each.is_alive() for each in agents)

    spade.run(main(), embedded_xmpp_server=True)
    assert alive == [True, True, False, False]


def test_what_main_raises_is_raised() -> None:
    async def main() -> None:
        await agent("anna").start()
        raise LookupError("no tea")

    with pytest.raises(LookupError, match="no tea"):
        spade.run(main())


FOREVER = """
import asyncio
from sealbus import spade
from sealbus.spade.agent import Agent
from sealbus.spade.behaviour import CyclicBehaviour


class Waits(CyclicBehaviour):
    async def on_start(self):
        print("waiting", flush=True)

    async def run(self):
        await self.receive(timeout=3600)

    async def on_end(self):
        print("ended", flush=True)


async def main():
    waits = Agent("waits@localhost", "password")
    waits.add_behaviour(Waits())
    await waits.start()
    while True:
        await asyncio.sleep(1)


spade.run(main())
print("done")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_program_in_order(number: int) -> None:
    with subprocess.Popen([sys.executable, "-c", FOREVER], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "waiting\n"
        program.send_signal(number)
        assert program.stdout.read() == "ended\ndone\n"
        assert program.wait(300) == 0

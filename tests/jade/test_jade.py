"""Agents of JADE and of Sealbus find each other and talk, over HTTP, in FIPA's String encoding."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from conftest import LIMIT, Jade, Ours
from sealbus import AclMessage, Agent, DfAgentDescription, Filter, Performative, ServiceDescription

MESSAGES = 1000


async def content(agent: Agent) -> str:
    return (await agent.receive(timeout=LIMIT)).content_text or ""


async def order(agent: Agent, jade: Jade, to: str, what: str, *about: object) -> str:
    """Tells one of the tests' JADE agents to do something, and gives its report."""
    message = AclMessage(
        "inform",
        jade.aid(to),
        what,
        ontology="order",
        reply_to=list(about),  # type: ignore[arg-type]
        conversation_id=f"order-{what}",
        reply_with=f"order-{what}",
    )
    await agent.send(message)
    report = await agent.receive(
        Filter(conversation_id=f"order-{what}"), timeout=LIMIT
    )
    return report.content_text or ""


async def test_ping_pong_both_ways(jade: Callable[..., Jade], ours: Ours) -> None:
    plat1 = jade(partner="Partner")
    pinger = await ours.agent("pinger")
    for text in ["ping", 'with "quotes" (and) \\ more', "two\nlines"]:
        ping = AclMessage("request", plat1.aid("partner"), text)
        pong = await pinger.request(ping, timeout=LIMIT)
        assert pong.content_text == text
        assert pong.performative == Performative.INFORM
        assert pong.sender is not None and pong.sender.name == "partner@plat1"
        assert pong.provenance == "foreign"
        # An answer to the answer needs no address but the one in the answer.
        assert plat1.address in pong.sender.addresses
        again = await pinger.request(pong.create_reply("request", "again"), timeout=LIMIT)
        assert again.content_text == "again"


async def test_binary_content_comes_back(jade: Callable[..., Jade], ours: Ours) -> None:
    plat1 = jade(partner="Partner")
    pinger = await ours.agent("pinger")
    data = bytes(range(256))
    pong = await pinger.request(AclMessage("request", plat1.aid("partner"), data), timeout=LIMIT)
    assert pong.content_bytes == data


async def test_a_thousand_messages_each_way(jade: Callable[..., Jade], ours: Ours) -> None:
    plat1 = jade(partner="Partner")
    agent = await ours.agent("agent")
    partner = plat1.aid("partner")
    # From there to here.
    await agent.send(AclMessage("request", partner, f"send {MESSAGES}"))
    for number in range(MESSAGES):
        assert await content(agent) == str(number)
    # From here to there, and its answers.
    for number in range(MESSAGES):
        await agent.send(AclMessage("inform", partner, str(number)))
    for number in range(MESSAGES):
        assert await content(agent) == str(number)


async def test_an_agent_that_jade_does_not_have(jade: Callable[..., Jade], ours: Ours) -> None:
    plat1 = jade()
    agent = await ours.agent("agent")
    await agent.send(AclMessage("inform", plat1.aid("nobody"), "hello", conversation_id="lost"))
    failure = await agent.receive(timeout=LIMIT)
    assert failure.performative == Performative.FAILURE
    assert failure.sender is not None and failure.sender.name == "ams@plat1"
    assert failure.conversation_id == "lost"


async def test_jade_is_killed_and_comes_back(jade: Callable[..., Jade], ours: Ours) -> None:
    plat1 = jade(partner="Partner")
    agent = await ours.agent("agent")
    partner = plat1.aid("partner")
    for number in range(20):
        await agent.send(AclMessage("inform", partner, str(number)))
        assert await content(agent) == str(number)
    plat1.kill()
    for number in range(20, 60):
        await agent.send(AclMessage("inform", partner, str(number)))
    plat1.start()
    answers = [await content(agent)]
    if answers == ["19"]:
        # JADE was killed before it confirmed this message, which it had answered: it came to JADE once more.
        answers = [await content(agent)]
    answers += [await content(agent) for _ in range(21, 60)]
    assert answers == [str(number) for number in range(20, 60)]


async def test_jades_agents_use_our_df(jade: Callable[..., Jade], ours: Ours) -> None:
    plat1 = jade(directory="Directory")
    agent = await ours.agent("agent")
    df = ours.aid("df")
    await agent.df.register(ServiceDescription(name="boxes", type="box-selling"))
    found = await order(agent, plat1, "directory", "search box-selling 0", df)
    # With the address under which JADE's agents reach it.
    assert found == f"found agent@factory={ours.address}"
    assert await order(agent, plat1, "directory", "register ping-service", df) == "registered"
    entries = await agent.df.search("ping-service")
    assert [entry.name and entry.name.name for entry in entries] == ["directory@plat1"]
    name = entries[0].name
    assert name is not None and name.addresses == (plat1.address,)
    assert await order(agent, plat1, "directory", "deregister", df) == "deregistered"
    assert await agent.df.search("ping-service") == []


async def test_our_agents_use_jades_df(jade: Callable[..., Jade], ours: Ours) -> None:
    plat1 = jade(directory="Directory")
    agent = await ours.agent("agent")
    df = agent.df.at(plat1.aid("df"))
    await df.register(ServiceDescription(name="boxes", type="box-selling"), timeout=LIMIT)
    found = await order(agent, plat1, "directory", "search box-selling 0")
    assert found == f"found agent@factory={ours.address}"
    entries = await df.search("box-selling", timeout=LIMIT)
    assert [entry.name and entry.name.name for entry in entries] == ["agent@factory"]
    await df.deregister(timeout=LIMIT)
    assert await df.search("box-selling", timeout=LIMIT) == []


async def test_jades_agents_wait_for_entries_of_our_df(jade: Callable[..., Jade], ours: Ours) -> None:
    plat1 = jade(directory="Directory")
    agent, seller = await ours.agent("agent"), await ours.agent("seller")
    waiting = asyncio.create_task(order(agent, plat1, "directory", "await box-selling", ours.aid("df")))
    # The answer to the first order says nothing of it: JADE's agent obeys both side by side.
    assert await order(seller, plat1, "directory", "search box-selling 0", ours.aid("df")) == "found"
    await seller.df.register(ServiceDescription(name="boxes", type="box-selling"))
    assert await waiting == f"found seller@factory={ours.address}"


async def test_leases_and_subscriptions_in_jades_directories(
    jade: Callable[..., Jade], ours: Ours, monkeypatch: pytest.MonkeyPatch
) -> None:
    plat1 = jade(directory="Directory")
    agent = await ours.agent("agent")
    found = await agent.ams.at(plat1.aid("ams")).find(plat1.aid("directory"), timeout=LIMIT)
    assert found is not None and found.name == plat1.aid("directory")
    df = agent.df.at(plat1.aid("df"))
    news = await df.subscribe("box-selling")
    # JADE understands no amount of time.
    leased = DfAgentDescription(lease_time=timedelta(hours=1))
    boxes = ServiceDescription(name="boxes", type="box-selling")
    await df.register(boxes, description=leased, timeout=LIMIT)
    [entry] = await news.next(timeout=LIMIT)
    assert entry.name == agent.aid
    # JADE answers no cancel, and nobody waits for it.
    monkeypatch.setattr("sealbus.directory.ANSWER_TIME", 100 * LIMIT)
    async with asyncio.timeout(LIMIT):
        await news.cancel()
    await df.deregister(timeout=LIMIT)


async def test_our_df_searches_in_jades(jade: Callable[..., Jade], ours: Ours) -> None:
    plat1 = jade(directory="Directory")
    agent = await ours.agent("agent")
    assert await order(agent, plat1, "directory", "register ping-service") == "registered"
    # JADE's DF becomes one that ours searches in.
    assert await order(agent, plat1, "directory", "federate", ours.aid("df")) == "federated"
    df = ours.aid("df")
    assert await order(agent, plat1, "directory", "search ping-service 0", df) == "found"
    found = await order(agent, plat1, "directory", "search ping-service 1", df)
    assert found == f"found directory@plat1={plat1.address}"


async def test_request_from_jade(jade: Callable[..., Jade], ours: Ours) -> None:
    plat1 = jade(initiator="Initiator")
    agent = await ours.agent("agent")
    worker = await ours.agent("worker")
    for verdict, expected in [
        ("agree", "agree inform done"),
        ("refuse", "refuse"),
        ("failure", "failure done"),
    ]:
        conversation = f"order-{verdict}"
        await agent.send(
            AclMessage(
                "inform",
                plat1.aid("initiator"),
                "request work",
                ontology="order",
                conversation_id=conversation,
                reply_to=[ours.aid("worker")],
            )
        )
        request = await worker.receive(timeout=LIMIT)
        assert (request.performative, request.protocol) == (Performative.REQUEST, "fipa-request")
        assert request.content_text == "work"
        if verdict == "failure":
            await worker.reply(request, "failure", "done")
        else:
            await worker.reply(request, verdict)
        if verdict == "agree":
            await worker.reply(request, "inform", "done")
        report = await agent.receive(Filter(conversation_id=conversation), timeout=LIMIT)
        assert report.content_text == expected


async def test_request_to_jade(jade: Callable[..., Jade], ours: Ours) -> None:
    plat1 = jade(participant="Participant(5)")
    agent = await ours.agent("agent")
    work = AclMessage("request", plat1.aid("participant"), "work", protocol="fipa-request")
    done = await agent.request(work, timeout=LIMIT)
    assert (done.performative, done.content_text) == (Performative.INFORM, "done work")
    no = await agent.request(work.replace(content="impossible"), timeout=LIMIT)
    assert no.performative == Performative.REFUSE


async def test_contract_net_from_jade(jade: Callable[..., Jade], ours: Ours) -> None:
    plat1 = jade(initiator="Initiator")
    agent = await ours.agent("agent")
    sellers = [await ours.agent(f"seller-{number}") for number in range(3)]
    await agent.send(
        AclMessage(
            "inform",
            plat1.aid("initiator"),
            "contract-net",
            ontology="order",
            conversation_id="order",
            reply_to=[ours.aid(seller.name) for seller in sellers],
        )
    )
    for price, seller in zip([9, 7, None], sellers, strict=True):
        call = await seller.receive(timeout=LIMIT)
        assert (call.performative, call.protocol) == (Performative.CFP, "fipa-contract-net")
        if price is None:
            await seller.reply(call, "refuse", "sold out")
        else:
            await seller.reply(call, "propose", str(price))
    verdicts = [await seller.receive(timeout=LIMIT) for seller in sellers[:2]]
    assert [verdict.performative for verdict in verdicts] == [
        Performative.REJECT_PROPOSAL,
        Performative.ACCEPT_PROPOSAL,
    ]
    await sellers[1].reply(verdicts[1], "inform", "sold")
    report = await agent.receive(Filter(conversation_id="order"), timeout=LIMIT)
    assert report.content_text is not None and report.content_text.endswith("sold")


async def test_contract_net_to_jade(jade: Callable[..., Jade], ours: Ours) -> None:
    plat1 = jade(dear="Participant(9)", cheap="Participant(7)")
    agent = await ours.agent("agent")
    call = AclMessage(
        "cfp",
        [plat1.aid("dear"), plat1.aid("cheap")],
        "box",
        protocol="fipa-contract-net",
        conversation_id="cnp",
        reply_with="call",
    )
    await agent.send(call)
    proposals = [await agent.receive(timeout=LIMIT) for _ in range(2)]
    assert {proposal.performative for proposal in proposals} == {Performative.PROPOSE}
    best = min(proposals, key=lambda it: int(it.content_text or "0"))
    for proposal in proposals:
        verdict = "accept-proposal" if proposal is best else "reject-proposal"
        await agent.send(proposal.create_reply(verdict).replace(reply_with=verdict))
    sold = await agent.receive(timeout=LIMIT)
    assert sold.sender is not None and sold.sender.name == "cheap@plat1"
    assert (sold.performative, sold.content_text) == (Performative.INFORM, "sold for 7")

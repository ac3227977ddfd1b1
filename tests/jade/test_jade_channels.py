"""Agents of JADE that are agents of the platform, and agents of programs, publish to each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from conftest import LIMIT
from harness import Platform
from test_direct import Here, factory, jade, ours

__all__ = ["factory", "jade", "ours"]

EVENTS = 40


async def test_no_event_is_lost_when_a_listener_is_slower(
    jade: Callable[..., Here],
    ours: Here,
    tmp_path: Path,
) -> None:
    """Together the events are many times longer than what a subscription may be sent before its agent has room."""
    jade(ear="org.sealbus.jade.Listener(/numbers)")
    log = tmp_path / "jade.log"

    async def says(text: str) -> None:
        async with asyncio.timeout(LIMIT):
            while text not in log.read_text(errors="replace"):
                await asyncio.sleep(0.05)

    await says("ear listens to /numbers")
    channel = await (await ours.agent("agent")).channel("/numbers")
    for number in range(EVENTS):
        await channel.publish(f"{number}. {'x' * 100_000}")
    await says(f"ear heard {EVENTS - 1}. ")
    heard = [line.split()[2] for line in log.read_text(errors="replace").splitlines() if line.startswith("ear heard ")]
    assert heard == [f"{number}." for number in range(EVENTS)]
    assert "from agent@factory, PROVED" in log.read_text(errors="replace")


async def test_agents_of_programs_hear_share_and_answer_what_an_agent_of_jade_publishes(
    jade: Callable[..., Here],
    ours: Here,
    factory: Platform,
) -> None:
    jade(boss="org.sealbus.jade.Puppet")
    agent = await ours.agent("agent")

    async def order(wanted: str, *words: str) -> None:
        asked = ("send", "boss", "\n".join(words), "--performative", "request", "--timeout", "120s")
        done = await asyncio.to_thread(factory.ask, *asked)
        assert wanted in done["replies"][0], done

    async with (
        asyncio.timeout(LIMIT),
        await agent.subscribe("/offers/*", filter="properties.price < 10") as offers,
        await agent.subscribe("/jobs", group="workers", filter="properties.loud") as jobs,
    ):
        await order("processes=0", "publish", "/offers/tea", "", "dear", "price=12")
        await order("processes=1", "publish", "/offers/tea", "ack=process", "cheap", "price=7.5")
        event = await offers.next()
        assert (event.text, event.sender_name, event.provenance, event.properties["price"]) == ("cheap", "boss@factory", "proved", 7.5)
        for number in range(3):
            await order("groups=1", "publish", "/jobs", "", f"job {number}", "loud=true")
        await order("groups=0", "publish", "/jobs", "", "whisper", "loud=false")
        assert [(await jobs.next()).text for _ in range(3)] == ["job 0", "job 1", "job 2"]
        jobs.settle()
        # Handled by whoever has it, before the publisher goes on.
        published = asyncio.create_task(order("published last", "publish", "/jobs", "ack=agent", "last", "loud=true"))
        assert (await jobs.next()).text == "last"
        jobs.settle()
        await published
        await order("subscribed", "subscribe", "/wanted/*", "answering")
        replies = (await agent.channel("/wanted/tea")).request("tea", timeout=LIMIT)
        assert [(reply.text, reply.sender_name) async for reply in replies] == [("tea of boss", "boss@factory")]

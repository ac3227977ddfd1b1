"""An agent of JADE that is an agent of the platform hears what an agent of a program publishes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from conftest import LIMIT
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

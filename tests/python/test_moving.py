"""An agent on its way to another node: its state, and a stop meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from sealbus import AclMessage, Agent, Message, Platform


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    async with Platform() as platform:
        yield platform


def freeze(agent: Agent) -> None:
    """As the platform does before a move."""
    agent._living._freeze = True
    agent._living.wake()


@pytest.mark.parametrize("state", ["text", None, 7])
async def test_a_state_that_is_no_bytes_keeps_the_agent(
    platform: Platform, caplog: pytest.LogCaptureFixture, state: Any
) -> None:
    class Mover(Agent):
        async def save(self) -> Any:
            return state

        async def on_message(self, message: Message) -> None:
            await self.reply(message, "inform", "still here")

    mover, anna = await platform.start(Mover("mover")), await platform.start(Agent("anna"))
    freeze(mover)
    async with asyncio.timeout(60):
        while mover._living._freeze:
            await asyncio.sleep(0.001)
    reply = await anna.request(AclMessage("request", "mover"), timeout=60)
    assert reply.text == "still here"
    assert "save raised, so the agent stays" in caplog.text


async def test_a_stop_does_not_cut_off_a_move(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    class Mover(Agent):
        has_left = False

        async def teardown(self) -> None:
            self.has_left = True

    mover = await platform.start(Mover("mover"))
    goes_on_elsewhere: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    call = platform.pump.call

    async def hold(begin: Callable[..., None], *arguments: Any) -> Any:
        if getattr(begin, "__name__", "") == "hand_over":
            return await goes_on_elsewhere
        return await call(begin, *arguments)

    monkeypatch.setattr(platform.pump, "call", hold)
    life = mover._living
    freeze(mover)
    async with asyncio.timeout(60):
        while life.moving is None:
            await asyncio.sleep(0.001)
        life._begin_to_stop()
        # As at the end of the grace for a hook.
        life._cancel_hook()
        await asyncio.sleep(0)
        assert not mover.has_left
        goes_on_elsewhere.set_result(False)
        await life.ended()
    assert mover.has_left and life.failure is None

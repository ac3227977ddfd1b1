"""An agent on its way to another node: its state, its tasks, and a stop meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, cast

import pytest

from sealbus import AID, AclMessage, Agent, AgentStopped, Message, Platform, Subscription, on_request
from sealbus._sealbus import AgentHandle


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


class Away:
    """An agent's access to the bus while its state is handed over: there is none."""

    def __init__(self, handle: AgentHandle) -> None:
        self._handle = handle

    def __getattr__(self, name: str) -> Any:
        if name in ("aid", "name", "platform"):
            return getattr(self._handle, name)
        raise AgentStopped(self._handle.aid.name, "has left the platform")


class Mover(Agent):
    news: Subscription[Any]

    async def setup(self) -> None:
        self.news = await self.df.subscribe("tea")


WAYS: dict[str, Callable[[Mover], Coroutine[Any, Any, object]]] = {
    "channel": lambda mover: mover.channel("/one"),
    "publish": lambda mover: mover.publish("/two", "hello"),
    "subscribe": lambda mover: mover.subscribe("/three"),
    "request": lambda mover: mover.request_action("x", to="ben", timeout=60)._ask(),
    "cancel": lambda mover: mover.news.cancel(),
}


def journey(platform: Platform, monkeypatch: pytest.MonkeyPatch, mover: Agent) -> tuple[asyncio.Event, asyncio.Event]:
    """A move of this agent, which fails in the end. Returns whether the agent is away, and whether it may go on."""
    life, handle = mover._living, mover._living.handle
    is_away, may_go_on = asyncio.Event(), asyncio.Event()
    call = platform.pump.call

    async def hold(begin: Callable[..., None], *arguments: Any) -> Any:
        if getattr(begin, "__name__", "") != "hand_over":
            return await call(begin, *arguments)
        life.handle = cast(AgentHandle, Away(handle))
        is_away.set()
        await may_go_on.wait()
        life.handle = handle
        handle.decline_move("it stays")
        return False

    monkeypatch.setattr(platform.pump, "call", hold)
    return is_away, may_go_on


@pytest.mark.parametrize("way", WAYS)
async def test_a_task_waits_until_it_is_known_where_its_agent_goes_on(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    class Ben(Agent):
        @on_request()
        async def work(self, request: Message) -> str:
            return "done"

    await platform.start(Ben("ben"))
    mover = await platform.start(Mover("mover"))
    life = mover._living
    is_away, may_go_on = journey(platform, monkeypatch, mover)
    async with asyncio.timeout(60):
        freeze(mover)
        await is_away.wait()
        task = mover.create_task(WAYS[way](mover))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not task.done()
        may_go_on.set()
        await task
    assert life.failure is None and not life.is_stopping


async def test_a_conversation_that_ends_during_a_move_takes_leave_when_its_agent_stays(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun, is_cut_off = asyncio.Event(), asyncio.Event()

    class Ben(Agent):
        @on_request()
        async def work(self, request: Message) -> str:
            has_begun.set()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                is_cut_off.set()
            return "done"

    await platform.start(Ben("ben"))
    mover = await platform.start(Agent("mover"))
    is_away, may_go_on = journey(platform, monkeypatch, mover)
    async with asyncio.timeout(60):
        task = mover.create_task(mover.request_action("x", to="ben")._ask())
        await has_begun.wait()
        freeze(mover)
        await is_away.wait()
        task.cancel()
        await asyncio.wait([task])
        assert not is_cut_off.is_set()
        may_go_on.set()
        # Ben gets the `cancel`.
        await is_cut_off.wait()
    assert mover._living.failure is None


async def test_an_agent_tells_names_wherever_it_is(platform: Platform) -> None:
    anna = await platform.start(Agent("anna"))
    anna.stop()
    await anna._living.ended()
    assert anna.peer("ben") == AID(f"ben@{platform.name}")
    assert anna.peer("ben@elsewhere") == AID("ben@elsewhere")

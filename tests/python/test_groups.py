"""Groups of workers: agents that share the events of a channel."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from sealbus import Agent, AgentFailed, ChannelError, ChannelEvent, Platform, on_event


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    async with Platform() as platform:
        yield platform


async def test_each_event_goes_to_one_member_and_to_each_other_subscription(platform: Platform) -> None:
    handled: list[tuple[str, str]] = []

    class Worker(Agent):
        @on_event("/jobs", group="workers")
        async def job(self, event: ChannelEvent) -> None:
            handled.append((self.name, event.text))
            await asyncio.sleep(0)

    for name in ("one", "two", "three"):
        await platform.start(Worker(name))
    boss = await platform.start(Agent("boss"))
    onlooker = await boss.subscribe("/jobs")
    for number in range(30):
        reach = await boss.publish("/jobs", str(number))
        assert (reach.here, reach.groups) == (1, 1)
    while len(handled) < 30:
        await asyncio.sleep(0.001)
    assert sorted(int(text) for _, text in handled) == list(range(30))
    assert len({name for name, _ in handled}) == 3
    assert [(await onlooker.next()).text for _ in range(30)] == [str(number) for number in range(30)]


async def test_a_busy_member_holds_up_no_other(platform: Platform) -> None:
    boss = await platform.start(Agent("boss"))
    slow, quick = await platform.start(Agent("slow")), await platform.start(Agent("quick"))
    at_slow = await slow.subscribe("/jobs", group="workers")
    at_quick = await quick.subscribe("/jobs", group="workers")
    for number in range(10):
        await boss.publish("/jobs", str(number))
    held = await at_slow.next()
    others = [await at_quick.next() for _ in range(9)]
    assert sorted([held.text, *(event.text for event in others)]) == [str(number) for number in range(10)]
    assert not any(event.may_be_again for event in others)
    at_quick.settle()
    # The other member gets the event that the slow one leaves, and the event says so.
    at_slow.cancel()
    again = await at_quick.next()
    assert (again.text, again.may_be_again) == (held.text, True)


async def test_what_was_dealt_with_does_not_come_again(platform: Platform) -> None:
    boss = await platform.start(Agent("boss"))
    async with await boss.subscribe("/jobs", group="workers") as first:
        await boss.publish("/jobs", "one")
        await first.next()
    second = await boss.subscribe("/jobs", group="workers")
    await boss.publish("/jobs", "two")
    with pytest.raises(RuntimeError, match="broken"):
        async with second:
            assert (await second.next()).text == "two"
            raise RuntimeError("broken")
    third = await boss.subscribe("/jobs", group="workers")
    again = await third.next()
    assert (again.text, again.may_be_again) == ("two", True)


async def test_a_handler_that_ends_its_agent_leaves_the_event_to_another() -> None:
    handled: list[tuple[str, bool]] = []

    class Worker(Agent):
        @on_event("/jobs", group="workers", supervise="end")
        async def job(self, event: ChannelEvent) -> None:
            if not event.may_be_again:
                raise RuntimeError("ill")
            handled.append((event.text, event.may_be_again))

    with pytest.raises(AgentFailed, match="ill"):
        async with Platform() as platform:
            await platform.start(Worker("one"))
            await platform.start(Worker("two"))
            boss = await platform.start(Agent("boss"))
            await boss.publish("/jobs", "hard", qos="ack=agent")
    assert handled == [("hard", True)]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"durable": "mine"}, "durable"),
        ({"since": 3}, "before now"),
        ({"policy": "drop-oldest"}, "push-back"),
        ({"takes": "requests"}, "leave out events"),
        ({"prefetch": 5000}, "at a time"),
    ],
)
async def test_what_a_group_cannot_give_is_refused_by_name(
    platform: Platform, options: dict[str, object], named: str
) -> None:
    boss = await platform.start(Agent("boss"))
    with pytest.raises(ChannelError, match=named):
        await boss.subscribe("/jobs", group="workers", **options)  # type: ignore[arg-type]


def test_a_member_handles_one_event_after_the_other() -> None:
    with pytest.raises(ValueError, match="group"):
        on_event("/jobs", group="workers", concurrency=4)

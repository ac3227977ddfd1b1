"""Persistent channels of a platform inside the program: replay, durable subscriptions, retention, and kill -9."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sealbus import Agent, ChannelError, ChannelEvent, FilterError, Platform, Retention, on_event

KEPT = "persistent,ack=disk"


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    async with Platform() as platform:
        yield platform


def await_the_next_millisecond() -> datetime:
    """A moment after all that was published before and not after anything published from now on: logs count milliseconds."""
    begin = int(datetime.now(UTC).timestamp() * 1000)
    while int(datetime.now(UTC).timestamp() * 1000) <= begin:
        pass
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


async def test_the_last_value_of_each_key(platform: Platform) -> None:
    anna, ben = await platform.start(Agent("anna")), await platform.start(Agent("ben"))
    readings = await anna.channel("/readings", qos=KEPT)
    with pytest.raises(ChannelError, match="last-per-key"):
        await (await ben.channel("/readings")).last()
    assert await readings.last() == []
    for number in range(9):
        await readings.publish(str(number), properties={"room": ("red", "green", 3)[number % 3]})
    await readings.publish("no room")
    last = await (await ben.channel("/readings")).last("properties.room")
    assert [event.text for event in last] == ["6", "7", "8"]
    assert (last.missing, last.filter_errors) == ([], 1)
    assert [event.text for event in await readings.last()] == ["no room"]
    assert [event.text for event in await readings.last("sender")] == ["no room"]
    assert [event.text for event in await readings.last(timeout=1e19)] == ["no room"]
    odd = await readings.last("properties.room", filter="int(content) < 5")
    assert [event.text for event in odd] == ["2", "3", "4"]
    async with await ben.subscribe("/*", last_per="properties.room") as late:
        assert {(await late.next()).text for _ in range(3)} == {"6", "7", "8"}
        await readings.publish("9", properties={"room": "red"})
        event = await late.next()
        assert (event.text, event.missed, event.may_be_again) == ("9", 0, False)
    with pytest.raises(FilterError, match="a key is the name of one variable"):
        await readings.last("1 + 1")
    with pytest.raises(FilterError):
        await ben.subscribe("/readings", last_per="room")
    with pytest.raises(ChannelError, match="cannot begin with the last event of each key"):
        await ben.subscribe("/readings", last_per="sender", durable="mine")


async def test_late_joiners_begin_where_they_want(platform: Platform) -> None:
    anna, ben = await platform.start(Agent("anna")), await platform.start(Agent("ben"))
    channel = await anna.channel("/news", qos=KEPT)
    for number in range(5):
        await channel.publish(str(number), properties={"half": number % 2})
    between = await_the_next_millisecond()
    for number in range(5, 8):
        await channel.publish(str(number), properties={"half": number % 2})
    async with await ben.subscribe("/*", since=3) as last:
        assert [(await last.next()).text for _ in range(3)] == ["5", "6", "7"]
    async with await ben.subscribe("/news", since=datetime.fromtimestamp(0, UTC), filter="properties.half == 1") as odd:
        events = [await odd.next() for _ in range(4)]
        assert [event.text for event in events] == ["1", "3", "5", "7"]
        assert [event.number for event in events] == [2, 4, 6, 8]
        assert all(event.log is not None and event.missed == 0 and not event.may_be_again for event in events)
        assert {(event.sender_name, event.is_trusted) for event in events} == {(anna.aid.name, True)}
        # It goes on with new events.
        await channel.publish("9", properties={"half": 1})
        assert (await odd.next()).text == "9"
        assert odd.damaged == []
    async with await ben.subscribe("/news", number=4) as fourth:
        event = await fourth.next()
        assert (event.number, event.text) == (4, "3")
    with pytest.raises(ValueError, match="not both"):
        await ben.subscribe("/news", since=3, number=4)
    with pytest.raises(ValueError, match="not both"):
        await ben.subscribe("/news", since=3, last_per="sender")
    after = await ben.subscribe("/news", since=between)
    assert (await after.next()).text == "5"


async def test_who_listens_now_gets_kept_events_once(platform: Platform) -> None:
    anna, ben = await platform.start(Agent("anna")), await platform.start(Agent("ben"))
    channel = await anna.channel("/news", qos=KEPT)
    live = await ben.subscribe("/news")
    durable = await ben.subscribe("/news", durable="mine")
    for number in range(20):
        reach = await channel.publish(str(number))
        assert (reach.here, reach.processes) == (1, 0)
        assert reach.kept is not None and reach.kept.number == number + 1
    assert [(await live.next()).text for _ in range(20)] == [str(number) for number in range(20)]
    assert [(await durable.next()).text for _ in range(20)] == [str(number) for number in range(20)]
    # Events that are not kept come to both as they are published.
    assert (await channel.publish("now", qos="transient,ack=none")).kept is None
    for each in (live, durable):
        event = await each.next()
        assert (event.text, event.log) == ("now", None)
        assert each.try_next() is None


async def test_a_durable_subscription_goes_on_where_it_stopped(platform: Platform) -> None:
    anna, ben = await platform.start(Agent("anna")), await platform.start(Agent("ben"))
    channel = await anna.channel("/news", qos=KEPT)
    await channel.publish("before")
    async with await ben.subscribe("/*", durable="mine") as mine:
        await channel.publish("1")
        await channel.publish("2")
        assert (await mine.next()).text == "1"
        with pytest.raises(ChannelError, match="durable name"):
            await ben.subscribe("/other", durable="mine")
    await channel.publish("3")
    async with await ben.subscribe("/*", durable="mine") as mine:
        assert [(await mine.next()).text for _ in range(2)] == ["2", "3"]


async def test_an_event_that_was_only_waited_for_is_not_taken(platform: Platform) -> None:
    anna, ben = await platform.start(Agent("anna")), await platform.start(Agent("ben"))
    channel = await anna.channel("/news", qos=KEPT)
    await channel.publish("1")
    await channel.publish("2")
    async with await ben.subscribe("/news", durable="mine", number=1) as mine:
        assert await mine.wait() is None
        assert await mine.wait() is None
    async with await ben.subscribe("/news", durable="mine") as mine:
        assert (await mine.next()).text == "1"
        mine.settle()
    async with await ben.subscribe("/news", durable="mine") as mine:
        assert (await mine.next()).text == "2"


async def test_an_event_comes_again_only_to_an_agent_that_ended_before_it_had_handled_it(platform: Platform) -> None:
    heard: list[tuple[str | None, bool]] = []

    class Reader(Agent):
        @on_event("/news", durable="mine", supervise="ignore")
        async def hear(self, event: ChannelEvent) -> None:
            heard.append((event.text, event.may_be_again))
            self.stop()
            if len(heard) == 2:
                raise ValueError("it cannot be handled")

    anna, ben = await platform.start(Agent("anna")), await platform.start(Reader("ben"))
    for text in ("1", "2", "3"):
        await anna.publish("/news", text, qos=KEPT)
    async with asyncio.timeout(120):
        await ben._living.ended()
        for _ in range(3):
            ben = await platform.start(Reader("ben"))
            await ben._living.ended()
    assert [text for text, _ in heard] == ["1", "2", "2", "3"]
    assert heard[2] == ("2", True)


async def test_what_was_cut_off_is_said(platform: Platform) -> None:
    anna, ben = await platform.start(Agent("anna")), await platform.start(Agent("ben"))
    channel = await anna.channel("/news", qos=KEPT, retention=Retention(count=3))
    await channel.publish("0")
    async with await ben.subscribe("/news", durable="mine", since=1) as mine:
        assert (await mine.next()).text == "0"
    for number in range(1, 10):
        await channel.publish(str(number))
    mine = await ben.subscribe("/news", durable="mine")
    events = [await mine.next() for _ in range(3)]
    assert [(event.text, event.missed) for event in events] == [("7", 6), ("8", 0), ("9", 0)]


PROGRAM = """
import asyncio, sys
from sealbus import Agent, Platform

async def main():
  async with Platform() as platform:
    anna, ben = await platform.start(Agent("anna")), await platform.start(Agent("ben"))
    channel = await anna.channel("/news", qos="persistent,ack=disk")
    mine = await ben.subscribe("/news", durable="mine")
    first = int(sys.argv[1])
    for number in range(first, first + 10):
        await channel.publish(str(number))
    for _ in range(int(sys.argv[2])):
        event = await mine.next()
        print(event.text, event.number, event.may_be_again, flush=True)
    print("ready", flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


def test_acknowledged_events_survive_kill_9(tmp_path: Path) -> None:
    """The program is killed with events unread, and the next one goes on with them."""

    def run(first: int, count: int) -> list[list[str]]:
        environment = os.environ | {"SEALBUS_STATE": str(tmp_path / "state")}
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(first), str(count)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        lines = []
        try:
            assert program.stdout is not None
            for line in program.stdout:
                if line.strip() == "ready":
                    break
                lines.append(line.split())
        finally:
            os.killpg(program.pid, signal.SIGKILL)
            program.communicate()
        return lines

    seen: dict[int, str] = {}
    for first, count in ((0, 4), (10, 12), (20, 8)):
        for text, number, again in run(first, count):
            # An event that comes again says so.
            assert int(number) not in seen or (again == "True" and seen[int(number)] == text)
            seen[int(number)] = text
    assert [seen[number] for number in sorted(seen)] == [str(number) for number in range(len(seen))]
    assert len(seen) >= 12


async def test_handlers_begin_where_they_want(platform: Platform) -> None:
    anna = await platform.start(Agent("anna"))
    for number in range(1, 6):
        await anna.publish("/news", str(number), qos=KEPT)
    heard: dict[str, list[str]] = {"since": [], "number": [], "now": []}

    class Late(Agent):
        @on_event("/news", since=2)
        async def since(self, event: ChannelEvent) -> None:
            heard["since"].append(event.text)

        @on_event("/news", number=2, events=1)
        async def number(self, event: ChannelEvent) -> None:
            heard["number"].append(event.text)

        @on_event("/news")
        async def now(self, event: ChannelEvent) -> None:
            heard["now"].append(event.text)

    await platform.start(Late())
    # The last two are counted when the log is opened, which is a moment after the start.
    while heard["since"] != ["4", "5"]:
        await asyncio.sleep(0.001)
    await anna.publish("/news", "6", qos=KEPT)
    while any(texts[-1:] != ["6"] for texts in heard.values()):
        await asyncio.sleep(0.001)
    assert heard == {"since": ["4", "5", "6"], "number": ["2", "3", "4", "5", "6"], "now": ["6"]}

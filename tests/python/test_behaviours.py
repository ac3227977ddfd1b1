"""Behaviours by a clock that is moved by hand: nothing here waits for time to pass."""

import asyncio
import heapq
import itertools
import logging
import math
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, time, timedelta, tzinfo

import pytest

from sealbus import (
    AclMessage,
    Agent,
    AgentFailed,
    AgentStopped,
    Clock,
    Filter,
    Message,
    Platform,
    RequestTimeout,
    State,
    at,
    cyclic,
    every,
    machine,
    on,
    once,
    parallel,
    sequence,
)
from sealbus.clock import LoopClock
from sealbus.testing import TestBed

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class _Call:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class HandClock(Clock):
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.passed = 0.0
        self._calls: list[tuple[float, int, _Call]] = []
        self._count = itertools.count()

    def now(self) -> float:
        return self.passed

    def time(self) -> float:
        return NOON.timestamp() + self.passed

    def call_later(self, delay: float, callback: Callable[[], None]) -> _Call:
        call = _Call(callback)
        heapq.heappush(self._calls, (self.passed + delay, next(self._count), call))
        return call

    async def go(self, seconds: float) -> None:
        """Lets time pass, with everything that happens meanwhile."""
        end = self.passed + seconds
        await settle()
        while self._calls and self._calls[0][0] <= end:
            self.passed, _, call = heapq.heappop(self._calls)
            if call.callback is not None:
                call.callback()
            await settle()
        self.passed = end
        await settle()


async def settle() -> None:
    """Lets everything run that can run."""
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def platform(clock: HandClock) -> AsyncIterator[Platform]:
    async with Platform(clock=clock) as platform:
        yield platform


# ----- schedules


async def test_every_does_not_drift_and_counts_what_it_missed(
    platform: Platform, clock: HandClock
) -> None:
    times: list[float] = []

    class Sensor(Agent):
        busy = 0.0

        @every(10.0)
        async def measure(self) -> None:
            times.append(self.clock.now())
            await self.clock.sleep(self.busy)

        @every(100.0, delay=5.0)
        async def rarely(self) -> None:
            times.append(-self.clock.now())

    sensor = await platform.start(Sensor())
    await clock.go(0)
    sensor.busy = 3.0
    await clock.go(29)
    assert times == [0, -5, 10, 20]
    # It takes more than two periods: a late run begins at once, a run that was passed over is missed.
    sensor.busy = 25.0
    await clock.go(1)
    sensor.busy = 0.0
    await clock.go(40)
    assert times[4:] == [30, 55, 60, 70]
    measure = sensor.behaviours["measure"]
    assert (measure.runs, measure.missed, measure.failures) == (7, 1, 0)
    assert not measure.is_done
    measure.cancel()
    await measure.wait()
    await clock.go(1000)
    assert measure.runs == 7


async def test_a_day_of_seconds_has_as_many_runs(platform: Platform, clock: HandClock) -> None:
    class Ticker(Agent):
        @every(0.1)
        async def tick(self) -> None: ...

    ticker = await platform.start(Ticker())
    await clock.go(0)
    await clock.go(99.95)
    behaviour = ticker.behaviours["tick"]
    assert (behaviour.runs, behaviour.missed) == (1000, 0)


async def test_at_a_point_in_time_and_each_day(platform: Platform, clock: HandClock) -> None:
    done: list[tuple[str, float]] = []

    class Clerk(Agent):
        @at(NOON + timedelta(hours=2))
        async def later(self) -> None:
            done.append(("later", self.clock.now()))

        @at(NOON - timedelta(hours=2))
        async def late(self) -> None:
            done.append(("late", self.clock.now()))

        @at(time(11, tzinfo=UTC))
        async def daily(self) -> None:
            done.append(("daily", self.clock.now()))

    clerk = await platform.start(Clerk())
    await clock.go(0)
    assert done == [("late", 0)]
    await clock.go(3 * 86_400)
    hour = 3600
    assert done[1:] == [("later", 2 * hour), *(("daily", (23 + 24 * day) * hour) for day in range(3))]
    assert clerk.behaviours["later"].is_done
    assert not clerk.behaviours["daily"].is_done


class Autumn(tzinfo):
    """The night at whose 01:00 UTC summer time ends: 03:00 is 02:00 once more."""

    def utcoffset(self, when: datetime | None) -> timedelta:
        assert when is not None
        hours = when.replace(tzinfo=None, fold=0) - datetime(2026, 10, 25)
        is_summer = hours < timedelta(hours=3 if when.fold == 0 else 2)
        return timedelta(hours=2 if is_summer else 1)

    def dst(self, when: datetime | None) -> timedelta:
        return self.utcoffset(when) - timedelta(hours=1)

    def tzname(self, when: datetime | None) -> str:
        return "autumn"

    def fromutc(self, when: datetime) -> datetime:
        passed = when.replace(tzinfo=None) - datetime(2026, 10, 25, 1)
        is_again = timedelta(0) <= passed < timedelta(hours=1)
        return (when + timedelta(hours=2 if passed < timedelta(0) else 1)).replace(fold=int(is_again))


@pytest.mark.parametrize(("minutes", "runs"), [(10, 1), (70, 0)])
async def test_a_time_of_day_comes_once_in_a_repeated_hour(minutes: int, runs: int) -> None:
    class Baker(Agent):
        count = 0

        @at(time(2, 30, tzinfo=Autumn()))
        async def bake(self) -> None:
            self.count += 1
            await asyncio.sleep(0)

    begin = datetime(2026, 10, 25, tzinfo=UTC) + timedelta(minutes=minutes)
    async with TestBed(start=begin.timestamp()) as testbed:
        baker = await testbed.start(Baker("baker"))
        await testbed.clock.advance(7200)
        assert baker.count == runs
        await testbed.clock.advance(86_400)
        assert baker.count == runs + 1


async def test_once_and_again_and_again(platform: Platform, clock: HandClock) -> None:
    heard: list[str] = []

    class Worker(Agent):
        @once
        async def greet(self) -> None:
            heard.append("once")

        @cyclic
        async def serve(self) -> None:
            request = await self.receive(Filter("request"))
            heard.append(request.text)
            await self.reply(request, "inform")

    worker, anna = await platform.start(Worker()), await platform.start(Agent("anna"))
    for number in range(3):
        await anna.request(AclMessage("request", "worker", str(number)))
    assert heard == ["once", "0", "1", "2"]
    assert worker.behaviours["greet"].is_done
    assert worker.behaviours["serve"].is_running


async def test_a_state_machine(platform: Platform) -> None:
    class Door(Agent):
        states: list[str | None]

        async def setup(self) -> None:
            self.states = []

        @machine
        async def shut(self) -> State:
            request = await self.receive(Filter("request"))
            await self.reply(request, "inform", "opening")
            return self.open if request.content == "open" else None

        async def open(self) -> State:
            self.states.append(self.behaviours["shut"].state)
            return self.shut

    door, anna = await platform.start(Door()), await platform.start(Agent("anna"))
    for content in ("open", "open", "no more"):
        await anna.request(AclMessage("request", "door", content))
    await door.behaviours["shut"].wait()
    assert door.states == ["open", "open"]
    assert (door.behaviours["shut"].runs, door.behaviours["shut"].state) == (1, "shut")


async def test_steps_one_after_the_other_and_side_by_side(platform: Platform, clock: HandClock) -> None:
    done: list[str] = []

    class Cook(Agent):
        async def wash(self) -> None:
            done.append("washed")

        async def cut(self) -> None:
            done.append("cutting")
            await self.clock.sleep(1)
            done.append("cut")

        async def boil(self) -> None:
            done.append("boiling")
            try:
                await self.clock.sleep(5)
            except asyncio.CancelledError:
                done.append("cut off")
                raise
            done.append("boiled")

        async def serve(self) -> None:
            done.append("served")

        async def burn(self) -> None:
            await self.clock.sleep(1)
            raise ValueError("burnt")

    cook = await platform.start(Cook())
    await clock.go(0)
    dish = cook.begin(sequence(cook.wash, parallel(cook.cut, cook.boil), cook.serve), name="dish")
    assert cook.behaviours["dish"] is dish
    await clock.go(10)
    assert done == ["washed", "cutting", "boiling", "cut", "boiled", "served"]
    assert dish.is_done
    assert "dish" not in cook.behaviours
    done.clear()
    quick = cook.begin(parallel(cook.cut, cook.boil, first=True))
    await clock.go(10)
    assert done == ["cutting", "boiling", "cut", "cut off"]
    assert quick.failures == 0
    done.clear()
    logging.disable(logging.CRITICAL)
    try:
        burnt = cook.begin(sequence(parallel(cook.burn, cook.boil), cook.serve))
        await clock.go(10)
    finally:
        logging.disable(logging.NOTSET)
    assert (done, burnt.failures) == (["boiling", "cut off"], 1)


# ----- errors and ends


async def test_what_a_behaviour_raises_is_supervised(
    platform: Platform, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Faulty(Agent):
        lives = 0

        async def setup(self) -> None:
            self.lives += 1

        @every(1.0)
        async def regularly(self) -> None:
            raise ValueError("regularly")

        @cyclic
        async def always(self) -> None:
            raise ValueError("always")

        @at(NOON + timedelta(seconds=20), supervise="restart")
        async def then(self) -> None:
            if self.lives < 3:
                raise ValueError("then")

    with caplog.at_level(logging.CRITICAL, "sealbus"):
        faulty = await platform.start(Faulty())
        await clock.go(0)
        await clock.go(10.5)
        assert faulty.behaviours["regularly"].failures == 11
        # Cyclic work that raises each time is not done without a pause.
        assert 5 <= faulty.behaviours["always"].failures <= 10
        await clock.go(10)
        while faulty.lives < 3:
            await clock.go(0)
        await clock.go(1)
    assert faulty.behaviours["then"].is_done
    assert faulty.failures > 11


async def test_a_behaviour_may_end_its_agent(clock: HandClock, caplog: pytest.LogCaptureFixture) -> None:
    class Strict(Agent):
        @once(supervise="end")
        async def work(self) -> None:
            raise ValueError("out of order")

    with caplog.at_level(logging.CRITICAL, "sealbus"), pytest.raises(AgentFailed, match="out of order"):
        async with Platform(clock=clock) as platform:
            await platform.start(Strict())
            await platform.wait()


async def test_behaviours_end_with_their_agent(clock: HandClock) -> None:
    events: list[str] = []

    class Busy(Agent):
        @every(1000.0)
        async def rarely(self) -> None:
            events.append("run")

        @cyclic
        async def wait(self) -> None:
            try:
                await self.receive(Filter("request"))
            except AgentStopped:
                events.append("stopped")
                raise

        @once
        async def finish(self) -> None:
            await settle()
            events.append("finished")

        @on("inform")
        async def leave(self, message: Message) -> None:
            self.stop()

        async def teardown(self) -> None:
            events.append("teardown")

    async with Platform(clock=clock) as platform:
        busy, anna = await platform.start(Busy()), await platform.start(Agent("anna"))
        behaviours = dict(busy.behaviours)
        await anna.send(AclMessage("inform", "busy"))
        while "teardown" not in events:
            await asyncio.sleep(0.001)
    assert sorted(events[:-1]) == ["finished", "run", "stopped"]
    assert all(behaviour.is_done for behaviour in behaviours.values())
    with pytest.raises(AgentStopped):
        busy.begin(busy.finish)


async def test_no_run_begins_while_the_agent_moves(platform: Platform, clock: HandClock) -> None:
    class Moving(Agent):
        ticks = 0
        saving: asyncio.Event
        go: asyncio.Event

        async def setup(self) -> None:
            self.saving, self.go = asyncio.Event(), asyncio.Event()

        @every(1.0)
        async def tick(self) -> None:
            self.ticks += 1
            await self.clock.sleep(0.5)

        async def save(self) -> bytes:
            self.saving.set()
            await self.go.wait()
            raise ValueError("it stays")

    logging.disable(logging.CRITICAL)
    try:
        moving = await platform.start(Moving())
        await clock.go(0)
        assert moving.ticks == 1
        life = moving._living
        life._freeze = True
        life.wake()
        await settle()
        assert not moving.saving.is_set(), "it is saved in the middle of a run"
        await clock.go(0.5)
        await moving.saving.wait()
        await clock.go(10)
        assert moving.ticks == 1
        moving.go.set()
        await clock.go(1)
        assert moving.ticks >= 2
    finally:
        logging.disable(logging.NOTSET)


async def test_nonsense_is_refused(platform: Platform) -> None:
    anna = await platform.start(Agent("anna"))
    for period in (0, math.inf, math.nan):
        with pytest.raises(ValueError, match="more than nothing"):
            every(period)
    with pytest.raises(ValueError, match="a number of seconds"):
        every(1, delay=math.nan)
    with pytest.raises(TypeError, match="not a schedule"):
        anna.begin(anna.teardown, 1.0)  # type: ignore[arg-type]


# ----- the clock


async def test_time_outs_go_by_the_clock(platform: Platform, clock: HandClock) -> None:
    anna = await platform.start(Agent("anna"))
    await platform.start(Agent("deaf"))
    asking = asyncio.create_task(anna.request(AclMessage("request", "deaf"), timeout=3600))
    waiting = asyncio.create_task(anna.receive(timeout=7200))
    await clock.go(3599)
    assert not asking.done()
    await clock.go(1)
    with pytest.raises(RequestTimeout, match="3600 s"):
        await asking
    assert not waiting.done()
    await clock.go(3600)
    with pytest.raises(TimeoutError):
        await waiting


async def test_a_clock_needs_only_to_call_later(clock: HandClock) -> None:
    async def late() -> str:
        async with clock.timeout(10):
            await clock.sleep(20)
        return "never"

    waiting = asyncio.create_task(late())
    await clock.go(10)
    with pytest.raises(TimeoutError):
        await waiting
    async with clock.timeout(10), clock.timeout(None):
        await clock.sleep(0)
    loop_clock = LoopClock(asyncio.get_running_loop())
    before = loop_clock.now()
    await loop_clock.sleep(0.01)
    assert loop_clock.now() > before
    with pytest.raises(TimeoutError):
        async with loop_clock.timeout(0.001):
            await loop_clock.sleep(60)
    with pytest.raises(ValueError, match="not NaN"):
        await loop_clock.sleep(math.nan)

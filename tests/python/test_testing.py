"""The test kit: time that moves when it is told, probes, and faults."""

import asyncio
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest

from sealbus import (
    AclMessage,
    Agent,
    Message,
    PlatformError,
    ReceiveTimeout,
    RequestTimeout,
    ServiceDescription,
    every,
    on,
    on_request,
)
from sealbus.life import ROW
from sealbus.testing import QUIET_TURNS, TestBed


@dataclass
class Reading:
    number: int


class Sensor(Agent):
    """Tells a reading every minute."""

    number = 0

    @every(60.0)
    async def measure(self) -> None:
        self.number += 1
        await self.send(AclMessage("inform", "station", body=Reading(self.number)))


class Station(Agent):
    def __init__(self) -> None:
        super().__init__("station")
        self.readings: list[tuple[float, int]] = []
        self.left = 0

    @on("inform", body=Reading)
    async def note(self, message: Message[Reading]) -> None:
        self.readings.append((self.clock.now(), message.body.number))

    @on_request()
    async def wait(self, request: Message) -> str:
        await self.clock.sleep(3600)
        return "at last"

    async def teardown(self) -> None:
        self.left += 1


async def test_a_day_passes_in_no_time_and_every_minute_counts(testbed: TestBed) -> None:
    station = await testbed.start(Station())
    await testbed.start(Sensor("sensor"))
    await testbed.clock.settle()
    first = len(station.readings)
    await testbed.clock.advance(86_400)
    assert len(station.readings) == first + 1440
    numbers = [number for _, number in station.readings]
    assert numbers == list(range(1, len(numbers) + 1))
    # Each was heard at the moment of its measurement.
    steps = [moment for moment, _ in station.readings]
    assert {round(later - earlier, 6) for earlier, later in zip(steps, steps[1:], strict=False)} == {60.0}


async def test_deadlines_follow_the_clock(testbed: TestBed) -> None:
    await testbed.start(Station())
    probe = await testbed.probe("anna")
    before = testbed.clock.now()
    done = await testbed.clock.run(probe.request_action("x", to="station", timeout=7200))
    assert done.text == "at last"
    assert testbed.clock.now() - before == pytest.approx(3600, abs=1)
    with pytest.raises(ReceiveTimeout):
        await testbed.clock.run(probe.receive(timeout=1000))
    assert testbed.clock.now() - before == pytest.approx(4600, abs=2)
    with pytest.raises(TimeoutError):
        await testbed.clock.run(probe.receive(), limit=10)


async def test_the_clock_does_not_run_away_while_a_thread_works(testbed: TestBed) -> None:
    class Clerk(Agent):
        @on_request()
        async def work(self, request: Message) -> str:
            await asyncio.to_thread(time.sleep, 0.1)
            return "done"

    await testbed.start(Clerk("clerk"))
    probe = await testbed.probe("anna")
    before = testbed.clock.now()
    assert (await testbed.clock.run(probe.request_action("x", to="clerk")._ask())).text == "done"
    assert testbed.clock.now() == before


SLOW_RUNTIME = """
import asyncio, os
from pathlib import Path
from sealbus import Agent, every, on_event
from sealbus.testing import TestBed

class Sensor(Agent):
    @every(1.0)
    async def measure(self):
        await self.publish("/sensors", str(self.clock.now()), qos="best-effort")

class Station(Agent):
    heard = late = 0

    @on_event("/sensors")
    async def note(self, event):
        self.heard += 1
        self.late += float(event.text) != self.clock.now()

async def main():
    async with TestBed() as testbed:
        station = await testbed.start(Station("station"))
        # All threads share one processor. The runtime's thread gets the least of it.
        for thread in Path("/proc/self/task").iterdir():
            os.sched_setaffinity(int(thread.name), {min(os.sched_getaffinity(0))})
            if (thread / "comm").read_text() == "sealbus\\n":
                os.setpriority(os.PRIO_PROCESS, int(thread.name), 19)
        for number in range(3):
            await testbed.start(Sensor(f"sensor-{number}"))
            await testbed.clock.advance(2.5)
        print(station.heard, "heard,", station.late, "late")

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the threads' processors and priorities are set as on Linux")
def test_the_clock_does_not_run_away_from_the_native_half() -> None:
    done = subprocess.run([sys.executable, "-c", SLOW_RUNTIME], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "17 heard, 0 late\n"


async def test_agents_with_more_to_do_after_their_turn_are_not_at_rest(
    testbed: TestBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counter(Agent):
        count = 0

        async def on_message(self, message: Message) -> None:
            self.count += 1

    counter = await testbed.start(Counter("counter"))
    probe = await testbed.probe("anna")
    await testbed.clock.settle()
    # As on a machine that is slow or busy.
    monkeypatch.setattr("sealbus.life.TURN", 0.0)
    await probe.send_many([AclMessage("inform", "counter")] * (2 * ROW * QUIET_TURNS))
    await testbed.clock.settle()
    assert counter.count == 2 * ROW * QUIET_TURNS


async def test_a_probe_says_what_it_expected_and_got(testbed: TestBed) -> None:
    anna, ben = await testbed.probe("anna"), await testbed.probe("ben")
    await anna.send(AclMessage("inform", "ben", body=Reading(7)))
    message = await ben.expect("inform", Reading(7), sender="anna")
    assert message.body_as(Reading).number == 7
    await anna.send(AclMessage("inform", "ben", body=Reading(7)))
    with pytest.raises(AssertionError, match=r"expected Reading\(number=8\), and got Reading\(number=7\)"):
        await ben.expect("inform", Reading(8))
    await anna.send(AclMessage("refuse", "ben", "busy"))
    with pytest.raises(AssertionError, match="expected inform, and got .*refuse.*: busy"):
        await ben.expect("inform")
    await anna.send(AclMessage("inform", "ben", "7"))
    with pytest.raises(AssertionError, match="expected a message of carl@"):
        await ben.expect("inform", sender="carl")
    with pytest.raises(AssertionError, match="nothing came"):
        await ben.expect("inform", timeout=60)
    await ben.expect_nothing()
    await anna.send(AclMessage("inform", "ben", "boo"))
    with pytest.raises(AssertionError, match="expected nothing, and got .*boo"):
        await ben.expect_nothing()


async def test_messages_are_lost_and_delayed_on_request(testbed: TestBed) -> None:
    anna, ben = await testbed.probe("anna"), await testbed.probe("ben")
    lost = testbed.faults.drop(sender="anna", performative="request", times=1)
    late = testbed.faults.delay(30, receiver="ben", performative="inform")
    await anna.send(AclMessage("request", "ben", "1"))
    await anna.send(AclMessage("request", "ben", "2"))
    await ben.expect("request", "2")
    assert lost.count == 1
    before = testbed.clock.now()
    await anna.send(AclMessage("inform", "ben", "late"))
    await anna.send(AclMessage("request", "ben", "early"))
    await ben.expect("request", "early")
    await ben.expect("inform", "late", timeout=60)
    assert testbed.clock.now() - before == 30
    late.stop()
    await anna.send(AclMessage("inform", "ben", "at once"))
    await ben.expect("inform", "at once", timeout=0)


async def test_a_delayed_message_waits_for_room(testbed: TestBed) -> None:
    anna, ben = await testbed.probe("anna"), await testbed.probe("ben")
    testbed.faults.delay(30, performative="request")
    await anna.send(AclMessage("request", "ben", "late"))
    large, sent = AclMessage("inform", "ben", bytes(100_000)), 0
    while anna._living.handle.try_send(large) is None:
        sent += 1
    assert sent > 50, "its mailbox is not full"
    await testbed.clock.advance(60)
    async with asyncio.timeout(60):
        for _ in range(sent):
            assert (await ben.receive()).performative == "inform"
        assert (await ben.receive()).text == "late"


async def test_a_batch_is_sent_once_whatever_befalls_it(testbed: TestBed) -> None:
    anna, ben = await testbed.probe("anna"), await testbed.probe("ben")
    lost = testbed.faults.drop(performative="request")
    late = testbed.faults.delay(30, performative="cfp")
    # More than the mailbox takes, so that the sender goes on in the middle.
    total = 300
    large = AclMessage("inform", "ben", bytes(100_000))
    batch = [large.replace(reply_with=str(number)) for number in range(total)]
    batch[0:0] = [AclMessage("request", "ben"), AclMessage("cfp", "ben"), AclMessage("request", "ben")]
    batch.append(AclMessage("cfp", "ben"))
    sending = asyncio.create_task(anna.send_many(batch))
    numbers: list[object] = []
    async with asyncio.timeout(120):
        while len(numbers) < total:
            numbers.append((await ben.receive()).reply_with)
        assert numbers == [str(number) for number in range(total)]
        await sending
    assert (lost.count, late.count) == (2, 2)
    for _ in range(2):
        await ben.expect("cfp", timeout=60)
    await ben.expect_nothing()


async def test_requests_are_lost_too_and_the_platform_itself_is_spared(testbed: TestBed) -> None:
    await testbed.start(Station())
    probe = await testbed.probe("anna")
    lost = testbed.faults.drop(sender="anna", performative="request")
    with pytest.raises(RequestTimeout):
        await testbed.clock.run(probe.request(AclMessage("request", "station", "x"), timeout=60))
    assert lost.count == 1
    assert await probe.ams.find("station") is not None
    assert lost.count == 1


async def test_a_delayed_message_of_an_agent_that_has_left_is_lost(testbed: TestBed) -> None:
    anna, ben = await testbed.probe("anna"), await testbed.probe("ben")
    late = testbed.faults.delay(30, sender="anna")
    await anna.send(AclMessage("inform", "ben"))
    anna.stop()
    await testbed.clock.advance(60)
    assert late.count == 1
    await ben.expect_nothing()


async def test_the_same_seed_loses_the_same_messages() -> None:
    async def heard(seed: int) -> list[str]:
        async with TestBed(seed=seed) as testbed:
            anna, ben = await testbed.probe("anna"), await testbed.probe("ben")
            testbed.faults.drop(probability=0.5)
            for number in range(50):
                await anna.send(AclMessage("inform", "ben", str(number)))
            await testbed.clock.settle()
            return [message.text for message in await ben.receive_many(50)]

    first = await heard(7)
    assert first == await heard(7)
    assert first != await heard(8)
    assert 5 < len(first) < 45


async def test_an_agent_that_is_killed_says_no_more(testbed: TestBed) -> None:
    station = await testbed.start(Station())
    probe = await testbed.probe("anna")
    waiting = probe.request_action("x", to="station", timeout=10)
    async with waiting:
        await testbed.clock.settle()
        await testbed.kill(station)
        with pytest.raises(TimeoutError):
            await testbed.clock.run(waiting.result())
    assert station.left == 0
    with pytest.raises(PlatformError, match="no agent station"):
        await testbed.kill("station")


async def test_the_directory_answers_in_no_time(testbed: TestBed) -> None:
    class Shop(Agent):
        async def setup(self) -> None:
            await self.df.register(ServiceDescription("shop", "shop"))

    await testbed.start(Shop("shop"))
    probe = await testbed.probe("anna")
    await testbed.clock.settle()
    before = testbed.clock.now()
    assert len(await probe.df.search("shop")) == 1
    assert testbed.clock.now() == before

"""The examples of negotiation, on a test bed: the same agents, in no time, and their agreements."""

import asyncio
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from sealbus import Agent
from sealbus.testing import TestBed

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_twenty_painters_bid(testbed: TestBed, capsys: pytest.CaptureFixture[str]) -> None:
    module = example("contract_net")
    painters = [module.Painter(number) for number in range(1, 21)]
    await testbed.start_all(module.Owner("owner"), *painters)
    await testbed.clock.run(testbed.wait())
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("17 offers, 2 refusals") and "painter-20" in first
    assert last == "painter-17 has painted it for 72 euros"


async def test_a_painter_that_is_cut_off_costs_no_more_than_the_deadline(
    testbed: TestBed, capsys: pytest.CaptureFixture[str]
) -> None:
    module = example("contract_net")
    painters = [module.Painter(number) for number in range(1, 21)]
    lost = testbed.faults.drop(sender="painter-17", performative="propose")
    await testbed.start_all(module.Owner("owner"), *painters)
    await testbed.clock.run(testbed.wait())
    assert lost.count == 1
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("16 offers, 2 refusals") and "painter-17" in first
    assert "painter-17" not in last


async def test_a_seller_without_the_book_or_that_has_left_ends_no_buyer(
    testbed: TestBed, capsys: pytest.CaptureFixture[str]
) -> None:
    module = example("marketplace")

    class Emptied(module.Seller):  # type: ignore[misc, name-defined]
        books = ()

    emptied, leaving = Emptied("emptied", 2), module.Seller("leaving", 1)
    await testbed.start_all(emptied, leaving)
    buyer = asyncio.ensure_future(testbed.start(module.Buyer("buyer")))
    leaving.stop()
    while len(await emptied.df.search("bookshop")) > 1:
        await asyncio.sleep(0)
    await testbed.start_all(module.Seller("seller", 9), module.Seller("dear", 15))
    await testbed.clock.run(testbed.wait())
    await buyer
    assert capsys.readouterr().out.splitlines()[-1] == "seller sold 'Middlemarch' for 9"


async def test_the_tulips_go_to_the_highest_limits(testbed: TestBed, capsys: pytest.CaptureFixture[str]) -> None:
    module = example("dutch_auction")
    florists = [module.Florist("flora", 25, 1), module.Florist("rosa", 20, 2), module.Florist("viola", 12, 5)]
    await testbed.start_all(module.Grower("grower"), *florists)
    await testbed.clock.run(testbed.wait())
    assert capsys.readouterr().out.splitlines() == [
        "flora buys a crate for 25",
        "rosa buys a crate for 20",
        "rosa buys a crate for 20",
        "1 crates are left",
    ]


async def test_the_supply_chain_buys_its_steel(testbed: TestBed, capsys: pytest.CaptureFixture[str]) -> None:
    module = example("supply_chain")
    suppliers = [module.Supplier("north", 1.5), module.Supplier("south", 1.4), module.Supplier("west", 1.6)]
    mills = [module.Mill("mill-1", 4, 2.5), module.Mill("mill-2", 3.8, 3)]
    await testbed.start_all(module.Factory("factory"), *suppliers, *mills)
    await testbed.clock.run(testbed.wait())
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "bought for 394.24: parts of south, made of steel of mill-1"


async def test_a_late_dashboard_sees_the_last_reading_of_each_sensor(
    testbed: TestBed, capsys: pytest.CaptureFixture[str]
) -> None:
    module = example("dashboard")
    sensors = [module.Sensor("kitchen"), module.Sensor("office")]
    await testbed.start_all(*sensors)
    onlooker = await testbed.start(Agent("onlooker"))
    readings = await onlooker.channel("/readings", qos="persistent")

    async def measured(celsius: str) -> None:
        # The disk keeps no virtual time.
        while [reading.text for reading in await readings.last("properties.room")] != [celsius, celsius]:
            await asyncio.sleep(0.01)

    await measured("18.5")
    for celsius in ("19.0", "19.5"):
        await testbed.clock.advance(1)
        await measured(celsius)
    dashboard = module.Dashboard("dashboard")
    dashboard.late = 0
    await testbed.start(dashboard)
    shown = ""
    for count in (2, 4, 6):
        while len(shown.splitlines()) < count:
            await asyncio.sleep(0.01)
            shown += capsys.readouterr().out
        if count < 6:
            await testbed.clock.advance(1)
    for room in ("kitchen", "office"):
        # Those before come no more; then none is left out.
        lines = [line for line in shown.splitlines() if line.startswith(room)]
        assert [line.split(": ")[1] for line in lines] == [f"{celsius} degrees" for celsius in ("19.5", "20.0", "20.5")]

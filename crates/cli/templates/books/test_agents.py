"""The agents on a test bed: a platform in memory, with a clock that the test moves."""

import pytest
from agents import Buyer, Seller

from sealbus import AclMessage
from sealbus.testing import TestBed


async def test_the_buyer_gets_an_offer(testbed: TestBed, capsys: pytest.CaptureFixture[str]) -> None:
    await testbed.start_all(Seller("seller"), Buyer("buyer"))
    await testbed.clock.run(testbed.wait())
    assert "offers Middlemarch for 12 euros" in capsys.readouterr().out


async def test_the_seller_answers_anybody(testbed: TestBed) -> None:
    await testbed.start(Seller("seller"))
    customer = await testbed.probe("customer")
    await customer.send(AclMessage("cfp", "seller", "Emma"))
    await customer.expect("propose", body="Emma for 12 euros")

"""The gateway as operators have it: started by a manifest, its rules changed by the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sealbus
from conftest import LIMIT, Jade
from harness import Platform, wait_for
from sealbus import AID, AclMessage, Agent, Filter, ServiceDescription

MANIFEST = """
    [platform]
    name = "factory"

    [gateway.http]
    listen = "127.0.0.1:0"
"""


@pytest.fixture
def factory(tmp_path: Path) -> Any:
    directory = tmp_path / "factory"
    directory.mkdir()
    platform = Platform(directory, MANIFEST)
    try:
        yield platform.up()
    finally:
        platform.down()


async def test_the_gateway_of_a_manifest(
    jade: Callable[..., Jade], factory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    plat1 = jade(partner="Partner", directory="Directory")
    status = wait_for(
        lambda: factory.ask("gateway", "list")["gateway"], "the gateway to run", also=factory.logs
    )
    (address,) = status["addresses"]
    monkeypatch.setenv("SEALBUS_TICKET", factory.ask("ticket", "visitor")["ticket"])
    async with sealbus.Platform() as platform:
        visitor = await platform.start(Agent("visitor"))
        partner = plat1.aid("partner")

        # Agents of JADE may write to nobody there is, so an answer does not come in.
        known = ("gateway", "allow", "plat1", "--to", "nobody", "--from", "127.0.0.1")
        factory.ask(*known)
        await visitor.send(AclMessage("request", partner, "lost"))
        refused = wait_for(
            lambda: factory.ask("gateway", "counters")["refused"], "a refusal", also=factory.logs
        )
        assert refused.keys() == {"not-permitted"}
        allow = ("gateway", "allow", "plat1", "--to", "visitor", "--to", "df", "--from", "127.0.0.1", "--register")
        assert factory.ask(*allow)["rules"]["rules"][1:] == [
            {"platform": "plat1", "to": ["visitor", "df"], "from": ["127.0.0.1"], "register": True}
        ]

        # Through the mesh to the gateway's process, and over HTTP.
        pong = await visitor.request(AclMessage("request", partner, "ping"), timeout=LIMIT)
        assert (pong.content_text, pong.provenance) == ("ping", "foreign")
        for number in range(100):
            await visitor.send(AclMessage("inform", partner, str(number)))
        for number in range(100):
            assert (await visitor.receive(timeout=LIMIT)).content_text == str(number)
        await visitor.send(AclMessage("inform", AID("x@nowhere"), "hello", conversation_id="lost"))
        failure = await visitor.receive(Filter("failure", conversation_id="lost"), timeout=LIMIT)
        assert failure.provenance == "platform"
        assert failure.undelivered is not None and failure.undelivered[0] == "x@nowhere"

        # JADE's DF searches in ours, once ours has registered with it.
        await visitor.df.register(ServiceDescription(name="boxes", type="box-selling"))
        factory.ask("df", "federate", "df@plat1", "--address", plat1.address)
        order = AclMessage(
            "inform", plat1.aid("directory"), "search box-selling 1", ontology="order", conversation_id="search"
        )
        found = "found"
        while found == "found":
            await visitor.send(order)
            report = await visitor.receive(Filter(conversation_id="search"), timeout=LIMIT)
            found = report.content_text or ""
        assert found == f"found visitor@factory={address}"

        assert factory.ask("gateway", "deny", "plat1")["rules"] == {"rules": []}
        factory.tell("gateway", "deny", "plat1", expect=4)
        # Without a rule that names it, nobody writes to an address of this machine either.
        await visitor.send(AclMessage("request", partner, "lost", conversation_id="denied"))
        failure = await visitor.receive(Filter("failure", conversation_id="denied"), timeout=LIMIT)
        assert "sealbus gateway allow plat1 --from 127.0.0.1" in (failure.content_text or "")
        factory.ask(*known)
        before = factory.ask("gateway", "counters")["refused"]["not-permitted"]
        await visitor.send(AclMessage("request", partner, "lost"))
        wait_for(
            lambda: factory.ask("gateway", "counters")["refused"]["not-permitted"] > before,
            "a refusal",
            also=factory.logs,
        )

"""An agent of another platform hears that an agent of JADE, which is an agent of the platform, has left its message unread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sealbus
from conftest import LIMIT
from harness import Platform, wait_for
from sealbus import AID, AclMessage, Agent, Filter
from test_direct import Here, jade

__all__ = ["jade"]

MANIFEST = """
    [platform]
    name = "factory"

    [gateway.http]
    listen = "127.0.0.1:0"

    [[gateway.http.allow]]
    platform = "elsewhere"
    to = ["deaf"]
    from = ["127.0.0.1"]
"""


@pytest.fixture
def factory(tmp_path: Path) -> Iterator[Platform]:
    directory = tmp_path / "factory"
    directory.mkdir()
    platform = Platform(directory, MANIFEST)
    try:
        yield platform.up()
    finally:
        platform.down()


async def test_an_author_of_another_platform_hears_of_a_message_that_was_left_unread(
    jade: Callable[..., Here], factory: Platform
) -> None:
    status = wait_for(lambda: factory.ask("gateway", "list")["gateway"], "the gateway to run", also=factory.logs)
    jade(deaf="org.sealbus.jade.Deaf")

    def runs() -> bool:
        agent = factory.agents().get("deaf")
        return agent is not None and agent["state"] == "active"

    wait_for(runs, "the agent of JADE to run", also=factory.logs)
    gateway = {
        "listen": "127.0.0.1:0",
        "allow": [{"platform": "factory", "to": ["author"], "from": ["127.0.0.1"]}],
    }
    async with sealbus.Platform(name="elsewhere", gateway=gateway) as elsewhere:
        author = await elsewhere.start(Agent("author"))
        deaf = AID("deaf@factory", addresses=[status["addresses"][0]])
        await author.send(AclMessage("request", deaf, "hello", conversation_id="unread"))
        failure = await author.receive(Filter("failure", conversation_id="unread"), timeout=LIMIT)
    assert failure.sender is not None and failure.sender.name == "ams@factory"
    assert failure.provenance == "foreign"
    # It ends when it has got a message.
    wait_for(lambda: not runs(), "the end of the agent of JADE", also=factory.logs)

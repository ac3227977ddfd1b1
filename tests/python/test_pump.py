"""The news of many agents come together, and what goes wrong with one of them is no matter of the others."""

import asyncio
from typing import Any

import pytest

from sealbus import AclMessage, Agent, Platform


async def test_an_exception_with_one_agents_news_keeps_no_other_from_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    async with Platform() as platform:
        victim, other, sender = [await platform.start(Agent(name)) for name in ("victim", "other", "sender")]
        waiting = asyncio.create_task(other.receive())
        asking = asyncio.create_task(sender.ams.find("other"))
        while not other._living.mailbox.is_awaited():
            await asyncio.sleep(0)

        def fail() -> None:
            raise KeyError("a defect")

        hear = victim._living.mailbox.hear
        monkeypatch.setattr(victim._living.mailbox, "hear", fail)
        # Both messages are there before the loop looks, that of the victim first.
        await sender.send_many([AclMessage("inform", "victim", "one"), AclMessage("inform", "other", "two")])
        # Nothing else tells them.
        async with asyncio.timeout(10):
            assert (await waiting).text == "two"
            assert await asking is not None
        monkeypatch.setattr(victim._living.mailbox, "hear", hear)
        assert (await victim.receive(timeout=60)).text == "one"
    assert [type(context["exception"]) for context in reported] == [KeyError]


async def test_an_exception_with_the_log_keeps_no_agent_from_its_news(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))

    def fail() -> None:
        raise OSError("no room on the disk")

    with monkeypatch.context() as patched:
        async with Platform() as platform:
            anna = await platform.start(Agent("anna"))
            waiting = asyncio.create_task(anna.receive())
            while not anna._living.mailbox.is_awaited():
                await asyncio.sleep(0)
            patched.setattr(platform.pump, "_has_log", True)
            patched.setattr("sealbus.pump.log.flush", fail)
            await anna.send(AclMessage("inform", "anna", "hello"))
            async with asyncio.timeout(10):
                assert (await waiting).text == "hello"
            patched.undo()
    assert {type(context["exception"]) for context in reported} == {OSError}


async def test_a_log_that_raises_at_the_end_keeps_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)

    def fail() -> None:
        raise OSError("no room on the disk")

    platform = await Platform().open()
    platform.pump.listen(lambda: None)
    with monkeypatch.context() as patched:
        patched.setattr(platform.pump, "_has_log", True)
        patched.setattr("sealbus.pump.log.flush", fail)
        with pytest.raises(OSError, match="no room"):
            await platform.close()
    assert not platform.pump._mailboxes and not platform.pump._futures

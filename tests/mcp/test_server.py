"""The official Python client uses the platform as a server: agents' tools, the platform's own, and channels."""

import asyncio
import json
import time

import pytest
from mcp import Client, MCPError

from conftest import Door
from harness import DEADLINE, wait_for

OWN = {
    "publish", "read_channel", "read_mailbox", "request_agent", "search_agents", "send_message", "subscribe", "unsubscribe",
}  # fmt: skip


async def tools(client: Client) -> dict[str, object]:
    """All tools, once the gateway has heard of the vault's."""
    until = time.monotonic() + DEADLINE
    while True:
        found, cursor = {}, None
        while True:
            page = await client.list_tools(cursor=cursor)
            found |= {tool.name: tool for tool in page.tools}
            cursor = page.next_cursor
            if cursor is None:
                break
        if "clock__slow" in found or time.monotonic() > until:
            return found
        await asyncio.sleep(0.05)


async def test_each_agents_tools_are_there_with_their_schemas(door: Door, mode: str) -> None:
    async with door.client(mode=mode) as client:
        assert client.server_info.name == "sealbus"
        assert client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
        found = await tools(client)
        assert OWN <= set(found)
        offered = {name for name in found if name.startswith(("clock__", "vault__"))}
        assert offered == {"clock__slow", "clock__double", "clock__echo", "clock__refuse", "vault__open"}
        assert found["clock__slow"].input_schema["properties"].keys() == {"count", "pause"}
        assert found["clock__double"].input_schema["properties"] == {"input": {"type": "integer"}}
        about = found["clock__refuse"].description
        assert about.startswith("Refuses") and about.isprintable()


async def test_a_call_is_a_request_and_its_result_the_reply(door: Door, mode: str) -> None:
    async with door.client(mode=mode) as client:
        await tools(client)
        doubled = await client.call_tool("clock__double", {"input": 21})
        assert doubled.structured_content == {"result": 42}
        assert doubled.meta["sealbus/sender"] == "clock@factory"
        assert doubled.meta["sealbus/provenance"] == "proved"
        said = await client.call_tool("clock__echo", {"input": "½ \"x\"\n"})
        assert said.structured_content == {"result": "½ \"x\"\n"}
        assert said.content[0].text == "½ \"x\"\n"
        refused = await client.call_tool("clock__refuse", {"input": "tea"})
        assert refused.is_error and "not my job: tea" in refused.content[0].text
        wrong = await client.call_tool("clock__double", {"input": "many"})
        assert wrong.is_error
        with pytest.raises(MCPError):
            await client.call_tool("clock__double", {})
        with pytest.raises(MCPError):
            await client.call_tool("clock__nothing", {})


async def test_parts_and_progress_come_while_the_tool_works(door: Door, mode: str) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def on_progress(done: float, total: float | None, text: str | None) -> None:
        heard.append((done, total, text))

    async with door.client(mode=mode) as client:
        await tools(client)
        counted = await client.call_tool(
            "clock__slow", {"count": 4, "pause": 0.05}, progress_callback=on_progress
        )
        assert counted.structured_content == {"result": ["0", "1", "2", "3"]}
    assert heard == [(0.25, 1, "step 1"), (0.5, 1, "step 2"), (0.75, 1, "step 3"), (1, 1, "step 4")]


async def test_a_call_that_is_given_up_is_cancelled_at_the_agent(door: Door, mode: str) -> None:
    for note in ("slow-begun", "slow-cancelled"):
        (door.notes / note).unlink(missing_ok=True)
    async with door.client(mode=mode) as client:
        await tools(client)
        call = asyncio.create_task(client.call_tool("clock__slow", {"count": 1_000_000, "pause": 0.01}))
        await asyncio.to_thread(wait_for, (door.notes / "slow-begun").exists, "the tool to begin")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.to_thread(wait_for, (door.notes / "slow-cancelled").exists, "the agent's tool to be cancelled")


async def test_the_caller_is_an_agent_in_name(door: Door, mode: str) -> None:
    async with door.client("assistant", mode) as one, door.client("auditor", mode) as other, door.client(None, mode) as guest:
        for client, name in ((one, "assistant"), (other, "auditor"), (guest, "guest")):
            asked = await client.call_tool("request_agent", {"to": "secretary", "content": "good day"})
            assert asked.structured_content["content"] == f"{name}@factory said good day"
            sent = await client.call_tool("send_message", {"to": "secretary", "content": f"tea for {name}"})
            assert sent.structured_content["acknowledged"] == "taken"
            passed = await client.call_tool("request_agent", {"to": "herald", "content": "for whom?"})
            assert passed.structured_content["content"] == f"{name}@factory > herald@factory"
        # Each has a mailbox of its own.
        for client, name in ((other, "auditor"), (one, "assistant"), (guest, "guest")):
            until = time.monotonic() + DEADLINE
            messages: list[dict[str, str]] = []
            while not messages and time.monotonic() < until:
                mail = await client.call_tool("read_mailbox", {})
                messages += mail.structured_content["messages"]
            assert [(each["sender"], each["content"]) for each in messages] == [
                ("secretary@factory", f"thanks for tea for {name}")
            ]


async def test_a_call_belongs_to_the_trace_of_its_caller(door: Door, mode: str) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-{}-01"
    in_meta, in_field, back = (trace.format(span) for span in ("b7ad6b7169203331", "53995c3f42cd8ad8", "00f067aa0ba902b7"))

    async def told(client: Client, **meta: str) -> dict[str, str]:
        arguments = {"to": "secretary", "content": "the trace"}
        asked = await client.call_tool("request_agent", arguments, meta=meta)  # type: ignore[arg-type]
        assert asked.meta["traceparent"] == back
        parameters = json.loads(asked.structured_content["content"])
        return {name: value for name, value in parameters.items() if name.startswith("X-trace")}

    async with door.client(mode=mode) as client:
        assert await told(client) == {}
        assert await told(client, traceparent=in_meta, tracestate="a=1") == {"X-traceparent": in_meta, "X-tracestate": "a=1"}
        assert await told(client, traceparent="00-nothing", tracestate="a=1") == {}
        # A server of MCP behind an agent hears of it, too.
        end = time.monotonic() + DEADLINE
        while "library__trace" not in {tool.name for tool in (await client.list_tools()).tools}:
            assert time.monotonic() < end
            await asyncio.sleep(0.05)
        heard = await client.call_tool("library__trace", {}, meta={"traceparent": in_meta})  # type: ignore[typeddict-unknown-key]
        assert heard.structured_content == {"result": in_meta}
    async with door.client(mode=mode, traceparent=in_field) as client:
        assert await told(client) == {"X-traceparent": in_field}
        assert await told(client, traceparent=in_meta) == {"X-traceparent": in_meta}


async def test_the_platforms_rules_hold_for_callers(door: Door, mode: str) -> None:
    async with door.client(None, mode) as guest, door.client("assistant", mode) as assistant:
        assert "vault__open" in await tools(assistant)
        assert "vault__open" not in await tools(guest)
        opened = await assistant.call_tool("vault__open", {"input": "1234"})
        assert opened.structured_content == {"result": "gold"}
        with pytest.raises(MCPError):
            await guest.call_tool("vault__open", {"input": "1234"})
        asked = await guest.call_tool("request_agent", {"to": "vault", "content": "1234"})
        assert asked.is_error
        published = await guest.call_tool("publish", {"channel": "/orders", "content": "tea"})
        assert published.is_error


async def test_channels_are_resources_that_tell_of_events(door: Door, mode: str) -> None:
    uri = "sealbus://channel/news"
    async with door.client(mode=mode) as client:
        subscribed = await client.call_tool("subscribe", {"channel": "/news"})
        assert subscribed.structured_content == {"uri": uri}
        assert uri in [str(each.uri) for each in (await client.list_resources()).resources]
        before = (await client.call_tool("read_channel", {"channel": "/news", "limit": 0})).structured_content["last"]
        if mode == "legacy":
            await client.call_tool("publish", {"channel": "/orders", "content": "tea"})
        else:
            async with client.listen(resource_subscriptions=[uri]) as events:
                await client.call_tool("publish", {"channel": "/orders", "content": "tea"})
                event = await asyncio.wait_for(anext(aiter(events)), DEADLINE)
                assert str(event.uri) == uri
        until = time.monotonic() + DEADLINE
        found: list[dict[str, str]] = []
        while not found and time.monotonic() < until:
            read = await client.call_tool("read_channel", {"channel": "/news", "after": before})
            found = read.structured_content["events"]
        assert [(each["sender"], each["content"]) for each in found] == [
            ("herald@factory", "assistant@factory ordered tea")
        ]
        resource = await client.read_resource(uri)
        assert json.loads(resource.contents[0].text)["last"] == before + 1
        await client.call_tool("unsubscribe", {"channel": "/news"})
        assert uri not in [str(each.uri) for each in (await client.list_resources()).resources]


async def test_agents_are_found_and_shown(door: Door, mode: str) -> None:
    async with door.client(mode=mode) as client:
        found = await client.call_tool("search_agents", {"service": "open"})
        assert [each["name"] for each in found.structured_content["agents"]] == ["vault@factory"]
        everybody = json.loads((await client.read_resource("sealbus://agents")).contents[0].text)
        assert {"assistant@factory", "clock@factory"} <= {each["name"] for each in everybody}
        vault = json.loads((await client.read_resource("sealbus://agent/vault")).contents[0].text)
        assert vault["services"][0]["type"] == "open"
        with pytest.raises(MCPError):
            await client.read_resource("sealbus://agent/nobody")
        with pytest.raises(MCPError):
            await client.read_resource("file:///etc/passwd")

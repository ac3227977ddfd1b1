"""The agent of `examples/gateways.toml` is reached by a client of A2A, a host of MCP and an agent of JADE in one run."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, SendMessageRequest
from google.protobuf.json_format import MessageToDict
from mcp import Client

from conftest import LIMIT, Jade
from harness import ROOT, Platform, wait_for

EXAMPLES = ROOT / "examples"
PROMPT = {"text": "agents", "words": 5}


async def by_a2a(url: str) -> list[str]:
    async with httpx.AsyncClient(timeout=LIMIT) as web:
        client = ClientFactory(ClientConfig(httpx_client=web)).create(await A2ACardResolver(web, url).get_agent_card())
        part = Part(text=json.dumps(PROMPT))
        message = Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=[part])
        events = [event async for event in client.send_message(SendMessageRequest(message=message))]
    parts = [MessageToDict(it.artifact_update.artifact.parts[0].data) for it in events if it.HasField("artifact_update")]
    return [part["word"] for part in parts]


async def by_mcp(url: str) -> tuple[list[str], list[float]]:
    progress: list[float] = []

    async def on_progress(done: float, _total: float | None, _text: str | None) -> None:
        progress.append(done)

    async with Client(url) as host:
        while "model__complete" not in {tool.name for tool in (await host.list_tools()).tools}:
            await asyncio.sleep(0.05)
        answer = await host.call_tool("model__complete", PROMPT, progress_callback=on_progress)
    return [chunk["word"] for chunk in answer.structured_content["result"]], progress


async def test_one_agent_behind_three_doors(jade: Callable[..., Jade], tmp_path: Path) -> None:
    manifest = re.sub(r":77\d\d", ":0", (EXAMPLES / "gateways.toml").read_text())
    manifest = manifest.replace('"python"', '"PYTHON"').replace('"tool_agent.py"', f'"{EXAMPLES / "tool_agent.py"}"')
    folder = tmp_path / "factory"
    folder.mkdir()
    factory = Platform(folder, manifest)

    def said(agent: str, pattern: str) -> Any:
        log = factory.tell("logs", agent, expect=None).stdout.decode(errors="replace")
        return re.search(pattern, log)

    try:
        factory.up()
        a2a = wait_for(lambda: said("a2a", r"http://[\d.:]+/agents/"), "A2A's door", also=factory.logs).group()
        mcp = wait_for(lambda: said("mcp", r"http://[\d.:]+/mcp"), "MCP's door", also=factory.logs).group()
        status = wait_for(lambda: factory.ask("gateway", "list")["gateway"], "FIPA's door", also=factory.logs)
        card = f"{a2a}model/.well-known/agent-card.json"
        wait_for(lambda: httpx.get(card, timeout=LIMIT).status_code == 200, "the card", also=factory.logs)
        plat1 = jade(asker=f"Asker(model@factory,{status['addresses'][0]})")
        words, (others, progress) = await asyncio.gather(by_a2a(f"{a2a}model"), by_mcp(mcp))

        def heard() -> Any:
            return re.search(r"heard (\w+) (.*)", (plat1.folder / "jade.log").read_text(errors="replace"))

        act, content = wait_for(heard, "JADE's agent to hear the answer", also=factory.logs).groups()
    finally:
        factory.down()
    assert len(words) == 5 and words == others
    assert act == "INFORM" and [chunk["word"] for chunk in json.loads(content)] == words
    assert progress == [0.2, 0.4, 0.6, 0.8, 1]

"""The agent of the A2A benchmark, behind the server of the official SDK and behind Sealbus.

``python a2a_agents.py official PORT`` is the SDK's own server. ``python a2a_agents.py program SETTINGS`` is a program with a platform
of its own, whose door is as the JSON says; ``python a2a_agents.py agent`` is an agent of a platform with a gateway.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

MOST = 1_024
"""Requests that are served side by side."""


async def answer(text: str) -> AsyncIterator[str]:
    """Repeats the text. The answer to ``wait`` never ends."""
    yield text
    if text == "wait":
        await asyncio.Event().wait()


def official(port: int) -> None:
    import uvicorn
    from a2a.server.agent_execution import AgentExecutor, RequestContext
    from a2a.server.events import EventQueue
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
    from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
    from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part, Task, TaskState, TaskStatus
    from starlette.applications import Starlette

    class Echo(AgentExecutor):
        async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
            assert context.task_id is not None and context.context_id is not None
            status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            task = Task(id=context.task_id, context_id=context.context_id, status=status)
            await event_queue.enqueue_event(task)
            updater = TaskUpdater(event_queue, context.task_id, context.context_id)
            await updater.start_work()
            async for part in answer(context.get_user_input()):
                await updater.add_artifact([Part(text=part)], artifact_id="result")
            await updater.complete()

        async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
            assert context.task_id is not None and context.context_id is not None
            await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()

    url = f"http://127.0.0.1:{port}/agents/echo"
    card = AgentCard(
        name="echo",
        description="Says it again.",
        version="1",
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        supported_interfaces=[AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")],
        skills=[AgentSkill(id="answer", name="answer", description="Says it again.", tags=["echo"])],
    )
    handler = DefaultRequestHandler(agent_executor=Echo(), task_store=InMemoryTaskStore(), agent_card=card)
    routes = [
        *create_agent_card_routes(card, card_url="/agents/echo/.well-known/agent-card.json"),
        *create_jsonrpc_routes(handler, "/agents/echo"),
    ]
    uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=port, log_level="error", access_log=False)


def ours(a2a: dict[str, Any] | None) -> None:
    from sealbus import Agent, run, tool

    class Echo(Agent):
        async def setup(self) -> None:
            await self.df.register(*self.tools())

        @tool(concurrency=MOST)
        async def answer(self, text: str) -> AsyncIterator[str]:
            """Repeats the text."""
            async for part in answer(text):
                yield part

    run(Echo("echo"), a2a=a2a or False)


if __name__ == "__main__":
    if sys.argv[1] == "official":
        official(int(sys.argv[2]))
    else:
        ours(json.loads(sys.argv[2]) if sys.argv[1] == "program" else None)

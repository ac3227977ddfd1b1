"""The official Python client uses agents of the platform as they are, in both bindings."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import pytest
from a2a.client import Client
from a2a.client.errors import A2AClientError
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import A2AError, TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError
from google.protobuf.json_format import MessageToDict

from conftest import Door, say
from harness import wait_for

STATE = TaskState.Name


async def heard(client: Client, request: SendMessageRequest) -> list[tuple[str, Any]]:
    """The answer to a message: each event's kind and content."""
    events = []
    async for event in client.send_message(request):
        kind = event.WhichOneof("payload")
        events.append((kind, getattr(event, kind)))
    return events


async def outcome(client: Client, request: SendMessageRequest) -> Task:
    """The task of a message, once nothing comes any more."""
    events = await heard(client, request)
    assert events[0][0] == "task", events
    return await client.get_task(GetTaskRequest(id=events[0][1].id))


def result(task: Task) -> list[Any]:
    return [MessageToDict(part).get("data", part.text) for artifact in task.artifacts for part in artifact.parts]


def why(task: Task) -> str:
    return str(task.status.message.parts[0].text)


async def test_a_text_becomes_a_result(door: Door, binding: str) -> None:
    async with door.client("echo", binding=binding) as client:
        task = await outcome(client, say("good day ½"))
        assert STATE(task.status.state) == "TASK_STATE_COMPLETED"
        assert [it.endswith(": good day ½") for it in result(task)] == [True]
        assert task.history[0].parts[0].text == "good day ½"
        about = MessageToDict(task.metadata)
        assert about["sealbus/sender"] == "echo@factory" and about["sealbus/provenance"] == "proved"
    async with door.client("echo", binding=binding, streams=False) as client:
        events = await heard(client, say("as a whole"))
        assert [kind for kind, _ in events] == ["task"]
        assert result(events[0][1])[0].endswith(": as a whole")


async def test_a_task_belongs_to_the_trace_of_its_caller(door: Door, binding: str) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-{}-01"
    parent, back = (trace.format(span) for span in ("b7ad6b7169203331", "00f067aa0ba902b7"))

    async def told(**fields: str) -> dict[str, str]:
        async with door.client("oracle", binding=binding, **fields) as client:
            task = await outcome(client, say("the trace"))
        assert MessageToDict(task.metadata)["traceparent"] == back
        parameters = json.loads(result(task)[0])
        return {name: value for name, value in parameters.items() if name.startswith("X-trace")}

    assert await told() == {}
    assert await told(traceparent=parent, tracestate="a=1") == {"X-traceparent": parent, "X-tracestate": "a=1"}
    assert await told(traceparent="00-nothing", tracestate="a=1") == {}


async def test_parts_and_progress_come_while_the_agent_works(door: Door, binding: str) -> None:
    async with door.client("clock", binding=binding) as client:
        events = await heard(client, say(data={"count": 3, "pause": 0.05}, skill="slow"))
        kinds = [kind for kind, _ in events]
        assert kinds[0] == "task" and kinds[-1] == "status_update"
        parts = [it.artifact.parts[0].text for kind, it in events if kind == "artifact_update"]
        assert parts == ["0", "1", "2"]
        assert [it.append for kind, it in events if kind == "artifact_update"] == [False, True, True]
        told = [it.status.message.parts[0].text for kind, it in events if kind == "status_update" and it.status.message.parts]
        assert told == ["33 %: step 1", "67 %: step 2", "100 %: step 3"]
        assert STATE(events[-1][1].status.state) == "TASK_STATE_COMPLETED"
        task = await client.get_task(GetTaskRequest(id=events[0][1].id))
        assert result(task) == ["0", "1", "2"]


async def test_the_state_is_what_the_agent_says(door: Door, binding: str) -> None:
    async with door.client("clock", binding=binding) as client:
        doubled = await outcome(client, say("21", skill="double"))
        assert result(doubled) == [{"result": 42}]
        for word, state, reason in (("refuse", "REJECTED", "not my job"), ("fail", "FAILED", "it broke")):
            task = await outcome(client, say(word, skill="judge"))
            assert STATE(task.status.state) == f"TASK_STATE_{state}"
            assert why(task) == reason
        task = await outcome(client, say(data={"count": "many"}, skill="slow"))
        assert STATE(task.status.state) == "TASK_STATE_REJECTED" and "$.count" in why(task)


async def test_a_question_of_the_agent_is_put_to_the_caller(door: Door, binding: str) -> None:
    async with door.client("oracle", binding=binding) as client:
        task = await outcome(client, say("advise me"))
        assert STATE(task.status.state) == "TASK_STATE_INPUT_REQUIRED"
        assert why(task) == "which colour?"
        done = await outcome(client, say("blue", task=task.id, context=task.context_id))
        assert done.id == task.id
        assert STATE(done.status.state) == "TASK_STATE_COMPLETED"
        assert result(done) == ["you answered: blue"]
        with pytest.raises(UnsupportedOperationError):
            await heard(client, say("green", task=task.id))


async def test_a_task_is_cancelled_at_the_agent_before_all_its_watchers(door: Door, binding: str) -> None:
    for note in ("slow-begun", "slow-cancelled"):
        (door.notes / note).unlink(missing_ok=True)

    async def watch(client: Client, id: str, begun: asyncio.Event) -> list[str]:
        seen = []
        async for event in client.subscribe(SubscribeToTaskRequest(id=id)):
            begun.set()
            kind = event.WhichOneof("payload")
            if kind == "status_update":
                seen.append(STATE(event.status_update.status.state))
        return seen

    async with door.client("clock", binding=binding) as client:
        stream = client.send_message(say(data={"count": 1_000_000, "pause": 0.01}, skill="slow"))
        task = (await anext(aiter(stream))).task
        await asyncio.to_thread(wait_for, (door.notes / "slow-begun").exists, "the tool to begin")
        begun = asyncio.Event()
        watcher = asyncio.create_task(watch(client, task.id, begun))
        await begun.wait()
        # A client that leaves disturbs nobody.
        await stream.aclose()
        cancelled = await client.cancel_task(CancelTaskRequest(id=task.id))
        assert STATE(cancelled.status.state) == "TASK_STATE_CANCELED"
        assert (await watcher)[-1] == "TASK_STATE_CANCELED"
        await asyncio.to_thread(wait_for, (door.notes / "slow-cancelled").exists, "the agent's tool to be cancelled")
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(CancelTaskRequest(id=task.id))
        with pytest.raises(UnsupportedOperationError):
            async for _ in client.subscribe(SubscribeToTaskRequest(id=task.id)):
                pass


async def test_tasks_are_listed_in_pages_the_latest_first(door: Door, binding: str) -> None:
    context = f"pages-{binding}-{uuid.uuid4()}"
    async with door.client("echo", "auditor", binding) as client:
        ids = [(await outcome(client, say(f"page {number}", context=context))).id for number in range(5)]
        found: list[str] = []
        token = ""
        while True:
            wanted = ListTasksRequest(context_id=context, page_size=2, page_token=token)
            page = await client.list_tasks(wanted)
            assert page.total_size == 5
            assert not any(task.artifacts for task in page.tasks)
            found += [task.id for task in page.tasks]
            token = page.next_page_token
            if not token:
                break
        assert found == ids[::-1]
        none = ListTasksRequest(context_id=f"pages-{binding}", status=TaskState.TASK_STATE_FAILED)
        assert not (await client.list_tasks(none)).tasks


async def test_a_task_is_its_callers_and_its_agents(door: Door, binding: str) -> None:
    async with (
        door.client("echo", "assistant", binding) as mine,
        door.client("echo", "auditor", binding) as others,
        door.client("clock", "assistant", binding) as another,
    ):
        task = await outcome(mine, say("private"))
        for client in (others, another):
            with pytest.raises(TaskNotFoundError):
                await client.get_task(GetTaskRequest(id=task.id))
            with pytest.raises(TaskNotFoundError):
                await client.cancel_task(CancelTaskRequest(id=task.id))
            with pytest.raises(TaskNotFoundError):
                await heard(client, say("mine?", task=task.id))
            listed = await client.list_tasks(ListTasksRequest(page_size=100))
            assert task.id not in [it.id for it in listed.tasks]


async def test_the_platforms_rules_hold_for_callers(door: Door, binding: str) -> None:
    async with door.client("vault", "assistant", binding) as client:
        assert result(await outcome(client, say("1234"))) == ["gold"]
    with pytest.raises((A2AClientError, A2AError)):
        async with door.client("vault", None, binding):
            pass
    assert door.send("GET", "/agents/vault/.well-known/agent-card.json", caller=None)[0] == 404
    hidden = door.send("POST", "/agents/vault", {"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}, caller=None)
    nobody = door.send("POST", "/agents/nobody", {"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}, caller=None)
    assert (hidden[0], hidden[2]) == (nobody[0], nobody[2]) == (404, hidden[2])

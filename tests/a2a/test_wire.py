"""The bytes on the wire: cards, errors of both bindings, versions, streams with numbers, messages sent twice."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

import pytest

from conftest import Door
from harness import wait_for


def message(text: str = "hi", **more: object) -> dict[str, Any]:
    return {"message": {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": text}], **more}}


def events(body: bytes) -> list[tuple[int, dict[str, Any]]]:
    """Each event's number and data."""
    found = re.findall(r"id: (\d+)\ndata: (.*)\n\n", body.decode())
    return [(int(number), json.loads(data)) for number, data in found]


def test_a_card_tells_how_its_agent_is_asked(door: Door) -> None:
    path = "/agents/clock/.well-known/agent-card.json"
    status, headers, body = door.send("GET", path, caller=None)
    card = json.loads(body)
    assert status == 200 and "max-age" in headers["cache-control"]
    assert card["name"] == "clock" and {it["id"] for it in card["skills"]} == {"slow", "double", "judge"}
    bindings = {(it["protocolBinding"], it["protocolVersion"], it["url"]) for it in card["supportedInterfaces"]}
    here = [(it, "1.0", f"{door.url}/agents/clock") for it in ("JSONRPC", "HTTP+JSON")]
    assert bindings == {*here, ("GRPC", "1.0", "{}:{}".format(*door.place))}
    judge = next(it for it in card["skills"] if it["id"] == "judge")
    assert judge["description"].isprintable()
    assert door.send("GET", path, caller=None, If_None_Match=headers["etag"])[0] == 304
    # Behind a proxy, the addresses are the proxy's.
    card = json.loads(door.send("GET", path, Host="agents.example")[2])
    assert card["supportedInterfaces"][0]["url"] == "https://agents.example/agents/clock"
    assert card["supportedInterfaces"][2]["url"] == "agents.example:443"
    assert door.send("GET", "/agents/nobody/.well-known/agent-card.json")[0] == 404
    assert door.send("GET", "/.well-known/agent-card.json")[0] == 404


SEND = "SendMessage"

WRONG = [
    (SEND, {}, -32602, "message"),
    (SEND, message(role="ROLE_AGENT"), -32602, "message.role"),
    (SEND, message(parts=[]), -32602, "message.parts"),
    (SEND, message(messageId=""), -32602, "message.messageId"),
    (SEND, message(parts=[{"text": "a", "url": "b"}]), -32602, "message.parts[0]"),
    (SEND, message(metadata={"skill": "sing"}), -32602, "metadata.skill"),
    (SEND, message(parts=[{"raw": "AAE="}]), -32005, "CONTENT_TYPE_NOT_SUPPORTED"),
    (SEND, message(parts=[{"url": "http://127.0.0.1/"}]), -32005, "CONTENT_TYPE_NOT_SUPPORTED"),
    (SEND, message(taskId="nothing"), -32001, "TASK_NOT_FOUND"),
    (SEND, {**message(), "configuration": {"taskPushNotificationConfig": {"url": "http://x/"}}}, -32003, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    ("GetTask", {"id": "nothing"}, -32001, "TASK_NOT_FOUND"),
    ("GetTask", {"id": 7}, -32602, "id"),
    ("CancelTask", {"id": "nothing"}, -32001, "TASK_NOT_FOUND"),
    ("SubscribeToTask", {"id": "nothing"}, -32001, "TASK_NOT_FOUND"),
    ("ListTasks", {"pageSize": 0}, -32602, "pageSize"),
    ("ListTasks", {"pageSize": 101}, -32602, "pageSize"),
    ("ListTasks", {"pageToken": "x"}, -32602, "pageToken"),
    ("ListTasks", {"status": "x"}, -32602, "status"),
    ("CreateTaskPushNotificationConfig", {}, -32003, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    ("Sing", {}, -32601, None),
]  # fmt: skip


@pytest.mark.parametrize(("method", "params", "code", "detail"), WRONG)
def test_errors_of_json_rpc(door: Door, method: str, params: dict[str, Any], code: int, detail: str | None) -> None:
    error = door.call("echo", method, params)["error"]
    assert error["code"] == code, error
    if detail is not None:
        told = error["data"][0]
        assert detail in (told.get("reason"), *(it["field"] for it in told.get("fieldViolations", [])))


REST = [
    ("POST", "message:send", message(parts=[]), 400, "INVALID_ARGUMENT"),
    ("POST", "message:send", b"{", 400, "INVALID_ARGUMENT"),
    ("POST", "message:stream", message(taskId="nothing"), 404, "TASK_NOT_FOUND"),
    ("GET", "tasks/nothing", None, 404, "TASK_NOT_FOUND"),
    ("GET", "tasks/nothing?historyLength=x", None, 400, "INVALID_ARGUMENT"),
    ("GET", "tasks?pageSize=1000", None, 400, "INVALID_ARGUMENT"),
    ("POST", "tasks/nothing:cancel", None, 404, "TASK_NOT_FOUND"),
    ("POST", "tasks/nothing:subscribe", None, 404, "TASK_NOT_FOUND"),
    ("GET", "tasks/nothing:subscribe", None, 404, "TASK_NOT_FOUND"),
    ("POST", "tasks/nothing/pushNotificationConfigs", {}, 400, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    ("DELETE", "tasks/nothing/pushNotificationConfigs/x", None, 400, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    ("GET", "nothing", None, 404, "NOT_FOUND"),
    ("DELETE", "tasks/nothing", None, 404, "NOT_FOUND"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "status", "reason"), REST)
def test_errors_of_rest(door: Door, method: str, path: str, body: object, status: int, reason: str) -> None:
    found, headers, answer = door.send(method, f"/agents/echo/{path}", body)
    error = json.loads(answer)["error"]
    assert found == error["code"] == status
    assert headers["content-type"] == "application/a2a+json"
    assert reason in (error["status"], *(it.get("reason") for it in error["details"]))


def test_bodies_that_are_no_requests(door: Door) -> None:
    for body, code in ((b"{", -32700), (b"[]", -32600), (b"{}", -32600), (b'{"jsonrpc":"2.0","id":[],"method":"x"}', -32600)):
        answer = json.loads(door.send("POST", "/agents/echo", body)[2])
        assert answer["error"]["code"] == code and answer["id"] is None
    # A web page may send this type of content without asking.
    plain = door.send("POST", "/agents/echo", message(), Content_Type="text/plain")
    assert json.loads(plain[2])["error"]["code"] in (-32005, -32600)


def test_other_versions_are_refused(door: Door) -> None:
    for version in ("0.3", "", "1.1", "9.9"):
        assert door.call("echo", "ListTasks", A2A_Version=version)["error"]["code"] == -32009
        status, _, body = door.send("GET", "/agents/echo/tasks", A2A_Version=version)
        assert status == 400 and json.loads(body)["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"
    assert "result" in door.call("echo", "ListTasks", A2A_Version="1.0")


def test_a_stream_that_broke_goes_on_where_it_was(door: Door) -> None:
    steps = message(parts=[{"data": {"count": 5}}], metadata={"skill": "slow"})
    status, headers, body = door.send("POST", "/agents/clock/message:stream", steps)
    assert status == 200 and headers["content-type"].startswith("text/event-stream")
    told = events(body)
    numbers = [number for number, _ in told]
    assert len(numbers) > 1 and numbers == sorted(set(numbers))
    id = told[0][1]["task"]["id"]
    for seen in range(1, len(told)):
        subscribe = ("POST", f"/agents/clock/tasks/{id}:subscribe")
        rest = events(door.send(*subscribe, Last_Event_ID=str(told[seen - 1][0]))[2])
        assert rest[0][1]["task"]["id"] == id and "artifacts" not in rest[0][1]["task"]
        assert rest[1:] == told[seen:]
    # The same in the other binding, with the request's id around each event.
    body = {"jsonrpc": "2.0", "id": "a", "method": "SubscribeToTask", "params": {"id": id}}
    rest = events(door.send("POST", "/agents/clock", body, Last_Event_ID=str(told[0][0]))[2])
    assert all(it["id"] == "a" for _, it in rest)
    assert [it["result"] for _, it in rest[1:]] == [it for _, it in told[1:]]


def test_a_message_that_is_sent_twice_is_one_task(door: Door) -> None:
    once = message("once")
    first, again = (door.call("echo", SEND, once)["result"]["task"] for _ in range(2))
    assert first["id"] == again["id"] and first["artifacts"] == again["artifacts"]
    # Another message with that name is another task, and another caller's is its own.
    other = door.call("echo", SEND, message("other", messageId=once["message"]["messageId"]))
    assert other["result"]["task"]["id"] != first["id"]
    foreign = door.call("echo", SEND, once, caller="auditor")["result"]["task"]
    assert foreign["id"] != first["id"]


def test_an_answer_that_is_sent_twice_is_heard_once(door: Door) -> None:
    task = door.call("oracle", SEND, message("advise me twice"))["result"]["task"]
    answer = message("blue", taskId=task["id"])
    asked = door.call("oracle", SEND, answer)["result"]["task"]
    assert asked["status"]["message"]["parts"] == [{"text": "and then?"}]
    # Neither while the next question stands nor after the end is it another answer.
    assert door.call("oracle", SEND, answer)["result"]["task"] == asked
    done = door.call("oracle", SEND, message("red", taskId=task["id"]))["result"]["task"]
    assert done["artifacts"][0]["parts"][0]["text"] == "you answered: blue, red"
    assert door.call("oracle", SEND, answer)["result"]["task"] == done
    assert door.call("oracle", SEND, message("green", taskId=task["id"]))["error"]["code"] == -32004


def test_a_caller_need_not_wait(door: Door) -> None:
    steps = message(parts=[{"data": {"count": 3, "pause": 0.05}}], metadata={"skill": "slow"})
    steps["configuration"] = {"returnImmediately": True, "historyLength": 0}
    task = door.call("clock", SEND, steps)["result"]["task"]
    assert task["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING") and "history" not in task

    def ended() -> Any:
        found = door.call("clock", "GetTask", {"id": task["id"]})["result"]
        return found if found["status"]["state"] == "TASK_STATE_COMPLETED" else None

    assert len(wait_for(ended, "the task to end")["artifacts"][0]["parts"]) == 3


def test_a_context_belongs_to_its_task(door: Door) -> None:
    task = door.call("oracle", SEND, message("advise me", contextId="mine"))["result"]["task"]
    assert (task["contextId"], task["status"]["state"]) == ("mine", "TASK_STATE_INPUT_REQUIRED")
    wrong = door.call("oracle", SEND, message("blue", taskId=task["id"], contextId="other"))
    assert wrong["error"]["code"] == -32602
    done = door.call("oracle", SEND, message("blue", taskId=task["id"]))["result"]["task"]
    assert (done["contextId"], done["status"]["state"]) == ("mine", "TASK_STATE_COMPLETED")

"""Tasks outlive the gateway and the agent: both are killed in the middle of the work."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import PROGRAMS, Door, listening
from harness import Platform, wait_for
from test_webhooks import Hooks, hooks  # noqa: F401

MANIFEST = """
    [platform]
    name = "factory"

    [gateway.a2a]
    listen = "127.0.0.1:0"
    anonymous = "guest"
    webhooks = { allow = ["127.0.0.1"] }

    [[agent]]
    name = "studio"
    command = ["PYTHON", "PATIENT", "NOTES"]
    agents = ["painter", "adviser"]
    write = ["NOTES"]
    restart = "on-failure"
"""


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    directory = tmp_path_factory.mktemp("factory")
    notes = directory / "notes"
    notes.mkdir()
    manifest = MANIFEST.replace("PATIENT", str(PROGRAMS / "patient.py")).replace("NOTES", str(notes))
    factory = Platform(directory, manifest).up()
    door = Door(factory, listening(factory), {}, notes)
    try:
        yield door
    finally:
        factory.down()


def offers(door: Door, agent: str) -> bool:
    return door.send("GET", f"/agents/{agent}/.well-known/agent-card.json", caller=None)[0] == 200


def pid(door: Door, agent: str) -> int:
    return int(door.factory.agents().get(agent, {}).get("pid") or 0)


def kill(door: Door, agent: str, politely: bool = False) -> None:
    """Kills the process of an agent, or tells it to stop, and waits until the platform has started another one."""
    former = pid(door, agent)
    if politely:
        door.factory.tell("restart", agent)
    else:
        os.kill(former, signal.SIGKILL)
    wait_for(lambda: pid(door, agent) not in (0, former), f"{agent} to be started again", also=door.factory.logs)


def kill_gateway(door: Door, politely: bool = False) -> None:
    former = door.url
    kill(door, "guest", politely)

    def listens() -> bool:
        door.url = listening(door.factory)
        return door.url != former

    wait_for(listens, "the gateway to listen again", also=door.factory.logs)


def message(text: str, name: str, task: str = "") -> dict[str, Any]:
    told = {"messageId": name, "role": "ROLE_USER", "parts": [{"text": text}]} | ({"taskId": task} if task else {})
    return {"message": told, "configuration": {"returnImmediately": True}}


def call(door: Door, agent: str, method: str, params: object, **headers: str) -> dict[str, Any]:
    return door.call(agent, method, params, caller=None, **headers)


def begin(door: Door, agent: str, text: str, name: str) -> str:
    wait_for(lambda: offers(door, agent), f"the card of {agent}", also=door.factory.logs)
    return str(call(door, agent, "SendMessage", message(text, name))["result"]["task"]["id"])


def task(door: Door, agent: str, id: str) -> dict[str, Any]:
    return dict(call(door, agent, "GetTask", {"id": id})["result"])


def parts(task: dict[str, Any]) -> list[str]:
    return [part["text"] for artifact in task.get("artifacts", []) for part in artifact["parts"]]


def state(door: Door, agent: str, id: str) -> str:
    return str(task(door, agent, id)["status"]["state"]).removeprefix("TASK_STATE_")


def until(door: Door, agent: str, id: str, wanted: str) -> dict[str, Any]:
    wait_for(lambda: state(door, agent, id) == wanted, f"the task to be {wanted}", also=door.factory.logs)
    return task(door, agent, id)


def begun(door: Door, id: str) -> str:
    """The part that the painter gives when it begins."""
    return str(wait_for(lambda: parts(task(door, "painter", id)), "the painter to begin", also=door.factory.logs)[0])


def is_asked_again(door: Door, agent: str, id: str) -> bool:
    told = task(door, agent, id)["status"].get("message", {"parts": [{}]})
    return told["parts"][0].get("text") == "The agent is asked again."


def rest(door: Door, agent: str, id: str, after: int) -> list[dict[str, Any]]:
    """The events of a stream after one of this number, to the end of the task."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": id}}
    status, _, answer = door.send("POST", f"/agents/{agent}", body, caller=None, Last_Event_ID=str(after))
    assert status == 200, answer
    data = [line.removeprefix("data:") for line in answer.decode().splitlines() if line.startswith("data:")]
    return [json.loads(it)["result"] for it in data]


@pytest.mark.parametrize("killed", ["gateway", "polite-gateway", "painter", "polite-painter"])
def test_a_task_outlives_a_kill_in_the_middle_of_its_work(door: Door, killed: str) -> None:
    over = begin(door, "painter", "nothing", f"over-{killed}")
    (door.notes / "nothing").touch()
    before = until(door, "painter", over, "COMPLETED")
    id = begin(door, "painter", killed, f"paint-{killed}")
    first = begun(door, id)
    if killed.endswith("painter"):
        kill(door, "painter", politely=killed == "polite-painter")
    else:
        kill_gateway(door, politely=killed == "polite-gateway")

    # A task that has ended is as it was, and a repeated message is still the same task.
    assert task(door, "painter", over) == before
    assert begin(door, "painter", killed, f"paint-{killed}") == id

    # The agent begins anew: only the parts of its last attempt count.
    wait_for(lambda: is_asked_again(door, "painter", id), "the agent to be asked again", also=door.factory.logs)
    again = begun(door, id)
    assert (again == first) == killed.endswith("gateway")
    (door.notes / killed).touch()
    done = until(door, "painter", id, "COMPLETED")
    assert parts(done) == [again, "done"]

    # A reader that was cut off after the first part gets the rest, and learns that the part is replaced.
    events = rest(door, "painter", id, after=2)
    updates = [event["artifactUpdate"] for event in events if "artifactUpdate" in event]
    assert [(it.get("append", False), it["artifact"]["parts"][0]["text"]) for it in updates] == [(False, again), (True, "done")]
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_a_question_is_put_again_after_a_restart(door: Door) -> None:
    id = begin(door, "adviser", "advise me", "advise")
    until(door, "adviser", id, "INPUT_REQUIRED")
    asked = task(door, "adviser", id)["status"]["timestamp"]
    kill_gateway(door)
    assert state(door, "adviser", id) in ("INPUT_REQUIRED", "WORKING")

    def is_put_again() -> bool:
        status = task(door, "adviser", id)["status"]
        return bool(status["state"] == "TASK_STATE_INPUT_REQUIRED" and status["timestamp"] != asked)

    wait_for(is_put_again, "the question to be put again", also=door.factory.logs)
    assert "result" in call(door, "adviser", "SendMessage", message("blue", "answer", id))
    done = until(door, "adviser", id, "COMPLETED")
    assert parts(done) == ["blue, attempt 2"]


def test_webhooks_outlive_the_gateway(door: Door, hooks: Hooks) -> None:  # noqa: F811
    url, hook = hooks.new("outliving")
    late, late_hook = hooks.new("late", 503)
    rude, rude_hook = hooks.new("rude-for-ever", 403)
    request = message("posted", "posted")
    request["configuration"]["taskPushNotificationConfig"] = {"url": rude, "id": "rude"}
    wait_for(lambda: offers(door, "painter"), "the card of the painter", also=door.factory.logs)
    id = str(call(door, "painter", "SendMessage", request)["result"]["task"]["id"])
    first = begun(door, id)
    secret = {"authentication": {"scheme": "Bearer", "credentials": "let-me-in"}, "token": "known"}
    for number, config in (("one", {"url": url} | secret), ("late", {"url": late}), ("gone", {"url": url})):
        made = call(door, "painter", "CreateTaskPushNotificationConfig", {"taskId": id, "id": number} | config)
        assert made["result"]["id"] == number
    call(door, "painter", "DeleteTaskPushNotificationConfig", {"taskId": id, "id": "gone"})

    def log() -> str:
        return door.factory.tell("logs", "a2a").stdout.decode()

    wait_for(lambda: "403 Forbidden" in log(), "the rude one to be given up", also=door.factory.logs)
    (file,) = door.factory.directory.rglob(f"{id}.task")
    assert file.stat().st_mode & 0o077 == 0
    kill_gateway(door)
    # Events that could not be told before are told now, and in their order.
    late_hook.status[:] = [200]
    listed = call(door, "painter", "ListTaskPushNotificationConfigs", {"taskId": id})["result"]["configs"]
    assert {it["id"] for it in listed} == {"one", "late", "rude"}
    wait_for(lambda: is_asked_again(door, "painter", id), "the agent to be asked again", also=door.factory.logs)
    again = begun(door, id)
    assert again == first
    (door.notes / "posted").touch()
    until(door, "painter", id, "COMPLETED")
    for each in (hook, late_hook):
        states: list[str] = []
        told: list[str] = []
        while "TASK_STATE_COMPLETED" not in states:
            headers, event = each.next()
            if "statusUpdate" in event:
                states.append(event["statusUpdate"]["status"]["state"])
            else:
                told += [it["text"] for it in event["artifactUpdate"]["artifact"]["parts"]]
            if each is hook:
                assert headers["authorization"] == "Bearer let-me-in" and headers["x-a2a-notification-token"] == "known"
        assert told == [again, "done"]

    def is_noted() -> bool:
        lines = [json.loads(line) for line in file.read_text().splitlines()[1:]]
        last = max(line["after"] for line in lines if "change" in line) + 1
        return all({"after": last, "webhook": {"told": each}} in lines for each in ("one", "late"))

    # A gateway that is killed before it has noted what a webhook took tells it again.
    wait_for(is_noted, "what was taken to be noted", also=door.factory.logs)
    # One that is given up stays so, and what was taken is not told again after the end.
    counts = (hook.count, rude_hook.count)
    kill_gateway(door)
    assert state(door, "painter", id) == "COMPLETED"
    over = begin(door, "painter", "posted", "posted-after")
    until(door, "painter", over, "COMPLETED")
    assert (hook.count, rude_hook.count) == counts and counts[1] == 1


def test_a_cancelled_task_stays_cancelled(door: Door) -> None:
    id = begin(door, "painter", "never", "cancelled")
    begun(door, id)
    call(door, "painter", "CancelTask", {"id": id})
    kill_gateway(door)
    assert state(door, "painter", id) == "CANCELED"


def test_a_broken_file_is_named_and_harms_no_other_task(door: Door) -> None:
    ids = []
    for number in range(2):
        ids.append(begin(door, "painter", "enough", f"broken-{number}"))
    (door.notes / "enough").touch()
    for id in ids:
        until(door, "painter", id, "COMPLETED")
    (broken,) = door.factory.directory.rglob(f"{ids[0]}.task")
    broken.write_text("{}\n" + broken.read_text())
    kill_gateway(door)
    assert state(door, "painter", ids[1]) == "COMPLETED"
    assert call(door, "painter", "GetTask", {"id": ids[0]})["error"]["code"] == -32001
    log = door.factory.tell("logs", "a2a").stdout.decode()
    assert broken.name in log and "line 1: missing field" in log and "remove it" in log

"""Push notifications: to a server of the test, to addresses that strangers must not reach, and to servers that misbehave."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from a2a.types import (
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    StreamResponse,
    TaskPushNotificationConfig,
    TaskState,
)
from google.protobuf.json_format import ParseDict

from conftest import MANIFEST, Door, say, start
from harness import DEADLINE, wait_for


@dataclass
class Hook:
    """A server that notes the posts to it, and answers with `status`, one after the other; the last stays."""

    status: list[int] = field(default_factory=lambda: [200])
    posts: queue.Queue[tuple[str, dict[str, str], Any]] = field(default_factory=queue.Queue)
    count: int = 0

    def next(self) -> tuple[dict[str, str], Any]:
        _, headers, body = self.posts.get(timeout=DEADLINE)
        return headers, body


@dataclass
class Hooks:
    url: str
    hooks: dict[str, Hook] = field(default_factory=dict)

    def new(self, name: str, *status: int) -> tuple[str, Hook]:
        hook = self.hooks[f"/{name}"] = Hook(list(status) or [200])
        return f"{self.url}/{name}", hook


@pytest.fixture(scope="module")
def hooks() -> Iterator[Hooks]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            hook = kept.hooks.get(self.path)
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = 404
            if hook:
                status = hook.status.pop(0) if len(hook.status) > 1 else hook.status[0]
                hook.count += 1
                headers = {name.lower(): value for name, value in self.headers.items()}
                hook.posts.put((self.path, headers, json.loads(body)))
            self.send_response(status)
            if status == 307:
                self.send_header("Location", f"{kept.url}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept = Hooks(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield kept
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def posting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    manifest = MANIFEST.replace('anonymous = "guest"', 'anonymous = "guest"\n    webhooks = { allow = ["127.0.0.1"] }', 1)
    with contextlib.ExitStack() as stack:
        factory, door = start(tmp_path_factory.mktemp("factory"), manifest)
        stack.callback(factory.down)
        yield door


async def test_every_event_of_a_task_is_posted_in_order(posting: Door, hooks: Hooks, binding: str) -> None:
    url, hook = hooks.new(f"all-{binding[:4]}")
    async with posting.client("clock", binding=binding, streams=False) as client:
        request = say(data={"count": 3, "pause": 0.1}, skill="slow")
        config = request.configuration.task_push_notification_config
        config.url, config.token = url, "known"
        config.authentication.scheme, config.authentication.credentials = "Bearer", "let-me-in"
        events = [event async for event in client.send_message(request)]
    task = events[-1].task
    states, parts = [], []
    while not states or states[-1] != TaskState.TASK_STATE_COMPLETED:
        headers, body = hook.next()
        assert headers["content-type"] == "application/a2a+json"
        assert headers["authorization"] == "Bearer let-me-in" and headers["x-a2a-notification-token"] == "known"
        event = ParseDict(body, StreamResponse())
        if event.HasField("status_update"):
            assert event.status_update.task_id == task.id
            states.append(event.status_update.status.state)
        else:
            parts.append(event.artifact_update.artifact.parts[0].text)
    assert parts == ["0", "1", "2"]
    assert states[0] == TaskState.TASK_STATE_WORKING


async def test_webhooks_are_made_listed_and_deleted(posting: Door, hooks: Hooks, binding: str) -> None:
    url, hook = hooks.new(f"kept-{binding[:4]}")
    async with posting.client("clock", binding=binding, streams=False) as client:
        request = say(data={"count": 1000, "pause": 0.2}, skill="slow")
        request.configuration.return_immediately = True
        events = [event async for event in client.send_message(request)]
        task = events[-1].task.id
        made = await client.create_task_push_notification_config(TaskPushNotificationConfig(task_id=task, url=url, id="one"))
        assert (made.id, made.task_id, made.url) == ("one", task, url)
        found = await client.get_task_push_notification_config(GetTaskPushNotificationConfigRequest(task_id=task, id="one"))
        assert found.url == url
        second = await client.create_task_push_notification_config(TaskPushNotificationConfig(task_id=task, url=url))
        listed = await client.list_task_push_notification_configs(ListTaskPushNotificationConfigsRequest(task_id=task))
        assert {it.id for it in listed.configs} == {"one", second.id}
        hook.next()
        for name in ("one", second.id):
            await client.delete_task_push_notification_config(DeleteTaskPushNotificationConfigRequest(task_id=task, id=name))
        listed = await client.list_task_push_notification_configs(ListTaskPushNotificationConfigsRequest(task_id=task))
        assert not listed.configs
        for number in range(4):
            await client.create_task_push_notification_config(TaskPushNotificationConfig(task_id=task, url=url, id=str(number)))
        with pytest.raises(Exception, match="4 webhooks|429"):
            await client.create_task_push_notification_config(TaskPushNotificationConfig(task_id=task, url=url, id="5"))
    # Those of a task are its caller's, as the task is.
    for caller in ("auditor", None):
        answer = posting.call("clock", "ListTaskPushNotificationConfigs", {"taskId": task}, caller)
        assert answer["error"]["code"] == -32001
    posting.call("clock", "CancelTask", {"id": task})


def test_a_server_that_fails_is_tried_again_and_one_that_refuses_is_not(posting: Door, hooks: Hooks) -> None:
    lame, lame_hook = hooks.new("lame", 503, 429, 200)
    rude, rude_hook = hooks.new("rude", 403)
    away, away_hook = hooks.new("away", 307)
    elsewhere = hooks.new("elsewhere")[1]
    config = lambda url: {"configuration": {"taskPushNotificationConfig": {"url": url}}}  # noqa: E731
    for url in (lame, rude, away):
        message = {"messageId": url, "role": "ROLE_USER", "parts": [{"text": "x"}]}
        assert "task" in posting.call("echo", "SendMessage", {"message": message, **config(url)})["result"]
    told = []
    while not told or told[-1].get("statusUpdate", {}).get("status", {}).get("state") != "TASK_STATE_COMPLETED":
        told.append(lame_hook.next()[1])
    # The first event came three times.
    assert told[0] == told[1] == told[2]
    wait_for(lambda: rude_hook.count and away_hook.count, "each to be asked once", also=posting.factory.logs)
    log = lambda: posting.factory.tell("logs", "a2a").stdout.decode()  # noqa: E731
    wait_for(lambda: "403 Forbidden" in log() and "307 Temporary Redirect" in log(), "both to be given up", also=posting.factory.logs)
    assert (rude_hook.count, away_hook.count, elsewhere.count) == (1, 1, 0)


@pytest.mark.parametrize(
    "host",
    [
        "localhost:1", "127.0.0.2:1", "[::1]:1", "[::ffff:127.0.0.2]:1", "2130706434:1", "0x7f.2:1", "0.0.0.0:1",
        "169.254.169.254", "[fe80::1]", "10.0.0.1", "192.168.1.1", "100.100.100.200", "[fd00:ec2::254]",
    ],
)  # fmt: skip
def test_no_webhook_leads_into_the_platforms_own_network(posting: Door, host: str) -> None:
    """127.0.0.1 alone is allowed; `localhost` may also be ::1, and nothing listens there."""
    url = f"https://{host}/{host.replace(':', '-')}"
    message = {"messageId": url, "role": "ROLE_USER", "parts": [{"text": "x"}]}
    params = {"message": message, "configuration": {"taskPushNotificationConfig": {"url": url}}}
    assert "task" in posting.call("echo", "SendMessage", params)["result"]
    if host == "localhost:1":
        return

    def is_given_up() -> bool:
        log = posting.factory.tell("logs", "a2a").stdout.decode()
        lines = [line for line in log.splitlines() if url in line]
        return any("it may not be asked" in line or "names no server" in line for line in lines)

    wait_for(is_given_up, f"{url} to be given up", also=posting.factory.logs)


def test_a_repeated_message_adds_no_second_webhook(posting: Door, hooks: Hooks) -> None:
    url, _ = hooks.new("again")
    message = {"messageId": "again", "role": "ROLE_USER", "parts": [{"data": {"count": 1000, "pause": 0.2}}]}
    configuration = {"returnImmediately": True, "taskPushNotificationConfig": {"url": url}}
    params = {"message": message, "metadata": {"skill": "slow"}, "configuration": configuration}
    first, again = (posting.call("clock", "SendMessage", params)["result"]["task"]["id"] for _ in range(2))
    assert first == again
    listed = posting.call("clock", "ListTaskPushNotificationConfigs", {"taskId": first})["result"]
    assert [it["url"] for it in listed["configs"]] == [url]
    posting.call("clock", "CancelTask", {"id": first})


def test_a_message_that_comes_again_takes_no_event_from_its_webhook(posting: Door, hooks: Hooks) -> None:
    # The first event is posted after seconds, and the task has ended long before.
    url, hook = hooks.new("patient", 503, 503, 200)
    message = {"messageId": "patient", "role": "ROLE_USER", "parts": [{"data": {"count": 2}}]}
    configuration = {"returnImmediately": True, "taskPushNotificationConfig": {"url": url}}
    params = {"message": message, "metadata": {"skill": "slow"}, "configuration": configuration}
    task = posting.call("clock", "SendMessage", params)["result"]["task"]["id"]
    state = lambda: posting.call("clock", "GetTask", {"id": task})["result"]["status"]["state"]  # noqa: E731
    wait_for(lambda: state() == "TASK_STATE_COMPLETED", "the task to end", also=posting.factory.logs)
    assert posting.call("clock", "SendMessage", params)["result"]["task"]["id"] == task
    config = {"taskId": task, "id": task, "url": url}
    assert posting.call("clock", "CreateTaskPushNotificationConfig", config)["result"]["id"] == task
    told: list[Any] = []
    while not told or told[-1].get("statusUpdate", {}).get("status", {}).get("state") != "TASK_STATE_COMPLETED":
        told.append(hook.next()[1])
    assert told[0] == told[1] == told[2]
    assert [it["artifactUpdate"]["artifact"]["parts"][0]["text"] for it in told if "artifactUpdate" in it] == ["0", "1"]
    assert len({json.dumps(it) for it in told[2:]}) == len(told[2:])


def test_the_messages_of_a_task_have_one_webhook(posting: Door, hooks: Hooks) -> None:
    url, hook = hooks.new("one")
    configuration = {"taskPushNotificationConfig": {"url": url}}

    def send(agent: str, name: str, text: str, task: str = "") -> dict[str, Any]:
        message = {"messageId": name, "role": "ROLE_USER", "parts": [{"text": text}], "taskId": task}
        return posting.call(agent, "SendMessage", {"message": message, "configuration": configuration})

    task = send("oracle", "one-1", "advise me twice")["result"]["task"]["id"]
    send("oracle", "one-2", "blue", task)
    assert send("oracle", "one-3", "red", task)["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    listed = posting.call("oracle", "ListTaskPushNotificationConfigs", {"taskId": task})["result"]
    assert [(it["id"], it["url"]) for it in listed["configs"]] == [(task, url)]
    states = []
    while not states or states[-1] != "TASK_STATE_COMPLETED":
        event = hook.next()[1]
        if "statusUpdate" in event:
            states.append(event["statusUpdate"]["status"]["state"])
    assert states.count("TASK_STATE_INPUT_REQUIRED") == 2
    # A message that is refused leaves no webhook.
    message = {"messageId": "one-4", "role": "ROLE_USER", "parts": [{"data": {"count": 1000, "pause": 0.2}}]}
    steps = {"message": message, "metadata": {"skill": "slow"}, "configuration": {"returnImmediately": True}}
    task = posting.call("clock", "SendMessage", steps)["result"]["task"]["id"]
    assert send("clock", "one-5", "hello", task)["error"]["code"] == -32004
    assert posting.call("clock", "ListTaskPushNotificationConfigs", {"taskId": task})["result"]["configs"] == []
    posting.call("clock", "CancelTask", {"id": task})


def test_webhooks_of_strangers_have_limits(posting: Door) -> None:
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "x"}]}
    for wrong in (
        {"url": "ftp://hooks.example"},
        {"url": "https://user:secret@hooks.example"},
        {"url": "https://hooks.example/" + "x" * 2_000},
        {"url": "https://hooks.example", "token": "one\r\nX-Smuggled: 1"},
        {"url": "https://hooks.example", "authentication": {"scheme": "Bearer\r\nHost: evil", "credentials": "x"}},
        {},
    ):
        params = {"message": message, "configuration": {"taskPushNotificationConfig": wrong}}
        assert posting.call("echo", "SendMessage", params)["error"]["code"] == -32602, wrong


def test_without_webhooks_in_the_manifest_there_are_none(door: Door) -> None:
    card = json.loads(door.send("GET", "/agents/echo/.well-known/agent-card.json")[2])
    assert "pushNotifications" not in card["capabilities"]
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "x"}]}
    params = {"message": message, "configuration": {"taskPushNotificationConfig": {"url": "https://hooks.example"}}}
    assert door.call("echo", "SendMessage", params)["error"]["code"] == -32003

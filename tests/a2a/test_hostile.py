"""Hostile callers: no key, wrong keys, the tasks of others, web pages, bytes, tasks and streams without end.

They write raw HTTP and use nothing of Sealbus or of A2A's SDK. An honest caller goes on all the while.
"""

from __future__ import annotations

import contextlib
import json
import socket
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from a2a.types import SubscribeToTaskRequest

from conftest import Door, opened
from harness import DEADLINE, bounded, wait_for
from strangers import has_ended, strangers
from test_restarts import kill_gateway

CARD = "/.well-known/agent-card.json"


def message(text: str = "hi", **more: object) -> dict[str, object]:
    return {"message": {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": text}], **more}}


def say(text: str = "hi", **more: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message(text, **more)}


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A platform of its own: its callers' places are filled, and one of them is revoked."""
    with opened(tmp_path_factory) as door:
        yield door


@contextlib.contextmanager
def honest(door: Door, growth: int = 96) -> Iterator[None]:
    """The gateway serves an honest caller afterwards, in the same process, which took at most `growth` MiB more."""
    pid = door.pid()
    with bounded({"the gateway": pid}, growth):
        yield
        task = door.call("echo", "SendMessage", message("honest"))["result"]["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert door.pid() == pid


def test_a_wrong_key_opens_nothing(door: Door) -> None:
    key = door.keys["assistant"]
    with honest(door):
        for wrong in (f"Bearer {key[:-1]}", f"Bearer {key}x", f"Basic {key}", key, "Bearer ", "Bearer " + "x" * 10_000):
            for path in ("/agents/echo", "/agents/echo/tasks", "/agents/echo" + CARD):
                status, headers, _ = door.send("GET", path, caller=None, Authorization=wrong)
                assert status == 401, (wrong, path)
                assert headers["www-authenticate"].startswith("Bearer")
    assert key not in door.factory.tell("logs", "a2a").stdout.decode()


def test_a_refused_request_leaves_its_connection_to_the_next_or_ends_it(door: Door) -> None:
    host = ":".join(map(str, door.place))
    head = f"POST /agents/echo HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer wrong\r\nContent-Length: {{}}\r\n\r\n"

    def answers(*parts: str) -> list[str]:
        """All that comes until the gateway ends the connection."""
        with socket.create_connection(door.place, DEADLINE) as stream:
            for part in parts:
                stream.sendall(part.encode())
            said = b"".join(iter(lambda: stream.recv(65_536), b"")).decode()
        return said.lower().split("http/1.1 ")[1:]

    with honest(door):
        # Its body never comes, comes behind the head, or is long.
        (refused,) = answers(head.format(2))
        assert refused.startswith("401") and "connection: close" in refused
        first, second = answers(head.format(2), "{", "}" + head.format(2))
        assert first.startswith("401") and "connection: close" not in first
        assert second.startswith("401") and "connection: close" in second
        (refused,) = answers(head.format(1 << 20), "x" * 70_000)
        assert refused.startswith("401") and "connection: close" in refused


def test_web_pages_cannot_call(door: Door) -> None:
    with honest(door):
        for origin in ("https://evil.example", "http://127.0.0.1:1", "null"):
            assert door.send("POST", "/agents/echo", say(), caller=None, Origin=origin)[0] == 403, origin
            assert door.send("GET", "/agents/echo" + CARD, caller=None, Origin=origin)[0] == 403, origin
        # A name that now leads to this machine.
        for host in ("evil.example", "127.0.0.1.evil.example:80", "agents.example.evil"):
            assert door.send("POST", "/agents/echo", say(), Host=host)[0] == 403, host


def test_names_paths_and_members_of_strangers(door: Door) -> None:
    huge = "ä\u202e\x1b[2J" * 50_000
    with honest(door, 128):
        for path in (
            "/agents/", "/agents//", "/agents/../echo", "/agents/%2e%2e/echo", "/agents/echo%2Ftasks", "/agents/%ff", "/agents/" + "x" * 5_000,
            "/agents/echo/tasks/" + "%2e%2e%2f" * 100, "/agents/echo/tasks/%ff:cancel", "/agents/echo/tasks/a:b:c",
        ):  # fmt: skip
            assert 400 <= door.send("GET", path)[0] < 500, path
        for params in (
            message(messageId=huge),
            message(contextId=huge),
            message(taskId=huge),
            message(metadata={"skill": huge}),
            message(parts=[{"text": "x"}] * 100_000),
            {"message": huge},
        ):
            answer = door.send("POST", "/agents/clock/message:send", params)
            assert 400 <= answer[0] < 500 and b"\x1b" not in answer[2], answer[0]
        # A text may be long. It comes back as a text.
        status, _, answer = door.send("POST", "/agents/echo/message:send", message(huge))
        assert status == 200 and b"\x1b" not in answer
        for body in (b"[" * 1_000_000, b'{"message":' * 100_000, b"[[],[],[]," * 300_000):
            assert door.send("POST", "/agents/echo/message:send", body)[0] == 400
        with contextlib.suppress(OSError):
            assert door.send("POST", "/agents/echo", b"x" * (4 << 20) + b"x")[0] == 413


def test_results_without_end_are_the_end_of_a_task(door: Door) -> None:
    with honest(door, 128):
        for _ in range(3):
            task = door.call("flood", "SendMessage", message("go"), caller="auditor")["result"]["task"]
            assert task["status"]["state"] == "TASK_STATE_FAILED"
            assert "bytes" in task["status"]["message"]["parts"][0]["text"]


def test_tasks_of_one_caller_have_an_end(door: Door) -> None:
    waits = {"returnImmediately": True}
    with honest(door, 128):
        statuses = []
        for _ in range(300):
            status, _, _ = door.send("POST", "/agents/oracle/message:send", {**message(), "configuration": waits}, caller="auditor")
            statuses.append(status)
        assert set(statuses) == {200, 429}
        # Tasks that have ended make room.
        page = json.loads(door.send("GET", "/agents/oracle/tasks?pageSize=100", caller="auditor")[2])
        for task in page["tasks"]:
            door.send("POST", f"/agents/oracle/tasks/{task['id']}:cancel", caller="auditor")
        body = {**message(), "configuration": waits}
        assert door.send("POST", "/agents/oracle/message:send", body, caller="auditor")[0] == 200


def test_long_messages_that_are_kept_make_room_for_others(door: Door) -> None:
    with honest(door, 128):
        for _ in range(30):
            status = door.send("POST", "/agents/echo/message:send", message("x" * 2_000_000), caller="auditor")[0]
            assert status in (200, 429)


def test_answers_that_nobody_reads_have_an_end(door: Door) -> None:
    """A caller asks for all that is kept for it, over and over, and reads only the beginnings."""
    for _ in range(16):
        door.send("POST", "/agents/echo/message:send", message("x" * 2_000_000), caller="auditor")
    host = ":".join(map(str, door.place))
    asked = f"GET /agents/echo/tasks HTTP/1.1\r\nHost: {host}\r\nA2A-Version: 1.0\r\nAuthorization: Bearer {door.keys['auditor']}\r\n\r\n"
    with honest(door, 192), contextlib.ExitStack() as stack:
        statuses = []
        for _ in range(40):
            stream = stack.enter_context(socket.create_connection(door.place, DEADLINE))
            stream.sendall(asked.encode())
            statuses.append(stream.recv(12)[-3:])
        assert set(statuses) == {b"200", b"429"}
        stack.close()
        wait_for(lambda: door.send("GET", "/agents/echo/tasks", caller="auditor")[0] == 200, "room for an answer")


def test_what_is_refused_for_answers_that_nobody_reads_was_not_done(door: Door) -> None:
    def said() -> int:
        """How often the agent was asked, with this time."""
        task = door.call("echo", "SendMessage", message("hi"), caller="auditor")["result"]["task"]
        return int(task["artifacts"][0]["parts"][0]["text"].partition(":")[0])

    for _ in range(16):
        door.send("POST", "/agents/echo/message:send", message("x" * 2_000_000), caller="auditor")
    host = ":".join(map(str, door.place))
    asked = f"GET /agents/echo/tasks HTTP/1.1\r\nHost: {host}\r\nA2A-Version: 1.0\r\nAuthorization: Bearer {door.keys['auditor']}\r\n\r\n"
    with contextlib.ExitStack() as stack:
        before = said()
        status = b""
        while status != b"429":
            stream = stack.enter_context(socket.create_connection(door.place, DEADLINE))
            stream.sendall(asked.encode())
            status = stream.recv(12)[-3:]
            assert status in (b"200", b"429")
        for _ in range(5):
            assert door.send("POST", "/agents/echo/message:send", message(), caller="auditor")[0] == 429
    wait_for(lambda: door.send("GET", "/agents/echo/tasks", caller="auditor")[0] == 200, "room for an answer")
    assert said() == before + 1


def test_long_events_that_nobody_reads_have_an_end(door: Door) -> None:
    """A task at work is followed over and over: each stream begins with all of it."""
    long = message(parts=[{"data": {"count": 1_000_000, "pause": 5}}], metadata={"skill": "slow", "note": "x" * 3_000_000})
    now = {**long, "configuration": {"returnImmediately": True}}
    task = door.call("clock", "SendMessage", now, caller="auditor")["result"]["task"]
    host = ":".join(map(str, door.place))
    asked = "\r\n".join([
        f"POST /agents/clock/tasks/{task['id']}:subscribe HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {door.keys['auditor']}",
        "A2A-Version: 1.0", "Content-Length: 0", "", "",
    ])  # fmt: skip
    with honest(door, 256), contextlib.ExitStack() as stack:
        for _ in range(240):
            stream = stack.enter_context(socket.create_connection(door.place, DEADLINE))
            stream.sendall(asked.encode())
            assert stream.recv(12) == b"HTTP/1.1 200"
        assert door.send("GET", "/agents/echo/tasks")[0] == 200
    cancel = ("POST", f"/agents/clock/tasks/{task['id']}:cancel")
    wait_for(lambda: door.send(*cancel, caller="auditor")[0] in (200, 400), "the places of the streams")


def at_work(door: Door) -> list[str]:
    """The auditor's tasks at work."""
    status, _, listed = door.send("GET", "/agents/clock/tasks?status=TASK_STATE_WORKING", caller="auditor")
    # The door may be full for a moment.
    return [task["id"] for task in json.loads(listed)["tasks"]] if status == 200 else []


@pytest.fixture(autouse=True)
def idle(door: Door) -> Iterator[None]:
    """No test finds the tasks of one that failed."""
    yield
    for task in at_work(door):
        door.send("POST", f"/agents/clock/tasks/{task}:cancel", caller="auditor")


def test_many_streams_that_nobody_reads(door: Door) -> None:
    endless = json.dumps(message(parts=[{"data": {"count": 1_000_000, "pause": 0.005}}], metadata={"skill": "slow"})).encode()
    host, port = door.place
    head = "\r\n".join([
        "POST /agents/clock/{} HTTP/1.1", f"Host: {host}:{port}", f"Authorization: Bearer {door.keys['auditor']}",
        "Content-Type: application/json", "A2A-Version: 1.0", "Content-Length: {}", "", "",
    ])  # fmt: skip
    streams = []
    with honest(door, 128):
        first = socket.create_connection(door.place, DEADLINE)
        streams.append(first)
        first.sendall(head.format("message:stream", len(endless)).encode() + endless)
        (task,) = wait_for(lambda: at_work(door), "the task to be at work")
        refused = 0
        for _ in range(300):
            stream = socket.create_connection(door.place, DEADLINE)
            stream.sendall(head.format(f"tasks/{task}:subscribe", 0).encode())
            streams.append(stream)
            refused += stream.recv(12).endswith(b"429")
        assert refused >= 40
        # Another caller has places of its own.
        assert door.send("GET", "/agents/clock/tasks")[0] == 200
        for stream in streams:
            stream.close()
    # The places of the clients that went are free again.
    cancel = ("POST", f"/agents/clock/tasks/{task}:cancel")
    wait_for(lambda: door.send(*cancel, caller="auditor")[0] in (200, 400), "the places of streams that ended")


def test_connections_that_say_nothing_keep_nobody_out(door: Door) -> None:
    with honest(door), strangers(door.place, [b"", b"POST /agents/echo HTTP/1.1\r\nHost: "]):
        assert door.send("GET", "/agents/echo/tasks")[0] == 200


def test_ten_thousand_streams_of_one_caller_keep_nobody_out(door: Door) -> None:
    """Over HTTP/2, a connection has many streams: this caller opens all that it is let, and asks for more."""
    endless = {**message(parts=[{"data": {"count": 1_000_000, "pause": 0.5}}], metadata={"skill": "slow"}), "configuration": {"returnImmediately": True}}
    task = json.loads(door.send("POST", "/agents/clock/message:send", endless, caller="auditor")[2])["task"]["id"]
    watch = SubscribeToTaskRequest(tenant="clock", id=task).SerializeToString()
    shown = [("a2a-version", "1.0"), ("authorization", f"Bearer {door.keys['auditor']}")]
    place = "{}:{}".format(*door.place)
    refused, open_streams = [], []
    with honest(door, 64), contextlib.ExitStack() as stack:
        for number in range(50):
            options = [("grpc.use_local_subchannel_pool", 1), ("sealbus.number", number)]
            channel = stack.enter_context(grpc.insecure_channel(place, options=options))
            call = channel.unary_stream("/lf.a2a.v1.A2AService/SubscribeToTask")
            begun = [call(watch, metadata=shown, timeout=DEADLINE) for _ in range(200)]
            # The first event of a stream is there, or the stream was refused.
            for stream in begun:
                try:
                    next(stream)
                    open_streams.append(stream)
                except grpc.RpcError as error:
                    refused.append((error.code(), error.details()))
            assert door.send("GET", "/agents/clock/tasks")[0] == 200
        assert 200 <= len(open_streams) <= 256
        assert set(refused) == {(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many requests at a time")}
        for stream in open_streams:
            stream.cancel()
    wait_for(lambda: door.send("POST", f"/agents/clock/tasks/{task}:cancel", caller="auditor")[0] == 200, "a free place")


def test_connections_of_one_caller_have_an_end(door: Door) -> None:
    host = ":".join(map(str, door.place))
    asked = f"GET /agents/vault/tasks HTTP/1.1\r\nHost: {host}\r\nA2A-Version: 1.0\r\nAuthorization: Bearer {door.keys['auditor']}\r\n\r\n"
    with honest(door), contextlib.ExitStack() as stack:
        statuses = []
        for _ in range(300):
            stream = stack.enter_context(socket.create_connection(door.place, DEADLINE))
            stream.sendall(asked.encode())
            statuses.append(stream.recv(12)[-3:])
        assert statuses == [b"200"] * 256 + [b"429"] * 44
        assert door.send("GET", "/agents/echo/tasks")[0] == 200


def test_a_revoked_caller_is_cut_off(door: Door) -> None:
    def state(agent: str, asked: dict[str, object]) -> str:
        return str(door.call(agent, "SendMessage", asked, caller="auditor")["result"]["task"]["status"]["state"])

    def status(path: str) -> int:
        return door.send("GET", path, caller="auditor")[0]

    assert state("echo", message()) == "TASK_STATE_COMPLETED"
    assert status("/agents/echo/tasks") == 200
    endless = message(parts=[{"data": {"count": 1_000_000, "pause": 0.005}}], metadata={"skill": "slow"})
    with honest(door), ThreadPoolExecutor() as others, socket.create_connection(door.place, DEADLINE) as stream:
        # It waits for an answer meanwhile, and reads a stream.
        waiting = others.submit(state, "clock", endless)
        (task,) = wait_for(lambda: at_work(door), "the task to be at work")
        head = "\r\n".join([
            f"POST /agents/clock/tasks/{task}:subscribe HTTP/1.1", "Host: {}:{}".format(*door.place),
            f"Authorization: Bearer {door.keys['auditor']}", "A2A-Version: 1.0", "Content-Length: 0", "Connection: close", "", "",
        ])  # fmt: skip
        stream.sendall(head.encode())
        assert stream.recv(12) == b"HTTP/1.1 200"
        door.factory.tell("ca", "revoke", "auditor")
        assert waiting.result(DEADLINE) == "TASK_STATE_FAILED"
        # Its key opens nothing more, not even its old tasks.
        wait_for(lambda: status("/agents/echo/tasks") == 401, "the revoked caller to be refused")
        assert status(f"/agents/clock/tasks/{task}") == status("/agents/echo" + CARD) == 401
        assert door.send("POST", "/agents/echo", say(), caller="auditor")[0] == 401
        wait_for(lambda: has_ended(stream), "the end of the open stream")
    # A gateway that crashes is restarted without it. An operator that restarts the gateway trusts it again.
    kill_gateway(door)
    wait_for(lambda: door.send("GET", "/agents/echo/tasks")[0] == 200, "the gateway to serve others")
    assert status("/agents/echo/tasks") == 401
    kill_gateway(door, politely=True)
    wait_for(lambda: status("/agents/echo/tasks") == 200, "the caller to be trusted again", also=door.factory.logs)

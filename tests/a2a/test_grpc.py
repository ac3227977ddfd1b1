"""The binding to gRPC: errors as the specification names them, and callers that write any bytes.

The official client's own tests run over gRPC, too (`test_client.py`). The callers here write raw messages and raw HTTP/2.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

import grpc
from a2a.types import GetTaskRequest, ListTasksRequest, ListTasksResponse, SendMessageRequest, Task
from google.rpc import error_details_pb2, status_pb2

from conftest import Door, say
from harness import DEADLINE, wait_for
from test_hostile import honest

SERVICE = "/lf.a2a.v1.A2AService/"


def call(door: Door, method: str, message: bytes, caller: str | None = "assistant", **metadata: str) -> Any:
    """The answer to raw bytes, or the error."""
    fields = {"a2a-version": "1.0", **door.headers(caller), **{name.replace("_", "-"): it for name, it in metadata.items()}}
    with grpc.insecure_channel("{}:{}".format(*door.place)) as channel:
        try:
            shown = [(name.lower(), it) for name, it in fields.items() if it]
            return channel.unary_unary(SERVICE + method)(message, timeout=DEADLINE, metadata=shown)
        except grpc.RpcError as error:
            return error


def details(error: grpc.RpcError) -> tuple[str, Any]:
    """The code of an error, and the first of its details."""
    (packed,) = [it for name, it in error.trailing_metadata() if name == "grpc-status-details-bin"]
    status = status_pb2.Status.FromString(packed)
    assert (status.code, status.message) == (error.code().value[0], error.details())
    for kind in (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest):
        if status.details and status.details[0].Is(kind.DESCRIPTOR):
            detail = kind()
            status.details[0].Unpack(detail)
            return error.code().name, detail
    return error.code().name, None


def test_errors_have_the_codes_and_reasons_of_the_specification(door: Door) -> None:
    get = GetTaskRequest(tenant="echo", id="nothing").SerializeToString()
    code, detail = details(call(door, "GetTask", get))
    assert (code, detail.reason, detail.domain) == ("NOT_FOUND", "TASK_NOT_FOUND", "a2a-protocol.org")
    code, detail = details(call(door, "CancelTask", get))
    assert (code, detail.reason) == ("NOT_FOUND", "TASK_NOT_FOUND")
    for version in ("", "0.3", "9.9"):
        code, detail = details(call(door, "GetTask", get, a2a_version=version))
        assert (code, detail.reason) == ("FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"), version
    code, detail = details(call(door, "CreateTaskPushNotificationConfig", b"\x0a\x04echo"))
    assert (code, detail.reason) == ("FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED")
    empty = SendMessageRequest(tenant="echo").SerializeToString()
    code, detail = details(call(door, "SendMessage", empty))
    assert (code, detail.field_violations[0].field) == ("INVALID_ARGUMENT", "message")
    few = ListTasksRequest(tenant="echo", page_size=1000).SerializeToString()
    code, detail = details(call(door, "ListTasks", few))
    assert (code, detail.field_violations[0].field) == ("INVALID_ARGUMENT", "pageSize")
    assert details(call(door, "Nothing", b""))[0] == "UNIMPLEMENTED"


def test_an_agent_that_the_caller_may_not_see_is_none(door: Door) -> None:
    told = [call(door, "ListTasks", ListTasksRequest(tenant=name).SerializeToString(), None) for name in ("vault", "nobody", "")]
    assert {(it.code().name, it.details()) for it in told} == {(told[0].code().name, told[0].details())}
    assert told[0].code().name == "INVALID_ARGUMENT" and "tenant" in told[0].details()
    wrong = call(door, "ListTasks", b"", None, authorization="Bearer sbk_wrong")
    assert wrong.code().name == "UNAUTHENTICATED"


def test_messages_that_are_none_are_refused(door: Door) -> None:
    request = say("hi")
    request.tenant = "echo"
    sound = request.SerializeToString()
    with honest(door):
        for message in (b"\xff", sound[:-1], b"\x12\xff\xff\xff\xff\x7f", b"\x12\x02" * 9, b"\x0b" * 5_000):
            assert call(door, "SendMessage", message).code().name == "INVALID_ARGUMENT", message[:20]
        deep = b""
        for _ in range(300):
            inner = b"\x0a" + _length(deep) + deep
            deep = b"\x32" + _length(inner) + inner
        many = b"\x12" + _length(b"\x2a\x00" * 100_000) + b"\x2a\x00" * 100_000
        for message in (b"\x22" + _length(b"\x0a" + _length(deep) + deep) + b"\x0a" + _length(deep) + deep, many):
            assert call(door, "SendMessage", message).code().name == "INVALID_ARGUMENT"
        assert call(door, "SendMessage", b"\x0a" + _length(b"x" * (5 << 20)) + b"x" * (5 << 20)).code().name != "OK"
        # The frame of gRPC itself: compressed, too short, too long, two in one, none.
        for body in (b"\x01" + struct.pack(">I", len(sound)) + sound, b"\0\0\0", b"\0\xff\xff\xff\xff", b"", b"\0\0\0\0\0" * 2):
            status, headers, _ = door.send("POST", SERVICE + "SendMessage", body, Content_Type="application/grpc")
            assert status == 200 and headers["grpc-status"] == "3", body[:10]
        assert door.send("POST", SERVICE + "SendMessage", b"{}", Content_Type="application/json")[0] == 415


def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    """A frame of HTTP/2."""
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PREFACE = HELLO + frame(4, 0, 0, b"")


def head_of(door: Door, method: str, path: str, **fields: str) -> bytes:
    """The head of a request over HTTP/2. HPACK allows to write all names and values as they are."""

    def text(value: str) -> bytes:
        return _length(value.encode()) + value.encode()

    named = {":method": method, ":scheme": "http", ":path": path, ":authority": ":".join(map(str, door.place))}
    named |= {name.lower().replace("_", "-"): value for name, value in fields.items()}
    return b"".join(b"\0" + text(name) + text(value) for name, value in named.items())


def statuses(read: BinaryIO) -> Iterator[int]:
    """The statuses of the answers on a connection of HTTP/2, as they come."""
    while True:
        begun = read.read(9)
        assert len(begun) == 9, "the connection ended without an answer"
        told = read.read(int.from_bytes(begun[:3], "big"))
        if begun[3] == 1:
            yield _status(told)


def status_over_http2(door: Door, path: str, body: bytes, **fields: str) -> int:
    """The status of an answer over HTTP/2."""
    with socket.create_connection(door.place, DEADLINE) as stream, stream.makefile("rb") as read:
        stream.sendall(PREFACE + frame(1, 4, 1, head_of(door, "POST", path, **fields)) + frame(0, 1, 1, body))
        return next(statuses(read))


def _status(told: bytes) -> int:
    """The status in the head of an answer."""
    if told[0] & 0x80:
        # The commonest statuses have numbers of their own.
        return {8: 200, 12: 400, 13: 404, 14: 500}[told[0] & 0x7F]
    value = told[2 : 2 + (told[1] & 0x7F)]
    if not told[1] & 0x80:
        return int(value)
    # Huffman's code of the digits: 0, 1 and 2 in five bits, the others in six.
    bits, status = f"{int.from_bytes(value, 'big'):0{8 * len(value)}b}", ""
    while len(status) < 3:
        width = 5 if bits[:3] == "000" else 6
        code, bits = int(bits[:width], 2), bits[width:]
        status += str(code if width == 5 else code - 0x19 + 3)
    return int(status)


def test_another_content_type_gets_415_over_both_versions_of_http(door: Door) -> None:
    key = door.headers("assistant")
    empty = b"\0\0\0\0\0"
    with honest(door):
        for caller in (key, {}, {"Authorization": "Bearer sbk_wrong"}):
            for kind in ("application/json", "text/plain", "application/grpc-web", "application/grpcx"):
                status, headers, _ = door.send("POST", SERVICE + "GetTask", empty, None, Content_Type=kind, **caller)
                assert status == 415 and "grpc-status" not in headers, (kind, caller)
                assert status_over_http2(door, SERVICE + "GetTask", empty, Content_Type=kind, **caller) == 415, (kind, caller)
        # gRPC has statuses of its own.
        for kind in ("application/grpc", "Application/grpc+proto", "application/grpc;charset=utf-8"):
            assert status_over_http2(door, SERVICE + "GetTask", empty, Content_Type=kind, **key) == 200
            assert status_over_http2(door, SERVICE + "GetTask", empty, Content_Type=kind) == 200
            assert door.send("POST", SERVICE + "GetTask", empty, None, Content_Type=kind)[0] == 200


def _length(of: bytes) -> bytes:
    size, told = len(of), b""
    while size > 0x7F:
        told += bytes([size & 0x7F | 0x80])
        size >>= 7
    return told + bytes([size])


def test_connections_of_http2_that_are_none(door: Door) -> None:
    hello = PREFACE
    # In HPACK: POST, http, a path and a name without compression.
    head = b"\x83\x86\x04" + bytes([len(SERVICE + "GetTask")]) + (SERVICE + "GetTask").encode() + b"\x01\x09127.0.0.1"
    resets = b"".join(frame(1, 4, 2 * it + 1, head) + frame(3, 0, 2 * it + 1, b"\0\0\0\x08") for it in range(20_000))
    endless = frame(1, 0, 1, head) + b"".join(frame(9, 0, 1, b"\x40\x01x\x7f" + b"\x00" * 3) for _ in range(50_000))
    with honest(door):
        for bytes_ in (PREFACE[:20], PREFACE[:24] + b"\xff" * 4_000, hello + frame(0, 0, 7, b"x"), hello + resets, hello + endless):
            with contextlib.suppress(OSError), socket.create_connection(door.place, DEADLINE) as stream:
                stream.sendall(bytes_)
                stream.shutdown(socket.SHUT_WR)
                while stream.recv(65_536):
                    pass
        silent = [socket.create_connection(door.place, DEADLINE) for _ in range(300)]
        for stream in silent:
            stream.sendall(hello)
        assert door.send("GET", "/agents/echo/tasks")[0] == 200
        for stream in silent:
            stream.close()


def test_answers_for_everybody_that_nobody_reads_have_an_end(door: Door) -> None:
    asked = head_of(door, "GET", "/.well-known/jwks.json")
    listed = head_of(door, "GET", "/agents/echo/tasks", A2A_Version="1.0", **door.headers("assistant"))
    # The initial window of a stream: no byte of an answer may come.
    hello = HELLO + frame(4, 0, 0, struct.pack(">HI", 4, 0))
    with honest(door), socket.create_connection(door.place, DEADLINE) as stream, stream.makefile("rb") as read:
        stream.sendall(hello + b"".join(frame(1, 5, 2 * it + 1, asked) for it in range(5)))
        told = statuses(read)
        assert sorted(next(told) for _ in range(5)) == [200] * 4 + [429]
        # A caller has places of its own.
        stream.sendall(frame(1, 5, 11, listed))
        assert next(told) == 200


def test_a_stream_of_grpc_that_nobody_reads_gives_its_place_back(door: Door) -> None:
    request = say(data={"count": 1_000_000, "pause": 0.005}, skill="slow")
    request.tenant = "clock"
    shown = [(name.lower(), it) for name, it in {"a2a-version": "1.0", **door.headers("auditor")}.items()]

    def at_work() -> list[Task]:
        wanted = ListTasksRequest(tenant="clock", status="TASK_STATE_WORKING").SerializeToString()
        answer = call(door, "ListTasks", wanted, "auditor")
        return list(ListTasksResponse.FromString(answer).tasks)

    alone = [("grpc.use_local_subchannel_pool", 1)]
    with honest(door, 128), contextlib.ExitStack() as stack:
        # A connection has room for 256 streams, and so has a caller.
        channels = [stack.enter_context(grpc.insecure_channel("{}:{}".format(*door.place), alone)) for _ in range(2)]
        stream = channels[0].unary_stream(SERVICE + "SendStreamingMessage")(request.SerializeToString(), metadata=shown)
        next(stream)
        (task,) = wait_for(at_work, "the task to be at work")
        subscribe = GetTaskRequest(tenant="clock", id=task.id).SerializeToString()

        watchers = []

        def refused(channel: grpc.Channel) -> int:
            count = 0
            for _ in range(140):
                watcher = channel.unary_stream(SERVICE + "SubscribeToTask")(subscribe, metadata=shown, timeout=DEADLINE)
                watchers.append(watcher)
                try:
                    next(watcher)
                except grpc.RpcError as error:
                    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
                    count += 1
            return count

        assert refused(channels[0]) == 0 and refused(channels[1]) >= 20
        # Another caller has places of its own.
        assert isinstance(call(door, "ListTasks", ListTasksRequest(tenant="clock").SerializeToString()), bytes)
        stack.close()
        cancel = GetTaskRequest(tenant="clock", id=task.id).SerializeToString()
        wait_for(lambda: isinstance(call(door, "CancelTask", cancel, "auditor"), bytes), "the places of streams that ended")


def test_a_card_names_the_interface(door: Door) -> None:
    card = json.loads(door.send("GET", "/agents/echo/.well-known/agent-card.json")[2])
    (grpc_,) = [it for it in card["supportedInterfaces"] if it["protocolBinding"] == "GRPC"]
    assert grpc_ == {"url": "{}:{}".format(*door.place), "protocolBinding": "GRPC", "protocolVersion": "1.0", "tenant": "echo"}

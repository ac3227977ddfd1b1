"""Agents of others that mean no good, over gRPC: the tenant says which. The card of each is below a path of its own."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from a2a.types import (
    CancelTaskRequest,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
)

PORT, GRPC = int(sys.argv[1]), int(sys.argv[2])


def task(number: str = "t", state: TaskState = TaskState.TASK_STATE_WORKING) -> Task:
    return Task(id=number, context_id="c", status=TaskStatus(state=state))


def part(number: str) -> bytes:
    event = TaskArtifactUpdateEvent(task_id=number, context_id="c")
    event.artifact.artifact_id = "a"
    event.artifact.parts.add().text = "another's"
    return StreamResponse(artifact_update=event).SerializeToString()


def stream(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
    name = SendMessageRequest.FromString(request).tenant
    print(name, "SendStreamingMessage", flush=True)
    yield StreamResponse(task=task()).SerializeToString()
    if name == "huge":
        yield b"\x00" * (9 << 20)
    elif name == "garbage":
        yield b"\xff" * 64
    elif name == "foreign":
        yield part("u")
    elif name == "refusing":
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "not\x1b you")


def cancel(request: bytes, _: grpc.ServicerContext) -> bytes:
    print(CancelTaskRequest.FromString(request).tenant, "CancelTask", flush=True)
    return task(state=TaskState.TASK_STATE_CANCELED).SerializeToString()


class Card(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name = self.path.split("/")[1]
        interface = {"url": f"127.0.0.1:{GRPC}", "protocolBinding": "GRPC", "protocolVersion": "1.0", "tenant": name}
        card = {
            "name": name, "description": "x", "version": "1", "supportedInterfaces": [interface], "capabilities": {"streaming": True},
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"], "skills": [],
        }  # fmt: skip
        body = json.dumps(card).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.max_send_message_length", -1)])
methods = {
    "SendStreamingMessage": grpc.unary_stream_rpc_method_handler(stream),
    "CancelTask": grpc.unary_unary_rpc_method_handler(cancel),
}
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("lf.a2a.v1.A2AService", methods),))
server.add_insecure_port(f"127.0.0.1:{GRPC}")
server.start()
cards = ThreadingHTTPServer(("127.0.0.1", PORT), Card)
threading.Thread(target=server.wait_for_termination, daemon=True).start()
cards.serve_forever()

"""An agent of others: a server of the official SDK. The first word of a text decides what it does."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import jwt
import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentSkill,
    Message,
    Part,
    Role,
    Task,
    TaskState,
    TaskStatus,
    a2a_pb2_grpc,
)
from a2a.utils.signing import create_agent_card_signer
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Value
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route


class Probe(AgentExecutor):
    """Does what the words say, and prints what happens to its tasks."""

    def __init__(self) -> None:
        self.jobs: dict[str, asyncio.Task[Any]] = {}

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        text = context.get_user_input() or ""
        data = [MessageToDict(part.data) for part in context.message.parts if part.HasField("data")]
        if data:
            text = f"data {json.dumps(data[0])}"
        word, _, rest = text.strip().partition(" ")
        if word == "show":
            told = MessageToDict(context.message)
            told["headers"] = dict((context.call_context.state if context.call_context else {}).get("headers", {}))
            print("shown", json.dumps(told), flush=True)
        if word == "say":
            said = Message(
                message_id=context.message.message_id + "-reply",
                role=Role.ROLE_AGENT,
                context_id=context.context_id,
                parts=[Part(text=rest)],
            )
            await event_queue.enqueue_event(said)
            return
        task = context.current_task
        if task is None:
            status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            task = Task(id=context.task_id, context_id=context.context_id, status=status, history=[context.message])
            await event_queue.enqueue_event(task)
        up = TaskUpdater(event_queue, context.task_id, context.context_id)
        if task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED:
            await up.add_artifact([Part(text=f"you answered: {text}")], name="answer")
            await up.complete()
            return
        this = asyncio.current_task()
        assert this is not None
        self.jobs[context.task_id] = this
        await getattr(self, f"on_{word}", self.on_echo)(up, rest if word == "echo" else text, rest)
        self.jobs.pop(context.task_id, None)

    async def on_echo(self, up: TaskUpdater, text: str, _: str) -> None:
        await up.start_work()
        await up.add_artifact([Part(text=text)], name="echo", last_chunk=True)
        await up.complete()

    async def on_slow(self, up: TaskUpdater, _: str, rest: str) -> None:
        await up.start_work(up.new_agent_message([Part(text="counting")]))
        steps = int(rest)
        for step in range(steps):
            await asyncio.sleep(0.05)
            chunk = [Part(text=f"{step} ")]
            await up.add_artifact(chunk, artifact_id="numbers", append=step > 0, last_chunk=step == steps - 1)
        await up.complete()

    async def on_show(self, up: TaskUpdater, text: str, _: str) -> None:
        await self.on_echo(up, text, text)

    async def on_hold(self, up: TaskUpdater, _: str, rest: str) -> None:
        await up.start_work(up.new_agent_message([Part(text="holding")]))
        print("holding", flush=True)
        await asyncio.sleep(float(rest))
        await up.complete()

    async def on_ask(self, up: TaskUpdater, _: str, __: str) -> None:
        await up.requires_input(up.new_agent_message([Part(text="which colour?")]))

    async def on_auth(self, up: TaskUpdater, _: str, __: str) -> None:
        await up.requires_auth(up.new_agent_message([Part(text="please log in")]))

    async def on_fail(self, up: TaskUpdater, _: str, __: str) -> None:
        await up.failed(up.new_agent_message([Part(text="it broke")]))

    async def on_refuse(self, up: TaskUpdater, _: str, __: str) -> None:
        await up.reject(up.new_agent_message([Part(text="not my job")]))

    async def on_data(self, up: TaskUpdater, _: str, rest: str) -> None:
        data = Part(data=ParseDict(json.loads(rest), Value()), media_type="application/json")
        await up.add_artifact([data], name="data")
        await up.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        job = self.jobs.pop(context.task_id, None)
        if job is not None and job is not asyncio.current_task():
            job.cancel()
        print("cancelled", flush=True)
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


Receive = Callable[[], Awaitable[dict[str, Any]]]


class Bearer:
    """Refuses every request without the key, except for the card."""

    def __init__(self, app: Any, key: str | None) -> None:
        self.app, self.key = app, key

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Any) -> None:
        if scope["type"] == "http" and self.key and not scope["path"].startswith("/.well-known/"):
            shown = dict(scope["headers"]).get(b"authorization", b"").decode()
            if shown != f"Bearer {self.key}":
                refused = JSONResponse({"error": {"code": 401, "message": "which key?"}}, status_code=401)
                await refused(scope, receive, send)
                return
        await self.app(scope, receive, send)


def public(key: jwt.PyJWK) -> dict[str, Any]:
    """The public half of a private key, as a JSON Web Key."""
    told: dict[str, Any] = jwt.algorithms.ECAlgorithm.to_jwk(key.key.public_key(), as_dict=True)
    return {**told, "kid": key.key_id, "alg": "ES256", "use": "sig"}


def credentials(certificate: str) -> grpc.ServerCredentials:
    key, chain = (Path(certificate + ending).read_bytes() for ending in (".key", ".pem"))
    return grpc.ssl_server_credentials([(key, chain)])


async def main(arguments: argparse.Namespace) -> None:
    scheme = "https" if arguments.certificate else "http"
    base = f"{scheme}://{arguments.host}:{arguments.port}"
    bindings = {"JSONRPC": f"{base}/rpc", "HTTP+JSON": f"{base}/rest"}
    if arguments.grpc:
        bindings = {"GRPC": f"{arguments.host}:{arguments.grpc}"}
    order = sorted(bindings, key=lambda it: it != arguments.binding)
    card = AgentCard(
        name="Probe",
        description="Does what the words say.",
        version="1.0.0",
        capabilities=AgentCapabilities(
            streaming=not arguments.whole, extensions=[AgentExtension(uri=it) for it in arguments.extension]
        ),
        default_input_modes=["text/plain", "application/json"],
        default_output_modes=["text/plain", "application/json"],
        supported_interfaces=[AgentInterface(url=bindings[it], protocol_binding=it, protocol_version="1.0") for it in order],
        skills=[AgentSkill(id="echo", name="Echo", description="Says it\x1b again.", tags=["probe"])],
    )
    keys = []
    if arguments.sign:
        with open(arguments.sign) as file:
            key = jwt.PyJWK(json.load(file))
        keys = [public(key)]
        head = {"kid": key.key_id or "", "alg": "ES256", "typ": "JOSE", "jku": f"{base}/keys"}
        card = create_agent_card_signer(key, head)(card)
    handler = DefaultRequestHandler(agent_executor=Probe(), task_store=InMemoryTaskStore(), agent_card=card)
    routes = [
        *create_agent_card_routes(card),
        Route("/keys", lambda _: JSONResponse({"keys": keys})),
        *create_jsonrpc_routes(handler, "/rpc"),
        # The last: it takes every path of two segments.
        *create_rest_routes(handler, path_prefix="/rest"),
    ]
    if arguments.grpc:
        server = grpc.aio.server()
        certificate = arguments.certificate if arguments.grpc_certificate is None else arguments.grpc_certificate
        if certificate:
            server.add_secure_port(f"127.0.0.1:{arguments.grpc}", credentials(certificate))
        else:
            server.add_insecure_port(f"127.0.0.1:{arguments.grpc}")
        a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
        await server.start()
    config = uvicorn.Config(
        Bearer(Starlette(routes=routes), arguments.key),
        host="127.0.0.1",
        port=arguments.port,
        log_level="warning",
        ssl_certfile=arguments.certificate and f"{arguments.certificate}.pem",
        ssl_keyfile=arguments.certificate and f"{arguments.certificate}.key",
    )
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--binding", default="JSONRPC")
    parser.add_argument("--grpc", type=int, help="speak gRPC alone, at this port")
    parser.add_argument("--sign", help="sign the card with the key in this file, a private JSON Web Key")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--extension", action="append", default=[], help="declare an extension by its URI")
    parser.add_argument("--key")
    parser.add_argument("--certificate", help="speak TLS with this certificate and key, without the endings .pem and .key")
    parser.add_argument("--grpc-certificate", help="the same for gRPC; empty: no TLS")
    sys.exit(asyncio.run(main(parser.parse_args())))

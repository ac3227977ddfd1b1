"""A platform with `[gateway.a2a]`, and the official client of A2A for its callers."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import ssl
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, SendMessageRequest

from harness import DEADLINE, Platform, sealbus, wait_for
from network import pytest_configure  # noqa: F401
from platforms import binary, tmp_path  # noqa: F401

PROGRAMS = Path(__file__).parent / "programs"

MANIFEST = """
    [platform]
    name = "factory"

    [gateway.a2a]
    listen = "127.0.0.1:0"
    anonymous = "guest"
    hosts = ["agents.example"]

    [[gateway.a2a.caller]]
    name = "assistant"
    key = "ASSISTANT"

    [[gateway.a2a.caller]]
    name = "auditor"
    key = "AUDITOR"

    [[permission.rule]]
    deny = { from = ["guest"], to = ["vault"] }

    [[agent]]
    name = "office"
    command = ["PYTHON", "OFFICE", "NOTES"]
    agents = ["clock", "echo", "vault", "flood", "oracle"]
    write = ["NOTES"]
"""


def say(text: str | None = None, *, data: Any = None, skill: str | None = None, task: str = "", context: str = "") -> SendMessageRequest:
    """A message of the official types."""
    part = Part(text=text) if text is not None else Part()
    if text is None:
        part.data.MergeFrom(_value(data))
    message = Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=[part], task_id=task, context_id=context)
    if skill:
        message.metadata.update({"skill": skill})
    return SendMessageRequest(message=message)


def _value(data: Any) -> Any:
    from google.protobuf.json_format import ParseDict
    from google.protobuf.struct_pb2 import Value

    return ParseDict(data, Value())


class Shown:
    """Adds metadata to each call: the SDK leaves its caller's key to the channel."""

    def __init__(self, fields: dict[str, str]) -> None:
        self.fields = [(name.lower(), it) for name, it in fields.items()]

    async def _shown(self, proceed: Any, details: Any, request: Any) -> Any:
        metadata = grpc.aio.Metadata(*(details.metadata or ()), *self.fields)
        return await proceed(details._replace(metadata=metadata), request)


class ShownOnce(Shown, grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    intercept_unary_unary = Shown._shown


class ShownForStreams(Shown, grpc.aio.UnaryStreamClientInterceptor):  # type: ignore[misc]
    intercept_unary_stream = Shown._shown


def channel(place: str, fields: dict[str, str]) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(place, interceptors=[ShownOnce(fields), ShownForStreams(fields)])


@dataclass
class Door:
    """The gateway of a running platform, and the keys to it."""

    factory: Platform
    url: str
    keys: dict[str, str]
    notes: Path
    tls: ssl.SSLContext | None = None

    @property
    def place(self) -> tuple[str, int]:
        host, port = self.url.partition("://")[2].split(":")
        return host, int(port)

    def headers(self, caller: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[caller]}"} if caller else {}

    @contextlib.asynccontextmanager
    async def client(self, agent: str, caller: str | None = "assistant", binding: str = "JSONRPC", streams: bool = True, **fields: str) -> AsyncIterator[Client]:
        async with httpx.AsyncClient(headers=self.headers(caller) | fields, timeout=DEADLINE) as http:
            card = await A2ACardResolver(http, f"{self.url}/agents/{agent}").get_agent_card()
            config = ClientConfig(
                httpx_client=http,
                supported_protocol_bindings=[binding],
                use_client_preference=True,
                streaming=streams,
                grpc_channel_factory=lambda place: channel(place, self.headers(caller) | fields),
            )
            client = ClientFactory(config).create(card)
            yield client
            if binding == "GRPC":
                await client.close()

    def send(self, method: str, path: str, body: object = None, caller: str | None = "assistant", **headers: str) -> tuple[int, dict[str, str], bytes]:
        """One request of no SDK: its status, its headers, its body to the end."""
        if self.tls is None:
            connection = http.client.HTTPConnection(*self.place, timeout=DEADLINE)
        else:
            connection = http.client.HTTPSConnection(*self.place, timeout=DEADLINE, context=self.tls)
        fields = {"A2A-Version": "1.0", **self.headers(caller), **{name.replace("_", "-"): it for name, it in headers.items()}}
        raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if raw is not None:
            fields.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, raw, fields)
            answer = connection.getresponse()
            return answer.status, {name.lower(): it for name, it in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def call(self, agent: str, method: str, params: object = None, caller: str | None = "assistant", **headers: str) -> dict[str, Any]:
        """The response to a request of JSON-RPC."""
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params or {}}
        status, _, answer = self.send("POST", f"/agents/{agent}", body, caller, **headers)
        assert status == 200, (status, answer)
        response = json.loads(answer)
        assert response["id"] == 7
        return dict(response)

    def pid(self) -> int:
        return int(self.factory.agents()["assistant"]["pid"])


def listening(factory: Platform) -> str:
    """The address of a platform's gateway, once it listens; after a restart, the latest."""

    def listens() -> Any:
        log = factory.tell("logs", "a2a", expect=None).stdout.decode(errors="replace")
        return re.findall(r"(https?://(?:127\.0\.0\.1|localhost):\d+)/agents/", log)

    return str(wait_for(listens, "the gateway to listen", also=factory.logs)[-1])


def start(directory: Path, manifest: str = MANIFEST, tls: ssl.SSLContext | None = None) -> tuple[Platform, Door]:
    notes = directory / "notes"
    notes.mkdir()
    keys = {}
    for name in ("assistant", "auditor"):
        made = json.loads(sealbus("gateway", "key", name, "--a2a", "--json").stdout)
        keys[name] = made["key"]
        manifest = manifest.replace(name.upper(), made["hash"])
    manifest = manifest.replace("OFFICE", str(PROGRAMS / "office.py")).replace("NOTES", str(notes))
    factory = Platform(directory, manifest).up()
    door = Door(factory, listening(factory), keys, notes, tls)

    def are_offered() -> bool:
        agents = ("clock", "echo", "vault", "flood", "oracle")
        return all(door.send("GET", f"/agents/{it}/.well-known/agent-card.json")[0] == 200 for it in agents)

    wait_for(are_offered, "the cards of all agents", also=factory.logs)
    return factory, door


@contextlib.contextmanager
def opened(factories: pytest.TempPathFactory) -> Iterator[Door]:
    factory, door = start(factories.mktemp("factory"))
    try:
        yield door
    finally:
        factory.down()


@pytest.fixture(scope="session")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """One platform for all files that leave it as it was."""
    with opened(tmp_path_factory) as door:
        yield door


@pytest.fixture(params=["JSONRPC", "HTTP+JSON", "GRPC"])
def binding(request: pytest.FixtureRequest) -> str:
    return str(request.param)

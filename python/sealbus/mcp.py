"""An MCP server as an agent: its tools become services in the DF, which any agent can ask for.

The manifest names the server's command or its address::

    [[agent]]
    name = "files"
    mcp = { command = ["my-mcp-server", "--its-option"] }

    [[agent]]
    name = "search"
    mcp = { url = "https://search.example/mcp", key-file = "search.key" }

The program of such an agent is this module, ``python -m sealbus.mcp``, followed by the command or the address.

It needs the package `mcp`: ``pip install "sealbus[mcp]"``. Other agents ask its tools like any :func:`~sealbus.tool`, with the
tool's name as the ontology. Notices of progress become :class:`~sealbus.Progress`, and a cancelled conversation cancels the
call. When the server ends or closes the connection, the agent fails, so the platform starts both again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

try:
    import httpx2
    import mcp_types as types
    from mcp import Client, MCPError, StdioServerParameters
    from mcp.client.streamable_http import streamable_http_client
except ModuleNotFoundError as missing:
    remedy = 'an agent of an MCP server needs `pip install "sealbus[mcp]"`'
    raise ModuleNotFoundError(f"{missing.msg}: {remedy}", name=missing.name) from missing

from sealbus import _sealbus
from sealbus._sealbus import Message, ServiceDescription
from sealbus.agent import Agent
from sealbus.body import JSON, decode
from sealbus.errors import Failure, NotUnderstood
from sealbus.mark import Mark
from sealbus.participation import ParticipantConversation, Participates
from sealbus.performative import Performative
from sealbus.platform import run
from sealbus.tools import PATIENCE, Progress, Service
from sealbus.tracing import carried_by

__all__ = ["McpServer"]

log = logging.getLogger("sealbus")

MOST_TOOLS = 64
"""Tools of a server that are registered; the DF takes no more services of one agent."""

ROOM = 60_000
"""Bytes of an entry in the DF."""

WORDS = 512
"""Words of an entry in the DF, as the DF counts them. A property has three: its name, its value, and the value's only part."""

SILENCE = 300.0
"""Seconds that a server at an address may be silent."""

CONCURRENCY = 100
"""Calls that run side by side."""

KEY_VARIABLE = "SEALBUS_MCP_KEY"
"""The variable with the key for a server at an address, if no file has it."""


def service_of(tool: types.Tool) -> ServiceDescription:
    """The entry of a tool in the DF."""
    told = {"input": json.dumps(tool.input_schema), "description": (tool.description or "").partition("\n")[0]}
    if tool.output_schema is not None:
        told["output"] = json.dumps(tool.output_schema)
    properties: dict[str, str | int | float | None] = {name: text for name, text in told.items() if text}
    properties["streams"] = "no"
    return ServiceDescription(
        tool.name, tool.name, protocols=["fipa-request"], ontologies=[tool.name], languages=[JSON], properties=properties
    )


def words_of(service: ServiceDescription) -> int:
    """The words of a service, among those of its agent's entry."""
    lists = (service.protocols, service.ontologies, service.languages, service.properties, service.properties, service.properties)
    return 2 + sum(len(words) for words in lists)


def result_of(result: types.CallToolResult) -> Any:
    """The value of a result: its structure, or else its text."""
    texts = [block.text for block in result.content if isinstance(block, types.TextContent)]
    if result.is_error:
        raise Failure("\n".join(texts) or "the tool failed and said nothing")
    if result.structured_content is not None:
        return result.structured_content
    if len(texts) == len(result.content):
        return {"result": "\n".join(texts)}
    return {"content": [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]}


class _Tools(Participates):
    """All tools of a server. The ontology of the request names the tool."""

    protocol = "fipa-request"
    conversation = Service

    def __init__(self) -> None:
        super().__init__(result_of, None, PATIENCE)

    async def _take_part(self, agent: Agent, talk: ParticipantConversation, call: Message) -> None:
        assert isinstance(talk, Service) and isinstance(agent, McpServer)
        name = agent.tool_of(call)
        arguments: dict[str, Any] = decode(call, dict[str, Any])
        await talk.agree()
        await talk.say(Performative.INFORM, await talk.work(agent.call(name, arguments, talk, call)))


class McpServer(Agent):
    """The agent of an MCP server, which is a command with its arguments, or an address.

    The key for a server at an address is read from ``key_file`` whenever the agent starts, and sent as ``Authorization: Bearer KEY``.
    With ``header``, it is sent as the value of that header instead.
    """

    def __init__(self, *server: str, key_file: Path | None = None, header: str | None = None) -> None:
        super().__init__()
        if not server:
            raise ValueError("name the server: its command, or its address")
        self._server = server
        self._key_file = key_file
        self._header = header
        self._names: list[str] = []
        self._lost = asyncio.Event()
        self._left = asyncio.Event()

    serve = Mark(_sealbus.opens("fipa-request"), CONCURRENCY)(_Tools())  # type: ignore[type-var]

    async def setup(self) -> None:
        opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.create_task(self._connection(opened))
        self._client = await opened
        services: list[ServiceDescription] = []
        room, words = ROOM, WORDS
        for tool in await self._all_tools():
            service = service_of(tool)
            room -= len(str(service))
            words -= words_of(service)
            if room < 0 or words < 0 or len(services) == MOST_TOOLS:
                log.warning("%s and the tools after it have no room in the DF", tool.name)
                break
            services.append(service)
        self._names = [service.name for service in services if service.name]
        await self.df.register(*services)

    async def teardown(self) -> None:
        self._left.set()

    async def _connection(self, opened: asyncio.Future[Client]) -> None:
        """Keeps the connection, which belongs to the task that opened it."""
        try:
            async with AsyncExitStack() as stack:
                opened.set_result(await self._open(stack))
                ends = [asyncio.create_task(event.wait()) for event in (self._lost, self._left)]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for end in ends:
                    end.cancel()
        except BaseException as problem:
            if not opened.done():
                opened.set_exception(RuntimeError(f"the MCP server {self._server[0]} cannot be used: {problem}"))
                return
            raise
        if self._lost.is_set():
            raise RuntimeError(f"the MCP server {self._server[0]} has ended")

    async def _open(self, stack: AsyncExitStack) -> Client:
        command, *arguments = self._server
        if command.startswith(("http://", "https://")):
            # A redirection could lead the key elsewhere.
            http = httpx2.AsyncClient(headers=self._headers(), follow_redirects=False, timeout=SILENCE)
            await stack.enter_async_context(http)
            return await stack.enter_async_context(Client(streamable_http_client(command, http_client=http)))
        # The ticket to the platform is only for this program.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SEALBUS_")}
        server = StdioServerParameters(command=command, args=arguments, env=environment)
        return await stack.enter_async_context(Client(server))

    def _headers(self) -> dict[str, str]:
        key = self._key_file.read_text().strip() if self._key_file else os.environ.get(KEY_VARIABLE)
        if self._key_file and not key:
            raise ValueError(f"{self._key_file} is empty: write the server's key into it")
        if not key:
            return {}
        return {self._header: key} if self._header else {"Authorization": f"Bearer {key}"}

    async def _all_tools(self) -> list[types.Tool]:
        found: list[types.Tool] = []
        cursor: str | None = None
        while len(found) <= MOST_TOOLS:
            page = await self._client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        return found

    def tool_of(self, call: Message) -> str:
        """The tool that a request is for. If the server has only one tool, the request need not name it."""
        if call.ontology is None and len(self._names) == 1:
            return self._names[0]
        if call.ontology not in self._names:
            raise NotUnderstood(f"no tool is called {call.ontology}: the ontology names the tool")
        return str(call.ontology)

    async def call(self, name: str, arguments: dict[str, Any], talk: Service, asked: Message) -> Any:
        """Calls a tool for a request, and passes its progress on. The call belongs to the trace of the request; if this program
        is traced itself, the client of MCP puts its span in between."""

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            if total and 0 <= progress <= total:
                await talk.tell(Progress(progress / total, message or ""))

        try:
            meta = cast(types.RequestParamsMeta, carried_by(asked))
            result = await self._client.call_tool(name, arguments, progress_callback=on_progress, meta=meta)
        except MCPError as problem:
            if problem.error.code == types.CONNECTION_CLOSED:
                self._lost.set()
                raise Failure("the server has ended") from problem
            if problem.error.code in (types.INVALID_PARAMS, types.METHOD_NOT_FOUND):
                raise NotUnderstood(problem.error.message) from problem
            raise Failure(problem.error.message) from problem
        return result_of(result)


def main() -> None:
    """Runs the agent of the server that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m sealbus.mcp", description="Makes an MCP server an agent.", allow_abbrev=False)
    parser.add_argument("--key-file", type=Path, help="the file with the key for a server at an address")
    parser.add_argument("--header", help="the header for the key; without it, the key is a bearer token")
    parser.add_argument("server", nargs=argparse.REMAINDER, help="the server's command with its arguments, or its address")
    arguments = parser.parse_args()
    if not arguments.server:
        parser.error("name the server: its command, or its address")
    run(McpServer(*arguments.server, key_file=arguments.key_file, header=arguments.header))


if __name__ == "__main__":
    main()

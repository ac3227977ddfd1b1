"""A server of the official SDK, over standard input and output. The first argument is the folder of its notes."""

import asyncio
import os
import sys
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

NOTES = Path(sys.argv[1])
server = MCPServer("library", log_level="WARNING")


@server.tool()
def add(one: int, other: int) -> int:
    """Adds two numbers."""
    return one + other


@server.tool()
async def read(pages: int, pause: float, ctx: Context) -> str:
    """Reads a book."""
    (NOTES / "read-begun").touch()
    try:
        for page in range(1, pages + 1):
            await asyncio.sleep(pause)
            await ctx.report_progress(page, pages, f"page {page}")
    except asyncio.CancelledError:
        (NOTES / "read-cancelled").touch()
        raise
    return "the end"


@server.tool()
def lend(book: str) -> str:
    """Lends a book."""
    raise ToolError(f"{book} is out")


@server.tool()
def surroundings() -> list[str]:
    """Lists the variables in the server's environment."""
    return sorted(name for name in os.environ if name.startswith(("SEALBUS_", "COLOUR")))


@server.tool()
def trace(ctx: Context) -> str:
    """The trace that the call belongs to."""
    return str((ctx.request_context.meta or {}).get("traceparent"))


@server.tool()
def die() -> str:
    """Ends the server at once."""
    os._exit(3)


server.run("stdio")

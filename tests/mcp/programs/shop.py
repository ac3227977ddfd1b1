"""A server of the official SDK with a hundred tools, over standard input and output."""

from collections.abc import Callable

from mcp.server.mcpserver import MCPServer

server = MCPServer("shop", log_level="WARNING")


def sells(number: int) -> Callable[[], str]:
    def sell() -> str:
        return f"{number} is sold"

    return sell


for number in range(100):
    server.add_tool(sells(number), f"sell_{number}", description="Sells something.")

server.run("stdio")

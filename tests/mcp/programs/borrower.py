"""An agent that uses a tool of an MCP server, as docs/mcp.md shows."""

from sealbus import AclMessage, Agent, Performative, run


class Borrower(Agent):
    async def setup(self) -> None:
        call = AclMessage(Performative.REQUEST, "library", body={"one": 2, "other": 40}, ontology="add")
        answer = await self.request(call, timeout=100)
        print(answer.performative, answer.body)
        self.stop_all()


run(Borrower("borrower"))

"""An agent that gets workload tokens, for whoever asks, and one that gets them on and on. The argument is the folder of notes."""

import asyncio
import sys
from pathlib import Path

from sealbus import Agent, Failure, SealbusError, WorkloadTokenError, once, run, tool

NOTES = Path(sys.argv[1])


class Envoy(Agent):
    async def setup(self) -> None:
        await self.df.register(*self.tools())

    @tool
    async def token(self, audience: str) -> str:
        """A token for this audience, and when it ends."""
        try:
            token = await self.workload_token(audience)
        except WorkloadTokenError as refused:
            raise Failure(str(refused)) from None
        assert token.value not in repr(token)
        return f"{token} {token.expires.timestamp()}"


class Clerk(Agent):
    @once
    async def work(self) -> None:
        while True:
            try:
                await self.workload_token("https://api.example")
                word = "a token"
            except SealbusError as refused:
                word = f"none: {refused}"
            (NOTES / "latest.new").write_text(word)
            (NOTES / "latest.new").rename(NOTES / "latest")
            await asyncio.sleep(0.05)


run(Envoy("envoy"), Clerk("clerk"))

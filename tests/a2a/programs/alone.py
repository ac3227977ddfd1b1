"""A program that brings its own platform, and lets A2A clients in at the port that its first argument names. The second one is the
folder of its notes."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from sealbus import Agent, run, tool

NOTES = Path(sys.argv[2])


class Painter(Agent):
    async def setup(self) -> None:
        await self.df.register(*self.tools())

    @tool
    async def paint(self, name: str) -> AsyncIterator[str]:
        """Paints until the note of this name is there."""
        yield "begun"
        while not (NOTES / name).exists():
            await asyncio.sleep(0.02)
        yield "done"


run(Painter("painter"), a2a=f"127.0.0.1:{sys.argv[1]}")

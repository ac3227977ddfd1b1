"""An agent with a tool that answers word by word, as a language model does, and an agent that reads along and leaves
when it has read enough.

The words come from a Markov chain over a few sentences, so neither a network nor a model is needed. Run it with
`python examples/tool_agent.py`. With `examples/gateways.toml`, the model alone runs behind three doors.
"""

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

from sealbus import Agent, Progress, Refuse, ServiceDescription, run, tool

SENTENCES = """agents talk about what they know . agents know who is talking . who is talking knows what agents want .
what they want is a message that arrives . a message that arrives once is worth two that may arrive ."""


@dataclass
class Prompt:
    text: str
    words: int = 20


@dataclass
class Chunk:
    word: str


class Model(Agent):
    async def setup(self) -> None:
        words = SENTENCES.split()
        self.next: dict[str, list[str]] = {}
        for word, following in zip(words, words[1:], strict=False):
            self.next.setdefault(word, []).append(following)
        await self.df.register(*self.tools())

    @tool(concurrency=8)
    async def complete(self, prompt: Prompt) -> AsyncIterator[Chunk | Progress]:
        """Goes on with a text, word by word."""
        [*_, word] = prompt.text.lower().split() or [""]
        if word not in self.next:
            raise Refuse(f"I do not know the word '{word}'")
        chance = random.Random(prompt.text)
        for number in range(prompt.words):
            await asyncio.sleep(0.001)
            word = chance.choice(self.next.get(word, ["."]))
            yield Progress((number + 1) / prompt.words)
            yield Chunk(word)


class Reader(Agent):
    async def setup(self) -> None:
        model = ServiceDescription.of_type("complete")
        async with self.ask(model, Prompt("Agents"), stream=Chunk, timeout=10) as answer:
            async for chunk in answer:
                print(chunk.word, end=" ", flush=True)
        print("\nTo the end:", answer.progress)

        async with self.ask(model, Prompt("a message", words=1_000_000), stream=Chunk, timeout=10) as answer:
            async for chunk in answer:
                print(chunk.word, end=" ", flush=True)
                if chunk.word == ".":
                    break
        print("\nOne sentence of a million words was enough.")
        self.stop_all()


if __name__ == "__main__":
    readers = [] if sys.argv[1:] == ["alone"] else [Reader("reader")]
    run(Model("model"), *readers)

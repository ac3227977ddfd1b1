"""An agent that can be moved to another node while others talk to it: `save` and `restore` carry its state.

By itself (`python examples/counter.py`) it is asked ten times and stops. On a platform the same program, started as
`counter` and as `asker`, runs whichever of the two was placed there; `sealbus move counter node-2` then takes the
counter to another node, and it counts on.
"""

from sealbus import AclMessage, Agent, Message, Performative, run


class Counter(Agent):
    count = 0

    async def on_message(self, message: Message) -> None:
        self.count += 1
        await self.reply(message, Performative.INFORM, str(self.count))

    async def save(self) -> bytes:
        return str(self.count).encode()

    async def restore(self, state: bytes) -> None:
        self.count = int(state)
        print(f"{self.aid} goes on from {self.count} at another place")


class Asker(Agent):
    async def setup(self) -> None:
        for _ in range(10):
            answer = await self.request(AclMessage(Performative.QUERY_REF, "counter"), timeout=5)
            print(answer.text)
        self.stop_all()


if __name__ == "__main__":
    run(Counter("counter"), Asker("asker"))

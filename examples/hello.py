"""Two agents, one file, nothing to install: they are certified, meet on an embedded platform and play a rally.

Run it with `python examples/hello.py`.
"""

from sealbus import AclMessage, Agent, Message, Performative, run


class Ping(Agent):
    async def setup(self) -> None:
        for number in range(1, 4):
            ball = AclMessage(Performative.QUERY_REF, "pong", f"ping {number}")
            answer = await self.request(ball, timeout=10)
            print(f"{answer.sender_name} says: {answer.text}")
        self.stop_all()


class Pong(Agent):
    async def on_message(self, message: Message) -> None:
        answer = message.text.replace("ping", "pong")
        await self.reply(message, Performative.INFORM, answer)


if __name__ == "__main__":
    run(Ping("ping"), Pong("pong"))

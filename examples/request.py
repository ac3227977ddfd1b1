"""Asking and answering, also when it goes wrong: a refusal is an answer; an agent that does not exist, and one that
does not answer, are exceptions that say so.

Run it with `python examples/request.py`.
"""

from sealbus import AclMessage, Agent, Message, Performative, RequestError, run


class Clerk(Agent):
    async def on_message(self, message: Message) -> None:
        match message.text:
            case "open the door":
                await self.reply(message, Performative.INFORM, "it is open")
            case "open the safe":
                await self.reply(message, Performative.REFUSE, "I am not allowed to")
            # Whoever asks for anything else waits in vain.


class Visitor(Agent):
    async def setup(self) -> None:
        await self.ask("clerk", "open the door")
        await self.ask("clerk", "open the safe")
        await self.ask("clerk", "sing")
        await self.ask("janitor", "clean the stairs")
        self.stop_all()

    async def ask(self, whom: str, what: str) -> None:
        try:
            answer = await self.request(AclMessage(Performative.REQUEST, whom, what), timeout=0.5)
            print(f"{what}? {answer.performative}: {answer.text}")
        except RequestError as problem:
            print(f"{what}? {problem}")


if __name__ == "__main__":
    run(Clerk("clerk"), Visitor("visitor"))

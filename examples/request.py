"""Questions and answers, also unwelcome ones: a refusal is an answer, and so is an error. An agent that does not exist, or does
not answer, is an exception that says so.

Run it with `python examples/request.py`.
"""

from sealbus import AclMessage, Agent, Message, Performative, Refuse, RequestError, run


class Clerk(Agent):
    async def on_message(self, message: Message) -> None:
        match message.text:
            case "open the door":
                await self.reply(message, Performative.INFORM, "it is open")
            case "open the safe":
                raise Refuse("I am not allowed to")
            case "drop the vase":
                raise ValueError("a handler's error is answered too")
            # Asking for anything else has no answer.


class Visitor(Agent):
    async def setup(self) -> None:
        await self.wish("clerk", "open the door")
        await self.wish("clerk", "open the safe")
        await self.wish("clerk", "drop the vase")
        await self.wish("clerk", "sing")
        await self.wish("janitor", "clean the stairs")
        self.stop_all()

    async def wish(self, whom: str, what: str) -> None:
        try:
            answer = await self.request(AclMessage(Performative.REQUEST, whom, what), timeout=0.5)
            print(f"{what}? {answer.performative}: {answer.text}")
        except RequestError as problem:
            print(f"{what}? {problem}")


if __name__ == "__main__":
    run(Clerk("clerk"), Visitor("visitor"))

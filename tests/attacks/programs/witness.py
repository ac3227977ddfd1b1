"""Notes every message that reaches it, in the order of arrival: who sent it, by what act, and its text. Answers `["all"]` with the notes,
`["chains"]` with each text and those on whose behalf it came, and `["search", type]` with what the DF and the DFs that it knows tell of such services."""

import json
import re
from typing import Any

import sealbus
from sealbus import AclMessage, Agent, Message, Performative


class Witness(Agent):
    def __init__(self) -> None:
        super().__init__()
        self.notes: list[list[str]] = []
        self.chains: list[tuple[str, list[str]]] = []

    async def on_message(self, message: Message) -> None:
        text = message.content_text or ""
        if message.performative == Performative.REQUEST and message.sender_name.startswith("operator"):
            order, *arguments = json.loads(text)
            answer = await getattr(self, f"{order}_")(*arguments)
            await self.reply(message, Performative.INFORM, json.dumps(answer))
            return
        self.notes.append([message.sender_name, str(message.performative), text[:200], str(message.provenance)])
        self.chains.append((text[:200], list(message.on_behalf_of)))

    async def all_(self) -> Any:
        return self.notes

    async def chains_(self) -> Any:
        return self.chains

    async def search_(self, kind: str) -> Any:
        template = f"(df-agent-description :services (set (service-description :type {kind})))"
        action = f"(search {template} (search-constraints :max-depth 1 :max-results -1))"
        content = f"((action (agent-identifier :name df@{self.aid.platform}) {action}))"
        words = {"language": "fipa-sl0", "ontology": "fipa-agent-management", "protocol": "fipa-request"}
        answer = await self.request(AclMessage(Performative.REQUEST, "df", content, **words))
        return re.findall(r":name (\S+@[\w-]+)", (answer.content_text or "").partition("sequence")[2])


if __name__ == "__main__":
    sealbus.run(Witness())

"""The agent that the official compatibility kit of A2A expects: what it does stands in the names of the kit's messages."""

import asyncio
import json
from typing import Any

from sealbus import AclMessage, Agent, Message, Performative, ServiceDescription, on, run

PARTS: dict[str, list[dict[str, Any]]] = {
    "stream-artifact-chunked": [{"text": "chunk-1 "}, {"text": "chunk-2"}],
    "stream-artifact-text": [{"text": "Streamed text content"}],
    "stream-artifact-file": [{"raw": "dGNr", "mediaType": "text/plain", "filename": "output.txt"}],
    "stream-ordering-001": [{"text": "Ordered output"}],
    "stream-001": [{"text": "Stream hello from TCK"}],
    "stream-003": [{"text": "Stream task lifecycle"}],
    "artifact-file-url": [{"url": "https://example.com/output.txt", "mediaType": "text/plain", "filename": "output.txt"}],
    "artifact-file": [{"raw": "dGNr", "mediaType": "text/plain", "filename": "output.txt"}],
    "artifact-text": [{"text": "Generated text content"}],
    "artifact-data": [{"data": {"key": "value", "count": 42}}],
}


class Kit(Agent):
    async def setup(self) -> None:
        await self.df.register(ServiceDescription("kit", "test", protocols=["fipa-request"]))

    @on(Performative.REQUEST)
    async def asked(self, message: Message) -> None:
        # A question to the caller waits for long; others are served meanwhile.
        self.create_task(self.serve(message))

    async def serve(self, message: Message) -> None:
        name = str(message.user_defined["X-A2A-Message"])
        if name.startswith("tck-input-required"):
            question = AclMessage(Performative.QUERY_REF, message.sender, "what else?", conversation_id=message.conversation_id)
            await self.request(question)
            await self.reply(message, Performative.INFORM, "done")
            return
        if name.startswith("tck-reject-task"):
            await self.reply(message, Performative.REFUSE, "rejected")
            return
        if name.startswith("tck-message-response"):
            answer = message.create_reply(Performative.INFORM, "Direct message response")
            await self.send(answer.replace(ontology="a2a-message"))
            return
        if name.startswith("test-resubscribe-message-id"):
            await self.reply(message, Performative.AGREE)
            await asyncio.sleep(4)
        for known, parts in PARTS.items():
            if not name.startswith("tck-" + known):
                continue
            await self.reply(message, Performative.AGREE)
            for number, part in enumerate(parts, 1):
                told = message.create_reply(Performative.INFORM, json.dumps(part))
                await self.send(told.replace(language="application/json", ontology="a2a-part", user_defined={"X-partial": number}))
            break
        await self.send(message.create_reply(Performative.INFORM))


run(Kit("kit"))

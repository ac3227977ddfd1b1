"""The demo's Python agent understands the demo's Rust agents."""

import asyncio
import json
import time

from sealbus import AclMessage, Agent, Platform
from sealbus.demo_agent import Receiver, Sender


async def test_the_demo_agents_do_their_task_and_account_for_it() -> None:
    async with Platform() as platform:
        await platform.start_all(Sender("python-sender-1"), Receiver("python-receiver-1"))
        demo = await platform.start(Agent("demo"))
        async for found in await demo.df.subscribe("demo-receiver"):
            assert [service.name for service in found[0].services] == ["python-receiver-1"]
            break
        async for found in await demo.df.subscribe("demo-sender"):
            assert [service.name for service in found[0].services] == ["python-sender-1"]
            break

        async def ask(agent: str, performative: str, question: object) -> dict[str, object]:
            message = AclMessage(performative, agent, json.dumps(question))
            answer: dict[str, object] = json.loads((await demo.request(message, timeout=60)).text)
            return answer

        began = time.time_ns()
        task = {"service": "python-receiver-1", "conversation": "level auth", "count": 50, "interval-us": 100}
        sent = await ask("python-sender-1", "request", task)
        assert sent["sent"] == 50
        assert isinstance(sent["began"], int)
        assert began <= sent["began"] <= time.time_ns()

        # The question and the messages before it come from two agents, so it may overtake them.
        question = {"conversation": "level auth"}
        async with asyncio.timeout(60):
            while (received := await ask("python-receiver-1", "query-ref", question))["received"] != 50:
                await asyncio.sleep(0.01)
        assert (received["received"], received["disordered"]) == (50, 0)
        latencies = received["latencies-us"]
        assert isinstance(latencies, list)
        assert len(latencies) == 50
        assert isinstance(received["last"], int)
        assert received["last"] >= sent["began"]

        # Messages of another sender are counted all the same, and wrong ones are told apart.
        receiver = demo.peer("python-receiver-1")
        for content in ("2000", "1000", "not a time"):
            await demo.send(AclMessage("inform", receiver, content, conversation_id="attack"))
        counted = await ask("python-receiver-1", "query-ref", {"conversation": "attack"})
        assert (counted["received"], counted["disordered"]) == (3, 2)
        nothing = await ask("python-receiver-1", "query-ref", {"conversation": "none"})
        assert nothing == {"received": 0, "disordered": 0, "last": 0, "latencies-us": []}

"""SPADE's names on Sealbus: a program written for SPADE 4 runs here with another import, and needs no XMPP server.

::

    from sealbus import spade
    from sealbus.spade.agent import Agent
    from sealbus.spade.behaviour import OneShotBehaviour
    from sealbus.spade.message import Message

    class Sender(Agent):
        class Greet(OneShotBehaviour):
            async def run(self) -> None:
                await self.send(Message(to="receiver@localhost", body="hello"))
                await self.agent.stop()

        async def setup(self) -> None:
            self.add_behaviour(self.Greet())

    async def main() -> None:
        sender = Sender("sender@localhost", "password")
        await sender.start()
        await spade.wait_until_finished(sender)

    spade.run(main())

``a@localhost`` is the agent ``a`` of the program's platform: the domain of a program's JIDs stands for its platform. The platform
certifies each agent, so passwords are ignored. Anything that needs an XMPP server or a web server raises
:class:`NotOffered`, which says what to use instead.
"""

from __future__ import annotations

from typing import NoReturn

from sealbus.spade import agent, behaviour, fipa_message, message, presence, template
from sealbus.spade.container import quit_spade, run, start_agents, wait_until_finished
from sealbus.spade.jid import JID
from sealbus.spade.refused import NotOffered, refuse

__all__ = [
    "JID",
    "NotOffered",
    "agent",
    "behaviour",
    "fipa_message",
    "message",
    "presence",
    "quit_spade",
    "run",
    "start_agents",
    "template",
    "wait_until_finished",
]


def __getattr__(name: str) -> NoReturn:
    refuse(name)
    raise AttributeError(f"module 'sealbus.spade' has no attribute {name!r}")

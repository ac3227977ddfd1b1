"""An agent that writes to `sink` once, is refused by a rule, and leaves at once."""

import sealbus
from sealbus import AclMessage, Agent, Performative


class Trespasser(Agent):
    async def setup(self) -> None:
        try:
            await self.send(AclMessage(Performative.INFORM, "sink", "1"))
        except sealbus.SealbusError as refused:
            print(refused, flush=True)
        self.stop()


if __name__ == "__main__":
    sealbus.run(Trespasser())

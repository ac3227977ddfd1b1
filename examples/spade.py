"""A program for SPADE moved over: a sender with a periodic behaviour, a receiver with a state machine. The comments show the
lines of SPADE's own examples that the lines below them replace.

Run it with `python examples/spade.py`.
"""

from sealbus import AclMessage, Agent, Filter, State, every, machine, run


# class PeriodicSenderAgent(Agent):
class Sender(Agent):
    counter = 0

    # class InformBehav(PeriodicBehaviour):
    #     async def run(self):
    # self.add_behaviour(self.InformBehav(period=0.2, start_at=start_at))
    @every(0.2)
    async def inform(self) -> None:
        # msg = Message(to=self.get("receiver_jid"))
        # msg.set_metadata("performative", "inform")
        # msg.body = "Hello World"
        message = AclMessage("inform", "receiver", f"hello {self.counter}")
        # await self.send(msg)
        await self.send(message)
        # if self.counter == 5: self.kill()
        self.counter += 1
        if self.counter == 5:
            self.behaviours["inform"].cancel()


# class FSMAgent(Agent):
class Receiver(Agent):
    # class StateOne(State):
    #     async def run(self):
    # fsm.add_state(name=STATE_ONE, state=StateOne(), initial=True)
    @machine
    async def waiting(self) -> State:
        # msg = await self.receive(timeout=5)
        message = await self.receive(Filter("inform"), timeout=5)
        print(f"{message.sender_name} says {message.text}")
        # self.set_next_state(STATE_TWO)
        return self.leaving if message.text == "hello 4" else self.waiting

    # class StateTwo(State):
    #     async def run(self):
    async def leaving(self) -> State:
        # No next state is set, so this is the end.
        # await self.agent.stop()
        self.stop_all()
        return None


if __name__ == "__main__":
    # await sender.start(); await receiver.start(); await wait_until_finished(receiver)
    run(Sender("sender"), Receiver("receiver"))

"""Sensors publish on channels. A dashboard prints each value, and ends the program after ten, when it knows both sensors."""

from sealbus import Agent, ChannelEvent, every, on_event, run


class Sensor(Agent):
    celsius = 20.0

    @every(0.5)
    async def measure(self) -> None:
        self.celsius += 0.5
        await self.publish(f"/sensors/{self.name}", str(self.celsius), qos="best-effort")


class Dashboard(Agent):
    shown = 0

    async def setup(self) -> None:
        self.latest: dict[str, str] = {}

    @on_event("/sensors/*")
    async def show(self, event: ChannelEvent) -> None:
        print(f"{event.sender_name} measures {event.text}", flush=True)
        self.latest[event.sender_name] = event.text
        self.shown += 1
        if self.shown >= 10 and len(self.latest) == 2:
            self.stop_all()


if __name__ == "__main__":
    run(Sensor("kitchen"), Sensor("cellar"), Dashboard("dashboard"))

"""Sensors measure at regular times and publish the values; a slow dashboard shows the latest value alone.

Run it with `python examples/sensors.py`.
"""

from sealbus import Agent, ChannelEvent, every, on_event, run


class Sensor(Agent):
    celsius = 20.0

    @every(0.1)
    async def measure(self) -> None:
        self.celsius += 0.5
        await self.publish(f"/sensors/{self.name}", str(self.celsius), qos="best-effort")


class Dashboard(Agent):
    shown = 0

    @on_event("/sensors/*", keep="latest")
    async def show(self, event: ChannelEvent) -> None:
        print(f"{event.sender_name} measures {event.text}")
        # Drawing takes longer than measuring: of the values that come meanwhile, only the latest is shown.
        await self.clock.sleep(0.3)
        self.shown += 1
        if self.shown == 5:
            self.stop_all()


if __name__ == "__main__":
    run(Sensor("kitchen"), Dashboard("dashboard"))

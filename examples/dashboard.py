"""Sensors publish readings; a dashboard that comes late shows the last reading of each sensor at once, and then every new one.

Run it with `python examples/dashboard.py`.
"""

from sealbus import Agent, every, once, run


class Sensor(Agent):
    celsius = 18.0

    @every(1.0)
    async def measure(self) -> None:
        self.celsius += 0.5
        await self.publish("/readings", str(self.celsius), properties={"room": self.name}, qos="persistent")


class Dashboard(Agent):
    late = 3.5

    @once
    async def show(self) -> None:
        await self.clock.sleep(self.late)
        async with await self.subscribe("/readings", last_per="properties.room") as readings:
            for _ in range(6):
                reading = await readings.next()
                print(f"{reading.sender_name}: {reading.text} degrees")
        self.stop_all()


if __name__ == "__main__":
    run(Sensor("kitchen"), Sensor("office"), Dashboard("dashboard"))

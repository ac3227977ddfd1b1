"""Workers share a queue of jobs: each job goes to the worker that is least busy, and to another one if that worker ends.

Run it with `python examples/workers.py`.
"""

import asyncio

from sealbus import Agent, ChannelEvent, on_event, run


class Worker(Agent):
    def __init__(self, name: str, pace: float) -> None:
        super().__init__(name)
        self.pace = pace

    @on_event("/jobs", group="workers")
    async def job(self, job: ChannelEvent) -> None:
        await asyncio.sleep(self.pace)
        print(f"{self.name}: {job.text}")


class Boss(Agent):
    async def setup(self) -> None:
        # `ack=agent` waits until a worker has handled the job.
        jobs = [self.publish("/jobs", f"job {number}", qos="ack=agent") for number in range(12)]
        await asyncio.gather(*jobs)
        self.stop_all()


if __name__ == "__main__":
    run(Worker("slow", 0.2), Worker("quick", 0.02), Boss("boss"))

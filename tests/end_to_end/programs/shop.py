"""Hears offers, answers questions about tea, and repeats on /echo the offers that it heard."""

import sys

from sealbus import Agent, ChannelEvent, Performative, on_event, on_question, run


class Shop(Agent):
    @on_event("/offers/**", filter="properties.price < 10")
    async def offer(self, event: ChannelEvent) -> None:
        echo = await self.channel("/echo")
        await echo.publish(f"{event.sender_name.split('-')[0]}: {event.text}")

    @on_question("/wanted/tea")
    async def wanted(self, question: ChannelEvent) -> None:
        if self.name == "shop-1":
            await self.reply(question, Performative.PROPOSE, "9 EUR")


run(*(Shop(name) for name in sys.argv[1:]))

"""Participants: methods of an agent that take part in a protocol when another agent opens it.

Each conversation runs beside the agent's other hooks, up to `conversations` at once for each method. A method raises
:class:`~sealbus.Refuse`, :class:`~sealbus.Failure` or :class:`~sealbus.NotUnderstood` to send its protocol's negative answer.
Any other exception is also answered, logged and counted. When the initiator cancels, the method is cancelled.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from sealbus import _sealbus
from sealbus._sealbus import Message
from sealbus.brokering import Proxy, pass_on, recruit
from sealbus.errors import ProtocolError, Refuse
from sealbus.mark import MARKS, Mark, Supervise
from sealbus.participation import Bid, Order, ParticipantConversation, Participates
from sealbus.performative import Performative

if TYPE_CHECKING:
    from sealbus.agent import Agent

__all__ = [
    "Bid",
    "Order",
    "on_brokering",
    "on_contract_net",
    "on_dutch_auction",
    "on_english_auction",
    "on_iterated_contract_net",
    "on_propose",
    "on_query",
    "on_recruiting",
    "on_request",
    "on_request_when",
    "on_subscribe",
]

CONVERSATIONS = 256
PATIENCE = 60.0


class _Answers(Participates):
    """Request and Query: the method decides and answers, or `perform` answers after an ``agree``."""

    async def _take_part(self, agent: Agent, talk: ParticipantConversation, call: Message) -> None:
        call = self._read(call)
        result = await talk.work(self._method(agent, call))
        if self._perform is not None:
            await talk.say(Performative.AGREE)
            result = await talk.work(self._perform(agent, call))
        await talk.say(Performative.INFORM, result)


class _Request(_Answers):
    protocol = "fipa-request"


class _Query(_Answers):
    protocol = "fipa-query"


class _RequestWhen(_Answers):
    protocol = "fipa-request-when"

    async def _take_part(self, agent: Agent, talk: ParticipantConversation, call: Message) -> None:
        if self._perform is not None:
            await super()._take_part(agent, talk, call)
            return
        # The condition may become true much later, so tell the initiator now that its request was heard.
        call = self._read(call)
        await talk.say(Performative.AGREE)
        result = await talk.work(self._method(agent, call))
        await talk.say(Performative.INFORM, result)


class _ContractNet(Participates):
    protocol = "fipa-contract-net"

    async def _take_part(self, agent: Agent, talk: ParticipantConversation, call: Message) -> None:
        while True:
            offer = await talk.work(self._method(agent, self._read(call)))
            if offer is None:
                raise Refuse
            await talk.say(Performative.PROPOSE, offer)
            decision = await talk.next(self._timeout)
            if decision is None:
                return
            order = Order(decision, call, offer)
            if decision.performative == Performative.REJECT_PROPOSAL:
                if self._rejected is not None:
                    await self._rejected(agent, order)
                return
            if decision.performative == Performative.ACCEPT_PROPOSAL:
                result = None
                if self._perform is not None:
                    result = await talk.work(self._perform(agent, order))
                await talk.say(Performative.INFORM, result)
                return
            # Another round.
            call = decision


class _IteratedContractNet(_ContractNet):
    protocol = "fipa-iterated-contract-net"


class _Propose(Participates):
    protocol = "fipa-propose"

    async def _take_part(self, agent: Agent, talk: ParticipantConversation, call: Message) -> None:
        accepts = await talk.work(self._method(agent, self._read(call)))
        await talk.say(Performative.ACCEPT_PROPOSAL if accepts else Performative.REJECT_PROPOSAL)


class _Subscribe(Participates):
    protocol = "fipa-subscribe"

    async def _take_part(self, agent: Agent, talk: ParticipantConversation, call: Message) -> None:
        values: AsyncIterator[Any] = self._method(agent, self._read(call))
        try:
            is_first = True
            while True:
                value = await talk.work(_next(values))
                if value is _NO_MORE:
                    break
                if is_first:
                    await talk.say(Performative.AGREE)
                    is_first = False
                await talk.say(Performative.INFORM, value)
        finally:
            close = getattr(values, "aclose", None)
            if close is not None:
                await close()
        if is_first:
            raise Refuse("there is nothing to tell")
        talk.decline(Performative.FAILURE, "there is nothing more to tell")


_NO_MORE = object()


async def _next(values: AsyncIterator[Any]) -> Any:
    return await anext(values, _NO_MORE)


class _Auction(Participates):
    """Both auctions: a bid in each round, or silence."""

    async def _take_part(self, agent: Agent, talk: ParticipantConversation, call: Message) -> None:
        auction, offer = call, None
        # The call that the agent bids on, and the call whose bid was accepted.
        bidding = won = call
        while (message := await talk.next(self._timeout)) is not None:
            match message.performative:
                case Performative.CFP:
                    if talk.stage == "defending":
                        # The agent leads, and does not bid against itself.
                        continue
                    bidding = self._read(message)
                    try:
                        bid = await talk.work(self._method(agent, Bid(bidding, auction)))
                    except Refuse:
                        continue
                    if bid is not None and bid is not False:
                        offer = bid
                        # This fails if the round is over.
                        with suppress(ProtocolError):
                            await talk.say(Performative.PROPOSE, None if bid is True else bid)
                case Performative.REJECT_PROPOSAL if self._rejected is not None:
                    await self._rejected(agent, Order(message, bidding, offer))
                case Performative.ACCEPT_PROPOSAL:
                    won = bidding
                    await self._won(agent, talk, Order(message, won, offer))
                case Performative.REQUEST:
                    await self._won(agent, talk, Order(message, won, offer))

    async def _won(self, agent: Agent, talk: ParticipantConversation, order: Order[Any]) -> None:
        """Acts on an accepted bid, or completes the deal."""
        raise NotImplementedError


class _DutchAuction(_Auction):
    protocol = "fipa-auction-dutch"

    async def _won(self, agent: Agent, talk: ParticipantConversation, order: Order[Any]) -> None:
        # The goods are sold. If the auction ends now, the work continues.
        if self._perform is not None:
            await talk.work(self._perform(agent, order), "closed")


class _EnglishAuction(_Auction):
    protocol = "fipa-auction-english"

    async def _won(self, agent: Agent, talk: ParticipantConversation, order: Order[Any]) -> None:
        if order.message.performative == Performative.REQUEST:
            result = None
            if self._perform is not None:
                result = await talk.work(self._perform(agent, order))
            await talk.say(Performative.INFORM, result)


class _Brokering(Participates):
    protocol = "fipa-brokering"

    async def _take_part(self, agent: Agent, talk: ParticipantConversation, call: Message) -> None:
        proxy = Proxy.read(call)
        targets = await talk.work(self._method(agent, proxy))
        await talk.say(Performative.AGREE)
        await talk.work(self._serve_proxy(agent, talk, call, proxy, targets))
        talk.conclude()

    async def _serve_proxy(
        self, agent: Agent, talk: ParticipantConversation, call: Message, proxy: Proxy, targets: Any
    ) -> None:
        await pass_on(agent._living, talk, proxy, targets, self._timeout)


class _Recruiting(_Brokering):
    protocol = "fipa-recruiting"

    async def _serve_proxy(
        self, agent: Agent, talk: ParticipantConversation, call: Message, proxy: Proxy, targets: Any
    ) -> None:
        await recruit(agent._living, call, proxy, targets)


# ----- decorators


class Options(TypedDict, total=False):
    """How a method takes part in a protocol."""

    conversations: int
    """The number of conversations at one time, by default 256. Further ones wait in the mailbox."""
    timeout: float
    """Seconds to wait for the initiator, by default 60: for its next message, and for room for an answer."""
    supervise: Supervise | None
    """The effect of an exception, see :class:`~sealbus.Agent`."""


_Decorator = Callable[[Callable[..., Any]], Participates]


def _decorator(kind: type[Participates], body: Any, options: Options) -> _Decorator:
    # At least two: while one conversation waits for its initiator, another one continues.
    conversations = max(2, options.get("conversations", CONVERSATIONS))
    mark = Mark(_sealbus.opens(kind.protocol), conversations, options.get("supervise"))

    def decorate(method: Callable[..., Any]) -> Participates:
        participates = kind(method, body, options.get("timeout", PATIENCE))
        setattr(participates, MARKS, (mark,))
        return participates

    return decorate


def on_request(body: Any = None, **options: Unpack[Options]) -> _Decorator:
    """Marks a method that answers requests for an action (``fipa-request``): its value is the result::

        @on_request(Order)
        async def make(self, request: Message[Order]) -> Product: ...

    If it has a second step, the first one only decides, and ``agree`` is sent before the second::

        @make.perform
        async def work(self, request: Message[Order]) -> Product: ...
    """
    return _decorator(_Request, body, options)


def on_query(body: Any = None, **options: Unpack[Options]) -> _Decorator:
    """Marks a method that answers queries (``fipa-query``), ``query-if`` and ``query-ref``, as :func:`on_request` does requests."""
    return _decorator(_Query, body, options)


def on_request_when(body: Any = None, **options: Unpack[Options]) -> _Decorator:
    """Marks a method that acts when a condition holds (``fipa-request-when``). The method itself waits for the condition.
    ``agree`` is sent before it, or, if it has a second step marked with ``perform``, between both."""
    return _decorator(_RequestWhen, body, options)


def on_contract_net(body: Any = None, **options: Unpack[Options]) -> _Decorator:
    """Marks a method that makes a proposal for a call (``fipa-contract-net``); None refuses. ``perform`` marks the method that
    does the work if the proposal is accepted, and returns the result; ``rejected`` marks the method that is called after a
    rejection::

        @on_contract_net(Task)
        async def bid(self, call: Message[Task]) -> Offer: ...

        @bid.perform
        async def work(self, order: Order[Offer]) -> Result: ...
    """
    return _decorator(_ContractNet, body, options)


def on_iterated_contract_net(body: Any = None, **options: Unpack[Options]) -> _Decorator:
    """Marks a method that makes proposals for calls in several rounds (``fipa-iterated-contract-net``); otherwise as
    :func:`on_contract_net`."""
    return _decorator(_IteratedContractNet, body, options)


def on_english_auction(body: Any = None, **options: Unpack[Options]) -> _Decorator:
    """Marks a method that bids in an auction in which the price rises (``fipa-auction-english``). It gets a :class:`Bid` and
    returns true, or a body, to bid, and None, or false, to be silent in this round. While its bid leads, it is not asked.
    ``perform`` marks the method that completes the deal."""
    return _decorator(_EnglishAuction, body, options)


def on_dutch_auction(body: Any = None, **options: Unpack[Options]) -> _Decorator:
    """Marks a method that bids in an auction in which the price falls (``fipa-auction-dutch``). It gets a :class:`Bid` and returns true,
    or a body, to buy, and None, or false, to wait. ``perform`` marks the method that is called for each purchase."""
    return _decorator(_DutchAuction, body, options)


def on_propose(body: Any = None, **options: Unpack[Options]) -> _Decorator:
    """Marks a method that accepts a proposal (``fipa-propose``) if it returns true, and rejects it otherwise."""
    return _decorator(_Propose, body, options)


def on_subscribe(body: Any = None, **options: Unpack[Options]) -> _Decorator:
    """Marks a method that informs subscribers (``fipa-subscribe``): it is an asynchronous generator, and each value it yields goes to the
    subscriber. It is closed when the subscriber cancels::

        @on_subscribe(Place)
        async def temperature(self, subscription: Message[Place]) -> AsyncIterator[float]:
            while True:
                yield await self.measure(subscription.body)
    """
    return _decorator(_Subscribe, body, options)


def on_brokering(**options: Unpack[Options]) -> _Decorator:
    """Marks a method that finds agents for a message and passes their answers on (``fipa-brokering``). It gets a
    :class:`~sealbus.brokering.Proxy` and returns the agents: ``return proxy.wanted`` takes all that the DF knows."""
    return _decorator(_Brokering, None, options)


def on_recruiting(**options: Unpack[Options]) -> _Decorator:
    """Marks a method that finds agents for a message; these answer the initiator directly (``fipa-recruiting``). Otherwise as
    :func:`on_brokering`."""
    return _decorator(_Recruiting, None, options)

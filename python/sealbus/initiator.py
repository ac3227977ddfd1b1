"""Initiators: the conversations that an agent opens, as ``async with`` blocks.

Leaving a block, also by an exception or a cancellation, ends its conversation: undecided proposals are rejected, and agents
that still work get ``cancel``. Any number of conversations can run at once, with ``asyncio.gather`` and in several tasks; a
message of a conversation goes only to that conversation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from sealbus._sealbus import AID, AclMessage, Message
from sealbus.block import Block
from sealbus.brokering import Proxy
from sealbus.conversation import BACKLOG, value_of
from sealbus.directory import Others
from sealbus.errors import ContentError, ConversationError
from sealbus.negotiation import ContractNet, DutchAuction, EnglishAuction, IteratedContractNet
from sealbus.performative import Performative

if TYPE_CHECKING:
    from sealbus.life import Life

__all__ = ["Answers", "Initiates", "Offer", "Request", "Subscribed"]

_B = TypeVar("_B")


class Request(Block, Generic[_B]):
    """A request for an action, or a query, to one or several agents; see :meth:`sealbus.Agent.request_action`."""

    _is_whole = True

    def __init__(
        self,
        life: Life,
        protocol: str,
        act: Performative,
        body: object,
        to: Others,
        reply: Any,
        timeout: float | None,
    ) -> None:
        super().__init__(life, act, body, to, reply, timeout)
        self.protocol = protocol
        self.agreed: list[AID] = []
        """The agents that have agreed."""
        self.results: list[Message[_B]] = []
        """The results, in the order in which they came."""

    def _heard(self, meaning: str, message: Message, sender: AID) -> None:
        if meaning == "step" and message.performative == Performative.AGREE:
            self.agreed.append(sender)
        elif meaning == "step" and message.performative == Performative.INFORM:
            self._declare(message)
            self.results.append(message)

    async def result(self) -> Message[_B]:
        """The first result. Without one, raises :class:`~sealbus.ConversationError` if the agent refused, failed or did not
        understand, or :class:`~sealbus.ConversationTimeout`."""

        def look() -> Message[_B] | ConversationError | None:
            if self.results:
                return self.results[0]
            return self._problem(self._opened.branches[0].agent) if self._opened.has_ended else None

        return value_of(await self._until(look))

    async def all(self) -> list[Message[_B]]:
        """The results of all agents. Agents without a result are in :attr:`refused`, :attr:`failed`, :attr:`silent` and
        :attr:`undelivered`."""
        await self._until(lambda: self._opened.has_ended or None)
        return self.results

    def __await__(self) -> Generator[Any, None, Message[_B]]:
        return self._ask().__await__()

    async def _ask(self) -> Message[_B]:
        async with self:
            return await self.result()


class Offer(Block):
    """A proposal to one or several agents; see :meth:`sealbus.Agent.propose`."""

    protocol = "fipa-propose"

    def __init__(self, life: Life, body: object, to: Others, timeout: float | None) -> None:
        super().__init__(life, Performative.PROPOSE, body, to, None, timeout)
        self.accepted: list[AID] = []
        """The agents that accept."""
        self.rejected: list[AID] = []
        """The agents that reject."""

    async def _start(self) -> None:
        await super()._start()
        await self._until(lambda: self._opened.has_ended or None)

    def _heard(self, meaning: str, message: Message, sender: AID) -> None:
        if message.performative == Performative.ACCEPT_PROPOSAL:
            self.accepted.append(sender)
        elif message.performative == Performative.REJECT_PROPOSAL:
            self.rejected.append(sender)

    def __await__(self) -> Generator[Any, None, bool]:
        return self._ask().__await__()

    async def _ask(self) -> bool:
        async with self:
            for branch in self._opened.branches:
                if branch.outcome not in ("accepted", "rejected"):
                    raise self._problem(branch.agent)
            return not self.rejected


class Stream(Block, Generic[_B]):
    """Messages that arrive one after the other, for ``async for``."""

    def __init__(
        self, life: Life, act: Performative, body: object, to: Others, reply: Any, timeout: float | None
    ) -> None:
        super().__init__(life, act, body, to, reply, timeout)
        self._news: deque[Message[_B]] = deque()

    def _has_room(self) -> bool:
        return len(self._news) < BACKLOG

    def __aiter__(self) -> Self:
        return self

    async def _following(self) -> Message[_B]:
        """The next message."""
        message: Message[_B] = value_of(await self._until(self._look))
        self.wake()
        return message

    def _look(self) -> Message[_B] | Exception | None:
        if self._news:
            return self._news.popleft()
        return self._end() if self._opened.has_ended else None

    def _end(self) -> Exception:
        """The exception that ends the loop."""
        return StopAsyncIteration()


class Subscribed(Stream[_B]):
    """A subscription with one or several agents; see :meth:`sealbus.Agent.subscribe_to`."""

    protocol = "fipa-subscribe"

    async def _start(self) -> None:
        await super()._start()
        await self._until(lambda: not self._opened.count_at("asked") or None)
        if self._opened.has_ended and not self._news:
            raise self._end()

    def _heard(self, meaning: str, message: Message, sender: AID) -> None:
        if meaning == "step" and message.performative == Performative.INFORM and not self._ended(sender):
            self._declare(message)
            self._news.append(message)

    def _ended(self, sender: AID) -> bool:
        # The confirmation of a cancel is an `inform` as well.
        return self._outcome(sender) is not None

    def _end(self) -> Exception:
        for branch in self._opened.branches:
            if branch.outcome != "cancelled":
                return self._problem(branch.agent)
        return StopAsyncIteration()

    async def __anext__(self) -> Message[_B]:
        return await self._following()

    async def cancel(self, *, timeout: float = 5.0) -> None:
        """Ends the subscription, and waits until the others have confirmed this. Earlier messages can still be read."""
        await self._say(Performative.CANCEL, timeout=timeout)
        await self._until(lambda: self._opened.has_ended or None)


class Answers(Stream[_B]):
    """The answers of agents that a broker finds; see :meth:`sealbus.Agent.broker` and :meth:`sealbus.Agent.recruit`."""

    _is_whole = True

    def __init__(
        self, life: Life, protocol: str, proxy: Proxy, to: Others, reply: Any, most: int | None, timeout: float
    ) -> None:
        super().__init__(life, Performative.PROXY, proxy, to, reply, timeout)
        self.protocol = protocol
        self._most = most
        self._count = 0

    def _heard(self, meaning: str, message: Message, sender: AID) -> None:
        if message.performative != Performative.INFORM:
            if meaning == "recruit" and message.performative == Performative.REFUSE:
                self._keep(self.refused, message)
            elif meaning == "recruit" and message.performative in (Performative.FAILURE, Performative.NOT_UNDERSTOOD):
                self._keep(self.failed, message)
            return
        self._declare(message)
        self._news.append(message)
        self._count += 1
        if self._count == self._most:
            self._opened.conclude()

    def _not_understood(self, message: Message, sender: AID, problem: ContentError) -> None:
        if self._opened.branch(sender) is None:
            self._keep(self.failed, message)
        else:
            super()._not_understood(message, sender, problem)

    def _keep(self, answers: list[Message], message: Message) -> None:
        """Keeps a recruit's answer, up to a limit, since anyone who knows the conversation-id can send answers."""
        if len(answers) < BACKLOG:
            answers.append(message)

    async def __anext__(self) -> Message[_B]:
        return await self._following()

    def _end(self) -> Exception:
        for branch in self._opened.branches:
            late = branch.outcome == "timed-out" and branch.stage == "asked"
            if late or branch.outcome in ("refused", "failed", "not-understood", "undeliverable"):
                return self._problem(branch.agent)
        return StopAsyncIteration()


class Initiates:
    """The initiator's half of FIPA's interaction protocols: methods of :class:`sealbus.Agent`.

    `to` names the agents: one, several, or, by a :class:`~sealbus.ServiceDescription`, all that the DF knows. `body` is the
    content (:mod:`sealbus.body`), or an :class:`~sealbus.AclMessage` with the content. With `reply` the answers' bodies are of
    this type; an answer of another type counts as :attr:`failed`.
    """

    @property
    def _living(self) -> Life:
        raise NotImplementedError

    @property
    def late_messages(self) -> int:
        """The number of dropped messages: those that arrived after the end of their conversation, or that it left unread."""
        return self._living.handle.late_messages

    @overload
    def contract_net(
        self, call: object, *, to: Others, reply: type[_B], timeout: float
    ) -> ContractNet[_B]: ...
    @overload
    def contract_net(self, call: object, *, to: Others, reply: Any = None, timeout: float) -> ContractNet[Any]: ...
    def contract_net(self, call: object, *, to: Others, reply: Any = None, timeout: float) -> ContractNet[Any]:
        """Calls for proposals (``fipa-contract-net``), and waits until all have answered, at most `timeout` seconds::

            async with self.contract_net(Task(12), to=sellers, reply=Bid, timeout=5) as auction:
                best = min(auction.proposals, key=lambda proposal: proposal.body.cost)
                done = await best.accept(timeout=60)

        The agents without a proposal are in ``refused``, ``failed``, ``silent`` and ``undelivered``. Leaving the block
        rejects the proposals that were not accepted.
        """
        return ContractNet(self._living, call, to, reply, timeout)

    @overload
    def iterated_contract_net(
        self, call: object, *, to: Others, reply: type[_B], timeout: float
    ) -> IteratedContractNet[_B]: ...
    @overload
    def iterated_contract_net(self, call: object, *, to: Others, reply: Any = None, timeout: float) -> IteratedContractNet[Any]: ...
    def iterated_contract_net(self, call: object, *, to: Others, reply: Any = None, timeout: float) -> IteratedContractNet[Any]:
        """Like :meth:`contract_net`, with further rounds (``fipa-iterated-contract-net``)::

            async with self.iterated_contract_net(Order(100), to=suppliers, reply=Offer, timeout=5) as net:
                await net.call_again(Order(80), sorted(net.proposals, key=price)[:3])
        """
        return IteratedContractNet(self._living, call, to, reply, timeout)

    @overload
    def english_auction(
        self, goods: object, *, to: Others, reply: type[_B], timeout: float
    ) -> EnglishAuction[_B]: ...
    @overload
    def english_auction(self, goods: object, *, to: Others, reply: Any = None, timeout: float) -> EnglishAuction[Any]: ...
    def english_auction(self, goods: object, *, to: Others, reply: Any = None, timeout: float) -> EnglishAuction[Any]:
        """Holds an auction in which the price rises (``fipa-auction-english``), with rounds of `timeout` seconds::

            async with self.english_auction("a vase", to=bidders, timeout=1) as auction:
                price = 10
                while await auction.call(price):
                    price += 5
                deal = await auction.sell(timeout=60)
        """
        return EnglishAuction(self._living, goods, to, reply, timeout)

    @overload
    def dutch_auction(
        self, goods: object, *, to: Others, reply: type[_B], timeout: float
    ) -> DutchAuction[_B]: ...
    @overload
    def dutch_auction(self, goods: object, *, to: Others, reply: Any = None, timeout: float) -> DutchAuction[Any]: ...
    def dutch_auction(self, goods: object, *, to: Others, reply: Any = None, timeout: float) -> DutchAuction[Any]:
        """Holds an auction in which the price falls (``fipa-auction-dutch``), with rounds of at most `timeout` seconds::

            async with self.dutch_auction("tulips", to=bidders, timeout=1) as auction:
                for price in range(100, 20, -5):
                    if sale := await auction.call(price):
                        break
        """
        return DutchAuction(self._living, goods, to, reply, timeout)

    @overload
    def request_action(
        self, action: object, *, to: Others, reply: type[_B], timeout: float | None = None
    ) -> Request[_B]: ...
    @overload
    def request_action(self, action: object, *, to: Others, reply: Any = None, timeout: float | None = None) -> Request[Any]: ...
    def request_action(self, action: object, *, to: Others, reply: Any = None, timeout: float | None = None) -> Request[Any]:
        """Requests an action (``fipa-request``). Awaited, it returns the result, or raises :class:`~sealbus.ConversationError`.
        As a block it can also ask several agents, and leaving the block cancels::

            done = await self.request_action(Order("tea"), to="waiter", reply=Bill, timeout=30)
            async with self.request_action(Order("tea"), to=waiters, timeout=30) as orders:
                bills = await orders.all()
        """
        return Request(self._living, "fipa-request", Performative.REQUEST, action, to, reply, timeout)

    @overload
    def request_when(
        self, action: object, *, to: Others, reply: type[_B], timeout: float | None = None
    ) -> Request[_B]: ...
    @overload
    def request_when(self, action: object, *, to: Others, reply: Any = None, timeout: float | None = None) -> Request[Any]: ...
    def request_when(self, action: object, *, to: Others, reply: Any = None, timeout: float | None = None) -> Request[Any]:
        """Requests an action as soon as a condition holds (``fipa-request-when``); otherwise like
        :meth:`request_action`."""
        return Request(self._living, "fipa-request-when", Performative.REQUEST_WHEN, action, to, reply, timeout)

    @overload
    def query_if(
        self, question: object, *, to: Others, reply: type[_B], timeout: float | None = None
    ) -> Request[_B]: ...
    @overload
    def query_if(self, question: object, *, to: Others, reply: Any = None, timeout: float | None = None) -> Request[Any]: ...
    def query_if(self, question: object, *, to: Others, reply: Any = None, timeout: float | None = None) -> Request[Any]:
        """Asks whether something is true (``fipa-query``); otherwise like :meth:`request_action`."""
        return Request(self._living, "fipa-query", Performative.QUERY_IF, question, to, reply, timeout)

    @overload
    def query_ref(
        self, question: object, *, to: Others, reply: type[_B], timeout: float | None = None
    ) -> Request[_B]: ...
    @overload
    def query_ref(self, question: object, *, to: Others, reply: Any = None, timeout: float | None = None) -> Request[Any]: ...
    def query_ref(self, question: object, *, to: Others, reply: Any = None, timeout: float | None = None) -> Request[Any]:
        """Asks for a value (``fipa-query``); otherwise like :meth:`request_action`."""
        return Request(self._living, "fipa-query", Performative.QUERY_REF, question, to, reply, timeout)

    @overload
    def subscribe_to(
        self, what: object, *, to: Others, reply: type[_B], timeout: float | None = None
    ) -> Subscribed[_B]: ...
    @overload
    def subscribe_to(self, what: object, *, to: Others, reply: Any = None, timeout: float | None = None) -> Subscribed[Any]: ...
    def subscribe_to(self, what: object, *, to: Others, reply: Any = None, timeout: float | None = None) -> Subscribed[Any]:
        """Subscribes to an agent's news (``fipa-subscribe``). The block begins when the agent has agreed, within `timeout`
        seconds, and leaving the block cancels::

            async with self.subscribe_to("temperature", to="sensor", reply=float, timeout=5) as news:
                async for message in news:
                    print(message.body)
        """
        return Subscribed(self._living, Performative.SUBSCRIBE, what, to, reply, timeout)

    def propose(self, body: object, *, to: Others, timeout: float | None = None) -> Offer:
        """Proposes an action (``fipa-propose``). Awaited, it returns whether all accept; as a block it has ``accepted`` and
        ``rejected``."""
        return Offer(self._living, body, to, timeout)

    def broker(
        self,
        message: AclMessage,
        *,
        service: str,
        to: AID | str,
        reply: Any = None,
        most: int | None = None,
        timeout: float,
    ) -> Answers[Any]:
        """Lets a broker forward a message to the agents with this service, and return their answers (``fipa-brokering``), up to
        `most` answers within `timeout` seconds::

            async with self.broker(question, service="weather", to="broker", timeout=5) as answers:
                async for answer in answers: ...
        """
        proxy = Proxy.of(service, message)
        return Answers(self._living, "fipa-brokering", proxy, to, reply, most, timeout)

    def recruit(
        self,
        message: AclMessage,
        *,
        service: str,
        to: AID | str,
        reply: Any = None,
        most: int | None = None,
        timeout: float,
    ) -> Answers[Any]:
        """Like :meth:`broker`, but the agents answer directly (``fipa-recruiting``). ``refused`` and ``failed`` hold at most
        256 of their refusals and 256 of their failures."""
        proxy = Proxy.of(service, message)
        return Answers(self._living, "fipa-recruiting", proxy, to, reply, most, timeout)

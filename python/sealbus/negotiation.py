"""The initiator's side of contract nets and auctions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sealbus._sealbus import AID, Message
from sealbus.block import Block
from sealbus.conversation import value_of
from sealbus.directory import Others
from sealbus.errors import ConversationError, ProtocolError
from sealbus.performative import Performative

if TYPE_CHECKING:
    from sealbus._sealbus import Branch
    from sealbus.life import Life

__all__ = ["ContractNet", "DutchAuction", "EnglishAuction", "IteratedContractNet", "Proposal"]

_B = TypeVar("_B")


class Proposal(Generic[_B]):
    """A proposal of an agent."""

    def __init__(self, net: Negotiation[_B], message: Message[_B], agent: AID) -> None:
        self._net = net
        self.message = message
        """The message."""
        self.agent = agent
        """The agent."""

    @property
    def body(self) -> _B:
        """The body of the message, of the type that was asked for."""
        return self.message.body

    async def accept(self, body: object = None, *, result: Any = None, timeout: float | None = None) -> Message[Any]:
        """Accepts the proposal and waits for the work to be done. Returns the ``inform``, with a body of the type `result`.

        Raises :class:`~sealbus.ConversationError` if the agent failed. If no result arrives within `timeout` seconds, raises
        :class:`~sealbus.ConversationTimeout` and tells the agent to stop.
        """
        return await self._net._accept(self, body, result, timeout)

    async def reject(self, body: object = None) -> None:
        """Rejects the proposal. Undecided proposals are rejected at the end of the block."""
        await self._net._reject([self], body)

    def __repr__(self) -> str:
        return f"<Proposal of {self.agent}>"


class Negotiation(Block, Generic[_B]):
    """The common part of contract nets and auctions."""

    def __init__(
        self, life: Life, act: Performative, body: object, to: Others, reply: Any, timeout: float
    ) -> None:
        super().__init__(life, act, body, to, reply, timeout)
        self._call_timeout = timeout
        self.proposals: list[Proposal[_B]] = []
        """The proposals of this round, in the order in which they came."""
        self._results: dict[AID, Message] = {}
        self._expected: dict[AID, Any] = {}

    def _heard(self, meaning: str, message: Message, sender: AID) -> None:
        if meaning != "step":
            return
        if message.performative == Performative.PROPOSE:
            self._declare(message)
            self._proposed(Proposal(self, message, sender))
        elif message.performative == Performative.INFORM:
            expected = self._expected.get(sender)
            if expected is not None:
                self._declare(message, expected)
            self._results[sender] = message

    def _proposed(self, proposal: Proposal[_B]) -> None:
        """Takes a proposal."""
        self.proposals.append(proposal)

    def _is_called(self) -> bool:
        """Whether an agent has not answered the call yet."""
        return self._opened.count_at("called") > 0

    async def _reject(self, proposals: Iterable[Proposal[_B]], body: object = None) -> None:
        await self._life.settle()
        agents = [it.agent for it in proposals if self._stage(it.agent) == "proposed"]
        if agents:
            # The loser may have no room, and nobody else shall wait for it.
            self._tell(Performative.REJECT_PROPOSAL, body, agents)

    def _stage(self, agent: AID) -> str | None:
        """The stage of the conversation with this agent, as long as it goes on."""
        branch = self._opened.branch(agent)
        return None if branch is None or branch.outcome is not None else branch.stage

    async def _accept(self, proposal: Proposal[_B], body: object, result: Any, timeout: float | None) -> Message[Any]:
        return await self._order(Performative.ACCEPT_PROPOSAL, proposal.agent, body, result, timeout)

    async def _order(
        self, act: Performative, agent: AID, body: object, result: Any, timeout: float | None
    ) -> Message[Any]:
        """Has an agent do the work, and waits for the result."""
        if self._outcome(agent) in ("not-understood", "undeliverable"):
            # The agent has left since its proposal.
            raise self._problem(agent)
        self._expected[agent] = result
        await self._say(act, body, [agent], timeout)

        def look() -> Message[Any] | ConversationError | None:
            if self._outcome(agent) is None:
                return None
            return self._results.get(agent) or self._problem(agent)

        return value_of(await self._until(look))


class ContractNet(Negotiation[_B]):
    """A call for proposals; see :meth:`sealbus.Agent.contract_net`. The block begins when all have answered, or the time is
    up."""

    protocol = "fipa-contract-net"

    def __init__(self, life: Life, body: object, to: Others, reply: Any, timeout: float) -> None:
        super().__init__(life, Performative.CFP, body, to, reply, timeout)

    async def _start(self) -> None:
        await super()._start()
        await self._all_in()

    async def _all_in(self) -> None:
        await self._until(lambda: None if self._is_called() else True)


class IteratedContractNet(ContractNet[_B]):
    """A call for proposals in several rounds; see :meth:`sealbus.Agent.iterated_contract_net`."""

    protocol = "fipa-iterated-contract-net"

    async def call_again(
        self,
        body: object = None,
        proposals: Iterable[Proposal[_B]] | None = None,
        *,
        timeout: float | None = None,
    ) -> list[Proposal[_B]]:
        """Calls the agents with these proposals again, by default all, and rejects the others. Agents that have left are not
        called. Returns the new :attr:`proposals`."""
        again = list(self.proposals if proposals is None else proposals)
        chosen = {it.agent for it in again if self._outcome(it.agent) is None}
        await self._reject(it for it in self.proposals if it.agent not in chosen)
        self.proposals = []
        await self._say(Performative.CFP, body, chosen, self._call_timeout if timeout is None else timeout)
        await self._all_in()
        return self.proposals


class _Auction(Negotiation[_B]):
    """The common part of both auctions: an announcement, rounds, and the end for all."""

    def __init__(self, life: Life, body: object, to: Others, reply: Any, timeout: float) -> None:
        super().__init__(life, Performative.INFORM, body, to, reply, timeout)
        self._is_round = False

    async def _start(self) -> None:
        # The announcement expects no answer.
        await self._begin(self._opening, None)

    async def _call(self, body: object, timeout: float | None) -> None:
        """Calls all agents that take part."""
        self.proposals = []
        self._is_round = True
        agents = [branch.agent for branch in self._opened.branches if branch.outcome is None and not self._rests(branch)]
        if agents or not any(map(self._rests, self._opened.branches)):
            await self._say(Performative.CFP, body, agents, self._call_timeout if timeout is None else timeout)

    def _rests(self, branch: Branch) -> bool:
        """Whether the next call leaves out an agent."""
        return False

    def _best(self) -> Proposal[_B] | None:
        """The first bid of the round whose bidder has not left since."""
        return next((it for it in self.proposals if self._stage(it.agent) == "proposed"), None)

    def _proposed(self, proposal: Proposal[_B]) -> None:
        if self._is_round:
            super()._proposed(proposal)
        else:
            # The bid came after its round.
            self._tell(self._too_late(proposal), None, [proposal.agent])

    def _too_late(self, proposal: Proposal[_B]) -> Performative:
        """The answer to a bid that arrived after its round."""
        return Performative.REJECT_PROPOSAL

    async def _take(self, best: Proposal[_B] | None) -> None:
        """Ends the round, and takes this bid."""
        self._is_round = False
        await self._reject(it for it in self.proposals if it is not best)
        if best is not None:
            self._tell(Performative.ACCEPT_PROPOSAL, None, [best.agent])

    def _farewell(self) -> None:
        # Tell each agent separately: a stage that does not allow this must not prevent the others.
        for branch in self._opened.branches:
            if branch.outcome is None and branch.stage in ("announced", "called", "leading", "defending", "ordered"):
                self._tell(Performative.INFORM, None, [branch.agent])


class DutchAuction(_Auction[_B]):
    """An auction in which the price falls; see :meth:`sealbus.Agent.dutch_auction`."""

    protocol = "fipa-auction-dutch"

    async def call(self, price: object, *, timeout: float | None = None) -> Proposal[_B] | None:
        """Offers the goods at this price. The first bid buys them; None if nobody bids in time."""
        await self._call(price, timeout)
        await self._until(lambda: True if self._best() or not self._is_called() else None)
        best = self._best()
        await self._take(best)
        return best


class EnglishAuction(_Auction[_B]):
    """An auction in which the price rises; see :meth:`sealbus.Agent.english_auction`."""

    protocol = "fipa-auction-english"

    def __init__(self, life: Life, body: object, to: Others, reply: Any, timeout: float) -> None:
        super().__init__(life, body, to, reply, timeout)
        self.leader: Proposal[_B] | None = None
        """The leading bid."""

    def _rests(self, branch: Branch) -> bool:
        # The leader has heard the call after its bid. After one more call, it would have to bid against itself.
        leads = self.leader is not None and self.leader.agent == branch.agent
        return leads and branch.outcome is None and branch.stage == "defending"

    def _too_late(self, proposal: Proposal[_B]) -> Performative:
        # The leader bid against itself, and still leads.
        leads = self.leader is not None and self.leader.agent == proposal.agent
        return Performative.ACCEPT_PROPOSAL if leads else Performative.REJECT_PROPOSAL

    async def call(self, price: object, *, timeout: float | None = None) -> Proposal[_B] | None:
        """Asks for bids at this price. The first bid leads from now on; None if nobody bids in time."""
        await self._call(price, timeout)
        # The leader need not bid against itself, so nothing waits for it.
        await self._until(lambda: None if self._is_called() else True)
        best = self._best()
        await self._take(best)
        if best is not None:
            self.leader = best
        return best

    async def sell(
        self, body: object = None, *, result: Any = None, timeout: float | None = None
    ) -> Message[Any]:
        """Ends the auction and has the leader complete the deal. Returns the ``inform`` of the leader."""
        leader = self.leader
        if leader is None:
            raise ProtocolError("nobody has bid, so nothing can be sold")
        self._farewell()
        self.end_by(timeout)
        return await self._order(Performative.REQUEST, leader.agent, body, result, timeout)

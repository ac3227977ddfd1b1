"""Agents that talk fast and know who is talking.

An agent is a class with hooks; a program names its agents and runs them::

    from sealbus import AclMessage, Agent, Message, Performative, run

    class Greeter(Agent):
        async def on_message(self, message: Message) -> None:
            await self.reply(message, Performative.INFORM, "hello")

    class Guest(Agent):
        async def setup(self) -> None:
            answer = await self.request(AclMessage("request", "greeter"), timeout=5)
            print(answer.content)
            self.stop_all()

    run(Greeter("greeter"), Guest("guest"))

The program starts a platform inside itself: a Master, a Certification Authority, AMS and DF. Each agent makes its own key and
is certified before it sends anything. The same program, unchanged, runs on a platform of many machines under ``sealbus up``, or
joins one with the ticket in ``SEALBUS_TICKET``. ``SEALBUS_LOG`` sets the amount of logging, which goes to :mod:`logging` if the
program has set it up and to stderr otherwise.
"""

import os

from sealbus import acl, sl, sync
from sealbus._sealbus import (
    AID,
    AclMessage,
    AmsAgentDescription,
    ChannelEvent,
    DfAgentDescription,
    Filter,
    Message,
    ServiceDescription,
    forked,
    new_conversation_id,
)
from sealbus.agent import Agent
from sealbus.behaviour import (
    Behaviour,
    State,
    Step,
    at,
    cyclic,
    every,
    machine,
    once,
    parallel,
    sequence,
)
from sealbus.channel import (
    Channel,
    ChannelSubscription,
    LogPlace,
    Reach,
    Retention,
    on_event,
    on_question,
)
from sealbus.clock import Clock
from sealbus.delegation import on_behalf_of
from sealbus.directory import Ams, Df, Subscription
from sealbus.errors import (
    AclError,
    AgentError,
    AgentFailed,
    AgentStopped,
    AnswerNotTaken,
    BodyError,
    ChannelError,
    ContentError,
    ConversationError,
    ConversationTimeout,
    DecodeError,
    DirectoryError,
    EncodeError,
    Failure,
    FilterError,
    NegativeAnswer,
    NotUnderstood,
    PlatformError,
    ProtocolError,
    ReceiveTimeout,
    Refuse,
    RequestError,
    RequestTimeout,
    SealbusError,
    SendError,
    SubscriptionEnded,
    Undeliverable,
    WorkloadTokenError,
)
from sealbus.brokering import Proxy
from sealbus.initiator import (
    Answers,
    Offer,
    Request,
    Subscribed,
)
from sealbus.negotiation import (
    ContractNet,
    DutchAuction,
    EnglishAuction,
    IteratedContractNet,
    Proposal,
)
from sealbus.participant import (
    Bid,
    Order,
    on_brokering,
    on_contract_net,
    on_dutch_auction,
    on_english_auction,
    on_iterated_contract_net,
    on_propose,
    on_query,
    on_recruiting,
    on_request,
    on_request_when,
    on_subscribe,
)
from sealbus.loop import EventLoop
from sealbus.mark import on
from sealbus.performative import OwnPerformative, Performative
from sealbus.platform import Platform, run
from sealbus.replies import Replies
from sealbus.tools import Answer, Progress, tool
from sealbus.workload import WorkloadToken

__all__ = [
    "AID",
    "AclError",
    "AclMessage",
    "Agent",
    "AgentError",
    "AgentFailed",
    "AgentStopped",
    "AnswerNotTaken",
    "Ams",
    "AmsAgentDescription",
    "Answer",
    "Answers",
    "Behaviour",
    "Bid",
    "BodyError",
    "Channel",
    "ChannelError",
    "ChannelEvent",
    "ChannelSubscription",
    "Clock",
    "ContentError",
    "ContractNet",
    "ConversationError",
    "ConversationTimeout",
    "DecodeError",
    "Df",
    "DfAgentDescription",
    "DirectoryError",
    "DutchAuction",
    "EncodeError",
    "EnglishAuction",
    "EventLoop",
    "Failure",
    "Filter",
    "FilterError",
    "IteratedContractNet",
    "LogPlace",
    "Message",
    "NegativeAnswer",
    "NotUnderstood",
    "Offer",
    "Order",
    "OwnPerformative",
    "Performative",
    "Platform",
    "PlatformError",
    "Progress",
    "Proposal",
    "ProtocolError",
    "Proxy",
    "Reach",
    "ReceiveTimeout",
    "Refuse",
    "Replies",
    "Request",
    "RequestError",
    "RequestTimeout",
    "Retention",
    "SealbusError",
    "SendError",
    "ServiceDescription",
    "State",
    "Step",
    "Subscribed",
    "Subscription",
    "SubscriptionEnded",
    "Undeliverable",
    "WorkloadToken",
    "WorkloadTokenError",
    "acl",
    "at",
    "cyclic",
    "every",
    "machine",
    "new_conversation_id",
    "on",
    "on_behalf_of",
    "on_brokering",
    "on_contract_net",
    "on_dutch_auction",
    "on_english_auction",
    "on_event",
    "on_iterated_contract_net",
    "on_propose",
    "on_query",
    "on_question",
    "on_recruiting",
    "on_request",
    "on_request_when",
    "on_subscribe",
    "once",
    "parallel",
    "run",
    "sequence",
    "sl",
    "sync",
    "tool",
]

if hasattr(os, "register_at_fork"):
    # A forked child has no runtime thread, so it must not touch the objects that its parent made.
    os.register_at_fork(after_in_child=forked)

"""The communicative acts of FIPA00037."""

from __future__ import annotations

from enum import StrEnum


class OwnPerformative(str):
    """A performative outside FIPA's: from :meth:`Performative.own`, or of a received message."""

    __slots__ = ()


class Performative(StrEnum):
    """The act of a message: one of the 22 communicative acts of FIPA00037.

    A member is also the string in the message, so ``message.performative == "cfp"`` and
    ``message.performative is Performative.CFP`` are equivalent. A message with a performative of its own, which FIPA allows,
    has it as a plain lower-case :class:`str`.
    """

    ACCEPT_PROPOSAL = "accept-proposal"
    """I accept what you proposed."""
    AGREE = "agree"
    """I will do what you asked."""
    CANCEL = "cancel"
    """I no longer want what I asked for."""
    CFP = "cfp"
    """Who proposes to do this?"""
    CONFIRM = "confirm"
    """It is true; you doubted it."""
    DISCONFIRM = "disconfirm"
    """It is false; you believed it."""
    FAILURE = "failure"
    """I tried, and it did not work."""
    INFORM = "inform"
    """This is true."""
    INFORM_IF = "inform-if"
    """Tell whether this is true (named inside a request)."""
    INFORM_REF = "inform-ref"
    """Tell which object this describes (named inside a request)."""
    NOT_UNDERSTOOD = "not-understood"
    """I did not understand what you did."""
    PROPAGATE = "propagate"
    """Take this message and pass it on to the agents described."""
    PROPOSE = "propose"
    """I propose to do this, under these conditions."""
    PROXY = "proxy"
    """Pass this message on to the agents described."""
    QUERY_IF = "query-if"
    """Is this true?"""
    QUERY_REF = "query-ref"
    """Which object does this describe?"""
    REFUSE = "refuse"
    """I will not do what you asked, for this reason."""
    REJECT_PROPOSAL = "reject-proposal"
    """I do not want what you proposed."""
    REQUEST = "request"
    """Please do this."""
    REQUEST_WHEN = "request-when"
    """Please do this once, when this becomes true."""
    REQUEST_WHENEVER = "request-whenever"
    """Please do this each time this becomes true."""
    SUBSCRIBE = "subscribe"
    """Tell me, and tell me again when it changes."""

    @staticmethod
    def own(name: str) -> OwnPerformative:
        """A performative that is not one of FIPA's, such as ``Performative.own("whistle")``."""
        return OwnPerformative(name)

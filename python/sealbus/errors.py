"""Every exception of Sealbus. All derive from :class:`SealbusError`, and each names the agent, the problem and the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from sealbus.performative import Performative

if TYPE_CHECKING:
    from sealbus._sealbus import AclMessage


class SealbusError(Exception):
    """The base of all exceptions of Sealbus."""


# ----- the language


class AclError(SealbusError, ValueError):
    """Something is not a legal message, agent name or parameter."""


class DecodeError(AclError):
    """Bytes are not a message in this encoding."""

    offset: int
    """Where the problem is, in bytes from the start of the input."""

    def __init__(self, problem: str, offset: int) -> None:
        super().__init__(problem, offset)
        self.offset = offset

    def __str__(self) -> str:
        return str(self.args[0])


class EncodeError(AclError):
    """An encoding cannot carry a message."""

    field: str
    """The parameter it cannot carry, such as ``receiver[2].name``."""

    def __init__(self, problem: str, field: str) -> None:
        super().__init__(problem, field)
        self.field = field

    def __str__(self) -> str:
        return str(self.args[0])


class ContentError(AclError):
    """The content of a received message is missing, or is not of the expected kind.

    A handler that raises it answers ``not-understood``.
    """


class BodyError(ContentError):
    """The body of a message is not of the declared type. The answer to such a message is ``not-understood``."""

    place: str
    """Where the mistake is, such as ``$.bids[2].cost``; ``$`` is the whole body."""
    problem: str
    """The mistake, such as ``expected float, got str``."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(place, problem)
        self.place = place
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"


# ----- answers that a handler raises


class NegativeAnswer(SealbusError):
    """A handler raises one of these to say no: the initiator gets this answer, and the agent goes on."""

    performative: ClassVar[Performative]
    """The performative of the answer."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)

    @property
    def reason(self) -> str:
        """Why; it becomes the content of the answer."""
        return str(self.args[0])


class Refuse(NegativeAnswer):
    """The agent does not do the requested work."""

    performative = Performative.REFUSE


class NotUnderstood(NegativeAnswer):
    """The agent cannot make sense of the message."""

    performative = Performative.NOT_UNDERSTOOD


class Failure(NegativeAnswer):
    """The agent tried, and it did not work."""

    performative = Performative.FAILURE


# ----- agents


class PlatformError(SealbusError):
    """The platform did not start, or does not let this process or agent in."""


class AgentError(SealbusError):
    """Something happened to one agent."""

    agent: str
    """The agent's name."""

    def __init__(self, agent: str, cause: str) -> None:
        super().__init__(agent, cause)
        self.agent = agent

    def __str__(self) -> str:
        agent, cause = self.args
        return str(cause) if str(cause).startswith(agent) else f"{agent}: {cause}"


class AgentFailed(AgentError):
    """An exception in a hook has ended its agent; it is the ``__cause__``."""


class AgentStopped(AgentError):
    """The agent has left the platform, or is about to: it no longer sends or receives."""


class SendError(AgentError):
    """A message was not accepted."""


class AnswerNotTaken(SendError):
    """An answer found no room: the agent that asked does not read its answers."""


class ReceiveTimeout(AgentError, TimeoutError):
    """No message that was waited for came in time."""


class RequestError(AgentError):
    """A request got no reply."""


class RequestTimeout(RequestError, TimeoutError):
    """A request was accepted, and no reply came in time."""


class Undeliverable(RequestError):
    """A request was not delivered."""


# ----- conversations


class ProtocolError(SealbusError, ValueError):
    """An interaction protocol does not allow a message now, or there is no such protocol."""


class ConversationError(AgentError):
    """A conversation did not come to its result: the other side refused, failed, did not understand, or is not there."""

    outcome: str
    """How it ended, such as ``refused``, ``failed``, ``not-understood`` or ``undeliverable``."""
    message: AclMessage | None
    """The other side's message, if there was one."""

    def __init__(self, agent: str, cause: str, outcome: str, message: AclMessage | None = None) -> None:
        super().__init__(agent, cause)
        self.outcome = outcome
        self.message = message


class ConversationTimeout(ConversationError, TimeoutError):
    """An answer in a conversation did not come in time."""


# ----- channels


class ChannelError(SealbusError, ValueError):
    """Something is not a channel, a pattern or a QoS, or the platform cannot give it."""


class FilterError(ChannelError):
    """The filter of a subscription is wrong."""

    offset: int
    """Where, in bytes from the start of the expression."""
    line: int
    """The line, from 1."""
    column: int
    """The character of the line, from 1."""

    def __init__(self, problem: str, offset: int, line: int, column: int) -> None:
        super().__init__(problem, offset, line, column)
        self.offset = offset
        self.line = line
        self.column = column

    def __str__(self) -> str:
        return str(self.args[0])


class SubscriptionEnded(AgentError):
    """A subscription to a channel has ended, such as one that was too slow and was disconnected."""


# ----- directories


class DirectoryError(AgentError):
    """The DF or the AMS refused or failed."""

    exception: str | None
    """FIPA's reason, such as ``unauthorised``, in SL; None if the answer could not be read."""

    def __init__(self, agent: str, cause: str, exception: str | None = None) -> None:
        super().__init__(agent, cause)
        self.exception = exception


# ----- identity


class WorkloadTokenError(AgentError):
    """The CA gives an agent no workload token."""

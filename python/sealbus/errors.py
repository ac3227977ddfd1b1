"""All exceptions of Sealbus. They derive from :class:`SealbusError`, and name the agent, the problem and the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

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
    """The offset of the problem, in bytes from the start of the input."""

    def __init__(self, problem: str, offset: int) -> None:
        super().__init__(problem, offset)
        self.offset = offset

    def __str__(self) -> str:
        return str(self.args[0])


class EncodeError(AclError):
    """An encoding cannot carry a message."""

    field: str
    """The parameter that it cannot carry, such as ``receiver[2].name``."""

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
    """The place of the mistake, such as ``$.bids[2].cost``; ``$`` is the whole body."""
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
    """A handler raises one of these to answer negatively: the initiator gets this answer, and the agent keeps running."""

    performative: ClassVar[Performative]
    """The performative of the answer."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)

    @property
    def reason(self) -> str:
        """The reason; it becomes the content of the answer."""
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
    """The platform did not start, or does not admit this process or agent."""


class AgentError(SealbusError):
    """The base of exceptions about one agent."""

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
    """No expected message arrived in time."""


class RequestError(AgentError):
    """A request got no reply."""


class RequestTimeout(RequestError, TimeoutError):
    """A request was accepted, and no reply arrived in time."""


class Undeliverable(RequestError):
    """A request was not delivered."""


# ----- conversations


class ProtocolError(SealbusError, ValueError):
    """An interaction protocol does not allow a message now, or there is no such protocol."""


class ConversationError(AgentError):
    """A conversation had no result: the other side refused, failed, did not understand, or does not exist."""

    outcome: str
    """The outcome, such as ``refused``, ``failed``, ``not-understood`` or ``undeliverable``."""
    message: AclMessage | None
    """The other side's message, if there was one."""

    def __init__(self, agent: str, cause: str, outcome: str, message: AclMessage | None = None) -> None:
        super().__init__(agent, cause)
        self.outcome = outcome
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.outcome, self.message), vars(self)


class ConversationTimeout(ConversationError, TimeoutError):
    """An answer in a conversation did not arrive in time."""


# ----- channels


class ChannelError(SealbusError, ValueError):
    """A channel, a pattern or a QoS is invalid, or the platform cannot provide it."""


class FilterError(ChannelError):
    """The filter of a subscription is malformed."""

    offset: int
    """The offset of the mistake, in bytes from the start of the expression."""
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
    """A subscription to a channel has ended, for example because it was too slow and was disconnected."""


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
    """The CA refuses a workload token to an agent."""

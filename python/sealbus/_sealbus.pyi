"""Types of the native half. ``tests/python/test_stubs.py`` checks this file against the module."""

# Longer than 500 lines: the stub of one module is one file.

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, Generic, Literal, Self, TypeAlias, TypedDict, Unpack, overload

from typing_extensions import TypeVar

from sealbus.errors import DecodeError
from sealbus.performative import Performative
from sealbus.sl import Content

BodyT_co = TypeVar("BodyT_co", covariant=True, default=Any)
_B = TypeVar("_B")

Stage: TypeAlias = Literal[
    "asked", "agreed", "active", "announced", "called", "proposed", "ordered", "leading", "defending", "settling"
]
Outcome: TypeAlias = Literal[
    "done", "accepted", "refused", "failed", "rejected", "closed", "not-understood", "cancelled", "unconfirmed",
    "timed-out", "undeliverable"
]  # fmt: skip
Received: TypeAlias = Literal["step", "cancel", "not-cancelled", "recruit"]

Value: TypeAlias = str | int | float | bytes | datetime | timedelta | Sequence["Value"]

class AID:
    """An agent's identifier: its globally unique name, and its addresses."""

    def __new__(
        cls,
        name: str,
        *,
        addresses: Sequence[str] = ...,
        resolvers: Sequence[AID | str] = ...,
        user_defined: dict[str, Value] | None = None,
    ) -> Self: ...
    @property
    def name(self) -> str:
        """The globally unique name, such as ``seller-1@factory``."""
    @property
    def local_name(self) -> str:
        """The part before the last ``@``."""
    @property
    def platform(self) -> str | None:
        """The home platform: the part after the last ``@``."""
    @property
    def addresses(self) -> tuple[str, ...]:
        """Transport addresses, the preferred one first."""
    @property
    def resolvers(self) -> tuple[AID, ...]:
        """Agents that can resolve addresses for this name."""
    @property
    def user_defined(self) -> dict[str, Value]:
        """Further parameters; by convention their names begin with ``X-``."""
    def __eq__(self, other: object) -> bool:
        """Two agents are the same if their names are the same."""
    def __hash__(self) -> int: ...

class _Parameters(TypedDict, total=False):
    performative: Performative | str
    sender: AID | str | None
    receivers: AID | str | Sequence[AID | str] | None
    reply_to: AID | str | Sequence[AID | str] | None
    content: str | bytes | bytearray | None
    language: Value | None
    encoding: Value | None
    ontology: Value | None
    protocol: str | None
    conversation_id: Value | None
    reply_with: Value | None
    in_reply_to: Value | None
    reply_by: datetime | timedelta | str | None
    user_defined: dict[str, Value] | None
    body: object

class AclMessage:
    """A message (FIPA00061): its act, its sender, its receivers and its content.

    It never changes; :meth:`replace` makes another one.
    """

    def __new__(
        cls,
        performative: Performative | str,
        receivers: AID | str | Sequence[AID | str] | None = None,
        content: str | bytes | bytearray | None = None,
        *,
        sender: AID | str | None = None,
        reply_to: AID | str | Sequence[AID | str] | None = None,
        language: Value | None = None,
        encoding: Value | None = None,
        ontology: Value | None = None,
        protocol: str | None = None,
        conversation_id: Value | None = None,
        reply_with: Value | None = None,
        in_reply_to: Value | None = None,
        reply_by: datetime | timedelta | str | None = None,
        user_defined: dict[str, Value] | None = None,
        body: object = None,
    ) -> Self:
        """A message with these parameters. A `body` becomes the content, and sets its language: see :mod:`sealbus.body`."""
    @property
    def performative(self) -> Performative | str:
        """The act of the message; a plain ``str`` for an act that is not FIPA's."""
    @property
    def sender(self) -> AID | None:
        """The sender; the bus fills it in."""
    @property
    def receivers(self) -> tuple[AID, ...]:
        """The intended receivers."""
    @property
    def reply_to(self) -> tuple[AID, ...]:
        """The agents that get the answers instead of the sender."""
    @property
    def content(self) -> str | bytes | None:
        """The content: text or bytes."""
    @property
    def content_text(self) -> str | None:
        """The content if it is text."""
    @property
    def content_bytes(self) -> bytes | None:
        """The content's bytes, whether it is text (in UTF-8) or bytes."""
    @property
    def language(self) -> Value | None:
        """The language of the content, such as ``fipa-sl``."""
    @property
    def encoding(self) -> Value | None:
        """The encoding of the content."""
    @property
    def ontology(self) -> Value | None:
        """The ontology, which defines the meaning of the symbols in the content."""
    @property
    def protocol(self) -> str | None:
        """The interaction protocol, such as ``fipa-contract-net``."""
    @property
    def conversation_id(self) -> Value | None:
        """The conversation the message belongs to."""
    @property
    def reply_with(self) -> Value | None:
        """The tag that an answer must repeat as ``in_reply_to``."""
    @property
    def in_reply_to(self) -> Value | None:
        """The ``reply_with`` of the message that this one answers."""
    @property
    def reply_by(self) -> datetime | timedelta | str | None:
        """The latest moment for an answer: a point in time, or a time after reception."""
    @property
    def user_defined(self) -> dict[str, Value]:
        """User-defined parameters, named ``X-…``."""
    def with_content(self, content: str | bytes | bytearray | None) -> AclMessage:
        """The same message with other content."""
    def replace(self, **changes: Unpack[_Parameters]) -> AclMessage:
        """The same message with some parameters changed. None removes one; a body that is None removes the content with its
        language and ontology."""
    def create_reply(
        self, performative: Performative | str, content: object = None
    ) -> AclMessage:
        """An answer to this message: to its ``reply_to`` or else its sender, in the same conversation, protocol, language and
        ontology, with ``in_reply_to`` set to its ``reply_with``. Content that is neither text nor bytes is a body, whose
        language replaces the message's; text and bytes have no language if the message's language is that of a body, such as
        JSON."""
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, memo: dict[int, Any]) -> Self: ...
    def __eq__(self, other: object) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

class Delegation:
    """The agents on whose behalf something is done."""

class Message(AclMessage, Generic[BodyT_co]):
    """A message that an agent received: an :class:`AclMessage` to read, with the provenance of its sender.

    ``Message[Task]`` is one whose :attr:`body` is a ``Task``.
    """

    @property
    def provenance(self) -> Literal[
        "same-process", "proved", "signed", "vouched", "carried", "foreign", "claimed", "platform"
    ]:
        """How the bus knows the sender: an agent of this process; proved by its certificate on the connection that carried the
        message; signed by its author (`signed`); vouched for by a broker (`vouched`) or by a node (`carried`); an agent of
        another platform, whose name is only claimed (`foreign`); merely claimed (levels `none` and `tls`); or the platform
        itself."""
    @property
    def on_behalf_of(self) -> tuple[str, ...]:
        """The names of the agents on whose behalf the sender asks, beginning with the agent that asked first. Empty if the
        sender asks for itself. The sender is proved. Each agent before it is only a claim of the agents after it."""
    def _delegation(self) -> Delegation | None: ...
    @property
    def is_sealed(self) -> bool:
        """Whether the message was sealed: only its sender and its receivers can read it."""
    @property
    def disclosure(self) -> str | None:
        """The content of a sealed direct message as a line for others: with it, ``sealbus evidence disclose`` adds the author's
        words to a file of evidence. The line contains the words themselves, so protect it like them."""
    @property
    def text(self) -> str:
        """The content, which must be text; raises :class:`~sealbus.ContentError` if it is bytes or missing."""
    @property
    def body(self) -> BodyT_co:
        """The content as a value: of the declared type, or else of the type that its language determines, such as a ``dict``
        for JSON. Raises :class:`~sealbus.BodyError` with the place if it cannot be read."""
    @overload
    def body_as(self, kind: type[_B]) -> _B: ...
    @overload
    def body_as(self, kind: Any) -> Any:
        """The content as a value of this type; raises :class:`~sealbus.BodyError` with the place of the mistake."""
    def _declare(self, body: object) -> None: ...
    @property
    def sender_name(self) -> str:
        """The sender's name, or ``nobody`` for an anonymous message."""
    @property
    def is_trusted(self) -> bool:
        """Whether the sender's name is more than a claim."""
    @property
    def kept_number(self) -> int | None:
        """The number of a persistent message among those stored for this agent; later messages have greater numbers. For an
        event of a persistent channel, its number in its :attr:`ChannelEvent.log`. An agent that must do nothing twice, even if
        it is killed, notes the numbers that it has handled."""
    @property
    def may_be_again(self) -> bool:
        """Whether this agent may have had this persistent message, or this event of a durable subscription, before: its
        process or the subscription ended before its node had noted that. For an event of a group: whether another member may
        have had it, and ended before it had handled it."""
    @property
    def undelivered(self) -> tuple[str, str] | None:
        """If the platform reports here that a message of this agent was not delivered: the receiver and the reason."""

class ChannelEvent(Message[BodyT_co]):
    """An event from a channel: a :class:`Message` to read, with the channel's own details.

    ``ChannelEvent[Reading]`` is one whose :attr:`body` is a ``Reading``.
    """

    @property
    def channel(self) -> str:
        """The channel's path."""
    @property
    def mechanism(self) -> Literal["event", "message", "request", "reply"]:
        """An event for all, a message to this agent, a question to everyone, or an answer to one."""
    @property
    def number(self) -> int:
        """Its number among its sender's messages on the channel, from 1; on a persistent channel, its number in the log."""
    @property
    def priority(self) -> int:
        """From 0 to 9."""
    @property
    def qos(self) -> str:
        """The QoS with which it was published."""
    @property
    def properties(self) -> dict[str, Value]:
        """The properties with which it was published, by the names that filters use: the user-defined parameters without
        ``X-``."""
    @property
    def log(self) -> str | None:
        """The node from whose log it was read, if any. Together with the node and the channel, ``number`` identifies the event
        for ever."""
    @property
    def missed(self) -> int:
        """The number of events before this one that the channel's retention had removed."""
    @property
    def published_ms(self) -> int:
        """The time of publishing, by its sender's clock: milliseconds since 1970."""
    def answer(self, pump: Pump, call: int, reply: AclMessage) -> None: ...
    def decline(self) -> None:
        """Declines this question, so that the asker does not wait for an answer."""

class Filter:
    """A condition on a message: its performative, its conversation, its sender.

    Combine filters with ``&``, ``|`` and ``~``. Other messages remain in the mailbox, in their order.

    >>> offers = Filter("propose", conversation_id="sale-7") | Filter("refuse")
    """

    def __new__(
        cls,
        performative: Performative | str | None = None,
        *,
        sender: AID | str | None = None,
        conversation_id: str | None = None,
        in_reply_to: str | None = None,
        protocol: str | None = None,
        ontology: str | None = None,
        language: str | None = None,
    ) -> Self: ...
    def takes(self, message: AclMessage) -> bool:
        """Whether this filter takes the message."""
    def __and__(self, other: Filter) -> Filter: ...
    def __rand__(self, other: Filter) -> Filter: ...
    def __or__(self, other: Filter) -> Filter: ...
    def __ror__(self, other: Filter) -> Filter: ...
    def __invert__(self) -> Filter: ...

class ServiceDescription:
    """Something that an agent offers, or the template of a search for it."""

    def __new__(
        cls,
        name: str | None = None,
        type: str | None = None,
        *,
        protocols: Sequence[str] = ...,
        ontologies: Sequence[str] = ...,
        languages: Sequence[str] = ...,
        ownership: str | None = None,
        properties: dict[str, str | int | float | None] | None = None,
    ) -> Self: ...
    @staticmethod
    def of_type(type: str) -> ServiceDescription:
        """A template for services of a type."""
    @property
    def name(self) -> str | None:
        """The service's name; an entry must have it."""
    @property
    def type(self) -> str | None:
        """The service's type; an entry must have it."""
    @property
    def protocols(self) -> tuple[str, ...]:
        """Interaction protocols of the service."""
    @property
    def ontologies(self) -> tuple[str, ...]:
        """Ontologies of the service."""
    @property
    def languages(self) -> tuple[str, ...]:
        """Content languages of the service."""
    @property
    def ownership(self) -> str | None:
        """The owner of the service."""
    @property
    def properties(self) -> dict[str, str | int | float | bytes | None]:
        """Further properties, which distinguish services of one type."""
    def __eq__(self, other: object) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

class DfAgentDescription:
    """An entry of the DF, an agent and its services, or the template of a search for entries."""

    def __new__(
        cls,
        name: AID | str | None = None,
        services: Sequence[ServiceDescription] = ...,
        *,
        protocols: Sequence[str] = ...,
        ontologies: Sequence[str] = ...,
        languages: Sequence[str] = ...,
        lease_time: datetime | timedelta | str | None = None,
    ) -> Self: ...
    @property
    def name(self) -> AID | None:
        """The agent; every entry has one."""
    @property
    def services(self) -> tuple[ServiceDescription, ...]:
        """The services that the agent offers."""
    @property
    def protocols(self) -> tuple[str, ...]:
        """Interaction protocols that it follows."""
    @property
    def ontologies(self) -> tuple[str, ...]:
        """Ontologies that it knows."""
    @property
    def languages(self) -> tuple[str, ...]:
        """Content languages that it understands."""
    @property
    def lease_time(self) -> datetime | timedelta | str | None:
        """The end of the entry, or its duration."""
    def __eq__(self, other: object) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

class AmsAgentDescription:
    """An entry of the AMS, an agent and its state, or the template of a search for entries."""

    def __new__(
        cls,
        name: AID | str | None = None,
        *,
        ownership: str | None = None,
        state: str | None = None,
    ) -> Self: ...
    @property
    def name(self) -> AID | None:
        """The agent; every entry has one."""
    @property
    def ownership(self) -> str | None:
        """The owner of the agent."""
    @property
    def state(self) -> str | None:
        """The state in its life cycle: ``initiated``, ``active``, ``suspended``, ``waiting`` or ``transit``."""
    def __eq__(self, other: object) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

class Unsent:
    """A message that waits for room on its way to some of its receivers."""

class Pump:
    """Wakes one asyncio loop when agents have mail or calls have ended."""

    def __new__(cls) -> Self: ...
    def fileno(self) -> int: ...
    def has_news(self) -> bool: ...
    def take(self) -> tuple[list[int], list[tuple[int, BaseException | None, Any]]]: ...
    def catch_up(self, call: int) -> None: ...
    def cancel(self, call: int) -> None: ...

class Driver:
    """The native half of a loop's selector: the selector waits in it."""

    def __new__(cls, epoll: int) -> Self: ...
    def attach(self, pump: Pump) -> None: ...
    def detach(self, pump: Pump) -> None: ...
    def drive(self, timeout: float | None) -> int: ...
    def close(self) -> None: ...

class AgentHandle:
    """An agent's access to the bus."""

    @property
    def name(self) -> str: ...
    @property
    def aid(self) -> AID: ...
    @property
    def platform(self) -> str: ...
    def set_hook(self, pump: Pump, mailbox: int) -> None: ...
    def wish(self) -> Literal["stop", "freeze"] | None: ...
    def try_send(self, message: AclMessage) -> Unsent | None: ...
    def try_send_many(
        self, messages: list[AclMessage], first: int
    ) -> tuple[int, Unsent | None]: ...
    def try_each(self, unsent: Unsent) -> list[Unsent]: ...
    def finish(self, pump: Pump, call: int, unsent: Unsent, is_answer: bool) -> None: ...
    def send_persistent(
        self,
        pump: Pump,
        call: int,
        message: AclMessage,
        expiry: int | None,
        valid_from: int | None,
        receipt: str | None,
    ) -> None: ...
    def open_request(self, request: AclMessage) -> tuple[AclMessage, OpenRequest]: ...
    def open_conversation(self, id: str, peer: AID | None) -> Conversation: ...
    def open_replies(self, tag: str) -> Conversation: ...
    @property
    def late_messages(self) -> int: ...
    def try_receive(self, filter: Filter | None) -> Message | None: ...
    def try_receive_except(self, filters: Sequence[Filter | None]) -> Message | None: ...
    def try_receive_named(self, id: str, filter: Filter) -> Message | None: ...
    def try_receive_many(self, most: int) -> list[Message]: ...
    def has_mail(self, filter: Filter | None) -> bool: ...
    def channel(self, address: str, qos: str) -> ChannelHandle: ...
    def subscribe(self, options: dict[str, Any]) -> SubscriptionHandle: ...
    def take_state(self) -> bytes | None: ...
    def try_receive_failure(self) -> Message | None: ...
    def come_to_rest(self) -> None: ...
    def hand_over(self, pump: Pump, call: int, state: bytes) -> None: ...
    def decline_move(self, reason: str) -> None: ...
    def has_undelivered(self) -> bool: ...
    def delivered(self, pump: Pump, call: int, limit: float) -> None: ...
    def leave(self, parting: str, failure: str) -> None: ...

class Side:
    """One side of a conversation, without any I/O. Times are milliseconds after 1970."""

    def receive(self, message: AclMessage, now: int) -> Received | Refused: ...
    @property
    def deadline(self) -> int | None: ...
    def end_by(self, moment: int) -> None: ...
    def conclude(self) -> None: ...
    @property
    def refused(self) -> int: ...

class Initiator(Side):
    """The initiator's side of a conversation."""

    @staticmethod
    def open(
        protocol: str,
        conversation_id: str,
        participants: Sequence[AID],
        draft: AclMessage,
        now: int,
    ) -> tuple[Initiator, list[AclMessage]]: ...
    def send(
        self, draft: AclMessage, now: int, to: Sequence[AID] | None = None
    ) -> list[AclMessage]: ...
    def advance(self, now: int) -> list[AclMessage]: ...
    def undeliverable(self, participant: AID | str) -> None: ...
    @property
    def branches(self) -> list[Branch]: ...
    def branch(self, participant: AID | str) -> Branch | None: ...
    def count_at(self, stage: Stage) -> int: ...
    @property
    def has_ended(self) -> bool: ...

class Participant(Side):
    """A participant's side of a conversation."""

    @staticmethod
    def open(protocol: str, message: AclMessage, now: int) -> Participant | Refused: ...
    def send(self, draft: AclMessage, now: int) -> AclMessage: ...
    def answer_cancel(self, draft: AclMessage, now: int) -> AclMessage: ...
    def advance(self, now: int) -> None: ...
    def undeliverable(self) -> None: ...
    @property
    def initiator(self) -> AID: ...
    @property
    def stage(self) -> Stage: ...
    @property
    def outcome(self) -> Outcome | None: ...
    @property
    def is_cancelling(self) -> bool: ...

class Branch:
    """The state of an initiator's conversation with one participant."""

    @property
    def agent(self) -> AID: ...
    @property
    def stage(self) -> Stage: ...
    @property
    def outcome(self) -> Outcome | None: ...
    @property
    def is_cancelling(self) -> bool: ...

class Refused:
    """A message that is no part of the conversation, and the answer that the standard asks for."""

    @property
    def reason(self) -> str: ...
    @property
    def is_late(self) -> bool: ...
    @property
    def answer(self) -> AclMessage | None: ...

def opens(protocol: str) -> Filter: ...
def opened_by(message: AclMessage) -> str | None: ...
def forward(
    embedded: AclMessage, proxy: AclMessage, targets: Sequence[AID], designated: AID
) -> AclMessage: ...

class Conversation:
    """A conversation, which owns its messages."""

    def set_hook(self, pump: Pump, waiter: int) -> None: ...
    def try_next(self) -> Message | None: ...
    def close(self) -> None: ...

class OpenRequest:
    """A request that waits for its reply."""

    def set_hook(self, pump: Pump, waiter: int) -> None: ...
    def try_next(self) -> Message | None: ...
    def answered(self) -> None: ...
    def close(self) -> None: ...

class ChannelHandle:
    """A channel of one agent."""

    @property
    def path(self) -> str: ...
    @property
    def qos(self) -> str: ...
    @property
    def agent(self) -> str | None: ...
    def retain(
        self,
        pump: Pump,
        call: int,
        age: float | None,
        count: int | None,
        bytes: int | None,
    ) -> None: ...
    def try_publish(
        self, message: AclMessage, qos: str
    ) -> tuple[int, int, tuple[str, int] | None, int] | None: ...
    def publish(self, pump: Pump, call: int, message: AclMessage, qos: str) -> None: ...
    def send(
        self, pump: Pump, call: int, receiver: str, message: AclMessage, qos: str
    ) -> None: ...
    def request(
        self,
        pump: Pump,
        call: int,
        message: AclMessage,
        within: float,
        first: int | None,
        qos: str,
    ) -> None: ...
    def last(self, pump: Pump, call: int, per: str, filter: str, within: float) -> None: ...

class RepliesHandle:
    """The answers to a request."""

    def next(self, pump: Pump, call: int) -> None: ...
    def missing(self, pump: Pump, call: int) -> None: ...

class SubscriptionHandle:
    """A subscription of one agent."""

    def try_next(self) -> ChannelEvent | None: ...
    def settle(self) -> None: ...
    def listed(self, pump: Pump, call: int) -> None: ...
    def is_listed(self) -> bool: ...
    def wait(self, pump: Pump, call: int) -> None: ...
    def counters(self) -> tuple[int, int, int, int, int, int, int] | None: ...
    def damaged(self) -> list[tuple[str, str, str]]: ...
    def cancel(self) -> None: ...

class PlatformHandle:
    """A place on a platform: embedded, under a node, or with a ticket."""

    @property
    def name(self) -> str: ...
    @property
    def level(self) -> str: ...
    @property
    def addresses(self) -> list[str]: ...
    @property
    def a2a_address(self) -> str | None: ...
    def cast(self, names: Sequence[str]) -> list[tuple[str, int]]: ...
    def open_agent(self, pump: Pump, call: int, name: str, identity: str | None) -> None: ...
    def announce(self, pump: Pump, call: int) -> None: ...
    def stop(self, reason: str) -> None: ...
    def stopping(self, pump: Pump, call: int) -> None: ...
    def expelled(self) -> str | None: ...
    def close(self, pump: Pump, call: int) -> None: ...

def new_conversation_id() -> str:
    """A unique name for a conversation."""

def join_platform(
    pump: Pump, call: int, name: str | None, gateway: str | None, a2a: str | None, window: str | None
) -> None: ...
def forked() -> None: ...
def set_threads(threads: int) -> None: ...
def forward_log(filter: str) -> bool: ...
def quiet_log(filter: str) -> str: ...
def tell_of_log(pump: Pump | None) -> None: ...
def take_log() -> tuple[list[tuple[float, int, str, str]], int]: ...
def df_register(df: AID, description: DfAgentDescription) -> AclMessage: ...
def df_modify(df: AID, description: DfAgentDescription) -> AclMessage: ...
def df_deregister(df: AID, agent: AID) -> AclMessage: ...
def df_search(df: AID, template: DfAgentDescription, most: int | None) -> AclMessage: ...
def df_subscribe(df: AID, template: DfAgentDescription) -> AclMessage: ...
def df_cancel(subscribe: AclMessage) -> AclMessage: ...
def ams_search(ams: AID, template: AmsAgentDescription, most: int | None) -> AclMessage: ...
def ams_subscribe(ams: AID, template: AmsAgentDescription) -> AclMessage: ...
def ams_told(news: Message) -> list[AmsAgentDescription]: ...
def directory_done(answer: Message) -> None: ...
def df_found(answer: Message) -> list[DfAgentDescription]: ...
def df_told(news: Message) -> list[DfAgentDescription]: ...
def ams_found(answer: Message) -> list[AmsAgentDescription]: ...
def encode(message: AclMessage, representation: str) -> bytes: ...
def decode(data: bytes, representation: str) -> AclMessage: ...
def explain(
    data: bytes, representation: str | None
) -> tuple[str, list[tuple[int, int, int, str, str]], DecodeError | None, str]: ...
def validate(
    message: AclMessage,
) -> list[tuple[Literal["warning", "error"], str, str, str]]: ...
def representations() -> list[str]:
    """Short names of all encodings."""

def representation_name(representation: str) -> str:
    """FIPA's name of an encoding, such as ``fipa.acl.rep.string.std``."""

def detect(data: bytes) -> str | None:
    """The encoding of these bytes, recognised by the first ones; None if they do not show it."""

def performatives() -> list[str]:
    """Names of FIPA's communicative acts, in the order of their codes."""
def read_json(message: AclMessage) -> Any: ...
def json_text(message: AclMessage) -> bytes: ...
class Fields:
    """The fields of a dataclass to write: the attributes, and their names in JSON."""

    def __new__(cls, fields: Sequence[tuple[str, str]]) -> Fields: ...

class ObjectReader:
    """Makes values of a type out of JSON objects. Each field has: the constructor's argument, the name in JSON, the
    class whose values are taken as they are, the reader of other values, and the text of the type if the field is
    required."""

    def __new__(
        cls,
        name: str,
        fields: Sequence[tuple[str, str, type | None, Callable[[Any], Any], str | None]],
        build: Callable[..., Any],
    ) -> ObjectReader: ...
    def __call__(self, value: object) -> Any: ...

def write_json(value: object) -> str: ...
def read_sl(text: str | bytes) -> Content: ...
def write_sl(content: Content, plain: Callable[[Any], object]) -> str | bytes: ...

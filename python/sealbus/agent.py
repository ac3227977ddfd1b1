"""The class an agent's author derives from."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from sealbus._sealbus import AID, AclMessage, ChannelEvent, Filter, Message, ServiceDescription
from sealbus.behaviour import Behaviour, Step, once
from sealbus.channel import (
    Channel,
    ChannelSubscription,
    FlowPolicy,
    Keep,
    Reach,
    Retention,
    subscribe,
)
from sealbus.directory import Ams, Df
from sealbus.errors import AgentStopped
from sealbus.fact import Fact
from sealbus.initiator import Initiates
from sealbus.mark import Mark, Schedule, Supervise, check, marks_of
from sealbus.participation import inherit
from sealbus.performative import Performative
from sealbus.tools import Answer, Tool, add_tools
from sealbus.workload import WorkloadToken, workload_token

if TYPE_CHECKING:
    from sealbus._sealbus import Value
    from sealbus.clock import Clock
    from sealbus.life import Life

__all__ = ["Agent"]

_T = TypeVar("_T")


class Agent(Initiates):
    """An agent: its state, and its hooks for events.

    ============================  ==================================================  ========================
    hook                          when                                                default
    ============================  ==================================================  ========================
    :meth:`setup`                 once, when the agent is certified and on the bus    nothing
    a handler marked :func:`on`   for each message it describes
    handlers marked               for each event and question on their channels
    :func:`on_event` and
    :func:`on_question`
    :meth:`on_message`            for each message that no handler describes and no   answers `not-understood`
                                  ``receive`` or ``request`` waits for
    :meth:`teardown`              once, before the agent leaves: on its own wish,     nothing
                                  Ctrl-C, SIGTERM, ``sealbus kill``
    :meth:`save`                  before the agent moves to another node              an empty state
    :meth:`restore`               instead of ``setup``, at the node it moved to       ``setup``
    ============================  ==================================================  ========================

    Hooks run one after the other, so no hook sees the agent half changed; only handlers with a ``concurrency`` of their own run
    side by side. All agents of a program share one thread: a hook waits with ``await`` and never blocks.

    An exception in a handler or in ``on_message`` becomes an answer: the sender gets a ``failure``, or ``not-understood`` if
    the content could not be read (:class:`~sealbus.ContentError`). The exception is logged and counted in :attr:`failures`, and
    the agent keeps running. ``raise Refuse("busy")``, :class:`~sealbus.NotUnderstood` and :class:`~sealbus.Failure` choose the
    answer. An exception on a ``failure``, ``not-understood`` or ``refuse`` gets no answer. `supervise`, of the class
    (``class Seller(Agent, supervise="end")``) or of a handler, sets the further effect. With ``"ignore"``, the default, there
    is none. With ``"restart"`` the agent begins anew: work beside its hooks is cancelled, and ``teardown`` and ``setup`` are
    called; an agent that restarts more than five times in a minute ends. With ``"end"`` the agent ends. An exception in
    ``setup``, ``restore`` or ``teardown`` ends only this agent.

    Hooks take messages out of the mailbox only if the class has handlers or its own ``on_message``; otherwise messages wait for
    :meth:`receive`.
    """

    _marks: ClassVar[tuple[tuple[str, Mark], ...]] = ()
    _tools: ClassVar[tuple[Tool, ...]] = ()
    _supervise: ClassVar[Supervise] = "ignore"
    _name: str | None = None
    _identity: str | None = None
    _life: Life | None = None
    _is_starting = False

    def __init__(self, name: str | None = None, *, identity: str | os.PathLike[str] | None = None) -> None:
        """An agent with this local name; without one, the class's name in lower case.

        Under ``sealbus up`` the manifest names the agent.

        `identity` is the file with the key of its long-lived identity, which ``sealbus identity FILE`` makes. All certificates
        of the agent name that identity, so that anybody can verify that they belong to one agent. Only this program uses the
        key. Without `identity`, the manifest or ``SEALBUS_IDENTITY`` may name a file.
        """
        self._name = name
        self._identity = None if identity is None else os.fspath(identity)

    def __init_subclass__(cls, *, supervise: Supervise | None = None, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if supervise is not None:
            check(supervise)
            cls._supervise = supervise
        marked = marks_of(cls)
        inherit(cls)
        cls._tools, served = add_tools(cls)
        own = tuple((attribute, mark) for attribute, marks in marked.items() for mark in marks)
        # Handlers come first; tools take the requests that no handler describes.
        cls._marks = own + served

    # ----- hooks

    async def setup(self) -> None:
        """Called once, when the agent has its certificate and can send and receive.

        Its duration is unlimited: an agent that only acts, and serves no requests, does all its work here and ends with
        :meth:`stop`. Messages that arrive meanwhile wait in the mailbox, in order.
        """

    async def on_message(self, message: Message) -> None:
        """Called with each message that nothing else took, in the order of arrival, one after the other.

        The default answers ``not-understood``, as FIPA requires of an agent that cannot handle a message, except to
        ``not-understood`` and ``failure``, which end an exchange.
        """
        if message.performative not in (Performative.NOT_UNDERSTOOD, Performative.FAILURE):
            await self.reply(message, Performative.NOT_UNDERSTOOD)

    async def teardown(self) -> None:
        """Called once before the agent leaves. It can still send, search and deregister."""

    async def save(self) -> bytes:
        """Returns the state to carry to another node; called between two messages when the agent is moved.

        Unread messages travel with the agent, and messages sent meanwhile follow: none is lost, and none arrives twice. If
        `save` raises an exception, the agent keeps running where it is.
        """
        return b""

    async def restore(self, state: bytes) -> None:
        """Takes over the state that :meth:`save` returned on the former node; called instead of :meth:`setup`."""
        await self.setup()

    # ----- identity

    @property
    def name(self) -> str:
        """The local name: ``seller-1`` of ``seller-1@factory``."""
        if self._life is not None:
            return self._life.handle.name
        return self._name or type(self).__name__.lower()

    @property
    def aid(self) -> AID:
        """The agent's identifier, which others write to."""
        return self._living.handle.aid

    @property
    def platform(self) -> str:
        """The platform's name: ``factory`` of ``seller-1@factory``."""
        return self._living.handle.platform

    def peer(self, name: str) -> AID:
        """The identifier of another agent: of this platform when `name` is a local name, of another one when it is
        ``name@platform``."""
        return self._living.peer(name)

    @Fact
    def failures(self) -> int:
        """How many unexpected exceptions handlers of this agent have raised. Each was answered and logged."""
        return self._living.handlers.failures

    @property
    def df(self) -> Df:
        """The Directory Facilitator: the agents and their services."""
        return self._living.df

    @property
    def ams(self) -> Ams:
        """The Agent Management System: all agents of the platform."""
        return self._living.ams

    async def workload_token(self, audience: str) -> WorkloadToken:
        """A token with which the agent proves its identity to a server outside the platform: a signed JWT for this audience,
        the server's own name for itself::

            token = await self.workload_token("https://api.example")
            headers = {"Authorization": f"Bearer {token}"}

        The token is valid for five minutes, and no longer than the agent's certificate. ``workload-issuer`` in the manifest
        names the URL by which servers know the platform's CA; without it there are no tokens.
        """
        return await workload_token(self._living, audience)

    # ----- sending

    async def send(
        self,
        message: AclMessage,
        *,
        persistent: bool = False,
        expiry: float | datetime | None = None,
        valid_from: float | datetime | None = None,
        receipt: Literal["disk", "process", "agent"] | None = None,
        level: Literal["none", "tls", "auth", "signed", "sealed"] | None = None,
    ) -> None:
        """Sends a message to each of its receivers, and waits while a receiver's mailbox is full.

        ``asyncio.timeout`` limits the wait; a receiver that had no room until then does not get the message.

        Sealbus fills in ``sender``, and receivers without ``@`` are agents of this platform. When this returns, the message is
        accepted: it is delivered once and in order, or a ``failure`` message from the AMS names the receiver that did not get
        it, and the reason.

        With ``persistent`` the message is on a disk of the platform when this returns, and waits there for its receiver, even
        an absent one. At its ``expiry`` (a ``datetime``, or seconds from now; by default in seven days) it comes back as a
        ``failure``; before ``valid_from`` it is not delivered. For the ``receipt`` ``"process"`` or ``"agent"`` the AMS sends
        an ``inform`` when the message is in the receiver's process, or when the receiver has taken it; if the message is
        signed, the receiver itself signs that ``inform``. With ``"disk"``, the return itself is the receipt. Persistent
        messages of one agent to another arrive in order and once; other messages may overtake them.

        With the ``level`` ``"signed"`` the message bears the agent's proof, even on a platform at ``"auth"``:
        :attr:`~sealbus.Message.provenance` is ``signed`` in the receiver's process. With ``"sealed"``, in addition, only the
        receivers can read it: :attr:`~sealbus.Message.is_sealed`. If a receiver has no key for this, the error names it. A
        level below the platform's, or one that the platform's transport does not reach, is refused.
        """
        # `_living` is a call; a living agent saves it.
        life = self._life or self._living
        if level is not None:
            message = message.replace(user_defined={**message.user_defined, "X-Sealbus-Level": level})
        if persistent:
            await life.send_persistent(message, life.clock.moment(expiry), life.clock.moment(valid_from), receipt)
            return
        if expiry is not None or valid_from is not None or receipt is not None:
            name = "expiry" if expiry is not None else "valid_from" if valid_from is not None else "receipt"
            raise ValueError(f"only a persistent message can have {name}: pass persistent=True")
        if life.turn <= 1 or life.moving is not None:
            await life.send(message)
            return
        # `Life.send` does the same with one more coroutine.
        life.turn -= 1
        unsent = life.handle.try_send(message)
        if unsent is not None:
            await life.finish(unsent)

    async def send_many(self, messages: Iterable[AclMessage]) -> None:
        """Sends many messages in their order, faster than one by one.

        Stops at the first message that is not accepted; earlier ones are sent.
        """
        await self._living.send_many(messages if isinstance(messages, list) else list(messages))

    async def reply(
        self,
        message: AclMessage,
        performative: Performative | str,
        content: object = None,
    ) -> None:
        """Answers a message in its conversation, or a question to everyone on a channel, which can be answered once.

        Content that is neither text nor bytes is a body, see :mod:`sealbus.body`. The asker must make room for the answers: if
        its mailbox is full, an answer waits for 10 seconds, and later ones for a tenth of that; then
        :class:`~sealbus.AnswerNotTaken` is raised.
        """
        reply = message.create_reply(performative, content)
        life = self._living
        if isinstance(message, ChannelEvent) and message.mechanism == "request":
            await life.answer(message, reply)
        else:
            await life.send(reply, is_answer=True)
        life.handlers.note_answer(message, performative)

    # ----- receiving

    async def receive(
        self, filter: Filter | None = None, *, timeout: float | None = None
    ) -> Message:
        """Waits for the next message that `filter` takes; the others remain in the mailbox, in order.

        Without a filter it takes any message. `timeout` is in seconds; when it has passed, :class:`~sealbus.ReceiveTimeout` is
        raised.
        """
        life = self._life or self._living
        if life.turn <= 0:
            await life.pause()
            life.check_not_stopping()
        if life.moving is None and not life.mailbox.is_awaited():
            life.turn -= 1
            message = life.handle.try_receive(filter)
            if message is not None:
                return message
        return await life.mailbox.receive(filter, timeout)

    async def receive_many(
        self, most: int = 1024, *, timeout: float | None = None
    ) -> list[Message]:
        """Waits until there is mail, then takes up to `most` messages at once, in order."""
        return await self._living.mailbox.receive_many(most, timeout)

    async def request(
        self, message: AclMessage, *, timeout: float | None = None
    ) -> Message:
        """Sends a message and waits for the reply to it.

        The reply is the first message that repeats the request's ``reply_with`` (Sealbus adds it and ``conversation_id`` if
        they are missing), with any performative: ``refuse``, ``failure`` and ``not-understood`` are replies. An ``agree`` only
        announces the outcome and is skipped. Other messages remain in the mailbox.

        Raises :class:`~sealbus.Undeliverable` if the platform reports that the request did not arrive, and
        :class:`~sealbus.RequestTimeout` if no reply arrives within `timeout` seconds.
        """
        return await self._living.mailbox.request(message, timeout)

    def ask(
        self,
        to: AID | str | ServiceDescription,
        body: object,
        *,
        stream: type[_T],
        tool: str | None = None,
        timeout: float | None = None,
        window: int = 16,
    ) -> Answer[_T]:
        """Asks a tool of another agent for an answer that comes in parts of the type `stream`::

            async with self.ask("writer", Prompt("once upon a time"), stream=Chunk) as answer:
                async for chunk in answer:
                    print(chunk.text)

        Leaving the block before the end cancels the tool's work. The tool gets at most `window` parts ahead of the reader. `to`
        is an agent, or a service that the DF knows. `tool` names one of several tools of an agent.
        A refusal or failure raises :class:`~sealbus.ConversationError`, and silence of `timeout` seconds
        :class:`~sealbus.ConversationTimeout`. See :func:`~sealbus.tool`.
        """
        return Answer(self._living, to, body, stream, tool, timeout, window)

    def tools(self) -> list[ServiceDescription]:
        """The services of the agent's methods marked :func:`~sealbus.tool`, for ``df.register(*self.tools())``."""
        return [each.service for each in self._tools]

    # ----- channels

    async def channel(
        self, address: str, *, qos: str = "", retention: Retention | None = None
    ) -> Channel:
        """The channel with this path, such as ``/offers/tea``, or this address, such as
        ``sealbus:at-least-once:///offers/tea/``.

        `qos` lists the differences from the default, which is once, in order, and transient: ``best-effort``, ``at-least-once``
        or ``exactly-once``; ``ordered`` or ``unordered``; ``transient``, ``persistent`` or ``persistent=7d``; ``priority=0`` to
        ``9``; ``valid-from=`` and ``expiry=``, a length of time or a FIPA date-time; ``level=``; ``ack=none``, ``process``,
        ``agent`` or ``disk``. If the platform cannot fulfil one of them, :class:`~sealbus.ChannelError` names it.

        A persistent event is on a disk of the platform before any subscriber gets it. `retention` limits the stored events on a
        platform inside the program; elsewhere the manifest does.
        """
        life = self._living
        await life.settle()
        channel = life.channels.open(address, qos)
        if retention is not None:
            await channel.retain(retention)
        return channel

    async def subscribe(
        self,
        pattern: str,
        *,
        filter: str | None = None,
        policy: FlowPolicy | None = None,
        keep: Keep = "all",
        events: int | None = None,
        bytes: int | None = None,
        takes: Literal["events", "requests", "all"] = "events",
        durable: str | None = None,
        since: datetime | int | None = None,
        number: int | None = None,
        last_per: str | None = None,
        group: str | None = None,
        prefetch: int | None = None,
    ) -> ChannelSubscription:
        """Subscribes to all channels of a pattern, in which ``*`` stands for one level and ``**`` for the rest.

        `filter` is an expression (CEL) over the message: its parameters by their names, its user-defined ones as
        ``properties.NAME``, such as ``performative == 'inform' && properties.price < 10``. The publisher evaluates it; a
        malformed filter raises :class:`~sealbus.FilterError` with the place. `policy` decides what happens when `events` or
        `bytes` wait and more arrive: with ``push-back``, the default, publishers wait. ``keep="latest"`` keeps only the latest
        waiting event. `takes` adds questions to everyone, or selects only them.

        `durable`, `since` and `number` are for persistent channels. `durable` continues where the subscription of this name
        stopped. `since` begins at a time, or with the last events of each channel on each node, by their count. `number` begins
        with the event of this number there. With `durable`, the other two apply only the first time. An event counts as handled
        when the agent asks for the next one, calls ``settle``, or returns from its handler; if the subscription or the program
        ends before, the event arrives again, with ``may_be_again``. `last_per` begins with the last event of each value of a
        key, such as ``properties.sensor`` or ``sender``, over all nodes, and continues with every new event.

        `group` names a queue group: the subscriptions of the same group, pattern and filter, in any programs, share the events.
        Each event goes to one of them, the least busy; if that one ends before it has handled the event, the event goes to
        another, with ``may_be_again``. A member has `prefetch` events of each publisher's process at a time, by default 1. A
        group is not durable, begins now, and drops no events.

        The first subscription of a program waits until the other programs know the program:
        :meth:`sealbus.ChannelSubscription.listed`.
        """
        life = self._living
        await life.settle()
        subscription = subscribe(
            life,
            pattern,
            filter=filter,
            policy=policy,
            keep=keep,
            events=events,
            bytes=bytes,
            takes=takes,
            durable=durable,
            since=since,
            number=number,
            last_per=last_per,
            group=group,
            prefetch=prefetch,
        )
        # If the wait is cancelled, the subscription ends.
        return await subscription.__aenter__()

    async def publish(
        self,
        address: str,
        message: object,
        *,
        properties: Mapping[str, Value] | None = None,
        qos: str = "",
    ) -> Reach:
        """Publishes an event on the channel with this path or address; see :meth:`sealbus.Channel.publish`.

        The first call opens the channel with this `qos`.
        """
        life = self._living
        if life.moving is not None:
            await life.settle()
        channel = life.channels.open(address, qos)
        return await channel.publish(message, properties=properties)

    # ----- living

    async def spawn(self, agent: Agent) -> AID:
        """Starts another agent in this program, if the platform lets it run here."""
        return await self._living.start(agent)

    def create_task(
        self, work: Coroutine[Any, Any, _T], *, supervise: Supervise = "end"
    ) -> asyncio.Task[_T]:
        """Runs `work` beside the hooks until it ends or the agent leaves. An exception in it ends the agent, unless `supervise`
        sets another effect."""
        check(supervise)
        return self._living.tasks.create(work, supervise)

    def begin(
        self, work: Step, schedule: Schedule = once, *, name: str | None = None
    ) -> Behaviour:
        """Begins a behaviour: `work`, a method or a combination by :func:`~sealbus.behaviour.sequence` and
        :func:`~sealbus.behaviour.parallel`, runs once, or by the `schedule`::

            self.begin(self.watch)
            self.begin(self.measure, every(0.5))
        """
        return self._living.behaviours.begin(work, schedule, name)

    @Fact
    def behaviours(self) -> Mapping[str, Behaviour]:
        """The agent's behaviours by the names of their methods: the marked ones, and others until they are done."""
        return self._living.behaviours.begun

    @Fact
    def clock(self) -> Clock:
        """The clock of the agent's platform: ``self.clock.now()``, ``await self.clock.sleep(1)``."""
        return self._living.clock

    def stop(self) -> None:
        """Makes this agent leave when its current hook has returned."""
        self._living.stop()

    def stop_all(self) -> None:
        """Makes all agents of this program leave; agents of other processes stay."""
        life = self._living
        life.stop()
        life.platform.stop(f"agent {self.name} stopped the program")

    @property
    def _living(self) -> Life:
        life = self._life
        if life is None:
            raise AgentStopped(self.name, "is not on a platform; start it with sealbus.run() first")
        return life

    @classmethod
    def _takes_messages(cls) -> bool:
        handles = any(isinstance(mark.takes, Filter) for _, mark in cls._marks)
        return handles or cls.on_message is not Agent.on_message

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

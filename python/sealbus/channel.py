"""Channels: messages to all agents that subscribe to a subject, without knowing them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar

from sealbus._sealbus import (
    AID,
    AclMessage,
    ChannelEvent,
    ChannelHandle,
    SubscriptionHandle,
)
from sealbus.errors import SubscriptionEnded
from sealbus.mark import Listening, Mark, Supervise
from sealbus.performative import Performative
from sealbus.replies import Replies

if TYPE_CHECKING:
    from sealbus._sealbus import Value
    from sealbus.life import Life

__all__ = ["Channel", "ChannelSubscription", "LastEvents", "LogPlace", "Reach", "Retention", "on_event", "on_question"]

FlowPolicy = Literal["push-back", "drop-oldest", "drop-newest", "disconnect"]
"""The policy when events come faster than a subscription takes them."""

Keep = Literal["all", "latest"]
"""The waiting events that a subscription keeps: all that have room, or only the latest."""

OPEN_CHANNELS = 256
"""Channels of an agent that stay open."""

_Handler = TypeVar("_Handler", bound=Callable[..., Awaitable[None]])


class LogPlace(NamedTuple):
    """The place of a stored event."""

    log: str
    """The node in whose log it is."""
    number: int
    """Its number in the log, unique on its channel."""


class Reach(NamedTuple):
    """The reach of an event."""

    here: int
    """Subscriptions of this program to which it was sent."""
    processes: int
    """Other processes with subscriptions to which it was sent."""
    kept: LogPlace | None = None
    """Its place in a log, on a persistent channel. Subscriptions that read it from the log are not counted."""
    groups: int = 0
    """Groups of subscriptions. One member of each gets the event. Groups count neither in `here` nor in `processes`."""


class LastEvents(list[ChannelEvent]):
    """The last event of each value of a key, in the order in which they were published, from :meth:`Channel.last`."""

    missing: list[tuple[str, str]]
    """The nodes whose events may be missing because they did not answer in time, with the known reason."""
    filter_errors: int
    """Events without the key, or for which the filter could not be evaluated."""


@dataclass(frozen=True)
class Retention:
    """The limits of a persistent channel's stored events. Every limit applies."""

    age: float | None = None
    """Seconds since an event was stored."""
    count: int | None = None
    """Events."""
    bytes: int | None = None
    """Bytes on disk."""


class Counters(NamedTuple):
    """The counters of a subscription since it began."""

    taken: int
    """Events put into its queue."""
    handed_out: int
    """Events that its agent got."""
    expired: int
    """Events that expired before that."""
    dropped: int
    """Events that its policy dropped."""
    pushed_back: int
    """How often a publisher had to wait."""
    filter_errors: int
    """Events and questions that were withheld because the filter could not be evaluated for them, such as a filter on
    ``properties.price`` for an event without a price. Publishers in other processes report theirs within a second."""
    missed: int
    """Events that the subscription missed: while its process was silent for more than half a minute, or after it had pushed
    back for as long without taking an event."""


class DamagedLog(NamedTuple):
    """A damaged log of a persistent channel: its subscription waits before the damage until an operator has restored or removed
    the damaged file. No event is skipped in silence."""

    node: str
    """The node that stores it."""
    channel: str
    damage: str
    """The damage, its place, and what to do."""


def on_event(
    pattern: str,
    *,
    filter: str | None = None,
    policy: FlowPolicy | None = None,
    keep: Keep = "all",
    events: int | None = None,
    durable: str | None = None,
    since: datetime | int | None = None,
    number: int | None = None,
    last_per: str | None = None,
    group: str | None = None,
    prefetch: int | None = None,
    concurrency: int = 1,
    supervise: Supervise | None = None,
    body: Any = None,
) -> Callable[[_Handler], _Handler]:
    """Marks a method of an agent as the handler of a channel's events, and of messages to this agent on it.

    In a pattern ``*`` stands for one level and ``**`` for the rest; the other arguments are those of
    :meth:`sealbus.Agent.subscribe`, and those of :func:`sealbus.on`. The agent subscribes before ``setup``::

        class Buyer(Agent):
            @on_event("/offers/**", filter="properties.price < 10")
            async def offer(self, event: ChannelEvent) -> None:
                print(event.sender_name, event.text)
    """
    if durable is not None and concurrency > 1:
        raise ValueError("a durable subscription deals with its events one after the other: it has no concurrency")
    if group is not None and concurrency > 1:
        raise ValueError("a member of a group deals with its events one after the other: start more agents instead of concurrency")
    options = {
        "filter": filter,
        "policy": policy,
        "keep": keep,
        "events": events,
        "durable": durable,
        "since": since,
        "number": number,
        "last_per": last_per,
        "group": group,
        "prefetch": prefetch,
    }
    return _listening(pattern, options, concurrency, supervise, body)


def on_question(
    pattern: str,
    *,
    filter: str | None = None,
    concurrency: int = 1,
    supervise: Supervise | None = None,
    body: Any = None,
) -> Callable[[_Handler], _Handler]:
    """Marks a method of an agent as the handler of questions to everyone on a channel.

    It answers with :meth:`Agent.reply`; if it returns without an answer, the asker does not wait for one::

        class Shop(Agent):
            @on_question("/wanted/tea")
            async def offer(self, question: ChannelEvent) -> None:
                await self.reply(question, Performative.PROPOSE, "9 EUR")
    """
    return _listening(pattern, {"filter": filter, "takes": "requests"}, concurrency, supervise, body)


def _listening(
    pattern: str, options: dict[str, Any], concurrency: int, supervise: Supervise | None, body: Any
) -> Mark:
    given = tuple((name, value) for name, value in options.items() if value is not None)
    return Mark(Listening(pattern, given), concurrency, supervise, body)


class Channel:
    """A channel as one agent uses it, from :meth:`sealbus.Agent.channel`."""

    def __init__(self, life: Life, handle: ChannelHandle) -> None:
        self._life = life
        self._handle = handle

    @property
    def path(self) -> str:
        """Its path, such as ``/offers/tea``."""
        return self._handle.path

    @property
    def qos(self) -> str:
        """The QoS of messages without their own, such as ``exactly-once,priority=7``."""
        return self._handle.qos

    @property
    def agent(self) -> str | None:
        """The agent that the address named, if it named one."""
        return self._handle.agent

    async def retain(self, retention: Retention) -> None:
        """Limits the stored events of this channel, on a platform inside the program; elsewhere the manifest does."""
        await self._life.call(self._handle.retain, retention.age, retention.count, retention.bytes)

    async def publish(
        self,
        message: object,
        *,
        properties: Mapping[str, Value] | None = None,
        qos: str = "",
    ) -> Reach:
        """Publishes an event to every agent that has subscribed to the channel.

        Text and bytes become the content of an ``inform``, and any other value its body (:mod:`sealbus.body`). `properties`
        become user-defined parameters (``price`` is sent as ``X-price``), which filters know as ``properties.price``. `qos`
        lists the message's differences from its channel, such as ``expiry=5s,ack=agent``.

        Waits while a subscription that pushes back has no room, and for the acknowledgement that the QoS requests. A later
        problem is reported by a ``failure`` message, unless the QoS is ``best-effort``.
        """
        sent = _message(message, properties)
        life = self._life
        # Pause first: a publisher that is cancelled during the pause has published nothing.
        if life.count_message():
            await life.pause()
        if life.moving is not None:
            await life.settle()
        reach = self._handle.try_publish(sent, qos) if life.introduced else None
        if reach is None:
            reach = await life.call(self._handle.publish, sent, qos)
            life.introduced = True
        here, processes, kept, groups = reach
        return Reach(here, processes, None if kept is None else LogPlace(*kept), groups)

    async def send(
        self,
        receiver: AID | str,
        message: object,
        *,
        properties: Mapping[str, Value] | None = None,
        qos: str = "",
    ) -> None:
        """Sends to one agent on the channel; it must have a subscription there."""
        await self._life.settle()
        name = receiver.name if isinstance(receiver, AID) else receiver
        await self._life.call(self._handle.send, name, _message(message, properties), qos)

    def request(
        self,
        message: object,
        *,
        timeout: float,
        first: int | None = None,
        properties: Mapping[str, Value] | None = None,
        qos: str = "",
    ) -> Replies:
        """Asks every agent that answers on the channel, for `timeout` seconds or until there are `first` answers.

        Iterate over the answers as they arrive, or await all at the end. Text and bytes become the content of a ``query-ref``::

            async for reply in channel.request("who has tea?", timeout=2):
                print(reply.sender_name, reply.text)

            replies = channel.request(call_for_proposals, timeout=2)
            for reply in await replies.all(): ...
            print("no word from", replies.missing)
        """
        asked = _message(message, properties, Performative.QUERY_REF)
        return Replies(self._life, self._handle, asked, timeout, first, qos)

    async def last(self, per: str = "channel", *, filter: str | None = None, timeout: float = 5.0) -> LastEvents:
        """The last event of each value of a key, among the stored events of this channel.

        `per` names the key: a user-defined parameter, such as ``properties.sensor``, or a variable of filters, such as
        ``sender``. By default the result is the last event of the channel. All nodes are asked, for at most `timeout` seconds.
        A transient channel stores no events, and raises :class:`~sealbus.ChannelError`::

            for reading in await readings.last("properties.sensor"):
                print(reading.sender_name, reading.text)
        """
        life = self._life
        await life.settle()
        events, missing, filter_errors = await life.call(self._handle.last, per, filter or "", timeout)
        last = LastEvents(events)
        last.missing, last.filter_errors = missing, filter_errors
        return last

    def subscribe(
        self,
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
        """Subscribes to this channel; see :meth:`sealbus.Agent.subscribe`."""
        return subscribe(
            self._life,
            self.path,
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

    def __repr__(self) -> str:
        return f"<Channel {self.path} {self.qos}>"


class Channels:
    """The channels of one agent. Those used last stay open."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._open: dict[tuple[str, str], Channel] = {}

    def open(self, address: str, qos: str) -> Channel:
        """The channel with this path or address."""
        channel = self._open.pop((address, qos), None)
        if channel is None:
            channel = Channel(self._life, self._life.handle.channel(address, qos))
        self._open[address, qos] = channel
        if len(self._open) > OPEN_CHANNELS:
            del self._open[next(iter(self._open))]
        return channel


class ChannelSubscription:
    """A subscription of an agent to channels: an asynchronous iterator over events.

    It ends with :meth:`cancel`, at the end of ``async with``, and when the agent leaves or moves.
    """

    def __init__(self, life: Life, handle: SubscriptionHandle, pattern: str) -> None:
        self._life = life
        self._handle = handle
        # The subscription wakes only one waiter, the latest.
        self._turn = asyncio.Lock()
        self.pattern = pattern
        """The channels subscribed to."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChannelEvent:
        return await self.next()

    async def __aenter__(self) -> Self:
        try:
            await self.listed()
        except BaseException:
            # Nobody reads the subscription, but the exception keeps it in memory.
            self.cancel()
            raise
        return self

    async def __aexit__(self, *raised: object) -> None:
        if raised[0] is None:
            self.settle()
        self.cancel()

    async def next(self) -> ChannelEvent:
        """Waits for the next event; raises :class:`~sealbus.SubscriptionEnded` after the last one."""
        life = self._life
        while True:
            if life.count_message():
                await life.pause()
            event = self._handle.try_next()
            if event is not None:
                return event
            ended = await self.wait()
            if ended is not None:
                raise SubscriptionEnded(life.name, f"the subscription to {self.pattern} has ended: {ended}")

    async def listed(self) -> bool:
        """Waits until the other programs that use channels know this one: a moment, for its first subscription.

        From then on, each event of a publisher reaches this subscription. Returns False if the platform does not confirm this
        within 30 seconds; the subscription then continues, and is listed later. :meth:`sealbus.Agent.subscribe` and
        ``async with`` wait by themselves.
        """
        life = self._life
        if self._handle.is_listed():
            if life.count_message():
                await life.pause()
            return True
        is_listed: bool = await life.call(self._handle.listed)
        return is_listed

    def try_next(self) -> ChannelEvent | None:
        """The next event, if one is waiting."""
        return self._handle.try_next()

    def settle(self) -> None:
        """Acknowledges the events taken so far as handled; so does asking for the next event, and the end of ``async with``
        without an exception.

        If a member of a group ends before it has handled an event, another member gets the event.

        When ``save`` is called for a move, the agent's subscriptions hand out no more events. A durable subscription continues
        after the events that were handled by then. An event that a task is still handling arrives again, marked, on the new
        node.
        """
        self._handle.settle()

    async def wait(self) -> str | None:
        """Waits until there is an event to take, or returns the reason why there are no more."""
        async with self._turn:
            why: str | None = await self._life.call(self._handle.wait)
        return why

    @property
    def counters(self) -> Counters | None:
        """The counters so far; None once it is cancelled."""
        counters = self._handle.counters()
        return None if counters is None else Counters(*counters)

    @property
    def damaged(self) -> list[DamagedLog]:
        """The logs of persistent channels that it cannot read further."""
        return [DamagedLog(*each) for each in self._handle.damaged()]

    def cancel(self) -> None:
        """Ends the subscription, and drops the events in its queue."""
        self._handle.cancel()


def subscribe(
    life: Life,
    pattern: str,
    *,
    policy: FlowPolicy | None = None,
    keep: Keep = "all",
    since: datetime | int | None = None,
    number: int | None = None,
    last_per: str | None = None,
    **options: Any,
) -> ChannelSubscription:
    """Subscribes an agent to the channels of a pattern."""
    if keep == "latest":
        if policy not in (None, "drop-oldest") or options.get("events") not in (None, 1):
            raise ValueError("keep='latest' keeps one event and drops the one before it: pass no other policy or events")
        policy, options["events"] = "drop-oldest", 1
    elif keep != "all":
        raise ValueError(f"there is no keep='{keep}': it is 'all' or 'latest'")
    options["policy"] = policy or "push-back"
    if sum(place is not None for place in (since, number, last_per)) > 1:
        raise ValueError("a subscription begins at one place: pass one of since, number and last_per, not both")
    options["number"], options["last_per"] = number, last_per
    options["pattern"] = pattern
    if isinstance(since, datetime):
        options["since_ms"] = max(0, int(since.timestamp() * 1000))
    elif since is not None:
        options["last"] = since
    return ChannelSubscription(life, life.handle.subscribe(options), pattern)


def _message(
    message: object,
    properties: Mapping[str, Value] | None,
    performative: Performative = Performative.INFORM,
) -> AclMessage:
    if isinstance(message, str | bytes):
        message = AclMessage(performative, content=message)
    elif not isinstance(message, AclMessage):
        message = AclMessage(performative, body=message)
    if properties:
        parameters = dict(message.user_defined)
        for name, value in properties.items():
            if isinstance(value, bool):
                value = str(value).lower()
            parameters[name if name[:2] in ("X-", "x-") else f"X-{name}"] = value
        message = message.replace(user_defined=parameters)
    return message

"""SPADE's presence between agents on Sealbus.

Agents agree on subscriptions by messages, which the platform keeps for an agent that is not there yet. An agent is
available as long as the AMS knows it, unless the agent says otherwise. Contacts last as long as their agent runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from sealbus._sealbus import AclMessage
from sealbus.errors import SealbusError
from sealbus.performative import Performative
from sealbus.spade.jid import JID

if TYPE_CHECKING:
    from sealbus.spade.agent import Agent, _Resident

__all__ = [
    "Contact",
    "ContactNotFound",
    "Presence",
    "PresenceInfo",
    "PresenceManager",
    "PresenceNotFound",
    "PresenceShow",
    "PresenceType",
]

log = logging.getLogger("spade.Agent")

ONTOLOGY = "spade-presence"
"""The ontology of the messages about presence."""

MOST_CONTACTS = 10_000
"""The most contacts of one agent. It does not hear further agents that ask for a subscription."""


MOST_UNSENT = 1000
"""The most messages about presence that wait to be sent. Then the agent hears no further ones."""


class ContactNotFound(Exception):
    """The agent has no such contact."""


class PresenceNotFound(Exception):
    """A contact's presence is unknown."""


class PresenceShow(Enum):
    """The activity of an available agent."""

    EXTENDED_AWAY = "xa"
    AWAY = "away"
    CHAT = "chat"
    DND = "dnd"
    NONE = "none"


class PresenceType(Enum):
    """The kind of a stanza about presence."""

    AVAILABLE = "available"
    UNAVAILABLE = "unavailable"
    ERROR = "error"
    PROBE = "probe"
    SUBSCRIBE = "subscribe"
    SUBSCRIBED = "subscribed"
    UNSUBSCRIBE = "unsubscribe"
    UNSUBSCRIBED = "unsubscribed"


class PresenceInfo:
    """A presence."""

    def __init__(
        self, presence_type: PresenceType, show: PresenceShow, status: str | None = "", priority: int = 0
    ) -> None:
        self.type = presence_type
        self.show = show
        self.status = status
        self.priority = priority

    def is_available(self) -> bool:
        """Whether the agent is available."""
        return self.type is PresenceType.AVAILABLE

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PresenceInfo) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PresenceInfo(Type: {self.type}, Show: {self.show}, Status: {self.status}, Priority: {self.priority})"


@dataclass(frozen=True)
class Stanza:
    """A message of one agent to another about presence."""

    type: PresenceType
    show: PresenceShow = PresenceShow.NONE
    status: str | None = ""
    priority: int = 0
    is_here: bool = True
    """With ``subscribed``: whether the agent is available."""


class Presence(dict[str, Any]):
    """The argument of :attr:`PresenceManager.on_presence_received`: ``from``, ``type``, ``show``, ``status``, ``priority``."""


class Contact:
    """Another agent and its presence, as far as known."""

    def __init__(self, jid: JID, name: str, subscription: str, ask: str, groups: list[str]) -> None:
        self.jid = jid
        self.name = name
        self.subscription = subscription
        """``to``: this agent hears of the contact; ``from``: the contact hears of this agent; ``both``; ``none``."""
        self.ask = ask
        """``subscribe`` while a subscription is not approved."""
        self.groups = groups
        self.resources: dict[str, PresenceInfo] = {}
        self.current_presence: PresenceInfo | None = None
        self.last_presence: PresenceInfo | None = None

    def update_presence(self, resource: str, presence_info: PresenceInfo) -> None:
        """Notes a presence; the one with the highest priority counts."""
        if self.resources.get(resource) == presence_info:
            return
        self.resources[resource] = presence_info
        now = max(self.resources.values(), key=lambda each: each.priority)
        if now != self.current_presence:
            self.last_presence, self.current_presence = self.current_presence, now

    def get_presence(self, resource: str | None = None) -> PresenceInfo:
        """The presence; raises PresenceNotFound if it is unknown."""
        if resource:
            return self.resources[resource]
        if self.current_presence is None:
            raise PresenceNotFound(f"nothing is known of the presence of {self.jid}")
        return self.current_presence

    def update_subscription(self, subscription: str, ask: str) -> None:
        """Sets the direction of the subscription, and whether it awaits approval."""
        self.subscription = subscription
        self.ask = ask

    def is_available(self) -> bool:
        """Whether the contact is available."""
        return self.current_presence is not None and self.current_presence.is_available()

    def is_subscribed(self) -> bool:
        """Whether this agent hears of the contact, or has asked to."""
        return self.subscription in ("both", "to") or self.ask == "subscribe"

    def __repr__(self) -> str:
        return f"Contact(JID: {self.jid}, Name: {self.name}, Presence: {self.current_presence})"


def _nothing(*_: object) -> None:
    """Stands for a function that the program has not set."""


WITH_TO = {"none": "to", "from": "both"}
WITH_FROM = {"none": "from", "to": "both"}


class PresenceManager:
    """An agent's presence, and its contacts. Programs set the attributes ``on_…`` to functions of their own."""

    on_subscribe: Callable[[str], object]
    """Called when an agent asks for a subscription; see :meth:`approve_subscription`."""
    on_subscribed: Callable[[str], object]
    """Called when an agent has approved a subscription."""
    on_unsubscribe: Callable[[str], object]
    """Called when an agent no longer hears of this one."""
    on_unsubscribed: Callable[[str], object]
    """Called when an agent has ended this agent's subscription."""
    on_presence_received: Callable[[Presence], object]
    """Called after :attr:`on_available` and :attr:`on_unavailable`."""
    on_available: Callable[[str, PresenceInfo, PresenceInfo | None], object]
    """Called when a contact becomes available, or changes its presence, with its JID, its present and its former
    presence."""
    on_unavailable: Callable[[str, PresenceInfo, PresenceInfo | None], object]
    """Called when a contact has gone, with its JID, its present and its former presence."""

    def __init__(self, agent: Agent, approve_all: bool = False) -> None:
        self.on_subscribe = self.on_subscribed = self.on_unsubscribe = self.on_unsubscribed = _nothing
        self.on_presence_received = self.on_available = self.on_unavailable = _nothing
        self.agent = agent
        self.approve_all = approve_all
        """Whether every subscription is approved at once."""
        self.contacts: dict[str, Contact] = {}
        self.current_presence: PresenceInfo | None = None
        self._resident: _Resident | None = None
        self._unsent: asyncio.Queue[tuple[str, Stanza]] = asyncio.Queue()
        self._watched: set[str] = set()

    # ----- its own presence

    def is_available(self) -> bool:
        """Whether the agent has said that it is there."""
        return self.current_presence is not None and self.current_presence.is_available()

    def get_presence(self) -> PresenceInfo | None:
        """The presence that the agent has announced."""
        return self.current_presence

    def get_show(self) -> PresenceShow:
        """The agent's activity."""
        return self.current_presence.show if self.current_presence else PresenceShow.NONE

    def get_status(self) -> str | None:
        """The agent's own words about its activity."""
        return self.current_presence.status if self.current_presence else None

    def get_priority(self) -> int:
        """The agent's priority."""
        return self.current_presence.priority if self.current_presence else 0

    def set_presence(
        self,
        presence_type: PresenceType = PresenceType.AVAILABLE,
        show: PresenceShow = PresenceShow.CHAT,
        status: str | None = "",
        priority: int = 0,
    ) -> None:
        """Announces a presence to all agents that hear of this one."""
        self.current_presence = PresenceInfo(presence_type, show, status, priority)
        for bare, contact in self.contacts.items():
            if contact.subscription in ("from", "both"):
                self._tell(bare, presence_type)

    def set_available(self) -> None:
        """Says that the agent is there."""
        self.set_presence(PresenceType.AVAILABLE)

    def set_unavailable(self) -> None:
        """Says that the agent is not there."""
        self.set_presence(PresenceType.UNAVAILABLE, PresenceShow.NONE, None, 0)

    # ----- contacts

    def get_contact(self, jid: str | JID) -> Contact:
        """A contact; raises ContactNotFound."""
        bare = JID(jid).bare
        if bare not in self.contacts:
            raise ContactNotFound(f"{self.agent.jid} has no contact {bare}")
        return self.contacts[bare]

    def get_contact_presence(self, jid: str | JID, resource: str | None = None) -> PresenceInfo:
        """A contact's presence."""
        return self.get_contact(jid).get_presence(resource)

    def get_contacts(self) -> dict[str, Contact]:
        """The contacts that this agent hears of, or has asked to hear of."""
        return {bare: contact for bare, contact in self.contacts.items() if contact.is_subscribed()}

    def subscribe(self, jid: str | JID) -> None:
        """Asks an agent for a subscription, even one that is not there yet."""
        self._contact(JID(jid).bare).ask = "subscribe"
        self._tell(JID(jid).bare, PresenceType.SUBSCRIBE)

    def approve_subscription(self, jid: str | JID) -> None:
        """Lets an agent hear of this one."""
        contact = self._contact(JID(jid).bare)
        contact.subscription = WITH_FROM.get(contact.subscription, contact.subscription)
        self._tell(JID(jid).bare, PresenceType.SUBSCRIBED)

    def unsubscribe(self, jid: str | JID) -> None:
        """Ends this agent's subscription."""
        self._without(JID(jid).bare, WITH_TO)
        self._tell(JID(jid).bare, PresenceType.UNSUBSCRIBE)

    # ----- messages

    def _contact(self, bare: str) -> Contact:
        return self.contacts.setdefault(bare, Contact(JID(bare), bare, "none", "", []))

    def _without(self, bare: str, added: dict[str, str]) -> None:
        contact = self.contacts.get(bare)
        if contact is not None:
            contact.ask = ""
            before = {after: before for before, after in added.items()}
            contact.subscription = before.get(contact.subscription, contact.subscription)

    def _tell(self, bare: str, what: PresenceType) -> None:
        """Queues a message to a contact."""
        own = self.current_presence or PresenceInfo(PresenceType.AVAILABLE, PresenceShow.NONE)
        self._unsent.put_nowait((bare, Stanza(what, own.show, own.status, own.priority, own.is_available())))

    def _open(self, resident: _Resident) -> None:
        """Called when the agent lives: begins to send queued messages."""
        self._resident = resident
        resident.create_task(self._send_all(), supervise="ignore")

    async def _close(self) -> None:
        """Called when the agent leaves: says so, and sends the queued messages."""
        if self._resident is None:
            return
        self.set_unavailable()
        while not self._unsent.empty():
            await self._send_next()
        self._resident = None
        self._watched.clear()

    async def _send_all(self) -> None:
        while True:
            await self._send_next()

    async def _send_next(self) -> None:
        bare, stanza = await self._unsent.get()
        self._unsent.task_done()
        resident = self._resident
        if resident is None:
            return
        message = AclMessage(
            Performative.INFORM, resident.container.aid(JID(bare)), ontology=ONTOLOGY, body=stanza
        )
        try:
            if stanza.type in (PresenceType.AVAILABLE, PresenceType.UNAVAILABLE):
                # News do not wait for room, so a contact that does not read holds up no other.
                resident.tell(message)
            else:
                await resident.send(message, persistent=True)
        except SealbusError as problem:
            log.warning("%s: cannot tell %s of its presence: %s", self.agent.jid, bare, problem)

    async def _hear(self, jid: JID, stanza: Stanza) -> None:
        """Takes in a message of another agent."""
        if self._unsent.qsize() >= MOST_UNSENT:
            # Wait, so that others cannot make this agent write faster than the platform keeps its messages.
            await self._unsent.join()
        bare = jid.bare
        if bare not in self.contacts and len(self.contacts) >= MOST_CONTACTS:
            log.warning("%s: %s is one contact too many", self.agent.jid, bare)
            return
        match stanza.type:
            case PresenceType.SUBSCRIBE:
                self._contact(bare)
                if self.approve_all:
                    self.approve_subscription(bare)
                self._call(self.on_subscribe, bare)
            case PresenceType.SUBSCRIBED:
                contact = self._contact(bare)
                if contact.ask != "subscribe":
                    # Ignore an approval that was not asked for.
                    return
                contact.update_subscription(WITH_TO.get(contact.subscription, contact.subscription), "")
                self._call(self.on_subscribed, bare)
                if stanza.is_here:
                    self._note(bare, PresenceType.AVAILABLE, stanza)
                self._watch(bare)
            case PresenceType.UNSUBSCRIBE:
                self._without(bare, WITH_FROM)
                self._call(self.on_unsubscribe, bare)
            case PresenceType.UNSUBSCRIBED:
                self._without(bare, WITH_TO)
                self._call(self.on_unsubscribed, bare)
            case PresenceType.AVAILABLE | PresenceType.UNAVAILABLE:
                known = self.contacts.get(bare)
                if known is None or known.subscription not in ("to", "both"):
                    return
                # The AMS may have reported this before the contact itself.
                is_gone = known.current_presence is not None and not known.is_available()
                if stanza.type is PresenceType.AVAILABLE or not is_gone:
                    self._note(bare, stanza.type, stanza)
            case _:
                log.warning("%s: %s says %s, which means nothing here", self.agent.jid, bare, stanza.type.value)

    def _note(self, bare: str, what: PresenceType, stanza: Stanza) -> None:
        contact = self.contacts[bare]
        info = PresenceInfo(what, stanza.show, stanza.status, stanza.priority)
        contact.update_presence("", info)
        told = self.on_available if info.is_available() else self.on_unavailable
        self._call(told, bare, info, contact.last_presence)
        presence = Presence(type=what.value, show=stanza.show.value, status=stanza.status, priority=stanza.priority)
        presence["from"] = contact.jid
        self._call(self.on_presence_received, presence)

    def _watch(self, bare: str) -> None:
        """Hears from the AMS when a contact goes without a word, and when it comes back."""
        resident = self._resident
        if resident is not None and bare not in self._watched:
            self._watched.add(bare)
            resident.create_task(self._follow(resident, bare), supervise="ignore")

    async def _follow(self, resident: _Resident, bare: str) -> None:
        async for news in await resident.watch(JID(bare)):
            contact = self.contacts[bare]
            for agent in news:
                is_here = agent.state is not None
                if is_here != contact.is_available() and contact.subscription in ("to", "both"):
                    what = PresenceType.AVAILABLE if is_here else PresenceType.UNAVAILABLE
                    self._note(bare, what, Stanza(what))

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        """Calls a function of the program."""
        try:
            function(*arguments)
        except Exception as raised:
            log.error("%s: %s raised %r", self.agent.jid, getattr(function, "__name__", function), raised, exc_info=raised)

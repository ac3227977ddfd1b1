"""SPADE's messages, and the ACL messages that carry them.

The metadata ``performative``, ``ontology``, ``language``, ``encoding``, ``protocol``, ``conversation-id``, ``reply-with``,
``in-reply-to`` and ``reply-by`` are the parameters of FIPA's ACL (FIPA00061). Other metadata are user-defined parameters, with
``X-`` before their names. A thread is the conversation's id if the metadata name none.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn
from urllib.parse import quote, unquote

from sealbus._sealbus import AclMessage
from sealbus.errors import NotUnderstood
from sealbus.performative import OwnPerformative, Performative
from sealbus.spade.jid import JID
from sealbus.spade.refused import refuse

__all__ = ["Message", "MessageBase"]

PARAMETERS = ("language", "encoding", "ontology", "protocol", "conversation-id", "reply-with", "in-reply-to")
"""Metadata that are text parameters of ACL."""

ACTS = frozenset(str(act) for act in Performative)

ADDED = "X-spade"
"""Lists the parameters of an ACL message that are not from its metadata. A message without this parameter was not written by this
module."""

THREAD = "X-spade-thread"
"""The thread of a message whose conversation has another id."""

WORD = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."


class MessageBase:
    """The common part of messages and templates: receiver, sender, body, thread and metadata."""

    def __init__(
        self,
        to: str | JID | None = None,
        sender: str | JID | None = None,
        body: str | None = None,
        thread: str | None = None,
        metadata: dict[str, str] | None = None,
    ) -> None:
        self.sent = False
        """Whether it was sent by its agent."""
        self.to = to
        self.sender = sender
        self.body = body
        self.thread = thread
        self.metadata = metadata or {}

    @property
    def to(self) -> JID:
        """The receiver; empty if there is none."""
        return self._to

    @to.setter
    def to(self, jid: str | JID | None) -> None:
        self._to = _jid("to", jid)

    @property
    def sender(self) -> JID:
        """The sender; empty if it is not known yet."""
        return self._sender

    @sender.setter
    def sender(self, jid: str | JID | None) -> None:
        self._sender = _jid("sender", jid)

    @property
    def body(self) -> str | None:
        """The text of the message."""
        return self._body

    @body.setter
    def body(self, body: str | None) -> None:
        if body is not None and not isinstance(body, str):
            raise TypeError(f"a body is text, not {type(body).__name__}: write it as text, such as with json.dumps")
        self._body = body

    @property
    def thread(self) -> str | None:
        """The conversation that the message belongs to."""
        return self._thread

    @thread.setter
    def thread(self, thread: str | None) -> None:
        if thread is not None and not isinstance(thread, str):
            raise TypeError(f"a thread is text, not {type(thread).__name__}")
        self._thread = thread

    @property
    def metadata(self) -> dict[str, str]:
        """All metadata."""
        return self._metadata

    @metadata.setter
    def metadata(self, metadata: dict[str, str]) -> None:
        self._metadata: dict[str, str] = {}
        for key, value in metadata.items():
            self.set_metadata(key, value)

    def set_metadata(self, key: str, value: str) -> None:
        """Sets one of the metadata."""
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"metadata are text: {key!r} is {value!r}")
        self._metadata[key] = value

    def get_metadata(self, key: str) -> str | None:
        """One of the metadata, or None."""
        return self._metadata.get(key)

    def empty_to(self) -> bool:
        """Whether there is no receiver."""
        return not self._to

    def empty_sender(self) -> bool:
        """Whether there is no sender."""
        return not self._sender

    def match(self, message: MessageBase) -> bool:
        """Whether a message has everything that this one has."""
        return (
            (not self._to or message.to == self._to)
            and (not self._sender or message.sender == self._sender)
            and (not self._body or message.body == self._body)
            and (not self._thread or message.thread == self._thread)
            and all(message.get_metadata(key) == value for key, value in self._metadata.items())
        )

    @property
    def id(self) -> int:
        """A number that identifies this object."""
        return id(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self.match(other) and other.match(self)

    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> NoReturn:
        refuse(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __str__(self) -> str:
        kind = type(self).__name__.lower()
        body = f"\n{self.body}\n" if self.body else ""
        head = f'<{kind} to="{self.to}" from="{self.sender}" thread="{self.thread}" metadata={self._metadata}>'
        return f"{head}{body}</{kind}>"


class Message(MessageBase):
    """A message."""

    @classmethod
    def from_node(cls, _node: object) -> NoReturn:
        """Raises :class:`~sealbus.spade.NotOffered`: there are no XMPP stanzas here."""
        refuse("from_node")
        raise NotImplementedError

    def make_reply(self) -> Message:
        """The same message from its receiver to its sender. It answers the message's ``reply-with``, if it has one."""
        metadata = self._metadata.copy()
        if "reply-with" in metadata:
            metadata["in-reply-to"] = metadata["reply-with"]
        return Message(to=self.sender, sender=self.to, body=self.body, thread=self.thread, metadata=metadata)


# ----- ACL


def to_acl(message: MessageBase, receiver: str) -> AclMessage:
    """The ACL message that carries a message to this agent."""
    left = dict(message.metadata)
    added = []
    parameters: dict[str, Any] = {}
    performative: str = Performative.INFORM
    # A performative that is not a word of ACL is carried as it is, beside the act.
    named = left.get("performative", "")
    if _is_word(named):
        performative = named if named in ACTS else OwnPerformative(named)
        del left["performative"]
    else:
        added.append("performative")
    for name in PARAMETERS:
        if name in left:
            parameters[name.replace("-", "_")] = left.pop(name)
    extra: dict[str, Any] = {}
    if message.thread is not None:
        if "conversation_id" in parameters:
            extra[THREAD] = message.thread
        else:
            parameters["conversation_id"] = message.thread
            added.append("conversation-id")
    reply_by = _moment(left.get("reply-by"))
    if reply_by is not None:
        # The original text is carried as well.
        parameters["reply_by"] = reply_by
    extra.update((f"X-{quote(key, safe='')}", value) for key, value in left.items())
    extra[ADDED] = " ".join(added)
    return AclMessage(performative, receiver, message.body, user_defined=extra, **parameters)


def from_acl(carried: AclMessage, to: JID, sender: JID | None) -> Message:
    """The message that an ACL message carries. Raises NotUnderstood if its content is not text."""
    body = carried.content
    if isinstance(body, bytes):
        raise NotUnderstood("an agent of sealbus.spade reads text only")
    extra: Mapping[str, Any] = carried.user_defined
    written = extra.get(ADDED)
    added = str(written).split() if written is not None else ()
    metadata: dict[str, str] = {}
    if "performative" not in added:
        metadata["performative"] = str(carried.performative)
    for name in PARAMETERS:
        value = getattr(carried, name.replace("-", "_"))
        if value is not None and name not in added:
            metadata[name] = str(value)
    if written is None and carried.reply_by is not None:
        moment = carried.reply_by
        metadata["reply-by"] = moment.isoformat() if isinstance(moment, datetime) else str(moment)
    for name, value in extra.items():
        if name not in (ADDED, THREAD):
            metadata[unquote(name[2:])] = str(value)
    conversation = carried.conversation_id
    thread = extra.get(THREAD)
    if thread is None and conversation is not None and (written is None or "conversation-id" in added):
        thread = conversation
    return Message(to, sender, body, None if thread is None else str(thread), metadata)


def _is_word(text: str) -> bool:
    """Whether every encoding can carry this user-defined performative."""
    return text == text.lower() and text[:1].isalpha() and all(each in WORD for each in text)


def _moment(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment.astimezone()


def _jid(name: str, jid: object) -> JID:
    if jid is None:
        return JID()
    if isinstance(jid, str | JID):
        return JID(jid)
    raise TypeError(f"{name!r} is a JID or text, not {type(jid).__name__}")

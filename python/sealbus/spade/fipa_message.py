"""SPADE's way to make messages with FIPA's parameters, and to read them."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timedelta
from typing import Any, ClassVar, Self
from uuid import uuid4

from sealbus.performative import Performative
from sealbus.spade.message import Message

__all__ = ["FIPAMessageBuilder", "FIPAMessageParser", "InvalidPerformativeError", "PerformativeNotSetError"]

log = logging.getLogger("spade.Message")

UNKNOWN = "unknown"


class InvalidPerformativeError(ValueError):
    """FIPA has no such performative."""

    def __init__(self, performative: str, valid_performatives: str) -> None:
        super().__init__(f"{performative!r} is none of FIPA's performatives: {valid_performatives}")
        self.performative = performative
        self.valid_performatives = valid_performatives


class PerformativeNotSetError(ValueError):
    """A message has no performative."""

    def __init__(self) -> None:
        super().__init__("the message has no performative: call set_performative() before build()")


class FIPAMessageBuilder:
    """Makes a message step by step: ``FIPAMessageBuilder(sender, receiver).set_performative("inform").set_body(value).build()``."""

    PERFORMATIVES: ClassVar[dict[str, str]] = {str(act): (act.__doc__ or "") for act in Performative}
    LANGUAGES: ClassVar[dict[str, str]] = {
        "fipa-sl": "FIPA's Semantic Language",
        "fipa-sl0": "its level 0",
        "fipa-sl1": "its level 1",
        "fipa-sl2": "its level 2",
        "json": "JSON",
        "xml": "XML",
        "string": "plain text",
    }
    PROTOCOLS: ClassVar[dict[str, str]] = {
        name: name.removeprefix("fipa-").replace("-", " ")
        for name in (
            "fipa-request",
            "fipa-query",
            "fipa-subscribe",
            "fipa-propose",
            "fipa-contract-net",
            "fipa-brokering",
            "fipa-recruiting",
        )
    }

    def __init__(self, sender: str, receiver: str) -> None:
        self.message = Message(sender=sender, to=receiver)
        self.metadata: dict[str, str] = {
            "conversation-id": f"conv-{uuid4().hex[:8]}",
            "reply-with": f"msg-{uuid4().hex[:8]}",
            "encoding": "utf-8",
            "language": "json",
            "ontology": "fipa-agent-communication",
            "creation-timestamp": datetime.now().isoformat(),
        }

    def _set(self, name: str, value: str) -> Self:
        self.metadata[name] = value
        return self

    def set_performative(self, performative: str) -> Self:
        """Sets the performative."""
        if performative not in self.PERFORMATIVES:
            raise InvalidPerformativeError(performative, ", ".join(sorted(self.PERFORMATIVES)))
        return self._set("performative", performative)

    def set_body(self, content: Any, as_json: bool = True) -> Self:
        """Sets the body: a value to write as JSON, or text that is JSON; without `as_json` plain text."""
        is_text = isinstance(content, str)
        self.message.body = json.dumps(content, ensure_ascii=False) if as_json and not is_text else str(content)
        self._set("content-type", "application/json" if as_json else "text/plain")
        return self._set("language", "json" if as_json else "string")

    def set_language(self, language: str) -> Self:
        """Sets the language of the body."""
        return self._set("language", language)

    def set_protocol(self, protocol: str) -> Self:
        """Sets the interaction protocol."""
        return self._set("protocol", protocol)

    def set_ontology(self, ontology: str) -> Self:
        """Sets the ontology."""
        return self._set("ontology", ontology)

    def set_conversation_id(self, conversation_id: str) -> Self:
        """Sets the conversation, instead of a new one."""
        return self._set("conversation-id", conversation_id)

    def set_in_reply_to(self, reply_to: str) -> Self:
        """Says which message this one answers: the one with this ``reply-with``."""
        return self._set("in-reply-to", reply_to)

    def set_reply_by(self, minutes: int = 5) -> Self:
        """Sets the latest moment for an answer, in minutes from now."""
        return self._set("reply-by", (datetime.now() + timedelta(minutes=minutes)).isoformat())

    def set_custom_metadata(self, key: str, value: Any) -> Self:
        """Sets one of the other metadata."""
        return self._set(str(key), str(value))

    def build(self) -> Message:
        """The message."""
        if "performative" not in self.metadata:
            raise PerformativeNotSetError
        self.message.metadata = self.metadata
        return self.message

    @classmethod
    def create_inform_message(cls, sender: str, receiver: str, content: Any, ontology: str = "general") -> Message:
        """An ``inform``."""
        builder = cls(sender, receiver).set_performative("inform").set_body(content)
        return builder.set_ontology(ontology).set_protocol("fipa-subscribe").build()

    @classmethod
    def create_request_message(
        cls, sender: str, receiver: str, action: str, parameters: dict[str, Any] | None = None
    ) -> Message:
        """A ``request`` for an action, to be answered within ten minutes."""
        content = {"action": action, "parameters": parameters or {}, "timestamp": datetime.now().isoformat()}
        builder = cls(sender, receiver).set_performative("request").set_body(content)
        return builder.set_ontology("action-request").set_protocol("fipa-request").set_reply_by(10).build()

    @classmethod
    def create_response_message(cls, original_msg: Message, content: Any, performative: str = "confirm") -> Message:
        """An answer to a message, in its conversation."""
        asked = original_msg.metadata
        builder = cls(str(original_msg.to), str(original_msg.sender)).set_performative(performative).set_body(content)
        builder.set_ontology(asked.get("ontology", "response")).set_protocol(asked.get("protocol", "fipa-request"))
        builder.set_conversation_id(asked.get("conversation-id", UNKNOWN))
        return builder.set_in_reply_to(asked.get("reply-with", "")).build()


class FIPAMessageParser:
    """Reads a message."""

    def __init__(self, message: Message) -> None:
        self.message = message
        self.metadata = message.metadata

    def get_performative(self) -> str:
        """The performative, or ``unknown``."""
        return self.metadata.get("performative", UNKNOWN)

    def get_conversation_id(self) -> str:
        """The conversation, or ``unknown``."""
        return self.metadata.get("conversation-id", UNKNOWN)

    def get_ontology(self) -> str:
        """The ontology, or ``unknown``."""
        return self.metadata.get("ontology", UNKNOWN)

    def get_language(self) -> str:
        """The language of the body, or ``unknown``."""
        return self.metadata.get("language", UNKNOWN)

    def get_protocol(self) -> str:
        """The interaction protocol, or ``unknown``."""
        return self.metadata.get("protocol", UNKNOWN)

    def get_reply_with(self) -> str:
        """The word that an answer repeats, or nothing."""
        return self.metadata.get("reply-with", "")

    def get_custom_metadata(self, key: str, default: Any = None) -> Any:
        """One of the other metadata."""
        return self.metadata.get(key, default)

    def parse_body(self) -> Any:
        """The value of a body that is JSON or looks like it; any other body as it is."""
        body = self.message.body or ""
        if self.get_language() == "json" or body.lstrip().startswith(("{", "[")):
            try:
                return json.loads(body)
            except (ValueError, RecursionError):
                pass
        return self.message.body

    def is_valid_fipa_message(self) -> bool:
        """Whether the message is in order."""
        return self.validate_fipa_message()[0]

    def validate_fipa_message(self) -> tuple[bool, str]:
        """Whether the message is in order, and its mistakes."""
        performative = self.metadata.get("performative")
        if performative is None:
            return False, "the message has no performative"
        if performative not in FIPAMessageBuilder.PERFORMATIVES:
            return False, f"{performative!r} is none of FIPA's performatives"
        if "conversation-id" not in self.metadata:
            return False, "the message has no conversation-id"
        if self.get_language() == "json":
            try:
                json.loads(self.message.body or "")
            except (ValueError, RecursionError):
                return False, "the body is not JSON"
        return True, ""

    def print_debug_info(self) -> str:
        """Logs the message, and returns the logged text."""
        text = str(self.message)
        log.info("%s", text)
        return text

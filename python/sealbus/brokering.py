"""Brokering and recruiting: an agent finds others for a message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sealbus import _sealbus, acl
from sealbus._sealbus import AID, AclMessage, Message, ServiceDescription
from sealbus.conversation import BACKLOG, InitiatorConversation
from sealbus.directory import Others, agents_of
from sealbus.errors import AclError, BodyError, Failure
from sealbus.performative import Performative

if TYPE_CHECKING:
    from sealbus.life import Life
    from sealbus.participation import ParticipantConversation

__all__ = ["Proxy"]


@dataclass(frozen=True)
class Proxy:
    """A message for agents that the broker must find."""

    service: str
    """The type of the service that the agents offer."""
    message: str
    """The message, in FIPA's string encoding."""

    @classmethod
    def of(cls, service: str, message: AclMessage) -> Proxy:
        """Embeds a message."""
        return cls(service, acl.encode(message, "string").decode())

    @classmethod
    def read(cls, message: Message) -> Proxy:
        """The body of a ``proxy``."""
        proxy = message.body_as(cls)
        proxy.embedded()
        return proxy

    @property
    def wanted(self) -> ServiceDescription:
        """The service, as a template for the DF."""
        return ServiceDescription.of_type(self.service)

    def embedded(self) -> AclMessage:
        """The message itself."""
        try:
            return acl.decode(self.message.encode(), "string")
        except AclError as problem:
            raise BodyError("$.message", str(problem)) from None


class _Errand(InitiatorConversation):
    """The conversation of a broker with the agents that it found."""

    def __init__(self, life: Life, to: list[AID], protocol: str, timeout: float) -> None:
        super().__init__(life, to, timeout)
        self.protocol = protocol
        self.answers: list[Message] = []

    def _has_room(self) -> bool:
        return len(self.answers) < BACKLOG

    def _heard(self, meaning: str, message: Message, sender: AID) -> None:
        if message.performative == Performative.INFORM:
            self.answers.append(message)

    async def run(self, message: AclMessage, talk: ParticipantConversation) -> int:
        """Passes each answer on. Returns the number of answers."""
        await self._begin(message, self._timeout, is_whole=True)
        passed = 0
        try:
            while True:
                answer = await self._until(self._next_answer)
                # There is room for one more message.
                self.wake()
                if answer is False:
                    return passed
                assert isinstance(answer, Message)
                content = AclMessage(
                    Performative.INFORM,
                    content=answer.content,
                    language=answer.language,
                    encoding=answer.encoding,
                    ontology=answer.ontology,
                )
                await talk.say(Performative.INFORM, content)
                passed += 1
        finally:
            self._leave()

    def _next_answer(self) -> Message | bool | None:
        if self.answers:
            return self.answers.pop(0)
        return False if self._opened.has_ended else None


async def _found(life: Life, proxy: Proxy, targets: Others) -> list[AID]:
    found = await agents_of(life, targets)
    if not found:
        raise Failure(f"failure-no-match: nobody offers {proxy.service[:100]}")
    return found


async def pass_on(
    life: Life, talk: ParticipantConversation, proxy: Proxy, targets: Others, timeout: float
) -> None:
    """Sends the message to the agents, in a conversation of its own, and passes the answers on."""
    message = proxy.embedded()
    protocol = _sealbus.opened_by(message)
    if protocol is None:
        raise Failure(f"failure-brokering: {message.performative} opens no protocol")
    errand = _Errand(life, await _found(life, proxy, targets), protocol, timeout)
    # The agents must answer the broker, whatever the message says.
    if not await errand.run(message.replace(reply_to=None, sender=None), talk):
        raise Failure("failure-brokering: nobody gave an answer")


async def recruit(life: Life, call: Message, proxy: Proxy, targets: Others) -> None:
    """Sends the message to the agents. They answer the initiator, or the agent that the message names for answers."""
    message = proxy.embedded()
    designated = message.reply_to[0] if message.reply_to else call.sender
    assert designated is not None
    forwarded = _sealbus.forward(message, call, await _found(life, proxy, targets), designated)
    unsent = life.handle.try_send(forwarded.replace(sender=life.handle.aid))
    if unsent is not None:
        await life.finish(unsent)

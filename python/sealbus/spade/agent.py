"""SPADE's agents, each of which has an agent of Sealbus behind it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextvars import ContextVar
from hashlib import md5
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from sealbus._sealbus import AclMessage, AmsAgentDescription, Message as Received
from sealbus.agent import Agent as Resident
from sealbus.behaviour import Behaviour, Step
from sealbus.clock import Clock
from sealbus.errors import AgentStopped, PlatformError, SealbusError, SendError
from sealbus.mark import on
from sealbus.spade.behaviour import CyclicBehaviour
from sealbus.spade.container import AuthenticationFailure, Container
from sealbus.spade.jid import JID
from sealbus.spade.message import Message, from_acl, to_acl
from sealbus.spade.presence import ONTOLOGY, PresenceManager, Stanza
from sealbus.spade.refused import NotOffered, refuse
from sealbus.spade.template import BaseTemplate
from sealbus.spade.trace import TraceStore

if TYPE_CHECKING:
    from sealbus.directory import Subscription

__all__ = ["Agent", "AuthenticationFailure", "DisconnectedException"]

log = logging.getLogger("spade.Agent")

_T = TypeVar("_T")

TRACES = 1000
"""Messages whose traces an agent keeps."""

_inside: ContextVar[Agent | None] = ContextVar("_inside", default=None)
"""The agent whose own code runs."""


class DisconnectedException(SealbusError):
    """Never raised: there is no server."""


class Agent:
    """An agent with behaviours.

    The platform certifies it under the node of its JID. `password`, `port` and `verify_security` are for XMPP servers and have
    no effect.
    """

    def __init__(self, jid: str | JID, password: str, port: int = 5222, verify_security: bool = False) -> None:
        self.jid = JID(jid)
        if not self.jid.node:
            raise ValueError(f"the agent's JID {str(jid)!r} has no node: write node@domain, such as 'buyer@localhost'")
        self.password = password
        self.xmpp_port = port
        self.verify_security = verify_security
        self.behaviours: list[CyclicBehaviour] = []
        self.presence = PresenceManager(self)
        self.traces = TraceStore(TRACES)
        self._values: dict[str, Any] = {}
        self._resident: _Resident | None = None
        self._is_alive = False
        self._is_starting = False
        self._is_over = asyncio.Event()
        self._is_over.set()

    # ----- for programs to override

    async def setup(self) -> None:
        """Called once, when the agent is certified and before its behaviours begin."""

    async def _hook_plugin_before_connection(self) -> None:
        """For plug-ins: called before the agent is certified."""

    async def _hook_plugin_after_connection(self) -> None:
        """For plug-ins: called before :meth:`setup`."""

    # ----- identity

    @property
    def name(self) -> str:
        """The node of the JID."""
        return self.jid.node

    @property
    def avatar(self) -> str:
        """The address of a picture."""
        return self.build_avatar_url(self.jid.bare)

    @staticmethod
    def build_avatar_url(jid: str) -> str:
        """The address of a picture for a JID."""
        return f"http://www.gravatar.com/avatar/{md5(str(jid).encode(), usedforsecurity=False).hexdigest()}?d=monsterid"

    @property
    def container(self) -> Container:
        """The program's place on its platform."""
        return Container.current()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""
        return asyncio.get_running_loop()

    def is_alive(self) -> bool:
        """Whether the agent was started and not stopped."""
        return self._is_alive

    def set(self, name: str, value: Any) -> None:
        """Notes something under a name."""
        self._values[name] = value

    def get(self, name: str) -> Any:
        """The value noted under this name, or None."""
        return self._values.get(name)

    # ----- behaviours

    def add_behaviour(self, behaviour: CyclicBehaviour, template: BaseTemplate | None = None) -> None:
        """Adds a behaviour, which takes the messages that the template takes. It begins when the agent is alive."""
        behaviour.set_agent(self)
        behaviour.set_template(template)
        self.behaviours.append(behaviour)
        if self._is_alive:
            behaviour.start()

    def remove_behaviour(self, behaviour: CyclicBehaviour) -> None:
        """Kills a behaviour and forgets it."""
        if behaviour not in self.behaviours:
            raise ValueError(f"{self.jid} has no behaviour {behaviour}")
        behaviour.kill()
        self.behaviours.remove(behaviour)

    def has_behaviour(self, behaviour: CyclicBehaviour) -> bool:
        """Whether the agent has this behaviour."""
        return behaviour in self.behaviours

    def submit(self, coro: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Lets a coroutine run beside the behaviours, as long as the agent lives."""
        return self._on_platform.create_task(coro, supervise="ignore")

    def dispatch(self, msg: Message) -> None:
        """Gives a message to each behaviour that takes it."""
        takers = [behaviour for behaviour in self.behaviours if behaviour.match(msg)]
        for behaviour in takers:
            behaviour._inbox.put(msg)
            self.traces.append(msg, category=str(behaviour))
        if not takers:
            log.warning("%s: no behaviour takes %s", self.jid, msg)
            self.traces.append(msg)

    # ----- its life

    async def start(self, auto_register: bool = True) -> None:
        """Has the agent certified and starts it; returns when it is set up. `auto_register` has no effect."""
        await Container.current().start([self])

    async def stop(self) -> None:
        """Ends the behaviours and leaves the platform. Called from outside, it returns when the agent has left."""
        self._quit()
        if _inside.get() is not self:
            await self._settled()

    def _quit(self) -> None:
        self._end()
        if self._resident is not None:
            self._resident.leave()

    async def _finished(self) -> None:
        """Waits until the agent is no longer alive, and has left."""
        await self._is_over.wait()
        await self._settled()

    def _end(self) -> None:
        self._is_alive = False
        self._is_over.set()
        for behaviour in self.behaviours.copy():
            behaviour._interrupt()

    async def _settled(self) -> None:
        """If a life of this agent is ending, waits until it has ended."""
        if self._resident is not None and not self._is_alive:
            await self._resident.has_left()

    def _move_in(self, container: Container) -> _Resident:
        """The agent of Sealbus for the next life of this one."""
        if self._is_alive:
            raise PlatformError(f"agent {self.jid} has been started already")
        self._resident = _Resident(self, container)
        return self._resident

    async def _wake(self) -> None:
        """Sets the agent up and begins the behaviours."""
        _inside.set(self)
        await self._hook_plugin_after_connection()
        await self.setup()
        self._is_alive = True
        self._is_over.clear()
        for behaviour in self.behaviours:
            if not behaviour.is_running:
                behaviour.start()

    @property
    def _on_platform(self) -> _Resident:
        if self._resident is None:
            raise AgentStopped(str(self.jid), "is not on a platform; await start() first")
        return self._resident

    @property
    def _clock(self) -> Clock:
        return self._on_platform.clock

    def _begin(self, work: Step, name: str) -> Behaviour:
        async def run() -> None:
            _inside.set(self)
            await work()

        return self._on_platform.begin(run, name=name)

    def _forget(self, behaviour: CyclicBehaviour) -> None:
        if behaviour in self.behaviours:
            self.behaviours.remove(behaviour)

    async def _send(self, message: Message) -> None:
        if message.empty_sender():
            message.sender = self.jid
        elif message.sender.bare != self.jid.bare:
            problem = f"cannot send in the name of {message.sender}: the platform proves senders; make a new Message"
            raise SendError(str(self.jid), problem)
        if message.empty_to():
            raise SendError(str(self.jid), "the message has no receiver: set 'to'")
        resident = self._on_platform
        await resident.send(to_acl(message, resident.container.aid(message.to)))

    async def _hear(self, received: Received) -> None:
        """Gives a message of the platform to the behaviours."""
        container = self._on_platform.container
        lost = received.undelivered
        sender = container.jid(received.sender.name) if received.sender else None
        message = from_acl(received, self.jid, sender)
        if lost is not None:
            receiver, reason = lost
            log.warning("%s: a message for %s was not delivered: %s", self.jid, receiver, reason)
            # Only behaviours with a matching template expect messages of the platform.
            for behaviour in self.behaviours:
                if behaviour.template is not None and behaviour.match(message):
                    behaviour._inbox.put(message)
        else:
            self.dispatch(message)
        for behaviour in self.behaviours.copy():
            await behaviour._inbox.room(self._clock, str(behaviour))

    def __getattr__(self, name: str) -> NoReturn:
        refuse(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __str__(self) -> str:
        return str(self.jid)


class _Resident(Resident):
    """The agent of Sealbus that stands on the platform for an agent of SPADE."""

    def __init__(self, inner: Agent, container: Container) -> None:
        super().__init__(inner.name)
        self.inner = inner
        self.container = container
        self.has_woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def setup(self) -> None:
        try:
            await self.inner._wake()
        except BaseException as raised:
            # The caller of `start` gets the exception.
            if not self.has_woken.done():
                self.has_woken.set_exception(raised)
            self.inner._end()
            self.stop()
            if not isinstance(raised, Exception):
                raise
        else:
            self.inner.presence._open(self)
            if not self.has_woken.done():
                self.has_woken.set_result(None)

    def heed_end(self) -> None:
        """Tells the caller of `start` if the agent ends before it was set up."""
        life = self._living
        assert life._task is not None

        def ended(_: asyncio.Task[None]) -> None:
            self.inner._end()
            if not self.has_woken.done():
                self.has_woken.set_exception(life.failure or AgentStopped(life.name, "was stopped before it was set up"))

        life._task.add_done_callback(ended)

    async def on_message(self, message: Received) -> None:
        await self.inner._hear(message)

    @on("inform", ontology=ONTOLOGY, body=Stanza)
    async def hear_presence(self, message: Received[Stanza]) -> None:
        """Hears of another agent's presence."""
        await self.inner.presence._hear(self.container.jid(message.sender_name), message.body)

    async def save(self) -> bytes:
        raise NotOffered("an agent of sealbus.spade cannot move: derive it from sealbus.Agent, with save() and restore()")

    async def teardown(self) -> None:
        self.inner._end()
        await self.inner.presence._close()

    def tell(self, message: AclMessage) -> None:
        """Sends a message if the receiver has room for it."""
        if self._living.handle.try_send(message) is not None:
            log.warning("%s: %s has no room for a message", self.aid.name, message.receivers[0].name)

    async def watch(self, jid: JID) -> Subscription[AmsAgentDescription]:
        """Subscribes to the coming and going of an agent of this platform."""
        return await self.ams.subscribe(AmsAgentDescription(self.peer(self.container.aid(jid))))

    def leave(self) -> None:
        """Lets the agent leave, if it is on the platform."""
        if self._life is not None:
            self.stop()

    async def has_left(self) -> None:
        """Waits until the agent has left."""
        if self._life is not None:
            await self._life.ended()

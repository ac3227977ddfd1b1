"""The names of SPADE's agents."""

from __future__ import annotations

from functools import total_ordering


@total_ordering
class JID:
    """A name such as ``buyer@localhost/phone``: a node, a domain and a resource, of which any may be missing.

    The domain is in lower case; the node keeps its case, since names of agents have one.
    """

    __slots__ = ("_domain", "_node", "_resource")

    def __init__(self, jid: str | JID = "") -> None:
        bare, _, self._resource = str(jid).partition("/")
        self._node, at, domain = bare.rpartition("@")
        self._domain = domain.lower()
        if (at and not self._node) or (str(jid) and not domain):
            raise ValueError(f"{str(jid)!r} is not a JID: write node@domain, such as 'buyer@localhost'")

    @property
    def node(self) -> str:
        """The part before the ``@``: the agent's local name."""
        return self._node

    @property
    def domain(self) -> str:
        """The part after the ``@``: the platform."""
        return self._domain

    @property
    def resource(self) -> str:
        """The part after the ``/``. Sealbus has no resources, so messages do not carry it."""
        return self._resource

    @property
    def bare(self) -> str:
        """The JID without its resource."""
        return f"{self._node}@{self._domain}" if self._node else self._domain

    @property
    def full(self) -> str:
        """The whole JID."""
        return str(self)

    # Slixmpp has these names, too.
    user = username = local = localpart = node
    host = server = domain

    def __str__(self) -> str:
        return f"{self.bare}/{self._resource}" if self._resource else self.bare

    def __repr__(self) -> str:
        return f"JID({str(self)!r})"

    def __bool__(self) -> bool:
        return bool(str(self))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            try:
                other = JID(other)
            except ValueError:
                return False
        return isinstance(other, JID) and str(self) == str(other)

    def __lt__(self, other: JID) -> bool:
        return str(self) < str(other)

    def __hash__(self) -> int:
        return hash(str(self))

"""Workload tokens: an agent proves its identity outside the platform."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sealbus._sealbus import AclMessage
from sealbus.directory import ANSWER_TIME, consult
from sealbus.errors import WorkloadTokenError
from sealbus.performative import Performative

if TYPE_CHECKING:
    from sealbus.life import Life


@dataclass(frozen=True)
class WorkloadToken:
    """A signed JWT (RFC 7519) that identifies its bearer as an agent, from :meth:`sealbus.Agent.workload_token`.

    Its text is the token itself, for ``f"Bearer {token}"``. Its representation in a log omits the token.
    """

    value: str = field(repr=False)
    """The token."""
    expires: datetime
    """The end of its validity."""

    def __str__(self) -> str:
        return self.value


async def workload_token(life: Life, audience: str) -> WorkloadToken:
    """A token for one agent, from the platform's CA."""
    ask = {"ask": "workload-token", "audience": audience}
    request = AclMessage(Performative.REQUEST, "ca", json.dumps(ask), ontology="sealbus-platform", language="json")
    answer = await consult(life, request, ANSWER_TIME)
    try:
        told: dict[str, Any] = json.loads(answer.text)
        if answer.performative is Performative.INFORM:
            return WorkloadToken(told["token"], datetime.fromtimestamp(told["expires"] / 1000, UTC))
        advice = told.get("advice")
        cause = told["message"] + (f" ({advice})" if advice else "")
    except (ValueError, KeyError, TypeError):
        cause = f"the CA answered {answer.performative}, and the answer cannot be read"
    raise WorkloadTokenError(life.name, cause)

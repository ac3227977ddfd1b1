"""Agents of a platform that talk to each other."""

from __future__ import annotations

import json
from typing import Any

from harness import Platform, wait_for

MANY = 300


def order(platform: Platform, agent: str, *words: Any) -> Any:
    return json.loads(platform.send(agent, json.dumps(words)))


def heard_of(platform: Platform, agent: str, sender: str) -> list[int]:
    numbers: list[int] = order(platform, agent, "heard").get(sender, [])
    return numbers


def heard(platform: Platform, agent: str, sender: str, times: int) -> None:
    def look() -> list[int] | None:
        numbers = heard_of(platform, agent, sender)
        return numbers if len(numbers) >= times * MANY else None

    numbers = wait_for(look, f"{agent} to hear {times} × {MANY} numbers from {sender}", also=platform.logs)
    assert numbers == list(range(MANY)) * times


def talk(platform: Platform, times: int = 1) -> None:
    """Alice and Bob send each other numbers, for the first, second … time: each arrives once and in order."""
    # The operator's agent is written in Rust, the others in Python.
    assert order(platform, "alice", "echo", "hello") == "hello"
    order(platform, "alice", "send", "bob", MANY, 0)
    order(platform, "bob", "send", "alice", MANY, 0)
    heard(platform, "bob", "alice", times)
    heard(platform, "alice", "bob", times)

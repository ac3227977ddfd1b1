"""Histories that each process wrote itself, and the broken promises that they prove."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Event = list[Any]

#: The numbers that a life sends.
LIFE = 1_000_000
#: As long as it sends no more than this, a sender may not have been told yet of the messages that a receiver left behind by a move.
UNDER_WAY = 500


def history(file: Path) -> list[Event]:
    """The whole lines of a history; the last one may be half written."""
    if not file.exists():
        return []
    text = file.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


@dataclass
class Verdict:
    """The verdict on one sender and one receiver, for each number that was sent."""

    accepted: set[int] = field(default_factory=set)
    heard: set[int] = field(default_factory=set)
    told: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    #: Accepted, never heard, and the sender was not told.
    lost: set[int] = field(default_factory=set)
    #: Heard more than once, without a mark.
    doubled: list[int] = field(default_factory=list)
    #: Heard after a later one, without a mark.
    reordered: list[int] = field(default_factory=list)
    #: Heard, and never sent.
    invented: set[int] = field(default_factory=set)

    def is_clean(self) -> bool:
        return not (self.lost or self.doubled or self.reordered or self.invented)

    def __str__(self) -> str:
        counts = ", ".join(f"{len(getattr(self, name))} {name}" for name in ("accepted", "heard", "told", "refused"))
        faults = [
            f"{len(found)} {name}: {sorted(found)[:20]}"
            for name in ("lost", "doubled", "reordered", "invented")
            if (found := getattr(self, name))
        ]
        return "; ".join([counts, *faults])


def judge(sent: Iterable[Event], received: Iterable[Event], sender: str, kind: str) -> Verdict:
    """Compares the history of a sender with that of a receiver.

    A sender that is killed cannot be told: the last messages of a life that was killed are excused, unless they were kept on
    disk before they were accepted. So are the events that waited where the receiver was before a move: they come back to their
    sender, which may be killed before that, or while they come, or the process in which they wait is killed with it. A message
    counts as delivered when the receiver has taken it: the one that a killed receiver had in hand is excused. With it go the direct
    messages that its process had and that it had not read: docs/transports.md says that nobody is told of them.
    """
    verdict = Verdict()
    begun: set[int] = set()
    #: The numbers that each killed life had accepted, and the one that it was told of last. The last life may still be told.
    killed: list[tuple[set[int], int]] = []
    last_life = None
    for life in lives(sent):
        accepted = set()
        told_last = -1
        for event, *values in life:
            match event, values:
                case "begun", [number]:
                    begun.add(number)
                case "accepted", [number]:
                    accepted.add(number)
                case "refused", [number, *_]:
                    verdict.refused.add(number)
                case "told", [number, *_]:
                    verdict.told.add(number)
                    told_last = number
        verdict.accepted |= accepted
        if last_life is not None:
            killed.append(last_life)
        # Numbers under way when the life was saved may be noted after that.
        was_moved = any(event[0] == "saved" for event in life[-4:])
        last_life = None if was_moved else (accepted, told_last)
    last: dict[int, int] = {}
    gaps = 0
    #: The last number heard before each kill of the receiver, and the first one after it.
    kills: list[tuple[int, int]] = []
    killed_at: int | None = None
    #: The last number heard before each move of the receiver, the first one after it, and whether its former process has ended
    #: in order.
    moves: list[tuple[int, int, bool]] = []
    moved_at: int | None = None
    latest, before, left_life = None, "", -1
    received = list(received)
    ended = {event[1] for event in received if event[0] == "ended"}
    for event, *values in received:
        if event == "life" and latest is not None:
            if before == "saved":
                moved_at, left_life = latest, values[0] - 1
            else:
                killed_at = latest
        before = before if event == "ended" else event
        if event != "heard" or values[0] != sender:
            continue
        _, number, again, missed = values
        gaps += missed
        if moved_at is not None:
            moves.append((moved_at, number, left_life in ended))
            moved_at = None
        if killed_at is not None:
            kills.append((killed_at, number))
            killed_at = None
        if number in verdict.heard and not again:
            verdict.doubled.append(number)
        elif number < last.get(number // LIFE, -1) and not again:
            verdict.reordered.append(number)
        verdict.heard.add(number)
        latest = number
        last[number // LIFE] = max(number, last.get(number // LIFE, -1))
    verdict.invented = verdict.heard - begun
    missing = verdict.accepted - verdict.heard - verdict.told
    if kind != "durable":
        missing -= {taken + 1 for taken, _ in kills}
    if kind in ("direct", "sealed-direct"):
        missing -= {number for number in missing if any(taken < number < first for taken, first in kills)}
    if kind in ("direct", "sealed-direct", "channel", "sealed"):
        for accepted, told_last in killed:
            arrived = accepted & verdict.heard
            missing -= {number for number in accepted if number > max(arrived, default=-1)}
            if kind not in ("direct", "sealed-direct"):
                under_way = max(accepted, default=-1) - UNDER_WAY
                for left, first, has_ended in moves:
                    if under_way < first or left < told_last < first or not has_ended:
                        missing -= {number for number in accepted if left < number < first}
    # Events that retention or a slow subscription left out are counted to the receiver.
    verdict.lost = missing if len(missing) > gaps else set()
    return verdict


def lives(events: Iterable[Event]) -> list[list[Event]]:
    """The events of each process, from the first process on. Two may write at the same time, if one is on a node that was cut off."""
    found: dict[int, list[Event]] = {}
    for event in events:
        match event:
            case ["life" | "saved", life]:
                found.setdefault(life, []).append(event)
            case ["begun" | "accepted" | "unheard" | "refused" | "told", number, *_]:
                found.setdefault(number // LIFE, []).append(event)
    return [found[life] for life in sorted(found)]

"""Histories that each process wrote itself, and the broken promises that they prove."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Event = list[Any]

#: The numbers that a life sends.
LIFE = 1_000_000
#: As long as it sends no more than this, a sender may not have been told yet of the messages that a receiver left behind by a move.
UNDER_WAY = 500

#: The kinds of traffic.
DIRECT = ("direct", "sealed-direct")
TRANSIENT = ("channel", "sealed")
KEPT = ("persistent", "durable")
KINDS = (*DIRECT, *TRANSIENT, *KEPT)
#: A failure with these words says no more (`UndeliverableReason::ProcessUnreachable`).
IN_DOUBT = "whether it received the message is not known"
#: The broken promises of a verdict.
FAULTS = ("lost", "told_falsely", "doubled", "reordered", "invented")


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
    #: Heard, and the sender was told that it was not delivered.
    told_falsely: set[int] = field(default_factory=set)
    #: Heard more than once, without a mark.
    doubled: list[int] = field(default_factory=list)
    #: Heard after a later one, without a mark.
    reordered: list[int] = field(default_factory=list)
    #: Heard, and never sent.
    invented: set[int] = field(default_factory=set)

    def is_clean(self) -> bool:
        return not any(getattr(self, name) for name in FAULTS)

    def __str__(self) -> str:
        counts = ", ".join(f"{len(getattr(self, name))} {name}" for name in ("accepted", "heard", "told", "refused"))
        faults = [
            f"{len(found)} {name}: {sorted(found)[:20]}"
            for name in FAULTS
            if (found := getattr(self, name))
        ]
        return "; ".join([counts, *faults])


def judge(
    sent: Iterable[Event],
    received: Iterable[Event],
    sender: str,
    kind: str,
    *,
    silent: bool = False,
    order_given_up: bool = False,
) -> Verdict:
    """Compares the history of a sender with that of a receiver. `silent`: processes did not run for longer than publishers wait for
    a silent one (30 s). `order_given_up`: a node no longer waited for the persistent messages that another node kept. They may come
    after newer ones, in order among themselves (docs/architecture.md, "Messages for absent agents").

    A sender that is killed cannot be told: the last messages of a life that was killed are excused, unless they were kept on
    disk before they were accepted. So are the events that waited where the receiver was before a move: they come back to their
    sender, which may be killed before that, or while they come, or the process in which they wait is killed with it. A message
    counts as delivered when the receiver has taken it: the one that a killed receiver had in hand is excused. With it go the direct
    messages that its process had and that it had not read: docs/transports.md says that nobody is told of them.
    """
    verdict = Verdict()
    begun: set[int] = set()
    told: dict[int, str] = {}
    #: The log that has a number.
    logs: dict[int, str | None] = {}
    #: The numbers that each killed life had accepted, and the one that it was told of last. The last life may still be told.
    killed: dict[int, tuple[set[int], int]] = {}
    #: Of each killed life, the number up to which it was told all that it had to be told.
    told_until: dict[int, float] = {}
    by_life = lives(sent)
    for life, events in by_life.items():
        accepted = set()
        told_last = -1
        since_told = 0
        for event, *values in events:
            match event, values:
                case "begun", [number]:
                    begun.add(number)
                    since_told += 1
                case "accepted", [number, *log]:
                    accepted.add(number)
                    logs[number] = log[0] if log else None
                case "refused", [number, *_]:
                    verdict.refused.add(number)
                case "told", [number, text]:
                    told[number] = text
                    told_last = number
                    since_told = 0
        verdict.accepted |= accepted
        # Numbers under way when the life was saved may be noted after that.
        was_moved = any(event[0] == "saved" for event in events[-4:])
        if life != max(by_life) and not was_moved:
            killed[life] = (accepted, told_last)
            # If it has sent nothing since, it may have ended while it was being told. One number may be under way.
            told_until[life] = told_last if since_told <= 1 else math.inf
    verdict.told = set(told)
    last: dict[int, int] = {}
    #: The last number of each life that came after a newer one.
    last_late: dict[int, int] = {}
    #: The gaps that the receiver knows: the log, the last number read from it, the first one after the gap, the size of the gap.
    gaps: list[tuple[str | None, int, int, int]] = []
    read: dict[str | None, int] = {}
    #: The numbers that each life of the receiver heard.
    heard_by: dict[int, set[int]] = {}
    #: The last number heard before each kill of the receiver, and the first one after it.
    kills: list[tuple[int, int]] = []
    killed_at: int | None = None
    #: The last number heard before each move of the receiver, the first one after it, and whether its former process has ended
    #: in order.
    moves: list[tuple[int, int, bool]] = []
    moved_at: int | None = None
    latest, before, left_life = None, "", -1
    #: The numbers heard without a mark, and the last life that heard a number with one. The agent of a node that was given up goes
    #: on beside the one that was started elsewhere. It may take a message later than that one, which got the mark.
    unmarked: set[int] = set()
    marked_in: dict[int, int] = {}
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
        _, number, again, life, log, missed = values
        if missed:
            gaps.append((log, read.get(log, -1), number, missed))
        read[log] = max(number, read.get(log, -1))
        heard_by.setdefault(life, set()).add(number)
        if moved_at is not None:
            moves.append((moved_at, number, left_life in ended))
            moved_at = None
        if killed_at is not None:
            kills.append((killed_at, number))
            killed_at = None
        if again:
            marked_in[number] = max(life, marked_in.get(number, -1))
        elif number not in unmarked and life < marked_in.get(number, -1):
            pass
        elif number in verdict.heard:
            verdict.doubled.append(number)
        elif number < last.get(number // LIFE, -1):
            if not order_given_up or number < last_late.get(number // LIFE, -1):
                verdict.reordered.append(number)
            last_late[number // LIFE] = number
        if not again:
            unmarked.add(number)
        verdict.heard.add(number)
        latest = number
        last[number // LIFE] = max(number, last.get(number // LIFE, -1))
    verdict.invented = verdict.heard - begun
    missing = verdict.accepted - verdict.heard - verdict.told
    if kind != "durable":
        missing -= {taken + 1 for taken, _ in kills}
    if kind in DIRECT:
        missing -= {number for number in missing if any(taken < number < first for taken, first in kills)}
    if kind not in KEPT:
        for accepted, told_last in killed.values():
            arrived = accepted & verdict.heard
            missing -= {number for number in accepted if number > max(arrived, default=-1)}
            if kind in TRANSIENT:
                under_way = max(accepted, default=-1) - UNDER_WAY
                for left, first, has_ended in moves:
                    if under_way < first or left < told_last < first or not has_ended:
                        missing -= {number for number in accepted if left < number < first}
    # Events that retention left out are counted to the receiver.
    for log, latest_read, first, missed in gaps:
        left_out = sorted(number for number in missing if latest_read < number < first and logs.get(number) == log)
        missing -= set(left_out[:missed])
    verdict.lost = missing
    begun_lives = {event[1] for event in received if event[0] == "life"}
    former = begun_lives - {max(begun_lives, default=0)}
    if kind in DIRECT:
        former -= {event[1] for event in received if event[0] == "saved"}
    verdict.told_falsely = contradicted(kind, told, heard_by, told_until, former, silent=silent)
    return verdict


def contradicted(
    kind: str,
    told: Mapping[int, str],
    heard_by: Mapping[int, set[int]],
    told_until: Mapping[int, float],
    former: set[int],
    *,
    silent: bool,
) -> set[int]:
    """The numbers that were heard, and whose sender was told that they were not delivered.

    The word that a number has arrived can be lost with a process that is killed or given up. Then the number comes back, with all
    that the same life of the receiver (`heard_by`) heard after it from the same life of the sender. Such numbers are excused, unless
    they were on disk before they were accepted. The failure of a direct message must say that nobody knows whether it arrived.
    docs/channels.md allows it for events in three more cases: the failure says less; the subscriber moved away; its process was
    silent for too long, and goes on.
    """
    found = set()
    for receiver, numbers in heard_by.items():
        for life in {number // LIFE for number in numbers & told.keys()}:
            heard = {number for number in numbers if number // LIFE == life}
            both, untold = heard & told.keys(), heard - told.keys()
            doubtful = {number for number in told if number // LIFE == life and IN_DOUBT in told[number]}
            excused = set()
            if kind not in KEPT and (receiver in former or life in told_until):
                until = told_until.get(life, math.inf)
                arrived = max((number for number in untold if number <= until), default=-1)
                excused |= {number for number in both if number > arrived and (kind in TRANSIENT or number in doubtful)}
            if kind in TRANSIENT and silent:
                arrived = max((number for number in untold if number < max(doubtful, default=-1)), default=-1)
                excused |= {number for number in both & doubtful if number > arrived}
            found |= both - excused
    return found


def lives(events: Iterable[Event]) -> dict[int, list[Event]]:
    """The events of each process. Two may write at the same time, if one is on a node that was cut off."""
    found: dict[int, list[Event]] = {}
    for event in events:
        match event:
            case ["life" | "saved", life]:
                found.setdefault(life, []).append(event)
            case ["begun" | "accepted" | "unheard" | "refused" | "told", number, *_]:
                found.setdefault(number // LIFE, []).append(event)
    return dict(sorted(found.items()))

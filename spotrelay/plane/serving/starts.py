"""What a start has reached and when: kept for people who want it shorter. Nothing is decided by it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from spotrelay.plane.core.replica import (
    CONSOLE_MARK,
    TOLD_BY_INSTANCES,
    Phase,
    Replica,
    ReplicaState,
)
from spotrelay.plane.core.rows import Rows, Starts
from spotrelay.plane.serving import steps
from spotrelay.plane.serving.steps import Step

MOST_WORDS = 16
"""Of an instance's line that are looked at: three times as many as there are."""

MOST_LINE = 1000
"""Characters of it that are looked at: it has some 150."""

_WORD = re.compile(r"([a-z_]{1,20})=([0-9]{10}\.[0-9]{3})")
"""As date(1) writes a time from 2001 to 2286, with `+%s.%3N`."""

_KNOWN = {phase.value: phase for phase in TOLD_BY_INSTANCES}


Phases = Mapping[Phase, datetime]


@dataclass(frozen=True, slots=True)
class Said:
    """What a console says of a start."""

    phases: Phases
    dropped: int = 0
    """Words that are none of ours, or name no time of this start."""


def said(console: str, since: datetime, until: datetime) -> Said:
    """What an instance told on its console: the last line that begins like ours.

    Whoever has the instance can write there whatever he likes: it is a time of this start, or it is dropped.
    """
    # Not `splitlines`: what else that takes for the end of a line, a service can print.
    lines = reversed(console.split("\n"))
    line = next((text for text in lines if text.startswith(f"{CONSOLE_MARK} ")), "")
    phases: dict[Phase, datetime] = {}
    words = line[:MOST_LINE].split()[1 : 1 + MOST_WORDS]
    for word in words:
        found = _WORD.fullmatch(word)
        phase = _KNOWN.get(found[1]) if found else None
        if found and phase and phase not in phases:
            at = datetime.fromtimestamp(float(found[2]), UTC)
            if since <= at <= until:
                phases[phase] = at
    return Said(phases, len(words) - len(phases))


def began(replica: Replica) -> datetime:
    """When its instance was asked for, or resumed: nothing that it tells of this start was before.

    Not when EC2's answer was on record: that may have been later than the boot.
    """
    if replica.was_started_again:
        return replica.entered[ReplicaState.PROVISIONING]
    return min(replica.entered.values())


def not_yet_noted(replica: Replica, told: Starts) -> dict[Phase, datetime]:
    """What its instance told, and its row doesn't say yet."""
    return {p: at for p, at in told.get(replica.id, {}).items() if p not in replica.phases}


def to_keep(rows: Rows, told: Starts) -> Starts:
    """What is to be on record once these were told: those that start still, and these."""
    starting = {id_ for id_, r in rows.replicas.items() if r.state is ReplicaState.STARTING}
    return {**{id_: phases for id_, phases in rows.starts.items() if id_ in starting}, **told}


def first_answers(starting: Iterable[Replica], answering: Collection[str]) -> list[Replica]:
    """Those that start and have just answered for the first time. One that comes back is no start."""
    return [
        r
        for r in starting
        if r.instance_id in answering and not r.comes_back and Phase.ANSWERED not in r.phases
    ]


def noted(
    starting: Iterable[Replica],
    answered: Collection[int],
    registered: Collection[int],
    answered_at: datetime,
    registered_at: datetime,
) -> list[Step]:
    """Note of these replicas who has answered and who was registered, each once: a row is written for it."""
    found: list[Step] = []
    for replica in starting:
        phases: dict[Phase, datetime] = {}
        if replica.id in answered:
            phases[Phase.ANSWERED] = answered_at
        if replica.id in registered and not replica.comes_back and Phase.REGISTERED not in replica.phases:
            phases[Phase.REGISTERED] = registered_at
        if phases:
            found.append(steps.note_start(replica, phases))
    return found

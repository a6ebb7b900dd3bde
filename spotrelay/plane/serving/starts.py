"""What a start has reached and when: kept for people who want it shorter. Nothing is decided by it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from spotrelay.plane.core.replica import Phase, Replica
from spotrelay.plane.serving import steps
from spotrelay.plane.serving.steps import Step


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

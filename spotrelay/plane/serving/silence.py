"""Replicas that serve, pass their health checks, and don't answer the readiness probe.

One that answers nothing in time is replaced after the service file's time, and serves on until then: it may
only be slow. Two kinds are told apart from it:

- One that *refuses*: it answers at once, with an error. Having the fewest requests outstanding, it gets the
  most new ones, and fails them. It leaves the rotation at once, while enough others answer.
- One that is *busy*: the probe waits behind real requests. Replacing it would give the others more to do, and
  the next one would fall silent. Its health check proves nothing, as it may answer for hours while the engine
  is dead. Its own count of finished requests does, where it rises while as many wait as it can take.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from math import ceil

from spotrelay.plane.core import timing
from spotrelay.plane.core.answers import Answers, BusyEvidence, Work
from spotrelay.plane.core.instances import TargetState
from spotrelay.plane.core.replica import Replica
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving import rollout, steps
from spotrelay.plane.serving.observation import Observation
from spotrelay.plane.serving.steps import Step

REFUSES = "refuses its readiness probe"
"""Why such a replica leaves."""


def heard(spec: ServiceSpec, rows: Rows, answers: Answers, now: datetime) -> list[Step]:
    """Note which of those that serve have just not answered, or do again."""
    noted = (
        _noted(rollout.of_version(spec, rows, replica.version).busy, replica, answers, now)
        for replica in rows.replicas.values()
        if replica.stays
    )
    return [note for note in noted if note.after != note.before]


def take_out(spec: ServiceSpec, seen: Observation, now: datetime) -> Iterator[Step]:
    """Have those leave that refuse their probe, while enough others answer theirs.

    What leaves gives no answer, so nothing is lost by it; and its replacement is requested by the same tick.
    If most refuse at the same time, the probe is wrong sooner than they are.
    """
    answering = sum(
        r.stays
        and r.silent_since is None
        and r.instance_id not in seen.warned
        and seen.health_of(r) is TargetState.HEALTHY
        for r in seen.known
    )
    if answering < enough(spec):
        return
    for replica in seen.known:
        if replica.stays and replica.refusals >= timing.REFUSALS:
            yield steps.drain(replica, now, REFUSES)


def enough(spec: ServiceSpec) -> int:
    """How many must answer their probe for others to leave that refuse it: half of those wanted, or one."""
    return max(ceil(spec.replicas * timing.CREDIBLE_SHARE), 1)


def _noted(busy: BusyEvidence | None, replica: Replica, answers: Answers, now: datetime) -> Step:
    if replica.instance_id in answers.answering:
        return steps.note_silence(replica, None)
    since = replica.silent_since or now
    if replica.instance_id in answers.refusing:
        return steps.note_silence(replica, since, refusals=min(replica.refusals + 1, timing.REFUSALS))
    work = answers.work.get(replica.instance_id or "")
    if busy is None or work is None:
        return steps.note_silence(replica, since, busy_since=replica.busy_since, finished=replica.finished)
    if _is_busy(busy, replica, work, now):
        return steps.note_silence(
            replica, now, busy_since=replica.busy_since or since, finished=work.finished
        )
    # What helps it no more isn't noted: its row would change, and tick follow tick, for as long as it works.
    finished = work.finished if _may_be_excused(busy, replica, now) else replica.finished
    return steps.note_silence(replica, since, busy_since=replica.busy_since, finished=finished)


def _is_busy(busy: BusyEvidence, replica: Replica, work: Work, now: datetime) -> bool:
    """Whether it has finished requests since it was last silent, is full, and may say so still."""
    has_worked = replica.finished is not None and work.finished > replica.finished
    return has_worked and work.ongoing >= busy.limit and _may_be_excused(busy, replica, now)


def _may_be_excused(busy: BusyEvidence, replica: Replica, now: datetime) -> bool:
    busy_since = replica.busy_since or replica.silent_since or now
    return now - busy_since < seconds(busy.longest_s)

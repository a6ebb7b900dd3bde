"""What a tick finds that a person must mend: what the service's survey found, and what doesn't run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from spotrelay.plane.core import timing
from spotrelay.plane.core.mending import Finding, FindingKind
from spotrelay.plane.core.pools import Survey
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving import interruption
from spotrelay.plane.serving.observation import Observation
from spotrelay.plane.serving.steps import Step


def of_surveys(rows: Rows, survey: Survey | None, now: datetime) -> Sequence[Finding]:
    """What the last survey found, for as long as it is the last one; and whether surveys still come.

    The first one is awaited from the first replica on: nobody needs one before.
    """
    replicas = rows.replicas.values()
    seen_at = survey.at if survey else min((min(r.entered.values()) for r in replicas), default=now)
    written_at = survey.accounted_at if survey else None
    return [
        *(survey.findings if survey else ()),
        *_silent("survey", seen_at, now),
        *_silent("day written", written_at or now, now),
    ]


def late_leaves(
    spec: ServiceSpec, seen: Observation, decided: Iterable[Step], now: datetime
) -> Sequence[Finding]:
    """Warned replicas that a tick takes out, or finds ended, because nobody took them out in time.

    Then leaves aren't looked at. A tick may be a moment faster than the delayed message: that is none. And
    what served on long after its time EC2 had spared. One that this very tick finds ready hasn't served on.
    """
    served = {r.id for r in seen.read.replicas.values() if r.serves}
    leaving = {s.replica.id: s.replica for s in decided if s.enters(ReplicaState.DRAINING)}
    found: list[Finding] = []
    for replica in (r for id_, r in leaving.items() if id_ in served):
        due = _look_due(spec, replica, seen)
        late_s = (now - due).total_seconds() if due else 0.0
        if timing.LATE_LEAVE_S < late_s < timing.NOTICE_S:
            words = f"replica {replica.id} ({replica.instance_id}) left the rotation {late_s:.0f} s late"
            found.append(Finding(FindingKind.LATE_LEAVE, words))
    return found


def _silent(what: str, last: datetime, now: datetime) -> Iterable[Finding]:
    if now - last > seconds(timing.SURVEY_SILENT_S):
        yield Finding(FindingKind.SURVEY_SILENT, f"no {what} since {last:%Y-%m-%d %H:%M} UTC")


def _look_due(spec: ServiceSpec, replica: Replica, seen: Observation) -> datetime | None:
    """When somebody had to look that would have taken it out: as the last one it stays longer.

    None: it didn't serve on, or EC2 doesn't take it back.
    """
    if replica.warned_at is None or not replica.serves or replica.instance_id in seen.spared:
        return None
    warned_at = max(replica.warned_at, seen.warned.get(replica.instance_id or "", replica.warned_at))
    at_drain, at_last = interruption.looks_due(spec, warned_at)
    replicas = seen.rows.replicas.values()
    is_last = any(r.id == replica.id for r in interruption.last_there(replicas))
    others_served = any(r.serves and r.since <= at_drain for r in replicas if r.id != replica.id)
    return at_drain if others_served and not is_last else at_last

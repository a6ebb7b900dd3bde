"""How many standbys pay, by what a service's own starts, losses and resumes were so far: `standby: auto`.

A stopped standby costs 2 to 4 % of its on-demand price. A replica that is missing for minutes costs its
share of the requests, and all of them where it was the last. So where starts are long, each loss should find
a standby: as many as were ever lost together. Where the record is too short to tell, that is all of them,
because the replicas of one service tend to sit in one pool.

The number so far is in `spec.standby`. Evidence that it is too small counts at once; a smaller one needs
more evidence than to stay there, so that it doesn't go up and down.
docs/decisions/2026-11-23-how-many-standbys.md has the reasons.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil

from spotrelay.plane.core import timing
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.spec import OnWarning, ServiceSettings, ServiceSpec
from spotrelay.plane.core.timing import seconds

RECORD = 300
"""Ended replicas to read: a loss that is bridged ends three, so a hundred losses. A query of about 200 KB in
each tick, which comes to 30 cents a month."""

STARTS = 20
"""The latest starts count: a new version with other starts has made as many within days, in any market that
standbys are for."""

USUAL = 0.9
"""The share of starts that must fit where there are no standbys: one in ten may be a slow download."""

ENOUGH_TO_FALL, ENOUGH_TO_STAY = 20, 10
"""So many times must something have been lost before fewer standbys than replicas are enough, and to leave it
at that. If each time is like any other, the chance that the next takes more together than any of n before is
1 in n + 1 at most: 5 % after 20. Half of that to stay: what is older than 30 days drops out of the record."""

FAILED_LEAST = 2
"""One resume that failed may be an accident."""

FAILED_TO_RISE, FAILED_TO_STAY = 0.02, 0.01
"""More than this share of the resumes must have failed for one standby more, and for keeping that. Its disk
costs as much, about: 2 to 4 %."""


RESUMES_LEAST = 3
"""So many resumes tell what one takes: fewer may be an accident, and would take every standby away."""


@dataclass(frozen=True, slots=True)
class StandbyCount:
    """So many standbys pay."""

    count: int
    reason: str
    """For people: one sentence, with the figures."""


def derive(spec: ServiceSettings, rows: Rows, ended: Sequence[Replica]) -> StandbyCount:
    """How many standbys pay; `ended` are the service's latest `RECORD` ended replicas, `rows` the others."""
    at_risk = most_at_risk(spec)
    if not at_risk:
        return StandbyCount(0, "no replica is on Spot")
    # What ended between the two queries is in both, and the later row is true.
    record = ({**rows.replicas, **{r.id: r for r in ended}}).values()
    starts = start_times(record)
    fits_s = fitting_s(spec, usual_resume_s(record))
    if starts and _needs_none(spec, starts, fits_s):
        return StandbyCount(0, f"{_shown_starts(starts)}, and up to {fits_s:.0f} need no standby")
    start_s = _usual(starts) if starts else spec.initial_delay_s
    why = [f"{_shown_starts(starts)}, the warning leaves {left_s(spec):.0f}"]
    count, reason = _lost_together(spec, _losses(record), start_s, at_risk)
    why.append(reason)
    resumed = [r for r in record if r.is_standby and r.is_fallback]
    failed = sum(_has_failed(r) for r in resumed)
    share = FAILED_TO_STAY if spec.standby > count else FAILED_TO_RISE
    if failed >= FAILED_LEAST and failed > share * len(resumed):
        count += 1
        why.append(f"{failed} of {len(resumed)} resumes failed: one more")
    return StandbyCount(count, "; ".join(why))


def most_at_risk(spec: ServiceSettings) -> int:
    """How many replicas EC2 may take back: the number of standbys while nothing is on record."""
    return max(spec.replicas - spec.base_on_demand, 0) if spec.purchase_option.is_interruptible else 0


def with_number_so_far(spec: ServiceSpec, kept: ServiceSpec | None) -> ServiceSpec:
    """The deployed document with the number so far, which is in the one on record.

    With another number of replicas it begins anew: the record is of another service, so to speak.
    """
    if not (kept and kept.standby_auto and spec.standby_auto):
        return spec
    is_same = most_at_risk(spec) == most_at_risk(kept)
    return replace(spec, standby=kept.standby) if is_same else spec


def left_s(spec: ServiceSettings) -> float:
    """How long a warned replica may serve on while another starts."""
    return 0.0 if spec.on_warning is OnWarning.LEAVE else max(timing.serves_on_s(spec.drain_s), 0.0)


def fitting_s(spec: ServiceSettings, resume_s: float) -> float:
    """The longest start that needs no standby: one would come no sooner, or too little to count."""
    return max(left_s(spec), resume_s) + timing.STANDBY_GAIN_S


def usual_resume_s(record: Iterable[Replica]) -> float:
    """What a resume takes, by those of the record that became ready."""
    resumed = [r for r in record if r.is_fallback and r.resume_s and ReplicaState.READY in r.entered]
    if len(resumed) < RESUMES_LEAST:
        return timing.STANDBY_RESUME_S
    latest = sorted(resumed, key=lambda r: r.entered[ReplicaState.READY])[-STARTS:]
    return timing.middle_s(r.resume_s or 0.0 for r in latest)


def _needs_none(spec: ServiceSettings, starts: Sequence[float], fits_s: float) -> bool:
    """Whether starts fit: all of them where there are standbys, nearly all where there are none."""
    longest_s = max(starts) if spec.standby else _usual(starts)
    return longest_s <= fits_s


def _usual(starts: Sequence[float]) -> float:
    return sorted(starts)[ceil(USUAL * len(starts)) - 1]


def _shown_starts(starts: Sequence[float]) -> str:
    if not starts:
        return "no start is on record, so they count as long"
    return f"starts take up to {_usual(starts):.0f} s (nine in ten of the last {len(starts)})"


def start_times(record: Iterable[Replica]) -> list[float]:
    """How long the latest cold starts took, from EC2's answer until the replica was ready."""
    requested, began, ready = ReplicaState.REQUESTED, ReplicaState.PROVISIONING, ReplicaState.READY
    cold = [
        r.entered
        for r in record
        if not r.is_standby
        and {requested, began, ready} <= r.entered.keys()
        # One that was taken in was found ready: nobody knows since when it was.
        and r.entered[requested] <= r.entered[began]
    ]
    latest = sorted(cold, key=lambda entered: entered[ready])[-STARTS:]
    return [(entered[ready] - entered[began]).total_seconds() for entered in latest]


def _losses(record: Iterable[Replica]) -> list[datetime]:
    """When replicas that EC2 may take back and that served were lost, in order."""
    return sorted(at for r in record if (at := _lost_at(r)) is not None)


def _lost_at(replica: Replica) -> datetime | None:
    may_be_lost = replica.offering is not None and replica.offering.purchase_option.is_interruptible
    return replica.gone_at if may_be_lost and ReplicaState.READY in replica.entered else None


def _lost_together(
    spec: ServiceSettings, losses: Sequence[datetime], start_s: float, at_risk: int
) -> tuple[int, str]:
    """As many as were lost within one start's time, at most; all while too little is on record."""
    together, at = _most_within(losses, start_s)
    times = _times(losses, start_s)
    enough = ENOUGH_TO_STAY if spec.standby < at_risk else ENOUGH_TO_FALL
    if times < enough:
        shown = f"losses are on record of {times} times, fewer than {enough}"
        return at_risk, f"{shown}: one for each of the {at_risk} on Spot"
    return min(together, at_risk), f"{together} of {spec.replicas} were lost together on {at:%Y-%m-%d}"


def _most_within(losses: Sequence[datetime], start_s: float) -> tuple[int, datetime | None]:
    """The most losses within so long of the first of them, and when that was last."""
    ends = (bisect_right(losses, at + seconds(start_s)) for at in losses)
    return max(
        ((end - first, at) for first, (at, end) in enumerate(zip(losses, ends, strict=True))),
        default=(0, None),
    )


def _times(losses: Sequence[datetime], start_s: float) -> int:
    """How many times something was lost: what is lost together is once."""
    times, last = 0, None
    for at in losses:
        if last is None or at > last + seconds(start_s):
            times, last = times + 1, at
    return times


def _has_failed(resumed: Replica) -> bool:
    """Whether EC2 refused to start it, or it never became ready."""
    return resumed.retry_at is not None or resumed.state is ReplicaState.FAILED

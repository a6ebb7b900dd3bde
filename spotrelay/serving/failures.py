"""What replicas that never became ready, and launches that were refused, teach about when to try again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from spotrelay.core import timing
from spotrelay.core.replica import Replica, ReplicaState
from spotrelay.core.rows import Backoff
from spotrelay.core.spec import ServiceSpec
from spotrelay.core.timing import seconds

NEVER = datetime.max.replace(tzinfo=UTC)
"""A crash loop is at rest: what ends it is a deployment, and that brings a tick of its own."""


def is_crash_looping(spec: ServiceSpec, backoff: Backoff) -> bool:
    """Whether this version has failed so often in a row that another try would only cost."""
    return backoff.version == spec.version and backoff.failures >= timing.CRASH_LOOP_FAILURES


def held_until(spec: ServiceSpec | None, backoff: Backoff, *, is_fallback: bool = False) -> datetime | None:
    """Until when nothing is launched because others failed; None: nothing holds it.

    What a version did to itself is not held against the next. What fails on Spot may well serve on-demand,
    and where nothing serves that is all there is: fallbacks wait only after one of them failed, and never for
    good.
    """
    if spec is None or backoff.version != spec.version:
        return None
    if is_fallback:
        return backoff.fallback_until
    return NEVER if is_crash_looping(spec, backoff) else backoff.until


def is_held(spec: ServiceSpec, backoff: Backoff, now: datetime) -> bool:
    """Whether regular replicas must wait."""
    until = held_until(spec, backoff)
    return until is not None and now < until


def is_fallback_held(spec: ServiceSpec, backoff: Backoff, now: datetime) -> bool:
    """Whether on-demand fallbacks must wait."""
    until = held_until(spec, backoff, is_fallback=True)
    return until is not None and now < until


def after_failures(
    backoff: Backoff, failed: Sequence[Replica], now: datetime, *, by_ec2: Collection[int] = ()
) -> Backoff:
    """How long to hold launches after more replicas that never became ready.

    What was launched together may well fail together, for a reason that has nothing to do with the service.
    It takes one that was launched after the last failure to call it a crash loop, and that EC2 doesn't call
    its own doing: `by_ec2` are the IDs of those.
    """
    version = max(replica.version for replica in failed)
    before = backoff if backoff.version == version else Backoff()
    failures = before.failures + len(failed)
    if not _was_tried_again(before, [replica for replica in failed if replica.id not in by_ec2]):
        failures = min(failures, max(before.failures, timing.CRASH_LOOP_FAILURES - 1))
    until = now + seconds(_held_s(failures))
    # Where it came from cools, so that the next one is tried elsewhere: perhaps nothing else serves.
    has_failed = any(r.is_fallback for r in failed)
    fallback_held_s = min(_held_s(failures), timing.FALLBACK_HELD_MAX_S)
    fallback_until = now + seconds(fallback_held_s) if has_failed else before.fallback_until
    return Backoff(failures, until, version, fallback_until)


def _was_tried_again(backoff: Backoff, failed: Sequence[Replica]) -> bool:
    if backoff.until is None:
        return False
    last_failure = backoff.until - seconds(_held_s(backoff.failures))
    return any(replica.entered[ReplicaState.PROVISIONING] >= last_failure for replica in failed)


def _held_s(failures: int) -> float:
    return timing.backoff_s(failures, timing.FAILURE_FIRST_S, timing.FAILURE_MAX_S)

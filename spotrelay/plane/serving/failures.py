"""What replicas that never became ready, and launches that were refused, teach about when to try again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from spotrelay.plane.core import timing
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Backoff
from spotrelay.plane.core.timing import seconds

NEVER = datetime.max.replace(tzinfo=UTC)
"""A crash loop is at rest: what ends it is a deployment, and that brings a tick of its own."""


def is_crash_looping(version: int, backoff: Backoff) -> bool:
    """Whether this version has failed so often in a row that another try would only cost.

    One that was given up after it had served is no crash loop: perhaps it is all that there is.
    """
    has_failed = backoff.version == version and backoff.until is not None
    return has_failed and backoff.failures >= timing.CRASH_LOOP_FAILURES


def held_until(version: int, backoff: Backoff, *, is_fallback: bool = False) -> datetime | None:
    """Until when nothing of a version is launched because others failed; None: nothing holds it.

    What a version did to itself is not held against another. What fails on Spot may well serve on-demand, and
    where nothing serves that is all there is: fallbacks wait only after one of them failed, never for good.
    """
    if version != backoff.version:
        return None
    if is_fallback:
        return backoff.fallback_until
    return NEVER if is_crash_looping(version, backoff) else backoff.until


def is_held(version: int, backoff: Backoff, now: datetime, *, is_fallback: bool = False) -> bool:
    """Whether replicas of this version must wait."""
    until = held_until(version, backoff, is_fallback=is_fallback)
    return until is not None and now < until


def after_success(backoff: Backoff, ready: Sequence[Replica]) -> Backoff:
    """A replica that got ready clears its version and those before, and says nothing of a newer one."""
    return Backoff() if max(replica.version for replica in ready) >= backoff.version else backoff


def given_up(backoff: Backoff, version: int, failures: int) -> Backoff:
    """A version that counts as failed so often in a row at least, though it was ready. It holds no launch."""
    before = backoff if backoff.version == version else Backoff(version=version)
    return replace(before, failures=max(before.failures, failures), until=None)


def after_failures(
    backoff: Backoff, failed: Sequence[Replica], now: datetime, *, by_ec2: Collection[int] = ()
) -> Backoff:
    """How long to hold launches after more replicas that never became ready.

    What was launched together may well fail together, for a reason that has nothing to do with the service.
    It takes one that was launched after the last failure to call it a crash loop, and that EC2 doesn't call
    its own doing: `by_ec2` are the IDs of those. A failure of an older version isn't counted.
    """
    version = max(backoff.version, *(replica.version for replica in failed))
    failed = [replica for replica in failed if replica.version == version]
    if not failed:
        return backoff  # its pool cools, which is brake enough for a version that has served
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


def after_standbys(
    backoff: Backoff, failed: Sequence[Replica], prepared: Sequence[Replica], now: datetime
) -> Backoff:
    """How long to hold standbys after some that couldn't be prepared; one that was prepared ends it."""
    if prepared:
        return Backoff()
    version = max(replica.version for replica in failed)
    failures = len(failed) + (backoff.failures if backoff.version == version else 0)
    held_s = timing.backoff_s(failures, timing.STANDBY_FAILURE_FIRST_S, timing.STANDBY_FAILURE_MAX_S)
    return Backoff(failures, now + seconds(held_s), version)


def is_standby_held(version: int, backoff: Backoff, now: datetime) -> bool:
    """Whether no standby of this version is prepared now. Never for good: the service serves meanwhile."""
    return version == backoff.version and backoff.until is not None and now < backoff.until


def _was_tried_again(backoff: Backoff, failed: Sequence[Replica]) -> bool:
    if backoff.until is None:
        return False
    last_failure = backoff.until - seconds(_held_s(backoff.failures))
    return any(replica.entered[ReplicaState.PROVISIONING] >= last_failure for replica in failed)


def _held_s(failures: int) -> float:
    return timing.backoff_s(failures, timing.FAILURE_FIRST_S, timing.FAILURE_MAX_S)

"""When to try again what failed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotrelay.plane.core import timing
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.core.rows import Backoff
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving import failures
from tests.unit.cases import NOW, a_replica

LOOPING = timing.CRASH_LOOP_FAILURES


def test_what_was_launched_together_fails_together() -> None:
    """Any number of failures of one launch is no crash loop, also if ticks see them one after the other."""
    cohort = [a_replica(i, ReplicaState.STARTING) for i in range(1, 20)]
    backoff = failures.after_failures(Backoff(), cohort[:9], NOW)
    assert backoff.failures == LOOPING - 1
    backoff = failures.after_failures(backoff, cohort[9:], NOW + seconds(20))
    assert not failures.is_crash_looping(1, backoff)


def test_a_crash_loop_is_one_that_was_tried_again() -> None:
    """What was launched after the last failure counts in full when it fails; another version starts anew."""
    before = failures.after_failures(Backoff(), [a_replica(1, ReplicaState.STARTING)] * 9, NOW - seconds(600))
    recently = dict.fromkeys(ReplicaState, NOW - seconds(300))
    again = a_replica(2, ReplicaState.STARTING, entered=recently)
    assert failures.is_crash_looping(1, failures.after_failures(before, [again], NOW))
    newer = failures.after_failures(before, [replace(again, version=2)], NOW)
    assert (newer.version, newer.failures) == (2, 1)


def test_one_that_failed_before_it_ran_was_tried_again_too() -> None:
    """All that counts is that it was launched since the last failure, not how far it came."""
    before = failures.after_failures(Backoff(), [a_replica(1, ReplicaState.STARTING)] * 9, NOW - seconds(600))
    for ago_s, is_looping in ((600.001, False), (600, True)):
        again = a_replica(2, ReplicaState.PROVISIONING, since_s=ago_s)
        after = failures.after_failures(before, [again], NOW)
        assert failures.is_crash_looping(1, after) is is_looping


def test_versions_that_fail_together_hold_the_newer_one() -> None:
    """In the middle of a deployment both fail: what is launched from now on is the new one, and it waits."""
    old, new = a_replica(1, ReplicaState.STARTING), a_replica(2, ReplicaState.STARTING, version=2)
    for failed in ([old, new], [new, old]):
        backoff = failures.after_failures(Backoff(), failed, NOW)
        assert failures.is_held(2, backoff, NOW)


def test_what_ec2_did_is_no_crash_loop() -> None:
    """EC2's own failures hold launches as long as others do, only the service's own for good."""
    before = failures.after_failures(Backoff(), [a_replica(1, ReplicaState.STARTING)] * 9, NOW - seconds(600))
    recently = dict.fromkeys(ReplicaState, NOW - seconds(300))
    again = a_replica(2, ReplicaState.STARTING, entered=recently)
    held = failures.after_failures(before, [again], NOW, by_ec2={2})
    assert not failures.is_crash_looping(1, held)
    assert failures.is_held(1, held, NOW)
    own = replace(again, id=3)
    assert failures.is_crash_looping(1, failures.after_failures(before, [again, own], NOW, by_ec2={2}))


def test_fallbacks_are_held_by_their_own_failures_only() -> None:
    """A failed Spot replica doesn't hold them, a failed fallback does for its back-off, and not for good."""
    spot = a_replica(1, ReplicaState.STARTING)
    fallback = a_replica(2, ReplicaState.STARTING, is_fallback=True)
    first = failures.after_failures(Backoff(), [spot], NOW)
    assert first.fallback_until is None
    together = failures.after_failures(Backoff(), [spot, fallback], NOW)
    assert failures.is_held(1, together, NOW, is_fallback=True), "whatever else failed with it"
    both = failures.after_failures(first, [fallback], NOW)
    assert both.fallback_until == both.until == NOW + seconds(2 * timing.FAILURE_FIRST_S)
    later = NOW + seconds(9)
    again = failures.after_failures(both, [spot], later)
    assert (again.until, again.fallback_until) == (later + seconds(4 * timing.FAILURE_FIRST_S), both.until)
    many = failures.after_failures(replace(both, failures=LOOPING), [fallback], NOW)
    assert many.fallback_until == NOW + seconds(timing.FALLBACK_HELD_MAX_S), "five minutes at most"
    assert many.until is not None
    assert many.until > many.fallback_until
    looping = replace(again, failures=LOOPING)
    assert failures.is_held(1, looping, NOW + seconds(9999))
    assert failures.is_held(1, looping, NOW, is_fallback=True)
    assert not failures.is_held(1, looping, both.until or NOW, is_fallback=True)
    assert not failures.is_held(2, looping, NOW, is_fallback=True)


@pytest.mark.parametrize("version", [1, 3])
def test_what_a_version_did_holds_no_other(version: int) -> None:
    """Neither the next one nor the one before, which has served and is what a loss is replaced with."""
    for backoff in (Backoff(1, NOW, 2, NOW), Backoff(LOOPING, NOW, 2, NOW)):
        for is_fallback in (False, True):
            assert failures.held_until(2, backoff, is_fallback=is_fallback) is not None
            assert failures.held_until(version, backoff, is_fallback=is_fallback) is None


def test_what_an_older_version_did_is_not_said_of_the_newer() -> None:
    """A failure of it changes nothing; that it gets ready clears nothing of the newer one's."""
    older, newer = (a_replica(v, ReplicaState.STARTING, version=v) for v in (1, 2))
    before = failures.after_failures(Backoff(), [newer], NOW)
    assert before == Backoff(1, NOW + seconds(timing.FAILURE_FIRST_S), version=2)
    later = NOW + seconds(9)
    assert failures.after_failures(before, [older], later) == before
    held = Backoff(1, later + seconds(timing.FAILURE_FIRST_S), version=2)
    assert failures.after_failures(Backoff(4, NOW, version=1), [older, newer], later) == held
    standing = replace(held, fallback_until=later)
    assert failures.after_success(standing, [older]) == standing
    assert failures.after_success(standing, [older, newer]) == Backoff()
    assert failures.after_success(replace(standing, version=1), [newer]) == Backoff()


@pytest.mark.parametrize(("after_s", "version", "is_held"), [(-1, 1, True), (0, 1, False), (-1, 2, False)])
def test_standbys_of_a_version_wait_until_their_time_has_come(
    after_s: float, version: int, is_held: bool
) -> None:
    """When it has come the next is prepared, and another version waits for nothing."""
    backoff = failures.after_standbys(Backoff(), [a_replica(1, ReplicaState.STARTING)], [], NOW)
    assert backoff.until is not None
    assert failures.is_standby_held(version, backoff, backoff.until + seconds(after_s)) is is_held

"""When a tick that found nothing to do is followed by the next."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import InstanceState, TargetState
from spotrelay.plane.core.replica import Phase, Replica, ReplicaState
from spotrelay.plane.core.rows import Backoff, LaunchIntent
from spotrelay.plane.core.spec import OnUpdate, ReadinessProbe
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving import strength
from spotrelay.plane.serving.observation import Observation
from tests.examples import demo_spec
from tests.unit.cases import LONG_AGO, NOW, a_replica, an_instance, rows_of, seen_of
from tests.unit.strengths import (
    DRAINING,
    HELD,
    LOOPING,
    PROVISIONING,
    READY,
    REQUESTED,
    SOON,
    STARTING,
    after,
    fallback,
    fresh,
    look,
    refused,
    spot,
)

# When to look again.


def test_while_failures_hold_launches_nothing_is_looked_for() -> None:
    """One is missing, and isn't asked for before: nothing happens until then."""
    spec = demo_spec(replicas=2)
    held = replace(HELD, until=NOW + seconds(40))
    assert strength.next_look(spec, after(held, spot(1)), NOW) == held.until
    assert strength.next_look(spec, after(LOOPING, spot(1)), NOW) is None
    assert strength.next_look(spec, after(replace(HELD, version=9), spot(1)), NOW) == SOON
    assert strength.next_look(spec, after(replace(HELD, until=NOW), spot(1)), NOW) == SOON


def test_at_rest_the_minute_s_tick_will_do() -> None:
    """Every replica serves and nobody stands in: there is nothing to wait for."""
    assert strength.next_look(demo_spec(replicas=2), look(spot(1), fresh(2)), NOW) is None
    assert strength.next_look(None, look(), NOW) is None


def test_a_standby_that_another_function_has_just_put_to_rest_is_no_reason_to_look() -> None:
    """Its row may say so by a clock that is ahead: the service is at rest all the same."""
    standby = a_replica(2, ReplicaState.STANDBY, since_s=-0.5, is_standby=True)
    seen = seen_of(spot(1), standby, instances=[an_instance(2, InstanceState.STOPPED)])
    assert strength.next_look(demo_spec(replicas=1), seen, NOW) is None


def test_a_refused_standby_waits_until_as_many_as_wanted_serve() -> None:
    """It isn't launched sooner, and after a crash loop that may take days: the ticks rest."""
    spec = replace(demo_spec(replicas=2), standby=1)
    standby = replace(refused(9, is_standby=True), retry_at=NOW - seconds(20))
    newer = replace(spec, on_update=OnUpdate.ROLLING, version=2)
    assert strength.next_look(newer, after(replace(LOOPING, version=2), standby), NOW) is None
    waiting = replace(refused(2), retry_at=NOW + seconds(300))
    assert strength.next_look(spec, look(spot(1), waiting, standby), NOW) == waiting.retry_at
    assert strength.next_look(spec, look(spot(1), spot(2), standby), NOW) == SOON, "it is due"
    early = replace(standby, retry_at=NOW + seconds(20))
    assert strength.next_look(spec, look(spot(1), spot(2), early), NOW) == NOW + seconds(20)


def test_what_finishes_its_requests_is_looked_at_when_its_time_is_over() -> None:
    """Nothing happens for minutes while the load balancer shows it as draining: the ticks rest."""
    spec = replace(demo_spec(replicas=1), drain_s=30, drain_unhurried_s=300)
    leaving = replace(spot(2, DRAINING), entered={**spot(2).entered, DRAINING: NOW - seconds(15)})
    over = NOW + seconds(300 + timing.DRAIN_SETTLE_S - 15)

    def due(health: TargetState | None = TargetState.DRAINING, **facts: Any) -> datetime | None:
        row = replace(leaving, **facts)
        seen = seen_of(spot(1), row, instances=[an_instance(2)], health={2: health} if health else {})
        return strength.next_look(spec, seen, NOW)

    assert due() == over
    assert due(TargetState.HEALTHY) == SOON, "it is to be taken out"
    assert due(None) == SOON, "it may be over"
    assert due(warned_at=NOW) == SOON, "EC2 ends it"
    long_over = {**leaving.entered, DRAINING: NOW - seconds(400)}
    assert due(entered=long_over) is None


def test_what_waits_for_capacity_is_looked_at_when_its_time_comes() -> None:
    """Refused replicas, and fallbacks for them, don't keep the ticks going: the first retry does."""
    first, second = refused(2), replace(refused(3), retry_at=NOW + seconds(20))
    standing = fallback(4), fallback(5)
    seen = look(spot(1), first, second, *standing)
    assert strength.next_look(demo_spec(), seen, NOW) == NOW + seconds(20)


def test_after_failures_what_waits_is_looked_at_when_its_time_comes() -> None:
    """A few failures are no crash loop, and in a crash loop fallbacks are tried all the same."""
    assert strength.next_look(demo_spec(replicas=1), after(HELD, refused(1)), NOW) == NOW + seconds(30)
    standing = fallback(2, REQUESTED, attempts=1, retry_at=NOW + seconds(40))
    seen = after(LOOPING, refused(1), standing)
    assert strength.next_look(demo_spec(replicas=1), seen, NOW) == NOW + seconds(40)


def test_a_fallback_is_looked_at_when_spot_has_stayed() -> None:
    """Not every few seconds, and not a minute late."""
    young = fresh(1)
    stayed_at = NOW - seconds(1) + seconds(timing.STAY_MAX_S)
    assert strength.next_look(demo_spec(replicas=1), look(young, fallback(2)), NOW) == stayed_at
    assert strength.next_look(demo_spec(replicas=1), look(young), NOW) is None


def test_spot_that_has_stayed_is_waited_for_no_longer() -> None:
    """Its time is over to the second: the fallback beside it waits for the one that was refused."""
    stayed = a_replica(1, READY, since_s=timing.STAY_MAX_S)
    seen = look(stayed, refused(2), fallback(3))
    assert strength.next_look(demo_spec(replicas=2), seen, NOW) == NOW + seconds(30)


def test_what_is_superseded_is_looked_at_when_its_successor_has_stayed() -> None:
    """Until then it doesn't go; without anything to go nobody waits for the new one to stay."""
    old, new = spot(1, replaced_by=2), fresh(2, version=2)
    stayed_at = NOW - seconds(1) + seconds(timing.STAY_MAX_S)
    spec = demo_spec(replicas=1)
    assert strength.next_look(spec, look(old, new), NOW) == stayed_at
    assert strength.next_look(spec, look(new), NOW) is None
    quick = {PROVISIONING: NOW - seconds(41), READY: NOW - seconds(1)}
    look_at = NOW + seconds(39)
    assert strength.next_look(spec, look(old, replace(new, entered=quick)), NOW) == look_at, (
        "it started in 40 s"
    )


def test_no_two_looks_are_closer_than_ticks_in_transition() -> None:
    """A retry that is due in a moment waits for the next tick that there would be anyway."""
    due_soon = a_replica(1, REQUESTED, attempts=1, retry_at=NOW + seconds(0.5))
    assert strength.next_look(demo_spec(replicas=1), look(due_soon), NOW) == SOON


@pytest.mark.parametrize(
    "moving",
    [
        spot(2, PROVISIONING),
        spot(2, DRAINING),
        spot(2, READY, unhealthy_since=NOW),
        a_replica(2, REQUESTED),
        a_replica(2, REQUESTED, retry_at=NOW),
    ],
    ids=lambda replica: f"{replica.state}",
)
def test_what_moves_is_looked_at_in_seconds(moving: Replica) -> None:
    """Whatever is on its way, going, ill or due."""
    assert strength.next_look(demo_spec(replicas=2), look(spot(1), moving), NOW) == SOON


def test_what_starts_is_asked_again_sooner() -> None:
    """Clients wait for its first answer: also where something else is on its way, and looked at first."""
    soon, spec = NOW + seconds(timing.PROBE_AGAIN_S), demo_spec(replicas=2)
    assert soon < SOON
    assert strength.next_look(spec, look(spot(1), spot(2, STARTING)), NOW) == soon
    assert strength.next_look(spec, look(spot(1, DRAINING), spot(2, STARTING)), NOW) == soon
    waits = spot(2, STARTING, phases={Phase.ANSWERED: NOW})
    assert strength.next_look(spec, look(spot(1), waits), NOW) == soon, "others must answer, too"


def test_who_is_asked_no_more_is_looked_at_as_before() -> None:
    """Registered, it waits for the load balancer alone. One that comes back was that before, and is asked."""
    spec, starts = demo_spec(replicas=2), spot(2, STARTING)
    registered = replace(starts, phases={Phase.ANSWERED: NOW, Phase.REGISTERED: NOW})
    assert strength.next_look(spec, look(spot(1), registered), NOW) == SOON
    back = replace(registered, entered={**starts.entered, DRAINING: LONG_AGO})
    assert strength.next_look(spec, look(spot(1), back), NOW) == NOW + seconds(timing.PROBE_AGAIN_S)


def test_a_service_without_a_probe_asks_nobody() -> None:
    """What its ticks cost stays what it was."""
    seen = look(spot(1), spot(2, STARTING))
    for probe, due_s in (
        (None, timing.TICK_IN_TRANSITION_S),
        (ReadinessProbe("/v1", None), timing.PROBE_AGAIN_S),
    ):
        spec = replace(demo_spec(replicas=2), readiness_probe=probe)
        its = seen.with_rows(replace(seen.rows, document=spec))
        assert strength.next_look(spec, its, NOW) == NOW + seconds(due_s)


def test_an_open_launch_and_a_wrong_number_are_looked_at_in_seconds() -> None:
    """An intent is closed or healed by a tick, and what is missing is requested by one."""
    seen = look(spot(1), intents=[LaunchIntent("L", "demo", (1,), NOW)])
    assert strength.next_look(demo_spec(replicas=1), seen, NOW) == SOON
    assert strength.next_look(demo_spec(replicas=2), look(spot(1), fallback(2)), NOW) == SOON


def test_a_fallback_of_an_old_version_is_no_reason_to_look() -> None:
    """It isn't rolled out: it goes when Spot is back."""
    spec = replace(demo_spec(replicas=0), version=2, on_update=OnUpdate.ROLLING)
    stands_in = a_replica(1, READY, is_fallback=True)
    assert strength.next_look(spec, seen_of(stands_in), NOW) is None
    assert strength.next_look(spec, seen_of(replace(stands_in, is_fallback=False)), NOW) is not None


def test_a_crash_loop_is_at_rest() -> None:
    """Nothing is looked at every few seconds that only a deployment can change."""
    spec = demo_spec(replicas=2)
    looping = Backoff(timing.CRASH_LOOP_FAILURES, LONG_AGO, version=1)
    rows = rows_of(spot(1), backoff=looping)
    assert strength.next_look(spec, Observation(rows), NOW) is None
    assert strength.next_look(spec, Observation(replace(rows, backoff=Backoff())), NOW) == SOON
    starting = replace(rows, replicas={1: spot(1, STARTING)})
    assert strength.next_look(spec, Observation(starting), NOW) is not None

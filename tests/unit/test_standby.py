"""Standbys: prepared once, stopped, and resumed where a replica is missing."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from spotrelay.plane.control.controller import Controller
from spotrelay.plane.core import timing
from spotrelay.plane.core.answers import Trouble
from spotrelay.plane.core.instances import InstanceState, Refusal, RefusalKind
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.pools import Cause, Cooldown, Offering, PurchaseOption, Scope
from spotrelay.plane.core.ports import Unavailable
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Backoff
from spotrelay.plane.core.spec import ReadinessProbe, ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.events import StateChange
from spotrelay.plane.serving import changes, steps, strength
from spotrelay.plane.serving import standby as standbys
from tests.examples import demo_spec
from tests.unit.cases import NOW, a_replica, an_instance, rows_of, seen_of
from tests.unit.worlds import (
    Troubled,
    active,
    alive,
    dry,
    in_rotation,
    instance_of,
    reclaim,
    rows,
    settle,
    table,
    warn,
    world_of,
)

SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND
STANDBY = ReplicaState.STANDBY
ENDED = (InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED)
PROBE = ReadinessProbe("/ready", {})
SLOW_S = timing.STANDBY_SLOW * timing.STANDBY_RESUME_S
"""Of a service that has resumed none before."""


def spec_of(standby: int = 2, replicas: int = 2, **facts: Any) -> ServiceSpec:
    """A service with standbys."""
    facts = {"readiness_probe": PROBE, **facts}
    return replace(demo_spec(replicas=replicas), standby=standby, **facts)


def standing_by(world: Troubled) -> list[Replica]:
    """The standbys that can be resumed."""
    return [r for r in rows(world).replicas.values() if r.state is STANDBY]


def prepared(spec: ServiceSpec | None = None) -> tuple[Troubled, Controller]:
    """A service that serves, with its standbys tried out and stopped, and a world that has come to rest."""
    spec = spec or spec_of()
    world = world_of(spec)
    controller = Controller(world.ports())
    settle(world, controller, 24)
    assert [r.is_tried for r in standing_by(world)] == [True] * spec.standby
    assert len([r for r in active(world) if r.serves]) == spec.replicas
    world.clock.advance(timing.LEASE_S)
    world.calls.clear()
    world.fleet.launches.clear()
    return world, controller


def resumed(world: Troubled) -> list[Replica]:
    """The fallbacks that were standbys."""
    return [r for r in active(world) if r.is_standby and r.is_fallback]


# Prepared.


def test_a_standby_that_is_prepared_has_no_trouble_any_more() -> None:
    """It tells that it is over by the answer that has it stopped: its row has both."""
    spec = replace(spec_of(), readiness_probe=PROBE)
    world = world_of(spec)
    controller = Controller(world.ports())
    later = {f"i-{n:017x}" for n in range(spec.replicas + 1, spec.replicas + 5)}
    world.prober.silent = set(later)
    world.prober.trouble = dict.fromkeys(later, Trouble("crashes", is_crash=True))
    settle(world, controller, 24)
    assert any(r.is_crashing for r in active(world))
    world.prober.trouble, world.prober.silent = {}, set()
    settle(world, controller, 1)
    (standby,) = standing_by(world)
    assert (standby.trouble, standby.is_crashing) == (None, False)


def test_standbys_are_prepared_one_at_a_time_once_the_service_is_whole() -> None:
    """They are launched on-demand, answer the probe once outside the rotation, and are stopped."""
    world = world_of(spec_of())
    controller = Controller(world.ports())
    most = 0
    for _ in range(12):
        settle(world, controller, 1)
        preparing = [r for r in active(world) if r.stands_by]
        most = max(most, len(preparing))
        if preparing:
            assert sum(r.serves for r in active(world)) == 2, "nothing needed waits for it"
        assert not {r.instance_id for r in preparing} & in_rotation(world)
    assert most == 1
    standbys = standing_by(world)
    assert [r.purchase_option for r in standbys] == [ON_DEMAND, ON_DEMAND]
    assert {world.fleet.instances[instance_of(r)].state for r in standbys} == {InstanceState.STOPPED}
    assert len(world.fleet.instances) == 4, "and then it is at rest"
    assert not [r for r in active(world) if r.stands_by]


def test_a_standby_is_no_replica() -> None:
    """It counts neither towards those that are wanted, nor as one that serves."""
    world, controller = prepared()
    kept = rows(world)
    settle(world, controller, 3)
    assert rows(world).replicas == kept.replicas
    assert kept.serving == 2
    assert not world.fleet.launches


def test_operators_see_how_many_stand_by() -> None:
    """A metric of services that may have some, which says nothing of others."""
    world, controller = prepared()
    world.telemetry.counts.clear()
    settle(world, controller, 1)
    assert world.telemetry.counts[Metric.STANDBYS] == 2
    world.services.specs["demo"] = replace(spec_of(), standby=0)
    settle(world, controller, 30)
    world.telemetry.counts.clear()
    settle(world, controller, 1)
    assert Metric.STANDBYS not in world.telemetry.counts


def test_one_that_cannot_be_prepared_holds_up_nothing() -> None:
    """Its failures are no reason to hold launches, nor to call the version a crash loop."""
    world = world_of(spec_of(initial_delay_s=30))
    controller = Controller(world.ports())
    for _ in range(40):
        settle(world, controller, 1)
        world.prober.silent = {instance_of(r) for r in active(world) if r.stands_by and r.instance_id}
    assert rows(world).backoff.failures == 0
    assert sum(r.serves for r in active(world)) == 2


def test_after_one_that_cannot_be_prepared_the_next_waits() -> None:
    """Each costs a start on-demand: ten minutes, doubled each time; a new version is tried at once."""
    spec = spec_of(1, initial_delay_s=30)
    world = world_of(spec)
    controller = Controller(world.ports())
    tried: dict[str, datetime] = {}

    def run_until(tries: int) -> None:
        for _ in range(1000):
            settle(world, controller, 1)
            preparing = [instance_of(r) for r in active(world) if r.stands_by and r.instance_id]
            world.prober.silent = {*world.prober.silent, *preparing}
            for id_ in preparing:
                tried.setdefault(id_, world.clock.now())
            if len(tried) == tries:
                return
        raise AssertionError(tried)

    run_until(3)
    first, second, third = tried.values()
    assert timing.STANDBY_FAILURE_FIRST_S < (second - first).total_seconds() < 2 * 600
    assert 2 * timing.STANDBY_FAILURE_FIRST_S < (third - second).total_seconds() < 3 * 600
    settle(world, controller, int((30 + timing.BOOT_S) / timing.TICK_IN_TRANSITION_S) + 10)
    assert rows(world).standby_backoff.failures == 3
    world.services.specs["demo"] = replace(spec, version=spec.version + 1)
    before = world.clock.now()
    run_until(4)
    assert (world.clock.now() - before).total_seconds() < 60
    world.prober.silent = set()
    settle(world, controller, 5)
    assert rows(world).standby_backoff == Backoff()


# Tried out.


def untried(spec: ServiceSpec | None = None) -> tuple[Troubled, Controller, Replica]:
    """A service that is whole, whose first standby has just been prepared; and that."""
    world = world_of(spec or spec_of(1))
    controller = Controller(world.ports())
    while not standing_by(world):
        settle(world, controller, 1)
    world.calls.clear()
    return world, controller, standing_by(world)[0]


def trial(world: Troubled) -> Replica:
    """The standby that is being tried out."""
    return next(r for r in active(world) if r.is_tried)


def test_a_new_standby_is_started_once_more_and_stopped_again() -> None:
    """Whether it comes back is known before it is needed, and how long that takes. Once is enough."""
    world, controller, standby = untried()
    settle(world, controller, 1)
    begun = trial(world)
    assert (begun.instance_id, begun.entered[ReplicaState.REQUESTED]) == (
        standby.instance_id,
        standby.entered[ReplicaState.REQUESTED],
    ), "the same instance, as old as it is"
    assert standby.id in table(world).history
    settle(world, controller, 20)
    (tried,) = standing_by(world)
    assert tried.id == begun.id
    took_s = (tried.since - tried.entered[ReplicaState.PROVISIONING]).total_seconds()
    assert tried.resume_s == took_s > 0
    assert world.fleet.instances[instance_of(tried)].state is InstanceState.STOPPED
    assert world.calls.count("fleet.start") == 1
    assert not {instance_of(tried)} & in_rotation(world)


def test_standbys_are_tried_out_one_at_a_time() -> None:
    """The others can be had meanwhile."""
    world = world_of(spec_of(3))
    controller = Controller(world.ports())
    for _ in range(40):
        settle(world, controller, 1)
        assert sum(r.stands_by for r in active(world)) <= 1
    assert [r.is_tried for r in standing_by(world)] == [True] * 3


def test_none_is_tried_out_while_a_replica_is_missing() -> None:
    """It is resumed."""
    world, controller, standby = untried()
    dry(world, SPOT)
    reclaim(world, active(world)[0])
    settle(world, controller, 2)
    assert [r.instance_id for r in resumed(world)] == [standby.instance_id]
    assert not any(r.is_tried for r in active(world))


STOPPED = InstanceState.STOPPED


@pytest.mark.parametrize(
    ("wanted", "serving", "state", "decided"),
    [
        (3, (1, 2), STOPPED, ["TryOut"]),
        pytest.param(1, (1, 2), STOPPED, ["Drain"], id="first they are as few as wanted"),
        pytest.param(3, (1,), STOPPED, [], id="a replica is missing"),
        pytest.param(3, (1, 2), InstanceState.STOPPING, [], id="it can't be started yet"),
    ],
)
def test_one_is_tried_out_when_nothing_else_is_to_do(
    wanted: int, serving: tuple[int, ...], state: InstanceState, decided: list[str]
) -> None:
    """And not what this very tick has given its row."""
    spec = spec_of(wanted, readiness_probe=None)
    replicas = [a_replica(i, ReplicaState.READY) for i in serving]
    idle = [a_replica(i, STANDBY, is_standby=True, version=spec.version) for i in (3, 4, 5)]
    seen = seen_of(*replicas, *idle, instances=[an_instance(r.id, state) for r in idle])
    assert [a.name for a in standbys.keep(spec, seen, NOW)] == decided
    as_new = replace(seen, as_read=rows_of(*replicas))
    assert list(standbys.keep(spec, as_new, NOW)) == []


def test_one_that_does_not_come_back_is_given_up() -> None:
    """It boots and never answers: another is prepared, after a while, and what serves goes on."""
    world, controller, standby = untried(spec_of(1, initial_delay_s=30))
    world.prober.silent = {instance_of(standby)}
    settle(world, controller, 2)
    failed = trial(world)
    settle(world, controller, int((30 + timing.BOOT_S) / timing.TICK_IN_TRANSITION_S) + 10)
    ended = table(world).history[failed.id]
    assert ended.state is ReplicaState.FAILED
    assert world.fleet.instances[instance_of(standby)].state in ENDED
    assert (rows(world).standby_backoff.failures, rows(world).backoff.failures) == (1, 0)
    assert sum(r.serves for r in active(world)) == 2


def test_a_trial_that_ec2_refuses_says_nothing_of_the_service() -> None:
    """It stands by again, and is tried out later; after two refusals another is prepared elsewhere."""
    world, controller, standby = untried()
    offering = world.fleet.instances[instance_of(standby)].offering
    room = world.fleet.capacity.get(offering)
    world.fleet.capacity[offering] = 0
    settle(world, controller, 4)
    (refused,) = standing_by(world)
    assert (refused.attempts, refused.resume_s, refused.is_tried) == (1, None, False)
    assert rows(world).standby_backoff == Backoff()
    if room is None:
        del world.fleet.capacity[offering]
    else:
        world.fleet.capacity[offering] = room
    world.clock.advance(timing.STANDBY_RETRY_S)
    settle(world, controller, 20)
    (tried,) = standing_by(world)
    assert (tried.instance_id, tried.is_tried) == (standby.instance_id, True)


def test_a_refused_trial_ends_no_brake() -> None:
    """That it stands by again is no proof that one can be prepared."""
    row = a_replica(4, ReplicaState.PROVISIONING, is_standby=True, retry_at=NOW)
    before = Backoff(2, NOW + seconds(600), 1)
    for state, after in ((ReplicaState.PROVISIONING, before), (ReplicaState.STARTING, Backoff())):
        stops = [steps.stand_by(replace(row, state=state, entered={**row.entered, state: NOW}), NOW)]
        assert changes._standby_backoff_after(before, stops, NOW) == after


@pytest.mark.parametrize("state", [InstanceState.STOPPING, InstanceState.STOPPED])
def test_that_it_was_stopped_before_its_trial_is_no_news(state: InstanceState) -> None:
    """The event of the first stop comes late."""
    world, controller, standby = untried()
    told = StateChange(instance_of(standby), world.clock.now(), state)
    settle(world, controller, 1)
    before = trial(world)
    controller.handle([told])
    assert trial(world) == before


def test_a_trial_that_nobody_started_is_started_by_the_tick() -> None:
    """Whoever wrote its row may have died."""
    world, controller, _ = untried()
    world.refuse("fleet.start", Unavailable("no answer"))
    with pytest.raises(Unavailable):
        settle(world, controller, 2)
    assert trial(world).state is ReplicaState.PROVISIONING
    settle(world, controller, 20)
    assert [r.is_tried for r in standing_by(world)] == [True]


def test_an_instance_that_ends_on_trial_says_nothing_of_the_version() -> None:
    """Before it ran, that is: EC2 couldn't start it."""
    world, controller, standby = untried()
    settle(world, controller, 1)
    world.fleet.enter(InstanceState.TERMINATED, [instance_of(standby)])
    settle(world, controller, 2)
    assert rows(world).standby_backoff == Backoff()


# Resumed.


@pytest.mark.parametrize(("has_run", "failures"), [(False, 0), (True, 1)])
def test_what_ends_once_it_has_run_says_something_of_the_version(has_run: bool, failures: int) -> None:
    """A standby that is resumed and that EC2 can't start doesn't."""
    world, controller = prepared(spec_of(1))
    dry(world, SPOT)
    controller.handle(warn(world, active(world)[0]))
    (fallback,) = resumed(world)
    if has_run:
        world.fleet.run()
        controller.handle([StateChange(instance_of(fallback), world.clock.now(), InstanceState.RUNNING)])
    world.fleet.enter(InstanceState.TERMINATED, [instance_of(fallback)])
    settle(world, controller, 1)
    assert rows(world).backoff.failures == failures


def test_a_warning_resumes_a_standby_in_the_same_run() -> None:
    """After the Spot launch, which waits for none; its instance starts, and no cold fallback is launched."""
    world, controller = prepared()
    first = active(world)[0]
    controller.handle(warn(world, first))
    assert world.calls.index("fleet.launch") < world.calls.index("fleet.start")
    (fallback,) = resumed(world)
    assert fallback.state is ReplicaState.PROVISIONING
    assert fallback.id > max(r.id for r in rows(world).replicas.values() if r.id != fallback.id) - 2
    assert world.fleet.instances[instance_of(fallback)].state is InstanceState.PENDING
    assert [request.purchase_option for request in world.fleet.launches] == [SPOT]
    assert world.store.locate([instance_of(fallback)]) == {instance_of(fallback): ("demo", fallback.id)}


def test_what_is_resumed_serves_and_stands_by_again_once_spot_has_stayed() -> None:
    """The same instance, stopped and not terminated, under a new ID each time."""
    world, controller = prepared()
    dry(world, SPOT)
    first = active(world)[0]
    controller.handle(warn(world, first))
    settle(world, controller, 3)
    (fallback,) = resumed(world)
    assert fallback.serves
    assert instance_of(fallback) in in_rotation(world)
    controller.handle(reclaim(world, first))
    settle(world, controller, 20)
    assert resumed(world) == [fallback], "Spot isn't back"
    world.fleet.capacity.clear()
    settle(world, controller, 60)
    assert not resumed(world)
    back = next(r for r in standing_by(world) if r.instance_id == fallback.instance_id)
    assert back.id > fallback.id
    assert world.fleet.instances[instance_of(back)].state is InstanceState.STOPPED
    assert sum(r.stays and not r.is_fallback for r in active(world)) == 2
    assert len(standing_by(world)) == 2


def test_a_loss_without_a_warning_resumes_one_too() -> None:
    """As does a tick that finds a replica missing."""
    for is_told in (True, False):
        world, controller = prepared()
        events = reclaim(world, active(world)[0])
        if is_told:
            controller.handle(events)
        else:
            controller.tick("demo")
        assert len(resumed(world)) == 1


def test_a_launch_on_demand_takes_no_place_that_a_standby_needs() -> None:
    """Where there is room for one, the standby has it, which serves sooner."""
    world, controller = prepared(spec_of(1, use_spot=False))
    controller.handle(reclaim(world, active(world)[0]))
    assert world.calls.index("fleet.start") < world.calls.index("fleet.launch")
    assert world.calls.count("fleet.start") == 1


@pytest.mark.parametrize("call", ["store.recall", "fleet.launch"])
def test_a_launch_that_fails_keeps_no_standby_from_starting(call: str) -> None:
    """Nobody waits for the next tick: it comes in the same run."""
    world, controller = prepared()
    world.refuse(call, Unavailable("no answer"))
    controller.handle(warn(world, active(world)[0]))
    (fallback,) = resumed(world)
    assert world.fleet.instances[instance_of(fallback)].state is InstanceState.PENDING


def test_each_loss_of_many_gets_its_own_standby() -> None:
    """Two at once resume two; a third has to be launched."""
    world, controller = prepared(spec_of(2, 3))
    dry(world, SPOT)
    lost = active(world)[:3]
    controller.handle(warn(world, *lost))
    assert len(resumed(world)) == 2
    assert not standing_by(world)
    controller.handle(reclaim(world, *lost))
    settle(world, controller, 4)
    assert len([r for r in active(world) if r.is_fallback]) == 3


def test_two_deliveries_of_a_warning_resume_one() -> None:
    """Nor does the tick resume another for what is coming."""
    world, controller = prepared()
    events = warn(world, active(world)[0])
    controller.handle(events)
    controller.handle(events)
    controller.tick("demo")
    assert len(resumed(world)) == 1
    assert len(standing_by(world)) == 1


def test_one_that_is_refused_is_followed_by_the_next_and_then_by_a_cold_fallback() -> None:
    """EC2 has no room for it: it stands by again, and isn't asked at once."""
    world, controller = prepared()
    dry(world, SPOT)
    offerings = {world.fleet.instances[instance_of(r)].offering for r in standing_by(world)}
    world.fleet.capacity.update(dict.fromkeys(offerings, 0))
    first = active(world)[0]
    controller.handle(warn(world, first))
    controller.handle(reclaim(world, first))
    settle(world, controller, 10)
    fallbacks = [r for r in active(world) if r.is_fallback]
    assert [r.is_standby for r in fallbacks] == [False], "a cold one"
    assert [r.attempts for r in standing_by(world)] == [1, 1]
    assert all(r.retry_at for r in standing_by(world))
    ended = [r for r in table(world).history.values() if r.reason == "stands by again"]
    assert ended
    assert all("; refused: " in (r.launch or "") for r in ended), "`explain` tells in EC2's words"


def test_a_refusal_teaches_about_where_the_instance_is() -> None:
    """EC2 names the instance alone: the row says which pool has nothing on-demand, and it cools."""
    world, controller = prepared(spec_of(1))
    (standby,) = standing_by(world)
    world.fleet.capacity[world.fleet.instances[instance_of(standby)].offering] = 0
    controller.handle(reclaim(world, active(world)[0]))
    cooling = world.store.recall("demo", "us-east-1", world.clock.now()).cooldowns
    assert standby.offering is not None
    assert Scope.of(standby.offering) in {c.scope for c in cooling if c.cause is Cause.REFUSAL}


def test_a_refusal_that_comes_again_after_its_cooldown_doubles_it() -> None:
    """As a launch's does: a pool that has had nothing twice rests for longer."""
    world, controller = prepared(spec_of(1))
    (standby,) = standing_by(world)
    assert standby.offering is not None
    world.fleet.capacity[world.fleet.instances[instance_of(standby)].offering] = 0
    scope, ended = Scope.of(standby.offering), world.clock.now()
    before = Cooldown(scope, Cause.REFUSAL, ended - seconds(timing.REFUSAL_COOLDOWN_S), ended, "", 1)
    world.store.cool([before])
    controller.handle(reclaim(world, active(world)[0]))
    (cools,) = (
        c for c in world.store.recall("demo", "us-east-1", world.clock.now()).cooldowns if c.scope == scope
    )
    assert (cools.strikes, cools.until - cools.since) == (2, seconds(2 * timing.REFUSAL_COOLDOWN_S))


def test_a_refusal_that_only_a_person_can_mend_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It rings the alarm of launches that are blocked, with EC2's words and the remedy; a cold one comes."""
    world, controller = prepared(spec_of(1))
    dry(world, SPOT)
    denied = Refusal(RefusalKind.PERMISSION, "UnauthorizedOperation", "you may not", None, "allow it")
    monkeypatch.setattr(world.fleet, "start", lambda ids: dict.fromkeys(ids, denied))
    controller.handle(reclaim(world, active(world)[0]))
    (told,) = [facts for event, facts in world.telemetry.records if event == "launch_blocked"]
    assert (told["error"], told["remedy"]) == ("you may not", "allow it")
    settle(world, controller, 8)
    assert [r.is_standby for r in active(world) if r.is_fallback] == [False]


def test_a_refusal_that_the_tick_meets_is_noted_too() -> None:
    """Whoever resumed it got no answer; the tick asks again, is refused, and looks for another."""
    world, controller = prepared(spec_of(1))
    dry(world, SPOT)
    (standby,) = standing_by(world)
    world.refuse("fleet.start", Unavailable("no answer"))
    with pytest.raises(Unavailable):
        controller.tick("demo") if reclaim(world, active(world)[0]) else None
    world.fleet.capacity[world.fleet.instances[instance_of(standby)].offering] = 0
    settle(world, controller, 20)
    assert [r.attempts for r in standing_by(world)] == [1]
    assert [r.is_standby for r in active(world) if r.is_fallback] == [False]


def test_one_that_still_stops_is_waited_for() -> None:
    """It was stopped a moment ago: that it can't be started yet is no refusal, and the tick asks again."""
    world, controller = prepared(spec_of(1))
    dry(world, SPOT)
    instance_id = instance_of(standing_by(world)[0])
    world.fleet.enter(InstanceState.STOPPING, [instance_id])
    controller.handle(reclaim(world, active(world)[0]))
    settle(world, controller, 1)
    assert [(r.instance_id, r.attempts) for r in resumed(world)] == [(instance_id, 0)]
    world.fleet.enter(InstanceState.STOPPED, [instance_id])
    settle(world, controller, 8)
    assert [r.serves for r in resumed(world)] == [True]


def test_one_that_never_comes_up_is_replaced() -> None:
    """Two refusals in a row, and another is prepared in its place, once nothing is missing any more."""
    world, controller = prepared(spec_of(1))
    standby = standing_by(world)[0]
    instance_id = instance_of(standby)
    dry(world, SPOT, ON_DEMAND)
    controller.handle(reclaim(world, active(world)[0]))
    for _ in range(2):
        settle(world, controller, 8)
        world.clock.advance(timing.STANDBY_RETRY_S)
    assert standing_by(world)[0].attempts >= timing.STANDBY_TRIES
    offering = world.fleet.instances[instance_id].offering
    world.fleet.capacity = {offering: 0}
    settle(world, controller, 80)
    assert world.fleet.instances[instance_id].state is InstanceState.TERMINATED
    assert [r.instance_id == instance_id for r in standing_by(world)] == [False]


def test_a_slow_one_is_followed_by_another() -> None:
    """After a minute and a half it counts no more as coming; it may still come."""
    world, controller = prepared()
    dry(world, SPOT)
    first = active(world)[0]
    world.prober.silent = {instance_of(r) for r in standing_by(world)}
    controller.handle(warn(world, first))
    controller.handle(reclaim(world, first))
    settle(world, controller, 3)
    assert len(resumed(world)) == 1
    world.clock.advance(SLOW_S)
    settle(world, controller, 1)
    assert len(resumed(world)) == 2


@pytest.mark.parametrize(
    ("own_s", "others_s", "expected_s"),
    [(None, [], None), (None, [100, 200, 900], 200), (50, [100, 200, 900], 50)],
)
def test_what_was_never_resumed_is_expected_to_take_what_others_took(
    own_s: float | None, others_s: list[float], expected_s: float | None
) -> None:
    """Its own last resume counts, then those of the service's others."""
    standby = a_replica(9, STANDBY, is_standby=True, resume_s=own_s)
    others = [a_replica(n, STANDBY, is_standby=True, resume_s=s) for n, s in enumerate(others_s, 10)]
    cold = a_replica(1, ReplicaState.READY, resume_s=5000)
    known = rows_of(standby, cold, *others)
    (step,) = standbys.bridge(replace(spec_of(), replicas=2), known, {standby.id}, NOW)
    (heir,) = step.creates
    assert heir.resume_s == expected_s


@pytest.mark.parametrize(("resume_s", "late_after_s"), [(None, 90), (20, 90), (60, 90), (240, 360)])
def test_late_is_half_as_long_again(resume_s: float | None, late_after_s: float) -> None:
    """As a minute, at least: one quick resume makes the next one late no sooner."""
    for more_s, is_late in ((0, False), (1, True)):
        replica = a_replica(
            1,
            ReplicaState.PROVISIONING,
            late_after_s + more_s,
            is_standby=True,
            is_fallback=True,
            resume_s=resume_s,
        )
        assert standbys.is_late(replica, NOW) is is_late


def test_what_a_resume_took_goes_with_the_instance() -> None:
    """From its start to ready the first time; not what it took to come back, and not a cold start."""
    world, controller = prepared()
    dry(world, SPOT)
    controller.handle(warn(world, active(world)[0]))
    settle(world, controller, 3)
    (fallback,) = resumed(world)
    assert fallback.resume_s
    starting = fallback.to(ReplicaState.DRAINING, NOW).to(ReplicaState.STARTING, NOW)
    assert steps.mark_ready(starting, NOW + seconds(900)).row.resume_s == fallback.resume_s
    world.fleet.capacity.clear()
    settle(world, controller, 60)
    assert {r.instance_id: r.resume_s for r in standing_by(world)}[fallback.instance_id] == fallback.resume_s
    assert {r.resume_s for r in active(world)} == {None}


def test_a_start_that_nobody_asked_for_is_asked_for_by_the_tick() -> None:
    """Whoever resumed it may have died, or the call got lost."""
    world, controller = prepared()
    dry(world, SPOT)
    reclaim(world, active(world)[0])
    world.refuse("fleet.start", Unavailable("no answer"))
    with pytest.raises(Unavailable):
        controller.tick("demo")
    (fallback,) = resumed(world)
    assert world.fleet.instances[instance_of(fallback)].state is InstanceState.STOPPED
    settle(world, controller, 9)
    assert resumed(world)[0].serves


def test_a_stop_that_nobody_asked_for_is_asked_for_by_the_tick() -> None:
    """A standby whose instance runs costs its price, for nothing."""
    world, controller = prepared()
    instance_id = instance_of(standing_by(world)[0])
    world.fleet.enter(InstanceState.RUNNING, [instance_id])
    settle(world, controller, 2)
    assert world.fleet.instances[instance_id].state is InstanceState.STOPPED


# What EC2 says meanwhile.


@pytest.mark.parametrize("state", [InstanceState.STOPPING, InstanceState.STOPPED])
def test_that_a_standby_is_stopped_is_no_news(state: InstanceState) -> None:
    """We stopped it: its row stays as it is, and nothing is resumed or launched for it."""
    world, controller = prepared()
    before = rows(world)
    signals = [StateChange(instance_of(r), world.clock.now(), state) for r in standing_by(world)]
    controller.handle(signals)
    assert rows(world) == before
    assert not {"fleet.start", "fleet.launch"} & set(world.calls)


@pytest.mark.parametrize("state", [s for s in InstanceState if s not in ENDED])
@pytest.mark.parametrize("is_ready", [False, True])
def test_what_an_instance_did_before_it_was_resumed_is_no_news(state: InstanceState, is_ready: bool) -> None:
    """An event of its stop, or of its first start, may come late or twice, also when it serves already."""
    world, controller = prepared(spec_of(1))
    dry(world, SPOT)
    told = StateChange(instance_of(standing_by(world)[0]), world.clock.now() - seconds(1), state)
    controller.handle(warn(world, active(world)[0]))
    settle(world, controller, 4 * is_ready)
    before = resumed(world)
    assert [r.serves for r in before] == [is_ready]
    controller.handle([told])
    assert resumed(world) == before


def test_what_happens_to_a_resumed_one_is_news() -> None:
    """Somebody stopped it: it leaves the rotation. That it is gone counts, whatever the event's time."""
    for state, late_s in ((InstanceState.STOPPED, 0), (InstanceState.TERMINATED, 600)):
        world, controller = prepared(spec_of(1))
        dry(world, SPOT)
        controller.handle(warn(world, active(world)[0]))
        settle(world, controller, 4)
        (fallback,) = resumed(world)
        assert fallback.serves
        at = world.clock.now() - seconds(late_s)
        controller.handle([StateChange(instance_of(fallback), at, state)])
        assert fallback.id not in {r.id for r in resumed(world)}
        assert instance_of(fallback) not in in_rotation(world)


@pytest.mark.parametrize("state", [InstanceState.SHUTTING_DOWN, InstanceState.STOPPED])
def test_what_has_just_left_is_not_resumed_in_the_same_run(state: InstanceState) -> None:
    """It left because its instance ends: another standby comes, or none."""
    world, controller = prepared(spec_of(1))
    dry(world, SPOT)
    controller.handle(warn(world, active(world)[0]))
    settle(world, controller, 4)
    (fallback,) = resumed(world)
    controller.handle([StateChange(instance_of(fallback), world.clock.now(), state)])
    assert instance_of(fallback) not in {r.instance_id for r in resumed(world)}


def test_that_a_resumed_one_runs_is_news() -> None:
    """The event starts its checks at once, though its time has whole seconds."""
    world, controller = prepared(spec_of(1))
    world.clock.advance(0.7)
    controller.handle(warn(world, active(world)[0]))
    (fallback,) = resumed(world)
    at = world.clock.now().replace(microsecond=0)
    world.fleet.run()
    controller.handle([StateChange(instance_of(fallback), at, InstanceState.RUNNING)])
    assert [r.state for r in resumed(world)] == [ReplicaState.STARTING]


# Kept.


def test_a_standby_that_is_gone_is_prepared_anew() -> None:
    """Somebody terminated it, or its host failed for good."""
    world, controller = prepared()
    lost = standing_by(world)[0]
    world.fleet.enter(InstanceState.TERMINATED, [instance_of(lost)])
    settle(world, controller, 20)
    assert len(standing_by(world)) == 2
    assert lost.instance_id not in {r.instance_id for r in standing_by(world)}


def test_too_many_are_given_up() -> None:
    """The file asks for fewer: the newest go, and only standbys do."""
    world, controller = prepared()
    world.services.specs["demo"] = spec_of(1)
    oldest = standing_by(world)[0]
    settle(world, controller, 20)
    assert standing_by(world) == [oldest]
    assert len(world.fleet.instances) - len(alive(world)) == 2, "one stopped, one terminated"
    assert sum(r.serves for r in active(world)) == 2


@pytest.mark.parametrize("why", ["version", "age"])
def test_old_ones_are_renewed_one_after_the_other(why: str) -> None:
    """Never fewer than wanted: the new one is prepared, and tried out, first."""
    world, controller = prepared()
    before = {r.instance_id for r in standing_by(world)}
    if why == "version":
        world.services.specs["demo"] = spec_of(version=2)
    else:
        world.clock.advance(timing.STANDBY_MAX_AGE_S)
    for _ in range(60):
        settle(world, controller, 1)
        assert sum(r.is_tried for r in standing_by(world)) >= 2
    assert not {r.instance_id for r in standing_by(world)} & before
    assert len(standing_by(world)) == 2


def test_a_removed_service_leaves_no_standby() -> None:
    """Stopped instances cost their disks: they are terminated with the rest."""
    world, controller = prepared()
    del world.services.specs["demo"]
    controller.note_removal("demo")
    for _ in range(40):
        world.clock.advance(timing.TICK_IN_TRANSITION_S)
        controller.tick("demo")
        world.router.pass_checks()
    assert {i.state for i in world.fleet.instances.values()} == {InstanceState.TERMINATED}
    assert not rows(world).replicas


def test_a_stopped_instance_without_a_row_is_no_standby() -> None:
    """Nobody knows what is on its disk: as every orphan it is ended."""
    world, controller = prepared()
    standby = standing_by(world)[0]
    world.store.damage("demo").replicas.pop(standby.id)
    world.store.unlearn(standby.instance_id)
    world.clock.advance(timing.ORPHAN_GRACE_S)
    settle(world, controller, 30)
    assert world.fleet.instances[instance_of(standby)].state is InstanceState.TERMINATED


def test_without_standbys_nothing_is_started_or_stopped() -> None:
    """A service that asks for none pays nothing for them, nor another read."""
    world = world_of(demo_spec())
    controller = Controller(world.ports())
    settle(world, controller)
    world.calls.clear()
    controller.handle(warn(world, active(world)[0]))
    assert "fleet.start" not in world.calls
    assert "store.load" not in world.calls


def test_spot_and_standby_in_one_offering_are_told_apart() -> None:
    """A standby is bought on-demand, whatever the service buys."""
    world, _ = prepared(spec_of(1, 1))
    (standby,) = standing_by(world)
    assert standby.offering == Offering(standby.offering.pool, ON_DEMAND) if standby.offering else False


# What simulation has found.


@pytest.mark.parametrize("state", [InstanceState.STOPPING, InstanceState.STOPPED, InstanceState.RUNNING])
def test_an_event_of_before_it_was_resumed_changes_nothing(state: InstanceState) -> None:
    """It says what the instance did as a standby, and comes late: it serves by now, or starts."""
    world, controller = prepared()
    dry(world, SPOT)
    late = world.clock.now()
    world.clock.advance(1)
    controller.handle(warn(world, active(world)[0]))
    (rising,) = resumed(world)
    controller.handle([StateChange(instance_of(rising), late, state)])
    assert resumed(world) == [rising]
    settle(world, controller, 3)
    (serving,) = resumed(world)
    assert serving.serves
    controller.handle([StateChange(instance_of(rising), late, state)])
    assert resumed(world) == [serving]


def test_what_is_resumed_and_stopped_all_the_same_leaves() -> None:
    """An event of after it ran is true: somebody stopped it."""
    world, controller = prepared()
    dry(world, SPOT)
    controller.handle(warn(world, active(world)[0]))
    settle(world, controller, 3)
    (serving,) = resumed(world)
    world.clock.advance(1)
    controller.handle([StateChange(instance_of(serving), world.clock.now(), InstanceState.STOPPED)])
    assert rows(world).replicas[serving.id].state is ReplicaState.DRAINING


def test_one_that_somebody_stopped_is_started_again() -> None:
    """It is on its way to stand by, and nothing else serves."""
    world, controller = prepared(spec_of(1, on_demand_fallback=False))
    dry(world, SPOT)
    controller.handle(warn(world, active(world)[0]))
    settle(world, controller, 3)
    (fallback,) = resumed(world)
    world.clock.advance(1)
    controller.handle([StateChange(instance_of(fallback), world.clock.now(), InstanceState.STOPPED)])
    world.fleet.enter(InstanceState.STOPPED, [instance_of(fallback)])
    settle(world, controller, 7)
    assert [(r.instance_id, r.serves) for r in resumed(world)] == [(fallback.instance_id, True)]


def test_one_on_its_way_back_returns_to_rotation() -> None:
    """Spot goes while its stand-in drains: that still runs, and waits for no stop."""
    world, controller = prepared(spec_of(1))
    dry(world, SPOT)
    controller.handle(warn(world, active(world)[0]))
    settle(world, controller, 4)
    (fallback,) = resumed(world)
    world.fleet.capacity.clear()
    while not any(r.state is ReplicaState.DRAINING and r.is_standby for r in rows(world).replicas.values()):
        settle(world, controller, 1)
    dry(world, SPOT)
    world.clock.advance(1)
    controller.handle(reclaim(world, next(r for r in active(world) if r.serves)))
    settle(world, controller, 2)
    assert instance_of(fallback) in in_rotation(world)


@pytest.mark.parametrize("facts", [{"on_demand_fallback": False}, {"use_spot": False}])
def test_a_slow_one_is_no_reason_for_a_fallback_that_nobody_wants(facts: dict[str, Any]) -> None:
    """Where the service wants none, only standbys bridge."""
    world, controller = prepared(spec_of(1, **facts))
    dry(world, SPOT, ON_DEMAND)
    world.fleet.capacity[world.fleet.instances[instance_of(standing_by(world)[0])].offering] = 1
    world.prober.silent = {instance_of(r) for r in standing_by(world)}
    controller.handle(reclaim(world, active(world)[0]))
    assert len(resumed(world)) == 1
    world.clock.advance(SLOW_S + 1)
    settle(world, controller, 3)
    assert [r.is_standby for r in active(world) if r.is_fallback] == [True]


def test_one_that_is_still_stopping_is_asked_for_again() -> None:
    """That EC2 can't start it yet is no refusal: it comes as soon as it has stopped."""
    world, controller = prepared(spec_of(1))
    dry(world, SPOT)
    instance_id = instance_of(standing_by(world)[0])
    world.fleet.enter(InstanceState.STOPPING, [instance_id])
    controller.handle(warn(world, active(world)[0]))
    (rising,) = resumed(world)
    assert (rising.attempts, rising.retry_at) == (0, None)
    world.fleet.enter(InstanceState.STOPPED, [instance_id])
    settle(world, controller, 9)
    assert [r.instance_id for r in resumed(world) if r.serves] == [instance_id]


def test_a_lesson_of_a_refused_start_may_get_lost() -> None:
    """The message needn't come again for it."""
    world, controller = prepared()
    dry(world, SPOT, ON_DEMAND)
    world.refuse("store.cool", Unavailable("no answer"))
    assert controller.handle(reclaim(world, active(world)[0])) == []
    assert world.calls.count("store.cool") >= 1


def test_of_too_many_the_dead_one_goes() -> None:
    """A standby whose instance ended leaves as that, and no other goes in its place."""
    world, controller = prepared()
    first, lost = standing_by(world)
    world.fleet.enter(InstanceState.TERMINATED, [instance_of(lost)])
    world.services.specs["demo"] = spec_of(1)
    settle(world, controller, 20)
    assert standing_by(world) == [first]
    world.fleet.enter(InstanceState.TERMINATED, [instance_of(first)])
    world.services.specs["demo"] = spec_of(0)
    settle(world, controller, 20)
    assert not standing_by(world)


def test_a_dead_standby_is_not_resumed_by_a_tick_that_sees_it() -> None:
    """Nor does it count as a failure of its version where nobody saw it."""
    world, controller = prepared()
    lost = standing_by(world)
    dry(world, SPOT)
    world.fleet.enter(InstanceState.TERMINATED, [instance_of(lost[0])])
    reclaim(world, active(world)[0])
    controller.tick("demo")
    assert [r.instance_id for r in resumed(world)] == [lost[1].instance_id]

    world, controller = prepared()
    lost = standing_by(world)
    world.fleet.enter(InstanceState.TERMINATED, [instance_of(r) for r in lost])
    controller.handle(reclaim(world, active(world)[0]))
    for _ in range(8):
        settle(world, controller, 1)
        assert rows(world).backoff.failures == 0
    assert not resumed(world)


def test_one_that_is_resumed_beside_a_cold_fallback_is_not_sent_back() -> None:
    """EC2 refused it, and a cold one was launched. Then it comes after all: the cold one goes then."""
    world, controller = prepared(spec_of(1, replicas=1))
    dry(world, SPOT)
    (standby,) = standing_by(world)
    offering = world.fleet.instances[instance_of(standby)].offering
    world.fleet.capacity[offering] = 0
    controller.handle(reclaim(world, active(world)[0]))
    colds: set[str] = set()
    for rounds in range(15):
        settle(world, controller, 1)
        cold = [r for r in active(world) if r.is_fallback and not r.is_standby and r.instance_id]
        colds |= {instance_of(r) for r in cold}
        world.prober.silent = colds
        if rounds == 4:
            assert colds
            world.fleet.capacity[offering] = 1
    (fallback,) = [r for r in active(world) if r.is_fallback]
    assert (fallback.instance_id, fallback.serves) == (standby.instance_id, True)


def test_standbys_are_spread_over_zones_and_then_over_pools() -> None:
    """What empties one pool, or one zone, isn't what refuses the start of all of them."""
    world, _ = prepared(spec_of(3))
    pools = [r.offering.pool for r in standing_by(world) if r.offering]
    zones = {pool.zone for pool in demo_spec().pools}
    assert len({pool.zone for pool in pools}) == min(len(zones), 3)
    assert len(set(pools)) == 3


def test_standbys_keep_to_the_types_and_zones_that_they_may_have() -> None:
    """Where the file names any; replicas may be anywhere."""
    pool = demo_spec().pools[-1]
    only: dict[str, Any] = {"standby_instance_types": (pool.instance_type,), "standby_zones": (pool.zone,)}
    world, _ = prepared(replace(spec_of(2), **only))
    assert [r.offering.pool for r in standing_by(world) if r.offering] == [pool, pool]
    assert {r.offering.pool for r in active(world) if r.offering} != {pool}


def test_a_start_is_asked_for_again_after_ten_seconds_and_no_sooner() -> None:
    """Whoever asked first may still be at it."""
    for since_s, again in ((timing.AGAIN_S, True), (timing.AGAIN_S - 0.1, False)):
        row = a_replica(1, ReplicaState.PROVISIONING, since_s=since_s, is_standby=True, is_fallback=True)
        assert list(standbys.awaken(row, NOW)) == ([steps.start_instance(row)] if again else [])


def test_one_that_is_resumed_while_a_tick_looks_is_not_stopped() -> None:
    """The tick read that it stands by, and sees its instance run: its row is written before it is stopped."""
    world, controller = prepared(spec_of(1, replicas=1))
    (standby,) = standing_by(world)
    world.clock.advance(timing.AGAIN_S)
    signals = warn(world, active(world)[0])
    world.fleet.interrupted.clear()  # the tick asked before
    world.meddle("fleet.observe", lambda *_: controller.handle(signals))
    controller.tick("demo")
    (fallback,) = resumed(world)
    assert fallback.instance_id == standby.instance_id
    assert world.fleet.instances[instance_of(fallback)].state is InstanceState.PENDING
    assert "fleet.stop" not in world.calls


@pytest.mark.parametrize(("warned_at", "resumes"), [(NOW, 1), (None, 0)])
def test_what_is_warned_and_does_not_answer_is_not_only_busy(
    warned_at: datetime | None, resumes: int
) -> None:
    """It goes either way, so a standby comes at once; for one that isn't warned the next tick tells."""
    well = a_replica(1, ReplicaState.READY, warned_at=warned_at)
    ill = replace(well, unhealthy_since=NOW)
    stopped = a_replica(2, STANDBY, is_standby=True, purchase_option=ON_DEMAND)
    seen = replace(
        seen_of(well, stopped), rows=seen_of(ill, stopped).rows, as_read=seen_of(well, stopped).rows
    )
    assert len(list(standbys.resume(spec_of(1, replicas=1), seen, NOW))) == resumes


def test_one_that_is_late_is_not_sent_back_for_a_cold_one_that_does_not_serve() -> None:
    """It may come the next moment: which of the two goes is decided once one serves."""
    rising: dict[str, Any] = {"purchase_option": ON_DEMAND, "is_fallback": True}
    cold = a_replica(3, ReplicaState.STARTING, 9, **rising)
    late = a_replica(4, ReplicaState.PROVISIONING, SLOW_S + 1, is_standby=True, **rising)
    assert strength._idle_fallbacks([cold, late], 1, [], NOW) == []
    serving = replace(cold, state=ReplicaState.READY, entered={**cold.entered, ReplicaState.READY: NOW})
    assert strength._idle_fallbacks([serving, late], 1, [], NOW) == [late]

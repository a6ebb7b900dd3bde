"""A new version replaces the ones before it: beside them first, a few at a time, and not if it fails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spotrelay.plane.control.controller import Controller
from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import InstanceState, TargetState
from spotrelay.plane.core.pools import PurchaseOption
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Backoff, LaunchIntent
from spotrelay.plane.core.spec import OnUpdate, ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.events import InterruptionWarning
from spotrelay.plane.serving import changes, interruption, reconcile, rollout, steps
from spotrelay.plane.serving import failures as failures_of
from spotrelay.plane.serving.steps import Step
from tests.examples import demo_spec
from tests.unit.cases import (
    LONG_AGO,
    NOW,
    RECENTLY,
    a_replica,
    an_instance,
    losing,
    needless,
    replacing,
    rows_of,
    seen_of,
    told,
    without,
)
from tests.unit.worlds import active, rows, serving, settle

REQUESTED, STARTING, READY, DRAINING = (
    ReplicaState.REQUESTED,
    ReplicaState.STARTING,
    ReplicaState.READY,
    ReplicaState.DRAINING,
)
DEPLOYED = "version 2 is deployed"
SPOT = PurchaseOption.SPOT
FAILED_ONCE = Backoff(1, NOW + seconds(timing.FAILURE_FIRST_S), version=2)
STOPPED = Backoff(2, LONG_AGO, version=2)
DUE = NOW - seconds(60)
"""Who hasn't answered since then is ill: it gets a minute."""


def spec_of(replicas: int = 3, **facts: Any) -> ServiceSpec:
    """A service that rolls out, of which version 2 is deployed."""
    return replace(demo_spec(replicas=replicas), **{"version": 2, "on_update": OnUpdate.ROLLING, **facts})


def decide(*replicas: Replica, spec: ServiceSpec | None = None, **seen: Any) -> list[Step]:
    """The tick's decision; every instance runs, and who is ready and not known to be ill is healthy."""
    health = {r.id: _health(r) for r in replicas if r.instance_id}
    instances = [an_instance(r.id) for r in replicas if r.instance_id]
    facts = {"instances": instances, "health": health, **seen}
    return reconcile.decide(spec or spec_of(), seen_of(*replicas, **facts), NOW)


def _health(replica: Replica) -> TargetState:
    if replica.state is not READY:
        return TargetState.INITIAL
    return TargetState.HEALTHY if replica.unhealthy_since is None else TargetState.UNHEALTHY


def old(id_: int, **facts: Any) -> Replica:
    """One of version 1 that serves; those with lower IDs do for longer."""
    return a_replica(id_, READY, since_s=3600 - id_, **facts)


def new(id_: int, state: ReplicaState = READY, **facts: Any) -> Replica:
    """One of version 2, which replaced another because it was deployed."""
    made: dict[str, Any] = {"version": 2, "reason": DEPLOYED, "since_s": 5, **facts}
    made.setdefault("entered", {**RECENTLY, state: NOW - seconds(made["since_s"])})
    return a_replica(id_, state, **made)


def three() -> list[Replica]:
    """A fleet of version 1, of which the first is being replaced."""
    return [old(1, replaced_by=4), old(2), old(3)]


# Make before break.


def test_the_new_version_comes_up_beside_the_old_one() -> None:
    """The one that serves for longest is replaced first; it drains once the other one stays."""
    assert decide(old(2), old(1), old(3)) == [steps.replace(old(1), NOW, DEPLOYED, 2)]
    assert decide(*three(), new(4, STARTING)) == []
    rising = new(4, STARTING)
    assert decide(*three(), rising, health=_healthy(1, 2, 3, 4)) == [steps.mark_ready(rising, NOW)]
    assert decide(*three(), new(4)) == [steps.drain(three()[0], NOW, DEPLOYED)]
    assert decide(*three()[1:], new(4)) == [steps.replace(old(2), NOW, DEPLOYED, 2)]
    assert decide(*(new(i) for i in (4, 5, 6))) == [], "it is done"


def since(ready_s: float, start_s: float) -> dict[ReplicaState, Any]:
    """The times of one that is ready for so long and took so long to start."""
    ready = NOW - seconds(ready_s)
    return {REQUESTED: LONG_AGO, ReplicaState.PROVISIONING: ready - seconds(start_s), READY: ready}


@pytest.mark.parametrize(
    ("ready_s", "start_s", "goes"),
    [(99, 100, False), (100, 100, True), (599, 1800, False), (600, 1800, True)],
)
def test_the_old_one_goes_once_the_new_one_has_stayed(ready_s: float, start_s: float, goes: bool) -> None:
    """It has been ready for as long as it took to start, but ten minutes (600 s) are enough."""
    actions = decide(*three(), new(4, entered=since(ready_s, start_s)))
    assert actions == ([steps.drain(three()[0], NOW, DEPLOYED)] if goes else [])


@pytest.mark.parametrize(("ready_s", "is_next"), [(99, False), (100, True)])
def test_only_what_has_stayed_is_replaced(ready_s: float, is_next: bool) -> None:
    """One that has just come up is no sign yet that there is room to give it up again."""
    young = a_replica(1, READY, entered=since(ready_s, 100))
    assert decide(young, spec=spec_of(1)) == ([steps.replace(young, NOW, DEPLOYED, 2)] if is_next else [])


def test_of_more_than_wanted_none_is_replaced() -> None:
    """Two of five go anyway: what is too many isn't replaced first."""
    fleet = [old(i) for i in (1, 2, 3, 4, 5)]
    actions = decide(*fleet, spec=spec_of(3, surge=3))
    assert actions == [steps.drain(old(i), NOW, "more replicas than wanted") for i in (5, 4)]


@pytest.mark.parametrize("facts", [{"unhealthy_since": NOW}, {"warned_at": NOW, "replaced_by": 5}])
def test_the_old_one_stays_while_the_new_one_does_not(facts: dict[str, Any]) -> None:
    """That it was ready once is not enough: it must answer its checks, and not be taken back."""
    drains = [a for a in decide(*three(), new(4, **facts)) if a.name == "Drain"]
    assert [d for d in drains if d.replica.version == 1] == []


@pytest.mark.parametrize("surge", [1, 2, 3])
def test_at_most_surge_are_replaced_at_a_time(surge: int) -> None:
    """Those that are on their way count."""
    spec = spec_of(surge=surge)
    fleet = [old(i) for i in (1, 2, 3)]
    assert decide(*fleet, spec=spec) == [steps.replace(r, NOW, DEPLOYED, 2) for r in fleet[:surge]]
    rest = [steps.replace(r, NOW, DEPLOYED, 2) for r in fleet[1:surge]]
    assert decide(*three(), new(4, STARTING), spec=spec) == rest


def test_what_should_be_left_for_another_reason_comes_first() -> None:
    """What doesn't answer is replaced before what serves, and with a version that has served."""
    ill = old(3, unhealthy_since=NOW - seconds(timing.UNHEALTHY_REPLACED_S))
    assert decide(old(1), old(2), ill) == [steps.replace(ill, NOW, "unhealthy for 60 s", 1)]


def test_a_fleet_is_rolled_out_one_after_the_other() -> None:
    """From the deployment to the end three serve, four exist at most, and all have the new version."""
    world, controller = serving()
    _deploy(world.services.specs, spec_of())
    seen = []
    for _ in range(40):
        settle(world, controller, rounds=1)
        seen.append([r.state for r in active(world)])
        assert seen[-1].count(READY) >= 3
        assert len(seen[-1]) <= 4
    assert [(r.id, r.version) for r in active(world)] == [(4, 2), (5, 2), (6, 2)]
    assert [launch.count for launch in world.fleet.launches] == [1, 1, 1]


def _deploy(specs: Any, spec: ServiceSpec) -> None:
    specs[spec.service] = spec


def test_a_service_that_keeps_replaces_nothing() -> None:
    """What is launched from then on has the new version, whatever has served; nothing else changes."""
    keep = spec_of(on_update=OnUpdate.KEEP)
    fleet = [old(1), old(2), old(3)]
    assert decide(*fleet, spec=keep) == []
    gone = [an_instance(1, InstanceState.TERMINATED), an_instance(2), an_instance(3)]
    assert decide(*fleet, spec=keep, instances=gone) == losing(old(1), "instance terminated", version=2)
    waiting = a_replica(3, REQUESTED)
    launched = replace(waiting, version=2, entered={REQUESTED: NOW})
    assert decide(*fleet[:2], waiting, spec=keep) == [steps.launch(launched)]
    stopped = rows_of(new(3, unhealthy_since=NOW), backoff=STOPPED)
    assert not rollout.is_stopped(keep, stopped)


# A version that fails.


def test_a_version_that_fails_is_tried_again_after_its_back_off() -> None:
    """What it was to replace serves on, and gets another replacement when the time has come."""
    spec = spec_of(on_demand_fallback=False)
    late = new(4, STARTING, since_s=3600, entered=dict.fromkeys(RECENTLY, LONG_AGO))
    failed = decide(*three(), late, spec=spec, health={**_healthy(1, 2, 3), 4: TargetState.UNHEALTHY})
    assert failed == [
        steps.fail(late, NOW, f"not ready {spec.initial_delay_s:.0f} s after its instance booted")
    ]
    assert decide(*three(), spec=spec, backoff=FAILED_ONCE) == []
    over = replace(FAILED_ONCE, until=NOW)
    assert decide(*three(), spec=spec, backoff=over) == [steps.replace(three()[0], NOW, DEPLOYED, 2)]


def _healthy(*ids: int) -> dict[int, TargetState]:
    return dict.fromkeys(ids, TargetState.HEALTHY)


@pytest.mark.parametrize("surge", [1, 2, 3])
def test_two_failures_without_a_success_stop_it(surge: int) -> None:
    """However long ago they were, and however many come up together: what serves stays as it is."""
    spec = spec_of(surge=surge)
    for count, is_stopped in ((1, False), (2, True), (3, True)):
        backoff = replace(STOPPED, failures=count)
        assert rollout.is_stopped(spec, rows_of(backoff=backoff)) == is_stopped
        assert (decide(*three(), spec=spec, backoff=backoff) == []) == is_stopped


def test_the_next_version_goes_on_after_one_that_was_stopped() -> None:
    """What a version did to itself is not held against the next."""
    actions = decide(*three(), spec=spec_of(version=3), backoff=STOPPED)
    assert actions == [steps.replace(three()[0], NOW, "version 3 is deployed", 3)]
    held = replace(STOPPED, until=NOW + seconds(9))
    assert decide(*three(), spec=spec_of(version=3), backoff=held) == actions


def test_what_waits_for_a_version_that_was_given_up_gets_the_deployed_one() -> None:
    """Nothing serves, and version 2 never got ready: what was requested of it is launched as version 3."""
    looping = Backoff(timing.CRASH_LOOP_FAILURES, LONG_AGO, version=2)
    for is_proven in (False, True):  # it may have served as a fallback
        waiting = a_replica(4, ReplicaState.REQUESTED, version=2, is_proven=is_proven)
        (launch,) = decide(waiting, spec=spec_of(replicas=1, version=3), backoff=looping)
        assert launch.name == "Launch"
        assert [r.version for r in launch.launches] == [3]


def test_a_new_one_that_does_not_answer_stops_it_until_it_does() -> None:
    """Ready, and unhealthy a moment later: no other one is replaced by its like, until it has recovered."""
    ill = new(4, unhealthy_since=NOW - seconds(9))
    assert decide(old(2), old(3), ill) == []
    well = replace(ill, unhealthy_since=None)
    assert decide(old(2), old(3), well, health={**_healthy(2, 3), 4: TargetState.UNHEALTHY}) == [
        steps.note_health(well, NOW)
    ], "as this very tick finds"
    assert decide(old(2), old(3), ill, health=_healthy(2, 3, 4)) == [
        steps.note_health(ill, None),
        steps.replace(old(2), NOW, DEPLOYED, 2),
    ]


def test_one_that_gets_ready_lets_it_go_on() -> None:
    """A failure before it is forgotten; that an older one gets ready changes nothing."""
    rising = new(4, STARTING)
    actions = decide(*three(), rising, spec=spec_of(surge=2), health=_healthy(1, 2, 3, 4), backoff=STOPPED)
    assert actions == [steps.mark_ready(rising, NOW), steps.replace(old(2), NOW, DEPLOYED, 2)]
    assert changes._backoff_after(spec_of(), STOPPED, actions, NOW) == Backoff()
    older = a_replica(3, STARTING, since_s=5, entered=RECENTLY)
    actions = decide(old(1), old(2), older, health=_healthy(1, 2, 3), backoff=STOPPED)
    assert actions == [steps.mark_ready(older, NOW)]
    assert changes._backoff_after(spec_of(), STOPPED, actions, NOW) == STOPPED
    back = replace(rising, entered={**rising.entered, ReplicaState.DRAINING: NOW - seconds(9)})
    assert back.comes_back
    served = replace(back, entered={**back.entered, ReplicaState.READY: NOW - seconds(99)})
    for replica, left in ((back, Backoff()), (served, STOPPED)):
        found: list[Step] = [steps.mark_ready(replica, NOW)]
        assert changes._backoff_after(spec_of(), STOPPED, found, NOW) == left, "once it was there before"


def test_what_fails_beside_an_older_one_that_gets_ready_counts() -> None:
    """Both in one tick: a success says nothing of a newer version, and clears its own and older ones."""
    older, newer = (a_replica(v, STARTING, version=v) for v in (1, 2))
    held = Backoff(1, NOW + seconds(timing.FAILURE_FIRST_S), version=2)
    both: list[Step] = [steps.mark_ready(older, NOW), steps.fail(newer, NOW, "late")]
    for actions in (both, both[::-1]):
        assert changes._backoff_after(spec_of(), Backoff(), actions, NOW) == held
        assert changes._backoff_after(spec_of(), Backoff(3, NOW, version=1), actions, NOW) == held
    for failed in (older, newer):
        both = [steps.mark_ready(newer, NOW), steps.fail(failed, NOW, "late")]
        assert changes._backoff_after(spec_of(), Backoff(), both, NOW) == Backoff()


# A version that turns ill.


def test_a_version_that_turns_ill_is_given_up() -> None:
    """What it was to replace serves still: so the ill one goes, nothing comes for it, and none follows it."""
    ill = new(4, unhealthy_since=DUE)
    assert decide(*three(), new(4, unhealthy_since=DUE + seconds(1))) == [], "it may recover"
    assert decide(*three(), ill) == [
        needless(steps.drain(ill, NOW, "unhealthy for 60 s")),
        steps.give_up(2),
    ]


def test_a_version_that_turns_ill_after_the_old_one_went_is_given_up() -> None:
    """It is missed: so it is replaced, with the version that serves, and stays until that does."""
    ill = new(4, unhealthy_since=DUE)
    assert decide(old(2), old(3), ill) == [steps.replace(ill, NOW, "unhealthy for 60 s", 1), steps.give_up(2)]


def test_only_a_version_that_is_being_rolled_out_is_given_up() -> None:
    """Not one that all have, nor the one before, nor any of a service that keeps."""
    ill, keep = new(4, unhealthy_since=DUE), spec_of(on_update=OnUpdate.KEEP)
    assert decide(new(5), new(6), ill) == [steps.replace(ill, NOW, "unhealthy for 60 s", 2)]
    older = old(3, unhealthy_since=DUE)
    assert decide(new(5), new(6), older) == [steps.replace(older, NOW, "unhealthy for 60 s", 2)]
    assert decide(old(2), old(3), ill, spec=keep) == [steps.replace(ill, NOW, "unhealthy for 60 s", 2)]


@pytest.mark.parametrize("surge", [1, 2])
def test_a_version_that_is_given_up_counts_as_failed_too_often(surge: int) -> None:
    """As many failures are put down as stop it; no launch is held, because it may be all that there is."""
    spec = spec_of(surge=surge)
    given_up = Backoff(2, version=2)
    for before, after in (
        (Backoff(), given_up),
        (Backoff(4, NOW, 1, NOW), given_up),
        (FAILED_ONCE, given_up),
        (Backoff(4, NOW, 2), Backoff(4, version=2)),
    ):
        assert changes._backoff_after(spec, before, [steps.give_up(2)], NOW) == after
    assert rollout.is_stopped(spec, rows_of(backoff=given_up))
    assert not failures_of.is_crash_looping(2, replace(given_up, failures=9))
    assert decide(*three(), spec=spec, backoff=given_up) == []
    assert not rollout.is_stopped(replace(spec, version=3), rows_of(backoff=given_up))


class Rollout:
    """A service of three in memory, of which version 2 is deployed, by the second."""

    def __init__(self, surge: int, start_s: float, ill_after_s: float | None) -> None:
        """Each instance is healthy so long after its launch; version 2 turns ill so long after that."""
        self.world, self.controller = serving(spec_of(version=1, surge=surge))
        self.world.clock.advance(600)  # what is there has stayed
        self.world.services.specs["demo"] = spec_of(surge=surge)
        self.start_s, self.ill_after_s = start_s, ill_after_s
        self.fewest, self.most = 3, 3

    def go_on(self, for_s: float) -> list[tuple[int, bool]]:
        """Let time pass; the version of each replica then, and whether it serves."""
        for _ in range(int(for_s / timing.TICK_IN_TRANSITION_S)):
            self.world.clock.advance(timing.TICK_IN_TRANSITION_S)
            self.world.fleet.run()
            self._check()
            self.controller.tick("demo")
            there = active(self.world)
            self.fewest = min(self.fewest, sum(r.serves for r in there))
            self.most = max(self.most, len(there))
        return [(r.version, r.serves) for r in active(self.world)]

    @property
    def launched(self) -> int:
        """Instances since the deployment."""
        return sum(launch.count for launch in self.world.fleet.launches)

    def _check(self) -> None:
        """The load balancer checks every target; what drains is done."""
        versions = {r.instance_id: r.version for r in rows(self.world).replicas.values()}
        for targets in self.world.router.groups.values():
            for instance_id, state in list(targets.items()):
                age = self.world.clock.now() - self.world.fleet.instances[instance_id].launched_at
                if state is TargetState.DRAINING:
                    del targets[instance_id]
                elif age >= seconds(self.start_s):
                    is_ill = versions.get(instance_id) == 2 and self._is_ill(age.total_seconds())
                    targets[instance_id] = TargetState.UNHEALTHY if is_ill else TargetState.HEALTHY

    def _is_ill(self, age_s: float) -> bool:
        return self.ill_after_s is not None and age_s >= self.start_s + self.ill_after_s


@pytest.mark.parametrize("surge", [1, 2])
def test_a_version_that_turns_ill_costs_no_replica_that_serves(surge: int) -> None:
    """Ill 30 s after it got ready, when it hasn't stayed: the old version serves on for 20 minutes.

    Nothing is launched but the first `surge` of the new version.
    """
    course = Rollout(surge, start_s=120, ill_after_s=30)
    assert course.go_on(120 + 30 + 60 + 30) == [(1, True)] * 3
    assert course.go_on(1200) == [(1, True)] * 3
    assert (course.fewest, course.most, course.launched) == (3, 3 + surge, surge)
    assert rollout.is_stopped(spec_of(surge=surge), rows(course.world))


@pytest.mark.parametrize("surge", [1, 2])
def test_a_version_that_turns_ill_late_is_replaced_by_the_one_before(surge: int) -> None:
    """It has stayed when it turns ill, for it starts in 12 s: what went comes back, and then all is still."""
    course = Rollout(surge, start_s=12, ill_after_s=30)
    assert course.go_on(400) == [(1, True)] * 3
    launched = course.launched
    assert course.go_on(1200) == [(1, True)] * 3
    assert course.launched == launched


@pytest.mark.parametrize("surge", [1, 2, 3])
@pytest.mark.parametrize("start_s", [12, 120, 900])
def test_a_good_version_rolls_out_with_as_many_as_wanted_serving(surge: int, start_s: float) -> None:
    """Each replica is launched once, and no more than `surge` beyond three are there."""
    course = Rollout(surge, start_s, ill_after_s=None)
    rounds = -(-3 // surge)
    assert course.go_on(rounds * (2 * start_s + 30)) == [(2, True)] * 3
    assert (course.fewest, course.most, course.launched) == (3, 3 + surge, 3)


# Losses meanwhile.


def test_a_loss_is_replaced_with_the_version_that_serves() -> None:
    """The new one hasn't served yet: nobody finds out by a loss whether it does."""
    gone = [an_instance(1), an_instance(2, InstanceState.TERMINATED), an_instance(3), an_instance(4)]
    actions = decide(*three(), new(4, STARTING), instances=gone)
    assert actions == losing(old(2), "instance terminated", version=1)
    served = decide(*three()[1:], new(4), instances=gone[1:])
    assert served == [
        *losing(old(2), "instance terminated", version=2),
        steps.replace(old(3), NOW, DEPLOYED, 2),
    ], "the newest that has served; one beyond as many as wanted may come, loss or no loss"


def test_a_signal_replaces_a_loss_with_the_version_that_serves() -> None:
    """The fast path doesn't try a new version either."""
    warning = InterruptionWarning("i-1", NOW, "terminate")
    lost = old(1)
    rows = replace(rows_of(lost), serving=3, is_whole=False)
    leaves = steps.drain(lost, NOW, "interruption warning", warned_at=NOW, cool_pool=True)
    assert interruption.decide([(warning, lost)], rows, spec_of(), NOW) == told(leaves, version=1)


def test_a_signal_goes_by_no_document_of_before() -> None:
    """It may have read it a minute ago: what has served since isn't replaced by the version before it."""
    warning = InterruptionWarning("i-4", NOW, "terminate")
    stale = replace(spec_of(), version=1)
    for lost, version in ((new(4), 2), (new(4, STARTING), 1)):
        rows = replace(rows_of(lost), serving=3, is_whole=False)
        (step,) = interruption.decide([(warning, lost)], rows, stale, NOW)
        assert [replacement.version for replacement in step.creates] == [version]


def test_a_new_one_that_is_lost_before_it_served_is_replaced_as_a_loss() -> None:
    """Its place is made up for with what has served, if anybody misses it."""
    rising = new(4, STARTING)
    drain = steps.drain(rising, NOW, "interruption warning, found by the tick", warned_at=NOW, cool_pool=True)
    assert decide(*three(), rising, warned=[4])[:2] == [drain, without(drain)], "three old ones are left"
    actions = decide(old(2), old(3), rising, warned=[4])
    assert actions == [drain, replacing(drain, version=1), steps.replace(old(2), NOW, DEPLOYED, 2)]


def test_a_version_that_is_given_up_replaces_no_loss() -> None:
    """Though another replica of it still answers: the older one has served for longer."""
    lost = decide(old(1), new(4), new(5, unhealthy_since=NOW), warned=[1], backoff=STOPPED)
    assert [a.creates[0].version for a in lost if a.name == "Replace"] == [1]
    assert rollout.proven(spec_of(), rows_of(new(4), backoff=STOPPED)) == 2, "where there is no older one"


def test_where_nothing_has_served_a_loss_is_replaced_with_its_own_version() -> None:
    """Neither version has proved itself: what the lost one was to be, the next one is."""
    first, second = (a_replica(i, STARTING, since_s=5, entered=RECENTLY) for i in (1, 2))
    lost = decide(first, second, spec=spec_of(2), warned=[1])
    goes_on = steps.serve_on(first, NOW, "interruption warning, found by the tick", NOW)
    assert lost == [goes_on, replacing(goes_on, version=1)]


def test_what_is_missing_has_a_version_that_has_served() -> None:
    """Scaling out during a roll-out tries nothing; a service of which nothing has served yet must."""
    reason = "fewer replicas than wanted"
    requested = [a for a in decide(old(1), spec=spec_of(2, surge=0)) if a.name == "Request"]
    assert requested == [steps.request(NOW, 1, reason, SPOT, 1)]
    assert decide(spec=spec_of(2)) == [steps.request(NOW, 2, reason, SPOT, 2)]


def test_what_does_not_answer_has_not_proved_itself() -> None:
    """A version counts as one that has served while a replica of it does, or drains in good health."""
    spec = spec_of()
    assert rollout.proven(spec, rows_of(old(1), new(4))) == 2
    assert rollout.proven(spec, rows_of(old(1), new(4, STARTING))) == 1
    assert rollout.proven(spec, rows_of(old(1), new(4, unhealthy_since=NOW))) == 1
    went = new(4).to(DRAINING, NOW)
    assert rollout.proven(spec, rows_of(old(1), went)) == 2
    assert rollout.proven(spec, rows_of(old(1, unhealthy_since=NOW))) == 1, (
        "where none answers, all that served"
    )
    looping = rows_of(old(1, is_fallback=True), backoff=Backoff(timing.CRASH_LOOP_FAILURES, NOW, version=1))
    assert rollout.proven(spec, looping) == 2, "it serves as a fallback, and version 2 may be its repair"
    assert rollout.proven(spec_of(version=1), looping) == 1
    assert rollout.proven(spec, rows_of(), old(1)) == 1
    assert rollout.proven(spec, rows_of()) == 2
    ill = rows_of(
        old(1, unhealthy_since=NOW), new(4), backoff=Backoff(timing.CRASH_LOOP_FAILURES, NOW, version=2)
    )
    assert rollout.proven(spec, ill) == 2, "the deployed one serves, and nothing else answers"


def test_what_waits_is_launched_with_what_it_was_requested_for_or_what_served_since() -> None:
    """A replacement by the new version stays one, and an older request never tries the new version first."""
    spec = spec_of()
    newer, older = new(4, REQUESTED), a_replica(5, REQUESTED)
    for other, expected in ((old(1), [(4, 2), (5, 1)]), (new(6), [(4, 2), (5, 2)])):
        rows = rows_of(other, newer, older)
        assert [(r.id, rollout.to_launch(spec, rows, r)) for r in (newer, older)] == expected
    stopped = rows_of(old(1), newer, older, backoff=STOPPED)
    assert [rollout.to_launch(spec, stopped, r) for r in (newer, older)] == [1, 1], "it is given up"
    launches = decide(three()[0], old(2), newer, older)
    assert launches == [steps.launch(older), steps.launch(newer)], "a launch for each version"


def test_what_waits_to_try_a_version_that_was_given_up_is_called_off() -> None:
    """It would be launched as what it was to replace: that would cost a replica and bring nothing."""
    waiting, called_off = new(4, REQUESTED), steps.end(new(4, REQUESTED), NOW, "its version is given up")
    assert decide(*three(), waiting, backoff=STOPPED) == [called_off]
    assert called_off not in decide(*three(), waiting), "nothing failed"
    ill = old(1, replaced_by=4, unhealthy_since=DUE)
    assert called_off not in decide(ill, *three()[1:], waiting, backoff=STOPPED), "it must be replaced"
    asked, intent = replace(waiting, launch_id="intent"), LaunchIntent("intent", "demo", (4,), NOW)
    assert decide(*three(), asked, backoff=STOPPED, intents=[intent]) == [], "its launch is under way"
    older = a_replica(4, REQUESTED, reason="rebalance recommendation")
    assert decide(*three(), older, backoff=STOPPED) == [steps.launch(older)], "it is not of that version"
    taken_back = decide(*three(), waiting, spec=spec_of(version=1, on_update=OnUpdate.KEEP))
    launched = rollout.as_launched(spec_of(version=1), rows_of(*three()), waiting, NOW)
    assert launched.version == 1
    assert taken_back == [steps.launch(launched)], "where nothing rolls out it comes as deployed"
    superseded = rows_of(*three(), waiting, backoff=STOPPED)
    after = changes.after(spec_of(), superseded, [called_off], NOW)
    assert not after.replicas[1].superseded_in(after)


def test_a_stopped_roll_out_raises_its_alarm() -> None:
    """Somebody must look: it never goes on by itself."""
    world, controller = serving(spec_of(version=1))
    _deploy(world.services.specs, spec_of())
    _fail_twice(world, controller)
    assert [(r.id, r.version) for r in active(world)] == [(1, 1), (2, 1), (3, 1)]
    assert len(world.fleet.launches) == 2, "one that fails alone may be the pool's fault"
    names = {name for name, _ in world.telemetry.records}
    assert "rollout_stopped" in names
    assert "crash_looping" not in names


def _fail_twice(world: Any, controller: Controller) -> None:
    """No instance of the new version ever runs; the controller ticks until long after the back-off."""
    start_s = demo_spec().initial_delay_s + timing.BOOT_S + 120
    for _ in range(int(2 * start_s / timing.TICK_IN_TRANSITION_S)):
        world.clock.advance(timing.TICK_IN_TRANSITION_S)
        controller.tick("demo")

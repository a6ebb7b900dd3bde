"""What belongs to a version, changing all replicas at once, and going back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spotrelay.operator import rollback
from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import InstanceState, TargetState
from spotrelay.plane.core.quotas import needs
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Backoff, Rollback
from spotrelay.plane.core.spec import OnUpdate, ReadinessProbe, ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.memory import MemoryRouter
from spotrelay.plane.serving import changes, reconcile, rollout, steps
from spotrelay.plane.serving.steps import Step
from spotrelay.plane.serving.supersede import UNHEALTHY
from tests.examples import demo_spec
from tests.unit.cases import NOW, a_replica, an_instance, needless, rows_of, seen_of
from tests.unit.test_rollout import DEPLOYED, new, old
from tests.unit.worlds import active, rows, serving

STARTING, READY, REQUESTED = ReplicaState.STARTING, ReplicaState.READY, ReplicaState.REQUESTED
PROBE = ReadinessProbe("/v1/generate", {"model": "new"})
ASKED_BEFORE = ReadinessProbe("/v1/generate", {"model": "old"})


def spec_of(replicas: int = 2, **facts: Any) -> ServiceSpec:
    """A service of which version 2 is deployed, and all replicas change at once."""
    given = {"version": 2, "on_update": OnUpdate.BLUE_GREEN, "readiness_probe": PROBE, "port": 9000}
    return replace(demo_spec(replicas=replicas), **{**given, **facts})


BEFORE = spec_of(version=1, port=8081, readiness_probe=ASKED_BEFORE, initial_delay_s=77)


def decide(*replicas: Replica, spec: ServiceSpec | None = None, **seen: Any) -> list[Step]:
    """The tick's decision; every instance runs, and who is ready and not known to be ill is healthy."""
    well = {r.id: TargetState.HEALTHY for r in replicas if r.state is READY and not r.unhealthy_since}
    ill = {r.id: TargetState.UNHEALTHY for r in replicas if r.unhealthy_since}
    facts = {
        "instances": [an_instance(r.id) for r in replicas if r.instance_id],
        "health": well | ill,
        **seen,
    }
    return reconcile.decide(spec or spec_of(), seen_of(*replicas, **facts), NOW)


def green(id_: int, state: ReplicaState = READY, **facts: Any) -> Replica:
    """One of version 2 that is to replace the one two before it."""
    return new(id_, state, replaces=id_ - 2, port=9000, **facts)


def two(state: ReplicaState = READY, **facts: Any) -> list[Replica]:
    """Both of version 1, and the two of version 2 that are to replace them."""
    return [old(1, replaced_by=3), old(2, replaced_by=4), green(3, state, **facts), green(4, state, **facts)]


# All at once.


def test_as_many_again_come_up_beside_the_old_ones() -> None:
    """Whatever `surge` says."""
    assert decide(old(1), old(2)) == [
        steps.replace(old(1), NOW, DEPLOYED, 2),
        steps.replace(old(2), NOW, DEPLOYED, 2),
    ]


def test_new_ones_enter_only_together() -> None:
    """While one doesn't answer its probe, or isn't even launched, the others wait."""
    first, second = green(3, STARTING), green(4, STARTING)
    both = rows_of(old(1, replaced_by=3), old(2, replaced_by=4), first, second)
    assert rollout.admitted(spec_of(), both, [first]) == []
    assert rollout.admitted(spec_of(), both, [first, second]) == [first, second]
    alone = rows_of(old(1, replaced_by=3), old(2), first)
    assert rollout.admitted(spec_of(), alone, [first]) == [], "the other one isn't even asked for"
    entered = rows_of(old(1, replaced_by=3), old(2, replaced_by=4), green(3), second)
    assert rollout.admitted(spec_of(), entered, [second]) == [second]
    older = a_replica(5, STARTING)
    assert rollout.admitted(spec_of(), rows_of(*both.replicas.values(), older), [first, older]) == [older]
    rolling = spec_of(on_update=OnUpdate.ROLLING)
    assert rollout.admitted(rolling, both, [first]) == [first]


def test_where_no_old_one_serves_new_ones_enter_as_they_come() -> None:
    """There is nothing to be kept apart from, and each of them is needed."""
    first = green(3, STARTING)
    ill = rows_of(old(1, replaced_by=3, unhealthy_since=NOW), old(2, unhealthy_since=NOW), first)
    assert rollout.admitted(spec_of(), ill, [first]) == [first]


def test_old_ones_leave_only_together() -> None:
    """Once all new ones serve; a fallback of the old version goes with them."""
    first, second, *news = two()
    assert decide(first, second, green(3), green(4, STARTING)) == []
    assert decide(first, second, *news) == [
        steps.drain(first, NOW, DEPLOYED),
        steps.drain(second, NOW, DEPLOYED),
    ]
    fallback = old(9, is_fallback=True)
    assert steps.drain(fallback, NOW, DEPLOYED) in decide(first, second, *news, fallback)
    rising = green(4, STARTING)
    health = dict.fromkeys((1, 2, 3, 4), TargetState.HEALTHY)
    assert decide(first, second, green(3), rising, health=health) == [
        steps.mark_ready(rising, NOW),
        steps.drain(first, NOW, DEPLOYED),
        steps.drain(second, NOW, DEPLOYED),
    ]


@pytest.mark.parametrize(("ready_s", "goes"), [(89, False), (90, True)])
@pytest.mark.parametrize("on_update", [OnUpdate.ROLLING, OnUpdate.BLUE_GREEN])
def test_an_old_one_leaves_once_the_new_one_has_baked(
    on_update: OnUpdate, ready_s: float, goes: bool
) -> None:
    """For as long as the file says, whatever it took to start."""
    spec = spec_of(bake_s=90, on_update=on_update, surge=2)
    actions = decide(*two(since_s=ready_s), spec=spec)
    assert (steps.drain(two()[0], NOW, DEPLOYED) in actions) is goes


def test_one_that_is_replaced_by_its_like_leaves_by_itself() -> None:
    """An old one was ill while new ones came up: its replacement is of the old version, too."""
    stayed = a_replica(8, READY, replaces=1)
    assert decide(old(1, replaced_by=8), old(2), stayed, backoff=Backoff(2, NOW, version=2)) == [
        steps.drain(old(1, replaced_by=8), NOW, "test")
    ]


def test_what_does_not_answer_goes_where_a_spare_one_serves_in_its_place() -> None:
    """Its replacement waits for all to be there, and the spare one gets its own only when there is room."""
    ill = old(1, replaced_by=3, unhealthy_since=NOW - seconds(timing.UNHEALTHY_REPLACED_S))
    silent, spare, waiting = old(2, replaced_by=5), a_replica(5, READY, replaces=2), green(3, STARTING)
    assert decide(ill, silent, waiting, spare) == [steps.drain(ill, NOW, UNHEALTHY)]
    assert decide(replace(ill, unhealthy_since=NOW), silent, waiting, spare) == [], "it may only be busy"
    assert decide(silent, waiting, spare) == [steps.replace(spare, NOW, DEPLOYED, 2)]


def test_what_answers_no_more_than_its_replacement_goes_once() -> None:
    """Also where others that were to be replaced serve in place of both."""
    since = NOW - seconds(timing.UNHEALTHY_REPLACED_S)
    first, its = old(1, replaced_by=3, unhealthy_since=since), green(3, unhealthy_since=since)
    needed = [replica for id_ in (5, 7) for replica in (old(id_, replaced_by=id_ + 1), old(id_ + 1))]
    decided = decide(first, its, *needed, spec=spec_of(4), backoff=Backoff(timing.ROLLOUT_FAILURES, None, 2))
    assert [step for step in decided if step.name == "Drain"] == [steps.drain(first, NOW, UNHEALTHY)]
    assert needless(steps.drain(its, NOW, UNHEALTHY)) in decided


def test_two_failures_take_all_new_ones_back() -> None:
    """They wait outside the rotation, cost, and will never enter it: the old ones serve on."""
    first, second, *news = two(STARTING)
    failed = Backoff(2, NOW, version=2)
    gone = [needless(steps.drain(n, NOW, "its version is given up")) for n in news]
    assert decide(first, second, *news, backoff=failed) == gone
    waiting = green(4, REQUESTED)
    assert steps.end(waiting, NOW, "its version is given up") in decide(
        first, second, news[0], waiting, backoff=failed
    )
    assert decide(first, second, *news, backoff=replace(failed, failures=1)) == []


def test_new_ones_that_are_needed_stay_though_their_version_failed() -> None:
    """One old replica among many new ones is no reason to drain those."""
    failed = Backoff(2, NOW, version=2)
    actions = decide(old(1), new(3), new(4), backoff=failed, spec=spec_of(3))
    assert not [a for a in actions if a.name == "Drain" and a.replica.version == 2]


def test_one_that_turns_ill_before_the_old_ones_left_gives_the_version_up() -> None:
    """After a minute: it may only be busy."""
    first, second, third, fourth = two()
    ill = replace(fourth, unhealthy_since=NOW - seconds(timing.UNHEALTHY_REPLACED_S))
    assert decide(first, second, third, ill) == [steps.give_up(2)]
    assert decide(first, second, third, replace(fourth, unhealthy_since=NOW - seconds(59))) == []


def test_a_quota_that_cannot_hold_both_gives_the_version_up() -> None:
    """EC2 has refused one for half an hour, while the others wait and cost."""
    first, second, third, _ = two(STARTING)
    refused = {"attempts": 3, "retry_at": NOW + seconds(60)}
    for since_s, given_up in ((1799, []), (1800, [steps.give_up(2)])):
        waiting = green(4, REQUESTED, since_s=since_s, entered={REQUESTED: NOW - seconds(since_s)}, **refused)
        assert [a for a in decide(first, second, third, waiting) if a.name == "GiveUp"] == given_up


def test_what_others_wait_for_is_launched_however_many_rise() -> None:
    """The gradual return to Spot holds what would be paid for twice; here all the others are."""
    olds = [old(i, replaced_by=i + 5) for i in range(1, 6)]
    news = [new(i, STARTING, replaces=i - 5, port=9000) for i in range(6, 10)]
    last = new(10, REQUESTED, replaces=5, port=9000)
    assert decide(*olds, *news, last, spec=spec_of(5)) == [steps.launch(last)]


# What belongs to a version.


def test_each_version_has_its_own_port_and_probe() -> None:
    """The rows' own, or the document's that was kept; a few rows may not tell."""
    known = rows_of(old(1), earlier={1: BEFORE})
    assert (rollout.port_of(spec_of(), known, 2), rollout.port_of(spec_of(), known, 1)) == (9000, 8081)
    its = rollout.of_version(spec_of(), known, 1)
    assert (its.port, its.readiness_probe, its.initial_delay_s) == (8081, ASKED_BEFORE, 77)
    assert rollout.of_version(spec_of(), known, 2) == spec_of()
    assert rollout.of_version(spec_of(readiness_probe=None), known, 1).readiness_probe is None
    assert rollout.port_of(spec_of(), rows_of(old(1, port=None)), 1) is None
    assert rollout.port_of(spec_of(), rows_of(old(1)), 1) == 8081
    unknown = rollout.of_version(spec_of(), rows_of(old(1)), 1)
    assert unknown.port == 8081, "without its document it listens where its rows say"
    assert rollout.of_version(spec_of(), rows_of(old(1, port=None)), 1).port == 9000, "or where all do"
    assert rollout.ports(spec_of(), rows_of(old(1, port=None), new(2, port=None))) == {"i-2": 9000}


def test_documents_are_kept_for_what_replicas_have_and_for_the_version_before() -> None:
    """No others: a table's item is no archive."""
    third = spec_of(version=3)
    known = rows_of(old(1), earlier={1: BEFORE})
    assert rollout.earlier_kept(spec_of(), third, known) == {1: BEFORE, 2: spec_of()}
    assert rollout.earlier_kept(spec_of(), third, rows_of(earlier={1: BEFORE})) == {2: spec_of()}
    assert rollout.earlier_kept(third, third, rows_of(earlier={1: BEFORE})) == {1: BEFORE}
    assert rollout.earlier_kept(None, third, rows_of()) == {}
    back = rows_of(new(2), earlier={1: BEFORE, 2: spec_of()}, rollback=Rollback(3, 1, 8081))
    assert rollout.earlier_kept(third, replace(third, replicas=9), back) == {1: BEFORE, 2: spec_of()}
    assert rollout.earlier_kept(third, replace(third, replicas=9), known) == {1: BEFORE}


def test_an_orphan_has_the_version_that_ec2_says() -> None:
    """A table that was lost in the middle of a roll-out doesn't make everything of the deployed version."""
    spec = spec_of(on_update=OnUpdate.ROLLING)
    lost = an_instance(
        7,
        launched_at=NOW - seconds(999),
        launch_id="x",
        launch_template_id=spec.launch_template_id,
        version=1,
    )
    seen = seen_of(instances=[lost], health={7: TargetState.HEALTHY})
    taken = reconcile.decide(spec, replace(seen, ports={"i-7": 8088}), NOW)
    rows_after = changes.after(spec, seen.rows, taken, NOW)
    (row,) = (r for r in rows_after.replicas.values() if r.instance_id == "i-7")
    assert (row.version, row.port) == (1, 8088)


def test_a_loss_of_the_old_version_is_made_good_with_its_own_port() -> None:
    """While version 2 listens elsewhere."""
    spec = spec_of(on_update=OnUpdate.ROLLING)
    gone = [an_instance(1, InstanceState.TERMINATED), an_instance(2)]
    seen = seen_of(old(1), old(2), instances=gone, health={2: TargetState.HEALTHY})
    seen = replace(seen, rows=replace(seen.rows, earlier={1: BEFORE}))
    after = changes.after(spec, seen.rows, reconcile.decide(spec, seen, NOW), NOW)
    replacements = [(r.version, r.port) for r in after.replicas.values() if r.replaces == 1]
    assert replacements == [(1, 8081)]


def test_a_change_of_the_port_rolls_out() -> None:
    """Each is registered at its own version's port, and taken out at the same; three serve all the time."""
    spec = replace(demo_spec(replicas=3), on_update=OnUpdate.ROLLING)
    world, controller = serving(spec)
    world.clock.advance(600)
    world.services.specs["demo"] = replace(spec, version=2, port=9000)
    router: Any = world.router
    for _ in range(80):
        world.clock.advance(timing.TICK_IN_TRANSITION_S)
        world.fleet.run()
        for targets in router.groups.values():
            for instance_id, state in list(targets.items()):
                if state is TargetState.DRAINING:
                    del targets[instance_id]
                else:
                    targets[instance_id] = TargetState.HEALTHY
        controller.tick("demo")
        assert sum(r.serves for r in active(world)) >= 3
    assert {(r.version, r.port) for r in active(world)} == {(2, 9000)}
    registered: Any = _memory(router).registered
    assert sorted(registered.values()) == [8081] * 3 + [9000] * 3
    assert {r.instance_id for r in active(world)} == set(next(iter(router.groups.values())))


def _memory(router: Any) -> MemoryRouter:
    """What is behind a port that counts its calls."""
    while not isinstance(router, MemoryRouter):
        router = router._port
    return router


# Going back.


def test_an_operator_goes_back() -> None:
    """What the deployed version has is replaced by what was before it, and nothing is launched with it."""
    spec = spec_of(on_update=OnUpdate.ROLLING)
    back = rows_of(new(3), new(4), earlier={1: BEFORE}, document=spec, rollback=Rollback(2, 1, 8081))
    wanted = rollout.in_effect(spec, back, NOW)
    assert (wanted.version, wanted.port, wanted.readiness_probe) == (1, 8081, ASKED_BEFORE)
    seen = seen_of(new(3), new(4), health=dict.fromkeys((3, 4), TargetState.HEALTHY))
    seen = seen.with_rows(replace(back, replicas=seen.rows.replicas))
    stayed = [replace(r, entered={**r.entered, READY: NOW - seconds(9999)}) for r in (new(3), new(4))]
    actions = decide(*stayed, spec=wanted)
    assert actions == [steps.replace(stayed[0], NOW, "version 1 is deployed", 1)]
    assert rollout.proven(wanted, back) == 1
    assert rollout.to_launch(wanted, back, new(5, REQUESTED)) == 1
    assert rollout.of_version(wanted, back, 2).port == 9000
    assert rollout.in_effect(replace(spec, version=3), back, NOW).version == 3, "another one is deployed"
    elsewhere = replace(back, rollback=Rollback(2, 1, 7000))
    assert rollout.in_effect(spec, elsewhere, NOW).port == 7000, "where it listened when it was given up"


def test_one_goes_back_to_what_serves() -> None:
    """Of two versions that failed one after the other the one before them serves still."""
    third = spec_of(version=3)
    earlier = {1: BEFORE, 2: spec_of()}
    assert rollback.before(third, rows_of(old(1), earlier=earlier)) == Rollback(3, 1, 8081)
    assert rollback.before(third, rows_of(earlier=earlier)) == Rollback(3, 2, 9000)
    assert rollback.before(third, rows_of()) is None
    taken_back = spec_of(version=1)
    assert rollback.before(taken_back, rows_of(earlier=earlier)) is None, "what is newer isn't before it"


def test_a_taken_back_deployment_is_taken_back_from_replicas_too() -> None:
    """CloudFormation rolled a failed update back, and the document names an older version than some have."""
    spec = spec_of(version=1, on_update=OnUpdate.ROLLING)
    stayed = replace(new(3), entered={**new(3).entered, READY: NOW - seconds(9999)})
    assert decide(old(1), stayed, spec=spec) == [steps.replace(stayed, NOW, "version 1 is deployed", 1)]


def test_the_alarm_counts_while_an_old_version_is_left() -> None:
    """Two failures of a service's very first version are no roll-out."""
    world, controller = serving(replace(demo_spec(), version=1, on_update=OnUpdate.ROLLING))
    world.services.specs["demo"] = replace(demo_spec(), version=2, on_update=OnUpdate.ROLLING)
    world.store.damage("demo").backoff = Backoff(2, None, version=2)
    controller.tick("demo")
    assert "rollout_stopped" in {name for name, _ in world.telemetry.records}
    assert len(rows(world).replicas) == 3


def test_changing_all_at_once_needs_both_versions_quota() -> None:
    """`validate --account` and the surveys ask for twice as much."""
    sizes = {"g5.xlarge": 4}
    once, twice = (
        [[need.vcpus for need in wanted] for wanted in needs(spec_of(on_update=on_update), sizes)]
        for on_update in (OnUpdate.ROLLING, OnUpdate.BLUE_GREEN)
    )
    assert twice == [[2 * vcpus for vcpus in wanted] for wanted in once]

"""What EC2 refuses to launch is repaired by deploying again. A loss tries no new version without need."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spotrelay.plane.control.controller import Controller
from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import TargetState
from spotrelay.plane.core.pools import PurchaseOption
from spotrelay.plane.core.ports import Denied, LaunchRequest
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Backoff, Rollback
from spotrelay.plane.core.spec import LaunchTemplate, OnUpdate, ReadinessProbe, ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.events import InterruptionWarning
from spotrelay.plane.serving import changes, interruption, reconcile, rollout, steps, supersede
from spotrelay.plane.serving.steps import Step
from tests.examples import demo_spec, on_demand_pool
from tests.unit.cases import LONG_AGO, NOW, a_replica, an_instance, needless, rows_of, seen_of
from tests.unit.test_rollout import DEPLOYED, decide, new, old, spec_of
from tests.unit.worlds import Troubled, active, dry, reclaim, serving, table, warn, world_of

REQUESTED, READY = ReplicaState.REQUESTED, ReplicaState.READY
STRATEGIES = [OnUpdate.ROLLING, OnUpdate.BLUE_GREEN, OnUpdate.KEEP]
NO_IMAGE = "An error occurred (InvalidAMIID.NotFound) when calling CreateFleet: The image does not exist"


def deployed(version: int, on_update: OnUpdate, **facts: Any) -> ServiceSpec:
    """The demo in a version. Only a probe can tell that all are up that change at once."""
    probe = ReadinessProbe("/", {})
    return replace(demo_spec(), version=version, on_update=on_update, readiness_probe=probe, **facts)


def refuse(world: Troubled, *versions: int) -> list[int]:
    """From now on EC2 refuses what these versions ask for; the versions that it is asked for, in order."""
    asked: list[int] = []

    def answer(request: LaunchRequest) -> None:
        asked.append(request.spec.version)
        if request.spec.version in versions:
            raise Denied(NO_IMAGE, "InvalidAMIID.NotFound", "correct the service file")

    world.meddle("fleet.launch", answer, times=None)
    return asked


def go_on(world: Troubled, controller: Controller, for_s: float) -> None:
    """Let time pass: instances run and pass their checks at once."""
    for _ in range(int(for_s / timing.TICK_IN_TRANSITION_S)):
        world.clock.advance(timing.TICK_IN_TRANSITION_S)
        world.fleet.run()
        controller.tick("demo")
        world.router.pass_checks()


def there(world: Troubled) -> list[tuple[int, ReplicaState]]:
    """Version and state of each replica, the ones that EC2 takes back apart."""
    return [(r.version, r.state) for r in active(world) if r.is_counted]


# Nobody serves.


@pytest.mark.parametrize("on_update", STRATEGIES)
def test_a_first_version_that_ec2_refuses_is_repaired_by_the_second(on_update: OnUpdate) -> None:
    """Nobody was ever ready: what waits is launched as deployed within a minute, and never as before."""
    world = world_of(deployed(1, on_update))
    asked, controller = refuse(world, 1), Controller(world.ports())
    go_on(world, controller, 600)
    assert there(world)[:3] == [(1, REQUESTED)] * 3
    world.services.specs["demo"] = deployed(2, on_update)
    asked.clear()
    go_on(world, controller, 300)
    assert 1 not in asked
    assert there(world) == [(2, READY)] * 3


@pytest.mark.parametrize("on_update", STRATEGIES)
def test_an_image_that_vanished_is_repaired_by_deploying_again(on_update: OnUpdate) -> None:
    """All replicas of version 2, which served for months, are reclaimed, and EC2 refuses it: so version 3."""
    world, controller = serving(deployed(2, on_update))
    asked = refuse(world, 2)
    lost = active(world)
    controller.handle(warn(world, *lost))
    go_on(world, controller, 120)
    reclaim(world, *lost)
    go_on(world, controller, 600)
    assert {version for version, _ in there(world)} == {2}
    world.services.specs["demo"] = deployed(3, on_update)
    asked.clear()
    go_on(world, controller, 300)
    assert 2 not in asked
    assert there(world) == [(3, READY)] * 3


# Some serve.


@pytest.mark.parametrize("on_update", STRATEGIES)
@pytest.mark.parametrize("left", [1, 2])
def test_it_is_repaired_while_some_still_serve(on_update: OnUpdate, left: int) -> None:
    """They came before the image vanished: the rest are launched as version 3, and nobody waits for them."""
    world, controller = serving(deployed(2, on_update, on_demand_fallback=False))
    refuse(world, 2)
    world.clock.advance(600)
    lost = active(world)[left:]
    controller.handle(warn(world, *lost))
    go_on(world, controller, 120)
    reclaim(world, *lost)
    go_on(world, controller, 3000)
    assert there(world) == [(2, READY)] * left + [(2, REQUESTED)] * (3 - left)
    world.services.specs["demo"] = deployed(3, on_update, on_demand_fallback=False)
    go_on(world, controller, 600)
    old_ones = left if on_update is OnUpdate.KEEP else 0
    assert there(world) == [(2, READY)] * old_ones + [(3, READY)] * (3 - old_ones)


def test_it_is_repaired_while_a_fallback_serves() -> None:
    """A standby that was prepared long ago serves as version 1: no reason to launch that for ever."""
    spec = spec_of(1)
    fallback = a_replica(1, READY, is_fallback=True, is_standby=True)
    waiting = a_replica(2, REQUESTED, attempts=9, is_denied=True, is_proven=True)
    assert rollout.to_launch(spec, rows_of(fallback, waiting), waiting) == 2
    launches = [a for a in decide(fallback, waiting, spec=spec) if a.name == "Launch"]
    assert [r.version for launch in launches for r in launch.launches] == [2]


@pytest.mark.parametrize("on_update", [OnUpdate.ROLLING, OnUpdate.BLUE_GREEN])
def test_a_roll_out_that_ec2_refuses_goes_on_with_the_next_version(on_update: OnUpdate) -> None:
    """The old ones serve, the new ones wait for version 2: they are launched as version 3, and say so."""
    world, controller = serving(deployed(1, on_update))
    world.clock.advance(600)
    asked = refuse(world, 2)
    world.services.specs["demo"] = deployed(2, on_update)
    go_on(world, controller, 1200)
    world.services.specs["demo"] = deployed(3, on_update)
    asked.clear()
    go_on(world, controller, 90)
    assert asked
    assert set(asked) == {3}
    (first, *_) = [r for r in active(world) if r.version == 3]
    assert first.reason == "version 3 is deployed"
    go_on(world, controller, 600)
    assert there(world) == [(3, READY)] * 3


def test_what_would_be_launched_as_what_is_there_is_called_off() -> None:
    """An operator went back, EC2 refused that, and another one is deployed: it is asked for by itself."""
    there, waiting = new(4, replaced_by=5, since_s=900), a_replica(5, REQUESTED, replaces=4)
    to_go_back = replace(waiting, reason="version 1 is deployed")
    spec = spec_of(1, version=3)
    assert decide(there, to_go_back, spec=spec) == [steps.end(to_go_back, NOW, "its version is given up")]
    for_another_reason = decide(there, waiting, spec=spec)
    assert [a.launches[0].version for a in for_another_reason if a.name == "Launch"] == [2]


def test_a_version_that_was_just_deployed_is_not_given_up_for_the_one_before() -> None:
    """EC2 refused version 2 for an hour. Of version 3, which comes in its place, it has half an hour, too."""
    spec = spec_of(2, version=3, on_update=OnUpdate.BLUE_GREEN)
    waiting = new(4, REQUESTED, replaces=2, attempts=70, entered={REQUESTED: NOW - seconds(3600)})
    first = [old(1), old(2, replaced_by=4)]
    (launch,) = [a for a in decide(*first, waiting, spec=spec) if a.name == "Launch"]
    (launched,) = launch.launches
    assert (launched.version, launched.since, launched.attempts) == (3, NOW, 70)
    refused = replace(launched, retry_at=NOW + seconds(60))
    assert steps.give_up(3) not in decide(*first, refused, spec=spec)
    again = decide(*first, replace(waiting, version=3), spec=spec)
    assert steps.give_up(3) in again, "which it would be by the time of version 2"


# A loss tries no new version.


def test_a_lack_of_capacity_is_no_reason_to_try_another_version() -> None:
    """Others serve as version 1: however often EC2 had no room, what is lost comes back as that."""
    waiting = a_replica(4, REQUESTED, attempts=70, is_proven=True)
    others = rows_of(old(1), old(2), waiting)
    assert rollout.to_launch(spec_of(), others, waiting) == 1
    assert rollout.to_launch(spec_of(), others, replace(waiting, is_proven=False)) == 1, "a row of before"
    newer = rows_of(old(1), new(2), waiting)
    denied = replace(waiting, is_denied=True)
    assert rollout.to_launch(spec_of(version=3), newer, denied) == 2, "which nobody refused"


def test_a_version_that_served_is_launched_again_though_nobody_serves_any_more() -> None:
    """There is no Spot for ten minutes and more. Version 2 never served, and may not even start."""
    on_spot = {"on_demand_fallback": False}
    world, controller = serving(deployed(1, OnUpdate.ROLLING, **on_spot))
    dry(world, PurchaseOption.SPOT)
    world.services.specs["demo"] = deployed(2, OnUpdate.ROLLING, **on_spot)
    lost = active(world)
    controller.handle(warn(world, *lost))
    go_on(world, controller, 120)
    reclaim(world, *lost)
    go_on(world, controller, 900)
    assert [r.is_proven for r in active(world)][:3] == [True] * 3
    world.fleet.capacity.clear()
    world.fleet.launches.clear()
    go_on(world, controller, 90)
    assert [launch.spec.version for launch in world.fleet.launches][:1] == [1]


def test_a_version_that_served_and_that_ec2_refuses_gives_way_to_the_deployed_one() -> None:
    """Unless that one was given up: then nothing better is known."""
    spec = spec_of(1)
    waiting = a_replica(4, REQUESTED, attempts=3, is_proven=True, is_denied=True)
    assert rollout.to_launch(spec, rows_of(waiting), waiting) == 2
    for failed in (Backoff(timing.ROLLOUT_FAILURES, NOW, 2), Backoff(timing.CRASH_LOOP_FAILURES, NOW, 2)):
        assert rollout.to_launch(spec, rows_of(waiting, backoff=failed), waiting) == 1
    # Nor is there another one where the one that is deployed is refused.
    assert rollout.to_launch(spec_of(1, version=1), rows_of(waiting), waiting) == 1


def test_a_version_that_was_given_up_and_serves_is_more_than_one_that_ec2_refuses() -> None:
    """Two of version 2 failed, others serve, and version 1's image is gone: it isn't asked for for ever."""
    spec, failed = spec_of(3), Backoff(timing.ROLLOUT_FAILURES, NOW, 2)
    denied = a_replica(4, REQUESTED, attempts=3, is_denied=True)
    others = [old(1), new(2)]
    assert rollout.to_launch(spec, rows_of(*others, denied, backoff=failed), denied) == 2
    refused = replace(denied, is_denied=False)
    assert rollout.to_launch(spec, rows_of(*others, refused, backoff=failed), refused) == 1
    ill = [old(1), replace(new(2), unhealthy_since=NOW)]
    assert rollout.to_launch(spec, rows_of(*ill, denied, backoff=failed), denied) == 1, "none serves"
    # Launched so and refused for lack of capacity, it isn't called off as if it had come to try the version.
    rows = rows_of(*others, denied, backoff=failed)
    launched = rollout.as_launched(spec, rows, denied, NOW)
    rows = rows_of(*others, launched, backoff=failed)
    assert (launched.version, rollout.is_called_off(spec, rows, launched)) == (2, False)


def test_what_never_served_is_launched_as_deployed_unless_that_was_given_up() -> None:
    """Whatever it was refused for, and whether it was asked for at all."""
    spec = spec_of(1)
    for waiting in (
        a_replica(4, REQUESTED),
        a_replica(4, REQUESTED, attempts=3),
        a_replica(4, REQUESTED, attempts=3, is_denied=True),
        new(4, REQUESTED, version=2),
    ):
        assert rollout.to_launch(spec, rows_of(waiting), waiting) == 2
        stopped = rows_of(waiting, backoff=Backoff(timing.ROLLOUT_FAILURES, NOW, 2))
        assert rollout.to_launch(spec, stopped, waiting) == waiting.version


def test_a_rollback_repairs_too() -> None:
    """EC2 refuses version 2, and an operator goes back: what waits is launched as version 1."""
    spec = spec_of(1)
    waiting = new(4, REQUESTED, attempts=3, is_denied=True)
    rows = rows_of(waiting, rollback=Rollback(2, 1, 8081), earlier={1: spec_of(1, version=1)})
    back = rollout.in_effect(spec, rows, NOW)
    assert (back.version, rollout.to_launch(back, rows, waiting)) == (1, 1)
    assert rollout.to_launch(replace(spec, version=3), rows, waiting) == 3, "another one is deployed"


# What a row notes.


def test_a_row_knows_whether_its_version_had_served() -> None:
    """From its request on, since those that served may be gone by the time that it is launched."""
    rising = a_replica(1, ReplicaState.STARTING)
    for lost, reason, version, expected in (
        (old(1), "lost", 1, True),
        (old(1), DEPLOYED, 2, False),
        (rising, "lost", 1, False),
        (replace(rising, is_proven=True), "lost", 1, True),
        (replace(rising, is_proven=True), "lost", 2, False),
    ):
        after = changes.after(spec_of(), rows_of(lost), [steps.replace(lost, NOW, reason, version)], NOW)
        (row,) = [r for r in after.replicas.values() if r.state is REQUESTED]
        assert row.is_proven is expected


def test_another_version_is_asked_for_anew() -> None:
    """What EC2 said of the one before says nothing of it; how long the service has waited stays on record."""
    waiting = a_replica(4, REQUESTED, attempts=9, is_denied=True, is_proven=True, reason="lost")
    launched = rollout.as_launched(spec_of(), rows_of(waiting), waiting, NOW)
    assert (launched.version, launched.since, launched.attempts) == (2, NOW, 9)
    assert (launched.is_denied, launched.is_proven, launched.reason) == (False, False, "lost")
    stays = replace(waiting, is_denied=False)
    assert rollout.as_launched(spec_of(), rows_of(stays), stays, NOW) == stays


def test_a_standby_that_ec2_refuses_is_asked_for_as_what_serves_by_now() -> None:
    """It waits for an image that is gone, and no other standby is asked for meanwhile."""
    waiting = a_replica(
        9, REQUESTED, is_standby=True, attempts=3, is_denied=True, purchase_option=PurchaseOption.ON_DEMAND
    )
    fleet = [new(i, since_s=900) for i in (4, 5, 6)]
    launches = [a for a in decide(*fleet, waiting, spec=spec_of(standby=1)) if a.name == "Launch"]
    assert [(r.id, r.version) for launch in launches for r in launch.launches] == [(9, 2)]


# A version that an operator goes back from.


def test_what_was_to_try_a_version_that_was_taken_back_goes() -> None:
    """Version 1 serves, so nobody needs what still starts with version 2; nor what is only asked for."""
    back = spec_of(version=1)
    pair, others = [old(1, replaced_by=4)], [old(2), old(3)]
    rising, waiting = new(4, ReplicaState.STARTING, replaces=1), new(4, REQUESTED, replaces=1)
    gone = steps.drain(rising, NOW, "its version is given up")
    assert decide(*pair, *others, rising, spec=back) == [needless(gone)]
    assert decide(*pair, *others, waiting, spec=back) == [steps.end(waiting, NOW, "its version is given up")]
    keep = spec_of(version=1, on_update=OnUpdate.KEEP)
    assert gone not in decide(*pair, *others, rising, spec=keep), "what runs stays"
    needed = old(1, replaced_by=4, unhealthy_since=NOW - seconds(9))
    assert gone not in decide(needed, *others, rising, spec=back), "it serves sooner than another would"


@pytest.mark.parametrize(("left", "goes"), [(2, True), (1, False)])
def test_one_that_serves_goes_only_if_as_many_as_wanted_are_left(left: int, goes: bool) -> None:
    """Version 2 was up already when the operator went back, and what it was to replace is still there."""
    up = new(4, replaces=1)
    others = [old(2), old(3)][:left]
    health = dict.fromkeys((1, 2, 3), TargetState.HEALTHY) | {4: TargetState.UNHEALTHY}
    ill = decide(old(1, replaced_by=4), *others, up, spec=spec_of(version=1), health=health)
    assert not [a for a in ill if a.name == "Drain"], "it may only be busy"
    drains = decide(old(1, replaced_by=4), *others, up, spec=spec_of(version=1))
    assert (needless(steps.drain(up, NOW, "its version is given up")) in drains) is goes
    assert not [a for a in drains if a.name == "Drain" and a.replica.version == 1]


def test_a_rollback_in_the_middle_of_a_blue_green_roll_out_lets_nobody_in() -> None:
    """The new ones wait outside the rotation: they end there, and those that serve go on."""
    back = spec_of(2, version=1, on_update=OnUpdate.BLUE_GREEN)
    fleet = [old(1, replaced_by=3), old(2, replaced_by=4)]
    rising = [new(i, ReplicaState.STARTING, replaces=i - 2) for i in (3, 4)]
    actions = decide(*fleet, *rising, spec=back)
    assert [a.replica.id for a in actions if a.enters(ReplicaState.DRAINING)] == [3, 4]


def test_a_signal_replaces_nothing_with_a_version_that_was_taken_back() -> None:
    """It knows of a rollback as soon as the rows do, however old its document is."""
    warning = InterruptionWarning("i-4", NOW, "terminate")
    for lost, version in ((new(4), 1), (new(4, version=3), 1), (new(4, version=4), 4)):
        few = replace(rows_of(lost, rollback=Rollback(3, 1, 8081)), serving=3, is_whole=False)
        (step,) = interruption.decide([(warning, lost)], few, spec_of(version=1), NOW)
        (replacement,) = step.creates
        assert replacement.version == version, "of one that was deployed since it knows nothing yet"


def test_new_ones_enter_for_old_ones_that_were_to_be_replaced_by_old_ones() -> None:
    """A roll-out was overtaken by the next: what was to replace an old one is old itself, and serves."""
    spec = spec_of(2, version=3, on_update=OnUpdate.BLUE_GREEN)
    fleet = [old(1, replaced_by=3), old(2, replaced_by=5), new(3, replaces=1, replaced_by=4)]
    news = [new(4, ReplicaState.STARTING, version=3, replaces=3)]
    news += [new(5, ReplicaState.STARTING, version=3, replaces=2)]
    assert rollout.admitted(spec, rows_of(*fleet, *news), news) == news
    serving = [replace(r, state=READY, entered={**r.entered, READY: NOW}) for r in news]
    assert rollout.may_change(spec, rows_of(*fleet, *serving), NOW)
    assert not rollout.may_change(spec, rows_of(*fleet, serving[0], news[1]), NOW)
    damaged = rows_of(old(1, replaced_by=2), old(2, replaced_by=1), *serving)
    assert not rollout.may_change(spec, damaged, NOW), "though two seem to replace each other"


def test_those_that_wait_outside_make_no_room_beyond_surge() -> None:
    """Three new ones come for what is missing: of three old ones that are ill one is replaced at a time."""
    ill = [old(i, unhealthy_since=NOW - seconds(90)) for i in (1, 2, 3)]
    well = [old(7)]
    news = [new(i, ReplicaState.STARTING) for i in (4, 5, 6)]
    actions = decide(*ill, *well, *news, spec=spec_of(7, on_update=OnUpdate.BLUE_GREEN))
    replaced = [a.replica.id for a in actions if a.name == "Replace" and a.creates[0].version == 1]
    assert replaced == [1]


def test_a_replacement_listens_where_its_version_does_whatever_is_known_of_what_it_replaces() -> None:
    """What was taken in counts as of the deployed version, and is registered with another one's port."""
    spec = deployed(2, OnUpdate.ROLLING, port=9000)
    taken_in = a_replica(1, READY, version=2, port=8080)
    rows = changes.after(spec, rows_of(taken_in), [steps.replace(taken_in, NOW, "test", 2)], NOW)
    assert [r.port for r in rows.replicas.values() if r.replaces == 1] == [9000]


def test_one_that_comes_for_another_of_its_version_has_its_turn() -> None:
    """An operator went back while one of the version that was given up serves: one at a time, as ever."""
    silent = [old(i, silent_since=LONG_AGO) for i in (1, 2)]
    coming = a_replica(4, ReplicaState.STARTING, replaces=1)
    back = replace(deployed(1, OnUpdate.BLUE_GREEN), replicas=4)
    assert back.readiness_probe
    probe = replace(back.readiness_probe, failure_threshold_s=60.0)
    rows = (replace(silent[0], replaced_by=4), silent[1], old(3), new(5), coming)
    actions = decide(*rows, spec=replace(back, readiness_probe=probe))
    assert [a.replica.id for a in actions if a.name == "Replace" and a.replica.version == 1] == []


def test_an_instance_is_ours_though_an_old_document_does_not_name_its_launch_template() -> None:
    """An operator went back, and what the version before had is lost: its on-demand template isn't."""
    deployed_doc = spec_of(on_demand_template=LaunchTemplate("lt-2", "1"))
    back = replace(deployed_doc.in_version(1), port=8081)
    offering = on_demand_pool("us-east-1a", "g5.xlarge")
    ours = an_instance(50, launch_id="x", launch_template_id="lt-2", launched_at=LONG_AGO, offering=offering)
    seen = seen_of(old(1), instances=[an_instance(1), ours], health={1: TargetState.HEALTHY})
    for document, found in ((deployed_doc, "TakeIn"), (None, "HoldBack")):
        known = replace(seen, rows=replace(seen.rows, document=document))
        (about,) = [a for a in reconcile.decide(back, known, NOW) if a.name in ("TakeIn", "HoldBack")]
        assert about.name == found


def test_what_waits_for_its_probe_is_registered_at_the_port_of_its_like() -> None:
    """The table was lost, and version 1's document with it: another replica still says its port."""
    spec = deployed(2, OnUpdate.ROLLING, port=9000)
    world, controller = serving(deployed(1, OnUpdate.ROLLING))
    world.services.specs["demo"] = spec
    lost = table(world)
    first, second, third = active(world)
    for row in (first, second, third):
        lost.replicas[row.id] = replace(row, port=8081)
    starting = {s: at for s, at in second.entered.items() if s is not READY}
    row = replace(second, state=ReplicaState.STARTING, entered=starting, port=None)
    lost.replicas[second.id], lost.serving = row, 2
    world.store.keep_document(spec, {})
    del world.router.registered[row.instance_id or ""]
    for targets in world.router.groups.values():
        targets.pop(row.instance_id or "", None)
    go_on(world, controller, 6)
    assert world.router.registered[row.instance_id or ""] == 8081


def test_of_new_ones_that_are_taken_back_only_those_that_serve_are_needed() -> None:
    """One old one is left: the new one that serves stays beside it, the one that starts goes."""
    spec = spec_of(2, on_update=OnUpdate.BLUE_GREEN)
    starts, serves = new(4, ReplicaState.STARTING, replaces=1), new(3)
    failed = Backoff(2, LONG_AGO, version=2)
    actions = decide(old(1, replaced_by=4), serves, starts, spec=spec, backoff=failed)
    assert [a.replica.id for a in actions if a.enters(ReplicaState.DRAINING)] == [4]


@pytest.mark.parametrize("trouble", ["unhealthy_since", "silent_since"])
def test_what_falls_ill_time_and_again_is_replaced_with_the_deployed_version(trouble: str) -> None:
    """It came in place of one that had the same trouble; unless the deployed version was given up, too."""
    probe = ReadinessProbe("/", {}, failure_threshold_s=60.0)
    spec = replace(spec_of(1), readiness_probe=probe)
    reason = {"unhealthy_since": supersede.UNHEALTHY, "silent_since": supersede.SILENT}[trouble]
    first = old(1, **{trouble: NOW - seconds(90)})
    again, failed = replace(first, reason=reason), Backoff(2, LONG_AGO, version=2)
    for row, backoff, version in ((first, Backoff(), 1), (again, Backoff(), 2), (again, failed, 1)):
        (step,) = [a for a in decide(row, spec=spec, backoff=backoff) if a.name == "Replace"]
        assert step.creates[0].version == version


def test_of_those_that_are_taken_back_one_that_may_serve_again_stays() -> None:
    """It missed its checks only just now; when it has for a minute, its replacement isn't requested twice."""
    spec, failed = spec_of(2, on_update=OnUpdate.BLUE_GREEN), Backoff(2, LONG_AGO, version=2)
    coming = a_replica(4, ReplicaState.STARTING, replaces=3)

    def leaving(*rows: Replica) -> list[Step]:
        decided = decide(old(1), *rows, spec=spec, backoff=failed)
        return [a for a in decided if a.enters(ReplicaState.DRAINING)]

    assert leaving(new(3, unhealthy_since=NOW)) == []
    ill = new(3, unhealthy_since=NOW - seconds(90))
    assert [len(step.creates) for step in leaving(ill)] == [1]
    assert [len(step.creates) for step in leaving(replace(ill, replaced_by=4), coming)] == [0]
    (step,) = leaving(replace(ill, is_fallback=True), old(2))
    assert (step.creates, step.after and step.after.reason) == ((), supersede.GIVEN_UP)


def test_a_fallback_that_falls_ill_is_followed_by_one_of_the_deployed_version() -> None:
    """Spot is away, so nobody else can bring the repair; unless the deployed version was given up, too."""
    waiting = a_replica(2, REQUESTED, attempts=3, is_proven=True)
    facts = {"is_fallback": True, "purchase_option": PurchaseOption.ON_DEMAND}
    for ill_s, backoff, version in ((181, Backoff(), 2), (181, Backoff(2, LONG_AGO, version=2), 1)):
        ill = old(1, unhealthy_since=NOW - seconds(ill_s), **facts)
        (asked,) = [a for a in decide(ill, waiting, spec=spec_of(1), backoff=backoff) if a.name == "Request"]
        assert [(r.version, r.is_fallback) for r in asked.creates] == [(version, True)]

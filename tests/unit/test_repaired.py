"""What EC2 refuses to launch is repaired by deploying again. A loss tries no new version without need."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spotrelay.control.controller import Controller
from spotrelay.core import timing
from spotrelay.core.pools import PurchaseOption
from spotrelay.core.ports import Denied, LaunchRequest
from spotrelay.core.replica import ReplicaState
from spotrelay.core.rows import Backoff, Rollback
from spotrelay.core.spec import OnUpdate, ReadinessProbe, ServiceSpec
from spotrelay.core.timing import seconds
from spotrelay.serving import projection, rollout
from spotrelay.serving.actions import GiveUp, Launch, Replace
from tests.examples import demo_spec
from tests.unit.cases import NOW, a_replica, rows_of
from tests.unit.test_rollout import DEPLOYED, decide, new, old, spec_of
from tests.unit.worlds import Troubled, active, dry, reclaim, serving, warn, world_of

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
    launches = [a for a in decide(fallback, waiting, spec=spec) if isinstance(a, Launch)]
    assert [r.version for launch in launches for r in launch.replicas] == [2]


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


def test_a_version_that_was_just_deployed_is_not_given_up_for_the_one_before() -> None:
    """EC2 refused version 2 for an hour. Of version 3, which comes in its place, it has half an hour, too."""
    spec = spec_of(2, version=3, on_update=OnUpdate.BLUE_GREEN)
    waiting = new(4, REQUESTED, replaces=2, attempts=70, entered={REQUESTED: NOW - seconds(3600)})
    first = [old(1), old(2, replaced_by=4)]
    (launch,) = [a for a in decide(*first, waiting, spec=spec) if isinstance(a, Launch)]
    (launched,) = launch.replicas
    assert (launched.version, launched.since, launched.attempts) == (3, NOW, 70)
    refused = replace(launched, retry_at=NOW + seconds(60))
    assert GiveUp(3) not in decide(*first, refused, spec=spec)
    again = decide(*first, replace(waiting, version=3), spec=spec)
    assert GiveUp(3) in again, "which it would be by the time of version 2"


# A loss tries no new version.


def test_a_lack_of_capacity_is_no_reason_to_try_another_version() -> None:
    """Others serve as version 1: however often EC2 had no room, what is lost comes back as that."""
    waiting = a_replica(4, REQUESTED, attempts=70, is_proven=True)
    others = rows_of(old(1), old(2), waiting)
    assert rollout.to_launch(spec_of(), others, waiting) == 1
    assert rollout.to_launch(spec_of(), others, replace(waiting, is_proven=False)) == 1, "a row of before"


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
    back = rollout.in_effect(spec, rows)
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
        after = projection.after(spec_of(), rows_of(lost), [Replace(lost, reason, version)], NOW)
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
    launches = [a for a in decide(*fleet, waiting, spec=spec_of(standby=1)) if isinstance(a, Launch)]
    assert [(r.id, r.version) for launch in launches for r in launch.replicas] == [(9, 2)]

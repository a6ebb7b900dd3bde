"""How many standbys pay: what each kind of evidence comes to, and what it takes to have fewer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from spotrelay.plane.control.controller import Controller
from spotrelay.plane.core.ports import Unavailable
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows, ScaleRequest, Source
from spotrelay.plane.core.spec import OnWarning, ReadinessProbe, ServiceSpec
from spotrelay.plane.serving import standby_count
from spotrelay.plane.serving.standby_count import StandbyCount
from tests.examples import demo_spec, on_demand_pool, spot_pool
from tests.unit.worlds import Troubled, active, recorded, rows, settle, warn, world_of

NOW = datetime.fromisoformat("2026-11-02T12:00:00Z")
SPOT = spot_pool("us-east-1a", "g5.xlarge")
ON_DEMAND = on_demand_pool("us-east-1a", "g5.xlarge")
LONG_S = 300.0


def auto(standby: int = 3, replicas: int = 3, **facts: Any) -> ServiceSpec:
    """A service that leaves the number to the control plane; `standby` is the number so far."""
    facts = {"readiness_probe": ReadinessProbe("/ready", {}), **facts}
    return replace(demo_spec(replicas=replicas), standby=standby, standby_auto=True, **facts)


def lost(id_: int, after_s: float, start_s: float = LONG_S, **facts: Any) -> Replica:
    """A Spot replica that took so long to start, served, and was warned so long after `NOW`."""
    at = NOW + timedelta(seconds=after_s)
    ready = at - timedelta(hours=1)
    asked = ready - timedelta(seconds=start_s)
    entered = {
        ReplicaState.REQUESTED: asked,
        ReplicaState.PROVISIONING: asked,
        ReplicaState.READY: ready,
        ReplicaState.DRAINING: at + timedelta(seconds=60),
        ReplicaState.TERMINATED: at + timedelta(seconds=120),
    }
    facts = {"offering": SPOT, "warned_at": at, **facts}
    return Replica("demo", id_, 1, ReplicaState.TERMINATED, "interruption warning", entered, **facts)


def losses(*times: tuple[float, int], start_s: float = LONG_S) -> list[Replica]:
    """So many lost together at each time, a second apart."""
    each = ((at + number) for at, many in times for number in range(many))
    return [lost(id_, at, start_s) for id_, at in enumerate(each, 1)]


def apart(count: int, together: int = 1) -> list[tuple[float, int]]:
    """So many times, each hours after the one before, something was lost."""
    return [(10_000.0 * number, together) for number in range(count)]


def resumed(count: int, refused: int = 0, failed: int = 0) -> list[Replica]:
    """So many resumes, some of which EC2 refused, and some of which never became ready."""
    entered = {ReplicaState.REQUESTED: NOW, ReplicaState.PROVISIONING: NOW, ReplicaState.READY: NOW}
    one = Replica(
        "demo", 0, 1, ReplicaState.TERMINATED, "x", entered, ON_DEMAND, is_standby=True, is_fallback=True
    )
    found = [replace(one, id=1000 + number) for number in range(count)]
    found[:refused] = [replace(r, retry_at=NOW) for r in found[:refused]]
    found[refused : refused + failed] = [
        replace(r, state=ReplicaState.FAILED) for r in found[refused : refused + failed]
    ]
    return found


def derive(spec: ServiceSpec, ended: Sequence[Replica], there: Iterable[Replica] = ()) -> StandbyCount:
    """How many pay."""
    return standby_count.derive(spec, Rows(replicas={r.id: r for r in there}), ended)


def count(spec: ServiceSpec, ended: Sequence[Replica], there: Iterable[Replica] = ()) -> int:
    """The same without the reason."""
    return derive(spec, ended, there).count


# Starts.


def test_nothing_on_record_counts_as_the_worst() -> None:
    """Starts that nobody has seen are long, and all replicas may be lost together."""
    found = derive(auto(), [])
    assert found.count == 3
    assert found.reason == (
        "no start is on record, so they count as long, the warning leaves 70; losses are on record of 0"
        " times, fewer than 20: one for each of the 3 on Spot"
    )


@pytest.mark.parametrize(
    ("facts", "longest_s"),
    [
        ({}, 100),
        ({"drain_s": 5}, 125),
        ({"drain_s": 60}, 90),
        ({"drain_s": 200}, 90),
        ({"on_warning": OnWarning.LEAVE, "drain_s": 5}, 90),
    ],
)
def test_starts_that_fit_need_none(facts: dict[str, Any], longest_s: float) -> None:
    """Nor does a start need one that takes a little longer than a warned replica, or a standby, bridges."""
    spec = auto(**facts)
    assert count(spec, losses((0, 2), start_s=longest_s)) == 0
    assert count(spec, losses((0, 2), start_s=longest_s + 1)) == 3
    assert "up to 100 need no standby" in derive(auto(), losses((0, 1), start_s=80)).reason


def test_what_resumes_take_decides_what_a_standby_is_worth() -> None:
    """Where a standby takes 200 s, a start of 230 s needs none; the latest twenty count, by their middle."""
    slow = [replace(r, resume_s=200.0 if r.id < 1011 else 9.0) for r in resumed(20)]
    assert count(auto(), [*losses((0, 2), start_s=230), *slow]) == 0
    assert count(auto(), [*losses((0, 2), start_s=231), *slow]) == 3
    never = [replace(r, entered={ReplicaState.REQUESTED: NOW}) for r in slow]
    assert count(auto(), [*losses((0, 2), start_s=101), *never]) == 3, "none of them got ready"
    few = slow[: standby_count.RESUMES_LEAST - 1]
    assert count(auto(), [*losses((0, 2), start_s=101), *few]) == 3, "one or two may be an accident"


def test_replicas_that_are_there_show_their_starts() -> None:
    """A new service has no history, and knows its first starts all the same."""
    ready = replace(lost(1, 0, 60), state=ReplicaState.READY, warned_at=None)
    assert count(auto(), [], [ready]) == 0


def test_one_start_in_ten_may_be_slow_where_there_are_none() -> None:
    """Where there are standbys every start must fit before they go; so one slow start changes nothing."""
    quick = losses(*apart(19), start_s=60)
    record = [*quick, lost(100, 500_000)]
    assert count(auto(0), record) == 0
    assert count(auto(1), record) == 1
    assert count(auto(0), [*quick[:17], *[lost(100 + n, 500_000 + 10_000 * n) for n in range(3)]]) == 1


def test_only_the_latest_starts_count() -> None:
    """A new version that starts faster needs no standbys once twenty starts have shown it."""
    slow = losses(*apart(30))
    assert count(auto(), [*slow, *[lost(100 + n, 900_000 + n, 60) for n in range(19)]]) > 0
    assert count(auto(), [*slow, *[lost(100 + n, 900_000 + n, 60) for n in range(20)]]) == 0


def test_resumes_and_what_was_taken_in_are_no_starts() -> None:
    """The one is no cold start, and since when the other was ready nobody knows."""
    slow = lost(1, 0)
    late = {**slow.entered, ReplicaState.REQUESTED: slow.entered[ReplicaState.READY]}
    others = [replace(slow, entered=late), replace(slow, id=2, is_standby=True)]
    assert derive(auto(), others).reason.startswith("no start is on record")


# Losses.


def test_as_many_as_were_lost_together() -> None:
    """Within one start's time: what is lost later finds its standby back."""
    seen = [*apart(20), (500_000, 2)]
    found = derive(auto(), losses(*seen))
    assert found.count == 2
    assert found.reason == (
        "starts take up to 300 s (nine in ten of the last 20), the warning leaves 70; "
        "2 of 3 were lost together on 2026-11-08"
    )
    assert count(auto(), losses(*apart(20), (500_000, 1), (500_300, 1))) == 2
    assert count(auto(), losses(*apart(20), (500_000, 1), (500_301, 1))) == 1
    assert count(auto(), losses(*apart(20), (500_000, 9))) == 3, "never more than there are"


def test_fewer_than_all_takes_twenty_times_on_record() -> None:
    """What is lost together is one time, however many it takes."""
    assert count(auto(), losses(*apart(19, together=2))) == 3
    assert count(auto(), losses(*apart(20, together=2))) == 2


def test_fewer_stay_while_ten_times_are_on_record() -> None:
    """Old losses drop out of the record; the number doesn't go up and down with each of them."""
    assert count(auto(1), losses(*apart(10))) == 1
    assert count(auto(1), losses(*apart(9))) == 3
    assert count(auto(2), losses(*apart(10), (500_000, 3))) == 3, "more is needed at once"


def test_only_spot_that_served_is_lost() -> None:
    """On-demand, what never served and what we gave up ourselves say nothing of interruptions."""
    one = lost(1, 0)
    none_ready: dict[ReplicaState, datetime] = {
        s: at for s, at in one.entered.items() if s is not ReplicaState.READY
    }
    others = [
        replace(one, offering=ON_DEMAND),
        replace(one, entered=none_ready),
        replace(one, warned_at=None, reason="Spot is back"),
    ]
    for other in others:
        assert "losses are on record of 0 times" in derive(auto(), [other]).reason


def test_a_loss_without_a_warning_counts() -> None:
    """Its warning got lost, but its instance ended while it served."""
    unwarned = [
        replace(r, warned_at=None, reason="instance terminated: Server.SpotInstanceTermination")
        for r in losses(*apart(20))
    ]
    assert count(auto(), unwarned) == 1


def test_a_loss_that_is_under_way_counts() -> None:
    """Replicas that serve on after their warning are on their way out, and lost together with those gone."""
    record = losses(*apart(21))
    there = [
        replace(lost(900, 5), state=ReplicaState.READY),
        replace(lost(901, 9), state=ReplicaState.DRAINING),
    ]
    assert count(auto(), record, there) == 3
    assert count(auto(), record, [record[0]]) == 1, "what ended between two queries is in both"


def test_what_is_always_on_demand_needs_none() -> None:
    """The base isn't interrupted; without Spot, or replicas, there is nothing to bridge."""
    assert count(auto(base_on_demand=2), []) == 1
    assert derive(auto(base_on_demand=3), []) == StandbyCount(0, "no replica is on Spot")
    assert count(auto(use_spot=False), []) == 0
    assert count(auto(replicas=0), []) == 0


# Resumes.


def test_resumes_that_fail_are_worth_one_more() -> None:
    """Two at least, and more than one in fifty."""
    record = losses(*apart(20))
    assert count(auto(1), [*record, *resumed(10, refused=1)]) == 1
    assert count(auto(1), [*record, *resumed(100, refused=2)]) == 1
    found = derive(auto(1), [*record, *resumed(99, refused=1, failed=1)])
    assert found.count == 2
    assert found.reason.endswith("; 2 of 99 resumes failed: one more")
    assert count(auto(), resumed(9, refused=9)) == 4, "and never more than one more"


def test_one_more_stays_until_hardly_any_resume_fails() -> None:
    """Its disk is paid for by one resume in a hundred, so it goes later than it comes."""
    record = losses(*apart(20))
    assert count(auto(2), [*record, *resumed(199, refused=2)]) == 2
    assert count(auto(2), [*record, *resumed(200, refused=2)]) == 1


# The number so far.


def test_the_number_so_far_outlives_a_deployment() -> None:
    """Unless that changes how many replicas are on Spot, or takes the number into its own hands."""
    deployed = auto(3)
    kept = auto(1)
    assert standby_count.with_number_so_far(replace(deployed, version=2), kept).standby == 1
    assert standby_count.with_number_so_far(auto(5, replicas=5), kept).standby == 5
    assert standby_count.with_number_so_far(replace(deployed, standby_auto=False), kept).standby == 3
    assert standby_count.with_number_so_far(deployed, replace(kept, standby_auto=False)).standby == 3
    assert standby_count.with_number_so_far(deployed, None).standby == 3


# In the controller.


def standing_by(world: Troubled) -> int:
    """How many can be resumed."""
    return sum(r.state is ReplicaState.STANDBY for r in rows(world).replicas.values())


def slow_world(spec: ServiceSpec) -> tuple[Troubled, Controller]:
    """A service whose replicas take minutes to answer, and whose standbys have been prepared."""
    world = world_of(spec)
    controller = Controller(world.ports())
    settle(world, controller, 2)
    world.clock.advance(LONG_S)
    settle(world, controller, 16)
    return world, controller


def test_starts_decide_whether_there_are_standbys() -> None:
    """The world's first starts are long or not; each change of the number is a log line with its reason."""
    slow, _ = slow_world(auto(2, replicas=2))
    assert standing_by(slow) == 2
    assert recorded(slow, "standbys") == []
    quick = world_of(auto(2, replicas=2))
    settle(quick, Controller(quick.ports()), 16)
    assert [r for r in rows(quick).replicas.values() if r.is_standby] == []
    (said,) = recorded(quick, "standbys")
    assert (said["service"], said["before"], said["count"]) == ("demo", 2, 0)
    assert "need no standby" in str(said["reason"])
    kept = rows(quick).document
    assert kept is not None
    assert kept.standby == 0


def test_standbys_are_counted_by_the_replicas_in_effect() -> None:
    """An operator who asks for more replicas gets the standbys for them; the number of the file is kept."""
    world, controller = slow_world(auto(2, replicas=2))
    until = world.clock.now() + timedelta(hours=9)
    world.store.note_request("demo", Source.OPERATOR, ScaleRequest(3, until))
    settle(world, controller, 2)
    world.clock.advance(LONG_S)
    settle(world, controller, 50)
    assert standing_by(world) == 3
    kept = rows(world).document
    assert kept is not None
    assert (kept.replicas, kept.standby) == (2, 3)


@pytest.mark.parametrize("call", ["store.history", "store.keep_document"])
def test_a_count_that_fails_holds_up_nothing(call: str) -> None:
    """What is missing is replaced first, and then the message comes again; the number stays as it was."""
    world, controller = slow_world(auto(2, replicas=2))
    world.store.note_request("demo", Source.OPERATOR, ScaleRequest(3, world.clock.now() + timedelta(hours=9)))

    def fail(*_: object, **__: object) -> None:
        raise Unavailable(call)

    world.before[call] = fail
    with pytest.raises(Unavailable):
        controller.tick("demo")
    assert sum(not r.is_standby for r in active(world)) == 3
    kept = rows(world).document
    assert kept is not None
    assert kept.standby == 2
    assert [line["step"] for line in recorded(world, "step_failed")] == ["count_standbys"]


def test_a_warning_resumes_whatever_the_number_is_by_now() -> None:
    """The fast path reads all rows of such a service, without knowing the number, and asks no history."""
    world, controller = slow_world(auto(2, replicas=2))
    world.services.specs["demo"] = auto(0, replicas=2)
    world.calls.clear()
    controller.handle(warn(world, next(r for r in active(world) if r.serves)))
    assert sum(r.is_standby and r.is_fallback for r in active(world)) == 1
    assert "store.history" not in world.calls


def test_only_who_leaves_it_to_us_is_counted_for() -> None:
    """A service with a number of its own costs no query of its history."""
    world, controller = slow_world(replace(auto(1, replicas=2), standby_auto=False))
    world.calls.clear()
    controller.tick("demo")
    assert "store.history" not in world.calls
    assert standing_by(world) == 1

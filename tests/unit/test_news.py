"""What is told and measured of a service: losses, replacements, gaps, costs. Once each, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from jsonschema import Draft202012Validator

from spotrelay.plane.control.controller import Controller
from spotrelay.plane.core.instances import InstanceState, TargetState
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.notices import Notice, NoticeKind, text_of
from spotrelay.plane.core.pools import Cause, Cooldown, Offering, PurchaseOption, Scope, Survey
from spotrelay.plane.core.ports import Conflict, Denied, Unavailable
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Told
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.memory import World
from spotrelay.plane.serving import news, steps
from tests import schemas
from tests.examples import demo_spec
from tests.unit.cases import NOW, a_replica, rows_of
from tests.unit.worlds import active, dry, instance_of, reclaim, recorded, serving, settle, warn, world_of

READY, DRAINING = ReplicaState.READY, ReplicaState.DRAINING
SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND
WHOLE = Told(1, highest_id=9, replicas={1: True, 2: True, 3: True}, whole_at=3)


def told(world: World, *kinds: NoticeKind) -> list[tuple[str, str]]:
    """What was told, of these kinds or of all."""
    schemas.check(world.notices.told)
    return [(n.kind.value, n.subject) for n in world.notices.told if not kinds or n.kind in kinds]


def values(world: World, metric: Metric) -> list[float]:
    """What was counted of a metric."""
    return world.telemetry.values[metric]


@pytest.mark.parametrize("kind", NoticeKind)
def test_every_event_has_a_schema(kind: NoticeKind) -> None:
    """It is a JSON Schema, names the event, demands every field and gives each a meaning."""
    schema = schemas.schema_of(kind)
    Draft202012Validator.check_schema(schema)
    assert schema["title"] == kind.value
    assert schema["required"] == list(schema["properties"])


def test_a_first_start_is_told_and_is_no_gap() -> None:
    """Each replica that comes to serve is told; that there were none before is nothing that was lost."""
    world = world_of(demo_spec())
    settle(world, Controller(world.ports()))
    assert told(world) == [("ReplicaReady", id_) for id_ in "123"]
    assert Metric.GAP_S not in world.telemetry.counts
    first = world.notices.told[0].detail
    assert first["instance"] == instance_of(active(world)[0])
    assert first["requested_at"] <= first["launched_at"] <= first["ready_at"] == first["at"]


def test_a_warned_loss_is_told_and_measured() -> None:
    """Lost with its warning, the gap from leaving the rotation to the replacement's start, and who it was."""
    world, controller = serving()
    world.notices.told.clear()
    victim, warned_at = active(world)[0], world.clock.now()
    controller.handle(warn(world, victim))
    assert world.telemetry.counts[Metric.LOSSES_WARNED] == 1
    assert not world.notices.told, "nothing is told in the way of a warning"
    settle(world, controller)
    assert told(world) == [
        ("ReplicaLost", "1"),
        ("FleetNotWhole", text_of(warned_at)),
        ("ReplicaReady", "4"),
        ("ReplicaReplaced", "1"),
        ("FleetWhole", text_of(warned_at)),
    ]
    lost, _, _, replaced, whole = (n.detail for n in world.notices.told)
    assert (lost["warned"], lost["reason"]) == (True, "interruption warning")
    assert (replaced["instance"], replaced["by"]["replica"]) == (victim.instance_id, 4)
    took_s = (active(world)[2].since - warned_at).total_seconds()
    assert took_s > 0
    assert values(world, Metric.WARNING_TO_READY_MS) == [took_s * 1000]
    assert values(world, Metric.GAP_S) == [took_s] == [whole["gap_s"]]
    controller.tick("demo")
    assert len(world.notices.told) == 5, "once"
    assert Metric.LOSSES_UNWARNED not in world.telemetry.counts


def test_an_instance_that_goes_without_a_warning_is_told_so() -> None:
    """By its event or found by the tick: the loss says that nobody had warned, and why it was found."""
    for by_event in (True, False):
        world, controller = serving()
        events = reclaim(world, active(world)[0])
        if by_event:
            controller.handle(events)
        settle(world, controller)
        (lost,) = (n.detail for n in world.notices.told if n.kind is NoticeKind.REPLICA_LOST)
        assert (lost["warned"], lost["warned_at"]) == (False, None)
        assert lost["reason"] == "instance terminated"
        assert world.telemetry.counts[Metric.LOSSES_UNWARNED] == 1
        assert not world.telemetry.counts[Metric.LOSSES_WARNED] + len(
            values(world, Metric.WARNING_TO_READY_MS)
        )


def test_an_instance_that_vanished_is_a_loss() -> None:
    """EC2 shows it no more, nor does the load balancer call it healthy: counted as any that wasn't warned."""
    world, controller = serving()
    victim = instance_of(active(world)[0])
    del world.fleet.instances[victim]
    world.router.groups[demo_spec().target_group_arn][victim] = TargetState.UNHEALTHY
    for _ in range(3):
        world.clock.advance(30)
        controller.tick("demo")
        world.router.groups[demo_spec().target_group_arn][victim] = TargetState.UNHEALTHY
    assert world.telemetry.counts[Metric.LOSSES_UNWARNED] == 1


def test_what_we_end_ourselves_is_no_loss() -> None:
    """Scaled in, drained and terminated: no loss, no gap. Nor is one that EC2 takes while it leaves."""
    world, controller = serving()
    world.notices.told.clear()
    world.services.specs["demo"] = demo_spec(replicas=1)
    controller.tick("demo")
    leaving = [r for r in world.store.load("demo").replicas.values() if r.state is DRAINING]
    controller.handle(warn(world, leaving[0]))
    reclaim(world, leaving[0])
    settle(world, controller, rounds=60)
    assert told(world) == []
    assert {Metric.LOSSES_WARNED, Metric.LOSSES_UNWARNED, Metric.GAP_S}.isdisjoint(world.telemetry.counts)


def test_a_scale_up_is_no_gap_and_a_loss_in_it_is() -> None:
    """Who serves three and should serve five has lost nothing, until one of the three is lost."""
    rows = rows_of(*(a_replica(i, READY) for i in (1, 2, 3)), told=WHOLE)
    assert news.since(rows, (), "demo", 5, NOW).told.gap_since is None
    lost = a_replica(3, DRAINING, since_s=7, warned_at=NOW, lost_at=NOW)
    lost = replace(lost, entered={**lost.entered, READY: NOW - seconds(90)})
    rest = [a_replica(i, READY) for i in (1, 2)]
    fewer = news.since(rows_of(*rest, lost, told=WHOLE), (), "demo", 5, NOW)
    assert fewer.told.gap_since == NOW - seconds(7)
    assert [n.kind for n in fewer.notices] == [NoticeKind.REPLICA_LOST, NoticeKind.FLEET_NOT_WHOLE]
    again = rows_of(*rest, a_replica(8, READY, since_s=2), told=fewer.told)
    over = news.since(again, (), "demo", 5, NOW)
    assert (over.gap_s, over.told.gap_since) == (5.0, None)


def test_a_gap_begins_when_the_first_was_missed() -> None:
    """However much happened since the last tick: what served on and ended, and what came meanwhile."""
    warned = a_replica(1, READY, since_s=100, warned_at=NOW - seconds(90), lost_at=NOW - seconds(90))
    told = replace(WHOLE, replicas={2: True, 3: True}, lost={1: warned})
    assert news.unaccounted(rows_of(told=told, highest_id=9)) == [1, 2, 3]
    starting = replace(told, lost={1: a_replica(1, ReplicaState.STARTING, warned_at=NOW, lost_at=NOW)})
    assert news.unaccounted(rows_of(told=starting, highest_id=9)) == [1, 2, 3], "it may have come to serve"
    leaving = replace(told, lost={1: a_replica(1, DRAINING, warned_at=NOW, lost_at=NOW)})
    assert news.unaccounted(rows_of(told=leaving, highest_id=9)) == [2, 3]
    served = {READY: NOW - seconds(500)}

    def gone(id_: int, out_s: float) -> Replica:
        row = a_replica(id_, ReplicaState.TERMINATED, lost_at=NOW - seconds(out_s))
        return replace(row, entered={**row.entered, **served, DRAINING: NOW - seconds(out_s)})

    ended = (gone(1, 50), gone(2, 60))
    found = news.since(rows_of(a_replica(3, READY, since_s=200), told=told), ended, "demo", 3, NOW)
    assert found.told.gap_since == NOW - seconds(60)
    for came_s, began_s in ((45, 60), (55, 50)):
        rows = rows_of(a_replica(3, READY, since_s=200), a_replica(8, READY, since_s=came_s), told=told)
        assert news.since(rows, ended, "demo", 3, NOW).told.gap_since == NOW - seconds(began_s)


def test_a_gap_that_ends_as_fewer_are_needed_ends_when_that_is_seen() -> None:
    """Not when one came that kept the number: what was told lost served until then, and its row is gone."""
    lost = a_replica(3, DRAINING, lost_at=NOW - seconds(50))
    lost = replace(lost, entered={READY: NOW - seconds(900), DRAINING: NOW - seconds(50)})
    told = replace(WHOLE, gap_since=NOW - seconds(90), lost={3: lost})
    came = replace(a_replica(4, READY), entered={READY: NOW - seconds(55)})
    rows = rows_of(a_replica(2, READY), came, told=replace(told, highest_id=4))
    assert news.since(rows, (), "demo", 2, NOW).gap_s == 90.0


def test_one_for_another_at_the_same_moment_ends_no_gap() -> None:
    """The gap was over before that, when as many served as were needed."""
    told = replace(WHOLE, gap_since=NOW - seconds(80))
    out = {READY: NOW - seconds(70), DRAINING: NOW - seconds(20)}
    left = a_replica(1, DRAINING)
    left = replace(left, entered={**left.entered, **out})
    rows = rows_of(
        left, *(a_replica(id_, READY, since_s=s) for id_, s in ((2, 900), (3, 40), (4, 20))), told=told
    )
    assert news.since(rows, (), "demo", 3, NOW).gap_s == 40.0


def test_a_fallback_is_told_as_one_whether_it_stood_by_or_not() -> None:
    """One that is bought anew and one that is resumed; what was only bought on-demand is none."""
    rows = rows_of(
        a_replica(1, READY),
        a_replica(2, READY, is_fallback=True, purchase_option=ON_DEMAND),
        a_replica(3, READY, is_fallback=True, is_standby=True, purchase_option=ON_DEMAND),
        told=Told(1, whole_at=3),
    )
    notices = news.since(rows, [], "demo", 3, NOW).notices
    assert {n.subject: n.facts["fallback"] for n in notices} == {"1": False, "2": True, "3": True}


def test_a_loss_is_told_once_while_it_serves_on() -> None:
    """By the tick that finds it; not by those until it leaves, nor by the one after its end."""
    warned = a_replica(1, READY, warned_at=NOW, lost_at=NOW)
    rest = [a_replica(i, READY) for i in (2, 3)]
    first = news.since(rows_of(warned, *rest, told=WHOLE), (), "demo", 3, NOW)
    assert [n.kind for n in first.notices] == [NoticeKind.REPLICA_LOST]
    again = news.since(rows_of(warned, *rest, told=first.told), (), "demo", 3, NOW)
    assert again.notices == ()
    ended = a_replica(1, ReplicaState.TERMINATED, warned_at=NOW, lost_at=NOW)
    after = rows_of(*rest, a_replica(4, READY), told=replace(again.told, highest_id=4))
    assert NoticeKind.REPLICA_LOST not in [n.kind for n in news.since(after, [ended], "demo", 3, NOW).notices]


def test_a_loss_is_forgotten_once_it_is_made_good() -> None:
    """It is kept while it lives, or while what is to replace it isn't ready: the record never grows."""
    lost = a_replica(1, ReplicaState.TERMINATED, warned_at=NOW, lost_at=NOW)
    told = replace(WHOLE, lost={1: lost})
    rest = [a_replica(i, READY) for i in (2, 3)]
    for state, kept in ((ReplicaState.STARTING, {1}), (READY, set())):
        rows = rows_of(*rest, a_replica(4, state, replaces=1), told=replace(told, highest_id=4))
        assert news.since(rows, (), "demo", 3, NOW).told.lost.keys() == kept


def test_a_loss_is_kept_for_what_was_requested_as_the_rows_were_read() -> None:
    """The replacement isn't among them yet; that it is ready is told later, and what it replaces with it."""
    lost = a_replica(1, ReplicaState.TERMINATED, warned_at=NOW, lost_at=NOW, replaced_by=4)
    before = Told(1, highest_id=3, replicas={1: True, 2: True, 3: True}, whole_at=3)
    rest = [a_replica(i, READY) for i in (2, 3)]
    read = replace(rows_of(*rest, told=before), highest_id=3)
    kept = news.since(read, [lost], "demo", 3, NOW).told
    rows = rows_of(*rest, a_replica(4, READY, replaces=1), told=kept)
    found = news.since(rows, (), "demo", 3, NOW)
    assert ("ReplicaReplaced", "1") in [(n.kind.value, n.subject) for n in found.notices]
    assert found.told.lost == {}


def test_a_standby_that_is_gone_is_no_loss() -> None:
    """It serves nobody. Its row, its event and its metric say the same as the history."""
    for state in (ReplicaState.STANDBY, ReplicaState.STARTING):
        row = a_replica(1, state, is_standby=True)
        drain = steps.drain(row, NOW, "instance terminated", is_gone=True)
        assert (drain.is_loss, drain.row.lost_at) == (False, None)
    resumed = a_replica(1, READY, is_standby=True, is_fallback=True)
    assert steps.drain(resumed, NOW, "instance terminated", is_gone=True).is_loss


def test_what_answers_no_checks_is_missed_until_it_does() -> None:
    """A gap without a loss: since it was found ill, until a tick finds it well."""
    ill = a_replica(3, READY, unhealthy_since=NOW - seconds(20))
    rest = [a_replica(i, READY) for i in (1, 2)]
    found = news.since(rows_of(*rest, ill, told=WHOLE), (), "demo", 3, NOW)
    assert found.told.gap_since == NOW - seconds(20)
    well = rows_of(*rest, a_replica(3, READY), told=found.told)
    assert news.since(well, (), "demo", 3, NOW + seconds(10)).gap_s == 30.0


def test_one_that_ended_between_two_ticks_is_told() -> None:
    """Its row is history by then, and is looked up by its ID."""
    world, controller = serving()
    world.notices.told.clear()
    victim = active(world)[0]
    controller.handle(warn(world, victim))
    controller.handle(reclaim(world, victim))
    assert victim.id not in world.store.load("demo").replicas
    settle(world, controller)
    assert ("ReplicaLost", "1") in told(world)
    assert world.calls.count("store.ended") == 1


def test_a_service_of_before_is_no_news() -> None:
    """Where nothing was told yet, what is there is taken for known: an update of ours floods nobody."""
    world, controller = serving()
    world.notices.told.clear()
    world.store.damage("demo").told = Told()
    controller.tick("demo")
    assert told(world) == []
    assert world.store.load("demo").told.replicas == {1: True, 2: True, 3: True}


def test_what_is_not_taken_is_told_again() -> None:
    """EventBridge takes some entries and not others: those come with the next tick, the rest don't."""
    world, controller = serving()
    world.notices.told.clear()
    world.notices.refused = {"demo/ReplicaReady/4": "ThrottlingException: slow down"}
    controller.handle(reclaim(world, active(world)[0]))
    settle(world, controller)
    assert "4" not in {s for kind, s in told(world) if kind == "ReplicaReady"}
    assert world.telemetry.counts[Metric.EVENTS_UNSENT] >= 1
    assert recorded(world, "events_unsent")[0]["why"] == world.notices.refused
    world.notices.refused = {}
    controller.tick("demo")
    assert told(world, NoticeKind.REPLICA_READY) == [("ReplicaReady", "4")]
    assert world.store.load("demo").told.unsent == ()
    assert len(values(world, Metric.GAP_S)) == 1, "what was measured isn't counted again"


def test_what_nobody_takes_for_an_hour_is_dropped() -> None:
    """And the log says which."""
    old = Notice(NoticeKind.REPLICA_READY, "demo", "1", NOW - seconds(news.TRIED_S))
    rows = rows_of(*(a_replica(i, READY) for i in (1, 2, 3)), told=replace(WHOLE, unsent=(old,)))
    assert news.since(rows, (), "demo", 3, NOW).dropped == (old,)
    assert news.since(rows, (), "demo", 3, NOW - seconds(1)).notices == (old,)


@pytest.mark.parametrize("call", ["notices.publish", "store.note_told", "store.ended"])
def test_telling_fails_no_tick(call: str) -> None:
    """Whatever of it fails, the tick has done its work, and the next one tells and counts: once."""
    for error in (Unavailable("no answer"), Denied("no permission"), Conflict("somebody told")):
        world, controller = serving()
        world.notices.told.clear()
        victim = active(world)[0]
        controller.handle(warn(world, victim))
        controller.handle(reclaim(world, victim))
        world.refuse(call, error)
        controller.tick("demo")
        settle(world, controller)
        assert {"ReplicaLost", "ReplicaReady", "ReplicaReplaced"} <= {kind for kind, _ in told(world)}
        assert len(values(world, Metric.GAP_S)) == 1
        assert (world.telemetry.counts[Metric.CALLS_DENIED] > 0) == isinstance(error, Denied)


def test_unknown_pools_fail_no_tick() -> None:
    """What only counts by them counts nothing then, and says so."""
    for error in (Unavailable("no answer"), Denied("no permission")):
        world, controller = serving()
        surveyed(world)
        world.refuse("store.recall", error)
        controller.tick("demo")
        assert Metric.USD_PER_HOUR not in world.telemetry.counts
        assert recorded(world, "not_appraised")
        assert (world.telemetry.counts[Metric.CALLS_DENIED] > 0) == isinstance(error, Denied)


def test_a_tick_that_fails_tells_all_the_same() -> None:
    """A load balancer that is out of order for hours hides no loss."""
    world, controller = serving()
    world.notices.told.clear()
    world.refuse("router.deregister", Unavailable("no answer"), None)
    reclaim(world, active(world)[0])
    for _ in range(2):
        with pytest.raises(Unavailable):
            controller.tick("demo")
    assert ("ReplicaLost", "1") in told(world)


def test_a_gap_is_on_record_before_it_is_told() -> None:
    """Whoever hears that a fleet isn't whole hears that it is again, though the tick dies over telling it."""
    world, controller = serving()
    reclaim(world, active(world)[0])
    controller.tick("demo")
    world.lose("notices.publish", Unavailable("no answer"))
    settle(world, controller)
    begun = [s for _, s in told(world, NoticeKind.FLEET_NOT_WHOLE)]
    assert len(begun) == 2, "at least once"
    assert set(begun) == {s for _, s in told(world, NoticeKind.FLEET_WHOLE)}


def test_a_removed_service_forgets_what_was_told() -> None:
    """One of the same name starts anew: that it has nothing yet is no gap."""
    world, _ = serving()
    world.store.forget("demo")
    assert world.store.load("demo").told == Told()


# How replicas are bought, and what they cost.


def test_how_the_ready_ones_are_bought_is_counted() -> None:
    """Spot and on-demand, fallbacks among these; a fallback's age only while there is one."""
    world, controller = serving()
    controller.tick("demo")
    assert values(world, Metric.REPLICAS_SPOT)[-1] == 3
    assert values(world, Metric.REPLICAS_ON_DEMAND)[-1] == 0
    assert Metric.LONGEST_FALLBACK_S not in world.telemetry.counts
    dry(world, SPOT)
    controller.handle(reclaim(world, active(world)[0]))
    settle(world, controller)
    launched_at = next(r for r in active(world) if r.is_fallback).entered[ReplicaState.PROVISIONING]
    controller.tick("demo")
    assert values(world, Metric.REPLICAS_SPOT)[-1] == 2
    assert values(world, Metric.REPLICAS_ON_DEMAND)[-1] == 1
    there_s = (world.clock.now() - launched_at).total_seconds()
    assert values(world, Metric.LONGEST_FALLBACK_S)[-1] == there_s > 0
    assert world.telemetry.services[Metric.LONGEST_FALLBACK_S] == {"demo"}


def surveyed(world: World) -> Survey:
    """A survey that knows every price: on-demand 1 USD, Spot a quarter."""
    spec = demo_spec()
    survey = Survey(
        "demo",
        spec.asked,
        world.clock.now(),
        spec.pools,
        dict.fromkeys(spec.instance_types, 1.0),
        dict.fromkeys(spec.pools, 0.25),
    )
    world.store.note_survey(survey)
    return survey


def test_what_the_instances_cost_is_counted_by_the_minute() -> None:
    """The prices of those that run, and of the same on demand; not by each of the ticks between."""
    world, controller = serving()
    surveyed(world)
    controller.tick("demo", world.clock.now())
    assert Metric.USD_PER_HOUR not in world.telemetry.counts
    controller.tick("demo")
    assert values(world, Metric.USD_PER_HOUR) == [0.75]
    assert values(world, Metric.ON_DEMAND_USD_PER_HOUR) == [3.0]
    world.fleet.enter(InstanceState.TERMINATED, [instance_of(active(world)[0])])
    controller.tick("demo")
    assert values(world, Metric.USD_PER_HOUR)[-1] == 0.5, "what has ended costs nothing"


def test_an_unknown_price_is_no_price() -> None:
    """A part of the sum would look like less: without one of the prices, or a survey, nothing is counted."""
    world, controller = serving()
    controller.tick("demo")
    survey = surveyed(world)
    offering = active(world)[0].offering
    assert offering is not None
    spot = {pool: usd for pool, usd in survey.spot_prices.items() if pool != offering.pool}
    world.store.note_survey(replace(survey, spot_prices=spot))
    controller.tick("demo")
    assert Metric.USD_PER_HOUR not in world.telemetry.counts
    assert values(world, Metric.ON_DEMAND_USD_PER_HOUR) == [3.0]


def test_pools_that_cool_are_counted_while_some_do() -> None:
    """Those that are eligible, and as they would be bought."""
    world, controller = serving()
    controller.tick("demo")
    assert Metric.POOLS_COOLING not in world.telemetry.counts
    now, pools = world.clock.now(), demo_spec().pools
    ends = now + seconds(60)
    for option, pool in ((SPOT, pools[0]), (ON_DEMAND, pools[1])):
        scope = Scope.of(Offering(pool, option))
        world.store.cool([Cooldown(scope, Cause.REFUSAL, now, ends, "no capacity")])
    controller.tick("demo")
    assert values(world, Metric.POOLS_COOLING) == [1]
    world.clock.advance(61)
    controller.tick("demo")
    assert values(world, Metric.POOLS_COOLING) == [1]

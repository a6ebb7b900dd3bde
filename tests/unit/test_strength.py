"""As many replicas as wanted, how they are bought, and nobody given up who is needed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotrelay.plane.core.instances import InstanceState, TargetState
from spotrelay.plane.core.replica import Phase, Replica, ReplicaState
from spotrelay.plane.core.spec import ReadinessProbe, ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving import changes, reconcile, replacement, steps, strength
from spotrelay.plane.serving.observation import Observation
from spotrelay.plane.serving.steps import Step
from tests.examples import demo_spec
from tests.unit.cases import NOW, an_instance, losing, replacing, seen_of, told, without
from tests.unit.strengths import (
    DRAINING,
    LOOPING,
    ON_DEMAND,
    READY,
    REQUESTED,
    RISING,
    SPOT,
    STARTING,
    after,
    decide,
    dropped,
    fallback,
    fallbacks_requested,
    is_early,
    look,
    on_demand,
    refused,
    spot,
)


def places(spec: ServiceSpec, seen: Observation, *found: Step) -> list[Step]:
    """What comes of the places of those that the tick found lost."""
    left = changes.after(spec, seen.rows, found, NOW)
    return list(replacement.decide(spec, seen.with_rows(left), NOW))


# What serves is never given up while the rest are fewer than wanted.


def taken_in(state: ReplicaState, *, is_fallback: bool = False) -> Step:
    """An instance that no row knew."""
    reason = "serves, and nothing on record knew it"
    return steps.take_in(NOW, an_instance(9), state, reason, 1, is_fallback=is_fallback)


def test_a_fallback_serves_on_while_no_spot_does() -> None:
    """Whatever came of the replicas that it stands in for: failed, just requested, unhealthy, or gone."""
    spec = demo_spec(replicas=1)
    for other in (spot(1, REQUESTED), spot(1, STARTING), spot(1, READY, unhealthy_since=NOW), None):
        others = [other] if other else []
        assert dropped(decide(spec, look(*others, fallback(2)))) == []
        assert dropped(decide(spec, after(LOOPING, *others, fallback(2)))) == []


def test_as_many_serve_as_wanted_before_any_fallback_goes() -> None:
    """Of two fallbacks beside two Spot replicas that stay and one that is missing none goes, of three one."""
    spec = demo_spec(replicas=4)
    four = [spot(1), spot(2), fallback(5), fallback(6)]
    assert dropped(decide(spec, look(*four))) == []
    assert dropped(decide(spec, look(*four, fallback(7)))) == [7]
    warned = replace(spot(2), warned_at=NOW)
    assert dropped(decide(spec, look(spot(1), warned, *four[2:], fallback(7)))) == []


def test_what_this_tick_takes_or_finds_ill_spares_nobody() -> None:
    """Who serves is counted after what was decided before: a loss, a failed check, a warning."""
    spec, there = demo_spec(replicas=1), [spot(1), fallback(2)]
    assert dropped(decide(spec, look(*there))) == [2]
    for decided in (
        losing(there[0], "lost"),
        [steps.note_health(there[0], NOW)],
        told(steps.serve_on(there[0], NOW, "interruption warning", NOW)),
    ):
        assert dropped(decide(spec, look(*there), *decided)) == []
    assert dropped(decide(spec, look(*there), steps.note_health(there[0], None))) == [2]


def test_surplus_waits_until_it_is_known_who_serves() -> None:
    """What this tick finds ill goes first if enough others serve, and is no reason to give up one that does.

    It may have been busy for a moment: until the next tick it counts as serving, and doesn't go for nothing.
    """
    rows = [spot(i) for i in (1, 2, 3)]
    ill = [steps.note_health(r, NOW) for r in rows]
    spec = demo_spec(replicas=2)
    assert dropped(decide(spec, look(*rows))) == [3]
    assert dropped(decide(spec, look(*rows), *ill[:2])) == [], "one serves for sure"
    assert dropped(decide(spec, look(*rows, fallback(4)), *ill[:2])) == [], "two do, and two are wanted"
    noted = [replace(r, unhealthy_since=NOW) for r in rows[:2]]
    assert dropped(decide(spec, look(*noted, rows[2]))) == [2], "as the tick after it has it"
    assert dropped(decide(spec, look(*rows, fallback(4)), ill[0])) == [3], "two that serve are left"
    rising = replace(rows[2], state=STARTING)
    assert dropped(decide(spec, look(*rows[:2], rising), steps.mark_ready(rising, NOW))) == [3], (
        "it counts as serving"
    )
    assert dropped(decide(spec, look(*rows[:2], rising), steps.mark_ready(rising, NOW), ill[0])) == [], (
        "two do"
    )
    came = taken_in(READY)
    assert dropped(decide(spec, look(*rows[:2]), came)) == [2], "what was taken in answers its checks"
    assert dropped(decide(spec, look(*rows[:2]), taken_in(STARTING))) == [], "or doesn't yet"


def test_surplus_goes_by_what_the_load_balancer_knows_where_rows_say_the_same() -> None:
    """Of two that start the one goes that answers no check, though it is the cheaper one and the older."""
    rows = [spot(1, STARTING), spot(2, STARTING)]
    spec = demo_spec(replicas=1)
    assert dropped(decide(spec, look(*rows))) == [2]
    for known in (TargetState.HEALTHY, TargetState.UNAVAILABLE):
        seen = replace(look(*rows), health={"i-1": TargetState.INITIAL, "i-2": known})
        assert dropped(decide(spec, seen)) == [1]


def test_what_answers_stays_though_ec2_does_not_show_it() -> None:
    """A fallback answers its checks, and its row can't say so: nothing is known to serve in its place."""
    rows = [spot(1, STARTING), replace(fallback(2), state=STARTING)]
    spec = demo_spec(replicas=1)
    assert dropped(decide(spec, look(*rows))) == [2]
    for health in (TargetState.HEALTHY, TargetState.UNAVAILABLE):
        seen = replace(look(*rows, gone=[2]), health={"i-1": TargetState.INITIAL, "i-2": health})
        assert dropped(decide(spec, seen)) == []


def test_surplus_that_ec2_does_not_show_goes_before_what_it_shows() -> None:
    """Of two that start, and aren't in rotation yet, the one stays that is there for certain."""
    rows = [spot(1, STARTING), spot(2, STARTING)]
    probed = replace(demo_spec(replicas=1), readiness_probe=ReadinessProbe("/", {}))
    assert dropped(decide(probed, look(*rows, gone=[1]))) == [1]
    based = replace(probed, base_on_demand=1)
    bought = [replace(spot(i, STARTING), purchase_option=ON_DEMAND) for i in (2, 3)]
    assert dropped(decide(based, look(rows[0], *bought, gone=[2]))) == [2, 1], "the base is what is there"


def test_what_may_serve_goes_only_beyond_what_is_wanted() -> None:
    """EC2 doesn't show one that is ready, or the load balancer knows nothing of one that starts."""
    spec, ready = demo_spec(replicas=1), [spot(i, unhealthy_since=NOW) for i in (1, 2)]
    hidden = replace(look(*ready), instances={})
    assert dropped(decide(spec, hidden)) == []
    assert dropped(decide(spec, look(*ready))) == [2], "both are shown, and known not to answer"
    unseen = replace(hidden, health={f"i-{i}": TargetState.UNUSED for i in (1, 2)})
    assert dropped(decide(spec, unseen)) == [2], "the load balancer says that it doesn't"
    unknown = replace(look(*ready), health={f"i-{i}": TargetState.UNAVAILABLE for i in (1, 2)})
    assert dropped(decide(spec, unknown)) == [2], "they didn't answer before nobody knew"
    others = look(*ready, spot(3))
    assert dropped(decide(spec, replace(others, instances={"i-3": an_instance(3)}))) == [2, 1]
    ill, starting = spot(1, unhealthy_since=NOW), spot(2, STARTING)
    unknown = replace(look(ill, starting), health={"i-2": TargetState.UNAVAILABLE})
    assert dropped(decide(spec, unknown)) == []
    assert dropped(decide(spec, replace(unknown, health={"i-2": TargetState.INITIAL}))) == [2]
    standing = [fallback(3, unhealthy_since=NOW), fallback(4, unhealthy_since=NOW)]
    assert dropped(decide(spec, replace(look(spot(1, STARTING), *standing), instances={}))) == []
    known = spot(1, STARTING, phases={Phase.REGISTERED: NOW})
    assert dropped(decide(spec, replace(look(known, spot(2, STARTING)), instances={}))) == []
    probed = replace(spec, readiness_probe=ReadinessProbe("/", {}))
    assert dropped(decide(probed, replace(look(known, spot(2, STARTING)), instances={}))) == [2], (
        "it waits outside the rotation"
    )
    based = replace(probed, base_on_demand=1)
    bought = replace(spot(2, STARTING), purchase_option=ON_DEMAND)
    assert dropped(decide(based, replace(look(known, bought), instances={}))) == [], "it may answer by now"
    assert dropped(decide(based, look(known, bought))) == [1], "EC2 shows it, and nobody has registered it"


def test_surplus_that_serves_goes_only_beyond_what_is_wanted() -> None:
    """Of five rows for three wanted the two that don't answer go, and none that does."""
    ill = [spot(i, unhealthy_since=NOW) for i in (1, 2)]
    seen = look(*ill, spot(3), spot(4), spot(5))
    assert sorted(dropped(decide(demo_spec(), seen))) == [1, 2], "what doesn't answer goes first"
    assert dropped(decide(demo_spec(replicas=2), seen)) == [2, 1, 5]


@pytest.mark.parametrize("state", [InstanceState.TERMINATED, None])
def test_scaling_in_during_a_loss_replaces_nothing_and_takes_nothing(state: InstanceState | None) -> None:
    """Three wanted become two while one is lost, or warned: the healthy ones stay, none is launched."""
    rows = [spot(i) for i in (1, 2, 3)]
    instances = [an_instance(1, state or InstanceState.RUNNING), an_instance(2), an_instance(3)]
    healthy = dict.fromkeys((1, 2, 3), TargetState.HEALTHY)
    seen = seen_of(*rows, instances=instances, health=healthy, warned=() if state else (1,))
    actions = reconcile.decide(demo_spec(replicas=2), seen, NOW)
    (drain,) = (a for a in actions if a.name == "Drain")
    assert actions == [drain, without(drain)]
    assert drain.replica == rows[0]


@pytest.mark.parametrize("replicas", [1, 2])
def test_what_serves_on_needlessly_is_not_replaced(replicas: int) -> None:
    """Of two replicas one is warned and serves on: with one wanted it gets no replacement."""
    serves_on = steps.serve_on(spot(1), NOW, "interruption warning", NOW)
    outcome = places(demo_spec(replicas=replicas), look(serves_on.replica, spot(2)), serves_on)
    assert outcome == [replacing(serves_on) if replicas == 2 else without(serves_on)]


def test_scaling_in_gives_up_the_replacement_and_not_what_serves() -> None:
    """The loss was replaced before: what is on its way goes, and the two healthy ones stay."""
    going = spot(1, DRAINING, warned_at=NOW, replaced_by=4)
    on_its_way = spot(4, STARTING, replaces=1)
    assert dropped(decide(demo_spec(replicas=2), look(going, spot(2), spot(3), on_its_way))) == [4]
    serving_on = spot(1, READY, warned_at=NOW, replaced_by=4)
    assert dropped(decide(demo_spec(replicas=2), look(serving_on, spot(2), spot(3), on_its_way))) == [4]


def test_nobody_stands_in_for_what_is_given_up() -> None:
    """One more waits for Spot than is wanted: on-demand stands in for the two that stay."""
    spec = demo_spec(replicas=3)
    decided = decide(spec, look(spot(1, STARTING), refused(2), refused(3), refused(4)))
    assert dropped(decided) == [4]
    assert fallbacks_requested(decided) == 2


def test_an_instance_that_is_taken_in_spares_a_launch() -> None:
    """What had been lost sight of counts as soon as it has a row again; as a loss's replacement, too."""
    came = taken_in(READY)
    assert decide(demo_spec(replicas=2), look(spot(1)), came) == []
    (request,) = decide(demo_spec(replicas=3), look(spot(1)), came)
    assert request == steps.request(NOW, 1, "fewer replicas than wanted", SPOT, 1)
    for useless in (taken_in(DRAINING), taken_in(READY, is_fallback=True)):
        assert decide(demo_spec(replicas=2), look(spot(1)), useless)[0].name == "Request"
    lost = steps.drain(spot(1), NOW, "gone")
    assert places(demo_spec(replicas=1), look(lost.replica), lost, came) == [without(lost)]
    assert places(demo_spec(replicas=2), look(lost.replica), lost, came) == [replacing(lost)]


@dataclass(frozen=True)
class _Fleet:
    """Replicas in any state that a service may come to."""

    spec: ServiceSpec
    replicas: tuple[Replica, ...]


@st.composite
def fleets(draw: st.DrawFn) -> _Fleet:
    """Any number of regular replicas and fallbacks, wanted or not."""
    states = st.sampled_from([REQUESTED, *RISING, READY, DRAINING])
    replicas = []
    for id_ in range(1, draw(st.integers(0, 8)) + 1):
        build = draw(st.sampled_from([spot, on_demand, fallback]))
        state = draw(states)
        facts: dict[str, Any] = {
            "attempts": draw(st.integers(0, 2)),
            "replaces": draw(st.sampled_from([None, 50])),
        }
        if state is REQUESTED:
            facts["retry_at"] = draw(st.sampled_from([None, NOW, NOW + seconds(9)]))
        if state is READY and draw(st.booleans()):
            facts["since_s"] = 5
        replicas.append(build(id_, state, **facts))
    wanted = draw(st.integers(0, 6))
    spec = replace(
        demo_spec(replicas=wanted),
        base_on_demand=draw(st.integers(0, wanted)),
        use_spot=draw(st.sampled_from([True, True, False])),
        on_demand_fallback=draw(st.sampled_from([True, True, False])),
    )
    return _Fleet(spec, tuple(replicas))


@given(fleets())
def test_never_more_fallbacks_than_spot_that_is_not_ready(fleet: _Fleet) -> None:
    """Whatever there is: none is requested beyond one for each Spot replica that doesn't serve."""
    actions = decide(fleet.spec, look(*fleet.replicas))
    standing = [r for r in fleet.replicas if r.is_fallback and r.state.is_active]
    waiting = [
        r
        for r in fleet.replicas
        if not r.is_fallback and r.purchase_option is SPOT and r.state in (REQUESTED, *RISING)
        if r.id not in dropped(actions)
    ]
    requested = fallbacks_requested(actions)
    if requested:
        assert fleet.spec.use_spot
        assert fleet.spec.on_demand_fallback
        assert len(standing) + requested <= len(waiting)
        assert not {r.id for r in standing} & set(dropped(actions)), "none goes while another is wanted"


@given(fleets())
def test_regular_replicas_are_as_many_as_wanted(fleet: _Fleet) -> None:
    """Fallbacks neither fill the number of the others nor make one of them go."""
    actions = decide(fleet.spec, look(*fleet.replicas))
    regular = {r.id for r in fleet.replicas if r.state.is_active and not r.is_fallback}
    requested = sum(len(a.creates) for a in actions if a.name == "Request" and not a.creates[0].is_fallback)
    gone = regular & set(dropped(actions))
    assert len(regular) - len(gone) + requested == fleet.spec.replicas
    assert not gone or not requested


@given(fleets())
def test_a_decision_names_each_replica_once(fleet: _Fleet) -> None:
    """What goes isn't launched, and nothing is launched twice, two ways in one launch, or before its time.

    But all that EC2 refused is tried again when a fallback's turn has come.
    """
    actions = decide(fleet.spec, look(*fleet.replicas))
    launches = [a for a in actions if a.name == "Launch"]
    named = [r.id for a in launches for r in a.launches] + dropped(actions)
    assert len(set(named)) == len(named)
    refused = [
        r for r in fleet.replicas if r.state is REQUESTED and r.attempts and r.id not in dropped(actions)
    ]
    is_turn = any(r.is_fallback and not is_early(r) for r in refused)
    for launch in launches:
        assert {r.purchase_option for r in launch.launches} == {launch.launches[0].purchase_option}
        early = {r.id for r in launch.launches if is_early(r)}
        if early:
            assert is_turn
            assert early <= {r.id for r in refused}
            # On-demand needs no last resort: its pools that cool are tried anyway.
            assert launch.is_last_resort or launch.launches[0].purchase_option is ON_DEMAND


# How the regular ones are bought.


@pytest.mark.parametrize(
    ("change", "spot_wanted", "on_demand_wanted"),
    [
        ({}, 5, 0),
        ({"base_on_demand": 2}, 3, 2),
        ({"base_on_demand": 9}, 0, 5),
        ({"use_spot": False}, 0, 5),
        ({"use_spot": False, "base_on_demand": 1}, 0, 5),
    ],
)
def test_what_is_bought_how(change: dict[str, Any], spot_wanted: int, on_demand_wanted: int) -> None:
    """The base is bought on-demand, the rest on Spot; without Spot everything on-demand."""
    actions = decide(replace(demo_spec(replicas=5), **change), look())
    requested = {a.creates[0].purchase_option: len(a.creates) for a in actions if a.name == "Request"}
    assert (requested.get(SPOT, 0), requested.get(ON_DEMAND, 0)) == (spot_wanted, on_demand_wanted)


def test_only_what_is_missing_of_the_base_is_bought_on_demand() -> None:
    """What is there counts, a fallback doesn't: it is no part of the base."""
    spec = replace(demo_spec(replicas=5), base_on_demand=2)
    seen = look(on_demand(1), spot(2), refused(3), fallback(4))
    assert [
        (a.creates[0].purchase_option, len(a.creates)) for a in decide(spec, seen) if a.name == "Request"
    ] == [
        (SPOT, 1),
        (ON_DEMAND, 1),
    ]


def test_a_fallback_leaves_the_base_to_be_bought() -> None:
    """It is bought on-demand, too, and goes when Spot comes: the base is what stays."""
    spec = replace(demo_spec(replicas=3), base_on_demand=2)
    assert strength.base_left(spec, look(on_demand(1), fallback(2))) == 1


def test_nothing_is_requested_in_vain() -> None:
    """No request is for zero replicas, whichever way all of them are bought."""
    for use_spot, option in ((True, SPOT), (False, ON_DEMAND)):
        (request,) = decide(demo_spec(replicas=2, use_spot=use_spot), look())
        assert request == steps.request(NOW, 2, "fewer replicas than wanted", option, 1)


def test_what_is_replaced_is_not_requested_as_well() -> None:
    """A drain that brings a replacement keeps the number, one that doesn't is made up for."""
    lost, kept = spot(1), spot(2)
    spec = demo_spec(replicas=2)
    assert decide(spec, look(lost, kept), *losing(lost, "lost")) == []
    (request,) = decide(spec, look(lost, kept), steps.drain(lost, NOW, "gone"))
    assert request == steps.request(NOW, 1, "fewer replicas than wanted", SPOT, 1)


def test_what_is_adopted_is_not_launched() -> None:
    """A replica that this very tick gives an instance to isn't launched beside that."""
    waiting = spot(1, REQUESTED)
    adopt = steps.adopt(waiting, NOW, an_instance(9))
    assert decide(demo_spec(replicas=1), look(waiting), adopt) == []


def test_scaling_down_keeps_the_base() -> None:
    """Of replicas that serve alike the newest go, but not below what is always bought on-demand."""
    spec = replace(demo_spec(replicas=3), base_on_demand=1)
    seen = look(spot(1), spot(2), spot(3), on_demand(4), on_demand(5))
    assert dropped(decide(spec, seen)) == [5, 3]


# The return to Spot.


def test_spot_that_serves_counts_for_a_whole_service_as_well() -> None:
    """Two on Spot and four fallbacks serve all six: the other four return two at a time, not all at once."""
    due = [replace(refused(i), retry_at=NOW) for i in range(3, 7)]
    standing = [fallback(50 + i) for i in range(4)]
    (launch,) = decide(demo_spec(replicas=6), look(spot(1), spot(2), *due, *standing))
    assert launch.name == "Launch"
    assert len(launch.launches) == 2


@pytest.mark.parametrize(("replicas", "at_once"), [(3, 2), (8, 2), (9, 3), (20, 5)])
def test_a_whole_service_returns_to_spot_few_at_a_time(replicas: int, at_once: int) -> None:
    """With fallbacks for everything there is no hurry: each return is paid for twice until it has stayed."""
    due = [refused(i) for i in range(1, replicas + 1)]
    due = [replace(r, retry_at=NOW) for r in due]
    standing = [fallback(50 + i) for i in range(replicas)]
    spec = demo_spec(replicas=replicas)
    (launch,) = decide(spec, look(*due, *standing))
    assert launch.name == "Launch"
    assert [r.id for r in launch.launches] == list(range(1, at_once + 1))
    rising = [spot(i, STARTING, attempts=1) for i in range(1, at_once)]
    (launch,) = decide(spec, look(*rising, *due[at_once - 1 :], *standing))
    assert launch.name == "Launch"
    assert len(launch.launches) == 1, "those on their way count"
    rising = [spot(i, STARTING, attempts=1) for i in range(1, at_once + 1)]
    assert decide(spec, look(*rising, *due[at_once:], *standing)) == []


def test_a_service_in_need_asks_for_all_that_is_due() -> None:
    """As long as fewer serve than wanted, every Spot replica is launched whose time has come."""
    due = [replace(refused(i), retry_at=NOW) for i in range(1, 10)]
    standing = [fallback(50 + i) for i in range(8)]
    rising = fallback(58, STARTING)
    launch, *rest = decide(demo_spec(replicas=9), look(*due, *standing, rising))
    assert launch.name == "Launch"
    assert (len(launch.launches), rest) == (9, [])


def test_spot_goes_anywhere_if_on_demand_is_refused_too() -> None:
    """Only then a launch on Spot may go where it would rather not: into pools that cool."""
    due = replace(refused(1), retry_at=NOW)
    for standing, is_last_resort in (
        (fallback(2, REQUESTED, attempts=1, retry_at=NOW + seconds(9)), True),
        (fallback(2, REQUESTED, launch_id="L"), False),
        (fallback(2, STARTING, attempts=1), False),
    ):
        launches = [a for a in decide(demo_spec(replicas=1), look(due, standing)) if a.name == "Launch"]
        assert [
            (a.launches[0].id, a.is_last_resort) for a in launches if a.launches[0].purchase_option is SPOT
        ] == [(1, is_last_resort)]


@given(fleets(), st.data())
def test_what_serves_is_never_given_up_below_what_is_wanted(fleet: _Fleet, data: st.DataObject) -> None:
    """Whatever there is, ill and warned ones among them: as many as wanted stay, or all that did."""
    rows = [
        replace(
            row,
            unhealthy_since=data.draw(st.sampled_from([None, None, NOW])),
            warned_at=data.draw(st.sampled_from([None, None, NOW])),
        )
        for row in fleet.replicas
    ]
    ill = [steps.note_health(r, NOW) for r in rows if r.serves and data.draw(st.integers(0, 5)) == 0]
    gone = {*dropped(decide(fleet.spec, look(*rows), *ill)), *(a.replica.id for a in ill)}
    before = [r.id for r in rows if r.stays and r.id not in {a.replica.id for a in ill}]
    left = [r.id for r in rows if r.stays and r.id not in gone]
    assert len(left) >= min(len(before), fleet.spec.replicas)


def test_a_fallback_s_turn_launches_nothing_that_the_brake_holds() -> None:
    """When on-demand is tried again, what EC2 refused is, too; what was never asked for waits its minute."""
    held = spot(1, REQUESTED, retry_at=NOW + seconds(30))
    turn = fallback(3, REQUESTED, attempts=1, retry_at=NOW)
    launches = [a for a in decide(demo_spec(replicas=2), look(held, refused(2), turn)) if a.name == "Launch"]
    assert [[r.id for r in launch.launches] for launch in launches] == [[2], [3]]

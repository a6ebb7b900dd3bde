"""As many replicas as wanted, how they are bought, and who stands in for what Spot doesn't give."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotrelay.model import (
    Backoff,
    InstanceState,
    LaunchIntent,
    OnRebalance,
    PurchaseOption,
    Replica,
    ReplicaState,
    ServiceSpec,
    TargetState,
    seconds,
)
from spotrelay.policy import interruption, reconcile, strength, timing
from spotrelay.policy.actions import (
    Action,
    Adopt,
    Drain,
    End,
    Fail,
    Launch,
    NoteHealth,
    Request,
    ServeOn,
    TakeIn,
)
from spotrelay.policy.observation import Observation
from spotrelay.signals import InterruptionWarning
from tests.examples import demo_spec, on_demand_pool
from tests.unit.cases import LONG_AGO, NOW, RECENTLY, a_replica, an_instance, rows_of, seen_of

SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND
REQUESTED, PROVISIONING, STARTING, READY, DRAINING = (
    ReplicaState.REQUESTED,
    ReplicaState.PROVISIONING,
    ReplicaState.STARTING,
    ReplicaState.READY,
    ReplicaState.DRAINING,
)
RISING = [PROVISIONING, STARTING]
SOON = NOW + seconds(timing.TICK_IN_TRANSITION_S)


def look(
    *replicas: Replica, gone: Collection[int] = (), intents: Collection[LaunchIntent] = ()
) -> Observation:
    """What a tick sees: every instance runs but those of the replicas that are gone."""
    instances = [an_instance(r.id) for r in replicas if r.instance_id and r.id not in gone]
    return seen_of(*replicas, instances=instances, intents=intents)


def decide(spec: ServiceSpec, seen: Observation, *decided: Action) -> list[Action]:
    """What follows from it at `NOW`, after what was decided before."""
    return list(strength.decide(spec, seen, decided, NOW))


def refused(id_: int, attempts: int = 1, **facts: Any) -> Replica:
    """A Spot replica that EC2 had no room for, and that waits for its next try."""
    return a_replica(id_, REQUESTED, attempts=attempts, retry_at=NOW + seconds(30), **facts)


def spot(id_: int, state: ReplicaState = READY, **facts: Any) -> Replica:
    """A Spot replica that has been where it is for long."""
    return a_replica(id_, state, **facts)


def fresh(id_: int, **facts: Any) -> Replica:
    """A Spot replica that took its time to start and has just become ready."""
    return a_replica(id_, READY, since_s=1, **facts)


def on_demand(id_: int, state: ReplicaState = READY, **facts: Any) -> Replica:
    """A replica that is bought on-demand."""
    offering = on_demand_pool("us-east-1a", "g5.xlarge") if state is not REQUESTED else None
    return a_replica(id_, state, **{"offering": offering, "purchase_option": ON_DEMAND, **facts})


def stand_in(id_: int, state: ReplicaState = READY, **facts: Any) -> Replica:
    """One that was bought on-demand for want of Spot."""
    return on_demand(id_, state, is_stand_in=True, **facts)


def is_early(replica: Replica) -> bool:
    """Its next try is still to come."""
    return replica.retry_at is not None and replica.retry_at > NOW


def stand_ins_requested(actions: Collection[Action]) -> int:
    """How many stand-ins are asked for; each of them must be bought on-demand."""
    requests = [a for a in actions if isinstance(a, Request) and a.is_stand_in]
    assert {r.purchase_option for r in requests} <= {ON_DEMAND}
    return sum(r.count for r in requests)


def dropped(actions: Collection[Action]) -> list[int]:
    """The replicas given up without another one for them, in order."""
    drains = [a for a in actions if isinstance(a, Drain | End)]
    assert not any(a.replace for a in drains if isinstance(a, Drain))
    return [a.replica.id for a in drains]


# Stand-ins: when.


@pytest.mark.parametrize("there", [0, 1, 2])
def test_each_refused_spot_replica_gets_one_stand_in(there: int) -> None:
    """Two replicas refused, however often: two stand-ins in all, whatever state those have come to."""
    standing = [stand_in(7, READY), stand_in(8, REQUESTED, launch_id="L")][:there]
    actions = decide(demo_spec(), look(spot(1), refused(2), refused(3, attempts=9), *standing))
    assert stand_ins_requested(actions) == 2 - there
    assert dropped(actions) == []


@pytest.mark.parametrize("state", RISING)
def test_a_stand_in_stays_while_spot_that_was_refused_starts(state: ReplicaState) -> None:
    """An instance at last is no replica yet: until it is ready the stand-in serves."""
    rising = spot(2, state, attempts=3)
    assert decide(demo_spec(replicas=2), look(spot(1), rising, stand_in(3))) == []


@pytest.mark.parametrize("state", RISING)
def test_a_stand_in_stays_while_spot_is_asked_for_again(state: ReplicaState) -> None:
    """What starts is warned, too: its stand-in goes on, at once and until it is known what comes next."""
    rising = spot(2, state, replaces=1)
    going = Drain(rising, "interruption warning", replace=True)
    observed = look(spot(5), rising, stand_in(3))
    assert decide(demo_spec(replicas=2), observed, going) == []
    again = spot(4, REQUESTED, replaces=2, launch_id="L")
    intent = LaunchIntent("L", "demo", (4,), NOW)
    rows = (spot(5), spot(2, DRAINING, warned_at=NOW, replaced_by=4), again, stand_in(3))
    assert decide(demo_spec(replicas=2), look(*rows, intents=[intent])) == []


@pytest.mark.parametrize("state", [REQUESTED, *RISING])
def test_a_first_start_needs_no_stand_ins(state: ReplicaState) -> None:
    """Nobody waits for a service that has never served: no instance is bought twice for it."""
    rising = [spot(i, state, launch_id="L") for i in (1, 2, 3)]
    intent = LaunchIntent("L", "demo", (1, 2, 3), NOW)
    actions = decide(demo_spec(), look(*rising, intents=[intent] if state is REQUESTED else []))
    assert actions == []


@pytest.mark.parametrize("state", RISING)
def test_what_starts_in_place_of_a_loss_gets_a_stand_in(state: ReplicaState) -> None:
    """Once the one before is gone, nothing serves for it: its row may be history, or only its instance."""
    after = spot(4, state, replaces=1)
    others = spot(2), spot(3)
    assert stand_ins_requested(decide(demo_spec(), look(*others, after))) == 1
    before = spot(1, DRAINING, replaced_by=4)
    assert stand_ins_requested(decide(demo_spec(), look(before, *others, after, gone=[1]))) == 1


def test_nothing_stands_in_for_what_still_serves() -> None:
    """A replacement that comes up beside the replica that it will relieve needs no third one."""
    before = spot(1, READY, replaced_by=4, rebalance_at=LONG_AGO)
    after = spot(4, STARTING, replaces=1)
    assert decide(demo_spec(), look(before, spot(2), spot(3), after)) == []


def test_on_demand_has_no_stand_ins() -> None:
    """What is bought on-demand anyway has nobody to stand in for it when it is refused, or starts."""
    spec = replace(demo_spec(), base_on_demand=2)
    waiting = on_demand(2, REQUESTED, attempts=3, retry_at=NOW + seconds(30))
    starting = on_demand(3, STARTING, attempts=1, replaces=1)
    assert decide(spec, look(spot(4), waiting, starting)) == []


def test_a_service_without_fallback_gets_none() -> None:
    """It would rather wait: none is requested, and those of before it said so go once they aren't needed."""
    spec = replace(demo_spec(), on_demand_fallback=False)
    assert stand_ins_requested(decide(spec, look(spot(1), refused(2), refused(3)))) == 0
    assert dropped(
        decide(spec, look(spot(1), refused(2), refused(3), stand_in(4), stand_in(5, STARTING)))
    ) == [5]
    assert dropped(decide(spec, look(spot(1), spot(2), refused(3), stand_in(4), stand_in(5)))) == [5]
    assert dropped(decide(spec, look(spot(1), spot(2), spot(3), stand_in(4), stand_in(5)))) == [5, 4]


def test_a_service_that_gives_up_spot_moves_without_a_gap() -> None:
    """What waits for Spot is bought on-demand; its stand-in serves until that does, and no other comes."""
    spec = demo_spec(replicas=2, use_spot=False)
    waiting = replace(refused(2), retry_at=NOW)
    bought = replace(waiting, purchase_option=ON_DEMAND)
    assert decide(spec, look(spot(1), waiting, stand_in(4))) == [Launch((bought,))]
    assert decide(spec, look(spot(1), waiting)) == [Launch((bought,))]
    assert decide(spec, look(spot(1), on_demand(2, STARTING), stand_in(4))) == []
    assert dropped(decide(spec, look(spot(1), on_demand(2), stand_in(4)))) == [4]


# Stand-ins: after failures.


HELD = Backoff(1, NOW + seconds(1), version=1)
LOOPING = Backoff(timing.CRASH_LOOP_FAILURES, LONG_AGO, version=1)


def after(backoff: Backoff, *replicas: Replica, **facts: Any) -> Observation:
    """What a tick sees of replicas after failures."""
    seen = look(*replicas, **facts)
    return replace(seen, rows=replace(seen.rows, backoff=backoff))


@pytest.mark.parametrize("backoff", [HELD, LOOPING], ids=["held", "looping"])
@pytest.mark.parametrize("waiting", [(), (refused(1),), (a_replica(1, REQUESTED),)])
def test_what_fails_on_spot_gets_a_stand_in(backoff: Backoff, waiting: tuple[Replica, ...]) -> None:
    """Held or given up, with or without a row that waits: what fails on Spot may well serve on-demand."""
    seen = after(backoff, *waiting)
    assert decide(demo_spec(replicas=1), seen) == [
        Request(1, "Spot isn't ready", ON_DEMAND, is_stand_in=True)
    ]
    assert decide(replace(demo_spec(replicas=1), on_demand_fallback=False), seen) == []


def test_after_failures_each_one_that_is_missing_gets_a_stand_in() -> None:
    """Also what starts: nothing says that it will ever be ready. But none for what belongs to the base."""
    assert stand_ins_requested(decide(demo_spec(), after(LOOPING, spot(1)))) == 2
    assert stand_ins_requested(decide(demo_spec(), after(LOOPING, spot(1), spot(2, STARTING)))) == 2
    assert stand_ins_requested(decide(demo_spec(), after(LOOPING, spot(1), stand_in(5, STARTING)))) == 1
    based = replace(demo_spec(), base_on_demand=1)
    assert stand_ins_requested(decide(based, after(LOOPING, spot(1)))) == 1
    assert stand_ins_requested(decide(based, after(LOOPING, on_demand(1)))) == 2
    other = replace(LOOPING, version=7)
    assert stand_ins_requested(decide(demo_spec(), after(other, spot(1)))) == 0, "another version's failures"


@pytest.mark.parametrize("backoff", [HELD, LOOPING], ids=["held", "looping"])
def test_the_brake_holds_no_stand_in(backoff: Backoff) -> None:
    """One that waits is launched, and one that serves goes on: only Spot is held."""
    due = stand_in(2, REQUESTED)
    assert decide(demo_spec(replicas=1), after(backoff, a_replica(1, REQUESTED), due)) == [Launch((due,))]
    assert decide(demo_spec(replicas=2), after(backoff, spot(1), stand_in(2))) == []


def test_a_stand_in_that_fails_holds_the_next_for_its_own_back_off() -> None:
    """The one that fails now, and until its back-off is over; never for good, and not a new version's."""
    spec = demo_spec(replicas=1)
    failing = Fail(stand_in(2, STARTING), "late")
    assert decide(spec, look(refused(1), failing.replica), failing) == []
    held = replace(LOOPING, fallback_until=NOW + seconds(1))
    assert decide(spec, after(held, refused(1))) == []
    assert decide(spec, after(held, refused(1), stand_in(2, REQUESTED))) == []
    assert stand_ins_requested(decide(spec, after(replace(held, fallback_until=NOW), refused(1)))) == 1
    newer = replace(spec, version=2)
    assert stand_ins_requested(decide(newer, after(held, refused(1)))) == 1


def test_a_spot_replica_that_fails_holds_no_stand_in() -> None:
    """The tick that gives it up requests its stand-in's successor, if that is missing, all the same."""
    failing = Fail(spot(1, STARTING), "late")
    seen = look(failing.replica, refused(2))
    actions = decide(demo_spec(replicas=2), seen, failing)
    assert stand_ins_requested(actions) == 1
    assert not [a for a in actions if isinstance(a, Request | Launch) and a.purchase_option is SPOT]


# What serves is never given up while the rest are fewer than wanted.


def test_a_stand_in_serves_on_while_no_spot_does() -> None:
    """Whatever came of the replicas that it stands in for: failed, just requested, unhealthy, or gone."""
    spec = demo_spec(replicas=1)
    for other in (spot(1, REQUESTED), spot(1, STARTING), spot(1, READY, unhealthy_since=NOW), None):
        others = [other] if other else []
        assert dropped(decide(spec, look(*others, stand_in(2)))) == []
        assert dropped(decide(spec, after(LOOPING, *others, stand_in(2)))) == []


def test_as_many_serve_as_wanted_before_any_stand_in_goes() -> None:
    """Of two stand-ins beside two Spot replicas that stay and one that is missing none goes, of three one."""
    spec = demo_spec(replicas=4)
    four = [spot(1), spot(2), stand_in(5), stand_in(6)]
    assert dropped(decide(spec, look(*four))) == []
    assert dropped(decide(spec, look(*four, stand_in(7)))) == [7]
    warned = replace(spot(2), warned_at=NOW)
    assert dropped(decide(spec, look(spot(1), warned, *four[2:], stand_in(7)))) == []


def test_what_this_tick_takes_or_finds_ill_spares_nobody() -> None:
    """Who serves is counted after what was decided before: a loss, a failed check, a warning."""
    spec, there = demo_spec(replicas=1), [spot(1), stand_in(2)]
    assert dropped(decide(spec, look(*there))) == [2]
    for decided in (
        Drain(there[0], "lost"),
        NoteHealth(there[0], NOW),
        ServeOn(there[0], "interruption warning", NOW),
    ):
        assert dropped(decide(spec, look(*there), decided)) == []
    assert dropped(decide(spec, look(*there), NoteHealth(there[0], None))) == [2]


def test_surplus_waits_until_it_is_known_who_serves() -> None:
    """Rows that have just turned out wrong about others are no reason to give up one that serves."""
    rows = [spot(i) for i in (1, 2, 3)]
    ill = [NoteHealth(r, NOW) for r in rows]
    spec = demo_spec(replicas=2)
    assert dropped(decide(spec, look(*rows))) == [3]
    assert dropped(decide(spec, look(*rows), *ill[:2])) == []
    assert dropped(decide(spec, look(*rows, stand_in(4)), ill[0])) == [3], "one of the two, not both"
    came = TakeIn(an_instance(9), READY, "serves, and nothing on record knew it")
    assert dropped(decide(spec, look(*rows[:2]), came)) == []


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
    assert [(a.replica.id, a.replace) for a in actions if isinstance(a, Drain)] == [(1, False)]
    assert not [a for a in actions if isinstance(a, Request | Launch)]


def test_scaling_in_gives_up_the_replacement_and_not_what_serves() -> None:
    """The loss was replaced before: what is on its way goes, and the two healthy ones stay."""
    going = spot(1, DRAINING, warned_at=NOW, replaced_by=4)
    on_its_way = spot(4, STARTING, replaces=1)
    assert dropped(decide(demo_spec(replicas=2), look(going, spot(2), spot(3), on_its_way))) == [4]
    serving_on = spot(1, READY, warned_at=NOW, replaced_by=4)
    assert dropped(decide(demo_spec(replicas=2), look(serving_on, spot(2), spot(3), on_its_way))) == [4]


def test_an_instance_that_is_taken_in_spares_a_launch() -> None:
    """What had been lost sight of counts as soon as it has a row again; as a loss's replacement, too."""
    came = TakeIn(an_instance(9), READY, "serves, and nothing on record knew it")
    assert decide(demo_spec(replicas=2), look(spot(1)), came) == []
    (request,) = decide(demo_spec(replicas=3), look(spot(1)), came)
    assert request == Request(1, "fewer replicas than wanted", SPOT)
    for useless in (replace(came, state=DRAINING), replace(came, is_stand_in=True)):
        assert isinstance(decide(demo_spec(replicas=2), look(spot(1)), useless)[0], Request)
    lost = Drain(spot(1), "gone")
    needless = strength.without_needless(demo_spec(replicas=1), look(lost.replica), [lost, came])
    assert needless == [interruption.without_replacement(lost), came]


def test_what_is_one_too_many_has_nobody_stand_in() -> None:
    """Scaled down while Spot is missing: what goes isn't missed, neither now nor with the stand-ins there."""
    rising = [spot(i, STARTING, replaces=50 + i) for i in (1, 2, 3)]
    actions = decide(demo_spec(replicas=1), look(*rising))
    assert (stand_ins_requested(actions), dropped(actions)) == (1, [3, 2])
    actions = decide(demo_spec(replicas=0), look(*rising, stand_in(4)))
    assert (stand_ins_requested(actions), dropped(actions)) == (0, [3, 2, 1, 4])


# Stand-ins: until when.


def test_a_stand_in_that_does_not_serve_goes_at_once() -> None:
    """Spot was faster: what is still on its way is given up, the farthest from serving first."""
    standing = stand_in(4, STARTING), stand_in(5, REQUESTED), stand_in(6, PROVISIONING)
    actions = decide(demo_spec(), look(fresh(1), fresh(2), fresh(3), *standing))
    assert dropped(actions) == [5, 6, 4]
    assert [type(a) for a in actions] == [End, Drain, Drain]


def test_a_stand_in_that_is_being_launched_is_waited_for() -> None:
    """Its instance may be there already: it goes once the launch is on record."""
    launching = stand_in(4, REQUESTED, launch_id="L")
    intent = LaunchIntent("L", "demo", (4,), NOW)
    seen = look(spot(1), spot(2), spot(3), launching)
    assert decide(demo_spec(), replace(seen, rows=replace(seen.rows, intents={"L": intent}))) == []


def test_a_stand_in_that_serves_goes_once_spot_has_stayed() -> None:
    """One Spot replica that is new keeps one stand-in; when it has stayed, that one goes, too."""
    standing = stand_in(4), stand_in(5)
    young = look(spot(1), spot(2), fresh(3), *standing)
    assert dropped(decide(demo_spec(), young)) == [5], "the newest first"
    stayed = a_replica(3, READY, since_s=timing.STAY_MAX_S)
    assert dropped(decide(demo_spec(), look(spot(1), spot(2), stayed, *standing))) == [5, 4]


def test_spot_that_was_quick_to_start_has_stayed_sooner() -> None:
    """What giving up a stand-in too early would cost is a cold start: nobody waits longer than that."""
    entered = {PROVISIONING: NOW - seconds(30), STARTING: NOW - seconds(25), READY: NOW - seconds(16)}
    quick = a_replica(1, READY, entered=entered)
    assert dropped(decide(demo_spec(replicas=1), look(quick, stand_in(2)))) == [2]
    assert dropped(decide(demo_spec(replicas=1), look(fresh(1), stand_in(2)))) == []


def test_as_many_stand_ins_stay_as_spot_is_missing() -> None:
    """A stand-in too many goes; one that is needed doesn't, however long Spot has been there beside it."""
    assert dropped(decide(demo_spec(), look(spot(1), spot(2), refused(3), stand_in(4), stand_in(5)))) == [5]


def test_an_unhealthy_stand_in_is_given_up_first() -> None:
    """Of two that are ready the one that answers stays with the Spot replica that is new."""
    ill = stand_in(4, unhealthy_since=NOW)
    assert dropped(decide(demo_spec(), look(spot(1), spot(2), fresh(3), ill, stand_in(5)))) == [4]


def test_a_stand_in_is_never_replaced() -> None:
    """Warned or lost: it only goes, by the tick as by a signal, and none of its kind follows it."""
    standing = stand_in(2)
    warning = InterruptionWarning("i-2", NOW, "terminate")
    by_signal = interruption.decide(
        [(warning, standing)], rows_of(spot(1), standing), demo_spec(replicas=1), NOW
    )
    gone = an_instance(2, InstanceState.TERMINATED)
    lost = seen_of(spot(1), standing, instances=[an_instance(1), gone], health={1: TargetState.HEALTHY})
    for actions in (by_signal, reconcile.decide(demo_spec(replicas=1), lost, NOW)):
        (drain,) = actions
        assert isinstance(drain, Drain)
        assert not drain.replace


def test_a_lost_stand_in_makes_room_for_another() -> None:
    """Not as its replacement, but because Spot is still missing: the same tick asks for one."""
    lost = stand_in(2)
    seen = seen_of(refused(1), lost, instances=[an_instance(2, InstanceState.TERMINATED)])
    assert reconcile.decide(demo_spec(replicas=1), seen, NOW) == [
        Drain(lost, "instance terminated", replace=False),
        Request(1, "Spot isn't ready", ON_DEMAND, is_stand_in=True),
    ]


def test_nobody_recommends_to_leave_a_stand_in() -> None:
    """A recommendation supersedes no stand-in: it goes anyway."""
    spec = replace(demo_spec(replicas=1), on_rebalance=OnRebalance.REPLACE, surge=9)
    standing = stand_in(2, rebalance_at=LONG_AGO)
    seen = look(spot(1, STARTING, attempts=1, entered=RECENTLY), standing)
    healthy = {"i-1": TargetState.INITIAL, "i-2": TargetState.HEALTHY}
    assert reconcile.decide(spec, replace(seen, health=healthy), NOW) == []


@dataclass(frozen=True)
class _Fleet:
    """Replicas in any state that a service may come to."""

    spec: ServiceSpec
    replicas: tuple[Replica, ...]


@st.composite
def fleets(draw: st.DrawFn) -> _Fleet:
    """Any number of regular replicas and stand-ins, wanted or not."""
    states = st.sampled_from([REQUESTED, *RISING, READY, DRAINING])
    replicas = []
    for id_ in range(1, draw(st.integers(0, 8)) + 1):
        build = draw(st.sampled_from([spot, on_demand, stand_in]))
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
def test_never_more_stand_ins_than_spot_that_is_not_ready(fleet: _Fleet) -> None:
    """Whatever there is: none is requested beyond one for each Spot replica that doesn't serve."""
    actions = decide(fleet.spec, look(*fleet.replicas))
    standing = [r for r in fleet.replicas if r.is_stand_in and r.state.is_active]
    waiting = [
        r
        for r in fleet.replicas
        if not r.is_stand_in and r.purchase_option is SPOT and r.state in (REQUESTED, *RISING)
        if r.id not in dropped(actions)
    ]
    requested = stand_ins_requested(actions)
    if requested:
        assert fleet.spec.use_spot
        assert fleet.spec.on_demand_fallback
        assert len(standing) + requested <= len(waiting)
        assert not {r.id for r in standing} & set(dropped(actions)), "none goes while another is wanted"


@given(fleets())
def test_regular_replicas_are_as_many_as_wanted(fleet: _Fleet) -> None:
    """Stand-ins neither fill the number of the others nor make one of them go."""
    actions = decide(fleet.spec, look(*fleet.replicas))
    regular = {r.id for r in fleet.replicas if r.state.is_active and not r.is_stand_in}
    requested = sum(a.count for a in actions if isinstance(a, Request) and not a.is_stand_in)
    gone = regular & set(dropped(actions))
    assert len(regular) - len(gone) + requested == fleet.spec.replicas
    assert not gone or not requested


@given(fleets())
def test_a_decision_names_each_replica_once(fleet: _Fleet) -> None:
    """What goes isn't launched, and nothing is launched twice, two ways in one launch, or before its time.

    But all that EC2 refused is tried again when a stand-in's turn has come.
    """
    actions = decide(fleet.spec, look(*fleet.replicas))
    launches = [a for a in actions if isinstance(a, Launch)]
    named = [r.id for a in launches for r in a.replicas] + dropped(actions)
    assert len(set(named)) == len(named)
    refused = [
        r for r in fleet.replicas if r.state is REQUESTED and r.attempts and r.id not in dropped(actions)
    ]
    is_turn = any(r.is_stand_in and not is_early(r) for r in refused)
    for launch in launches:
        assert {r.purchase_option for r in launch.replicas} == {launch.purchase_option}
        early = {r.id for r in launch.replicas if is_early(r)}
        if early:
            assert is_turn
            assert early <= {r.id for r in refused}
            # On-demand needs no last resort: its pools that cool are tried anyway.
            assert launch.is_last_resort or launch.purchase_option is ON_DEMAND


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
    requested = {a.purchase_option: a.count for a in actions if isinstance(a, Request)}
    assert (requested.get(SPOT, 0), requested.get(ON_DEMAND, 0)) == (spot_wanted, on_demand_wanted)


def test_only_what_is_missing_of_the_base_is_bought_on_demand() -> None:
    """What is there counts, a stand-in doesn't: it is no part of the base."""
    spec = replace(demo_spec(replicas=5), base_on_demand=2)
    seen = look(on_demand(1), spot(2), refused(3), stand_in(4))
    assert [(a.purchase_option, a.count) for a in decide(spec, seen) if isinstance(a, Request)] == [
        (SPOT, 1),
        (ON_DEMAND, 1),
    ]


def test_what_is_replaced_is_not_requested_as_well() -> None:
    """A drain that brings a replacement keeps the number, one that doesn't is made up for."""
    lost, kept = spot(1), spot(2)
    spec = demo_spec(replicas=2)
    assert decide(spec, look(lost, kept), Drain(lost, "lost")) == []
    (request,) = decide(spec, look(lost, kept), Drain(lost, "gone", replace=False))
    assert request == Request(1, "fewer replicas than wanted", SPOT)


def test_what_is_adopted_is_not_launched() -> None:
    """A replica that this very tick gives an instance to isn't launched beside that."""
    waiting = spot(1, REQUESTED)
    adopt = Adopt(waiting, an_instance(9))
    assert decide(demo_spec(replicas=1), look(waiting), adopt) == []


# The return to Spot.


@pytest.mark.parametrize(("replicas", "at_once"), [(3, 2), (8, 2), (9, 3), (20, 5)])
def test_a_whole_service_returns_to_spot_few_at_a_time(replicas: int, at_once: int) -> None:
    """With stand-ins for everything there is no hurry: each return is paid for twice until it has stayed."""
    due = [refused(i) for i in range(1, replicas + 1)]
    due = [replace(r, retry_at=NOW) for r in due]
    standing = [stand_in(50 + i) for i in range(replicas)]
    spec = demo_spec(replicas=replicas)
    (launch,) = decide(spec, look(*due, *standing))
    assert isinstance(launch, Launch)
    assert [r.id for r in launch.replicas] == list(range(1, at_once + 1))
    rising = [spot(i, STARTING, attempts=1) for i in range(1, at_once)]
    (launch,) = decide(spec, look(*rising, *due[at_once - 1 :], *standing))
    assert isinstance(launch, Launch)
    assert len(launch.replicas) == 1, "those on their way count"
    rising = [spot(i, STARTING, attempts=1) for i in range(1, at_once + 1)]
    assert decide(spec, look(*rising, *due[at_once:], *standing)) == []


def test_a_service_in_need_asks_for_all_that_is_due() -> None:
    """As long as fewer serve than wanted, every Spot replica is launched whose time has come."""
    due = [replace(refused(i), retry_at=NOW) for i in range(1, 10)]
    standing = [stand_in(50 + i) for i in range(8)]
    rising = stand_in(58, STARTING)
    launch, *rest = decide(demo_spec(replicas=9), look(*due, *standing, rising))
    assert isinstance(launch, Launch)
    assert (len(launch.replicas), rest) == (9, [])


def test_spot_goes_anywhere_if_on_demand_is_refused_too() -> None:
    """Only then a launch on Spot may go where it would rather not: into pools that cool."""
    due = replace(refused(1), retry_at=NOW)
    for standing, is_last_resort in (
        (stand_in(2, REQUESTED, attempts=1, retry_at=NOW + seconds(9)), True),
        (stand_in(2, REQUESTED, launch_id="L"), False),
        (stand_in(2, STARTING, attempts=1), False),
    ):
        launches = [a for a in decide(demo_spec(replicas=1), look(due, standing)) if isinstance(a, Launch)]
        assert [(a.replicas[0].id, a.is_last_resort) for a in launches if a.purchase_option is SPOT] == [
            (1, is_last_resort)
        ]


# When to look again.


def test_at_rest_the_minute_s_tick_will_do() -> None:
    """Every replica serves and nobody stands in: there is nothing to wait for."""
    assert strength.next_look(demo_spec(replicas=2), look(spot(1), fresh(2)), NOW) is None
    assert strength.next_look(None, look(), NOW) is None


def test_what_waits_for_capacity_is_looked_at_when_its_time_comes() -> None:
    """Refused replicas, and stand-ins for them, don't keep the ticks going: the first retry does."""
    first, second = refused(2), replace(refused(3), retry_at=NOW + seconds(20))
    standing = stand_in(4), stand_in(5)
    seen = look(spot(1), first, second, *standing)
    assert strength.next_look(demo_spec(), seen, NOW) == NOW + seconds(20)


def test_a_stand_in_is_looked_at_when_spot_has_stayed() -> None:
    """Not every few seconds, and not a minute late."""
    young = fresh(1)
    stayed_at = NOW - seconds(1) + seconds(timing.STAY_MAX_S)
    assert strength.next_look(demo_spec(replicas=1), look(young, stand_in(2)), NOW) == stayed_at
    assert strength.next_look(demo_spec(replicas=1), look(young), NOW) is None


def test_no_two_looks_are_closer_than_ticks_in_transition() -> None:
    """A retry that is due in a moment waits for the next tick that there would be anyway."""
    due_soon = a_replica(1, REQUESTED, attempts=1, retry_at=NOW + seconds(0.5))
    assert strength.next_look(demo_spec(replicas=1), look(due_soon), NOW) == SOON


@pytest.mark.parametrize(
    "moving",
    [
        spot(2, PROVISIONING),
        spot(2, STARTING),
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


def test_an_open_launch_and_a_wrong_number_are_looked_at_in_seconds() -> None:
    """An intent is closed or healed by a tick, and what is missing is requested by one."""
    seen = look(spot(1), intents=[LaunchIntent("L", "demo", (1,), NOW)])
    assert strength.next_look(demo_spec(replicas=1), seen, NOW) == SOON
    assert strength.next_look(demo_spec(replicas=2), look(spot(1), stand_in(2)), NOW) == SOON


def test_a_crash_loop_is_at_rest() -> None:
    """Nothing is looked at every few seconds that only a deployment can change."""
    spec = demo_spec(replicas=2)
    looping = Backoff(timing.CRASH_LOOP_FAILURES, LONG_AGO, version=1)
    rows = rows_of(spot(1), backoff=looping)
    assert strength.next_look(spec, Observation(rows), NOW) is None
    assert strength.next_look(spec, Observation(replace(rows, backoff=Backoff())), NOW) == SOON
    starting = replace(rows, replicas={1: spot(1, STARTING)})
    assert strength.next_look(spec, Observation(starting), NOW) == SOON


def test_scaling_down_keeps_the_base() -> None:
    """Of replicas that serve alike the newest go, but not below what is always bought on-demand."""
    spec = replace(demo_spec(replicas=3), base_on_demand=1)
    seen = look(spot(1), spot(2), spot(3), on_demand(4), on_demand(5))
    assert dropped(decide(spec, seen)) == [5, 3]

"""Who stands in for what Spot doesn't give: when, after failures, and until when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import InstanceState, TargetState
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Backoff, LaunchIntent
from spotrelay.plane.core.spec import OnRebalance
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.events import InterruptionWarning
from spotrelay.plane.serving import interruption, reconcile, steps
from tests.examples import demo_spec
from tests.unit.cases import LONG_AGO, NOW, RECENTLY, a_replica, an_instance, losing, rows_of, seen_of
from tests.unit.strengths import (
    DRAINING,
    HELD,
    LOOPING,
    ON_DEMAND,
    PROVISIONING,
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
    fresh,
    look,
    on_demand,
    refused,
    spot,
)

# Fallbacks: when.


@pytest.mark.parametrize("there", [0, 1, 2])
def test_each_refused_spot_replica_gets_one_fallback(there: int) -> None:
    """Two replicas refused, however often: two fallbacks in all, whatever state those have come to."""
    standing = [fallback(7, READY), fallback(8, REQUESTED, launch_id="L")][:there]
    actions = decide(demo_spec(), look(spot(1), refused(2), refused(3, attempts=9), *standing))
    assert fallbacks_requested(actions) == 2 - there
    assert dropped(actions) == []


@pytest.mark.parametrize("state", RISING)
def test_a_fallback_stays_while_spot_that_was_refused_starts(state: ReplicaState) -> None:
    """An instance at last is no replica yet: until it is ready the fallback serves."""
    rising = spot(2, state, attempts=3)
    assert decide(demo_spec(replicas=2), look(spot(1), rising, fallback(3))) == []


@pytest.mark.parametrize("state", RISING)
def test_a_fallback_stays_while_spot_is_asked_for_again(state: ReplicaState) -> None:
    """What starts is warned, too: its fallback goes on, at once and until it is known what comes next."""
    rising = spot(2, state, replaces=1)
    going = losing(rising, "interruption warning")
    observed = look(spot(5), rising, fallback(3))
    assert decide(demo_spec(replicas=2), observed, *going) == []
    again = spot(4, REQUESTED, replaces=2, launch_id="L")
    intent = LaunchIntent("L", "demo", (4,), NOW)
    rows = (spot(5), spot(2, DRAINING, warned_at=NOW, replaced_by=4), again, fallback(3))
    assert decide(demo_spec(replicas=2), look(*rows, intents=[intent])) == []


def test_a_fallback_that_starts_is_kept_while_spot_is_asked_for_again() -> None:
    """It is as useful as one that serves already, as long as nobody else serves for what is asked for."""
    rising, standing = spot(2, STARTING, replaces=1), fallback(3, STARTING)
    going = losing(rising, "interruption warning")
    assert decide(demo_spec(replicas=2), look(spot(5), rising, standing), *going) == []
    again = spot(4, REQUESTED, replaces=2, launch_id="L")
    intent = LaunchIntent("L", "demo", (4,), NOW)
    before = spot(2, DRAINING, warned_at=NOW, replaced_by=4)
    served = replace(before, entered={**before.entered, READY: LONG_AGO})
    for predecessor, gone in ((before, []), (served, [2])):
        seen = look(spot(5), predecessor, again, standing, gone=gone, intents=[intent])
        assert decide(demo_spec(replicas=2), seen) == []
    covered = look(spot(5), served, again, standing, intents=[intent])
    assert dropped(decide(demo_spec(replicas=2), covered)) == [3], "its predecessor still finishes requests"


def test_no_fallback_that_starts_is_kept_for_what_is_bought_on_demand() -> None:
    """Nobody stands in for that. Only after Spot was given up what is there serves until it is bought."""
    rising, standing = spot(2, STARTING, replaces=1), fallback(3, STARTING)
    going = losing(rising, "interruption warning")
    spec = demo_spec(replicas=2, use_spot=False)
    assert decide(spec, look(spot(5), rising, standing), *going) == []
    bought = on_demand(2, STARTING, replaces=1)
    going = losing(bought, "interruption warning")
    assert dropped(decide(demo_spec(replicas=2), look(spot(5), bought, standing), *going)) == [3]


def test_a_refused_replacement_keeps_one_fallback() -> None:
    """It counts as refused, and not once more as one of which nothing is known yet."""
    standing = fallback(5, STARTING), fallback(6, STARTING)
    assert dropped(decide(demo_spec(replicas=1), look(refused(4, replaces=1), *standing))) == [6]


@pytest.mark.parametrize("state", [REQUESTED, *RISING])
def test_a_first_start_needs_no_fallbacks(state: ReplicaState) -> None:
    """Nobody waits for a service that has never served: no instance is bought twice for it."""
    rising = [spot(i, state, launch_id="L") for i in (1, 2, 3)]
    intent = LaunchIntent("L", "demo", (1, 2, 3), NOW)
    actions = decide(demo_spec(), look(*rising, intents=[intent] if state is REQUESTED else []))
    assert actions == []


@pytest.mark.parametrize("state", RISING)
def test_what_starts_in_place_of_a_loss_gets_a_fallback(state: ReplicaState) -> None:
    """Once the one before is gone, nothing serves for it: its row may be history, or only its instance."""
    after = spot(4, state, replaces=1)
    others = spot(2), spot(3)
    assert fallbacks_requested(decide(demo_spec(), look(*others, after))) == 1
    before = spot(1, DRAINING, replaced_by=4)
    assert fallbacks_requested(decide(demo_spec(), look(before, *others, after, gone=[1]))) == 1


def test_nothing_stands_in_for_what_still_serves() -> None:
    """A replacement that comes up beside the replica that it will relieve needs no third one."""
    before = spot(1, READY, replaced_by=4, rebalance_at=LONG_AGO)
    after = spot(4, STARTING, replaces=1)
    assert decide(demo_spec(), look(before, spot(2), spot(3), after)) == []


def test_a_refused_replacement_of_what_still_serves_needs_no_fallback() -> None:
    """Another replica's first start leaves one missing, but the one that is to be relieved serves on."""
    before = spot(1, READY, replaced_by=3, rebalance_at=LONG_AGO)
    seen = look(before, spot(2, STARTING), refused(3, replaces=1))
    assert decide(demo_spec(replicas=2), seen) == []


def test_on_demand_has_no_fallbacks() -> None:
    """What is bought on-demand anyway has nobody to stand in for it when it is refused, or starts."""
    spec = replace(demo_spec(), base_on_demand=2)
    waiting = on_demand(2, REQUESTED, attempts=3, retry_at=NOW + seconds(30))
    starting = on_demand(3, STARTING, attempts=1, replaces=1)
    assert decide(spec, look(spot(4), waiting, starting)) == []


def test_a_service_without_fallback_gets_none() -> None:
    """It would rather wait: none is requested, and those of before it said so go once they aren't needed."""
    spec = replace(demo_spec(), on_demand_fallback=False)
    assert fallbacks_requested(decide(spec, look(spot(1), refused(2), refused(3)))) == 0
    assert dropped(
        decide(spec, look(spot(1), refused(2), refused(3), fallback(4), fallback(5, STARTING)))
    ) == [5]
    assert dropped(decide(spec, look(spot(1), spot(2), refused(3), fallback(4), fallback(5)))) == [5]
    assert dropped(decide(spec, look(spot(1), spot(2), spot(3), fallback(4), fallback(5)))) == [5, 4]


def test_a_service_that_gives_up_spot_moves_without_a_gap() -> None:
    """What waits for Spot is bought on-demand; its fallback serves until that does, and no other comes."""
    spec = demo_spec(replicas=2, use_spot=False)
    waiting = replace(refused(2), retry_at=NOW)
    bought = replace(waiting, purchase_option=ON_DEMAND)
    assert decide(spec, look(spot(1), waiting, fallback(4))) == [steps.launch(bought)]
    assert decide(spec, look(spot(1), waiting)) == [steps.launch(bought)]
    assert decide(spec, look(spot(1), on_demand(2, STARTING), fallback(4))) == []
    assert dropped(decide(spec, look(spot(1), on_demand(2), fallback(4)))) == [4]


# Fallbacks: after failures.


@pytest.mark.parametrize("backoff", [HELD, LOOPING], ids=["held", "looping"])
@pytest.mark.parametrize("waiting", [(), (refused(1),), (a_replica(1, REQUESTED),)])
def test_what_fails_on_spot_gets_a_fallback(backoff: Backoff, waiting: tuple[Replica, ...]) -> None:
    """Held or given up, with or without a row that waits: what fails on Spot may well serve on-demand."""
    seen = after(backoff, *waiting)
    assert decide(demo_spec(replicas=1), seen) == [
        steps.request(NOW, 1, "Spot isn't ready", ON_DEMAND, 1, is_fallback=True)
    ]
    assert decide(replace(demo_spec(replicas=1), on_demand_fallback=False), seen) == []


def test_after_failures_each_one_that_is_missing_gets_a_fallback() -> None:
    """Also what starts: nothing says that it will ever be ready. But none for what belongs to the base."""
    assert fallbacks_requested(decide(demo_spec(), after(LOOPING, spot(1)))) == 2
    assert fallbacks_requested(decide(demo_spec(), after(LOOPING, spot(1), spot(2, STARTING)))) == 2
    assert fallbacks_requested(decide(demo_spec(), after(LOOPING, spot(1), fallback(5, STARTING)))) == 1
    based = replace(demo_spec(), base_on_demand=1)
    assert fallbacks_requested(decide(based, after(LOOPING, spot(1)))) == 1
    assert fallbacks_requested(decide(based, after(LOOPING, on_demand(1)))) == 2
    other = replace(LOOPING, version=7)
    assert fallbacks_requested(decide(demo_spec(), after(other, spot(1)))) == 0, "another version's failures"


@pytest.mark.parametrize("backoff", [HELD, LOOPING], ids=["held", "looping"])
def test_the_brake_holds_no_fallback(backoff: Backoff) -> None:
    """One that waits is launched, and one that serves goes on: only Spot is held."""
    due = fallback(2, REQUESTED)
    assert decide(demo_spec(replicas=1), after(backoff, a_replica(1, REQUESTED), due)) == [steps.launch(due)]
    assert decide(demo_spec(replicas=2), after(backoff, spot(1), fallback(2))) == []


def test_a_fallback_that_fails_holds_the_next_for_its_own_back_off() -> None:
    """The one that fails now, and until its back-off is over; never for good, and not a new version's."""
    spec = demo_spec(replicas=1)
    failing = steps.fail(fallback(2, STARTING), NOW, "late")
    assert decide(spec, look(refused(1), failing.replica), failing) == []
    held = replace(LOOPING, fallback_until=NOW + seconds(1))
    assert decide(spec, after(held, refused(1))) == []
    assert decide(spec, after(held, refused(1), fallback(2, REQUESTED))) == []
    assert fallbacks_requested(decide(spec, after(replace(held, fallback_until=NOW), refused(1)))) == 1
    newer = replace(spec, version=2)
    assert fallbacks_requested(decide(newer, after(held, refused(1)))) == 1


def test_a_spot_replica_that_fails_holds_no_fallback() -> None:
    """The tick that gives it up requests a fallback for it, and for what was refused before."""
    failing = steps.fail(spot(1, STARTING), NOW, "late")
    seen = look(failing.replica, refused(2))
    actions = decide(demo_spec(replicas=2), seen, failing)
    assert fallbacks_requested(actions) == 2
    assert not [
        a
        for a in actions
        if a.name in ("Request", "Launch") and (*a.creates, *a.launches)[0].purchase_option is SPOT
    ]


def test_what_is_one_too_many_has_nobody_fallback() -> None:
    """Scaled down while Spot is missing: what goes isn't missed, neither now nor with the fallbacks there."""
    rising = [spot(i, STARTING, replaces=50 + i) for i in (1, 2, 3)]
    actions = decide(demo_spec(replicas=1), look(*rising))
    assert (fallbacks_requested(actions), dropped(actions)) == (1, [3, 2])
    actions = decide(demo_spec(replicas=0), look(*rising, fallback(4)))
    assert (fallbacks_requested(actions), dropped(actions)) == (0, [3, 2, 1, 4])


# Fallbacks: until when.


def test_a_fallback_that_does_not_serve_goes_at_once() -> None:
    """Spot was faster: what is still on its way is given up, the farthest from serving first."""
    standing = fallback(4, STARTING), fallback(5, REQUESTED), fallback(6, PROVISIONING)
    actions = decide(demo_spec(), look(fresh(1), fresh(2), fresh(3), *standing))
    assert dropped(actions) == [5, 6, 4]
    assert [a.name for a in actions] == ["End", "Drain", "Drain"]


def test_a_fallback_that_is_being_launched_is_waited_for() -> None:
    """Its instance may be there already: it goes once the launch is on record."""
    launching = fallback(4, REQUESTED, launch_id="L")
    intent = LaunchIntent("L", "demo", (4,), NOW)
    seen = look(spot(1), spot(2), spot(3), launching)
    assert decide(demo_spec(), replace(seen, rows=replace(seen.rows, intents={"L": intent}))) == []


def test_a_fallback_that_serves_goes_once_spot_has_stayed() -> None:
    """One Spot replica that is new keeps one fallback; when it has stayed, that one goes, too."""
    standing = fallback(4), fallback(5)
    young = look(spot(1), spot(2), fresh(3), *standing)
    assert dropped(decide(demo_spec(), young)) == [5], "the newest first"
    stayed = a_replica(3, READY, since_s=timing.STAY_MAX_S)
    assert dropped(decide(demo_spec(), look(spot(1), spot(2), stayed, *standing))) == [5, 4]


def test_spot_that_was_quick_to_start_has_stayed_sooner() -> None:
    """What giving up a fallback too early would cost is a cold start: nobody waits longer than that."""
    entered = {PROVISIONING: NOW - seconds(30), STARTING: NOW - seconds(25), READY: NOW - seconds(16)}
    quick = a_replica(1, READY, entered=entered)
    assert dropped(decide(demo_spec(replicas=1), look(quick, fallback(2)))) == [2]
    assert dropped(decide(demo_spec(replicas=1), look(fresh(1), fallback(2)))) == []


def test_as_many_fallbacks_stay_as_spot_is_missing() -> None:
    """A fallback too many goes; one that is needed doesn't, however long Spot has been there beside it."""
    assert dropped(decide(demo_spec(), look(spot(1), spot(2), refused(3), fallback(4), fallback(5)))) == [5]


def test_an_unhealthy_fallback_is_given_up_first() -> None:
    """Of two that are ready the one that answers stays with the Spot replica that is new."""
    ill = fallback(4, unhealthy_since=NOW)
    assert dropped(decide(demo_spec(), look(spot(1), spot(2), fresh(3), ill, fallback(5)))) == [4]


def test_those_that_go_make_room_for_one_that_answers() -> None:
    """Three don't answer and one is needed: two go, and another is asked for beside the one that stays."""
    ill = [fallback(i, unhealthy_since=LONG_AGO) for i in (4, 5, 6)]
    decided = decide(demo_spec(replicas=1), look(refused(1), *ill))
    assert len(dropped(decided)) == 2
    assert fallbacks_requested(decided) == 1


def test_a_fallback_is_never_replaced() -> None:
    """Warned or lost: it only goes, by the tick as by a signal, and none of its kind follows it."""
    standing = fallback(2)
    warning = InterruptionWarning("i-2", NOW, "terminate")
    by_signal = interruption.decide(
        [(warning, standing)], rows_of(spot(1), standing), demo_spec(replicas=1), NOW
    )
    gone = an_instance(2, InstanceState.TERMINATED)
    lost = seen_of(spot(1), standing, instances=[an_instance(1), gone], health={1: TargetState.HEALTHY})
    for actions in (by_signal, reconcile.decide(demo_spec(replicas=1), lost, NOW)):
        (drain,) = actions
        assert drain.name == "Drain"


def test_a_lost_fallback_makes_room_for_another() -> None:
    """Not as its replacement, but because Spot is still missing: the same tick asks for one."""
    lost = fallback(2)
    seen = seen_of(refused(1), lost, instances=[an_instance(2, InstanceState.TERMINATED)])
    assert reconcile.decide(demo_spec(replicas=1), seen, NOW) == [
        steps.drain(lost, NOW, "instance terminated", is_gone=True),
        steps.request(NOW, 1, "Spot isn't ready", ON_DEMAND, 1, is_fallback=True),
    ]


def test_nobody_recommends_to_leave_a_fallback() -> None:
    """A recommendation supersedes no fallback: it goes anyway."""
    spec = replace(demo_spec(replicas=1), on_rebalance=OnRebalance.REPLACE, surge=9)
    standing = fallback(2, rebalance_at=LONG_AGO)
    seen = look(spot(1, STARTING, attempts=1, entered=RECENTLY), standing)
    healthy = {"i-1": TargetState.INITIAL, "i-2": TargetState.HEALTHY}
    assert reconcile.decide(spec, replace(seen, health=healthy), NOW) == []

"""From an intent to instances: what is asked, what is learned from the answer, and what is told about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import Instance, InstanceState, Refusal, RefusalKind
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.pools import (
    OPTIONS,
    CapacityPool,
    Cause,
    Cooldown,
    Offering,
    PoolMemory,
    PurchaseOption,
    Scope,
    Survey,
)
from spotrelay.plane.core.ports import Conflict, Denied, LaunchRequest, LaunchResult, Throttled, Unavailable
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Changes, LaunchIntent
from spotrelay.plane.core.spec import LaunchTemplate, ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.memory import EPOCH, World
from spotrelay.plane.placement import launching
from tests.examples import demo_spec, spot_pool
from tests.unit.worlds import world_of

SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND
A5, B5, A6, B6 = demo_spec().pools
DRY = "InsufficientInstanceCapacity"


def ordered(
    world: World, count: int = 1, *, option: PurchaseOption = SPOT, is_last_resort: bool = False, **facts: Any
) -> Changes:
    """A commit that asks for replicas to be launched, as the store has it."""
    highest, now = world.store.load("demo").highest_id, world.clock.now()
    ids = range(highest + 1, highest + 1 + count)
    intent = LaunchIntent(f"launch-{ids[0]}", "demo", tuple(ids), now)
    rows = tuple(
        replace(
            Replica.requested("demo", id_, 1, now, reason="test", purchase_option=option),
            launch_id=intent.id,
            **facts,
        )
        for id_ in ids
    )
    order = Changes(
        "demo", (highest, ids[-1]), create=rows, open_intent=intent, is_last_resort=is_last_resort
    )
    world.store.commit(order)
    return order


def launch(world: World, order: Changes, spec: ServiceSpec | None = None) -> int:
    """Carry the order out, with what is remembered."""
    memory = world.store.recall("demo", "us-east-1", world.clock.now())
    rows = world.store.load("demo").replicas.values()
    return launching.launch(world.ports(), spec or demo_spec(), order, memory, rows)


def cool(world: World, *pools: CapacityPool, option: PurchaseOption = SPOT, for_s: float = 60) -> None:
    """Have these pools left alone for a while."""
    now = world.clock.now()
    scopes = [Scope.of(Offering(pool, option)) for pool in pools]
    world.store.cool([Cooldown(s, Cause.LOSS, now, now + seconds(for_s), "warning") for s in scopes])


def answers(world: World, answer: Callable[[LaunchRequest], LaunchResult]) -> None:
    """Have EC2 answer so."""
    world.fleet.launch = answer  # type: ignore[assignment,method-assign]  # what is under test is what follows from it


def rows(world: World) -> list[Replica]:
    """The replicas as stored."""
    return list(world.store.load("demo").replicas.values())


def asked(world: World) -> list[set[CapacityPool]]:
    """The pools of each request that was made."""
    return [set(request.pools) for request in world.fleet.launches]


def recorded(world: World) -> list[dict[str, Any]]:
    """The launches in the log."""
    return [dict(facts) for event, facts in world.telemetry.records if event == "launch"]


def cooling(world: World, *pools: CapacityPool) -> list[bool]:
    """Whether Spot of each pool is left alone now."""
    now = world.clock.now()
    memory = world.store.recall("demo", "us-east-1", now)
    return [memory.cooling(Offering(pool, SPOT), now) is not None for pool in pools]


# What is asked.


@pytest.mark.parametrize(
    ("option", "deployed", "template"),
    [
        (SPOT, 1, LaunchTemplate("lt-1", "1")),
        (ON_DEMAND, 1, LaunchTemplate("lt-2", "5")),
        (ON_DEMAND, 2, LaunchTemplate("lt-1", "1")),
    ],
)
def test_a_launch_is_from_its_options_template(
    option: PurchaseOption, deployed: int, template: LaunchTemplate
) -> None:
    """Of the replica's version: an older one than is deployed has no on-demand template that is known."""
    spec = replace(demo_spec(), version=deployed, on_demand_template=LaunchTemplate("lt-2", "5"))
    world = World.of(spec)
    assert launch(world, ordered(world, option=option), spec) == 1
    (request,) = world.fleet.launches
    assert request.spec.template(request.purchase_option) == template
    (instance,) = world.fleet.instances.values()
    assert instance.launch_template_id == template.id


def test_a_first_try_asks_low_zones_after_the_others() -> None:
    """Nothing serves in its place yet, so a zone with a low score is better than none."""
    world = World.of(demo_spec(), capacity={Offering(p, SPOT): 0 for p in (B5, B6)})
    scores = {"us-east-1a": timing.LOW_SCORE}
    world.store.note_survey(
        Survey("demo", demo_spec().asked, world.clock.now(), demo_spec().pools, scores=scores)
    )
    assert launch(world, ordered(world)) == 1
    assert asked(world) == [{B5, B6}, {A5, A6}]
    assert world.store.load("demo").intents == {}


def test_a_return_to_spot_leaves_low_zones_alone() -> None:
    """A replica that was refused before has its fallback: it isn't sent where it wouldn't last."""
    world = World.of(demo_spec(), capacity={Offering(p, SPOT): 0 for p in (B5, B6)})
    scores = {"us-east-1a": timing.LOW_SCORE}
    world.store.note_survey(
        Survey("demo", demo_spec().asked, world.clock.now(), demo_spec().pools, scores=scores)
    )
    assert launch(world, ordered(world, attempts=1)) == 0
    assert asked(world) == [{B5, B6}]
    without = replace(demo_spec(), on_demand_fallback=False)
    world.fleet.capacity.clear()
    assert launch(world, ordered(world, attempts=1), without) == 1
    assert asked(world)[1] == {A5, A6}, "without fallback nothing stands in, and both others cool"


def test_each_fifth_return_to_spot_asks_low_zones_too() -> None:
    """A score may stay low for days, and is advice: now and then EC2 is asked itself."""
    world = World.of(demo_spec(), capacity={Offering(p, SPOT): 0 for p in (B5, B6)})
    scores = {"us-east-1a": timing.LOW_SCORE}
    world.store.note_survey(
        Survey("demo", demo_spec().asked, world.clock.now(), demo_spec().pools, scores=scores)
    )
    assert launch(world, ordered(world, attempts=timing.LOW_SCORE_EVERY - 1)) == 0
    world.clock.advance(timing.REFUSAL_COOLDOWN_MAX_S)
    assert launch(world, ordered(world, attempts=timing.LOW_SCORE_EVERY)) == 1
    assert asked(world)[1:] == [{B5, B6}, {A5, A6}]


def test_of_several_replicas_one_at_its_fifth_try_is_enough() -> None:
    """They are asked for together, and were refused at different times: all at once might never come."""
    world = World.of(demo_spec(), capacity={Offering(p, SPOT): 0 for p in (B5, B6)})
    scores = {"us-east-1a": timing.LOW_SCORE}
    world.store.note_survey(
        Survey("demo", demo_spec().asked, world.clock.now(), demo_spec().pools, scores=scores)
    )
    order = ordered(world, 2, attempts=timing.LOW_SCORE_EVERY)
    late = replace(order.create[0], attempts=timing.LOW_SCORE_EVERY + 2)
    assert launch(world, replace(order, create=(late, order.create[1]))) == 2
    assert asked(world) == [{B5, B6}, {A5, A6}]


@pytest.mark.parametrize(
    ("fallback", "is_last_resort", "requests"),
    [(True, False, 1), (True, True, 2), (False, False, 2)],
)
def test_cooling_pools_are_asked_only_for_want_of_better(
    fallback: bool, is_last_resort: bool, requests: int
) -> None:
    """On-demand is better; where it is refused, or not wanted, a cooling pool is asked after the rest."""
    world = World.of(demo_spec(), capacity={Offering(p, SPOT): 0 for p in (B5, A6, B6)})
    cool(world, A5)
    spec = replace(demo_spec(), on_demand_fallback=fallback)
    launch(world, ordered(world, is_last_resort=is_last_resort), spec)
    assert asked(world) == [{B5, A6, B6}, {A5}][:requests]


def test_the_pools_of_the_survey_are_asked() -> None:
    """What EC2 was found to offer is what is launched in, also where the document doesn't list it."""
    world = World.of(demo_spec())
    new = CapacityPool("us-east-1", "us-east-1b", "g7e.2xlarge")
    world.store.note_survey(Survey("demo", demo_spec().asked, world.clock.now(), (A5, new)))
    launch(world, ordered(world))
    assert asked(world) == [{A5, new}]


def test_a_price_cap_goes_into_the_request() -> None:
    """Spot is asked for at the cap, and only where there is one; on-demand is asked for as it is."""
    spec = replace(demo_spec(), max_price_share=0.5)
    world = World.of(spec)
    survey = Survey("demo", demo_spec().asked, world.clock.now(), spec.pools, {"g5.xlarge": 1.0}, {A5: 0.6})
    world.store.note_survey(survey)
    launch(world, ordered(world), spec)
    launch(world, ordered(world, option=ON_DEMAND), spec)
    by_spot, on_demand = world.fleet.launches
    assert (by_spot.pools, by_spot.max_prices) == ((B5,), {"g5.xlarge": 0.5})
    assert (set(on_demand.pools), on_demand.max_prices) == (set(spec.pools), {})


# No pool worth asking.


def test_where_no_pool_is_worth_asking_nothing_is_asked() -> None:
    """The replica waits for pools to rest, but not for ever, says why, and its intent is closed."""
    world = World.of(demo_spec())
    cool(world, *demo_spec().pools, for_s=1800)
    assert launch(world, ordered(world)) == 0
    assert world.fleet.launches == []
    (row,) = rows(world)
    assert (row.state, row.attempts, row.launch_id) == (ReplicaState.REQUESTED, 1, None)
    assert row.retry_at == world.clock.now() + seconds(timing.RETRY_RESTING_S)
    assert (row.launch or "").startswith("no pool to ask; left out: us-east-1a/g5.xlarge (")
    assert world.store.load("demo").intents == {}
    assert [delay_s for _, _, delay_s in world.ticker.scheduled] == [launching.FALLBACK_DELAY_S]
    (line,) = recorded(world)
    assert set(line["left_out"]) == {str(pool) for pool in demo_spec().pools}


def test_the_next_try_is_not_later_than_the_first_rest() -> None:
    """However often a replica was refused, it is tried as soon as a pool has rested."""
    world = World.of(demo_spec())
    cool(world, *demo_spec().pools, for_s=12)
    launch(world, ordered(world, attempts=9))
    assert rows(world)[0].retry_at == world.clock.now() + seconds(12)


def test_a_replica_that_was_taken_over_meanwhile_is_left_alone() -> None:
    """Whoever wrote the row since looks after it: nothing is announced, nobody is called."""
    world = World.of(demo_spec())
    cool(world, *demo_spec().pools)
    order = ordered(world)
    world.store.commit(Changes("demo", update=order.create))
    assert launch(world, order) == 0
    assert world.ticker.scheduled == []
    assert rows(world)[0].attempts == 0


# What is learned.


def test_refusals_cool_and_instances_forgive() -> None:
    """A pool that gives again is no longer held to what it refused before; the one that refuses now is."""
    world = World.of(demo_spec(), capacity={Offering(p, SPOT): 0 for p in (A5, B5, A6, B6)})
    launch(world, ordered(world))
    assert cooling(world, A5, B5, A6, B6) == [True] * 4
    world.clock.advance(timing.REFUSAL_COOLDOWN_S)
    assert cooling(world, A5, B5, A6, B6) == [False] * 4
    world.fleet.capacity = {Offering(A5, SPOT): 0}
    assert launch(world, ordered(world)) == 1
    memory = world.store.recall("demo", "us-east-1", world.clock.now())
    strikes = {c.scope.instance_type + c.scope.zone[-1]: c.strikes for c in memory.cooldowns}
    assert strikes == {"g5.xlargea": 2, "g6.xlargea": 1, "g6.xlargeb": 1}, "B5 gave, A5 refused again"


def test_a_pool_that_gives_a_part_is_dry() -> None:
    """Refused for the rest of what was asked, it cools, though it was forgiven what it refused before."""
    world = World.of(demo_spec())
    offering = Offering(A5, SPOT)
    refusal = Refusal(RefusalKind.CAPACITY, DRY, "", offering)

    def partly(request: LaunchRequest) -> LaunchResult:
        given = Instance("i-1", InstanceState.PENDING, offering, world.clock.now(), request.launch_id)
        return LaunchResult((given,), (refusal,))

    answers(world, lambda _: LaunchResult((), (refusal,)))
    launch(world, ordered(world))
    world.clock.advance(timing.REFUSAL_COOLDOWN_S)
    answers(world, partly)
    assert launch(world, ordered(world, 2)) == 1
    assert cooling(world, A5) == [True]


def test_a_market_that_is_full_is_left_alone() -> None:
    """As many Spot instances as the account may have: nothing is asked on Spot, everything on-demand."""
    world = World.of(demo_spec())
    full = Refusal(RefusalKind.MARKET_LIMIT, "MaxSpotInstanceCountExceeded", "", Offering(A5, SPOT))
    real = world.fleet.launch
    answers(world, lambda _: LaunchResult((), (full,)))
    launch(world, ordered(world))
    answers(world, real)
    assert launch(world, ordered(world, attempts=1)) == 0
    assert launch(world, ordered(world, option=ON_DEMAND)) == 1
    assert [r.purchase_option for r in world.fleet.launches] == [ON_DEMAND]


@pytest.mark.parametrize("error", [Throttled("slow down"), Unavailable("no answer")])
def test_no_answer_teaches_nothing(error: Exception) -> None:
    """What EC2 didn't say is held against no pool, is no attempt, and calls no fallback."""
    world = world_of(demo_spec())
    world.refuse("fleet.launch", error)
    launch(world, ordered(world))
    assert rows(world)[0].attempts == 0
    assert world.ticker.scheduled == []
    assert world.store.recall("demo", "us-east-1", world.clock.now()) == PoolMemory()
    assert world.telemetry.counts[Metric.LAUNCH_ERRORS] == 1
    assert repr(error) == recorded(world)[0]["error"]


def test_what_ec2_denies_waits_and_is_stood_in_for() -> None:
    """It would deny it again: the intent is closed, the row says EC2's words, on-demand is called at once."""
    world = world_of(demo_spec())
    world.refuse("fleet.launch", Denied("You are not authorized", "UnauthorizedOperation"))
    assert launch(world, ordered(world, 2)) == 0
    assert world.store.load("demo").intents == {}
    for row in rows(world):
        assert (row.state, row.attempts) == (ReplicaState.REQUESTED, 1)
        assert row.retry_at == world.clock.now() + seconds(timing.RETRY_FIRST_S)
        assert row.launch == "EC2 refuses the request: You are not authorized"
    assert world.ticker.scheduled == [("demo", None, launching.FALLBACK_DELAY_S)]
    assert world.store.recall("demo", "us-east-1", world.clock.now()) == PoolMemory(), "no pool's fault"
    counts = world.telemetry.counts
    assert (counts[Metric.LAUNCH_ERRORS], counts[Metric.CALLS_DENIED]) == (1, 1)
    assert recorded(world)[0]["error"] == repr(Denied("You are not authorized"))
    assert launch(world, ordered(world)) == 1, "and tried again"


LASTING = (
    Refusal(RefusalKind.QUOTA, "VcpuLimitExceeded", "limit of 0", Offering(A5, SPOT), "ask for more"),
    Refusal(RefusalKind.PERMISSION, "UnauthorizedOperation", "not allowed", Offering(A5, SPOT), "allow it"),
    Refusal(RefusalKind.REQUEST, "InvalidSnapshot.NotFound", "no snap-1", Offering(A5, SPOT), "correct it"),
    Refusal(RefusalKind.ADDRESSES, "InsufficientFreeAddressesInSubnet", "0 left", Offering(A5, SPOT), "free"),
)


@pytest.mark.parametrize("refusal", LASTING)
def test_what_no_retry_mends_is_told_with_ec2s_words(refusal: Refusal) -> None:
    """Once for each request, however many pools say so: log, with the remedy, metric, and row have it."""
    world = World.of(demo_spec())
    elsewhere = replace(refusal, offering=Offering(B5, SPOT))
    dry = Refusal(RefusalKind.CAPACITY, DRY, "none", Offering(A6, SPOT))
    answers(world, lambda _: LaunchResult((), (refusal, elsewhere, dry)))
    launch(world, ordered(world))
    (told,) = (facts for event, facts in world.telemetry.records if event == "launch_blocked")
    assert (told["service"], told["code"], told["error"]) == ("demo", refusal.code, refusal.message)
    assert (told["remedy"], told["purchase_option"]) == (refusal.remedy, "spot")
    assert world.telemetry.counts[Metric.LAUNCHES_BLOCKED] == 1
    assert {r.blocked_at for r in world.store.load("demo").replicas.values()} == {world.clock.now()}
    assert f"{refusal.code}: {refusal.message}" in (rows(world)[0].launch or "")
    assert rows(world)[0].retry_at is not None, "and it is tried again"


@pytest.mark.parametrize(
    ("leaving", "told"),
    [
        (Offering(B6, SPOT), 0),
        (Offering(B6, ON_DEMAND), 1),
        (Offering(spot_pool("us-east-1a", "inf2.xlarge").pool, SPOT), 1),
        (None, 1),
    ],
)
def test_a_quota_that_the_warned_still_fill_calls_nobody(leaving: Offering | None, told: int) -> None:
    """What EC2 takes back counts for two minutes more: then there is room, and nothing is to be mended."""
    world = World.of(demo_spec())
    refusal = Refusal(RefusalKind.QUOTA, "MaxSpotInstanceCountExceeded", "max", Offering(A5, SPOT), "ask")
    answers(world, lambda _: LaunchResult((), (refusal,)))
    order = ordered(world)
    now = world.clock.now()
    warned = replace(
        Replica.requested("demo", 9, 1, now, reason="test", purchase_option=SPOT),
        offering=leaving,
        warned_at=now,
    )
    memory = world.store.recall("demo", "us-east-1", now)
    launching.launch(world.ports(), demo_spec(), order, memory, [warned, *order.create])
    assert world.telemetry.counts[Metric.LAUNCHES_BLOCKED] == told


def test_a_lack_of_capacity_calls_nobody() -> None:
    """Time mends it."""
    world = World.of(demo_spec(), capacity={Offering(p, SPOT): 0 for p in (A5, B5, A6, B6)})
    launch(world, ordered(world))
    assert world.telemetry.counts[Metric.LAUNCHES_BLOCKED] == 0
    assert {r.blocked_at for r in world.store.load("demo").replicas.values()} == {None}


def test_a_request_that_is_denied_as_a_whole_is_told_too() -> None:
    """CreateFleet itself is refused: the same line, with the same facts."""
    world = world_of(demo_spec())
    world.refuse("fleet.launch", Denied("not authorized", "UnauthorizedOperation", "allow it"))
    launch(world, ordered(world))
    (told,) = (facts for event, facts in world.telemetry.records if event == "launch_blocked")
    assert (told["code"], told["error"]) == ("UnauthorizedOperation", "not authorized")
    assert told["remedy"] == "allow it"
    assert world.telemetry.counts[Metric.LAUNCHES_BLOCKED] == 1


def test_what_is_denied_again_and_again_backs_off() -> None:
    """Each time it waits longer, and calls no fallback any more: that is there."""
    world = world_of(demo_spec())
    world.refuse("fleet.launch", Denied("You are not authorized"), times=None)
    launch(world, ordered(world, attempts=3))
    (row,) = rows(world)
    assert row.retry_at == world.clock.now() + seconds(8 * timing.RETRY_FIRST_S)
    assert world.ticker.scheduled == []


@pytest.mark.parametrize(
    ("kinds", "is_denied"),
    [
        ([RefusalKind.REQUEST], True),
        ([RefusalKind.REQUEST, RefusalKind.PERMISSION], True),
        ([RefusalKind.REQUEST, RefusalKind.CAPACITY], False),
        *(([kind], False) for kind in RefusalKind if not kind.is_of_request),
        ([], False),
    ],
)
def test_a_row_notes_whether_another_version_may_help(kinds: Sequence[RefusalKind], is_denied: bool) -> None:
    """Where one pool had only no room, what was asked is right."""
    world = world_of()
    refusals = tuple(Refusal(kind, "X", "refused", Offering(A5, SPOT)) for kind in kinds)
    answers(world, lambda _: LaunchResult(refusals=refusals))
    launch(world, ordered(world, is_denied=True))
    assert [row.is_denied for row in rows(world)] == [is_denied]


def test_the_pools_that_were_asked_before_count_too() -> None:
    """The rested ones had no room. That those that cool refuse the request may be for their zone."""
    world = world_of()
    cool(world, B5, B6)

    def answer(request: LaunchRequest) -> LaunchResult:
        kind = RefusalKind.CAPACITY if A5 in request.pools else RefusalKind.REQUEST
        refused = (Refusal(kind, "X", "refused", Offering(pool, SPOT)) for pool in request.pools)
        return LaunchResult(refusals=tuple(refused))

    answers(world, answer)
    launch(world, ordered(world, is_last_resort=True))
    assert [row.is_denied for row in rows(world)] == [False]


def test_what_is_denied_as_a_whole_another_version_may_mend() -> None:
    """And once it has an instance that is no longer of interest."""
    world = world_of()
    world.refuse("fleet.launch", Denied("The image does not exist", "InvalidAMIID.NotFound"))
    launch(world, ordered(world))
    (row,) = rows(world)
    assert row.is_denied
    order = Changes(
        "demo",
        update=(replace(row, launch_id="again"),),
        open_intent=LaunchIntent("again", "demo", (1,), EPOCH),
    )
    world.store.commit(order)
    launch(world, order)
    (row,) = rows(world)
    assert (row.state, row.is_denied) == (ReplicaState.PROVISIONING, False)


def test_a_denied_step_is_the_last_one() -> None:
    """What is denied in the rested pools is in the others, too: those that cool aren't asked."""
    world = world_of(demo_spec())
    cool(world, A5)
    world.refuse("fleet.launch", Denied("You are not authorized"))
    assert launch(world, ordered(world, is_last_resort=True)) == 0
    assert world.calls.count("fleet.launch") == 1


def test_each_step_has_its_own_intent_on_record() -> None:
    """While the next step is asked, the rows wait for its intent, which is as young as the step."""
    world = world_of(demo_spec())
    world.fleet.capacity = {Offering(p, SPOT): 0 for p in (B5, A6, B6)}
    cool(world, A5)
    order = ordered(world, 2, is_last_resort=True)
    found = []

    def look(request: LaunchRequest) -> None:
        loaded = world.store.load("demo")
        (intent,) = loaded.intents.values()
        assert intent.id == request.launch_id
        assert {r.launch_id for r in loaded.replicas.values()} == {intent.id}
        found.append((world.clock.now() - intent.created_at).total_seconds())
        world.clock.advance(7)

    world.meddle("fleet.launch", look, times=None)
    assert launch(world, order) == 2
    assert found == [0, 0]


def test_what_is_on_record_counts_whatever_follows() -> None:
    """The table doesn't answer about a later step: the instances of the first are launched all the same."""
    world = world_of(demo_spec())
    world.fleet.capacity = {Offering(A5, SPOT): 1} | {Offering(p, SPOT): 0 for p in (B5, A6)}
    cool(world, B6)
    order = ordered(world, 2, is_last_resort=True)
    second = iter([False, True])

    def lose_the_second(_: Changes) -> None:
        if next(second, False):
            raise Unavailable("no answer")

    world.meddle("store.commit", lose_the_second, times=None)
    with pytest.raises(Unavailable):
        launch(world, order)
    assert world.telemetry.counts[Metric.REPLICAS_LAUNCHED] == 1


def test_instances_bear_the_highest_id() -> None:
    """The request says how many IDs were given, for when the table gets lost; each step's does."""
    world = world_of(demo_spec())
    world.fleet.capacity = {Offering(p, SPOT): 0 for p in (B5, A6, B6)}
    cool(world, A5)
    order = ordered(world, is_last_resort=True)
    assert order.open_intent is not None
    launch(world, replace(order, open_intent=replace(order.open_intent, highest_id=7)))
    assert [request.highest_id for request in world.fleet.launches] == [7, 7]
    assert {i.highest_id for i in world.fleet.instances.values()} == {7}


@pytest.mark.parametrize(
    ("option", "attempts", "fallback", "calls"),
    [(SPOT, 0, True, 1), (SPOT, 1, True, 0), (ON_DEMAND, 0, True, 0), (SPOT, 0, False, 0)],
)
def test_fallbacks_are_called_for_new_refusals_of_spot(
    option: PurchaseOption, attempts: int, fallback: bool, calls: int
) -> None:
    """Once for each launch that is refused for the first time, if the service wants fallbacks."""
    dry = {Offering(p, o): 0 for p in demo_spec().pools for o in OPTIONS.values()}
    world = World.of(demo_spec(), capacity=dry)
    spec = replace(demo_spec(), on_demand_fallback=fallback)
    launch(world, ordered(world, 3, option=option, attempts=attempts), spec)
    assert len(world.ticker.scheduled) == calls


def test_what_a_race_has_taken_over_teaches_nothing() -> None:
    """If the record of an answer is refused, the tick looks after what is there: nobody is called."""
    world = world_of(demo_spec())
    world.fleet.capacity = {Offering(p, SPOT): 0 for p in demo_spec().pools}
    order = ordered(world)
    world.refuse("store.commit", Conflict("overtaken"))
    assert launch(world, order) == 0
    assert world.ticker.scheduled == []


def test_nothing_is_written_where_nothing_was_learned() -> None:
    """A launch that every pool was ready for costs the table no more than its record."""
    world = world_of(demo_spec())
    order = ordered(world)
    world.calls.clear()
    assert launch(world, order) == 1
    assert {"store.cool", "store.forgive"}.isdisjoint(world.calls)


@pytest.mark.parametrize("broken", ["store.cool", "ticker.schedule"])
def test_lessons_that_get_lost_stop_no_launch(broken: str) -> None:
    """If the table or the queue fails after a refusal, the next step is taken all the same."""
    world = world_of(demo_spec())
    world.fleet.capacity = {Offering(p, SPOT): 0 for p in (B5, A6, B6)}
    cool(world, A5)
    world.refuse(broken, Throttled("too many requests"), times=None)
    assert launch(world, ordered(world, is_last_resort=True)) == 1
    assert world.store.load("demo").intents == {}
    world.fleet.capacity[Offering(A5, SPOT)] = 0
    assert launch(world, ordered(world)) == 0
    assert "lessons_lost" in [event for event, _ in world.telemetry.records]


# What is told.


def words(replicas: Sequence[Replica]) -> list[str]:
    """What their rows say about their launches."""
    return [r.launch or "" for r in replicas]


def test_a_replica_s_row_explains_its_launch() -> None:
    """How it was bought, where it was asked for and why, what was left out, and what EC2 answered."""
    world = World.of(
        demo_spec(), capacity={Offering(B5, SPOT): 1, Offering(A6, SPOT): 0, Offering(B6, SPOT): 0}
    )
    cool(world, A5)
    assert launch(world, ordered(world, 2)) == 1
    left_out = "left out: us-east-1a/g5.xlarge (us-east-1a/g5.xlarge/spot cools until 00:01:00 (warning)); "
    assert words(rows(world)) == [
        f"spot in 3 of 4 pools (rested); {left_out}EC2: us-east-1b/g5.xlarge/spot; refused elsewhere: {DRY}",
        f"spot in 3 of 4 pools (rested); {left_out}EC2: {DRY}",
    ]


def test_the_last_step_s_words_stay() -> None:
    """Of several requests for one replica its row keeps the one that brought the instance."""
    world = World.of(demo_spec(), capacity={Offering(p, SPOT): 0 for p in (B5, A6, B6)})
    cool(world, A5)
    launch(world, ordered(world, is_last_resort=True))
    assert words(rows(world)) == [
        "spot in 1 of 4 pools (cooling: nothing better is left); EC2: us-east-1a/g5.xlarge/spot"
    ]


def test_a_launch_s_log_line_has_everything() -> None:
    """Which replicas, which pools of how many, why these, which not and why, and EC2's answer in full."""
    world = World.of(
        demo_spec(), capacity={Offering(B5, SPOT): 1, Offering(A6, SPOT): 0, Offering(B6, SPOT): 0}
    )
    cool(world, A5)
    launch(world, ordered(world, 2))
    (line,) = recorded(world)
    (instance,) = world.fleet.instances
    assert line == {
        "service": "demo",
        "launch": "launch-1",
        "replicas": [1, 2],
        "purchase_option": "spot",
        "eligible": 4,
        "pools": [str(B5), str(A6), str(B6)],
        "why_these": "rested",
        "left_out": {str(A5): "us-east-1a/g5.xlarge/spot cools until 00:01:00 (warning)"},
        "instances": {instance: "us-east-1b/g5.xlarge/spot"},
        "refusals": [f"{DRY}: us-east-1a/g6.xlarge/spot", f"{DRY}: us-east-1b/g6.xlarge/spot"],
    }
    assert world.telemetry.counts[Metric.LAUNCH_REFUSALS] == 2
    assert world.telemetry.counts[Metric.REPLICAS_LAUNCHED] == 1


def test_a_long_list_is_cut_for_the_row_and_whole_in_the_log() -> None:
    """Hundreds of pools fit into a log line, not into every replica's row."""
    zones = {f"subnet-{z}": f"us-east-1{z}" for z in "abcdef"}
    spec = replace(demo_spec(), subnets=zones, instance_types=tuple(f"g{n}.xlarge" for n in range(40)))
    world = World.of(spec)
    cool(world, *spec.pools[1:])
    launch(world, ordered(world), spec)
    (line,), (row,) = recorded(world), rows(world)
    assert len(line["left_out"]) == len(spec.pools) - 1
    assert len(row.launch or "") < 1000
    assert row.offering == spot_pool("us-east-1a", "g0.xlarge")


def test_a_row_names_the_reasons_in_order() -> None:
    """What different pools answered reads the same each time, whichever answered first."""
    world = World.of(demo_spec())
    codes = ("UnfulfillableCapacity", DRY, "MaxSpotInstanceCountExceeded", "Unsupported")
    refusals = tuple(
        Refusal(RefusalKind.CAPACITY, code, "", Offering(pool, SPOT))
        for code, pool in zip(codes, (A5, B5, A6, B6), strict=True)
    )
    answers(world, lambda _: LaunchResult((), refusals))
    launch(world, ordered(world))
    assert words(rows(world)) == [f"spot in 4 of 4 pools (rested); EC2: {', '.join(sorted(codes))}"]

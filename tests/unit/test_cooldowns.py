"""What losses, recommendations and refusals teach, about what, for how long, and when it is forgiven."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import Refusal, RefusalKind
from spotrelay.plane.core.pools import (
    CapacityPool,
    Cause,
    Cooldown,
    Offering,
    PoolMemory,
    PurchaseOption,
    Scope,
    quota_of,
)
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.placement import cooldowns
from spotrelay.plane.serving import changes, steps
from spotrelay.plane.serving.steps import Step
from tests.examples import demo_spec, on_demand_pool, spot_pool
from tests.unit.cases import NOW, a_replica

REGION = "us-east-1"
SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND
POOL = spot_pool("us-east-1a", "g5.xlarge")
POOL_OF = {SPOT: spot_pool, ON_DEMAND: on_demand_pool}

Teach = Callable[[PoolMemory, datetime], Cooldown]
"""Something happens at a time to somebody who remembers this: the cooldown that it brings."""


def loss(memory: PoolMemory, now: datetime) -> Cooldown:
    """EC2 takes an instance back."""
    return cooldowns.of_loss(POOL, "interruption warning", memory, now)


def recommendation(memory: PoolMemory, now: datetime) -> Cooldown:
    """EC2 recommends to leave an instance."""
    return cooldowns.of_rebalance(POOL, memory, now)


def refusal(kind: RefusalKind, offering: Offering | None = POOL, option: PurchaseOption = SPOT) -> Teach:
    """EC2 refuses a launch."""

    def teach(memory: PoolMemory, now: datetime) -> Cooldown:
        refused = Refusal(kind, "TheCode", "why", offering)
        (lesson,) = cooldowns.of_refusals([refused], REGION, option, memory, now)
        return lesson

    return teach


CAUSES: list[tuple[Teach, Cause, float, float]] = [
    (loss, Cause.LOSS, timing.LOSS_COOLDOWN_S, timing.LOSS_COOLDOWN_MAX_S),
    (recommendation, Cause.REBALANCE, timing.REBALANCE_COOLDOWN_S, timing.REBALANCE_COOLDOWN_S),
    (
        refusal(RefusalKind.CAPACITY),
        Cause.REFUSAL,
        timing.REFUSAL_COOLDOWN_S,
        timing.REFUSAL_COOLDOWN_MAX_S,
    ),
    (
        refusal(RefusalKind.UNSUPPORTED),
        Cause.UNSUPPORTED,
        timing.UNSUPPORTED_COOLDOWN_S,
        timing.UNSUPPORTED_COOLDOWN_S,
    ),
    *(
        (refusal(kind), Cause.LIMIT, timing.LIMIT_COOLDOWN_S, timing.LIMIT_COOLDOWN_MAX_S)
        for kind in (RefusalKind.MARKET_LIMIT, RefusalKind.QUOTA, RefusalKind.ADDRESSES)
    ),
]
each_cause = pytest.mark.parametrize(
    ("teach", "cause", "first_s", "longest_s"), CAUSES, ids=["loss", "rebalance", *(c[1] for c in CAUSES[2:])]
)


def remember(memory: PoolMemory, teach: Teach, at: datetime) -> tuple[PoolMemory, Cooldown]:
    """The memory after it happened, and the lesson."""
    lesson = teach(memory, at)
    return cooldowns.with_lessons(memory, [lesson]), lesson


def length_s(cooldown: Cooldown) -> float:
    """How long it lasts."""
    return (cooldown.until - cooldown.since).total_seconds()


@each_cause
def test_each_cause_has_its_length(teach: Teach, cause: Cause, first_s: float, longest_s: float) -> None:
    """The first time a cooldown is as long as its cause asks, from when it happened."""
    lesson = teach(PoolMemory(), NOW)
    assert (lesson.cause, lesson.since, lesson.strikes) == (cause, NOW, 1)
    assert length_s(lesson) == first_s <= longest_s


@each_cause
def test_while_it_lasts_it_is_the_same(teach: Teach, cause: Cause, first_s: float, longest_s: float) -> None:
    """Seen again before its end, a cooldown begins anew and gets no longer: a burst is one lesson."""
    memory = PoolMemory()
    for at in range(4):
        memory, lesson = remember(memory, teach, NOW + seconds(at * first_s / 4))
        assert (length_s(lesson), lesson.strikes) == (first_s, 1)


@each_cause
def test_each_time_again_it_doubles(teach: Teach, cause: Cause, first_s: float, longest_s: float) -> None:
    """What comes back as soon as its cooldown is over makes the next twice as long, up to the ceiling."""
    memory, lesson = remember(PoolMemory(), teach, NOW)
    for strikes in range(2, 12):
        memory, lesson = remember(memory, teach, lesson.until)
        assert lesson.strikes == strikes
        assert length_s(lesson) == min(first_s * 2 ** (strikes - 1), longest_s)
    assert length_s(lesson) == longest_s


@each_cause
def test_quiet_forgives(teach: Teach, cause: Cause, first_s: float, longest_s: float) -> None:
    """After as much quiet as the cooldown took, the next one is a first one; a moment before it isn't."""
    memory, lesson = remember(PoolMemory(), teach, NOW)
    quiet = lesson.until + seconds(length_s(lesson))
    assert lesson.remembered_until == quiet
    assert teach(memory, quiet - seconds(0.001)).strikes == 2
    assert teach(memory, quiet).strikes == 1


@given(st.lists(st.floats(0.001, 20_000), max_size=20))
def test_a_cooldown_is_never_longer_than_its_ceiling(gaps_s: list[float]) -> None:
    """However refusals are spread, the cooldown stays between its first length and the longest."""
    memory, now = PoolMemory(), NOW
    for gap_s in gaps_s:
        memory, lesson = remember(memory, refusal(RefusalKind.CAPACITY), now)
        assert timing.REFUSAL_COOLDOWN_S <= length_s(lesson) <= timing.REFUSAL_COOLDOWN_MAX_S
        now += seconds(gap_s)


def test_another_cause_counts_by_itself() -> None:
    """A pool that lost an instance hasn't refused any: its first refusal is a first one."""
    memory, lost = remember(PoolMemory(), loss, NOW)
    again = refusal(RefusalKind.CAPACITY)(memory, lost.until)
    assert (again.cause, again.strikes) == (Cause.REFUSAL, 1)


@pytest.mark.parametrize(
    ("later_s", "is_news"), [(0, False), (45, False), (45.1, True), (899, True), (1000, True)]
)
def test_a_lesson_is_news_if_the_pool_rests_longer_by_it(later_s: float, is_news: bool) -> None:
    """A pool loses its instances within moments: the second batch of warnings adds nothing to the first."""
    first = loss(PoolMemory(), NOW)
    memory = PoolMemory((first,))
    again = loss(memory, NOW + seconds(later_s))
    assert cooldowns.news([again], memory) == ([again] if is_news else [])
    assert cooldowns.news([first], PoolMemory()) == [first]
    assert cooldowns.news([recommendation(memory, NOW)], memory), "another cause is another lesson"


def test_of_two_cooldowns_the_later_end_counts() -> None:
    """A refusal doesn't shorten what a loss has taught, nor a loss what goes on for longer."""
    memory, lost = remember(PoolMemory(), loss, NOW)
    memory, _ = remember(memory, refusal(RefusalKind.CAPACITY), NOW)
    assert memory.cooldowns == (lost,)
    memory, nowhere = remember(memory, refusal(RefusalKind.UNSUPPORTED), NOW)
    assert memory.cooldowns == (nowhere,)
    assert remember(memory, loss, NOW)[0].cooldowns == (nowhere,)


# What each refusal is about.


@pytest.mark.parametrize("option", POOL_OF)
@pytest.mark.parametrize(
    ("kind", "cooled"),
    [
        (RefusalKind.CAPACITY, {("us-east-1a", "g5.xlarge")}),
        (RefusalKind.UNSUPPORTED, {("us-east-1a", "g5.xlarge")}),
        (
            RefusalKind.QUOTA,
            {(z, t) for z in ("us-east-1a", "us-east-1b") for t in ("g5.xlarge", "g6.xlarge")},
        ),
        (
            RefusalKind.MARKET_LIMIT,
            {
                (z, t)
                for z in ("us-east-1a", "us-east-1b")
                for t in ("g5.xlarge", "g6.xlarge", "p4d.24xlarge")
            },
        ),
        (RefusalKind.ADDRESSES, {("us-east-1a", t) for t in ("g5.xlarge", "g6.xlarge", "p4d.24xlarge")}),
    ],
)
def test_a_refusal_cools_what_it_is_about(
    kind: RefusalKind, cooled: set[tuple[str, str]], option: PurchaseOption
) -> None:
    """A pool, a zone's subnet, the group of families of a quota, or the market: that and nothing else."""
    offering = POOL_OF[option]("us-east-1a", "g5.xlarge")
    memory = PoolMemory((refusal(kind, offering, option)(PoolMemory(), NOW),))

    def cooling(asked: PurchaseOption) -> set[tuple[str, str]]:
        return {
            (zone, type_)
            for zone in ("us-east-1a", "us-east-1b")
            for type_ in ("g5.xlarge", "g6.xlarge", "p4d.24xlarge")
            if memory.cooling(POOL_OF[asked](zone, type_), NOW)
        }

    assert cooling(option) == cooled
    other = ON_DEMAND if option is SPOT else SPOT
    # Addresses are used up for whatever is bought there; the rest is about one way to buy.
    assert cooling(other) == (cooled if kind is RefusalKind.ADDRESSES else set())
    elsewhere = Offering(CapacityPool("eu-west-1", "eu-west-1a", "g5.xlarge"), option)
    assert memory.cooling(elsewhere, NOW) is None


@pytest.mark.parametrize(
    ("group", "others"),
    [
        (
            ("g4dn.xlarge", "g5.xlarge", "g6e.12xlarge", "gr6.4xlarge", "vt1.3xlarge"),
            ("p3.2xlarge", "c7i.large"),
        ),
        (("p3.2xlarge", "p4d.24xlarge", "p5en.48xlarge"), ("g5.xlarge", "inf2.xlarge", "c7i.large")),
        (("inf1.xlarge", "inf2.xlarge"), ("i4i.large", "g5.xlarge")),
        (("m7i.large", "c6a.xlarge", "r8i.large", "i4i.large"), ("inf1.xlarge", "g5.xlarge")),
        (("trn1.2xlarge", "trn2.48xlarge"), ("t3.large", "g5.xlarge")),
    ],
)
def test_families_share_a_quota_as_ec2_groups_them(group: tuple[str, ...], others: tuple[str, ...]) -> None:
    """G and VT have one vCPU quota, P another, M, C and R one; no other family is held back with them."""
    assert len({quota_of(type_) for type_ in group}) == 1
    assert quota_of(group[0]) not in {quota_of(type_) for type_ in others}


def test_a_quota_that_names_no_pool_is_the_market_s() -> None:
    """A request that met a quota as a whole asked for every pool: they all would meet it again."""
    lesson = refusal(RefusalKind.QUOTA, None)(PoolMemory(), NOW)
    assert lesson.scope == Scope(REGION, purchase_option=SPOT)


@pytest.mark.parametrize(
    ("kind", "offering"),
    [
        (RefusalKind.OTHER, POOL),
        (RefusalKind.CAPACITY, None),
        (RefusalKind.UNSUPPORTED, None),
        (RefusalKind.ADDRESSES, None),
    ],
)
def test_what_says_nothing_teaches_nothing(kind: RefusalKind, offering: Offering | None) -> None:
    """A code that nobody knows, or one about a pool that isn't named, cools nothing."""
    refused = Refusal(kind, "TheCode", "why", offering)
    assert cooldowns.of_refusals([refused], REGION, SPOT, PoolMemory(), NOW) == []


def test_refusals_of_one_answer_about_one_thing_are_one() -> None:
    """Six pools refused for one quota: one cooldown, one strike."""
    refused = [
        Refusal(RefusalKind.QUOTA, "VcpuLimitExceeded", "why", Offering(pool, SPOT))
        for pool in demo_spec().pools
    ]
    (lesson,) = cooldowns.of_refusals(refused, REGION, SPOT, PoolMemory(), NOW)
    assert (lesson.scope, lesson.strikes) == (Scope(REGION, quota="g", purchase_option=SPOT), 1)


# Forgiveness.


def test_an_instance_forgives_refusals_and_limits_where_it_came_from() -> None:
    """The pool that gave it, its quota, zone and market have room; another pool is no better for it."""
    about = [
        Refusal(RefusalKind.CAPACITY, "a", "", POOL),
        Refusal(RefusalKind.QUOTA, "b", "", POOL),
        Refusal(RefusalKind.ADDRESSES, "c", "", POOL),
        Refusal(RefusalKind.MARKET_LIMIT, "d", "", POOL),
        Refusal(RefusalKind.CAPACITY, "e", "", spot_pool("us-east-1b", "g5.xlarge")),
        Refusal(RefusalKind.ADDRESSES, "f", "", spot_pool("us-east-1b", "g5.xlarge")),
    ]
    memory = PoolMemory(tuple(cooldowns.of_refusals(about, REGION, SPOT, PoolMemory(), NOW)))
    forgiven = set(cooldowns.forgiven([POOL], memory))
    assert {c.reason for c in memory.cooldowns if c.scope in forgiven} == {"a", "b", "c", "d"}
    assert cooldowns.forgiven([], memory) == []


def test_an_instance_forgives_no_loss() -> None:
    """That a pool gives says nothing about how long it leaves what it gave."""
    for teach in (loss, recommendation, refusal(RefusalKind.UNSUPPORTED)):
        assert cooldowns.forgiven([POOL], PoolMemory((teach(PoolMemory(), NOW),))) == []


# What actions teach.


def test_only_spot_that_ec2_takes_back_cools_its_pool() -> None:
    """A warning cools the pool, a drain of ours doesn't, nor does anything that befalls on-demand."""
    warned = a_replica(1, ReplicaState.READY)
    ours = a_replica(2, ReplicaState.READY, offering=spot_pool("us-east-1b", "g6.xlarge"))
    bought = a_replica(3, ReplicaState.READY, offering=on_demand_pool("us-east-1a", "g6.xlarge"))
    actions: list[Step] = [
        steps.drain(warned, NOW, "interruption warning", warned_at=NOW, cool_pool=True),
        steps.drain(ours, NOW, "more replicas than wanted"),
        steps.drain(bought, NOW, "interruption warning", warned_at=NOW, cool_pool=True),
        steps.note_rebalance(bought, NOW),
    ]
    assert changes.lessons(actions, PoolMemory(), NOW) == [loss(PoolMemory(), NOW)]
    assert changes.lessons([steps.note_rebalance(warned, NOW)], PoolMemory(), NOW) == [
        recommendation(PoolMemory(), NOW)
    ]

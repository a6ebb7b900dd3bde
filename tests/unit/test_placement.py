"""Where to launch, what is left out, and how it is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spotrelay.plane.core import timing
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
from spotrelay.plane.core.requirements import Requirements
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.placement import plan as placement
from spotrelay.plane.placement.plan import Plan
from tests.examples import demo_spec, on_demand_pool, spot_pool
from tests.unit.cases import NOW

SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND
POOLS = demo_spec().pools
A5, B5, A6, B6 = POOLS
GOOD_SCORE = timing.LOW_SCORE + 1


def survey(pools: tuple[CapacityPool, ...] = POOLS, **facts: Any) -> Survey:
    """What EC2 was found to offer to the demo."""
    return Survey("demo", facts.pop("asked", demo_spec().asked), NOW, pools, **facts)


def cooling(*offerings: Offering, until_s: float = 60, strikes: int = 1) -> tuple[Cooldown, ...]:
    """Cooldowns that began a minute ago."""
    since, until = NOW - seconds(60), NOW + seconds(until_s)
    return tuple(Cooldown(Scope.of(o), Cause.LOSS, since, until, "warning", strikes) for o in offerings)


def plan(
    spec: ServiceSpec | None = None,
    option: PurchaseOption = SPOT,
    memory: PoolMemory | None = None,
    **wishes: Any,
) -> Plan:
    """The plan at `NOW`."""
    return placement.plan(spec or demo_spec(), option, memory or PoolMemory(), NOW, **wishes)


def steps(made: Plan) -> list[set[CapacityPool]]:
    """The pools of each step."""
    return [set(step.pools) for step in made.steps]


def test_every_pool_at_once() -> None:
    """With nothing known against any, one request asks all, in the order of the service file."""
    for option in OPTIONS.values():
        made = plan(option=option)
        assert [(step.purchase_option, step.pools) for step in made.steps] == [(option, POOLS)]
        assert (made.eligible, made.left_out, made.max_prices) == (POOLS, {}, {})


def test_spot_leaves_out_what_cools() -> None:
    """On-demand stands in, which is better than a pool that has just taken an instance back."""
    made = plan(memory=PoolMemory(cooling(Offering(A5, SPOT))))
    assert steps(made) == [{B5, A6, B6}]
    assert set(made.left_out) == {A5}


def test_as_a_last_resort_spot_asks_what_cools() -> None:
    """If on-demand isn't to be had either, cooling pools are tried, after the others."""
    made = plan(memory=PoolMemory(cooling(Offering(A5, SPOT))), is_last_resort=True)
    assert steps(made) == [{B5, A6, B6}, {A5}]
    assert made.left_out == {}


def test_on_demand_asks_what_cools_last() -> None:
    """Nothing is behind on-demand: each of its pools is asked, those that refused after the others."""
    made = plan(option=ON_DEMAND, memory=PoolMemory(cooling(Offering(A5, ON_DEMAND), Offering(B6, SPOT))))
    assert steps(made) == [{B5, A6, B6}, {A5}]


def test_zones_that_score_low_come_after_the_others() -> None:
    """A loss is replaced there, too, if nowhere else; at the score above there is nothing against a zone."""
    scored = survey(scores={"us-east-1a": timing.LOW_SCORE, "us-east-1b": GOOD_SCORE})
    assert steps(plan(memory=PoolMemory(survey=scored))) == [{B5, B6}, {A5, A6}]


def test_scores_of_other_types_say_nothing() -> None:
    """A survey that answered what the service doesn't ask any more scored other types."""
    asked = Requirements(instance_types=("g5.48xlarge",))
    scored = survey(scores={"us-east-1a": 1}, asked=asked)
    assert steps(plan(memory=PoolMemory(survey=scored))) == [set(POOLS)]


def test_nothing_returns_to_spot_where_the_score_is_low() -> None:
    """With on-demand in its place there is no hurry: low zones, like cooling pools, are left out."""
    scored = survey(scores={"us-east-1a": 1})
    made = plan(memory=PoolMemory(cooling(Offering(B5, SPOT)), scored), is_return=True)
    assert steps(made) == [{B6}]
    assert "score 1" in made.left_out[A5]
    wet = plan(memory=PoolMemory(cooling(Offering(B5, SPOT)), scored), is_return=True, is_last_resort=True)
    assert steps(wet) == [{B6}, {A5, A6}, {B5}], "unless on-demand is refused"


def test_a_zone_without_a_score_is_taken_for_a_good_one() -> None:
    """What AWS didn't say is held against nobody, and scores say nothing about on-demand."""
    scored = survey(scores={"us-east-1b": 1})
    assert steps(plan(memory=PoolMemory(survey=scored), is_return=True)) == [{A5, A6}]
    assert steps(plan(option=ON_DEMAND, memory=PoolMemory(survey=scored))) == [set(POOLS)]


def test_a_pool_that_cools_and_scores_low_cools() -> None:
    """Of two reasons to wait the stronger counts: it isn't asked as one that only scores low."""
    scored = survey(scores={"us-east-1a": 1})
    assert steps(plan(memory=PoolMemory(cooling(Offering(A5, SPOT)), scored))) == [{B5, B6}, {A6}]


@pytest.mark.parametrize("option", OPTIONS.values())
def test_a_wide_cooldown_leaves_out_all_that_it_covers(option: PurchaseOption) -> None:
    """A subnet without addresses and a quota that is used up leave out many pools at once."""
    for scope, left in (
        (Scope("us-east-1", zone="us-east-1a"), {B5, B6}),
        (Scope("us-east-1", quota="g", purchase_option=SPOT), set() if option is SPOT else set(POOLS)),
        (Scope("eu-west-1", purchase_option=option), set(POOLS)),
    ):
        lesson = Cooldown(scope, Cause.LIMIT, NOW, NOW + seconds(60), "limit")
        made = plan(option=option, memory=PoolMemory((lesson,)), is_last_resort=False)
        rested = [set(step.pools) for step in made.steps if step.why == "rested"]
        assert rested == ([left] if left else [])


def test_a_cooldown_ends() -> None:
    """At its end a pool is asked again, though it is remembered for longer."""
    over = Cooldown(Scope.of(Offering(A5, SPOT)), Cause.LOSS, NOW - seconds(60), NOW, "warning")
    assert steps(plan(memory=PoolMemory((over,)))) == [set(POOLS)]


# Which pools.


def test_what_ec2_offers_replaces_what_the_document_lists() -> None:
    """A survey for what the service asks knows pools that the document doesn't, and drops others."""
    new = CapacityPool("us-east-1", "us-east-1b", "g7e.2xlarge")
    assert plan(memory=PoolMemory(survey=survey((A5, new)))).eligible == (A5, new)


@pytest.mark.parametrize(
    "unfit",
    [
        survey((A5,), asked=Requirements(instance_types=("g5.xlarge",))),
        survey(()),
        survey((CapacityPool("us-east-1", "us-east-1f", "g5.xlarge"),)),
    ],
    ids=["another question", "nothing found", "no subnet there"],
)
def test_a_survey_that_does_not_fit_is_no_survey(unfit: Survey) -> None:
    """It answers another question, or has no pool that could be launched in: the document's list it is."""
    assert plan(memory=PoolMemory(survey=unfit)).eligible == POOLS


def test_a_zone_without_a_subnet_is_not_eligible() -> None:
    """EC2 may offer it; the service has no network there."""
    elsewhere = CapacityPool("us-east-1", "us-east-1f", "g5.xlarge")
    assert plan(memory=PoolMemory(survey=survey((A5, elsewhere)))).eligible == (A5,)


# The price cap.

PRICES = {"g5.xlarge": 1.0, "g6.xlarge": 0.8}
CAPPED = replace(demo_spec(), max_price_share=0.5)


def test_a_price_cap_is_a_share_of_the_on_demand_price() -> None:
    """Each type's cap goes into the request; without a cap there is none, nor for on-demand."""
    priced = PoolMemory(survey=survey(on_demand_prices=PRICES))
    assert plan(CAPPED, memory=priced).max_prices == {"g5.xlarge": 0.5, "g6.xlarge": 0.4}
    assert plan(memory=priced).max_prices == {}
    assert plan(CAPPED, ON_DEMAND, memory=priced).max_prices == {}


def test_a_pool_that_is_too_dear_is_not_asked() -> None:
    """Above its cap a pool is left out, in every step; not at the cap, nor if nobody knows its price."""
    spot_prices = {A5: 0.501, B5: 0.5, A6: 0.3}
    priced = PoolMemory(survey=survey(on_demand_prices=PRICES, spot_prices=spot_prices))
    made = plan(CAPPED, memory=priced, is_last_resort=True)
    assert steps(made) == [{B5, A6, B6}]
    assert "0.501" in made.left_out[A5]
    assert "0.5" in made.left_out[A5]


def test_what_cannot_be_capped_is_not_asked() -> None:
    """A type whose on-demand price nobody knows has no cap, and EC2's own would be the whole price."""
    priced = PoolMemory(survey=survey(on_demand_prices={"g5.xlarge": 1.0}))
    made = plan(CAPPED, memory=priced)
    assert steps(made) == [{A5, B5}]
    assert all("no on-demand price" in why for why in made.left_out.values())
    assert plan(CAPPED).steps == (), "before the first survey nothing is known"
    assert steps(plan(CAPPED, ON_DEMAND)) == [set(POOLS)], "on-demand costs what it costs"


@given(st.floats(0.0001, 100), st.floats(0.01, 1))
@example(1.5, 0.6)
@example(1.006, 0.7)
def test_a_cap_is_never_more_than_was_allowed(price: float, share: float) -> None:
    """EC2 takes a few decimals only: a cap is the exact share of the price, rounded down."""
    spec = replace(CAPPED, max_price_share=share)
    priced = PoolMemory(survey=survey(on_demand_prices={"g5.xlarge": price}))
    (cap,) = plan(spec, memory=priced).max_prices.values()
    allowed = Decimal(str(price)) * Decimal(str(share))
    assert 0 <= allowed - Decimal(str(cap)) < Decimal("0.0001")
    assert round(cap, 4) == cap


# All together.


@st.composite
def memories(draw: st.DrawFn) -> PoolMemory:
    """Anything that may be known about the demo's pools."""
    offerings = draw(
        st.sets(st.builds(Offering, st.sampled_from(POOLS), st.sampled_from(list(OPTIONS.values()))))
    )
    prices = st.floats(0.1, 2)
    surveyed = survey(
        tuple(draw(st.lists(st.sampled_from(POOLS), unique=True))),
        on_demand_prices=draw(st.dictionaries(st.sampled_from(["g5.xlarge", "g6.xlarge"]), prices)),
        spot_prices=draw(st.dictionaries(st.sampled_from(POOLS), prices)),
        scores=draw(st.dictionaries(st.sampled_from(["us-east-1a", "us-east-1b"]), st.integers(1, 10))),
    )
    return PoolMemory(cooling(*offerings), draw(st.sampled_from([None, surveyed])))


@given(
    memories(),
    st.sampled_from(list(OPTIONS.values())),
    st.booleans(),
    st.booleans(),
    st.sampled_from([demo_spec(), CAPPED]),
)
def test_every_pool_is_asked_once_or_accounted_for(
    memory: PoolMemory,
    option: PurchaseOption,
    is_return: bool,
    is_last_resort: bool,
    spec: ServiceSpec,
) -> None:
    """Whatever is known: each eligible pool is in one step only, or left out for a reason that is told."""
    made = plan(spec, option, memory, is_return=is_return, is_last_resort=is_last_resort)
    asked = [pool for step in made.steps for pool in step.pools]
    assert len(set(asked)) == len(asked)
    assert set(asked) | set(made.left_out) == set(made.eligible)
    assert not set(asked) & set(made.left_out)
    assert all(made.left_out.values())
    assert all(step.pools for step in made.steps)
    assert {step.purchase_option for step in made.steps} <= {option}


# When the first pool has rested.


def test_the_first_rest_is_the_soonest_end() -> None:
    """If every pool cools, the one whose last cooldown ends first says when to ask again."""
    ends = [300, 100, 200, 400]
    lessons = [c for p, s in zip(POOLS, ends, strict=True) for c in cooling(Offering(p, SPOT), until_s=s)]
    market = Cooldown(
        Scope("us-east-1", zone="us-east-1b"), Cause.LIMIT, NOW, NOW + seconds(250), "no addresses"
    )
    memory = PoolMemory((*lessons, market))
    assert placement.first_rest(demo_spec(), SPOT, memory, NOW) == NOW + seconds(200)
    assert placement.first_rest(demo_spec(), SPOT, PoolMemory(tuple(lessons[1:])), NOW) is None
    assert placement.first_rest(demo_spec(), ON_DEMAND, PoolMemory(tuple(lessons)), NOW) is None
    assert placement.first_rest(replace(demo_spec(), instance_types=()), SPOT, memory, NOW) is None, (
        "nothing rests"
    )


# In words.


def test_a_cooldown_is_told_with_its_reason() -> None:
    """What, until when, why, and how often in a row."""
    made = plan(memory=PoolMemory(cooling(Offering(A5, SPOT), until_s=90, strikes=3)))
    assert made.left_out[A5] == "us-east-1a/g5.xlarge/spot cools until 01:01:30 (warning, strike 3)"


@pytest.mark.parametrize(
    ("scope", "told"),
    [
        (Scope("us-east-1", quota="g", purchase_option=SPOT), "quota G/spot"),
        (Scope("us-east-1", zone="us-east-1a"), "us-east-1a"),
        (Scope("us-east-1", purchase_option=ON_DEMAND), "on-demand"),
        (Scope("us-east-1"), "us-east-1"),
        (Scope.of(on_demand_pool("us-east-1a", "g5.xlarge")), "us-east-1a/g5.xlarge/on-demand"),
    ],
)
def test_each_scope_has_a_name(scope: Scope, told: str) -> None:
    """People see what a cooldown is about: a quota, a zone, a market, or one pool."""
    assert str(scope) == told


def test_one_line_says_it_all() -> None:
    """How many of how many pools, why these, what was left out and why, and EC2's answer."""
    made = plan(memory=PoolMemory(cooling(Offering(A5, SPOT), until_s=90)))
    assert placement.in_words(made, made.steps[0], "us-east-1b/g5.xlarge/spot") == (
        "spot in 3 of 4 pools (rested); "
        "left out: us-east-1a/g5.xlarge (us-east-1a/g5.xlarge/spot cools until 01:01:30 (warning)); "
        "EC2: us-east-1b/g5.xlarge/spot"
    )
    everything = plan()
    assert placement.in_words(everything, everything.steps[0], "x") == "spot in 4 of 4 pools (rested); EC2: x"


def test_many_pools_are_told_by_the_first_few() -> None:
    """A row has no room for hundreds of reasons: it names some and counts the others."""
    many: Mapping[CapacityPool, str] = {
        spot_pool(f"us-east-1{z}", "g5.xlarge").pool: "dry" for z in "abcdefgh"
    }
    assert placement.shown(many, most=2) == (
        "us-east-1a/g5.xlarge (dry), us-east-1b/g5.xlarge (dry) and 6 more"
    )
    assert placement.shown(list(many)[:1]) == "us-east-1a/g5.xlarge"


def test_a_standby_is_apart_from_the_others() -> None:
    """First the zone with the fewest of them, there the pool with the fewest; the rest after that."""
    spec = demo_spec()
    first = spec.pools[0]
    made = plan(option=ON_DEMAND, standbys=[first])
    elsewhere = {pool for pool in spec.pools if pool.zone != first.zone}
    assert steps(made) == [elsewhere, set(spec.pools) - elsewhere]
    assert made.steps[0].why == "apart from other standbys"
    one_of_each_zone = [
        next(p for p in spec.pools if p.zone == zone) for zone in {p.zone for p in spec.pools}
    ]
    made = plan(option=ON_DEMAND, standbys=one_of_each_zone)
    assert steps(made)[0] == set(spec.pools) - set(one_of_each_zone)
    assert steps(plan(option=ON_DEMAND, standbys=[])) == steps(plan(option=ON_DEMAND)) == [set(spec.pools)]

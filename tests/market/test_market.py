"""The Spot market: who gets what, and what the refused are told."""

from datetime import UTC, datetime, timedelta

import pytest

from lab.market import Candidate, Market, MarketRequest, PoolState, RefusalCode, Strategy
from spotrelay.plane.core.pools import CapacityPool, Offering, PurchaseOption

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND


def pool(instance_type: str, zone: str = "a") -> CapacityPool:
    """A pool in the only region."""
    return CapacityPool("us-east-1", zone, instance_type)


def market(*capacities: tuple[str, int]) -> Market:
    """A market with these types in zone a; each costs a dollar more than the one before it."""
    return Market(
        PoolState(pool(name), 1.0 + 10 * i, capacity, capacity)
        for i, (name, capacity) in enumerate(capacities)
    )


def request(
    count: int,
    *types: str,
    option: PurchaseOption = SPOT,
    strategy: Strategy = Strategy.PRICE_CAPACITY_OPTIMIZED,
    minimum: int = 0,
) -> MarketRequest:
    """A request over pools of zone a, the first being the best."""
    candidates = [Candidate(pool(name), priority=i) for i, name in enumerate(types)]
    return MarketRequest(candidates, count, option, strategy, minimum)


def granted(shop: Market, wanted: MarketRequest) -> dict[str, int]:
    """Instances granted, by type."""
    allocation = shop.launch(wanted, NOW)
    return {wanted.candidates[g.index].pool.instance_type: g.count for g in allocation.grants}


def refused(shop: Market, wanted: MarketRequest) -> dict[str, RefusalCode]:
    """Codes of refusals, by type."""
    allocation = shop.launch(wanted, NOW)
    return {wanted.candidates[r.index].pool.instance_type: r.code for r in allocation.refusals}


def test_cheapest_of_the_deep_pools_is_taken_first() -> None:
    """Price-capacity-optimized passes over a shallow pool, however cheap, and takes the cheapest deep one."""
    shop = market(("cheap", 1), ("middle", 8), ("dear", 8))
    assert granted(shop, request(3, "cheap", "middle", "dear")) == {"middle": 3}


def test_partial_fulfilment_grants_what_there_is_and_refuses_the_rest() -> None:
    """A request for more than all pools hold gets everything, and a refusal from each."""
    shop = market(("one", 2), ("two", 1))
    allocation = shop.launch(request(5, "one", "two"), NOW)
    assert allocation.granted == 3
    assert {r.code for r in allocation.refusals} == {RefusalCode.INSUFFICIENT_INSTANCE_CAPACITY}
    assert shop.state(pool("one")).spot_in_use == 2


def test_fulfilled_request_reports_no_dry_pool_it_never_asked() -> None:
    """A dry pool among others costs nothing and says nothing as long as the others are enough."""
    shop = market(("one", 4), ("two", 4))
    shop.dry_up(instance_type="one")
    assert refused(shop, request(2, "one", "two")) == {}


@pytest.mark.parametrize(
    ("option", "code"),
    [(SPOT, RefusalCode.UNFULFILLABLE_CAPACITY), (ON_DEMAND, RefusalCode.INSUFFICIENT_INSTANCE_CAPACITY)],
)
def test_dry_pools_refuse_in_ec2s_words(option: PurchaseOption, code: RefusalCode) -> None:
    """Dry Spot pools and dry on-demand pools answer with different codes, as EC2's do."""
    shop = market(("one", 4))
    shop.dry_up(option=option)
    assert refused(shop, request(1, "one", option=option)) == {"one": code}


def test_zone_without_the_type_is_an_invalid_configuration() -> None:
    """A pool that the market doesn't have is refused for what it is, not for lack of capacity."""
    assert refused(market(("one", 4)), request(1, "other")) == {
        "other": RefusalCode.INVALID_FLEET_CONFIGURATION
    }


def test_prioritized_goes_down_the_list_and_reports_the_dry_ones_passed() -> None:
    """An ordered strategy tells which better choices refused, even when the request is fulfilled."""
    shop = market(("first", 0), ("second", 4), ("third", 4))
    wanted = request(2, "first", "second", "third", option=ON_DEMAND, strategy=Strategy.PRIORITIZED)
    allocation = shop.launch(wanted, NOW)
    assert [(g.index, g.count) for g in allocation.grants] == [(1, 2)]
    assert [r.index for r in allocation.refusals] == [0]


def test_lowest_price_ignores_depth() -> None:
    """Lowest-price drains the cheapest pool before it touches the next."""
    shop = market(("cheap", 1), ("dear", 8))
    assert granted(shop, request(3, "dear", "cheap", strategy=Strategy.LOWEST_PRICE)) == {
        "cheap": 1,
        "dear": 2,
    }


def test_minimum_is_all_or_nothing() -> None:
    """Below the minimum nothing is granted and nothing stays in use."""
    shop = market(("one", 2))
    assert granted(shop, request(3, "one", minimum=3)) == {}
    assert shop.state(pool("one")).spot_in_use == 0


def test_two_subnets_of_one_pool_share_its_capacity() -> None:
    """The same pool named twice gives its instances once."""
    shop = market(("one", 2))
    assert shop.launch(request(4, "one", "one"), NOW).granted == 2


def test_single_type_takes_the_type_that_can_give_most() -> None:
    """With one type demanded, a group is never mixed."""
    shop = market(("one", 2), ("two", 5))
    candidates = [Candidate(pool("one")), Candidate(pool("two"))]
    wanted = MarketRequest(candidates, 4, SPOT, Strategy.PRICE_CAPACITY_OPTIMIZED, single_type=True)
    assert granted(shop, wanted) == {"two": 4}


def test_price_limit_below_the_market_is_refused() -> None:
    """A maximum price that is too low is told apart from a lack of capacity."""
    shop = market(("one", 4))
    wanted = MarketRequest(
        [Candidate(pool("one"), max_price=0.01)], 1, SPOT, Strategy.PRICE_CAPACITY_OPTIMIZED
    )
    assert refused(shop, wanted) == {"one": RefusalCode.SPOT_MAX_PRICE_TOO_LOW}


def test_released_place_is_free_again() -> None:
    """What ends makes room, and nothing can end twice."""
    shop = market(("one", 1))
    shop.launch(request(1, "one"), NOW)
    shop.release(Offering(pool("one"), SPOT))
    assert shop.state(pool("one")).free(SPOT) == 1
    with pytest.raises(ValueError, match="no instance in use"):
        shop.release(Offering(pool("one"), SPOT))


def test_drought_ends_where_it_began() -> None:
    """Bringing a pool back restores its capacity, however often it was dried up, and of no other pool."""
    shop = market(("one", 3), ("two", 5))
    shop.dry_up(instance_type="one")
    shop.dry_up(instance_type="one")
    assert shop.state(pool("one")).spot_capacity == 0
    assert shop.bring_back() == [pool("one")]
    assert [state.spot_capacity for state in shop] == [3, 5]


def test_capacity_from_a_trace_says_how_many_are_too_many() -> None:
    """A simulator learns from a falling capacity how many instances it has to interrupt."""
    shop = market(("one", 4))
    shop.launch(request(3, "one"), NOW)
    assert shop.set_capacity(Offering(pool("one"), SPOT), 1) == 2
    assert shop.state(pool("one")).free(SPOT) == 0
    with pytest.raises(ValueError, match="0 or more"):
        shop.set_capacity(Offering(pool("one"), SPOT), -1)


def test_prices_depend_on_seed_pool_and_time_alone() -> None:
    """The same market asked twice names the same prices, below on-demand, and they move with time."""
    offering = Offering(pool("one"), SPOT)
    first, second = market(("one", 1)), market(("one", 1))
    later = [NOW + timedelta(days=day) for day in range(10)]
    prices = [first.price(offering, at) for at in later]
    assert prices == [second.price(offering, at) for at in later]
    assert all(0 < price < 1.0 for price in prices)
    assert len(set(prices)) > 1


def test_price_history_is_newest_first_and_reaches_back_to_the_start() -> None:
    """The history's last entry is the price that stood when the period began."""
    history = market(("one", 1)).price_history(pool("one"), NOW - timedelta(hours=13), NOW)
    times = [at for at, _ in history]
    assert times == sorted(times, reverse=True)
    assert times[-1] <= NOW - timedelta(hours=13) < times[-2]


def test_placement_score_falls_with_capacity_and_is_low_for_few_types() -> None:
    """Plenty of three types scores high, a drought scores 1, and two types never score high."""
    shop = market(("one", 9), ("two", 9), ("three", 9))
    types = [pool("one"), pool("two"), pool("three")]
    assert shop.placement_score(types, 3) == 9
    assert shop.placement_score(types[:2], 3) == 3
    shop.dry_up()
    assert shop.placement_score(types, 3) == 1

"""What instances cost, against sums made by hand."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotrelay.operator.look.cost import cost
from spotrelay.plane.accounting.days import Day
from spotrelay.plane.accounting.spending import Spending, lives, spent
from spotrelay.plane.core.pools import OPTIONS, CapacityPool, Offering, PurchaseOption
from spotrelay.plane.core.replica import Replica, ReplicaState

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
POOL = CapacityPool("us-east-1", "us-east-1a", "g5.xlarge")
LISTED = {"g5.xlarge": 1.0}


def row(
    id_: int = 1,
    state: ReplicaState = ReplicaState.READY,
    option: PurchaseOption = PurchaseOption.SPOT,
    *,
    entered: dict[ReplicaState, float],
    instance: str | None = None,
    **more: Any,
) -> Replica:
    """A replica; `entered` in hours from noon."""
    times = {name: NOON + HOUR * at for name, at in entered.items()}
    offering = Offering(POOL, option)
    return Replica(
        "chat", id_, 1, state, "", times, offering=offering, instance_id=instance or f"i-{id_}", **more
    )


def ran(begin: float, end: float, id_: int = 1, **more: Any) -> Replica:
    """A replica whose instance ran from one hour to the other, and is gone."""
    entered = {ReplicaState.PROVISIONING: begin, ReplicaState.READY: begin, ReplicaState.TERMINATED: end}
    return row(id_, ReplicaState.TERMINATED, entered=entered, **more)


def at(*changes: tuple[float, float]) -> dict[CapacityPool, list[tuple[datetime, float]]]:
    """Spot prices of the pool: (hours from noon, USD)."""
    return {POOL: [(NOON + HOUR * hour, price) for hour, price in changes]}


def of(
    *rows: Replica, spot: Any = None, now: float = 24, begin: float = -24, end: float = 24, disk: float = 0.0
) -> Spending:
    """What these cost."""
    found = lives(rows, NOON + HOUR * now)
    prices = at((-100, 0.3)) if spot is None else spot
    return spent(found, prices, LISTED, NOON + HOUR * begin, NOON + HOUR * end, disk)


def test_spot_is_charged_at_each_moments_price() -> None:
    """Two hours at 0.3, one at 0.5, half an hour at 0.4; on-demand would have been 1.0 throughout."""
    found = of(ran(0, 3.5), spot=at((-5, 0.3), (2, 0.5), (3, 0.4)))
    assert found.spot_usd == pytest.approx(2 * 0.3 + 0.5 + 0.5 * 0.4)
    assert found.listed_usd == pytest.approx(3.5)
    assert found.saved_usd == pytest.approx(3.5 - found.spot_usd)
    assert found.spot_hours == pytest.approx(3.5)


def test_a_price_that_is_known_from_later_on_counts_before() -> None:
    """EC2 tells the price that stood at the start; where it doesn't, the first that it tells is nearest."""
    assert of(ran(0, 2), spot=at((1, 0.5))).spot_usd == pytest.approx(1.0)


def test_on_demand_costs_its_list_price() -> None:
    """It saves nothing."""
    found = of(ran(0, 2, option=PurchaseOption.ON_DEMAND))
    assert [found.on_demand_usd, found.spot_usd, found.saved_usd] == pytest.approx([2.0, 0.0, 0.0])


def test_only_what_is_within_the_time_counts() -> None:
    """An instance that began before and goes on is charged for the part in between."""
    alive = row(entered={ReplicaState.PROVISIONING: -10, ReplicaState.READY: -10})
    assert of(alive, begin=1, end=3, now=20).spot_hours == pytest.approx(2)
    assert of(alive, begin=1, end=3, now=2).spot_hours == pytest.approx(1)


def test_what_ec2_takes_within_an_hour_is_free() -> None:
    """It is told apart, and what took longer is charged in full."""
    free = of(ran(0, 0.9, warned_at=NOON))
    assert [free.spot_usd, free.waived_usd] == pytest.approx([0.0, 0.27])
    assert of(ran(0, 1.1, warned_at=NOON)).spot_usd == pytest.approx(0.33)
    assert of(ran(0, 0.9)).spot_usd == pytest.approx(0.27), "one that we ended is charged"
    on_demand = of(ran(0, 0.9, warned_at=NOON, option=PurchaseOption.ON_DEMAND))
    assert on_demand.waived_usd == 0.0


def test_an_instance_that_is_shared_costs_once() -> None:
    """Four replicas on one instance, one of which came later and one went earlier."""
    rows = [ran(0, 4, 1), ran(1, 4, 2, instance="i-1:8082"), ran(0, 2, 3, instance="i-1:8083")]
    assert of(*rows).spot_usd == pytest.approx(4 * 0.3)


def test_a_standby_costs_its_disk_while_it_is_stopped() -> None:
    """It ran for an hour, was stopped for three, and ran again for one under the replica that it became."""
    stopped = row(
        1,
        ReplicaState.TERMINATED,
        PurchaseOption.ON_DEMAND,
        entered={ReplicaState.PROVISIONING: 0, ReplicaState.STANDBY: 1, ReplicaState.TERMINATED: 4},
        is_standby=True,
    )
    resumed = row(
        2,
        option=PurchaseOption.ON_DEMAND,
        entered={ReplicaState.REQUESTED: 0, ReplicaState.PROVISIONING: 4, ReplicaState.READY: 4.1},
        instance="i-1",
        is_standby=True,
        is_fallback=True,
    )
    found = of(stopped, resumed, now=5, disk=0.01)
    assert found.on_demand_hours == pytest.approx(2)
    assert found.disk_usd == pytest.approx(0.05)


def test_what_has_no_price_is_told_and_not_taken_for_free() -> None:
    """Neither Spot's nor on-demand's price is known: the hours are named."""
    assert of(ran(0, 2), spot={}) == Spending(unpriced_hours=2.0)


def test_what_has_no_list_price_is_compared_with_nothing() -> None:
    """Spot whose type has no known on-demand price costs, and saves nothing that anybody could know."""
    other = CapacityPool("us-east-1", "us-east-1a", "g6.xlarge")
    unlisted = replace(ran(0, 2, 2), offering=Offering(other, PurchaseOption.SPOT))
    spot = {**at((-5, 0.3)), other: [(NOON, 0.4)]}
    found = of(ran(0, 2), unlisted, spot=spot)
    assert [found.spot_usd, found.listed_usd, found.unlisted_usd] == pytest.approx([1.4, 2.0, 0.8])
    assert found.saved_usd == pytest.approx(2.0 - 0.6)
    told = cost("chat", NOON, NOON + 2 * HOUR, [Day("chat", NOON.date(), NOON + 2 * HOUR, found)])
    assert told.share_saved == pytest.approx(0.7)
    assert "0.80 USD of Spot have no known on-demand price" in told.of
    alone = cost("chat", NOON, NOON, [Day("chat", NOON.date(), NOON, of(unlisted, spot=spot))])
    assert alone.share_saved is None
    assert alone.spent.saved_usd == pytest.approx(0)


def test_what_ec2_took_without_a_warning_is_free_too() -> None:
    """Its event may be lost: what EC2 says of the instance's end says the same."""
    said = "instance terminated: Server.SpotInstanceTermination: Spot instance termination"
    assert of(replace(ran(0, 0.9), reason=said)).waived_usd == pytest.approx(0.27)
    ours = "instance terminated: Client.UserInitiatedShutdown: User initiated shutdown"
    assert of(replace(ran(0, 0.9), reason=ours)).waived_usd == 0.0


def test_a_replica_that_never_had_an_instance_costs_nothing() -> None:
    """EC2 refused it."""
    refused = Replica("chat", 1, 1, ReplicaState.REQUESTED, "", {ReplicaState.REQUESTED: NOON})
    assert of(refused) == Spending()


@given(
    spans=st.lists(st.tuples(st.floats(-20, 20), st.floats(0, 10)), max_size=6),
    cut=st.floats(-20, 20),
    prices=st.lists(st.floats(0.1, 2), min_size=1, max_size=4),
)
def test_two_parts_of_a_time_cost_what_the_whole_does(
    spans: list[tuple[float, float]], cut: float, prices: list[float]
) -> None:
    """Wherever it is cut: days add up to a month, and no second is charged twice or lost."""
    rows = [ran(begin, begin + lasts, id_) for id_, (begin, lasts) in enumerate(spans, 1)]
    spot = at(*((5 * index - 10, price) for index, price in enumerate(prices)))
    whole = of(*rows, spot=spot, begin=-40, end=40)
    parts = of(*rows, spot=spot, begin=-40, end=cut) + of(*rows, spot=spot, begin=cut, end=40)
    assert parts.spot_usd == pytest.approx(whole.spot_usd)
    assert parts.spot_hours == pytest.approx(sum(lasts for _, lasts in spans), abs=1e-6)


HOSTS = st.tuples(
    st.sampled_from(["g5.xlarge", "g6.xlarge"]), st.sampled_from(list(OPTIONS.values())), st.booleans()
)
"""An instance's type, of which one has no list price; how it was bought; whether its Spot price is known."""


@given(
    hosts=st.lists(HOSTS, min_size=1, max_size=3),
    replicas=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(1, 40)), max_size=6),
    cuts=st.lists(st.integers(0, 80), max_size=3),
)
def test_every_hour_of_every_instance_is_told_once(
    hosts: list[tuple[str, PurchaseOption, bool]], replicas: list[tuple[int, int, int]], cuts: list[int]
) -> None:
    """As what it was bought, or as one without a price; shared or not, and however the time is cut. Nothing
    is saved, or lost, on what can't be compared."""
    rows, spot = [], dict[CapacityPool, list[tuple[datetime, float]]]()
    ran_in: dict[int, set[int]] = {}
    for id_, (number, begin, lasts) in enumerate(replicas, 1):
        type_, option, is_priced = hosts[number % len(hosts)]
        pool = CapacityPool("us-east-1", f"us-east-1{number}", type_)
        one = ran(begin, begin + lasts, id_, instance=f"i-{number}:{8080 + id_}")
        rows.append(replace(one, offering=Offering(pool, option)))
        ran_in.setdefault(number, set()).update(range(begin, begin + lasts))
        if is_priced:
            spot[pool] = [(NOON, 0.3), (NOON + 20 * HOUR, 0.7)]
    whole = of(*rows, spot=spot, now=100, begin=0, end=80)
    parts = [of(*rows, spot=spot, now=100, begin=b, end=e) for b, e in pairwise([0, *sorted(cuts), 80])]
    assert asdict(sum(parts, Spending())) == pytest.approx(asdict(whole))
    hours = whole.spot_hours + whole.on_demand_hours + whole.unpriced_hours
    assert hours == pytest.approx(sum(len(of_host) for of_host in ran_in.values()))
    saved = spot_usd = 0.0
    for number, its in ran_in.items():
        type_, option, is_priced = hosts[number % len(hosts)]
        if option is PurchaseOption.SPOT and is_priced:
            usd = sum(0.3 if hour < 20 else 0.7 for hour in its)
            spot_usd += usd
            saved += len(its) - usd if type_ in LISTED else 0.0
    assert [whole.saved_usd, whole.spot_usd] == pytest.approx([saved, spot_usd])

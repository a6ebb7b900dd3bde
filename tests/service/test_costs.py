"""What a service costs a month, from prices that are given."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from spotrelay.file.compile.costs import LOOK_BACK, Changes, costs, usual
from spotrelay.file.service import describe, in_region
from spotrelay.plane.core.pools import CapacityPool
from spotrelay.plane.core.timing import HOURS_OF_MONTH

from .conftest import GOOD, Loader

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
ON_DEMAND = {"g6.xlarge": 0.8, "g6.2xlarge": 1.0, "g5.xlarge": 1.2}
FILE = GOOD.replace("{A10G, L4, L40S}", "[L4, A10G]").replace("  ports", "  cpus: 4\n  ports")
"""It prefers L4; `UNORDERED` prefers nothing. Both may have two types: g6.xlarge and g5.xlarge."""
UNORDERED = FILE.replace("[L4, A10G]", "{L4, A10G}")


def ago(days: float) -> datetime:
    """So many days before now."""
    return NOW - timedelta(days=days)


def spot(**prices: tuple[float, ...]) -> Changes:
    """The prices of a family's xlarge in the zones a, b and so on, which have stood for long."""
    return {
        CapacityPool("us-east-1", f"us-east-1{zone}", f"{family}.xlarge"): [(ago(30), usd)]
        for family, usds in prices.items()
        for zone, usd in zip("abc", usds, strict=False)
    }


@pytest.mark.parametrize(
    ("changes", "price"),
    [
        ([(30, 0.5)], 0.5),
        ([(30, 0.9), (1, 0.1)], 0.9),
        ([(30, 0.9), (6, 0.1)], 0.1),
        ([(1, 0.1), (30, 0.9)], 0.9),
        ([(30, 0.1), (6, 0.5), (3, 0.9)], 0.5),
        ([(2, 0.5)], 0.5),
        ([(30, 0.9), (29, 0.1), (28, 0.2)], 0.2),
    ],
)
def test_the_usual_price_is_the_median_over_time(changes: list[tuple[float, float]], price: float) -> None:
    """Each price counts for as long as it stood within the last week, in whatever order EC2 tells them."""
    assert usual([(ago(days), usd) for days, usd in changes], NOW) == price


def test_a_pool_without_a_price_has_no_usual_one() -> None:
    """None is made up."""
    with pytest.raises(ValueError, match="no price"):
        usual([], NOW)


def test_both_are_of_the_cheapest_type(service: Loader) -> None:
    """On-demand of all, Spot of each zone and of those the median; the dearest pool stands beside it."""
    found = costs(
        service(UNORDERED), "us-east-1", ON_DEMAND, spot(g6=(0.5, 0.3, 0.9), g5=(0.4, 0.6, 0.8)), NOW
    )
    (month,) = found.months
    assert (month.replicas, month.on_demand_usd) == (2, 2 * HOURS_OF_MONTH * 0.8)
    assert month.spot_usd == pytest.approx(2 * HOURS_OF_MONTH * 0.4)
    assert month.spot_dearest_usd == pytest.approx(2 * HOURS_OF_MONTH * 0.9)
    assert (found.pools, found.days) == (6, LOOK_BACK.days)
    assert found.instance_types["g5.xlarge"].spot_usd == {
        "us-east-1a": 0.4,
        "us-east-1b": 0.6,
        "us-east-1c": 0.8,
    }
    assert found.of == (
        "on-demand g6.xlarge, the cheapest type; Spot the cheapest type in each zone, the median of"
        " us-east-1a, us-east-1b, us-east-1c, of each the median of 7 days; 730 h a month; instances alone"
    )


def test_a_preferred_type_is_what_counts(service: Loader) -> None:
    """The first that has a price, also where another is cheaper; the dearest pool may be another's."""
    prices = {"g6.xlarge": 0.8, "g5.xlarge": 0.7}
    found = costs(service(FILE), "us-east-1", prices, spot(g6=(0.5,), g5=(0.2, 0.6)), NOW)
    (month,) = found.months
    assert month.on_demand_usd == pytest.approx(2 * HOURS_OF_MONTH * 0.8)
    assert month.spot_usd == pytest.approx(2 * HOURS_OF_MONTH * 0.5)
    assert month.spot_dearest_usd == pytest.approx(2 * HOURS_OF_MONTH * 0.6)
    assert "Spot g6.xlarge, the preferred type, in each zone, the median of us-east-1a," in found.of


def test_each_replica_costs_what_it_is_bought_as(service: Loader) -> None:
    """The base is on-demand, the surplus Spot; where the load decides, the fewest and the most are told."""
    text = UNORDERED.replace("  replicas: 2\n", "") + "spotrelay: {base_on_demand: 1}\n"
    policy = "{min_replicas: 0, max_replicas: 4, target_qps_per_replica: 1, num_overprovision: 2}"
    text = text.replace("service:\n", f"service:\n  replica_policy: {policy}\n")
    found = costs(service(text), "us-east-1", ON_DEMAND, spot(g6=(0.5,)), NOW)
    assert [month.replicas for month in found.months] == [1, 4]
    least, most = found.months
    assert least.spot_usd == pytest.approx(HOURS_OF_MONTH * (0.8 + 2 * 0.5))
    assert most.spot_usd == pytest.approx(HOURS_OF_MONTH * (0.8 + 5 * 0.5))
    assert most.on_demand_usd == pytest.approx(HOURS_OF_MONTH * 4 * 0.8)


def test_a_price_cap_leaves_pools_out(service: Loader) -> None:
    """Those dearer than the share of their own type's list price: without any there is no Spot."""
    chat = service(UNORDERED + "spotrelay: {max_price: 50%}\n")
    found = costs(chat, "us-east-1", ON_DEMAND, spot(g6=(0.5, 0.4), g5=(0.7, 0.6)), NOW)
    (month,) = found.months
    assert month.spot_usd == pytest.approx(2 * HOURS_OF_MONTH * 0.4)
    assert month.spot_dearest_usd == pytest.approx(2 * HOURS_OF_MONTH * 0.6)
    (month,) = costs(chat, "us-east-1", ON_DEMAND, spot(g6=(0.5,)), NOW).months
    assert (month.spot_usd, month.spot_dearest_usd) == (None, None)


def test_only_pools_of_the_file_count(service: Loader) -> None:
    """Each alternative in its own zones, and none on Spot if the file wants none."""
    ways = "any_of: [{accelerators: L4, zone: us-east-1b}, {accelerators: A10G, region: us-east-1}]"
    text = UNORDERED.replace("accelerators: {L4, A10G}", ways)
    prices = spot(g6=(0.1, 0.3), g5=(0.4, 0.5))
    found = costs(in_region(service(text), "us-east-1"), "us-east-1", ON_DEMAND, prices, NOW)
    assert found.pools == 3
    assert found.instance_types["g6.xlarge"].spot_usd == {"us-east-1b": 0.3}
    plain = service(UNORDERED.replace("  ports", "  use_spot: false\n  ports"))
    assert costs(plain, "us-east-1", ON_DEMAND, prices, NOW).pools == 0


def test_what_has_no_price_costs_an_unknown_amount(service: Loader) -> None:
    """It isn't free."""
    (month,) = costs(service(UNORDERED), "us-east-1", {"g6.xlarge": None}, {}, NOW).months
    assert (month.on_demand_usd, month.spot_usd) == (None, None)
    base = service(UNORDERED + "spotrelay: {base_on_demand: 1}\n")
    (month,) = costs(base, "us-east-1", {}, spot(g6=(0.5,)), NOW).months
    assert (month.on_demand_usd, month.spot_usd) == (None, None)


def test_each_type_says_what_it_satisfies(service: Loader) -> None:
    """Of several alternatives every one; a type that is named, that it is."""
    ways = "any_of: [{accelerators: L4, zone: us-east-1b}, {instance_type: g6.xlarge}, {accelerators: T4}]"
    chat = service(UNORDERED.replace("accelerators: {L4, A10G}", ways))
    why = {type_.name: type_.why for type_ in describe(chat).instance_types}
    assert why == {
        "g6.xlarge": ("L4:1, cpus 4, in us-east-1b", "named in instance_types, cpus 4"),
        "g4dn.xlarge": ("T4:1, cpus 4",),
    }


def test_quotas_suffice_for_the_most_replicas(service: Loader) -> None:
    """As many as the load may ask for; only Spot has what is beyond them."""
    policy = "{min_replicas: 1, max_replicas: 4, target_qps_per_replica: 1, num_overprovision: 2}"
    text = UNORDERED.replace("  replicas: 2\n", f"  replica_policy: {policy}\n")
    by_option = {q.purchase_option: [one.vcpus for one in q.any_of] for q in describe(service(text)).quotas}
    assert by_option == {"spot": [24], "on-demand": [16]}


def test_who_shares_an_instance_pays_a_part_of_it(service: Loader) -> None:
    """Four on one instance cost as much as the instance, and two have none of their own with four GPUs."""
    text = GOOD.replace("{A10G, L4, L40S}", "A10G").replace("replicas: 2", "replicas: 4")
    text = text.replace("serve.py", "serve.py --port $PORT")
    shared = service(f"{text}\nspotrelay: {{replicas_per_instance: auto}}\n")
    found = costs(shared, "us-east-1", {"g5.xlarge": 2.0, "g5.12xlarge": 4.0}, {}, NOW)
    (month,) = found.months
    assert month.on_demand_usd == 4.0 * HOURS_OF_MONTH
    assert found.instance_types["g5.12xlarge"].on_demand_usd == 4.0
    two = service(
        f"{text.replace('replicas: 4', 'replicas: 2')}\nspotrelay: {{replicas_per_instance: auto}}\n"
    )
    (month,) = costs(two, "us-east-1", {"g5.xlarge": 2.0, "g5.12xlarge": 4.0}, {}, NOW).months
    assert month.on_demand_usd == 2 * 2.0 * HOURS_OF_MONTH

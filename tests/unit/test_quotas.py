"""Which quota counts an instance type."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotrelay.plane.core.pools import OPTIONS
from spotrelay.plane.core.quotas import Quota, quota_for, shortages
from tests.examples import demo_spec


@pytest.mark.parametrize(
    ("instance_type", "spot", "on_demand"),
    [
        ("g5.xlarge", "L-3819A6DF", "L-DB2E81BA"),
        ("g6e.48xlarge", "L-3819A6DF", "L-DB2E81BA"),
        ("gr6.4xlarge", "L-3819A6DF", "L-DB2E81BA"),
        ("vt1.3xlarge", "L-3819A6DF", "L-DB2E81BA"),
        ("p4d.24xlarge", "L-7212CCBC", "L-417A185B"),
        ("p5.48xlarge", "L-C4BD4855", "L-417A185B"),
        ("p6-b200.48xlarge", None, "L-417A185B"),
        ("inf2.xlarge", "L-B5D1601B", "L-1945791B"),
        ("trn1.2xlarge", "L-6B0D517C", "L-2C3B7624"),
        ("dl1.24xlarge", "L-85EED4F7", "L-6E869C2A"),
        ("c7i.large", "L-34B43A08", "L-1216C47A"),
        ("im4gn.large", "L-34B43A08", "L-1216C47A"),
        ("hpc7a.96xlarge", None, "L-F7808C92"),
        ("u-6tb1.metal", None, None),
    ],
)
def test_the_quota_of_a_type(instance_type: str, spot: str | None, on_demand: str | None) -> None:
    """By its family, and on Spot by the generation of P; none where AWS's list names none."""
    codes = [quota.code if (quota := quota_for(instance_type, o)) else None for o in OPTIONS.values()]
    assert codes == [spot, on_demand]


VCPUS = {"g5.xlarge": 4, "g5.2xlarge": 8, "g6.xlarge": 4}
SPOT_G, ON_DEMAND_G = "L-3819A6DF", "L-DB2E81BA"


def short(
    values: dict[str, float], vcpus: dict[str, int] | None = None, **facts: object
) -> dict[str, tuple[float, int]]:
    """The quotas that are too small for three replicas: what there is, and what is needed."""

    def value(quota: Quota) -> float:
        return values.get(quota.code, 0)

    spec = replace(demo_spec(replicas=3), **facts)  # type: ignore[arg-type]  # any field of it
    return {s.quota.code: (s.vcpus, s.needed) for s in shortages(spec, vcpus or VCPUS, value)}


def test_a_new_account_lacks_both_quotas() -> None:
    """Each is 0 there, and each must hold all replicas, of the smallest type: on-demand stands in for all."""
    assert short({}) == {SPOT_G: (0, 12), ON_DEMAND_G: (0, 12)}
    assert short({SPOT_G: 12, ON_DEMAND_G: 11}) == {ON_DEMAND_G: (11, 12)}
    assert short({SPOT_G: 12, ON_DEMAND_G: 12}) == {}


def test_a_spare_replica_is_one_on_spot() -> None:
    """What EC2 takes back counts beside its replacement, which no on-demand instance ever does."""
    values = {SPOT_G: 12, ON_DEMAND_G: 12}
    spec = demo_spec(replicas=3)
    (found,) = shortages(spec, VCPUS, lambda quota: values[quota.code], spare=1)
    assert (found.quota.code, found.needed) == (SPOT_G, 16)
    assert shortages(spec, VCPUS, lambda quota: {**values, SPOT_G: 16}[quota.code], spare=1) == []


def test_only_what_a_service_buys_counts() -> None:
    """Without Spot its quota doesn't matter, and without fallback on-demand's does for the base alone."""
    assert short({}, use_spot=False) == {ON_DEMAND_G: (0, 12)}
    assert short({}, on_demand_fallback=False) == {SPOT_G: (0, 12)}
    assert short({}, on_demand_fallback=False, base_on_demand=1) == {SPOT_G: (0, 8), ON_DEMAND_G: (0, 4)}


def test_standbys_count_beside_the_base() -> None:
    """They take of the quota while they run: all of them at most, beside what is always on-demand."""
    assert short({SPOT_G: 12}, standby=3) == {ON_DEMAND_G: (0, 12)}
    assert short({SPOT_G: 12}, standby=4) == {ON_DEMAND_G: (0, 16)}
    assert short({SPOT_G: 12}, standby=3, base_on_demand=1) == {ON_DEMAND_G: (0, 16)}


def test_families_make_up_for_each_other() -> None:
    """What one quota lacks, another may have; and what no known quota counts may always be launched."""
    both = {**VCPUS, "inf2.xlarge": 4}
    enough = {SPOT_G: 4, "L-B5D1601B": 8, ON_DEMAND_G: 12.0}
    assert short(enough, both) == {}
    assert set(short({**enough, SPOT_G: 3}, both)) == {SPOT_G, "L-B5D1601B"}
    assert set(short({}, {"p6-b200.48xlarge": 192})) == {"L-417A185B"}


def test_a_shortage_says_what_to_do() -> None:
    """Which quota, what it is, what is needed, and where to ask for it."""
    (found, _) = shortages(demo_spec(replicas=3), VCPUS, lambda _: 8)
    assert str(found) == (
        "All G and VT Spot Instance Requests (L-3819A6DF) is 8 vCPU, and the service needs 12 at least"
    )
    assert found.remedy("eu-west-1") == (
        "ask for 12 or more:"
        " https://eu-west-1.console.aws.amazon.com/servicequotas/home/services/ec2/quotas/L-3819A6DF"
    )

"""Which quota counts an instance type."""

from __future__ import annotations

import pytest

from spotrelay.model import PurchaseOption
from spotrelay.quotas import quota_for


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
    codes = [quota.code if (quota := quota_for(instance_type, o)) else None for o in PurchaseOption]
    assert codes == [spot, on_demand]

"""What an instance type has beside its accelerators, and where AWS offers it: what a choice needs to know.

`core.instance_types` has what requirements are held against; functions read that much of EC2's answers at run
time, and need none of this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Host:
    """As EC2 describes it."""

    share: float
    """Of one GPU; 1 where GPUs are whole."""
    local_disk_gb: int
    """NVMe that belongs to the instance; 0: it has none."""
    network_gbps: float
    """What its network sustains, all interfaces together, Gbit/s."""
    network_burst_gbps: float
    """What AWS advertises: `Up to 10 Gigabit`."""
    efa_interfaces: int
    """Elastic Fabric Adapters; 0: it can't have one."""
    ebs_mb_s: float
    """What its EBS volumes sustain together, MB/s."""
    ebs_burst_mb_s: float
    """For half an hour at least once a day."""


ADVERTISED = re.compile(r"(?:Up to )?(?:([0-9]+)x )?([0-9.]+) Gigabit")
"""EC2's `NetworkPerformance`, such as `Up to 10 Gigabit` or `4x 100 Gigabit`."""

COLUMNS = tuple(field.name for field in fields(Host))


def hosted(answer: Mapping[str, Any]) -> Host:
    """The same from its entry in DescribeInstanceTypes' answer.

    Network cards together may promise more than the instance gets (g6e.48xlarge: 1,600 of 400 Gbit/s).
    """
    network = answer["NetworkInfo"]
    written = ADVERTISED.fullmatch(network["NetworkPerformance"])
    advertised = float(written[2]) * int(written[1] or 1) if written else 0.0
    sustained = sum(float(card.get("BaselineBandwidthInGbps", 0)) for card in network.get("NetworkCards", ()))
    disk = answer["EbsInfo"].get("EbsOptimizedInfo", {})
    gpus = answer.get("GpuInfo", {}).get("Gpus", ())
    return Host(
        share=float(gpus[0].get("GpuPartitionSize", 1.0)) if gpus else 1.0,
        local_disk_gb=int(answer.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0)),
        network_gbps=min(sustained, advertised),
        network_burst_gbps=advertised,
        efa_interfaces=int(network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)),
        ebs_mb_s=float(disk.get("BaselineThroughputInMBps", 0)),
        ebs_burst_mb_s=float(disk.get("MaximumThroughputInMBps", 0)),
    )

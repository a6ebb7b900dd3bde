"""What EC2 offers: instance types with AWS's own data, which zone has which, and what they cost.

The data are the answers of DescribeInstanceTypes and DescribeInstanceTypeOfferings that moto carries
(Apache-2.0). They name no prices, so those of GPU instances are a table and the rest an estimate.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lab.local.environment import REGION, ZONES
from lab.market import PoolState
from spotrelay.core.pools import CapacityPool

SPOT_CAPACITY = (3, 8)
ON_DEMAND_CAPACITY = 20
"""Instances per pool: Spot is scarce and differs by pool, from the lower to the higher number; on-demand is
there, as it is not always on AWS."""

ON_DEMAND_USD = {
    "g4dn.xlarge": 0.526,
    "g4dn.2xlarge": 0.752,
    "g4dn.4xlarge": 1.204,
    "g4dn.8xlarge": 2.176,
    "g4dn.12xlarge": 3.912,
    "g4dn.16xlarge": 4.352,
    "g5.xlarge": 1.006,
    "g5.2xlarge": 1.212,
    "g5.4xlarge": 1.624,
    "g5.8xlarge": 2.448,
    "g5.12xlarge": 5.672,
    "g5.16xlarge": 4.096,
    "g5.24xlarge": 8.144,
    "g5.48xlarge": 16.288,
    "g6.xlarge": 0.805,
    "g6.2xlarge": 0.978,
    "g6.4xlarge": 1.323,
    "g6.8xlarge": 2.014,
    "g6.12xlarge": 4.602,
    "g6.16xlarge": 3.397,
    "g6.24xlarge": 6.675,
    "g6.48xlarge": 13.350,
    "gr6.4xlarge": 1.539,
    "gr6.8xlarge": 2.446,
    "g6e.xlarge": 1.861,
    "g6e.2xlarge": 2.242,
    "g6e.4xlarge": 3.004,
    "g6e.8xlarge": 4.529,
    "g6e.12xlarge": 10.493,
    "g6e.16xlarge": 7.577,
    "g6e.24xlarge": 15.066,
    "g6e.48xlarge": 30.131,
}
"""List prices in USD per hour, Linux, us-east-1, 2025. Good enough to rank pools, not to plan a budget."""

USD_PER_VCPU = 0.048
USD_PER_GPU_GIB = 0.03
"""The estimate for every other type: what an m5 costs per vCPU, and roughly what GPU memory adds."""

_RESOURCES = (
    Path(next(iter(getattr(find_spec("moto"), "submodule_search_locations", [])))) / "ec2" / "resources"
)


def _load(path: Path) -> Any:
    with gzip.open(path) as file:
        return json.load(file)


@cache
def instance_types() -> dict[str, dict[str, Any]]:
    """AWS's description of every type that one of our zones offers, by name."""
    described = _load(_RESOURCES / "instance_types.json.gz")
    offered = {name for name, _ in offerings()}
    return {name: record for name, record in described.items() if name in offered}


@cache
def offerings() -> list[tuple[str, str]]:
    """Instance type and zone of every offering in our zones."""
    rows = _load(_RESOURCES / "instance_type_offerings" / "availability-zone" / f"{REGION}.json.gz")
    return [(row["InstanceType"], row["Location"]) for row in rows if row["Location"] in ZONES]


def gpu_count(instance_type: str) -> int:
    """How many whole GPUs it has."""
    gpus = instance_types()[instance_type].get("GpuInfo", {}).get("Gpus", ())
    return sum(int(gpu.get("Count", 0)) for gpu in gpus)


def on_demand_usd(instance_type: str) -> float:
    """USD per hour."""
    if instance_type in ON_DEMAND_USD:
        return ON_DEMAND_USD[instance_type]
    record = instance_types()[instance_type]
    gpu_mib = record.get("GpuInfo", {}).get("TotalGpuMemoryInMiB", 0)
    vcpus = record["VCpuInfo"]["DefaultVCpus"]
    return round(float(USD_PER_VCPU * vcpus + USD_PER_GPU_GIB * gpu_mib / 1024), 4)


def pools(seed: int = 0) -> list[PoolState]:
    """The market's pools at the start: each type in each zone that offers it."""
    known = instance_types()
    return [
        PoolState(
            CapacityPool(REGION, zone, name),
            on_demand_usd(name),
            _spot_capacity(seed, zone, name),
            ON_DEMAND_CAPACITY,
        )
        for name, zone in sorted(offerings())
        if name in known
    ]


def _spot_capacity(seed: int, zone: str, instance_type: str) -> int:
    low, high = SPOT_CAPACITY
    digest = hashlib.blake2b(f"{seed}|{zone}|{instance_type}".encode(), digest_size=4).digest()
    return low + int.from_bytes(digest) % (high - low + 1)

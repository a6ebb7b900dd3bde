"""What EC2 offers: instance types with AWS's own data, which zone has which, and what they cost.

The data are the answers of DescribeInstanceTypes and DescribeInstanceTypeOfferings that moto carries
(Apache-2.0). They name no prices: those of GPU instances are the catalog's copy of the list prices, and the
rest is an estimate.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lab.local.environment import REGION, ZONES
from lab.market import PoolState
from spotrelay.file.catalog import list_prices
from spotrelay.plane.core.pools import CapacityPool

SPOT_CAPACITY = (3, 8)
ON_DEMAND_CAPACITY = 20
"""Instances per pool: Spot is scarce and differs by pool, from the lower to the higher number; on-demand is
there, as it is not always on AWS."""

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
    """How many GPUs it shows: EC2 counts a share of one as none, and nvidia-smi lists it."""
    gpus = instance_types()[instance_type].get("GpuInfo", {}).get("Gpus", ())
    return sum(max(int(gpu.get("Count", 0)), 1) for gpu in gpus)


def on_demand_usd(instance_type: str) -> float:
    """USD per hour."""
    listed = list_prices().usd.get(instance_type)
    if listed is not None:
        return listed
    record = instance_types()[instance_type]
    gpu_mib = record.get("GpuInfo", {}).get("TotalGpuMemoryInMiB", 0)
    vcpus = record["VCpuInfo"]["DefaultVCpus"]
    return round(float(USD_PER_VCPU * vcpus + USD_PER_GPU_GIB * gpu_mib / 1024), 4)


def pools(seed: int = 0, prices: Mapping[str, float] | None = None) -> list[PoolState]:
    """The market's pools at the start: each type in each zone that offers it, at these on-demand prices."""
    known, told = instance_types(), prices or {}
    return [
        PoolState(
            CapacityPool(REGION, zone, name),
            told.get(name) or on_demand_usd(name),
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

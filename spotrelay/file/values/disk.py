"""The disks of an instance: what a tier of the root volume buys, and where the host's own are."""

from __future__ import annotations

from dataclasses import dataclass

from spotrelay.plane.core.timing import HOURS_OF_MONTH

INSTANCE_STORE = "/opt/dlami/nvme"
"""Where the default image mounts the disks of the host, which are empty after each stop."""


@dataclass(frozen=True, slots=True)
class Disk:
    """An encrypted gp3 volume."""

    size_gib: int
    iops: int
    throughput_mibps: int
    initialization_mibps: int | None = None
    """How fast EC2 loads the image's snapshot into it; None: when its blocks are first read."""

    @property
    def usd_per_hour(self) -> float:
        """What it costs, at the list price of us-east-1 on 2026-11-22 (https://aws.amazon.com/ebs/pricing/).

        0.08 USD a month for each GiB, 0.005 for each IOPS beyond 3000, 0.04 for each MiB/s beyond 125. Other
        regions are up to a half dearer. Loading a snapshot is charged once, and isn't in it.
        """
        month = 0.08 * self.size_gib + 0.005 * (self.iops - 3000) + 0.04 * (self.throughput_mibps - 125)
        return round(month / HOURS_OF_MONTH, 6)


# A cold start reads the model from the disk once, in large pieces from front to end. That is bound by
# throughput; IOPS are bought only as far as gp3 asks for them (at most 0.25 MiB/s per provisioned IOPS).
TIERS = {
    "low": (3000, 125),  # what gp3 includes, at no extra charge: 16 GB take over two minutes
    "medium": (
        3000,
        250,
    ),  # twice that, for little; more than a small instance sustains (g5.2xlarge: 106 MB/s)
    "high": (3000, 500),  # about what a g5.2xlarge or g6.2xlarge reads in bursts (437 and 625 MB/s)
    "best": (4000, 1000),  # g6.4xlarge, g6e.4xlarge and larger can use all of it
    "ultra": (8000, 2000),  # gp3's limit since 2025; of the types with one GPU only the largest can use it
}
"""IOPS and MiB/s, the slowest first."""


def disk(tier: str, size_gib: int, initialization_mibps: int | None = None) -> Disk:
    """The volume for a tier of the service file."""
    iops, throughput_mibps = TIERS[tier]
    return Disk(size_gib, iops, throughput_mibps, initialization_mibps)

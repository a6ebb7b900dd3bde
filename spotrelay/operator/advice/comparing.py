"""One on-demand instance beside a group of Spot instances: what both have, what they cost, what is lost.

The group is for training that can be split: its instances exchange over the network what the GPUs of one
instance exchange over NVLink. All of them stop when one is taken, and go on from the last checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass

from spotrelay.file import catalog
from spotrelay.operator.advice.interruptions import SPAN, Band
from spotrelay.plane.core.instance_types import InstanceType

SPAN_H = SPAN.total_seconds() / 3600


@dataclass(frozen=True, slots=True)
class Side:
    """So many instances of a type, and what one of them costs in USD an hour."""

    type: InstanceType
    count: int
    usd: float | None
    """None: unknown."""

    def __str__(self) -> str:
        return self.type.name if self.count == 1 else f"{self.type.name} x {self.count}"

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.count * self.type.accelerator_count

    @property
    def gpu_bytes(self) -> float:
        """Memory of all of them."""
        return float(self.gpus * catalog.memory_bytes(self.type))

    @property
    def bandwidth_gb_s(self) -> float | None:
        """Memory bandwidth of all of them; None where unknown."""
        each = catalog.all_chips()[self.type.accelerator].bandwidth
        return each and each * self.gpus

    def tflops(self, precision: str) -> float | None:
        """Dense, of all of them; None where unknown, or without the precision."""
        each = catalog.all_chips()[self.type.accelerator].rate(precision)
        return each and each * self.gpus

    @property
    def link(self) -> str:
        """How its GPUs are connected."""
        chip = catalog.all_chips()[self.type.accelerator]
        inside = f"NVLink {chip.nvlink:g} GB/s" if chip.nvlink else "PCIe"
        network = f"network {catalog.host_of(self.type.name).network_gbps:g} Gbit/s"
        if self.count == 1:
            return inside if self.gpus > 1 else "one GPU"
        return network if self.type.accelerator_count == 1 else f"{inside}, then {network}"

    @property
    def hourly(self) -> float | None:
        """USD for all of them."""
        return self.usd and self.usd * self.count


@dataclass(frozen=True, slots=True)
class Loss:
    """What interruptions cost the group in some hours."""

    least: float
    """How often one of its instances is taken, at least."""
    most: float
    hours_lost: float
    """Of the whole group, at most: work since the last checkpoint, and the start."""


def loss(band: Band, count: int, hours: float, checkpoint_min: float, restart_min: float) -> Loss:
    """By the advisor's range for a month, as if every instance were taken as often as its kind.

    On average half of the time between checkpoints is done again.
    """
    share = count * hours / SPAN_H
    most = band.most * share
    return Loss(band.least * share, most, most * (checkpoint_min / 2 + restart_min) / 60)

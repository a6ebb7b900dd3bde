"""EC2's vCPU quotas: which one counts which instance types.

Each `QuotaKind` is counted apart, and each region has its own. New accounts have 0 of both for everything
that has an accelerator, and a few vCPU for the standard families:
docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html, as of 2026-11-22, has the codes, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil

from spotrelay.plane.core.pools import PurchaseOption, QuotaKind, quota_of
from spotrelay.plane.core.spec import OnUpdate, ServiceSettings


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota by its code in Service Quotas, and its name there."""

    code: str
    name: str
    service: str = "ec2"
    """As Service Quotas calls it."""

    def __str__(self) -> str:
        return f"{self.name} ({self.code})"

    def page(self, region: str) -> str:
        """Where to see it and to ask for more."""
        return f"{page(region, self.service)}/{self.code}"


def page(region: str, service: str = "ec2") -> str:
    """Where all quotas of a service are."""
    return f"https://{region}.console.aws.amazon.com/servicequotas/home/services/{service}/quotas"


CONCURRENCY = Quota("L-B99A9384", "Concurrent executions", "lambda")
"""Of all functions of an account in a region, 1,000; new accounts may have 10, which AWS raises with use."""

LEAST_CONCURRENCY = 22
"""Five batches of signals, five ticks, a prober for each of those, five looks at who leaves and a survey are
21 at once; a storm of interruptions must not be what fills the quota up, nor have others' functions wait."""

LEAST_GIVEN = 10
"""What a new account may have of `CONCURRENCY`."""


def services_carried(concurrency: float) -> int:
    """How many services may change at the same time at this `CONCURRENCY`; others wait for them.

    Each takes a tick, and its prober or, while it is removed, the function that waits for that. Four are for
    what all share: a batch of signals, a prober that it asks, a look at who leaves, and a survey.
    """
    return max(0, int(concurrency - 4) // 2)


_STANDARD = "Standard (A, C, D, H, I, M, R, T, Z)"

_SPOT = {
    "dl": Quota("L-85EED4F7", "All DL Spot Instance Requests"),
    "f": Quota("L-88CF9481", "All F Spot Instance Requests"),
    "g": Quota("L-3819A6DF", "All G and VT Spot Instance Requests"),
    "inf": Quota("L-B5D1601B", "All Inf Spot Instance Requests"),
    "p": Quota("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests"),
    "p5": Quota("L-C4BD4855", "All P5 Spot Instance Requests"),
    "standard": Quota("L-34B43A08", f"All {_STANDARD} Spot Instance Requests"),
    "trn": Quota("L-6B0D517C", "All Trn Spot Instance Requests"),
    "x": Quota("L-E3A00192", "All X Spot Instance Requests"),
}
_ON_DEMAND = {
    "dl": Quota("L-6E869C2A", "Running On-Demand DL instances"),
    "f": Quota("L-74FC7D96", "Running On-Demand F instances"),
    "g": Quota("L-DB2E81BA", "Running On-Demand G and VT instances"),
    "hpc": Quota("L-F7808C92", "Running On-Demand HPC instances"),
    "inf": Quota("L-1945791B", "Running On-Demand Inf instances"),
    "p": Quota("L-417A185B", "Running On-Demand P instances"),
    "standard": Quota("L-1216C47A", f"Running On-Demand {_STANDARD} instances"),
    "trn": Quota("L-2C3B7624", "Running On-Demand Trn instances"),
    "x": Quota("L-7295265B", "Running On-Demand X instances"),
}

_OF_KIND = {QuotaKind.SPOT_REQUESTS: _SPOT, QuotaKind.RUNNING_ON_DEMAND: _ON_DEMAND}


def quota_for(instance_type: str, option: PurchaseOption) -> Quota | None:
    """The quota that counts instances of the type; None for a type of which AWS doesn't say it."""
    group = quota_of(instance_type)
    if group == "p" and option.quota_kind is QuotaKind.SPOT_REQUESTS:
        # Spot alone has two for P, and the newest generations are named in neither.
        generation = re.match(r"p(\d+)", instance_type)
        number = int(generation[1]) if generation else 0
        group = "p" if number < 5 else "p5" if number == 5 else ""
    return _OF_KIND[option.quota_kind].get(group)


@dataclass(frozen=True, slots=True)
class Need:
    """What all replicas take of a quota, if all are of the smallest type that it counts."""

    quota: Quota
    option: PurchaseOption
    each: int
    """vCPU of that type, or a replica's part of them."""
    vcpus: int


def needs(service: ServiceSettings, vcpus: Mapping[str, int]) -> list[list[Need]]:
    """What the service takes of each way of buying: of the quotas of one list any, or several together.

    `vcpus` are those of each eligible type. Of types that no known quota counts none is needed.
    """
    regular, steady = service.purchase_option, service.steady_option
    # While all change at once, as many again are there.
    versions = 2 if service.on_update is OnUpdate.BLUE_GREEN else 1
    # Standbys count while they run. Where one is slow, another is resumed: in the end all of them run.
    # Nothing stands in for what is there beyond the replicas.
    most = max(service.replicas - service.overprovision, service.base_on_demand + service.standby)
    counts = {regular: service.replicas - service.base_on_demand}
    # Where nothing is surer, all are bought that way.
    counts[steady] = most if service.on_demand_fallback or regular is steady else service.base_on_demand
    found: list[list[Need]] = []
    for option, count in counts.items():
        smallest: dict[Quota | None, int] = {}
        for name, size in vcpus.items():
            quota = quota_for(name, option)
            size = ceil(size / service.hosted_by(name))
            smallest[quota] = min(size, smallest.get(quota, size))
        if count > 0 and smallest and None not in smallest:
            total = versions * count
            found.append(
                [Need(quota, option, size, total * size) for quota, size in smallest.items() if quota]
            )
    return found


@dataclass(frozen=True, slots=True)
class Shortage:
    """A quota that is too small for a service, taken alone: others use it, too."""

    quota: Quota
    option: PurchaseOption
    vcpus: float
    """What the account has."""
    needed: int
    """What all replicas need, of the smallest eligible type that it counts; of both versions, if need be."""

    def remedy(self, region: str) -> str:
        """Where to ask for how much."""
        return f"ask for {self.needed} or more: {self.quota.page(region)}"

    def __str__(self) -> str:
        return f"{self.quota} is {self.vcpus:.0f} vCPU, and the service needs {self.needed} at least"


def shortages(
    service: ServiceSettings,
    vcpus: Mapping[str, int],
    value_of: Callable[[Quota], float],
    *,
    spare: int = 0,
) -> list[Shortage]:
    """The quotas for want of which the service can't have all of its replicas, one way or the other.

    `vcpus` are those of each eligible type. Where several families are eligible, it takes all of their quotas
    together to be too small; a type that no known quota counts may always be launched. Of what EC2 may take
    back it is to have so many `spare`, too: one counts until its end, beside its replacement.
    """
    found: list[Shortage] = []
    for wanted in needs(service, vcpus):
        beyond = spare if wanted[0].option.is_interruptible else 0
        values = {need.quota: value_of(need.quota) for need in wanted}
        count = wanted[0].vcpus // wanted[0].each + beyond
        if sum(values[need.quota] // need.each for need in wanted) < count:
            found += [Shortage(n.quota, n.option, values[n.quota], n.vcpus + beyond * n.each) for n in wanted]
    return found

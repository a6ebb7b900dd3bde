"""How many vCPUs the account may run, and what is refused beyond that.

The value of each quota can be set; an account of ours begins with more than tests need, a real one with 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lab.local.catalog import instance_types
from lab.local.instances import LocalInstance
from spotrelay.plane.core.pools import Offering, PurchaseOption
from spotrelay.plane.core.quotas import CONCURRENCY, Quota, quota_for

PLENTY = 100_000.0
DEFAULT_CONCURRENCY = 1000.0
"""Whatever an account may have: new ones may have 10."""


class Quotas:
    """The account's quotas."""

    def __init__(self, limit_concurrency: Callable[[int], object]) -> None:
        """`limit_concurrency`: what holds Lambda to its quota."""
        self._set: dict[str, float] = {}
        self._limit_concurrency = limit_concurrency

    def set(self, code: str, value: float | None) -> None:
        """Give a quota another value; None: it is as if nobody had ever changed it."""
        if value is None:
            self._set.pop(code, None)
        else:
            self._set[code] = value
        if code == CONCURRENCY.code:
            self._limit_concurrency(int(DEFAULT_CONCURRENCY if value is None else value))

    def was_set(self, quota: Quota) -> bool:
        """Whether its value was ever changed."""
        return quota.code in self._set

    def value(self, quota: Quota) -> float:
        """What it is now."""
        return self._set.get(quota.code, PLENTY)

    def room_for(self, offering: Offering, instances: Iterable[LocalInstance]) -> int:
        """How many more of it may be launched beside the instances that there are."""
        quota = _quota_of(offering)
        if quota is None:
            return int(PLENTY)
        used = sum(
            _vcpus(i.instance_type)
            for i in instances
            if i.has_place and not i.state.is_over and _quota_of(i.offering) == quota
        )
        return max(int((self.value(quota) - used) // _vcpus(offering.pool.instance_type)), 0)

    def refusal(self, offering: Offering) -> tuple[str, str]:
        """EC2's code and words where there is no room."""
        if offering.purchase_option is PurchaseOption.SPOT:
            return "MaxSpotInstanceCountExceeded", "Max spot instance count exceeded"
        quota = _quota_of(offering)
        return (
            "VcpuLimitExceeded",
            "You have requested more vCPU capacity than your current vCPU limit of"
            f" {self.value(quota) if quota else 0:.0f} allows for the instance bucket that the specified"
            " instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request"
            " an adjustment to this limit.",
        )


def _vcpus(instance_type: str) -> int:
    return int(instance_types()[instance_type]["VCpuInfo"]["DefaultVCpus"])


def _quota_of(offering: Offering) -> Quota | None:
    return quota_for(offering.pool.instance_type, offering.purchase_option)

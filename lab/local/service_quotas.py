"""Service Quotas: how many vCPUs the account may run, by AWS's own codes, and what is refused beyond that.

The value of each can be set; an account of ours begins with more than any test needs, a real one with 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lab.local.catalog import instance_types
from lab.local.context import Context, Handler, Result
from lab.local.instances import LocalInstance
from lab.local.wire import AwsError
from spotrelay.core.pools import Offering, PurchaseOption
from spotrelay.core.quotas import CONCURRENCY, Quota, quota_for

PLENTY = 100_000.0
DEFAULT_CONCURRENCY = 1000.0
"""Whatever an account may have: new ones may have 10."""


class ServiceQuotas:
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

    @property
    def handlers(self) -> dict[str, Handler]:
        """By action."""
        return {
            "GetServiceQuota": self._get_service_quota,
            "GetAWSDefaultServiceQuota": self._get_aws_default_service_quota,
        }

    def _get_service_quota(self, context: Context) -> Result:
        """One of EC2's vCPU quotas, if its value was ever changed; Lambda's concurrency never is, here."""
        context.require("servicequotas:GetServiceQuota")
        quota = _asked(context)
        if quota.code not in self._set:
            raise AwsError(
                "NoSuchResourceException",
                "The request failed because the specified quota does not exist or has no applied value.",
            )
        return _shown(quota, self.value(quota))

    def _get_aws_default_service_quota(self, context: Context) -> Result:
        """What it was before anybody asked for more."""
        context.require("servicequotas:GetAWSDefaultServiceQuota")
        quota = _asked(context)
        return _shown(quota, DEFAULT_CONCURRENCY if quota == CONCURRENCY else PLENTY)


def _asked(context: Context) -> Quota:
    quota = _BY_CODE.get(context.params["QuotaCode"])
    if quota is None or context.params["ServiceCode"] != quota.service:
        raise AwsError(
            "NoSuchResourceException",
            "The request failed because the specified service or quota does not exist.",
        )
    return quota


def _shown(quota: Quota, value: float) -> Result:
    return {
        "Quota": {
            "ServiceCode": quota.service,
            "QuotaCode": quota.code,
            "QuotaName": quota.name,
            "Value": value,
            "Unit": "None",
            "Adjustable": True,
            "GlobalQuota": False,
        }
    }


def _vcpus(instance_type: str) -> int:
    return int(instance_types()[instance_type]["VCpuInfo"]["DefaultVCpus"])


def _quota_of(offering: Offering) -> Quota | None:
    return quota_for(offering.pool.instance_type, offering.purchase_option)


_BY_CODE = {
    quota.code: quota
    for name in ("g5.xlarge", "p4d.24xlarge", "p5.48xlarge", "inf2.xlarge", "trn1.2xlarge", "m5.large")
    for option in PurchaseOption
    if (quota := quota_for(name, option))
} | {CONCURRENCY.code: CONCURRENCY}

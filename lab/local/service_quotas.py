"""The API of Service Quotas, by AWS's own codes."""

from __future__ import annotations

from lab.local.context import Context, Handler, Result
from lab.local.quotas import DEFAULT_CONCURRENCY, PLENTY
from lab.local.wire import AwsError
from spotrelay.plane.core.pools import OPTIONS
from spotrelay.plane.core.quotas import CONCURRENCY, Quota, quota_for


def get_service_quota(context: Context) -> Result:
    """One of EC2's vCPU quotas, if its value was ever changed; Lambda's concurrency never is, here."""
    context.require("servicequotas:GetServiceQuota")
    quota, quotas = _asked(context), context.cloud.quotas
    if not quotas.was_set(quota):
        raise AwsError(
            "NoSuchResourceException",
            "The request failed because the specified quota does not exist or has no applied value.",
        )
    return _shown(quota, quotas.value(quota))


def get_aws_default_service_quota(context: Context) -> Result:
    """What it was before anybody asked for more."""
    context.require("servicequotas:GetAWSDefaultServiceQuota")
    quota = _asked(context)
    return _shown(quota, DEFAULT_CONCURRENCY if quota == CONCURRENCY else PLENTY)


HANDLERS: dict[str, Handler] = {
    "GetServiceQuota": get_service_quota,
    "GetAWSDefaultServiceQuota": get_aws_default_service_quota,
}
"""By action."""


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


_BY_CODE = {
    quota.code: quota
    for name in ("g5.xlarge", "p4d.24xlarge", "p5.48xlarge", "inf2.xlarge", "trn1.2xlarge", "m5.large")
    for option in OPTIONS.values()
    if (quota := quota_for(name, option))
} | {CONCURRENCY.code: CONCURRENCY}

"""What a person can do about a launch that EC2 refuses, and will refuse until somebody does."""

from __future__ import annotations

import re

from spotrelay.plane.core.instances import RefusalKind
from spotrelay.plane.core.pools import Offering

_ACTION = re.compile(r"perform: (?P<action>\S+)")
_ENCODED = "Encoded authorization failure message"

_OF_CODES = {
    "AccountDisabled": "AWS has disabled this for the account: ask AWS Support",
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": (
        "create the role once: aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
    ),
    "CustomerKeyHasBeenRevoked": "let EC2 use the key that encrypts the disks again, or deploy with another",
    "Blocked": "AWS has blocked the account: ask AWS Support",
    # Service Quotas lists none for instant fleets; who met it was told so by Support (runs-on/runs-on#88).
    "MaxFleetCountExceeded": "AWS restricts the account: ask AWS Support to lift that; no quota does",
    "OptInRequired": "finish what EC2 asks for in its words, then nothing more is to be done",
    "PendingVerification": "wait until AWS has verified the account, some hours at most, or ask AWS Support",
    "TagPolicyViolation": (
        "an organization's tag policy refuses a tag that its words name: change resources.labels in the"
        " service file, or the policy"
    ),
}


def remedy(kind: RefusalKind, code: str, message: str, region: str, offering: Offering | None) -> str:
    """One sentence; empty for what time will mend."""
    if code in _OF_CODES:
        return _OF_CODES[code]
    if not kind.is_lasting:
        return ""
    if "kms" in f"{code} {message}".lower():
        return "let the functions' roles and EC2's service-linked roles use the key that encrypts the disks"
    match kind:
        case RefusalKind.QUOTA | RefusalKind.MARKET_LIMIT:
            from spotrelay.plane.core.quotas import page, quota_for  # no launch waits for this

            quota = quota_for(offering.pool.instance_type, offering.purchase_option) if offering else None
            if quota and code in ("MaxSpotInstanceCountExceeded", "VcpuLimitExceeded"):
                return f"ask for more of the quota {quota}, counted in vCPUs: {quota.page(region)}"
            return f"ask for more of the quota: {page(region)}"
        case RefusalKind.ADDRESSES:
            return "free addresses in the subnet, or deploy into larger ones"
        case RefusalKind.PERMISSION:
            named = _ACTION.search(message)
            allow = f"allow {named['action']}" if named else "allow it"
            which = "; aws sts decode-authorization-message says what it was" if _ENCODED in message else ""
            # No document says that the launches of a fleet carry the keys that our policies ask for.
            of_launches = "; if nothing does: -c template_conditions=false, see docs/security.md"
            return (
                f"{allow} to the functions' roles, in their policies and in whatever else limits them: a"
                f" service control policy, a permissions boundary{which}"
                f"{of_launches if named and named['action'] == 'ec2:RunInstances' else ''}"
            )
        case _:
            return "correct the service file, or the image that it names, and deploy the service again"

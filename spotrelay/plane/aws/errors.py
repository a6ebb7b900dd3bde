"""What AWS calls its errors, in our words: each code is known here and nowhere else.

ClientError   a throttling code                        → Throttled
              a cancelled transaction: a row changed   → Cancelled, a Conflict
              a cancelled transaction: throttled       → Throttled
              HTTP 5xx, a request that timed out       → Unavailable, unless it says that there is no capacity
              a function that is asleep or being made  → Unavailable
no answer     connection failed, timed out, cut short  → Unavailable
else          a permission, a protection, a bad request  → Denied, with AWS's code and words
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from botocore.exceptions import ClientError, ConnectionError, HTTPClientError, IncompleteReadError  # noqa: A004
from botocore.parsers import ResponseParserError

from spotrelay.plane.core.instances import RefusalKind
from spotrelay.plane.core.ports import Conflict, Denied, PortError, Throttled, Unavailable

INSTANCE_NOT_FOUND = "InvalidInstanceID.NotFound"
"""EC2 doesn't show the instance (any more, or yet)."""

INCORRECT_STATE = "IncorrectInstanceState"
"""The instance can't be started or stopped now: it still stops, is pending, or is being terminated."""

UNSUPPORTED_OPERATION = "UnsupportedOperation"
"""EC2 doesn't do that with such an instance, or such a request."""

TARGET_INVALID = "InvalidTarget"
"""ELBv2 can't take the target: it isn't running, or not in the target group's VPC."""

TARGET_GROUP_NOT_FOUND = "TargetGroupNotFound"
NO_SUCH_RESOURCE = "NoSuchResourceException"
"""Service Quotas has no such quota, or no value that was ever applied to it."""

CONDITION_FAILED = "ConditionalCheckFailedException"

_THROTTLED = frozenset(
    {
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "OverLimit",
        "PriorRequestNotComplete",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        # Of DescribeSpotInstanceRequests alone: too often for so many.
        "RequestResourceCountExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)

_UNCLEAR = frozenset(
    {
        "RequestTimeout",
        "RequestTimeoutException",
        # An earlier attempt of the same transaction is still at it.
        "TransactionInProgressException",
    }
)

_FUNCTION_NOT_READY = frozenset(
    {
        # A function in a VPC that wasn't called for some weeks has lost its network interfaces. The first
        # call fails and wakes it; while it is being woken, or made, it is "Pending", and a call a conflict.
        "ResourceConflictException",
        "ResourceNotReadyException",
        # The same of the user that reads the function's code. Provisioning that *failed* needs a person.
        "CodeArtifactUserDeletedException",
        "CodeArtifactUserPendingException",
    }
)

_CHANGED_SINCE_READ = frozenset({"ConditionalCheckFailed", "TransactionConflict"})
_REASONS_THROTTLED = frozenset({"ProvisionedThroughputExceeded", "ThrottlingError"})

# Karpenter's set of codes that mean "not here, not now", told apart by what helps against them.
_REFUSALS = {
    "InsufficientInstanceCapacity": RefusalKind.CAPACITY,
    "ReservationCapacityExceeded": RefusalKind.CAPACITY,
    "SpotMaxPriceTooLow": RefusalKind.CAPACITY,
    "UnfulfillableCapacity": RefusalKind.CAPACITY,
    # The zone has room for the instance, and none for its disk.
    "InsufficientVolumeCapacity": RefusalKind.CAPACITY,
    "Unsupported": RefusalKind.UNSUPPORTED,
    # What a fleet says about a type that a zone doesn't have (compiler-explorer/infra #601).
    "InvalidFleetConfiguration": RefusalKind.UNSUPPORTED,
    "InstanceLimitExceeded": RefusalKind.MARKET_LIMIT,
    "MaxFleetCountExceeded": RefusalKind.MARKET_LIMIT,
    # Spot's limits are counted in vCPUs of a group of families, as on-demand's are, and keep their old name.
    # Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/using-spot-limits.html
    "MaxSpotInstanceCountExceeded": RefusalKind.QUOTA,
    "VcpuLimitExceeded": RefusalKind.QUOTA,
    "InsufficientFreeAddressesInSubnet": RefusalKind.ADDRESSES,
    # Beyond Karpenter's: what a person must mend, by EC2's list of client errors.
    "NetworkInterfaceLimitExceeded": RefusalKind.MARKET_LIMIT,
    "MaxIOPSLimitExceeded": RefusalKind.MARKET_LIMIT,
    "VolumeLimitExceeded": RefusalKind.MARKET_LIMIT,
    "AccessDenied": RefusalKind.PERMISSION,
    "AccountDisabled": RefusalKind.PERMISSION,
    "AuthFailure": RefusalKind.PERMISSION,
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": RefusalKind.PERMISSION,
    "Blocked": RefusalKind.PERMISSION,
    "OptInRequired": RefusalKind.PERMISSION,
    "PendingVerification": RefusalKind.PERMISSION,
    "UnauthorizedOperation": RefusalKind.PERMISSION,
    "CustomerKeyHasBeenRevoked": RefusalKind.REQUEST,
    "EncryptedVolumesNotSupported": RefusalKind.REQUEST,
    "TagPolicyViolation": RefusalKind.REQUEST,
    UNSUPPORTED_OPERATION: RefusalKind.REQUEST,
    "VolumeTypeNotAvailableInZone": RefusalKind.REQUEST,
}

_BAD_REQUEST = ("Invalid", "KMS", "Malformed", "Missing", "Unknown")
"""How EC2's codes for parameters that can't be right begin: InvalidBlockDeviceMapping, MissingParameter, …"""


class Cancelled(Conflict):
    """A transaction found rows changed; `at` says which of its writes, by position."""

    def __init__(self, at: Sequence[int]) -> None:
        super().__init__(f"writes {list(at)} of the transaction found their rows changed")
        self.at = tuple(at)


def refusal_kind(code: str, words: str = "") -> RefusalKind:
    """Why EC2 launched nothing, from an error's code and words.

    *Unsupported* is for good only where the words name the zone. *The requested configuration is currently
    not supported* comes and goes, with GPU types too (aws/karpenter-provider-aws#2147, #2177).
    """
    if code == "Unsupported" and "availability zone" not in words.lower():
        return RefusalKind.CAPACITY
    if code not in _REFUSALS and code.startswith(_BAD_REQUEST):
        return RefusalKind.REQUEST
    return _REFUSALS.get(code, RefusalKind.OTHER)


def was_repeated(error: PortError) -> bool:
    """Whether botocore had made the request before by itself, without an answer that it took for one."""
    cause = error.__cause__
    if not isinstance(cause, ClientError):
        return False
    return cause.response.get("ResponseMetadata", {}).get("RetryAttempts", 0) > 0


@contextmanager
def translated() -> Iterator[None]:
    """Raise what AWS calls inside raise as a `ports.PortError` where a caller can act on it."""
    try:
        yield
    except ClientError as error:
        raise _in_our_words(error) from error
    except (ConnectionError, HTTPClientError, IncompleteReadError, ResponseParserError) as error:
        raise Unavailable(str(error)) from error


def _in_our_words(error: ClientError) -> PortError:
    code = error.response.get("Error", {}).get("Code", "")
    # The code before the status: EC2 throttles with a 503.
    if code in _THROTTLED:
        return Throttled(str(error))
    if code == "TransactionCanceledException" and (cancelled := _cancellation(error)):
        return cancelled
    if code == "TransactionConflictException":
        return Conflict(str(error))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    # EC2 calls a lack of capacity its own fault, and answers with a 500. It is an answer all the same.
    if code in _REFUSALS:
        return Denied(str(error), code)
    if code in _UNCLEAR or code in _FUNCTION_NOT_READY or status >= 500:
        return Unavailable(str(error))
    return Denied(str(error), code)


def _cancellation(error: ClientError) -> PortError | None:
    reasons = [reason.get("Code", "") for reason in error.response.get("CancellationReasons", [])]
    changed = [position for position, reason in enumerate(reasons) if reason in _CHANGED_SINCE_READ]
    # A changed row first: whoever meets it must decide anew, and not repeat the same writes later.
    if changed:
        return Cancelled(changed)
    if _REASONS_THROTTLED.intersection(reasons):
        return Throttled(str(error))
    return None

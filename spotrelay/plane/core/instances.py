"""What EC2 and the load balancer show, in their words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from spotrelay.plane.core.pools import Offering

RECLAIMED = "Server.SpotInstance"
"""How EC2's reason begins for the end of a Spot instance that it took back."""


class InstanceState(StrEnum):
    """EC2's instance states."""

    PENDING = "pending"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting-down"
    STOPPING = "stopping"
    STOPPED = "stopped"
    TERMINATED = "terminated"

    @property
    def is_alive(self) -> bool:
        """Can serve, now or soon. A stopped Spot instance is as lost to us as a terminated one."""
        return self in (InstanceState.PENDING, InstanceState.RUNNING)


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance as EC2 describes it."""

    id: str
    state: InstanceState
    offering: Offering
    launched_at: datetime
    launch_id: str | None = None
    """From its `spotrelay:launch` tag."""
    address: str | None = None
    """Its private IP address."""
    launch_template_id: str | None = None
    """What it was launched from, by EC2's own tag, which nobody else can set."""
    highest_id: int = 0
    """The highest replica ID given when it was launched, from its `spotrelay:highest-id` tag."""
    state_reason: str = ""
    """Why it is in its state, as EC2 says it: a code, a colon, and words. Empty if EC2 gives no reason."""
    version: int | None = None
    """The launch template's version that it is of, by EC2's own tag."""
    slots: int = 1
    """How many replicas it hosts, see `core.slots`; then `id` is one of its slots."""

    @property
    def was_reclaimed(self) -> bool:
        """Whether EC2 says that it took back a Spot instance."""
        return self.state_reason.startswith(RECLAIMED)

    @property
    def ended_by_ec2(self) -> bool:
        """Whether EC2 says that the cause was its own. Codes that begin with `Client.` name the user's.

        Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html
        """
        return self.state_reason.startswith("Server.")


class RefusalKind(StrEnum):
    """Why EC2 launched less than asked, by what the reason is about."""

    CAPACITY = "capacity"
    """The pool is dry, or dearer than we pay: another pool, or later."""
    UNSUPPORTED = "unsupported"
    """The type isn't offered there: never this pool."""
    MARKET_LIMIT = "market-limit"
    """As many Spot instances, fleets or reservations as the account may have: no pool of the region helps."""
    QUOTA = "quota"
    """The vCPU quota that a group of families shares is used up."""
    ADDRESSES = "addresses"
    """The subnet has no address left: another zone."""
    PERMISSION = "permission"
    """The account or the role may not."""
    REQUEST = "request"
    """The request itself can't work: an image, a volume, a key, a parameter."""
    OTHER = "other"

    @property
    def is_lasting(self) -> bool:
        """Whether it goes on until a person mends the cause."""
        return self in _LASTING

    @property
    def is_of_request(self) -> bool:
        """Whether it is about what was asked, such as an image or a key: another version may ask better."""
        return self in _OF_REQUEST


_LASTING = frozenset(
    {
        RefusalKind.MARKET_LIMIT,
        RefusalKind.QUOTA,
        RefusalKind.ADDRESSES,
        RefusalKind.PERMISSION,
        RefusalKind.REQUEST,
    }
)

# A permission may be that to use an image, a key or an instance profile.
_OF_REQUEST = frozenset({RefusalKind.PERMISSION, RefusalKind.REQUEST})


_MAX_WORDS = 300
"""Of a message, in a replica's row: more than any that people can read."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One entry of a fleet's errors, in our words; `code` and `message` are EC2's."""

    kind: RefusalKind
    code: str
    message: str
    offering: Offering | None
    remedy: str = ""
    """What a person can do about it; empty where time will mend it."""

    @property
    def words(self) -> str:
        """EC2's, for people: of a lack of capacity the code says enough."""
        # Behind a refused permission come a thousand characters that only STS can read: the log has them.
        return f"{self.code}: {self.message[:_MAX_WORDS]}" if self.kind.is_lasting else self.code


class TargetState(StrEnum):
    """What the load balancer makes of a target, in ELBv2's words."""

    INITIAL = "initial"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    UNUSED = "unused"
    DRAINING = "draining"
    UNAVAILABLE = "unavailable"
    """ELB doesn't know: an error of its own."""

    @property
    def is_in_rotation(self) -> bool:
        """Gets new requests, or would if it were healthy."""
        return self not in (TargetState.DRAINING, TargetState.UNUSED)

    @property
    def is_judged(self) -> bool:
        """The load balancer knows whether it answers."""
        return self not in (TargetState.INITIAL, TargetState.UNAVAILABLE)


@dataclass(frozen=True, slots=True)
class Target:
    """A target of a target group that may be an instance, as ELB and EC2 show it."""

    id: str
    health: TargetState
    port: int
    instance: Instance | None = None
    """None: EC2 doesn't show one of that ID in this account and region."""
    tags: Mapping[str, str] | None = None
    is_twice: bool = False
    """Whether it is registered with two ports."""

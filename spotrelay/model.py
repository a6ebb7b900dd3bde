"""What SpotRelay talks about: replicas, the pools they come from, and what EC2 and the load balancer show.

Everything here is a value: no clock, no environment, no AWS. A change is a new value, never a mutation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, ClassVar

from spotrelay.requirements import Requirements


class ReplicaState(StrEnum):
    """Where a replica is in its life; see `TRANSITIONS` for the ways between."""

    REQUESTED = "REQUESTED"
    PROVISIONING = "PROVISIONING"
    STARTING = "STARTING"
    READY = "READY"
    DRAINING = "DRAINING"
    TERMINATED = "TERMINATED"
    FAILED = "FAILED"

    @property
    def is_active(self) -> bool:
        """Counts towards the replicas that should exist."""
        return self in _ACTIVE

    @property
    def is_ended(self) -> bool:
        """Nothing more will happen to it; it is history."""
        return self in _ENDED


_ACTIVE = frozenset(
    {ReplicaState.REQUESTED, ReplicaState.PROVISIONING, ReplicaState.STARTING, ReplicaState.READY}
)
_ENDED = frozenset({ReplicaState.TERMINATED, ReplicaState.FAILED})

TRANSITIONS: Mapping[ReplicaState, frozenset[ReplicaState]] = {
    # A request that is no longer wanted ends without ever having had an instance.
    ReplicaState.REQUESTED: frozenset(
        {ReplicaState.PROVISIONING, ReplicaState.TERMINATED, ReplicaState.FAILED}
    ),
    ReplicaState.PROVISIONING: frozenset({ReplicaState.STARTING, ReplicaState.DRAINING, ReplicaState.FAILED}),
    ReplicaState.STARTING: frozenset({ReplicaState.READY, ReplicaState.DRAINING, ReplicaState.FAILED}),
    ReplicaState.READY: frozenset({ReplicaState.DRAINING}),
    ReplicaState.DRAINING: frozenset({ReplicaState.TERMINATED}),
    ReplicaState.TERMINATED: frozenset(),
    ReplicaState.FAILED: frozenset(),
}


class IllegalTransitionError(ValueError):
    """A replica was asked to go where its state doesn't lead: a bug of ours, never an input's fault."""


class PurchaseOption(StrEnum):
    """How an instance is paid for, in EC2's own words."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"


@dataclass(frozen=True, slots=True, order=True)
class CapacityPool:
    """One instance type in one zone: what EC2 takes back, and runs out of, as a whole."""

    region: str
    zone: str
    instance_type: str

    def __str__(self) -> str:
        return f"{self.zone}/{self.instance_type}"


@dataclass(frozen=True, slots=True, order=True)
class Offering:
    """A capacity pool bought one way."""

    pool: CapacityPool
    purchase_option: PurchaseOption

    def __str__(self) -> str:
        return f"{self.pool}/{self.purchase_option}"


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of a service, from the decision to have it until its instance is gone.

    `revision` counts the stored versions of the row: a write names the revision that it was decided on,
    so that of two deciders only one wins (see `ports.Store.commit`).
    """

    service: str
    id: int
    version: int
    state: ReplicaState
    reason: str
    entered: Mapping[ReplicaState, datetime]
    offering: Offering | None = None
    instance_id: str | None = None
    launch_id: str | None = None
    """The launch intent that is to bring, or brought, the instance."""
    attempts: int = 0
    """Launches that every pool refused."""
    retry_at: datetime | None = None
    """No launch before this, after a refusal."""
    purchase_option: PurchaseOption = PurchaseOption.SPOT
    """How it is to be bought; `offering` says where it was."""
    is_stand_in: bool = False
    """Bought on-demand in addition, while a Spot replica isn't ready; never replaced itself."""
    launch: str | None = None
    """How its launch was decided and what EC2 answered, for people."""
    replaces: int | None = None
    replaced_by: int | None = None
    warned_at: datetime | None = None
    """When EC2 said that it takes the instance back. Such an instance is never terminated by us."""
    unhealthy_since: datetime | None = None
    rebalance_at: datetime | None = None
    """When EC2 recommended to leave its instance."""
    revision: int = 0
    unknown: Mapping[str, Any] = field(default_factory=dict)
    """What a later version noted of it, for after a rollback. Nothing here reads it."""

    @classmethod
    def requested(
        cls,
        service: str,
        id_: int,
        version: int,
        now: datetime,
        *,
        reason: str,
        purchase_option: PurchaseOption = PurchaseOption.SPOT,
        replaces: int | None = None,
        is_stand_in: bool = False,
    ) -> Replica:
        """A replica that should exist and has no instance yet."""
        state = ReplicaState.REQUESTED
        return cls(
            service,
            id_,
            version,
            state,
            reason,
            {state: now},
            purchase_option=purchase_option,
            replaces=replaces,
            is_stand_in=is_stand_in,
        )

    def to(self, state: ReplicaState, now: datetime, reason: str | None = None, **changes: Any) -> Replica:
        """The replica in its next state.

        Raises:
            IllegalTransitionError: the state machine has no such way.
        """
        if state not in TRANSITIONS[self.state]:
            raise IllegalTransitionError(f"{self}: {self.state} does not lead to {state}")
        entered = {**self.entered, state: now}
        return replace(self, state=state, entered=entered, reason=reason or self.reason, **changes)

    @property
    def since(self) -> datetime:
        """When it entered its present state."""
        return self.entered[self.state]

    def superseded_in(self, rows: Rows) -> bool:
        """Its replacement is active already: the two of them count as one."""
        successor = rows.replicas.get(self.replaced_by or 0)
        return self.state.is_active and successor is not None and successor.is_counted

    @property
    def is_warned(self) -> bool:
        """EC2 is taking its instance back."""
        return self.warned_at is not None

    @property
    def is_counted(self) -> bool:
        """Whether it is one of those that should exist. What EC2 takes back is extra while it lasts."""
        return self.state.is_active and not self.is_warned

    @property
    def serves(self) -> bool:
        """Whether it is ready and passes its checks."""
        return self.state is ReplicaState.READY and self.unhealthy_since is None

    @property
    def stays(self) -> bool:
        """Whether it serves, and EC2 hasn't said that it takes it back."""
        return self.serves and not self.is_warned

    def __str__(self) -> str:
        return f"{self.service}#{self.id}"


@dataclass(frozen=True, slots=True)
class LaunchIntent:
    """Written before an instance is asked for, so that a crash in between leaves a trace to heal from."""

    id: str
    service: str
    replica_ids: tuple[int, ...]
    created_at: datetime
    highest_id: int = 0
    """The highest replica ID given by then. Its instances bear it, should the table get lost."""


class Cause(StrEnum):
    """What taught to leave something alone; each has its own length, see `policy.cooldowns`."""

    LOSS = "loss"
    """EC2 took an instance back."""
    FAILURE = "failure"
    """An instance never became ready."""
    REBALANCE = "rebalance"
    """EC2 recommended to leave an instance."""
    REFUSAL = "refusal"
    """EC2 had no capacity, or not at our price."""
    UNSUPPORTED = "unsupported"
    """EC2 doesn't offer it there."""
    LIMIT = "limit"
    """A quota or an address range of the account is used up."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What a cooldown is about: all offerings that agree with every part that is set."""

    region: str
    zone: str = ""
    instance_type: str = ""
    quota: str = ""
    """The letter of the families that share a vCPU quota: `g` for G and VT."""
    purchase_option: PurchaseOption | None = None

    @classmethod
    def of(cls, offering: Offering) -> Scope:
        """One offering and nothing else."""
        pool = offering.pool
        return cls(pool.region, pool.zone, pool.instance_type, purchase_option=offering.purchase_option)

    def covers(self, offering: Offering) -> bool:
        """Whether the offering is among what it is about."""
        pool = offering.pool
        return (
            self.region == pool.region
            and self.zone in ("", pool.zone)
            and self.instance_type in ("", pool.instance_type)
            and self.quota in ("", quota_of(pool.instance_type))
            and self.purchase_option in (None, offering.purchase_option)
        )

    def __str__(self) -> str:
        quota = self.quota and f"quota {self.quota.upper()}"
        parts = (self.zone, self.instance_type, quota, self.purchase_option or "")
        return "/".join(part for part in parts if part) or self.region


def quota_of(instance_type: str) -> str:
    """The group of families that the type shares its vCPU quota with, one for Spot and one for on-demand.

    EC2 names them: G and VT; P; Inf; Trn; DL; and the standard families, which have no accelerator.
    """
    letters = re.match(r"[a-z]*?(?=\d|$)", instance_type.partition(".")[0])
    family = letters.group() if letters else ""
    return "g" if family in ("g", "gr", "vt") else family


@dataclass(frozen=True, slots=True)
class Cooldown:
    """Something to leave alone for a while, and why."""

    scope: Scope
    cause: Cause
    since: datetime
    until: datetime
    reason: str
    strikes: int = 1
    """How often in a row: each time the cooldown is longer."""

    @property
    def remembered_until(self) -> datetime:
        """Until then another one counts as repeated: after as much quiet as the cooldown took."""
        return self.until + (self.until - self.since)


@dataclass(frozen=True, slots=True)
class Survey:
    """What EC2 offers to a service, as last asked: discovery, prices and placement scores.

    What could not be found out is missing from its mapping.
    """

    service: str
    asked: Requirements
    """What it answers: it says nothing about a service that asks for something else by now."""
    at: datetime
    pools: tuple[CapacityPool, ...]
    """Every eligible type in every zone that offers it."""
    on_demand_prices: Mapping[str, float] = field(default_factory=dict)
    """By instance type, USD per hour."""
    spot_prices: Mapping[CapacityPool, float] = field(default_factory=dict)
    """USD per hour."""
    scores: Mapping[str, int] = field(default_factory=dict)
    """By zone: how likely EC2 thinks that a Spot request there succeeds, 1 (hardly) to 10."""


@dataclass(frozen=True, slots=True)
class PoolMemory:
    """What is known about the pools when something is launched."""

    cooldowns: tuple[Cooldown, ...] = ()
    """Those that have ended, too, while they are remembered."""
    survey: Survey | None = None

    def cooling(self, offering: Offering, now: datetime) -> Cooldown | None:
        """The cooldown that lasts longest of those that cover the offering."""
        covering = (c for c in self.cooldowns if c.until > now and c.scope.covers(offering))
        return max(covering, key=lambda c: c.until, default=None)


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to hold new launches after replicas that never became ready."""

    failures: int = 0
    """In a row, of one version."""
    until: datetime | None = None
    version: int = 0
    fallback_until: datetime | None = None
    """The same for on-demand fallbacks: those are held only after one of them failed, and never for good."""


@dataclass(frozen=True, slots=True)
class LaunchWindow:
    """The minute that the launch-rate brake counts in: its start, and the replicas launched since."""

    since: datetime | None = None
    launched: int = 0


@dataclass(frozen=True, slots=True)
class Removal:
    """What speaks for it that a service's stack is gone. One sign alone is not enough to end its replicas."""

    told_at: datetime | None = None
    """When we were told: by the event of its parameter's deletion, or by a person."""
    absent: int = 0
    """Ticks in a row, since then, that found no document."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What the table says about one service: the whole of it, or the replicas that were asked for."""

    highest_id: int = 0
    """The highest replica ID ever given."""
    serving: int = 0
    """Replicas that stay (`Replica.stays`), as the table counts them: what a few rows can't tell."""
    is_whole: bool = False
    """Whether every replica was read."""
    removal: Removal = Removal()
    """Only where every replica was read."""
    document: ServiceSpec | None = None
    """The last runtime document that could be read; only where every replica was read."""
    replicas: Mapping[int, Replica] = field(default_factory=dict)
    """By ID, ended ones excluded."""
    intents: Mapping[str, LaunchIntent] = field(default_factory=dict)
    """Open launch intents by ID; empty where only some replicas were read."""
    backoff: Backoff = Backoff()
    window: LaunchWindow = LaunchWindow()


@dataclass(frozen=True, slots=True)
class Changes:
    """What one decision writes about one service: all of it or none.

    DynamoDB takes 100 items in a transaction; here a row costs at most 3 (one that ends: the row, its place
    in history, its instance's entry), a new highest ID 2, an intent 1. Whoever makes one keeps to `MAX_ROWS`.
    """

    MAX_ROWS: ClassVar[int] = 30
    """Created rows, updated rows and closed intents that fit, whatever becomes of them."""
    MAX_SIZE: ClassVar[int] = 100
    """Items in a transaction of DynamoDB."""

    service: str
    highest_id: tuple[int, int] | None = None
    """(as read, to be): creating rows takes it, and fails if anybody gave IDs since."""
    serving: tuple[int, int] | None = None
    """(as read, to be) of `Rows.serving`: taking out what serves takes it, and fails if the others that it
    was decided on have become fewer since. Two of the last ones never leave because each relies on the other.
    """
    create: tuple[Replica, ...] = ()
    """Rows that don't exist yet."""
    update: tuple[Replica, ...] = ()
    """Rows as they are to be, each still with the revision that it was read with."""
    open_intent: LaunchIntent | None = None
    close_intents: tuple[str, ...] = ()
    """A launch intent that is closed already is no conflict."""
    backoff: Backoff | None = None
    window: tuple[LaunchWindow, LaunchWindow] | None = None
    """(as read, to be): launching takes it, and fails if anybody launched since."""
    held: int = 0
    """Replicas that the launch-rate brake makes wait; not stored, only told."""
    is_last_resort: bool = False
    """Whether the launch may go where it would rather not; not stored."""

    @property
    def size(self) -> int:
        """Items that it writes, at most: the service's entries, intents, rows with instance and history."""
        rows = sum(3 if r.state.is_ended else 2 for r in (*self.create, *self.update))
        return 2 + rows + len(self.close_intents) + (self.open_intent is not None)

    @property
    def stored(self) -> tuple[Replica, ...]:
        """The rows as the table has them after the commit: an updated one with its revision + 1."""
        return (*self.create, *(replace(r, revision=r.revision + 1) for r in self.update))

    @property
    def to_launch(self) -> tuple[Replica, ...]:
        """The stored rows that the opened intent is for."""
        intent = self.open_intent
        return tuple(r for r in self.stored if r.id in intent.replica_ids) if intent else ()


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

    @property
    def was_reclaimed(self) -> bool:
        """Whether EC2 says that it took back a Spot instance."""
        return self.state_reason.startswith("Server.SpotInstance")

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


_LASTING = frozenset(
    {
        RefusalKind.MARKET_LIMIT,
        RefusalKind.QUOTA,
        RefusalKind.ADDRESSES,
        RefusalKind.PERMISSION,
        RefusalKind.REQUEST,
    }
)


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

    @property
    def is_in_rotation(self) -> bool:
        """Gets new requests, or would if it were healthy."""
        return self not in (TargetState.DRAINING, TargetState.UNUSED)


class SpecError(ValueError):
    """A runtime document that this version can't read: which service, what is wrong, what to do."""


class OnRebalance(StrEnum):
    """What a rebalance recommendation leads to."""

    IGNORE = "ignore"
    """Nothing: most are not followed by an interruption, and the warning comes in time."""
    REPLACE = "replace"
    """Launch first, drain only when the replacement is ready."""


class OnWarning(StrEnum):
    """When a replica that EC2 takes back leaves the rotation."""

    NEEDED = "needed"
    """At once if all but one of those wanted, and at least one, serve without it; else it serves on."""
    SERVE_ON = "serve_on"
    """Once as many as wanted serve without it."""
    LEAVE = "leave"
    """At once: its answers take longer than a drain that begins later would give them."""


@dataclass(frozen=True, slots=True)
class ReadinessProbe:
    """A real request that a replica must answer with 200 before it gets any other."""

    path: str
    post_data: Mapping[str, Any]
    timeout_s: float = 15


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """What the controller must know of one service: the runtime document that its stack writes."""

    service: str
    version: int
    """The launch template's version: rises with every change of what an instance runs."""
    replicas: int
    use_spot: bool
    instance_types: tuple[str, ...]
    """Every type that satisfies the service file, in its order of preference where it gives one."""
    ordered: bool
    """Whether that order is the user's wish, or no order at all."""
    subnets: Mapping[str, str]
    """Subnet ID → zone. At most one subnet per zone: EC2 Fleet refuses more."""
    launch_template_id: str
    target_group_arn: str
    port: int
    on_demand_fallback: bool = True
    """Whether what Spot doesn't give is bought on-demand. Without Spot it is bought on-demand anyway."""
    base_on_demand: int = 0
    """So many of `replicas` are always bought on-demand."""
    max_price_share: float | None = None
    """The most to pay for Spot, as a share of the on-demand price; None: all of it, EC2's own cap."""
    requirements: Requirements | None = None
    """What the service file asks of an instance, for the survey; None: `instance_types` is all there is."""
    drain_s: float = 30
    """How long a replica that left the rotation may finish its requests."""
    on_warning: OnWarning = OnWarning.NEEDED
    initial_delay_s: float = 1200
    """A replica that isn't ready this long after its launch has failed."""
    readiness_probe: ReadinessProbe | None = None
    """None: the load balancer's own health check is all there is."""
    on_rebalance: OnRebalance = OnRebalance.IGNORE
    surge: int = 1
    """Active replicas beyond `replicas` while one is replaced that still serves."""
    max_launches_per_minute: int = 100
    """The brake that keeps a mistake, of ours or anybody's, from becoming a bill."""

    @property
    def region(self) -> str:
        """The region, from the zones' names (`us-east-1a`)."""
        return next(iter(self.subnets.values()))[:-1]

    @property
    def asked(self) -> Requirements:
        """What the service file asks; without it, the types that its stack listed."""
        return self.requirements or Requirements(instance_types=self.instance_types, use_spot=self.use_spot)

    @property
    def pools(self) -> tuple[CapacityPool, ...]:
        """Every pool a replica may come from, types in order, zones within a type."""
        zones = tuple(dict.fromkeys(self.subnets.values()))
        return tuple(CapacityPool(self.region, z, t) for t in self.instance_types for z in zones)

    def to_dict(self) -> dict[str, Any]:
        """The document as JSON-ready values (CDK tokens in them survive)."""
        return {
            "schema": SCHEMA,
            "service": self.service,
            "version": self.version,
            "replicas": self.replicas,
            "use_spot": self.use_spot,
            "instance_types": list(self.instance_types),
            "ordered": self.ordered,
            "subnets": dict(self.subnets),
            "launch_template_id": self.launch_template_id,
            "target_group_arn": self.target_group_arn,
            "port": self.port,
            "on_demand_fallback": self.on_demand_fallback,
            "base_on_demand": self.base_on_demand,
            "max_price_share": self.max_price_share,
            "requirements": self.requirements.to_dict() if self.requirements else None,
            "drain_s": self.drain_s,
            "on_warning": self.on_warning.value,
            "initial_delay_s": self.initial_delay_s,
            "readiness_probe": asdict(self.readiness_probe) if self.readiness_probe else None,
            "on_rebalance": self.on_rebalance.value,
            "surge": self.surge,
            "max_launches_per_minute": self.max_launches_per_minute,
        }

    @classmethod
    def from_json(cls, text: str) -> ServiceSpec:
        """Read a runtime document.

        Raises:
            SpecError: not JSON, another schema, a field missing or of another type, nothing to launch.
        """
        try:
            doc = json.loads(text)
            if doc["schema"] != SCHEMA:
                raise SpecError(
                    f"service {doc.get('service')!r}: runtime document has schema {doc['schema']!r}, this "
                    f"version reads {SCHEMA}: deploy the control plane and the service with one version"
                )
            spec = cls(
                service=str(doc["service"]),
                version=int(doc["version"]),
                replicas=int(doc["replicas"]),
                use_spot=bool(doc["use_spot"]),
                instance_types=tuple(doc["instance_types"]),
                ordered=bool(doc["ordered"]),
                subnets=dict(doc["subnets"]),
                launch_template_id=str(doc["launch_template_id"]),
                target_group_arn=str(doc["target_group_arn"]),
                port=int(doc["port"]),
                on_demand_fallback=bool(doc["on_demand_fallback"]),
                base_on_demand=int(doc["base_on_demand"]),
                max_price_share=None if (share := doc["max_price_share"]) is None else float(share),
                requirements=Requirements.from_dict(wanted) if (wanted := doc["requirements"]) else None,
                drain_s=float(doc["drain_s"]),
                # A document of before there was a choice is read all the same: unreadable would be worse.
                on_warning=OnWarning(doc.get("on_warning", OnWarning.NEEDED)),
                initial_delay_s=float(doc["initial_delay_s"]),
                readiness_probe=ReadinessProbe(**probe) if (probe := doc["readiness_probe"]) else None,
                on_rebalance=OnRebalance(doc["on_rebalance"]),
                surge=int(doc["surge"]),
                max_launches_per_minute=int(doc["max_launches_per_minute"]),
            )
        # OverflowError: a whole number that is Infinity. RecursionError: JSON as deep as Python's stack.
        except (
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            OverflowError,
            RecursionError,
        ) as error:
            if isinstance(error, SpecError):
                raise
            raise SpecError(
                f"runtime document can't be read ({error!r}): deploy the service again"
            ) from error
        if not spec.instance_types or not spec.subnets or spec.replicas < 0:
            raise SpecError(f"service {spec.service!r}: no instance types, no subnets or negative replicas")
        return spec


SCHEMA = 1
"""Of the runtime document: raised when an old controller would misread a new document."""


def seconds(value: float) -> timedelta:
    """A duration; the one place where `_s` numbers become timedeltas."""
    return timedelta(seconds=value)

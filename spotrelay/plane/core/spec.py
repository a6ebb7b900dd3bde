"""The runtime document: what a service file amounts to at run time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from spotrelay.plane.core import timing
from spotrelay.plane.core.pools import CapacityPool, PurchaseOption

if TYPE_CHECKING:  # for documents that have them: a warning waits for every import of a cold start
    from spotrelay.plane.core.answers import BusyEvidence
    from spotrelay.plane.core.requirements import Requirements
    from spotrelay.plane.core.scaling import Scaling


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


class OnUpdate(StrEnum):
    """What a new version means for the replicas that are there."""

    KEEP = "keep"
    """Nothing: what is launched from then on has it."""
    ROLLING = "rolling"
    """They are replaced, `surge` at a time: launch first, drain only once the replacement has stayed."""
    BLUE_GREEN = "blue_green"
    """As many new ones come up outside the rotation; then all of them enter it, and all old ones leave."""


@dataclass(frozen=True, slots=True)
class ReadinessProbe:
    """A real request that a replica must answer with 200 before it gets any other."""

    path: str
    post_data: Mapping[str, Any] | None
    """Sent as JSON; None: a GET."""
    timeout_s: float = 15
    headers: Mapping[str, str] = field(default_factory=dict)
    failure_threshold_s: float | None = None
    """A replica that serves and doesn't answer for this long is replaced; None: serving ones aren't asked."""

    @property
    def is_health_check(self) -> bool:
        """Whether it asks no more than the load balancer's own check does."""
        return self.post_data is None and not self.headers


@dataclass(frozen=True, slots=True)
class LaunchTemplate:
    """One version of a launch template."""

    id: str
    version: str
    """Its number, as EC2 takes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """What a service file decides and the control plane acts by.

    `spotrelay.file.service.Service` and `ServiceSpec` extend it, and the runtime document takes every field.
    Where the service file's schema has a field of the same name, its value is taken from there.
    """

    replicas: int
    """Where the number follows the load, the one to begin with."""
    use_spot: bool
    ordered: bool
    """Whether the order of the instance types is the file's preference."""
    port: int
    on_demand_fallback: bool = True
    """Whether what Spot doesn't give is bought on-demand. Without Spot it is bought on-demand anyway."""
    base_on_demand: int = 0
    """So many of `replicas` are always bought on-demand."""
    scaling: Scaling | None = None
    """How the number of replicas follows the load; None: it doesn't."""
    overprovision: int = 0
    """So many more than `replicas` on Spot, and nothing on-demand for them. In a document in effect they are
    among `replicas`."""
    max_price_share: float | None = None
    """The most to pay for Spot, as a share of the on-demand price; None: all of it, EC2's own cap."""
    requirements: Requirements | None = None
    """What the file asks of an instance, with the image's architecture, for the survey; None: the instance
    types that the stack listed are all there is."""
    drain_s: float = 30
    """How long a replica that EC2 takes back may finish its requests, at least."""
    drain_unhurried_s: float | None = None
    """The same for one that nobody takes away; None: as `drain_s`, in a document of before there was this."""
    on_warning: OnWarning = OnWarning.NEEDED
    start_within_s: float | None = None
    """How long a start may take to satisfy whoever wrote the file: for people, nothing is decided by it."""
    initial_delay_s: float = 1200
    """A replica that isn't ready this long after its instance has booted has failed."""
    readiness_probe: ReadinessProbe | None = None
    """None: what runs is registered, and the load balancer's health check is all there is. So says a document
    of before all replicas were asked, and one of a service whose health check nobody knows."""
    busy: BusyEvidence | None = None
    """How a replica that doesn't answer its probe proves that it is only busy; None: none can."""
    on_rebalance: OnRebalance = OnRebalance.IGNORE
    on_update: OnUpdate = OnUpdate.KEEP
    """A document that doesn't say it is of before roll-outs. The service file has another default."""
    bake_s: float | None = None
    """How long what has the new version must be ready until the old one leaves; None: when rolling, as long
    as it took to start, ten minutes at most, and not at all where all change at once."""
    surge: int = 1
    """Active replicas beyond `replicas` while one is replaced that still serves."""
    standby: int = 0
    """So many on-demand instances are prepared, stopped, and resumed where a replica is missing."""
    standby_auto: bool = False
    """Whether the control plane finds out how many standbys pay. Then `standby` is the number so far, and in
    the document that is deployed the one to begin with."""
    standby_instance_types: tuple[str, ...] = ()
    """The types that standbys may have; none named: all that replicas may have."""
    standby_zones: tuple[str, ...] = ()
    """The zones that standbys are spread over; none named: all of the service's."""
    rebalance_cost: float | None = None
    """By which share of its own price Spot must be cheaper elsewhere for a replica to move there; None: none
    ever does."""
    move_on_score: bool = False
    """Whether replicas on Spot move out of zones whose placement score fell, to clearly better ones."""
    max_launches_per_minute: int = 100
    """The brake that keeps a mistake, of ours or anybody's, from becoming a bill."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The user's own tags for instances."""
    peers: bool = False
    """Whether a replica that starts may fetch its models from those that are ready: see `placement.peers`."""
    slots: Mapping[str, int] = field(default_factory=dict)
    """How many replicas an instance hosts, by its type, where it is more than one: see `core.slots`."""
    disk_usd_per_hour: float = 0.0
    """What an instance's disk costs, at the list price: for accounts, nothing is decided by it."""

    @property
    def purchase_option(self) -> PurchaseOption:
        """How its replicas are bought, but for the base."""
        return PurchaseOption.SPOT if self.use_spot else PurchaseOption.ON_DEMAND

    @property
    def steady_option(self) -> PurchaseOption:
        """How the base is bought, and fallbacks and standbys are: nothing need stand in for these."""
        return self.purchase_option.fallback or self.purchase_option

    def bought_as(self, option: PurchaseOption) -> PurchaseOption:
        """How what was to be bought this way is bought now: the file may have come to say otherwise."""
        return option if option is self.steady_option else self.purchase_option

    def hosted_by(self, instance_type: str) -> int:
        """How many replicas an instance of the type hosts."""
        return self.slots.get(instance_type, 1)

    @property
    def longest_drain_s(self) -> float:
        """How long a replica that nobody takes away may finish its requests."""
        return max(self.drain_s, self.drain_unhurried_s or 0)

    @property
    def deregistration_delay_s(self) -> float:
        """The target group's. It has one for all ways out, and a warned replica's is until its end."""
        return self.drain_s if self.drain_unhurried_s is None else max(self.longest_drain_s, timing.NOTICE_S)

    @property
    def most_replicas(self) -> int:
        """As many as the file ever asks for; an operator may ask for more."""
        return (self.scaling.extremes.most if self.scaling else self.replicas) + self.overprovision

    @property
    def may_have_standbys(self) -> bool:
        """Whether it has standbys, or may come to have some."""
        return self.standby > 0 or self.standby_auto


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec(ServiceSettings):
    """What the controller must know of one service: the runtime document that its stack writes."""

    service: str
    version: int
    """The launch template's version: rises with every change of what an instance runs."""
    instance_types: tuple[str, ...]
    """Every type that satisfies the service file, in its order of preference where it gives one."""
    subnets: Mapping[str, str]
    """Subnet ID → zone. At most one subnet per zone: EC2 Fleet refuses more."""
    launch_template_id: str
    target_group_arn: str
    load_balancer: str = ""
    """Its name in metrics, `app/name/id`. A document of before there was scaling has none, and needs none."""
    address: str = ""
    """Where clients reach it, `http://…` or `https://…`, for people; empty where the load balancer isn't
    ours, and in a document of before it said so."""
    alarms: tuple[str, ...] = ()
    """Its alarms that hear of incidents from ticks, see `serving.incidents`. None in a document of before
    there were such: its alarms look at what each tick counts."""
    on_demand_template: LaunchTemplate | None = None
    """Says the same as `launch_template_id` in `version`, and targets capacity reservations besides, which
    Spot mustn't; None: there is one launch template for both."""

    def in_version(self, version: int) -> ServiceSpec:
        """The same for launches in another version: an older one's on-demand template isn't known."""
        kept = self.on_demand_template if version == self.version else None
        return replace(self, version=version, on_demand_template=kept)

    def template(self, option: PurchaseOption) -> LaunchTemplate:
        """What instances are launched from that are bought one way."""
        if option.uses_reservations and self.on_demand_template:
            return self.on_demand_template
        return LaunchTemplate(self.launch_template_id, str(self.version))

    @property
    def region(self) -> str:
        """The region, from the zones' names (`us-east-1a`)."""
        return next(iter(self.subnets.values()))[:-1]

    @property
    def asked(self) -> Requirements:
        """What the service file asks; without it, the types that its stack listed."""
        from spotrelay.plane.core.requirements import Requirements  # as above

        return self.requirements or Requirements(instance_types=self.instance_types, use_spot=self.use_spot)

    @property
    def pools(self) -> tuple[CapacityPool, ...]:
        """Every pool a replica may come from, types in order, zones within a type."""
        zones = tuple(dict.fromkeys(self.subnets.values()))
        return tuple(CapacityPool(self.region, z, t) for t in self.instance_types for z in zones)

    def to_dict(self) -> dict[str, Any]:
        """The document as JSON-ready values (CDK tokens in them survive)."""
        asked = self.requirements and self.requirements.to_dict()
        return {"schema": SCHEMA, **asdict(self), "requirements": asked}

    @classmethod
    def from_json(cls, text: str) -> ServiceSpec:
        """Read a runtime document.

        Raises:
            SpecError: not JSON, another schema, a field of another type, one without a default missing,
                nothing to launch.
        """
        try:
            doc = json.loads(text)
            if doc["schema"] != SCHEMA:
                raise SpecError(
                    f"service {doc.get('service')!r}: runtime document has schema {doc['schema']!r}, this "
                    f"version reads {SCHEMA}: deploy the control plane and the service with one version"
                )
            # A document of before a setting existed gets its default: unreadable would be worse.
            spec = cls(**{name: read(doc[name]) for name, read in _READERS.items() if name in doc})
        # OverflowError: a whole number that is Infinity. RecursionError: JSON as deep as Python's stack.
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
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


def _busy(stored: Mapping[str, Any]) -> BusyEvidence:
    from spotrelay.plane.core.answers import BusyEvidence

    return BusyEvidence(**stored)


def _requirements(stored: Mapping[str, Any]) -> Requirements:
    from spotrelay.plane.core.requirements import Requirements

    return Requirements.from_dict(stored)


def _scaling(stored: Mapping[str, Any]) -> Scaling:
    from spotrelay.plane.core.scaling import Scaling

    return Scaling.from_dict(stored)


def _if_any(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda stored: read(stored) if stored else None


_OF_TYPES: Mapping[str, Callable[[Any], Any]] = {
    "int": int,
    "bool": bool,
    "float": float,
    "str": str,
    "tuple[str, ...]": tuple,
    "Mapping[str, str]": dict,
    "Mapping[str, int]": dict,
    "float | None": lambda stored: None if stored is None else float(stored),
    "OnWarning": OnWarning,
    "OnRebalance": OnRebalance,
    "OnUpdate": OnUpdate,
    "LaunchTemplate | None": _if_any(lambda stored: LaunchTemplate(**stored)),
    "ReadinessProbe | None": _if_any(lambda stored: ReadinessProbe(**stored)),
    "BusyEvidence | None": _if_any(_busy),
    "Requirements | None": _if_any(_requirements),
    "Scaling | None": _if_any(_scaling),
}
"""By a field's type, as it is written: what makes such a value of JSON's."""

_READERS: Mapping[str, Callable[[Any], Any]] = {
    each.name: _OF_TYPES[str(each.type)] for each in fields(ServiceSpec)
}
"""By a field's name. A field of a type that has no reader fails right here."""

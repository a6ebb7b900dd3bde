"""What the controller needs of the world, with the contract that every adapter keeps.

`aws` implements these with botocore, `memory` in process; `tests/contract` holds both to the same suite.

Errors: an adapter raises one of the tree below for what a caller can act on, and lets anything else through.

    PortError
    ├── Conflict      a row changed since it was read: read again, decide again
    ├── Throttled     AWS refused the call before doing anything: safe to repeat, later
    ├── Unavailable   no answer, or a server error: it may or may not have happened
    └── Denied        AWS refused it, and will again until a person mends the cause: nothing was done

Three more say that a service must be left as it is: `UnreadableDocument`, `OtherControlPlane`, `NewerRows`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from spotrelay.plane.core.held import Held, Override
from spotrelay.plane.core.incidents import Incidents
from spotrelay.plane.core.instances import Instance, Refusal, TargetState
from spotrelay.plane.core.names import Alarm, Metric
from spotrelay.plane.core.pools import (
    CapacityPool,
    Cooldown,
    Image,
    PoolMemory,
    PurchaseOption,
    Scope,
    Survey,
)
from spotrelay.plane.core.replica import Replica
from spotrelay.plane.core.rows import (
    Changes,
    Removal,
    Rollback,
    Rows,
    ScaleRequest,
    Source,
    Starts,
    Told,
)
from spotrelay.plane.core.spec import ServiceSpec

if TYPE_CHECKING:  # of ticks alone: a warning waits for every import of a cold start
    from spotrelay.plane.core.answers import Answers
    from spotrelay.plane.core.notices import Notice
    from spotrelay.plane.core.scaling import Load, Needed, Ongoing, OngoingTarget, OngoingTotal


class PortError(Exception):
    """A call to the world failed in a way that the caller can act on."""


class Conflict(PortError):  # noqa: N818 - an outcome that is expected and met, not an error anybody made
    """A row changed since it was read; nothing of the commit was written."""


class Throttled(PortError):  # noqa: N818 - see Conflict
    """AWS refused the call before it did anything."""


class Unavailable(PortError):  # noqa: N818 - see Conflict
    """No answer or a server error: the call may or may not have taken effect."""


class Denied(PortError):  # noqa: N818 - see Conflict
    """AWS refuses the call and would refuse a repeat: a permission, a protection, a bad request."""

    def __init__(self, message: str, code: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.code = code
        """AWS's."""
        self.remedy = remedy
        """What a person can do about it, if that is known."""


class UnreadableDocument(Exception):  # noqa: N818 - see Conflict
    """A service's runtime document is there and can't be read: which, why, what to do."""


class OtherControlPlane(Exception):  # noqa: N818 - see Conflict
    """Another control plane looks after the services of this region: this one must touch nothing."""

    remedy = "remove one of the two control planes"


class NewerRows(OtherControlPlane):
    """A later version of the control plane wrote rows of the service that this one would misread."""

    remedy = "deploy that version of the control plane again"


class Clock(Protocol):
    """Where the time comes from."""

    def now(self) -> datetime:
        """The present, aware UTC."""
        ...


class Store(Protocol):
    """Replicas and what belongs to them. Every read is strongly consistent."""

    def services(self) -> Sequence[str]:
        """Every service that ever had a replica and wasn't forgotten."""
        ...

    def forget(self, service: str) -> None:
        """Drop the service from `services`, once nothing of it is left, with all that was noted of it.

        Its IDs are never given again.
        """
        ...

    def locate(self, instance_ids: Collection[str]) -> Mapping[str, tuple[str, int]]:
        """Instance ID → (service, replica ID), for those that are or were ours. Any number of IDs.

        An instance that hosts several replicas comes with each of its slots.
        """
        ...

    def read(self, service: str, replica_ids: Collection[int]) -> Rows:
        """The named replicas (those that ended are left out), and what is noted of the service; no intents.

        Raises:
            NewerRows: one of them, or what is noted of the service, is of a later version.
        """
        ...

    def load(self, service: str) -> Rows:
        """Everything about the service that isn't history.

        Rows written while it reads may or may not be there; `highest_id` is read before any row, so that a
        commit that creates rows on the strength of it fails if anybody else created some.

        Raises:
            NewerRows: some of it is of a later version.
        """
        ...

    def document(self, service: str) -> ServiceSpec | None:
        """The last runtime document that was kept for the service.

        None if none ever was, if the service was removed, or if another control plane has it.
        """
        ...

    def keep_document(self, spec: ServiceSpec, earlier: Mapping[int, ServiceSpec] | None = None) -> None:
        """Keep a document that could be read, for when it can't be any more.

        `earlier`: what `Rows.earlier` is to be; None: as it is.
        """
        ...

    def note_claim(self, service: str, *, is_ours: bool) -> None:
        """Put on record whether the service is ours to act on, for when nobody can be asked."""
        ...

    def note_held(self, service: str, held: Held) -> None:
        """Put on record what is held back, in place of what was. Who has the tick's lease does so."""
        ...

    def note_ongoing(self, service: str, total: OngoingTotal) -> None:
        """Put on record how many requests the replicas have, in place of what was."""
        ...

    def note_starts(self, service: str, starts: Starts) -> None:
        """Put on record what instances told of their starts, in place of what was: see `Rows.starts`."""
        ...

    def note_removal(self, service: str, removal: Removal) -> None:
        """Put on record what speaks for it that the service's stack is gone."""
        ...

    def note_request(self, service: str, source: Source, request: ScaleRequest | None) -> None:
        """Put on record how many replicas somebody asks for, in place of what they asked before.

        None: they ask for nothing any more. Others' requests stay as they are.
        """
        ...

    def note_rollback(self, service: str, rollback: Rollback | None) -> None:
        """Put on record that an operator goes back from a version; None: that nobody does."""
        ...

    def history(self, service: str, limit: int) -> Sequence[Replica]:
        """The replicas that ended, newest ID first. They expire after 30 days."""
        ...

    def ended(self, service: str, replica_ids: Collection[int]) -> Sequence[Replica]:
        """Those of the named replicas that ended, by ID."""
        ...

    def note_told(self, service: str, told: Told) -> None:
        """Put on record what was told of the service, with the revision that was read.

        Raises:
            Conflict: somebody else did since; nothing was written.
        """
        ...

    def note_incidents(self, service: str, incidents: Incidents) -> None:
        """Put on record what its alarms are told, with the revision that was read.

        Raises:
            Conflict: somebody else did since; nothing was written.
        """
        ...

    def commit(self, changes: Changes) -> None:
        """Write all of it or nothing.

        An updated row is stored with its revision + 1. An ended one moves to history. From the moment a
        row has an instance, `locate` finds it. Each row may be named once.

        Raises:
            Conflict: a row has another revision, IDs were given since, launches counted, or others came to
                serve or ceased to.
        """
        ...

    def cool(self, cooldowns: Collection[Cooldown]) -> None:
        """Remember what to leave alone; a later end for the same scope replaces an earlier one."""
        ...

    def forgive(self, scopes: Collection[Scope]) -> None:
        """Forget the cooldowns of these scopes; one without a cooldown is fine."""
        ...

    def note_survey(self, survey: Survey) -> None:
        """Keep what was found out for a service, in place of what was known before."""
        ...

    def recall(self, service: str, region: str, now: datetime) -> PoolMemory:
        """The region's cooldowns that are still remembered, and the service's last survey.

        Cooldowns that others wrote may come seconds late, and the survey minutes: it changes by the hour.
        """
        ...

    def acquire(self, service: str, holder: str, now: datetime, ttl_s: float) -> bool:
        """Take the lease of the service's tick; False while another holder's hasn't expired."""
        ...

    def release(self, service: str, holder: str) -> None:
        """Give the lease back; nothing happens if it has passed to another holder."""
        ...

    def claim_tick(self, service: str, due: datetime, now: datetime, serving: datetime | None) -> bool:
        """Announce the next tick, so that no storm announces one for each of its signals.

        False if one is on its way that comes no later than `due`, other than `serving`: the announced time of
        the tick that is running now. One that comes later doesn't count: it may wait for a back-off's end.
        """
        ...


def highest_ended_id(store: Store, service: str) -> int:
    """The highest ID in the history; 0 without one."""
    return next((replica.id for replica in store.history(service, 1)), 0)


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """Instances for `count` replicas from any of the pools, bought one way, once.

    Where instances host several, `spec` says how many; the last one may have room for more than are asked.
    """

    launch_id: str
    spec: ServiceSpec
    purchase_option: PurchaseOption
    pools: tuple[CapacityPool, ...]
    """In order of preference if `spec.ordered`."""
    count: int
    max_prices: Mapping[str, float] = field(default_factory=dict)
    """By instance type, the most to pay for a Spot instance: USD per hour. A type that is missing has EC2's
    own cap, the on-demand price."""
    highest_id: int = 0
    """The instances are tagged with it, see `Instance.highest_id`."""
    peers: str | None = None
    """What the instances' tag says of others that have their models; None: they have no such tag."""


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """What came of a launch. Fewer instances than asked is normal."""

    instances: tuple[Instance, ...] = ()
    refusals: tuple[Refusal, ...] = ()


MAX_STARTS = 3
"""Starts that are asked for one by one, once EC2 has refused all of them in one request. That makes four: of
StartInstances EC2 takes five at once from an account in a region, and two more each second.
Source: https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html"""


class Fleet(Protocol):
    """EC2."""

    def launch(self, request: LaunchRequest) -> LaunchResult:
        """Launch now what can be had now. Repeating a launch ID repeats the answer while EC2 remembers it.

        Raises:
            Throttled, Denied: nothing was launched.
            Unavailable: it may have been; `observe` shows it by its launch ID.
        """
        ...

    def observe(self, service: str) -> Sequence[Instance]:
        """Every instance with the service's tag that EC2 still shows, terminated ones too.

        Instances launched a moment ago may be missing. While a zone is disrupted EC2 refuses to say: then
        ask by ID.
        """
        ...

    def look_up(self, instance_ids: Collection[str]) -> Sequence[Instance]:
        """These instances, without those that EC2 doesn't know.

        Raises:
            PortError: also if one of them is in a zone that is disrupted: ask about one zone at a time.
        """
        ...

    def warned(self, instance_ids: Collection[str]) -> Mapping[str, datetime | None]:
        """Of these Spot instances, when EC2 said that it takes each back, event or no event.

        None: EC2 says that it doesn't, or said so some seconds ago. Nothing is known of what is missing: it
        isn't Spot, its request isn't shown, or there are too many to ask about each. What EC2 said of an
        instance stays on record after its end: ask about those that live.
        """
        ...

    def console(self, instance_id: str) -> str:
        """What its console shows now: the last 64 KiB. Empty: nothing, or EC2 can't say.

        For people: it is asked once, and whoever asks goes on without an answer.

        Raises:
            PortError: EC2 refuses to say, or fails to.
        """
        ...

    def start(self, instance_ids: Collection[str]) -> Mapping[str, Refusal]:
        """Start stopped instances; one that runs already is fine. Those that EC2 refuses to, and why.

        Where one can't be started, the first `MAX_STARTS` are asked for one by one. The others, and one that
        still stops, are neither started nor refused: asked again, they start.

        Raises:
            Throttled, Unavailable: some may have been started; `observe` shows it. Only if nothing is known:
                what was answered before comes back, and the rest is to be asked again.
        """
        ...

    def stop(self, instance_ids: Collection[str]) -> Mapping[str, str]:
        """Stop; an instance that is stopped or gone is fine. Those that AWS refuses to, and its words."""
        ...

    def terminate(self, instance_ids: Collection[str]) -> Mapping[str, str]:
        """Terminate; an instance that is gone already is fine. Those that AWS refuses to, and its words.

        One that can't be terminated costs the others nothing.
        """
        ...


NO_PORTS: Mapping[str, int] = MappingProxyType({})
"""Every server listens on the document's port."""


class Router(Protocol):
    """The load balancer."""

    def register(
        self, spec: ServiceSpec, instance_ids: Collection[str], ports: Mapping[str, int] = NO_PORTS
    ) -> frozenset[str]:
        """Put running instances into rotation; the ones that couldn't be (not running any more) come back.

        Those that have slots are named by them, here and in all that follows.

        `ports`: by instance, what its server listens on, where that isn't the document's port.
        """
        ...

    def deregister(
        self, spec: ServiceSpec, instance_ids: Collection[str], ports: Mapping[str, int] = NO_PORTS
    ) -> None:
        """Take instances out of rotation, in one call. One not in it, or no such group, is fine.

        `ports`: those that they were registered with, as for `register`.
        """
        ...

    def ports(self, spec: ServiceSpec, slots: Collection[str] = ()) -> Mapping[str, int]:
        """By instance, the port that every target is registered with; `slots` as for `health`."""
        ...

    def health(self, spec: ServiceSpec, slots: Collection[str] = ()) -> Mapping[str, TargetState]:
        """Every registered or draining target, by instance.

        An instance with several is in it with each of its slots; which of them is the first one, whoever asks
        may know: `slots` are those that it knows not to be.
        """
        ...


class Surveyor(Protocol):
    """Whoever asks EC2 what it offers."""

    def survey(self, spec: ServiceSpec, now: datetime) -> Survey:
        """Discover the service's eligible pools, their prices and their zones' placement scores.

        What AWS refuses to say, or fails to, is missing from the survey, counted and recorded. What a person
        must mend of it is among its findings.

        Raises:
            PortError: not even the pools could be found out.
        """
        ...

    def images(self, spec: ServiceSpec, versions: Collection[int]) -> Mapping[int, Image]:
        """What instances of these versions are launched from; one that EC2 doesn't show is missing.

        Raises:
            PortError: AWS refuses to say, or fails to.
        """
        ...

    def announced(self) -> Mapping[str, str]:
        """What EC2 announces for running instances of the account, of whatever service: ID → what, in words.

        A retirement, a stop, a reboot, maintenance. Without those that are over or called off.

        Raises:
            PortError: AWS refuses to say, or fails to.
        """
        ...


class Announcer(Protocol):
    """Passes EC2's announcements for a service's instances to the controller."""

    def announce(self, service: str, announced: Mapping[str, str]) -> None:
        """Run the service's tick with what EC2 announces: instance ID → what, in words."""
        ...


class Loads(Protocol):
    """Whoever measures what a service has to do."""

    def observe(self, spec: ServiceSpec, needed: Needed, now: datetime) -> Load:
        """What `spec.scaling` goes by; what isn't measured, or not lately, is missing from it.

        Of its requests what is `needed`. Without `Needed.silence` what is seen of them is a lower bound,
        unless there were some in the last whole minute.

        Raises:
            PortError: nothing could be found out.
        """
        ...


class Prober(Protocol):
    """Whoever can reach the replicas' own addresses."""

    def ask(self, spec: ServiceSpec, addresses: Mapping[str, str], serving: Collection[str] = ()) -> Answers:
        """Send the service's readiness probe to these instances (ID → private address).

        All are asked at once; one that doesn't answer takes its time-out, and costs the others nothing.
        Of those that are `serving` and don't answer in time, it asks what they have to do, if `spec.busy`.

        Raises:
            PortError: nobody could be asked.
        """
        ...

    def ongoing(
        self, service: str, target: OngoingTarget, addresses: Mapping[str, tuple[str, int]]
    ) -> Ongoing:
        """How many requests the instances have (ID → private address and port), as their servers count them.

        Raises:
            PortError: nobody could be asked.
        """
        ...


class Ticker(Protocol):
    """The tick queue."""

    def schedule(self, service: str, due: datetime | None = None, delay_s: float = 0) -> None:
        """Have the service's tick run after the delay; `due` comes back to it as what it serves."""
        ...

    def schedule_leave(self, service: str, delay_s: float) -> None:
        """Have somebody look after the delay which warned replicas must leave the rotation by then."""
        ...

    def schedule_override(self, service: str, override: Override, delay_s: float) -> None:
        """Have a person's word obeyed after the delay."""
        ...


class DeadLetters(Protocol):
    """Where messages go that no retry would mend, and an alarm watches."""

    def set_aside(self, body: str, why: str, source: str) -> None:
        """Keep the message, what is wrong with it and which queue it came from, for a person to see."""
        ...


class Notices(Protocol):
    """Publishes what happened, for others to react to."""

    def publish(self, notices: Sequence[Notice]) -> Mapping[str, str]:
        """Publish all of them; return those that were rejected, by `Notice.id`, with the reason.

        Raises:
            PortError: it isn't known which of them were published.
        """
        ...


class Services(Protocol):
    """The runtime documents."""

    def names(self) -> Sequence[str]:
        """Every deployed service, read afresh."""
        ...

    def get(self, service: str, *, fresh: bool = False) -> ServiceSpec | None:
        """Its document, possibly a minute old unless `fresh`; None if there is none (any more).

        Raises:
            UnreadableDocument: there is one. Not the same as None, which may end the service's replicas.
            PortError: nobody can say.
            OtherControlPlane: it is for another control plane to act on.
        """
        ...


class Telemetry(Protocol):
    """Metrics and the structured log."""

    def count(self, metric: Metric, value: float = 1, *, service: str | None = None) -> None:
        """Add to a metric, of one service or of the control plane."""
        ...

    def send_all(self, service: str) -> None:
        """Have all that this invocation counts of a service be metrics: an earlier stack's alarms look."""
        ...

    def tell(self, alarm: Alarm, *, service: str, lasts: bool, at: datetime) -> None:
        """Tell an alarm of a service whether its incident lasts, as of a time."""
        ...

    def record(self, event: str, **facts: object) -> None:
        """Write one log line: what happened, and everything needed to understand it."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything that the controller acts through."""

    store: Store
    fleet: Fleet
    router: Router
    prober: Prober
    loads: Loads
    ticker: Ticker
    notices: Notices
    services: Services
    telemetry: Telemetry
    clock: Clock
    new_id: Callable[[], str]
    """A fresh ID, sortable by time, at most 64 ASCII characters: it becomes EC2's ClientToken."""

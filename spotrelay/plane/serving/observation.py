"""What one tick saw of a service, before it decides."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import Instance, TargetState
from spotrelay.plane.core.pools import Offering, PoolMemory
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows, has_lost_its_ids
from spotrelay.plane.core.slots import host
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving.steps import HoldBack


@dataclass(frozen=True, slots=True)
class Observation:
    """The world as one tick saw it. The rows were read first, so everything else is at least as new."""

    rows: Rows
    """As the stages so far would leave them."""
    instances: Mapping[str, Instance] = field(default_factory=dict)
    health: Mapping[str, TargetState] = field(default_factory=dict)
    warned: Mapping[str, datetime] = field(default_factory=dict)
    """The living instances that EC2 takes back, and when it said so."""
    spared: frozenset[str] = frozenset()
    """Those that EC2 says it isn't taking back. Of a Spot instance in neither, nothing is known."""
    announced: Mapping[str, str] = field(default_factory=dict)
    """What EC2 announces for instances, where a survey has just found that: see `ports.Announcer`."""
    recorded: Collection[str] = frozenset()
    """Of the instances that no row has, those that the table knows as ours."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """Of the instances that no row has, what those in rotation are registered with."""
    of_ended: Collection[str] = frozenset()
    """Of those, the ones whose replica has ended: it had drained."""
    vouched: Collection[HoldBack] = frozenset()
    """What isn't held back, because a person says that it is true."""
    ended_id: int = 0
    """The highest ID of the replicas that ended, where the rows say that there never was one."""
    prices: Mapping[Offering, float] = field(default_factory=dict)
    """What an instance costs, USD per hour, if some are to go: of those equally missed the dearest go."""
    pools: PoolMemory = field(default_factory=PoolMemory)
    """What is known of the pools, for a service whose replicas move to cheaper Spot."""
    as_read: Rows | None = None
    """The rows as they were read, once a stage has changed them."""

    @property
    def read(self) -> Rows:
        """The rows as they were read."""
        return self.as_read or self.rows

    @property
    def known(self) -> list[Replica]:
        """The replicas that were read, as they would be left. Others were only just created."""
        return [r for r in self.rows.replicas.values() if r.id in self.read.replicas]

    @property
    def shows_ours(self) -> bool:
        """Whether the load balancer shows any instance that bears the service's tag or has a row.

        A target group that a service brings may have others. Those are nobody's here, and vouch for nothing.
        """
        owned = {r.instance_id for r in self.rows.replicas.values()}
        return any(id_ in self.instances or id_ in owned for id_ in self.health)

    @property
    def found_ill(self) -> frozenset[int]:
        """The replicas that this very tick found not to answer. They may only be busy: the next one tells."""
        ready = (r for r in self.known if r.state is ReplicaState.READY and not r.serves)
        return frozenset(r.id for r in ready if self.read.replicas[r.id].serves)

    def instance_of(self, replica: Replica) -> Instance | None:
        """What EC2 shows of its instance; None: it shows none, or there is none."""
        return self.instances.get(replica.instance_id or "")

    def health_of(self, replica: Replica) -> TargetState | None:
        """What the load balancer says of it; None: it isn't registered."""
        return self.health.get(replica.instance_id or "")

    def stays_without(self, replica: Replica) -> bool:
        """Whether another replica answers the load balancer's checks and EC2 isn't taking it back.

        The load balancer says who serves, not the row: a row is behind until a tick writes it.
        """
        return any(
            other.id != replica.id
            and other.is_counted
            and other.instance_id not in self.warned
            and self.health_of(other) is TargetState.HEALTHY
            for other in self.rows.replicas.values()
        )

    def is_vouched_for(self, held: HoldBack) -> bool:
        """Whether a person says that this is true, however strange it looks."""
        return held in self.vouched

    def with_rows(self, rows: Rows) -> Observation:
        """The same world, with rows as a stage would leave them."""
        return replace(self, rows=rows, as_read=self.read)


def known(rows: Rows, now: datetime) -> Rows:
    """The rows without those that were created while they were being read.

    The highest ID that was read doesn't know of these, and what is decided without them is refused if they
    matter. A row that has been there for longer is no such row: then the highest ID got lost.
    """
    if has_lost_its_ids(rows, now):
        return rows
    replicas = {id_: replica for id_, replica in rows.replicas.items() if id_ <= rows.highest_id}
    return replace(rows, replicas=replicas)


def ready_count(rows: Rows) -> int:
    """Replicas that serve."""
    return sum(r.serves for r in rows.replicas.values())


def launched_count(rows: Rows) -> int:
    """Replicas that have an instance which EC2 isn't taking back, ready or not."""
    return sum(r.is_counted and r.instance_id is not None for r in rows.replicas.values())


def staying_count(rows: Rows) -> int:
    """Replicas that serve and that EC2 hasn't warned: `Rows.serving` as it should be."""
    return sum(r.stays for r in rows.replicas.values())


def oldest_fallback(rows: Rows) -> datetime | None:
    """Since when the fallback that was launched first has its instance; None: there is none."""
    fallbacks = (r for r in rows.replicas.values() if r.is_fallback and r.is_counted and r.instance_id)
    return min((r.entered[ReplicaState.PROVISIONING] for r in fallbacks), default=None)


def paid_for(seen: Observation) -> list[Offering]:
    """Of each instance that runs for a replica, once: what it was bought as.

    One that EC2 doesn't show yet counts; a stopped one doesn't, though its disk is paid for.
    """
    there: dict[str, Offering] = {}
    for replica in seen.read.replicas.values():
        instance = seen.instance_of(replica)
        is_running = instance.state.is_alive if instance else replica.state.is_active
        if replica.instance_id and replica.offering and is_running:
            there[host(replica.instance_id)] = replica.offering
    return list(there.values())


def counted(rows: Rows) -> list[Replica]:
    """The replicas that count towards those that should exist, fallbacks beside them."""
    return [r for r in rows.replicas.values() if r.is_counted and not r.superseded_in(rows)]


def spare(spec: ServiceSpec, rows: Rows) -> int:
    """How many of those that serve may be given up: the others that serve are as many as wanted."""
    return max(staying_count(rows) - spec.replicas, 0)


def as_serving(replica: Replica, found_ill: Collection[int]) -> Replica:
    """The replica; one that this very tick found not to answer counts as serving for now."""
    return replace(replica, unhealthy_since=None) if replica.id in found_ill else replica


def at_most(serving: int, given_up: Sequence[Replica], kept_back: Collection[int] = ()) -> list[Replica]:
    """Of the replicas to give up all that don't serve, but for those kept back, and so many that do."""
    quiet = [r for r in given_up if not r.serves and r.id not in kept_back]
    return [*quiet, *[r for r in given_up if r.serves][: max(serving, 0)]]


def is_due(replica: Replica, seen: Observation, now: datetime) -> bool:
    """Whether it has no instance, and its turn to be launched has come.

    What a stage before created is launched by that. An intent that this very tick closes has just expired:
    its replicas are launched anew by the next one.
    """
    return (
        replica.state is ReplicaState.REQUESTED
        and replica.id in seen.read.replicas
        and replica.launch_id not in seen.rows.intents
        and (replica.retry_at is None or now >= replica.retry_at)
    )


def stays_from(replica: Replica, most_s: float = timing.STAY_MAX_S) -> datetime:
    """When it has stayed: it has been ready for as long as another one would take to become so."""
    return replica.entered[ReplicaState.READY] + min(cold_start(replica), seconds(most_s))


def cold_start(replica: Replica) -> timedelta:
    """How long a replica that has been ready took to become so."""
    ready = replica.entered[ReplicaState.READY]
    return ready - replica.entered.get(ReplicaState.PROVISIONING, ready)

"""Services by how their replicas are bought, and what `serving.strength` makes of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from spotrelay.plane.core import timing
from spotrelay.plane.core.pools import PurchaseOption
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Backoff, LaunchIntent
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving import changes, strength
from spotrelay.plane.serving.observation import Observation
from spotrelay.plane.serving.steps import Step
from tests.examples import on_demand_pool
from tests.unit.cases import LONG_AGO, NOW, a_replica, an_instance, seen_of

SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND
REQUESTED, PROVISIONING, STARTING, READY, DRAINING = (
    ReplicaState.REQUESTED,
    ReplicaState.PROVISIONING,
    ReplicaState.STARTING,
    ReplicaState.READY,
    ReplicaState.DRAINING,
)
RISING = [PROVISIONING, STARTING]
SOON = NOW + seconds(timing.TICK_IN_TRANSITION_S)


def look(
    *replicas: Replica, gone: Collection[int] = (), intents: Collection[LaunchIntent] = ()
) -> Observation:
    """What a tick sees: every instance runs but those of the replicas that are gone."""
    instances = [an_instance(r.id) for r in replicas if r.instance_id and r.id not in gone]
    return seen_of(*replicas, instances=instances, intents=intents)


def decide(spec: ServiceSpec, seen: Observation, *decided: Step) -> list[Step]:
    """What follows from it at `NOW`, after what was decided before."""
    left = changes.after(spec, seen.rows, decided, NOW)
    return list(strength.decide(spec, seen.with_rows(left), NOW))


def refused(id_: int, attempts: int = 1, **facts: Any) -> Replica:
    """A Spot replica that EC2 had no room for, and that waits for its next try."""
    return a_replica(id_, REQUESTED, attempts=attempts, retry_at=NOW + seconds(30), **facts)


def spot(id_: int, state: ReplicaState = READY, **facts: Any) -> Replica:
    """A Spot replica that has been where it is for long."""
    return a_replica(id_, state, **facts)


def fresh(id_: int, **facts: Any) -> Replica:
    """A Spot replica that took its time to start and has just become ready."""
    return a_replica(id_, READY, since_s=1, **facts)


def on_demand(id_: int, state: ReplicaState = READY, **facts: Any) -> Replica:
    """A replica that is bought on-demand."""
    offering = on_demand_pool("us-east-1a", "g5.xlarge") if state is not REQUESTED else None
    return a_replica(id_, state, **{"offering": offering, "purchase_option": ON_DEMAND, **facts})


def fallback(id_: int, state: ReplicaState = READY, **facts: Any) -> Replica:
    """One that was bought on-demand for want of Spot."""
    return on_demand(id_, state, is_fallback=True, **facts)


def is_early(replica: Replica) -> bool:
    """Its next try is still to come."""
    return replica.retry_at is not None and replica.retry_at > NOW


def fallbacks_requested(actions: Collection[Step]) -> int:
    """How many fallbacks are asked for; each of them must be bought on-demand."""
    requests = [a for a in actions if a.name == "Request" and a.creates[0].is_fallback]
    assert {r.creates[0].purchase_option for r in requests} <= {ON_DEMAND}
    return sum(len(r.creates) for r in requests)


def dropped(actions: Collection[Step]) -> list[int]:
    """The replicas given up without another one for them, in order."""
    drains = [a for a in actions if a.name in ("Drain", "End")]
    assert not any(a.name == "Replace" for a in actions)
    return [a.replica.id for a in drains]


HELD = Backoff(1, NOW + seconds(1), version=1)
LOOPING = Backoff(timing.CRASH_LOOP_FAILURES, LONG_AGO, version=1)


def after(backoff: Backoff, *replicas: Replica, **facts: Any) -> Observation:
    """What a tick sees of replicas after failures."""
    seen = look(*replicas, **facts)
    return replace(seen, rows=replace(seen.rows, backoff=backoff))

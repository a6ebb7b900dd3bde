"""Replicas, instances and decisions that the tests of the policy start from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from spotrelay.plane.core.instances import Instance, InstanceState, TargetState
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Backoff, LaunchIntent, Rows
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.memory import EPOCH
from spotrelay.plane.serving import reconcile, steps
from spotrelay.plane.serving.observation import Observation
from spotrelay.plane.serving.steps import WARNED, Step
from tests.examples import demo_spec, spot_pool

NOW = EPOCH + seconds(3600)
LONG_AGO = EPOCH
POOL = spot_pool("us-east-1a", "g5.xlarge")


PORT = 8081
"""Of the demo, and so of every version of these cases but where one says another."""


def a_replica(id_: int, state: ReplicaState, since_s: float = 3600, **facts: Any) -> Replica:
    """A replica in a state since so many seconds before `NOW`, with the instance `i-<id>`."""
    at = NOW - seconds(since_s)
    entered = {ReplicaState.REQUESTED: LONG_AGO, ReplicaState.PROVISIONING: LONG_AGO, state: at}
    has_instance = state is not ReplicaState.REQUESTED
    row = Replica(
        "demo",
        id_,
        1,
        state,
        "test",
        entered if has_instance else {state: at},
        offering=POOL if has_instance else None,
        instance_id=f"i-{id_}" if has_instance else None,
        port=PORT,
    )
    return replace(row, **facts)


def an_instance(id_: int, state: InstanceState = InstanceState.RUNNING, **facts: Any) -> Instance:
    """The instance `i-<id>`."""
    return replace(Instance(f"i-{id_}", state, POOL, LONG_AGO), **facts)


def rows_of(
    *replicas: Replica, highest_id: int = 9, intents: Collection[LaunchIntent] = (), **facts: Any
) -> Rows:
    """All the rows of a service, as a table without damage has them: it counts right who stays."""
    by_id = {r.id: r for r in replicas}
    return Rows(
        max(highest_id, *by_id, 0),
        sum(r.stays for r in by_id.values()),
        is_whole=True,
        replicas=by_id,
        intents={i.id: i for i in intents},
        **facts,
    )


def seen_of(
    *replicas: Replica,
    instances: Collection[Instance] = (),
    health: Mapping[int, TargetState] | None = None,
    warned: Collection[int] = (),
    intents: Collection[LaunchIntent] = (),
    backoff: Backoff | None = None,
    warned_at: datetime = NOW,
    **facts: Any,
) -> Observation:
    """What a tick sees of them. `health` and `warned` name instances by their replicas' IDs."""
    return Observation(
        rows_of(*replicas, intents=intents, backoff=backoff or Backoff()),
        {i.id: i for i in instances},
        {f"i-{id_}": state for id_, state in (health or {}).items()},
        {f"i-{id_}": warned_at for id_ in warned},
        **facts,
    )


def decide(*replicas: Replica, wanted: int | None = None, **seen: Any) -> list[Step]:
    """The tick's decision at `NOW` on what it sees, see `seen_of`."""
    spec = demo_spec(replicas=len(replicas) if wanted is None else wanted)
    return reconcile.decide(spec, seen_of(*replicas, **seen), NOW)


def told(loss: Step, version: int = 1) -> list[Step]:
    """A loss that a signal tells of, with its replacement."""
    return [loss.with_replacement(NOW, version)]


def replacing(loss: Step, version: int = 1) -> Step:
    """The replacement for a loss that a tick found, requested by a later stage."""
    row = loss.row
    return steps.replace(row, NOW, WARNED if row.state.is_active else row.reason, version)


def without(loss: Step) -> Step:
    """The tick's word that as many as wanted are left."""
    return steps.go_without(loss.row)


def needless(loss: Step) -> Step:
    """What goes, and gets no replacement by the same decision."""
    return loss.then(without(loss))


def losing(replica: Replica, reason: str, version: int = 1, **facts: Any) -> list[Step]:
    """A replica drains, and its replacement is requested."""
    drain = steps.drain(replica, NOW, reason, is_gone=reason.startswith("instance "), **facts)
    return [drain, replacing(drain, version)]


RECENTLY = dict.fromkeys(
    [ReplicaState.REQUESTED, ReplicaState.PROVISIONING, ReplicaState.STARTING], NOW - seconds(5)
)

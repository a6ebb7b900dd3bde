"""What one tick saw of a service, before it decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from spotrelay.model import Instance, Replica, ReplicaState, Rows, TargetState


@dataclass(frozen=True, slots=True)
class Observation:
    """The world as one tick saw it. The rows were read first, so everything else is at least as new."""

    rows: Rows
    instances: Mapping[str, Instance] = field(default_factory=dict)
    health: Mapping[str, TargetState] = field(default_factory=dict)
    warned: frozenset[str] = frozenset()


def known(rows: Rows) -> Rows:
    """The rows without those that were created while they were being read.

    The highest ID that was read doesn't know of these, and what is decided without them is refused if they
    matter.
    """
    replicas = {id_: replica for id_, replica in rows.replicas.items() if id_ <= rows.highest_id}
    return rows if len(replicas) == len(rows.replicas) else replace(rows, replicas=replicas)


def ready_count(rows: Rows) -> int:
    """Replicas that serve."""
    return sum(serves(r) for r in rows.replicas.values())


def serves(replica: Replica) -> bool:
    """Whether it is ready and answers its checks."""
    return replica.state is ReplicaState.READY and replica.unhealthy_since is None

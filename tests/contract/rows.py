"""Rows and commits that the tests of the store are made of."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from spotrelay.plane.core.pools import Offering
from spotrelay.plane.core.ports import Store
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Changes
from spotrelay.plane.core.timing import seconds
from tests.examples import spot_pool

NOW = datetime(2026, 11, 21, 7, 0, tzinfo=UTC)
OFFERING = spot_pool("us-east-1a", "g5.xlarge")


def row(id_: int, service: str = "demo", **changes: Any) -> Replica:
    """A replica that was just requested."""
    return replace(Replica.requested(service, id_, 1, NOW, reason="wanted"), **changes)


def create(store: Store, count: int, service: str = "demo") -> list[Replica]:
    """`count` more rows, as the store has them."""
    highest = store.load(service).highest_id
    rows = tuple(row(highest + n, service) for n in range(1, count + 1))
    store.commit(Changes(service, highest_id=(highest, highest + count), create=rows))
    return list(rows)


def update(store: Store, *rows: Replica) -> list[Replica]:
    """Write the rows; they come back as the store has them."""
    changes = Changes(rows[0].service, update=rows)
    store.commit(changes)
    return list(changes.stored)


def provisioned(replica: Replica, instance_id: str | None = None, offering: Offering = OFFERING) -> Replica:
    """The replica with an instance."""
    instance_id = instance_id or f"i-{replica.id:08d}"
    return replica.to(ReplicaState.PROVISIONING, NOW + seconds(1), offering=offering, instance_id=instance_id)


def ended(replica: Replica) -> Replica:
    """The replica at its end, however it gets there."""
    state = ReplicaState.TERMINATED if replica.state is ReplicaState.REQUESTED else ReplicaState.FAILED
    return replica.to(state, NOW + seconds(2), "over")

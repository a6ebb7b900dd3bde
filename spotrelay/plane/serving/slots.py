"""What EC2 and the load balancer show, by slot: see `core.slots`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from spotrelay.plane.core.instances import Instance, TargetState
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.slots import host
from spotrelay.plane.core.spec import ServiceSpec


def taken(rows: Rows) -> dict[str, set[str]]:
    """By instance, the slots that replicas have."""
    there = (r for r in rows.replicas.values() if not r.state.is_ended)
    return _by_host(r.instance_id for r in there if r.instance_id)


def _by_host(slots: Iterable[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for slot in slots:
        found[host(slot)].add(slot)
    return found


def instances(
    spec: ServiceSpec | None, rows: Rows, seen: Collection[Instance], health: Mapping[str, TargetState]
) -> dict[str, Instance]:
    """The instances by slot: those that replicas have, and those that are in rotation though none has them.

    Of an instance without a replica the document says how many it hosts, and the load balancer no fewer than
    are registered. A target that drains is shown for long after its replica has ended: it is nobody's slot.
    """
    owned = taken(rows)
    registered = _by_host(slot for slot, state in health.items() if state is not TargetState.DRAINING)
    counts = {host(r.instance_id): r.slots for r in rows.replicas.values() if r.instance_id}
    by_slot: dict[str, Instance] = {}
    for instance in seen:
        there = registered.get(instance.id, set())
        usual = spec.hosted_by(instance.offering.pool.instance_type) if spec else 1
        count = counts.get(instance.id) or max(usual, len(there))
        slots = owned.get(instance.id, set()) | (there if count > 1 else set()) or {instance.id}
        by_slot |= {slot: replace(instance, id=slot, slots=count) for slot in sorted(slots)}
    return by_slot


def by_zone(rows: Rows) -> Mapping[str, set[str]]:
    """The instances that replicas have, by their zone."""
    found: dict[str, set[str]] = defaultdict(set)
    for replica in rows.replicas.values():
        if replica.instance_id and replica.offering:
            found[replica.offering.pool.zone].add(host(replica.instance_id))
    return found


def on_spot(rows: Rows, seen: Collection[Instance]) -> set[str]:
    """The Spot instances that replicas have or that bear the service's tag, but for those that have ended.

    One whose offering nobody knows may be on Spot.
    """
    owned = {
        host(r.instance_id)
        for r in rows.replicas.values()
        if r.instance_id and (r.offering is None or r.offering.purchase_option.has_spot_requests)
    }
    shown = {i.id for i in seen if i.offering.purchase_option.has_spot_requests}
    return (owned | shown) - {i.id for i in seen if not i.state.is_alive}


def warned(rows: Rows, said: Mapping[str, datetime | None]) -> dict[str, datetime | None]:
    """When EC2 said that it takes an instance back, by slot; None: it said that it doesn't."""
    owned = taken(rows)
    return {
        slot: at for instance_id, at in said.items() for slot in {instance_id, *owned.get(instance_id, ())}
    }


def free(rows: Rows, slot_ids: Collection[str]) -> list[str]:
    """Of the slots that are to be ended, the instances on which no other replica is left: those may end.

    The rows are as they are left, those that just ended among them. Where not all of the replicas were read,
    one that shares its instance ends nothing: the next tick does.
    """
    owned = taken(rows)
    sharing = {r.instance_id for r in rows.replicas.values() if r.slots > 1}
    ending = {host(slot) for slot in slot_ids if rows.is_whole or slot not in sharing}
    return sorted(i for i in ending if owned.get(i, set()) <= set(slot_ids))

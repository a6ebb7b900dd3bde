"""Instances that host several replicas, each on a port of its own.

What hosts one replica is a slot. A replica's `instance_id` names its slot: the first one of an instance bears
the instance's own ID, as if there were no other; the others add the port that their server listens on. So
whatever knows replicas by instance knows each by itself, and only who talks to AWS need ask for `host`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from spotrelay.plane.core.instances import Instance

if TYPE_CHECKING:
    from spotrelay.plane.core.spec import ServiceSpec


def slot(instance_id: str, number: int, first_port: int) -> str:
    """The ID of an instance's slot; the numbers begin with 0."""
    return f"{instance_id}:{first_port + number}" if number else instance_id


def host(slot_id: str) -> str:
    """The instance that has the slot."""
    return slot_id.partition(":")[0]


def port(slot_id: str) -> int | None:
    """What its server listens on; None for an instance's first slot, whose ID doesn't say it."""
    written = slot_id.partition(":")[2]
    return int(written) if written else None


def of(instance: Instance, spec: ServiceSpec) -> list[Instance]:
    """The instance as each of its slots has it; `spec` is the document that it was launched by."""
    count = spec.hosted_by(instance.offering.pool.instance_type)
    if count == 1:
        return [instance]
    ids = (slot(instance.id, number, spec.port) for number in range(count))
    return [replace(instance, id=id_, slots=count) for id_ in ids]


def fitting(types: Sequence[str], counts: Mapping[str, int], wanted: int) -> list[str]:
    """The instance types that host no more replicas than are wanted; all of them if none does.

    Of others a part would be paid for nothing.
    """
    return [name for name in types if counts.get(name, 1) <= wanted] or list(types)

"""Instances that already serve in a service's target group, and become replicas of it.

Until then the controller leaves them alone: they bear no tag of ours, and no row has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from spotrelay.plane.core.instances import InstanceState, Target, TargetState
from spotrelay.plane.core.names import TAG_SERVICE
from spotrelay.plane.core.pools import PurchaseOption
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Changes, Rows
from spotrelay.plane.core.spec import OnUpdate, ServiceSpec
from spotrelay.plane.serving import strength
from spotrelay.plane.serving.observation import Observation, counted, staying_count

OTHERS = {
    "aws:autoscaling:groupName": "Auto Scaling group",
    "aws:ec2spot:fleet-request-id": "Spot Fleet",
}
"""AWS's own tags of instances that something replaces already, and what that is."""

REASON = "adopted: it served before"

NO_VERSION = 0
"""Of what is adopted to be replaced: a roll-out takes it for old, whatever is deployed."""


class NotAdoptableError(Exception):
    """Why these can't be adopted: one line, with the remedy."""


def foreign(targets: Sequence[Target], rows: Rows) -> list[Target]:
    """The targets that no row has."""
    owned = {r.instance_id for r in rows.replicas.values()}
    return [target for target in targets if target.id not in owned]


def why_not(target: Target, spec: ServiceSpec, *, is_to_be_replaced: bool) -> str | None:
    """Why a target can't be adopted, with the remedy; None if it can."""
    tags, instance = target.tags or {}, target.instance
    if instance is None:
        return "it is no instance of this account and region"
    if target.health is not TargetState.HEALTHY:
        return f"it is {target.health}, and only what serves is adopted"
    if instance.state is not InstanceState.RUNNING:
        return f"its instance is {instance.state}"
    owner = tags.get(TAG_SERVICE)
    if owner is not None and owner != spec.service:
        return f"it belongs to the service {owner}"
    for tag, what in OTHERS.items():
        if tag in tags:
            return (
                f"the {what} {tags[tag]} would replace it, too: detach it from that, and register it again"
                " if that took it out of the target group"
            )
    if target.is_twice:
        return "it is registered with two ports: deregister one"
    if target.port != spec.port and not is_to_be_replaced:
        return (
            f"it listens on {target.port}, and the service file says {spec.port}: say the same there, or"
            " adopt it with --replace"
        )
    return None


def check(spec: ServiceSpec, rows: Rows, count: int, *, is_to_be_replaced: bool) -> None:
    """Whether so many may become replicas at all; `spec` is what is in effect.

    Raises:
        NotAdoptableError: there would be more than wanted, and some would be ended; or nothing replaces them.
    """
    if is_to_be_replaced and spec.on_update is not OnUpdate.ROLLING:
        # All at once, a version that fails is taken back to the one before, and these have none.
        raise NotAdoptableError(
            f"spotrelay.on_update is {spec.on_update}, and only rolling replaces one after the other: leave"
            " out --replace, or change that"
        )
    serving = sum(r.stays and not r.is_fallback for r in counted(rows))
    if serving + count > spec.replicas:
        raise NotAdoptableError(
            f"{count} can be adopted, {serving} replicas serve already, and the service wants"
            f" {spec.replicas}: some of them would be terminated. Let replicas be {serving + count} first, in"
            " the service file"
        )


def decide(
    spec: ServiceSpec, rows: Rows, targets: Sequence[Target], now: datetime, *, is_to_be_replaced: bool
) -> Changes:
    """Rows for targets that can be adopted, at most `Changes.MAX_ROWS`; `spec` is what is in effect.

    They are ready at once, and nothing is replaced because it is adopted, unless that is asked for. The next
    roll-out replaces these like the others.
    """
    base = strength.base_left(spec, Observation(rows))
    created: list[Replica] = []
    for id_, target in enumerate(targets, start=rows.highest_id + 1):
        replica = _row(spec, id_, target, now, is_base=base > 0, is_to_be_replaced=is_to_be_replaced)
        base -= replica.purchase_option.fallback is None
        created.append(replica)
    staying = staying_count(rows)
    return Changes(
        spec.service,
        highest_id=(rows.highest_id, rows.highest_id + len(created)),
        serving=(rows.serving, staying + len(created)),
        create=tuple(created),
    )


def _row(
    spec: ServiceSpec, id_: int, target: Target, now: datetime, *, is_base: bool, is_to_be_replaced: bool
) -> Replica:
    instance = target.instance
    if instance is None:
        raise ValueError(f"{target.id} is no instance")
    option = instance.offering.purchase_option
    return Replica(
        spec.service,
        id_,
        NO_VERSION if is_to_be_replaced else spec.version,
        ReplicaState.READY,
        REASON,
        # It has served for long: when it was launched says nothing about how long one of ours takes to start.
        dict.fromkeys((ReplicaState.REQUESTED, ReplicaState.PROVISIONING, ReplicaState.READY), now),
        offering=instance.offering,
        instance_id=instance.id,
        # What comes in its place is bought as the service file says.
        purchase_option=option if option.fallback is None and is_base else PurchaseOption.SPOT,
        port=target.port,
        is_adopted=True,
    )

"""When a replica that EC2 takes back leaves the rotation: early where others are enough, late where not.

A warned instance runs for two more minutes. To take it out of the load balancer at once lets its requests
finish, and is right while the others carry the load. Where they don't, every request that it would have
answered fails, for nothing: then it *serves on* until others are enough, or until its drain deadline, after
which its requests would have too little time to finish. The very last one in rotation stays a little longer:
a cut answer is better than every request refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime

from spotrelay.core import timing
from spotrelay.core.replica import Replica, ReplicaState
from spotrelay.core.rows import Rows
from spotrelay.core.spec import OnWarning, ServiceSettings, ServiceSpec
from spotrelay.core.timing import seconds

WARNED = "interruption warning"
"""Why a replica is replaced that EC2 takes back."""


def ends_at(warned_at: datetime) -> datetime:
    """When EC2 takes an instance that it has warned."""
    return warned_at + seconds(timing.NOTICE_S)


def drain_deadline(spec: ServiceSpec, warned_at: datetime) -> datetime:
    """The latest time at which it can leave the rotation and still finish its requests."""
    return warned_at + seconds(serves_on_s(spec))


def serves_on_s(spec: ServiceSettings) -> float:
    """How long after its warning that is; negative where a drain takes longer than EC2 leaves."""
    return timing.NOTICE_S - spec.drain_s - timing.DRAIN_SETTLE_S


def finishes_within_s(spec: ServiceSettings, replica: Replica) -> float:
    """How long it may finish its requests, out of rotation, before we end it; EC2 ends what it has warned."""
    is_unhurried = ReplicaState.READY in replica.entered and not replica.is_warned
    return spec.longest_drain_s if is_unhurried else spec.drain_s


def last_moment(warned_at: datetime) -> datetime:
    """Until then the very last one stays."""
    return ends_at(warned_at) - seconds(timing.LAST_ONE_STAYS_S)


def enough(spec: ServiceSpec) -> int:
    """How many others must serve, and stay, for a warned replica to leave at once."""
    if spec.on_warning is OnWarning.SERVE_ON:
        return spec.replicas
    return min(max(spec.replicas - 1, 1), spec.replicas)


def may_leave(spec: ServiceSpec, warned_at: datetime, staying: int, now: datetime, *, is_last: bool) -> bool:
    """Whether a warned replica that serves leaves the rotation now, while so many others serve and stay."""
    if spec.on_warning is OnWarning.LEAVE or staying >= enough(spec):
        return True
    return now >= (last_moment(warned_at) if is_last else drain_deadline(spec, warned_at))


def leaving(spec: ServiceSpec, rows: Rows, gone: Collection[int], now: datetime) -> Iterator[Replica]:
    """Of those that serve on, the ones whose time has come; `gone` are lost, whatever their row says."""
    there = [r for r in rows.replicas.values() if r.id not in gone]
    staying = sum(r.stays for r in there)
    # Also one that doesn't answer its checks: where none does, the load balancer sends requests to all.
    serving_on = [
        (r.serves, r.warned_at, r.id) for r in there if r.warned_at and r.state is ReplicaState.READY
    ]
    last = max(serving_on, default=None) if staying == 0 else None
    for one in serving_on:
        _, warned_at, id_ = one
        if may_leave(spec, warned_at, staying, now, is_last=one == last):
            yield rows.replicas[id_]


def is_due_soon(spec: ServiceSpec, warned_at: datetime, now: datetime) -> bool:
    """Whether one of its looks is due in the next seconds."""
    soon = now + seconds(timing.LOOK_AGAIN_WITHIN_S)
    return any(now < at <= soon for at in looks_due(spec, warned_at))


def looks_due(spec: ServiceSpec, warned_at: datetime) -> tuple[datetime, datetime]:
    """When somebody must look at a replica that serves on, whatever else happens or doesn't."""
    skew = seconds(timing.CLOCKS_APART_S)
    return drain_deadline(spec, warned_at) + skew, last_moment(warned_at) + skew

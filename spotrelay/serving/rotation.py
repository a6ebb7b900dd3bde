"""When a replica that EC2 takes back leaves the rotation: early where others are enough, late where not.

A warned instance runs for two more minutes. To take it out of the load balancer at once lets its requests
finish, and is right while the others carry the load. Where they don't, every request that it would have
answered fails, for nothing: then it *serves on* until others are enough, or until its drain deadline, after
which its requests would have too little time to finish. The very last one in rotation stays a little longer:
a cut answer is better than every request refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType

from spotrelay.core import timing
from spotrelay.core.instances import InstanceState, TargetState
from spotrelay.core.replica import Replica, ReplicaState
from spotrelay.core.rows import Rows
from spotrelay.core.spec import OnWarning, ServiceSettings, ServiceSpec
from spotrelay.core.timing import seconds
from spotrelay.serving.observation import Observation

WARNED = "interruption warning"
"""Why a replica is replaced that EC2 takes back."""

NOTHING: Mapping[str, datetime | None] = MappingProxyType({})
"""EC2 wasn't asked."""

OTHERS_SERVE = "came back, and others serve again"
"""Why one leaves again that came back."""


def ends_at(warned_at: datetime) -> datetime:
    """When EC2 takes an instance that it has warned."""
    return warned_at + seconds(timing.NOTICE_S)


def may_serve_on(replica: Replica) -> bool:
    """Whether it serves, or may come to before EC2 takes it. Its row may be behind the load balancer."""
    return replica.state in _MAY_SERVE


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


def may_leave(
    spec: ServiceSpec,
    warned_at: datetime,
    staying: int,
    now: datetime,
    *,
    is_last: bool,
    is_spared: bool = False,
) -> bool:
    """Whether a warned replica that serves leaves the rotation now, while so many others serve and stay.

    `is_spared`: EC2 says that it doesn't take it back after all. Then the last one stays. If that is wrong,
    requests are cut that nobody else would have answered.
    """
    if spec.on_warning is OnWarning.LEAVE or staying >= enough(spec):
        return True
    if is_last:
        return not is_spared and now >= last_moment(warned_at)
    return now >= drain_deadline(spec, warned_at)


def leaving(
    spec: ServiceSpec,
    rows: Rows,
    gone: Collection[int],
    now: datetime,
    said: Mapping[str, datetime | None] = NOTHING,
) -> Iterator[Replica]:
    """Of those that serve on, the ones whose time has come, and of those that came back, who isn't needed.

    `gone` are lost, whatever their row says. `said`: of instances, when EC2 warned them by what it says now.
    None: it doesn't take them back, though it warned them.
    """
    there = [r for r in rows.replicas.values() if r.id not in gone]
    staying = sum(r.stays for r in there)
    last = {r.id for r in last_there(there)}
    for replica in there:
        if replica.warned_at and may_serve_on(replica):
            is_last, warned_at = replica.id in last, replica.warned_at
            at = said.get(replica.instance_id or "", warned_at)
            if is_last and at:
                # EC2 may have taken the warning back, and warned it once more since.
                warned_at = max(warned_at, at)
            if may_leave(spec, warned_at, staying, now, is_last=is_last, is_spared=at is None):
                yield replica
    if staying >= spec.replicas:
        yield from (r for r in there if r.comes_back and not r.is_warned)


def last_in_rotation(replicas: Collection[Replica]) -> list[Replica]:
    """Who may be the last one to answer: who serves on, and who has left, by its row, while nobody serves."""
    is_served = any(r.serves for r in replicas)
    left = [r for r in replicas if r.state is ReplicaState.DRAINING and not is_served]
    return [*last_there(replicas), *left]


def last_there(replicas: Collection[Replica]) -> list[Replica]:
    """Who serves on the longest where all are warned; empty: another one stays.

    It is one of those that serve, and what may come to serve after it. Where none does by its row, it is all
    that may: rows may be behind what the load balancer knows, and that sends requests to all where none is
    healthy.
    """
    if any(r.stays for r in replicas):
        return []
    serving_on = [(r.warned_at, r.id, r) for r in replicas if r.warned_at and may_serve_on(r)]
    serving = [one for one in serving_on if one[2].serves]
    if not serving:
        return [replica for _, _, replica in serving_on]
    until, _, last = max(serving)
    return [last, *(r for at, _, r in serving_on if at > until and not r.serves)]


def coming_back(spec: ServiceSpec, seen: Observation, now: datetime, ended: Collection[int] = ()) -> set[int]:
    """Of those that have left and still run, the ones that come back, as nobody serves.

    Those first that answer their checks, and of these the ones that EC2 leaves longest. `ended` are those
    that count as gone from now on, whatever the load balancer says of them.
    """
    rows = list(seen.rows.replicas.values())
    draining = {r.instance_id for r in rows if r.state is ReplicaState.DRAINING or r.id in ended}
    answers = (id_ for id_, state in seen.health.items() if state is TargetState.HEALTHY)
    unsure = unconfirmed(seen).union(ended)
    if any(r.serves and r.id not in unsure for r in rows) or any(id_ not in draining for id_ in answers):
        return set()
    left = [r for r in rows if _has_left(r, seen)]
    left.sort(key=lambda r: (seen.health_of(r) is TargetState.HEALTHY, _leaves_last(r)), reverse=True)
    back = [r for r in left if _has_time(spec, r, seen, now, is_last=False)]
    if not back and not last_there([r for r in rows if r.id not in unsure]):
        back = [r for r in left[:1] if _has_time(spec, r, seen, now, is_last=True)]
    return {r.id for r in back[: spec.replicas]}


def unconfirmed(seen: Observation) -> set[int]:
    """Of those that serve by their rows, the ones of which something else was just seen."""
    return {r.id for r in seen.rows.replicas.values() if r.serves and not _is_still_there(r, seen)}


def _is_still_there(replica: Replica, seen: Observation) -> bool:
    """Whether nothing that was just seen says otherwise of one that serves by its row."""
    instance = seen.instance_of(replica)
    is_dead = instance is not None and not instance.state.is_alive
    # What isn't registered gets no request, either: somebody took it out, or its target was lost.
    return not is_dead and seen.health_of(replica) in (TargetState.HEALTHY, TargetState.UNAVAILABLE)


def _has_left(replica: Replica, seen: Observation) -> bool:
    """Whether it has served and left, and its instance runs; what answers its checks does both.

    A standby on its way back is resumed instead, unless it answers: another one's start may be refused.
    """
    instance = seen.instance_of(replica)
    answers = seen.health_of(replica) is TargetState.HEALTHY
    is_there = answers if instance is None else instance.state is InstanceState.RUNNING
    has_served = answers or ReplicaState.READY in replica.entered
    may_come = answers or not replica.is_standby
    return replica.state is ReplicaState.DRAINING and has_served and is_there and may_come


def _has_time(
    spec: ServiceSpec, replica: Replica, seen: Observation, now: datetime, *, is_last: bool
) -> bool:
    """Whether it wouldn't have to leave again at once."""
    warned_at = replica.warned_at or seen.warned.get(replica.instance_id or "")
    is_spared = replica.instance_id in seen.spared
    return warned_at is None or not may_leave(spec, warned_at, 0, now, is_last=is_last, is_spared=is_spared)


def _leaves_last(replica: Replica) -> tuple[bool, datetime, int]:
    """Sorts by how long EC2 leaves an instance; those that it doesn't take come last."""
    return replica.warned_at is None, replica.warned_at or replica.since, replica.id


def is_due_soon(spec: ServiceSpec, warned_at: datetime, now: datetime) -> bool:
    """Whether one of its looks is due in the next seconds."""
    soon = now + seconds(timing.LOOK_AGAIN_WITHIN_S)
    return any(now < at <= soon for at in looks_due(spec, warned_at))


_MAY_SERVE = frozenset({ReplicaState.PROVISIONING, ReplicaState.STARTING, ReplicaState.READY})


def looks_due(spec: ServiceSpec, warned_at: datetime) -> tuple[datetime, datetime]:
    """When somebody must look at a replica that serves on, whatever else happens or doesn't."""
    skew = seconds(timing.CLOCKS_APART_S)
    return drain_deadline(spec, warned_at) + skew, last_moment(warned_at) + skew

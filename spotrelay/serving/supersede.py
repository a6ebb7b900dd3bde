"""Replicas that should be replaced and needn't go at once: the replacement first, then the drain.

EC2 recommends to leave an instance, a replica doesn't answer its health checks, or a new version is deployed.
The load balancer sends an unhealthy one nothing while others are healthy, and spreads over all when none is:
there it still helps.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from spotrelay.core import timing
from spotrelay.core.replica import Replica, ReplicaState
from spotrelay.core.spec import OnRebalance, ServiceSpec
from spotrelay.core.timing import seconds
from spotrelay.serving import rollout
from spotrelay.serving.actions import Drain, GoWithout, Replace
from spotrelay.serving.observation import Observation, spare


def decide(spec: ServiceSpec, seen: Observation, now: datetime) -> Iterator[Drain | Replace | GoWithout]:
    """Drain what has its replacement, and request the next ones: no more at a time than `surge`."""
    rows = seen.rows
    staying = [r for r in rows.replicas.values() if r.is_counted and not r.is_fallback]
    superseded = {r.id: r for r in staying if r.superseded_in(rows)}
    may_go = spare(spec, rows)
    extra = 0
    for replica in superseded.values():
        successor = rows.replicas[replica.replaced_by or 0]
        if successor.stays and (may_go > 0 or not replica.serves):
            may_go -= replica.serves
            yield Drain(replica, successor.reason)
        elif successor.stays:
            extra += 1
    candidates = [r for r in staying if r.id in seen.read.replicas and r.id not in superseded]
    due = {r.id: replacement for r in candidates if (replacement := _due(spec, r, seen, now))}
    # One that was to be replaced and serves all the same takes the place of another that doesn't answer.
    for unhealthy in [r for r in candidates if r.id in due and not r.serves][:extra]:
        yield Drain(unhealthy, due.pop(unhealthy.id).reason)
        yield GoWithout(unhealthy)
    # A replica that should be superseded may have lost its replacement, which was itself replaced since.
    beyond = max(len(superseded), len(staying) - spec.replicas)
    yield from sorted(due.values(), key=_urgency)[: max(spec.surge - beyond, 0)]


def _due(spec: ServiceSpec, replica: Replica, seen: Observation, now: datetime) -> Replace | None:
    """The replacement that it should get; None if it should stay."""
    if replica.state is not ReplicaState.READY:
        return None
    is_followed = spec.on_rebalance is OnRebalance.REPLACE and replica.rebalance_at is not None
    if replica.unhealthy_since is not None:
        if now - replica.unhealthy_since < seconds(timing.UNHEALTHY_REPLACED_S):
            return None
        reason = f"unhealthy for {timing.UNHEALTHY_REPLACED_S:.0f} s"
    elif is_followed and now - replica.since >= seconds(timing.REBALANCE_MIN_AGE_S):
        reason = "rebalance recommendation"
    elif replica.version < spec.version and rollout.may_go_on(spec, seen.rows, now):
        return Replace(replica, f"version {spec.version} is deployed", spec.version)
    else:
        return None
    return Replace(replica, reason, rollout.proven(spec, seen.rows, replica))


def _urgency(replacement: Replace) -> tuple[bool, datetime]:
    """What doesn't answer first, then the oldest."""
    return replacement.replica.serves, replacement.replica.since

"""Replicas that should be replaced and needn't go at once: the replacement first, then the drain.

EC2 recommends to leave an instance, a replica doesn't answer its health checks or its readiness probe, or a
new version is deployed.
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
from spotrelay.serving.actions import Drain, End, GiveUp, GoWithout, Replace
from spotrelay.serving.observation import Observation, spare, stays_from


def decide(
    spec: ServiceSpec, seen: Observation, now: datetime
) -> Iterator[Drain | End | Replace | GoWithout | GiveUp]:
    """Drain what has its replacement, and request the next ones: no more at a time than `surge`.

    All that EC2 recommends to leave is replaced at once: it takes a pool's instances together.
    """
    rows = seen.rows
    staying = [r for r in rows.replicas.values() if r.is_counted and not r.is_fallback]
    superseded = {r.id: r for r in staying if r.superseded_in(rows)}
    may_go, found_ill = spare(spec, rows), seen.found_ill
    extra, given_up = 0, set()
    for replica in superseded.values():
        successor = rows.replicas[replica.replaced_by or 0]
        serves = replica.serves or replica.id in found_ill
        if successor.stays and (not serves or (may_go > 0 and _is_settled(successor, replica, now))):
            may_go -= serves
            yield Drain(replica, successor.reason)
        elif successor.stays:
            extra += 1
        elif serves and _is_needless(spec, successor, seen):
            yield End(successor, GIVEN_UP)
        elif replica.serves and _is_ill(successor, now):
            # What it was to replace serves, so nothing need come in its place.
            given_up.add(successor.id)
            yield Drain(successor, UNHEALTHY)
            yield GoWithout(successor)
    candidates = [
        r for r in staying if r.id in seen.read.replicas and r.id not in superseded and r.id not in given_up
    ]
    due = {r.id: replacement for r in candidates if (replacement := _due(spec, r, seen, now))}
    # One that was to be replaced and serves all the same takes the place of another that doesn't answer.
    for unhealthy in [r for r in candidates if r.id in due and not r.serves][:extra]:
        yield Drain(unhealthy, due.pop(unhealthy.id).reason)
        yield GoWithout(unhealthy)
    # A replica that should be superseded may have lost its replacement, which was itself replaced since.
    beyond = max(len(superseded), len(staying) - spec.replicas)
    beyond -= sum(rows.replicas[r.replaced_by or 0].reason == RECOMMENDED for r in superseded.values())
    # Of more than wanted some go anyway.
    is_surplus = len(staying) - len(superseded) - len(given_up) > spec.replicas
    most = 0 if is_surplus else max(spec.surge - beyond, 0)
    recommended = [] if is_surplus else [r for r in due.values() if r.reason == RECOMMENDED]
    others = [r for r in due.values() if r.reason != RECOMMENDED]
    replacements = [*sorted(others, key=_urgency)[:most], *recommended]
    yield from replacements
    given_up |= {r.replica.id for r in replacements if not r.replica.serves}
    if any(rollout.is_under_way(spec, rows, rows.replicas[id_]) for id_ in given_up):
        yield GiveUp(spec.version)


RECOMMENDED = "rebalance recommendation"
UNHEALTHY = f"unhealthy for {timing.UNHEALTHY_REPLACED_S:.0f} s"
SILENT = "no answer to its readiness probe"
GIVEN_UP = "its version is given up"


def _is_ill(replica: Replica, now: datetime) -> bool:
    """Whether it was ready and hasn't answered for so long that it should be replaced."""
    since = replica.unhealthy_since
    is_ready = replica.state is ReplicaState.READY
    return is_ready and since is not None and now - since >= seconds(timing.UNHEALTHY_REPLACED_S)


def is_silent(spec: ServiceSpec, replica: Replica, now: datetime) -> bool:
    """Whether it hasn't answered the readiness probe for so long that it should be replaced.

    It serves on until its replacement does: it may only be busy, and its health check is another's matter.
    """
    probe, since = spec.readiness_probe, replica.silent_since
    if probe is None or probe.failure_threshold_s is None or since is None:
        return False
    return now - since >= seconds(probe.failure_threshold_s)


def _is_needless(spec: ServiceSpec, successor: Replica, seen: Observation) -> bool:
    """Whether it waits to be launched, and would be as what is there already."""
    is_waiting = successor.state is ReplicaState.REQUESTED and successor.launch_id not in seen.rows.intents
    return is_waiting and rollout.is_called_off(spec, seen.rows, successor)


def _is_settled(successor: Replica, replica: Replica, now: datetime) -> bool:
    """Whether the successor may be relied on: one of a new version may turn ill soon after it got ready."""
    return successor.version == replica.version or stays_from(successor) <= now


def _due(spec: ServiceSpec, replica: Replica, seen: Observation, now: datetime) -> Replace | None:
    """The replacement that it should get; None if it should stay."""
    if replica.state is not ReplicaState.READY:
        return None
    is_followed = spec.on_rebalance is OnRebalance.REPLACE and replica.rebalance_at is not None
    if _is_ill(replica, now):
        reason = UNHEALTHY
    elif not replica.serves:
        return None
    elif is_followed and now - replica.since >= seconds(timing.REBALANCE_MIN_AGE_S):
        reason = RECOMMENDED
    elif is_silent(spec, replica, now):
        reason = SILENT
    elif rollout.is_next(spec, seen.rows, replica, now):
        return Replace(replica, f"version {spec.version} is deployed", spec.version)
    else:
        return None
    return Replace(replica, reason, rollout.proven(spec, seen.rows, replica))


def _urgency(replacement: Replace) -> tuple[bool, datetime]:
    """What doesn't answer first, then the oldest."""
    return replacement.replica.serves, replacement.replica.since

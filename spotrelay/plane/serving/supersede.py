"""Replicas that should be replaced and needn't go at once: the replacement first, then the drain.

EC2 recommends to leave an instance, or announces an event for it, a replica doesn't answer its health checks
or its readiness probe, or a new version is deployed.
The load balancer sends an unhealthy one nothing while others are healthy, and spreads over all when none is:
there it still helps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice

from spotrelay.plane.core import timing
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.slots import host
from spotrelay.plane.core.spec import OnRebalance, ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving import interruption, rollout, steps
from spotrelay.plane.serving.observation import Observation, as_serving, at_most, spare
from spotrelay.plane.serving.steps import Step


def decide(spec: ServiceSpec, seen: Observation, now: datetime) -> Iterator[Step]:
    """Drain what has its replacement, and request the next ones: no more at a time than `surge`.

    All that EC2 recommends to leave is replaced at once: it takes a pool's instances together.
    """
    rows = seen.rows
    staying = [r for r in rows.replicas.values() if r.is_counted and not r.is_fallback]
    superseded = {r.id: r for r in staying if r.superseded_in(rows)}
    may_go, found_ill = spare(spec, rows), seen.found_ill
    if all_ := list(_at_once(spec, seen, now)):
        yield from all_
        return
    at_once = {
        r.id
        for r in superseded.values()
        if rollout.changes_at_once(spec) and rows.replicas[r.replaced_by or 0].version == spec.version
    }
    in_vain = at_most(may_go, [as_serving(r, found_ill) for r in _in_vain(spec, seen, superseded, found_ill)])
    yield from (steps.drain(rows.replicas[r.id], now, GIVEN_UP).without_replacement() for r in in_vain)
    may_go -= sum(r.serves for r in in_vain)
    extra, given_up = 0, {r.id for r in in_vain}
    superseded = {id_: r for id_, r in superseded.items() if r.replaced_by not in given_up}
    gone = {r.id: r for r in _unanswered(rows, superseded.values(), now)}
    yield from (steps.drain(r, now, UNHEALTHY) for r in gone.values())
    for replica in superseded.values():
        successor = rows.replicas[replica.replaced_by or 0]
        serves = replica.serves or replica.id in found_ill
        if serves and replica.id in at_once and rollout.is_old(spec, replica):
            continue
        if successor.stays and (not serves or (may_go > 0 and _is_settled(spec, successor, replica, now))):
            may_go -= serves
            # Why a replacement was requested is true no more of one that came back.
            has_left = ReplicaState.DRAINING in replica.entered
            yield steps.drain(replica, now, interruption.OTHERS_SERVE if has_left else successor.reason)
        elif successor.stays:
            extra += 1
        elif serves and _is_needless(spec, successor, seen):
            yield steps.end(successor, now, GIVEN_UP)
        elif replica.serves and _is_ill(successor, now):
            # What it was to replace serves, so nothing need come in its place.
            given_up.add(successor.id)
            yield steps.drain(successor, now, UNHEALTHY).without_replacement()
    candidates = [
        r for r in staying if r.id in seen.read.replicas and r.id not in superseded and r.id not in given_up
    ]
    due = {r.id: replacement for r in candidates if (replacement := _due(spec, r, seen, now))}
    # One that was to be replaced and serves all the same takes the place of another that doesn't answer.
    for unhealthy in [r for r in candidates if r.id in due and not r.serves][:extra]:
        yield steps.drain(unhealthy, now, due.pop(unhealthy.id).reason).without_replacement()
        extra -= 1
    # So too of one whose own replacement waits for others: those may wait for the room that it takes.
    waiting = (r for r in superseded.values() if not rows.replicas[r.replaced_by or 0].stays)
    ill = (r for r in waiting if r.id in at_once and r.id not in gone and _is_ill(r, now))
    yield from (steps.drain(r, now, UNHEALTHY) for r in islice(ill, extra))
    # A replica that should be superseded may have lost its replacement, which was itself replaced since.
    beyond = max(len(superseded), len(staying) - spec.replicas)
    beyond -= sum(rows.replicas[r.replaced_by or 0].reason == RECOMMENDED for r in superseded.values())
    # Of more than wanted some go anyway.
    is_surplus = len(staying) - len(superseded) - len(given_up) > spec.replicas
    replacements = [] if is_surplus else _in_turn(spec, seen, list(due.values()), beyond)
    yield from replacements
    given_up |= {r.replica.id for r in replacements if not r.replica.serves}
    if any(rollout.is_under_way(spec, rows, rows.replicas[id_]) for id_ in given_up):
        yield steps.give_up(spec.version)


def _in_turn(spec: ServiceSpec, seen: Observation, due: Sequence[Step], beyond: int) -> list[Step]:
    """The replacements that may begin now, while so many beyond those wanted are there."""
    recommended = [r for r in due if r.reason == RECOMMENDED]
    in_turn = sorted((r for r in due if r.reason != RECOMMENDED), key=_urgency)
    if not rollout.changes_at_once(spec):
        return [*in_turn[: max(spec.surge - beyond, 0)], *recommended]
    # Those that wait outside the rotation are no reason to let one be that doesn't answer.
    updates = [r for r in in_turn if r.creates[0].version == spec.version and rollout.is_old(spec, r.replica)]
    others = [r for r in in_turn if r not in updates]
    # One that comes in place of another of its version takes a turn, whatever keeps it out of the rotation.
    rows = seen.rows
    pairs = ((r, rows.replicas.get(r.replaces or 0)) for r in rows.replicas.values())
    of_update = (r for r, before in pairs if before is None or rollout.is_old(spec, before))
    waiting = sum(rollout.is_waiting(spec, rows, r) for r in of_update)
    others = others[: max(min(spec.surge, spec.surge - beyond + waiting), 0)]
    return [*others, *updates[: max(spec.replicas - beyond - len(others), 0)], *recommended]


def _at_once(spec: ServiceSpec, seen: Observation, now: datetime) -> Iterator[Step]:
    """Where no client is to meet both versions for long: all old ones go, or all new ones."""
    if not rollout.changes_at_once(spec):
        return
    rows = seen.rows
    old = [r for r in rows.replicas.values() if r.is_counted and rollout.is_old(spec, r)]
    new = [r for r in rows.replicas.values() if r.is_counted and r.version == spec.version]
    if rollout.may_change(spec, rows, now):
        for replica in old:
            if going := _away(replica, now, rollout.deployed(spec.version), seen):
                yield going
    elif not any(r.serves for r in old):
        return
    elif rollout.has_failed(spec, rows):
        # Where nothing earlier can be launched, the same would come in their place.
        if rollout.proven(spec, rows) != spec.version:
            yield from _take_back(spec, seen, now, old, new)
    elif any(_is_ill(r, now) for r in new) or rollout.is_refused_for_good(spec, rows, now):
        yield steps.give_up(spec.version)


def _take_back(
    spec: ServiceSpec, seen: Observation, now: datetime, old: Sequence[Replica], new: Sequence[Replica]
) -> Iterator[Step]:
    """The new ones go, but for those that are needed: in place of one that doesn't answer, or of many."""
    kept = {r.replaced_by for r in old if not r.serves}
    superseding = {r.replaced_by for r in old}
    # One that has missed its checks only just now may serve again.
    may_serve = {r.id for r in new if r.state is ReplicaState.READY and not _is_ill(r, now)}
    is_enough = spare(spec, seen.rows) >= len(may_serve)
    for replica in new:
        if replica.id in kept or (replica.id in may_serve and not is_enough):
            continue
        going = _away(replica, now, GIVEN_UP, seen)
        if going is None:
            continue
        is_replaced = replica.id in superseding or replica.superseded_in(seen.rows)
        if replica.is_fallback or (is_replaced and replica.instance_id is None):
            yield going
        elif is_replaced:
            yield going.without_replacement()
        else:  # what it replaced was lost meanwhile
            yield going.with_replacement(now, rollout.proven(spec, seen.rows, replica))


def _away(replica: Replica, now: datetime, reason: str, seen: Observation) -> Step | None:
    """One that has no instance ends; one that is just being launched goes once it has been."""
    if replica.id not in seen.read.replicas:
        return None
    if replica.state is not ReplicaState.REQUESTED:
        return steps.drain(replica, now, reason)
    return None if replica.launch_id in seen.rows.intents else steps.end(replica, now, reason)


RECOMMENDED = "rebalance recommendation"
ANNOUNCED = "EC2 announces"
"""How the reason begins for an instance that is to be retired, stopped, rebooted or maintained."""

UNHEALTHY = f"unhealthy for {timing.UNHEALTHY_REPLACED_S:.0f} s"
SILENT = "no answer to its readiness probe"
GIVEN_UP = "its version is given up"


def _is_ill(replica: Replica, now: datetime, for_s: float | None = None) -> bool:
    """Whether it was ready and hasn't answered for so long, by default so that it should be replaced."""
    since = replica.unhealthy_since
    ill_s = timing.UNHEALTHY_REPLACED_S if for_s is None else for_s
    return replica.state is ReplicaState.READY and since is not None and now - since >= seconds(ill_s)


def _unanswered(rows: Rows, superseded: Iterable[Replica], now: datetime) -> Iterator[Replica]:
    """What doesn't answer, and neither does its replacement: with both there, nothing could replace that one.

    Where nobody serves, requests go to all of them, so it has more time.
    """
    is_down = not any(r.stays for r in rows.replicas.values())
    for_s = timing.UNHEALTHY_GIVEN_UP_S if is_down else None
    for replica in superseded:
        if _is_ill(replica, now, for_s) and _is_ill(rows.replicas[replica.replaced_by or 0], now):
            yield replica


def is_silent(spec: ServiceSpec, replica: Replica, now: datetime) -> bool:
    """Whether it hasn't answered the readiness probe for so long that it should be replaced.

    It serves on until its replacement does: it may only be busy, and its health check is another's matter.
    """
    probe, since = spec.readiness_probe, replica.silent_since
    if probe is None or probe.failure_threshold_s is None or since is None:
        return False
    return now - since >= seconds(probe.failure_threshold_s)


def _in_vain(
    spec: ServiceSpec, seen: Observation, superseded: Mapping[int, Replica], found_ill: Collection[int]
) -> Iterator[Replica]:
    """What came to try a version that was taken back since, where what it was to replace serves."""
    for replica in superseded.values():
        successor = seen.rows.replicas[replica.replaced_by or 0]
        known = seen.read.replicas.get(successor.id)
        is_launched = known is not None and known.instance_id is not None
        may_stay = replica.serves or replica.id in found_ill
        if is_launched and may_stay and rollout.is_taken_back(spec, successor):
            yield successor


def _is_needless(spec: ServiceSpec, successor: Replica, seen: Observation) -> bool:
    """Whether it waits to be launched, and would be as what is there already."""
    is_waiting = successor.state is ReplicaState.REQUESTED and successor.launch_id not in seen.rows.intents
    return is_waiting and rollout.is_called_off(spec, seen.rows, successor)


def _is_settled(spec: ServiceSpec, successor: Replica, replica: Replica, now: datetime) -> bool:
    """Whether the successor may be relied on: one of a new version may turn ill soon after it got ready."""
    return successor.version == replica.version or rollout.baked_at(spec, successor) <= now


def _due(spec: ServiceSpec, replica: Replica, seen: Observation, now: datetime) -> Step | None:
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
    elif what := seen.announced.get(host(replica.instance_id or "")):
        reason = f"{ANNOUNCED} {what}"
    elif rollout.is_next(spec, seen.rows, replica, now):
        return steps.replace(replica, now, rollout.deployed(spec.version), spec.version)
    else:
        return None
    is_again = reason in (UNHEALTHY, SILENT) and replica.reason == reason
    if is_again and rollout.may_repair(spec, seen.rows, replica):
        # It came in the place of one that fell ill, too: its version is ill, and what is deployed repairs it.
        return steps.replace(replica, now, reason, spec.version)
    return steps.replace(replica, now, reason, rollout.proven(spec, seen.rows, replica))


def _urgency(replacement: Step) -> tuple[bool, datetime]:
    """What doesn't answer first, then the oldest."""
    return replacement.replica.serves, replacement.replica.since

"""As many replicas as wanted, and on-demand fallbacks for those on Spot that aren't ready.

A service has `replicas` regular replicas: `base_on_demand` of them bought on-demand, the rest on Spot. One
that is lost is replaced by one that is bought the same way. While a Spot replica was refused, or is still
starting when the one that it replaces is gone, an on-demand *fallback* is there in addition. Once Spot has
been ready for a while the fallback goes: make before break, with hysteresis. Nobody plans a "return to Spot":
Spot replicas are always wanted, asked for again and again, and fallbacks are what is missing of them.

Nothing that serves is given up while the rest that serve are fewer than wanted, whatever the reason would be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import TargetState
from spotrelay.plane.core.pools import OPTIONS, Offering, PurchaseOption
from spotrelay.plane.core.replica import Phase, Replica, ReplicaState
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving import failures, interruption, rollout, standby, steps
from spotrelay.plane.serving.observation import (
    Observation,
    as_serving,
    at_most,
    counted,
    is_due,
    spare,
    staying_count,
    stays_from,
)
from spotrelay.plane.serving.steps import Step

RETURN_SHARE = 4
"""A quarter of the replicas returns to Spot at a time, but two in any case: capacity that has just come back
may be gone in a minute, and until then each of them is paid for twice."""

RETURN_LEAST = 2


def decide(spec: ServiceSpec, seen: Observation, now: datetime) -> Iterator[Step]:
    """What is missing is requested and launched, what is too many goes."""
    rows, version = seen.rows, rollout.proven(spec, seen.rows)
    active = counted(rows)
    regular = [r for r in active if not r.is_fallback]
    fallbacks = [r for r in active if r.is_fallback]
    known, found_ill = {r.id for r in seen.known}, seen.found_ill
    may_go = spare(spec, rows)
    droppable = [as_serving(r, found_ill) for r in regular if r.id in known]
    # What may serve goes only while as many as wanted do for certain.
    kept_back = set() if staying_count(rows) >= spec.replicas else _unclear(spec, seen)
    dropped = at_most(may_go, _surplus(spec, droppable, len(regular) - spec.replicas, seen), kept_back)
    dropped_ids = {r.id for r in dropped}
    kept = [r for r in regular if r.id not in dropped_ids]
    # One that was to be replaced and serves all the same leaves less to stand in for.
    serving = sum(r.stays and not r.is_fallback for r in rows.replicas.values())
    missing = min(_missing(spec, kept, len(regular), seen), max(spec.replicas - serving, 0))
    # What was resumed is needed for as long as anything is missing, and is no reason to launch another.
    is_any_resumed = any(r.is_standby for r in fallbacks)
    needed = max(missing, min(len(fallbacks), spec.replicas - serving)) if is_any_resumed else missing
    standing_in = [as_serving(r, found_ill) for r in fallbacks]
    idle = _idle_fallbacks(standing_in, needed + _undecided(spec, kept, seen), kept, now)
    idle = [r for r in idle if r.id in known]
    idle = at_most(may_go - sum(r.serves for r in dropped), idle, kept_back)
    for replica in dropped:
        yield from _drop(replica, now, "more replicas than wanted", seen)
    for replica in idle:
        yield from _drop(replica, now, f"{_stood_in_for(spec).label} is back", seen)

    if not failures.is_held(version, rows.backoff, now):
        yield from _requests(spec, now, len(regular), _bought_steady(regular), version)
    wanted = missing - sum(not (standby.is_late(r, now) or is_given_up(r, now)) for r in fallbacks)
    wanted = min(wanted, spec.replicas + spec.surge - (len(fallbacks) - len(idle)))
    # One that fell ill is still here only if nobody else answers. The deployed version may be the repair.
    given_up = [r for r in fallbacks if is_given_up(r, now)]
    is_repair = bool(given_up) and all(rollout.may_repair(spec, rows, r) for r in given_up)
    tried = spec.version if is_repair else version
    is_fallback_held = failures.is_held(tried, rows.backoff, now, is_fallback=True)
    option = spec.purchase_option
    if option.fallback and wanted > 0 and not is_fallback_held:
        reason = f"{option.label} isn't ready"
        yield steps.request(now, wanted, reason, option.fallback, tried, is_fallback=True)
    gone = dropped_ids | {r.id for r in idle}
    staying = [r for r in active if r.id not in gone]
    refused = [r for r in staying if r.is_fallback and _is_refused(r)]
    # Once on-demand refuses, too, nothing waits for its pools to have rested: all are tried together.
    is_turn = any(is_due(r, seen, now) for r in refused)
    due = [
        _as_wanted(r, spec, rows, now)
        for r in staying
        if is_due(replace(r, retry_at=None) if is_turn and _is_refused(r) else r, seen, now)
    ]
    due = [r for r in due if not failures.is_held(r.version, rows.backoff, now, is_fallback=r.is_fallback)]
    is_whole = sum(r.stays and r.id not in gone for r in rows.replicas.values()) >= spec.replicas
    # What others wait for doesn't return to Spot: it replaces nothing until all of them are there.
    apart = [r for r in due if rollout.is_waiting(spec, rows, r)]
    yield from _launches(spec, apart, [], is_whole=False, is_last_resort=bool(refused))
    due = [r for r in due if r not in apart]
    rising = [r for r in kept if r.state in _RISING and not rollout.is_waiting(spec, rows, r)]
    yield from _launches(spec, due, rising, is_whole=is_whole, is_last_resort=bool(refused))


def is_given_up(replica: Replica, now: datetime) -> bool:
    """Whether a fallback hasn't answered its checks for so long that another one is to come in its place."""
    since = replica.unhealthy_since
    return replica.is_fallback and since is not None and now - since > seconds(timing.UNHEALTHY_GIVEN_UP_S)


def _unclear(spec: ServiceSpec, seen: Observation) -> set[int]:
    """Those that may serve though their rows don't say so.

    Neither EC2 nor the load balancer shows one that is ready, or that starts and may be in rotation. Or the
    load balancer doesn't know how one does that starts, or says that it answers, and EC2 doesn't show it.
    """

    def is_unclear(replica: Replica) -> bool:
        health, is_starting = seen.health_of(replica), replica.state is ReplicaState.STARTING
        if is_starting and health in _MAY_ANSWER:
            return True
        is_unseen = health is None and replica.instance_id not in seen.instances
        # Without a probe it is registered as soon as its instance runs.
        may_be_in = is_starting and (spec.readiness_probe is None or Phase.REGISTERED in replica.phases)
        return is_unseen and (replica.state is ReplicaState.READY or may_be_in)

    return {r.id for r in seen.rows.replicas.values() if is_unclear(r)}


def next_look(spec: ServiceSpec | None, seen: Observation, now: datetime) -> datetime | None:
    """When a tick that found nothing to do should be followed by the next; None: the minute's will do."""
    rows, soon = seen.rows, now + seconds(seen.rows.look_again_s)
    if rows.intents:
        return soon
    waits: list[datetime] = []
    replicas = rows.replicas.values()
    # Of those that have just got ready something else waits to see them stay.
    is_stood_in_for = any(r.is_fallback or r.superseded_in(rows) for r in replicas)
    for replica in replicas:
        if replica.stays:
            if spec and rollout.is_replaced(spec, rows, replica):
                waits.append(rollout.due_from(spec, rows, replica))
            elif is_stood_in_for:
                settled = (stays_from(replica), rollout.baked_at(spec, replica) if spec else now)
                waits += [at for at in settled if at > now]
        elif _is_left_alone(spec, replica, now):
            continue
        elif (until := _waits_until(spec, replica, seen)) > now:
            waits.append(until)
        else:
            return soon
    if spec and sum(not r.is_fallback for r in counted(rows)) != spec.replicas:
        braked = failures.held_until(rollout.proven(spec, rows), rows.backoff)
        if braked is None or braked <= now:
            return soon
        waits.append(braked)
    first = min(waits, default=failures.NEVER)
    return None if first == failures.NEVER else max(first, soon)


def _waits_until(spec: ServiceSpec | None, replica: Replica, seen: Observation) -> datetime:
    """Until when nothing is to be done about it; or since when there is."""
    if replica.state is ReplicaState.REQUESTED:
        return _held_until(spec, replica, seen.rows)
    return drained_at(spec, replica) if _is_out(replica, seen) else replica.since


def _held_until(spec: ServiceSpec | None, replica: Replica, rows: Rows) -> datetime:
    """Until when a replica without an instance isn't launched, because it was refused or others failed."""
    past = replica.entered[ReplicaState.REQUESTED]
    if spec and replica.stands_by:
        # `standby` launches none while fewer serve than wanted. Once as many do, another tick follows.
        return (replica.retry_at or past) if staying_count(rows) >= spec.replicas else failures.NEVER
    version = rollout.to_launch(spec, rows, replica) if spec else replica.version
    held = [
        replica.retry_at,
        failures.held_until(version, rows.backoff, is_fallback=replica.is_fallback),
    ]
    return max((at for at in held if at is not None), default=past)


def _is_out(replica: Replica, seen: Observation) -> bool:
    """Whether it only finishes its requests: the load balancer sends it none, and its instance lives."""
    instance = seen.instance_of(replica)
    is_out = seen.health_of(replica) is TargetState.DRAINING
    is_leaving = replica.state is ReplicaState.DRAINING and not replica.is_warned
    return is_leaving and is_out and instance is not None and instance.state.is_alive


def _is_left_alone(spec: ServiceSpec | None, replica: Replica, now: datetime) -> bool:
    """Whether it stands by, drains or serves on, and whatever it still waits for won't come within seconds.

    EC2 spared the instance that it had warned, or AWS refuses to terminate it.
    """
    if replica.warned_at is not None:
        due = interruption.ends_at(replica.warned_at)
    elif replica.state is ReplicaState.DRAINING:
        due = drained_at(spec, replica)
    else:
        return replica.state is ReplicaState.STANDBY
    return now >= due + seconds(timing.ENDS_WITHIN_S)


def drained_at(spec: ServiceSpec | None, replica: Replica) -> datetime:
    """When one that drains has had its time."""
    drain_s = interruption.finishes_within_s(spec, replica) if spec else 0
    return replica.since + seconds(drain_s + timing.DRAIN_SETTLE_S)


def _stood_in_for(spec: ServiceSpec) -> PurchaseOption:
    """What fallbacks stand in for; of those of before, where the file has come to want none."""
    option = spec.purchase_option
    others = (other for other in OPTIONS.values() if other.fallback is option)
    return option if option.fallback else next(others, option)


def _missing(spec: ServiceSpec, regular: Sequence[Replica], there: int, seen: Observation) -> int:
    """How many fallbacks should be there, beside `regular` replicas; `there` counts those that come, too."""
    if not spec.on_demand_fallback:
        return 0
    if spec.purchase_option.fallback is None:
        # Those of before serve until what is bought from now on does; no more are requested.
        return sum(not r.serves for r in regular)
    backoff = seen.rows.backoff
    # After a failure there is nobody whom the next one replaces, and perhaps no next one for a long time.
    has_failed = backoff.version == rollout.proven(spec, seen.rows) and backoff.failures > 0
    absent = max(spec.replicas - there, 0) if has_failed else 0
    base = max(_base(spec) - _bought_steady(regular), 0)
    missing = sum(_is_missing(r, seen, has_failed=has_failed) for r in regular) + max(absent - base, 0)
    # What is there beyond the number that is needed is there because Spot may be lost: on-demand isn't.
    return min(missing, max(spec.replicas - spec.overprovision - _bought_steady(regular), 0))


def _is_missing(replica: Replica, seen: Observation, *, has_failed: bool) -> bool:
    """Whether on-demand should stand in for it.

    Not for one that has just been requested, nor for a service's first start: nobody waits for that, and it
    would cost as many instances again. But for one that was refused, for one that still starts when what it
    replaces is gone, and for each one after replicas failed: nothing says that it will ever be ready.
    """
    before = seen.rows.replicas.get(replica.replaces or 0)
    if replica.purchase_option.fallback is None or (before is not None and before.stays):
        return False
    match replica.state:
        case ReplicaState.REQUESTED:
            return replica.attempts > 0 or has_failed
        case ReplicaState.PROVISIONING | ReplicaState.STARTING:
            is_alone = replica.replaces is not None and not _is_covered(replica, seen)
            return replica.attempts > 0 or has_failed or is_alone
        case _:
            return False


def _undecided(spec: ServiceSpec, regular: Sequence[Replica], seen: Observation) -> int:
    """How many fallbacks should stay, if they are there, though none is requested for it.

    One for each Spot replica that is only just being asked for in place of one that never served: it may be
    refused, or start. Until that is known, what stood in for its predecessor goes on.
    """
    if not spec.on_demand_fallback:
        return 0
    asked_for = [r for r in regular if r.state is ReplicaState.REQUESTED and r.attempts == 0 and r.replaces]
    return sum(r.purchase_option.fallback is not None and not _is_covered(r, seen) for r in asked_for)


def _is_refused(replica: Replica) -> bool:
    """Whether it waits for EC2, and not for the brake."""
    return replica.state is ReplicaState.REQUESTED and replica.attempts > 0


def _is_covered(replica: Replica, seen: Observation) -> bool:
    """Whether what it replaces has served, and is still there: in rotation, or finishing its requests."""
    before = seen.rows.replicas.get(replica.replaces or 0)
    if before is None or ReplicaState.READY not in before.entered:
        return False
    instance = seen.instance_of(before)
    return instance is not None and instance.state.is_alive


def _idle_fallbacks(
    fallbacks: Sequence[Replica], missing: int, regular: Sequence[Replica], now: datetime
) -> list[Replica]:
    """The fallbacks to give up: what doesn't serve yet at once, the others once Spot has stayed."""
    spot = [r for r in regular if r.serves and r.purchase_option.fallback]
    # One that was given up may serve all the same, late: it is no reason to drop what comes in its place.
    given_up = [r for r in fallbacks if is_given_up(r, now)]
    standing = [r for r in fallbacks if r not in given_up]
    # What is being resumed comes beside the others: only once it serves may a cold one go, and it isn't sent
    # back for one that doesn't serve yet. Otherwise the two would take turns, and nothing would ever serve.
    # One that is late isn't either: it may come the next moment.
    rising = [r for r in standing if r.is_standby and not r.serves]
    coming = [r for r in rising if standby.is_coming(r, now)]
    late = [r for r in rising if not standby.is_coming(r, now)]
    others = [r for r in standing if not r.is_standby or r.serves]
    serving_now = sum(r.serves for r in others)
    surplus = [
        *sorted(others, key=_least_missed)[: max(len(others) - missing, 0)],
        *sorted(coming, key=_least_missed)[: max(serving_now + len(coming) - missing, 0)],
        *sorted(late, key=_least_missed)[: max(serving_now + len(late) - missing, 0)],
        *sorted(given_up, key=_least_missed)[: max(serving_now + len(given_up) - missing, 0)],
    ]
    kept: set[int] = set()
    # A standby comes back sooner than Spot would, so less speaks for keeping it.
    for is_standby, most_s in ((False, timing.STAY_MAX_S), (True, timing.STANDBY_STAYS_S)):
        unproven = sum(stays_from(r, most_s) > now for r in spot)
        serving = [r.id for r in surplus if r.serves and r.is_standby is is_standby]
        kept |= {*serving[len(serving) - min(max(unproven - len(kept), 0), len(serving)) :]}
    return [r for r in surplus if r.id not in kept]


def _requests(
    spec: ServiceSpec, now: datetime, there: int, bought_steady: int, version: int
) -> Iterator[Step]:
    missing = spec.replicas - there
    if missing <= 0:
        return
    steady = min(missing, max(_base(spec) - bought_steady, 0))
    reason = "fewer replicas than wanted"
    if missing > steady:
        yield steps.request(now, missing - steady, reason, spec.purchase_option, version)
    if steady:
        yield steps.request(now, steady, reason, spec.steady_option, version)


def surplus(spec: ServiceSpec, rows: Rows) -> int:
    """How many regular replicas there are beyond those wanted."""
    return max(sum(not r.is_fallback for r in counted(rows)) - spec.replicas, 0)


def _surplus(spec: ServiceSpec, regular: Sequence[Replica], count: int, seen: Observation) -> list[Replica]:
    """The regular replicas to give up: what is farthest from serving, and the on-demand base last.

    Of the rest the weakest goes first, because the number for a load counts on the strongest. Then on-demand
    goes before Spot, then the dearest, then the newest. A row may be behind the load balancer: what may
    answer its checks is nearer to serving than what doesn't, and what EC2 shows than what it doesn't.
    """
    base = set[int]()

    def qps(replica: Replica) -> float:
        if spec.scaling is None or replica.offering is None:
            return 0.0
        return spec.scaling.qps(replica.offering.pool.instance_type)

    def price(replica: Replica) -> float:
        return seen.prices.get(replica.offering, 0.0) / replica.slots if replica.offering else 0.0

    def in_turn(replica: Replica) -> tuple[tuple[int, bool, bool, bool], bool, float, bool, float, int]:
        distance, serves, age = _least_missed(replica)
        may_answer, is_shown = seen.health_of(replica) in _MAY_ANSWER, replica.instance_id in seen.instances
        near = distance, serves, may_answer, is_shown
        is_spot = replica.purchase_option.fallback is not None
        return near, replica.id in base, qps(replica), is_spot, -price(replica), age

    steady = [r for r in regular if r.purchase_option.fallback is None]
    base.update(r.id for r in sorted(steady, key=in_turn, reverse=True)[: _base(spec)])
    return sorted(regular, key=in_turn)[: max(count, 0)]


def _base(spec: ServiceSpec) -> int:
    """How many of the regular replicas are bought so that nothing need stand in for them."""
    return spec.base_on_demand if spec.purchase_option.fallback else spec.replicas


def base_left(spec: ServiceSpec, seen: Observation) -> int:
    """How many more regular replicas should be bought so that nothing need stand in for them."""
    return _base(spec) - _bought_steady(r for r in counted(seen.rows) if not r.is_fallback)


def _bought_steady(bought: Iterable[Replica | Offering]) -> int:
    """How many of them need nothing that stands in: they are what the base is made of."""
    return sum(b.purchase_option.fallback is None for b in bought)


def _launches(
    spec: ServiceSpec,
    due: Sequence[Replica],
    rising: Sequence[Replica],
    *,
    is_whole: bool,
    is_last_resort: bool,
) -> Iterator[Step]:
    spot = [r for r in due if r.purchase_option.fallback]
    steady = [r for r in due if r.purchase_option.fallback is None]
    if is_whole:
        at_once = max(RETURN_LEAST, -(-spec.replicas // RETURN_SHARE))
        returning = sum(r.purchase_option.fallback is not None for r in rising)
        spot = spot[: max(at_once - returning, 0)]
    for version in sorted({r.version for r in due}):
        if of_version := tuple(r for r in spot if r.version == version):
            yield steps.launch(*of_version, is_last_resort=is_last_resort)
        if of_version := tuple(r for r in steady if r.version == version):
            yield steps.launch(*of_version)


_MAY_ANSWER = frozenset({TargetState.HEALTHY, TargetState.UNAVAILABLE})
_RISING = frozenset({ReplicaState.PROVISIONING, ReplicaState.STARTING})


def _as_wanted(replica: Replica, spec: ServiceSpec, rows: Rows, now: datetime) -> Replica:
    """A replica to be launched, as the service wants it by now: how it is bought, and which version."""
    option = spec.bought_as(replica.purchase_option)
    as_wanted = replace(rollout.as_launched(spec, rows, replica, now), purchase_option=option)
    # What was to move is gone, or going, by now: `moves` ends all others that aren't launched at once.
    return replace(as_wanted, max_price=None, min_score=None)


def _drop(replica: Replica, now: datetime, reason: str, seen: Observation) -> Iterator[Step]:
    """One replica less; one that is being launched can't be, and its turn comes once it has been."""
    if seen.read.replicas[replica.id].state is not ReplicaState.REQUESTED:
        # Its row as it is: it may have been taken for one that serves, see `as_serving`.
        yield steps.drain(seen.rows.replicas[replica.id], now, reason)
    elif replica.launch_id not in seen.rows.intents:
        yield steps.end(replica, now, reason)


def _least_missed(replica: Replica) -> tuple[int, bool, int]:
    """Which replica to give up first: the one farthest from serving, then the newest."""
    order = [ReplicaState.REQUESTED, ReplicaState.PROVISIONING, ReplicaState.STARTING, ReplicaState.READY]
    return order.index(replica.state), replica.serves, -replica.id

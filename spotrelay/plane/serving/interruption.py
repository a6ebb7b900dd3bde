"""What follows from EC2's signals (the fast path), and when what EC2 takes back leaves the rotation.

Early where others are enough, late where not: a warned instance runs for two more minutes. To take it out of
the load balancer at once lets its requests finish, and is right while the others carry the load. Where they
don't, every request that it would have answered fails, for nothing: then it *serves on* until others are
enough, or until its drain deadline, after which its requests would have too little time to finish. The very
last one in rotation stays a little longer: a cut answer is better than every request refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import InstanceState, TargetState
from spotrelay.plane.core.replica import GONE, Replica, ReplicaState
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.spec import OnRebalance, OnUpdate, OnWarning, ServiceSettings, ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.events import InterruptionWarning, RebalanceRecommendation, Signal, StateChange
from spotrelay.plane.serving import changes, rollout, standby, steps
from spotrelay.plane.serving.observation import Observation
from spotrelay.plane.serving.steps import WARNED, Step

NOTHING: Mapping[str, datetime | None] = MappingProxyType({})
"""EC2 wasn't asked."""

OTHERS_SERVE = "came back, and others serve again"
"""Why one leaves again that came back."""

Sighting = tuple[Signal, Replica]
"""A signal and the replica that it is about, as last read."""


def decide(sightings: Sequence[Sighting], rows: Rows, spec: ServiceSpec | None, now: datetime) -> list[Step]:
    """Steps for signals about replicas that haven't ended; several about one instance count once.

    A rebalance recommendation is noted at most: it is no emergency, and the tick sees the whole fleet.
    """
    by_replica: dict[int, list[Signal]] = {}
    replicas = {}
    for signal, replica in sightings:
        if replica.is_standby and standby.is_of_before(signal, replica):
            continue
        by_replica.setdefault(replica.id, []).append(signal)
        replicas[replica.id] = replica
    summaries = {id_: _Summary.of(signals, now) for id_, signals in by_replica.items()}
    # All that stop staying in this batch are no longer there for one another.
    staying = rows.serving - sum(replicas[id_].stays and summaries[id_].is_going for id_ in summaries)
    decided: list[Step] = []
    for id_, summary in summaries.items():
        step = _for_one(replicas[id_], summary, spec, staying, now)
        if step is not None:
            decided.append(_with_its_place(step, spec, rows, now))
    if spec and spec.may_have_standbys:
        left = changes.after(spec, rows, decided, now)
        decided.extend(standby.bridge(spec, left, rows.replicas, now))
    return decided


def due(
    spec: ServiceSpec, rows: Rows, now: datetime, said: Mapping[str, datetime | None] = NOTHING
) -> list[Step]:
    """Who must leave the rotation by now, and who should have: whoever wrote that may have died at once.

    `said` is what EC2 says of instances at this moment, see `leaving`.
    For one whose time comes in seconds somebody is asked to look again: who should have asked may have died,
    too, and this may be the last that looks before.
    """
    is_served = any(r.serves for r in rows.replicas.values())
    overdue = [
        steps.take_out(r.instance_id)
        for r in rows.replicas.values()
        if r.state is ReplicaState.DRAINING and r.instance_id and r.warned_at
        # Where nobody serves, it may be the one that still does: a tick brings it back, or takes it out.
        if is_served or (now >= last_moment(r.warned_at) and said.get(r.instance_id, r.warned_at))
    ]
    going = {replica.id: replica for replica in leaving(spec, rows, (), now, said)}
    again = [
        steps.look_again(r.instance_id, r.warned_at)
        for r in rows.replicas.values()
        if may_serve_on(r) and r.id not in going and r.instance_id and r.warned_at
        if is_due_soon(spec, r.warned_at, now)
    ]
    last = last_serving(rows.replicas.values())
    drains = (_with_its_place(leave(r, now, last), spec, rows, now) for r in going.values())
    return [*overdue, *drains, *again]


def leave(replica: Replica, now: datetime, relies_on: Replica | None = None) -> Step:
    """A replica that served on, or came back, leaves; its replacement came before, if it gets one."""
    reason = WARNED if replica.is_warned else OTHERS_SERVE
    return steps.drain(replica, now, reason, warned_at=replica.warned_at, relies_on=relies_on)


def _with_its_place(step: Step, spec: ServiceSpec | None, rows: Rows, now: datetime) -> Step:
    """What a signal leads to and, if that is a loss, what comes of its place: one step, so one commit.

    Whether as many as wanted are left, only a tick can see.
    """
    is_leaving = step.enters(ReplicaState.DRAINING)
    if not (is_leaving or (step.is_warning and step.row.state is not ReplicaState.DRAINING)):
        return step
    lost = step.replica
    is_moving = lost.moves_in(rows)
    if not is_moving and is_missed(lost, rows):
        version = _version(spec, rows, lost) if spec else 0
        return step.with_replacement(now, version)
    return step.without_replacement() if is_moving or goes_without(lost) else step


def _version(spec: ServiceSpec, rows: Rows, lost: Replica) -> int:
    """Which version comes in its place.

    A signal's document may be one of before the last deployment, which looks as if that had been taken back.
    What was lost is right then; if it was taken back indeed, the tick replaces it once more.
    """
    is_newer = spec.on_update is not OnUpdate.KEEP and lost.version > spec.version
    # A rollback is as new as the rows.
    is_newer &= rows.rollback is None or lost.version > rows.rollback.version
    if is_newer and ReplicaState.READY in lost.entered:
        return lost.version
    return rollout.proven(spec, rows, lost)


def is_missed(replica: Replica, rows: Rows) -> bool:
    """Whether its loss leaves one fewer, and nothing came in its place before.

    A fallback gets no replacement: whether another is wanted, the tick decides. A replica that serves on got
    its replacement with the warning, and what becomes of that is the replacement's own story. So did one that
    came back, when it left.
    """
    return not (replica.is_fallback or replica.is_warned or replica.comes_back or replica.superseded_in(rows))


def goes_without(replica: Replica) -> bool:
    """Whether it served on, and got no replacement with the warning."""
    return replica.is_warned and replica.replaced_by is None and not replica.is_fallback


def settled(rows: Rows, now: datetime) -> frozenset[str]:
    """The instances that nobody is putting into rotation at this moment.

    A replica is registered by the tick that made it ready, and that tick has ended by now: those of before
    can't be late, because no function runs for longer.
    """
    ready = (r for r in rows.replicas.values() if r.state is ReplicaState.READY and r.instance_id)
    return frozenset(r.instance_id or "" for r in ready if now - r.since >= seconds(timing.LEASE_S))


@dataclass(frozen=True, slots=True)
class _Summary:
    """What the signals about one instance say, taken together, in whatever order they came."""

    warned_at: datetime | None = None
    recommended_at: datetime | None = None
    state: InstanceState | None = None
    has_notice: bool = True
    """Whether the instance runs on for two minutes: EC2 hibernates at once."""

    @property
    def is_going(self) -> bool:
        """Whether the instance is lost, now or soon."""
        return self.warned_at is not None or (self.state is not None and not self.state.is_alive)

    @classmethod
    def of(cls, signals: Sequence[Signal], now: datetime) -> _Summary:
        # No event is from the future, nor from so long ago that its instance could still be there.
        earliest = now - seconds(2 * timing.NOTICE_S)
        warnings = (s.at for s in signals if isinstance(s, InterruptionWarning))
        warned_at = min((max(min(at, now), earliest) for at in warnings), default=None)
        recommended_at = min((s.at for s in signals if isinstance(s, RebalanceRecommendation)), default=None)
        states = [s.state for s in signals if isinstance(s, StateChange)]
        # Whatever says that the instance is going outweighs the rest, and that it is gone outweighs all.
        state = max(states, key=_FINALITY.index, default=None)
        has_notice = not any(isinstance(s, InterruptionWarning) and s.action == "hibernate" for s in signals)
        return cls(warned_at, recommended_at, state, has_notice)


_FINALITY = [
    InstanceState.PENDING,
    InstanceState.RUNNING,
    InstanceState.STOPPING,
    InstanceState.STOPPED,
    InstanceState.SHUTTING_DOWN,
    InstanceState.TERMINATED,
]


def _for_one(
    replica: Replica, summary: _Summary, spec: ServiceSpec | None, staying: int, now: datetime
) -> Step | None:
    if replica.state is ReplicaState.DRAINING:
        return _for_draining(replica, summary, spec, staying, now)
    if summary.state is not None and not summary.state.is_alive:
        if not (replica.state is ReplicaState.READY or replica.is_warned or summary.warned_at):
            return None  # why it ended at birth, the event doesn't say: the tick asks EC2
        return steps.drain(
            replica,
            now,
            f"{GONE}{summary.state}" if summary.warned_at is None else WARNED,
            warned_at=replica.warned_at or summary.warned_at,
            cool_pool=summary.warned_at is not None,
            is_gone=True,
        )
    if summary.warned_at:
        of_notice = spec if summary.has_notice else None
        step = for_warned(replica, summary.warned_at, of_notice, staying, now, is_heard=True)
        if step is None and replica.instance_id and replica.warned_at:
            return steps.look_again(replica.instance_id, replica.warned_at)
        return step
    follows = spec is not None and spec.on_rebalance is OnRebalance.REPLACE
    if summary.recommended_at and follows and replica.rebalance_at is None:
        # If it runs by now, the next tick sees it, too.
        return steps.note_rebalance(replica, summary.recommended_at)
    if summary.state is InstanceState.RUNNING and replica.state is ReplicaState.PROVISIONING:
        return steps.start(replica, now)
    return None


def for_warned(
    replica: Replica,
    warned_at: datetime,
    spec: ServiceSpec | None,
    staying: int,
    now: datetime,
    reason: str = WARNED,
    *,
    is_heard: bool = False,
) -> Step | None:
    """What becomes of a replica that EC2 takes back while so many others stay: it leaves or serves on.

    One that still starts goes on, too: it may serve for a minute, and perhaps nobody else does. Without a
    `spec` nothing is known that would let it stay. None: it serves on already.

    `is_heard`: an event says so, which may be late, and EC2 may have taken the warning back since. Then the
    last one serves on beyond its last moment: who looks at it then asks EC2.
    """
    warned_at = replica.warned_at or warned_at
    if (
        spec is None
        or not may_serve_on(replica)
        or may_leave(spec, warned_at, staying, now, is_last=staying <= 0, is_spared=is_heard)
    ):
        if replica.is_warned:
            return leave(replica, now)
        return steps.drain(replica, now, reason, warned_at=warned_at, cool_pool=True)
    return None if replica.is_warned else steps.serve_on(replica, now, reason, warned_at)


def _for_draining(
    replica: Replica, summary: _Summary, spec: ServiceSpec | None, staying: int, now: datetime
) -> Step | None:
    if summary.state is InstanceState.TERMINATED:
        return steps.end(replica, now, replica.reason)
    if summary.warned_at and not replica.is_warned:
        return steps.note_warning(replica, summary.warned_at)
    if summary.warned_at and replica.warned_at and replica.instance_id:
        # Whoever wrote the row may have died before the load balancer heard of it. Where nobody stays, it may
        # be the one that still serves: who looks at it when its time has come asks EC2.
        may_stay = spec is not None and spec.on_warning is not OnWarning.LEAVE and summary.has_notice
        if staying > 0 or not may_stay:
            return steps.take_out(replica.instance_id)
        return steps.look_again(replica.instance_id, replica.warned_at)
    return None


# When what EC2 takes back leaves the rotation.


def ends_at(warned_at: datetime) -> datetime:
    """When EC2 takes an instance that it has warned."""
    return warned_at + seconds(timing.NOTICE_S)


def may_serve_on(replica: Replica) -> bool:
    """Whether it serves, or may come to before EC2 takes it. Its row may be behind the load balancer."""
    return replica.state in _MAY_SERVE


def drain_deadline(spec: ServiceSpec, warned_at: datetime) -> datetime:
    """The latest time at which it can leave the rotation and still finish its requests."""
    return warned_at + seconds(timing.serves_on_s(spec.drain_s))


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


def last_serving(replicas: Iterable[Replica]) -> Replica | None:
    """Who serves on the longest; None: nobody does, or others stay, and the table counts those."""
    return next((r for r in last_there(list(replicas)) if r.serves), None)


def coming_back(spec: ServiceSpec, seen: Observation, now: datetime, ended: Collection[int] = ()) -> set[int]:
    """Of those that have left and still run, the ones that come back, as nobody serves.

    Those first that answer their checks, then those that haven't come back in vain before, and of these the
    ones that EC2 leaves longest. No more are on their way back at a time than are wanted: else all that was
    ever replaced would be kept and paid for. `ended` are those that count as gone from now on, whatever the
    load balancer says of them.
    """
    rows = list(seen.rows.replicas.values())
    draining = {r.instance_id for r in rows if r.state is ReplicaState.DRAINING or r.id in ended}
    answers = (id_ for id_, state in seen.health.items() if state is TargetState.HEALTHY)
    unsure = unconfirmed(seen).union(ended)
    if any(r.serves and r.id not in unsure for r in rows) or any(id_ not in draining for id_ in answers):
        return set()
    left = [r for r in rows if _has_left(r, seen)]
    answering = {r.id for r in left if seen.health_of(r) is TargetState.HEALTHY}
    left.sort(key=lambda r: (r.id in answering, r.reason != steps.IN_VAIN, _leaves_last(r)), reverse=True)
    back = [r for r in left if _has_time(spec, r, seen, now, is_last=False)]
    if not back and not last_there([r for r in rows if r.id not in unsure]):
        back = [r for r in left[:1] if _has_time(spec, r, seen, now, is_last=True)]
    room = max(spec.replicas - sum(r.comes_back for r in rows), 0)
    return {r.id for n, r in enumerate(back[: spec.replicas]) if n < room or r.id in answering}


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

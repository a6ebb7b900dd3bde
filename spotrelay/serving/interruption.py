"""What follows from EC2's signals: the fast path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from spotrelay.core import timing
from spotrelay.core.instances import InstanceState
from spotrelay.core.replica import GONE, Replica, ReplicaState
from spotrelay.core.rows import Rows
from spotrelay.core.spec import OnRebalance, OnUpdate, OnWarning, ServiceSpec
from spotrelay.core.timing import seconds
from spotrelay.events import InterruptionWarning, RebalanceRecommendation, Signal, StateChange
from spotrelay.serving import changes, rollout, rotation, standby, steps
from spotrelay.serving.rotation import OTHERS_SERVE, WARNED
from spotrelay.serving.steps import Step

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
    spec: ServiceSpec, rows: Rows, now: datetime, said: Mapping[str, datetime | None] = rotation.NOTHING
) -> list[Step]:
    """Who must leave the rotation by now, and who should have: whoever wrote that may have died at once.

    `said` is what EC2 says of instances at this moment, see `rotation.leaving`.
    For one whose time comes in seconds somebody is asked to look again: who should have asked may have died,
    too, and this may be the last that looks before.
    """
    is_served = any(r.serves for r in rows.replicas.values())
    overdue = [
        steps.take_out(r.instance_id)
        for r in rows.replicas.values()
        if r.state is ReplicaState.DRAINING and r.instance_id and r.warned_at
        # Where nobody serves, it may be the one that still does: a tick brings it back, or takes it out.
        if is_served or (now >= rotation.last_moment(r.warned_at) and said.get(r.instance_id, r.warned_at))
    ]
    leaving = {replica.id: replica for replica in rotation.leaving(spec, rows, (), now, said)}
    again = [
        steps.look_again(r.instance_id, r.warned_at)
        for r in rows.replicas.values()
        if rotation.may_serve_on(r) and r.id not in leaving and r.instance_id and r.warned_at
        if rotation.is_due_soon(spec, r.warned_at, now)
    ]
    drains = (_with_its_place(leave(r, now), spec, rows, now) for r in leaving.values())
    return [*overdue, *drains, *again]


def leave(replica: Replica, now: datetime) -> Step:
    """A replica that served on, or came back, leaves; its replacement came before, if it gets one."""
    reason = WARNED if replica.is_warned else OTHERS_SERVE
    return steps.drain(replica, now, reason, warned_at=replica.warned_at)


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
        return step.then(steps.replace(step.row, now, step.reason, version))
    return step.then(steps.go_without(step.row)) if is_moving or goes_without(lost) else step


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
        or not rotation.may_serve_on(replica)
        or rotation.may_leave(spec, warned_at, staying, now, is_last=staying <= 0, is_spared=is_heard)
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

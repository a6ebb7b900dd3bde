"""What follows from EC2's signals: the fast path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from spotrelay.model import InstanceState, OnRebalance, Replica, ReplicaState, Rows, seconds
from spotrelay.policy import timing
from spotrelay.policy.actions import Action, Drain, End, NoteRebalance, NoteWarning, Start
from spotrelay.signals import InterruptionWarning, RebalanceRecommendation, Signal, StateChange

Sighting = tuple[Signal, Replica]
"""A signal and the replica that it is about, as last read."""


def decide(sightings: Sequence[Sighting], rows: Rows, on_rebalance: OnRebalance) -> list[Action]:
    """Actions for signals about replicas that haven't ended; several about one instance count once.

    A rebalance recommendation is noted at most: it is no emergency, and the tick sees the whole fleet.
    """
    by_replica: dict[int, list[Signal]] = {}
    replicas = {}
    for signal, replica in sightings:
        by_replica.setdefault(replica.id, []).append(signal)
        replicas[replica.id] = replica
    actions: list[Action] = []
    for id_, signals in by_replica.items():
        action = _for_one(replicas[id_], _Told.by(signals), on_rebalance)
        if action is not None:
            actions.append(action)
    return [unreplaced(action, rows) for action in actions]


def settled(rows: Rows, now: datetime) -> frozenset[str]:
    """The instances that nobody is putting into rotation at this moment.

    A replica is registered by the tick that made it ready, and that tick has ended by now: those of before
    can't be late, because no function runs for longer.
    """
    ready = (r for r in rows.replicas.values() if r.state is ReplicaState.READY and r.instance_id)
    return frozenset(r.instance_id or "" for r in ready if now - r.since >= seconds(timing.LEASE_S))


def unreplaced(action: Action, rows: Rows) -> Action:
    """A drain of a replica whose replacement is under way already brings no second one; a stand-in gets none.

    Whether another stand-in is wanted, the tick decides.
    """
    if isinstance(action, Drain) and (action.replica.is_stand_in or action.replica.superseded_in(rows)):
        return replace(action, replace=False)
    return action


@dataclass(frozen=True, slots=True)
class _Told:
    """What the signals about one instance say, taken together, in whatever order they came."""

    warned_at: datetime | None = None
    recommended_at: datetime | None = None
    state: InstanceState | None = None

    @classmethod
    def by(cls, signals: Sequence[Signal]) -> _Told:
        warned_at = min((s.at for s in signals if isinstance(s, InterruptionWarning)), default=None)
        recommended_at = min((s.at for s in signals if isinstance(s, RebalanceRecommendation)), default=None)
        states = [s.state for s in signals if isinstance(s, StateChange)]
        # Whatever says that the instance is going outweighs the rest, and that it is gone outweighs all.
        state = max(states, key=_FINALITY.index, default=None)
        return cls(warned_at, recommended_at, state)


_FINALITY = [
    InstanceState.PENDING,
    InstanceState.RUNNING,
    InstanceState.STOPPING,
    InstanceState.STOPPED,
    InstanceState.SHUTTING_DOWN,
    InstanceState.TERMINATED,
]


def _for_one(replica: Replica, told: _Told, on_rebalance: OnRebalance) -> Action | None:
    if replica.state is ReplicaState.DRAINING:
        return _for_draining(replica, told)
    if told.warned_at:
        return Drain(replica, "interruption warning", warned_at=told.warned_at, cool_pool=True)
    if told.state is not None and not told.state.is_alive:
        return Drain(replica, f"instance {told.state}")
    if told.state is InstanceState.RUNNING and replica.state is ReplicaState.PROVISIONING:
        return Start(replica)
    if told.recommended_at and on_rebalance is OnRebalance.REPLACE and replica.rebalance_at is None:
        return NoteRebalance(replica, told.recommended_at)
    return None


def _for_draining(replica: Replica, told: _Told) -> Action | None:
    if told.state is InstanceState.TERMINATED:
        return End(replica, replica.reason)
    if told.warned_at and not replica.is_warned:
        return NoteWarning(replica, told.warned_at)
    return None

"""What follows from EC2's signals: the fast path."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from spotrelay.model import InstanceState, Replica, ReplicaState
from spotrelay.policy.actions import Action, Drain, End, NoteWarning, Start
from spotrelay.signals import InterruptionWarning, RebalanceRecommendation, Signal, StateChange

Sighting = tuple[Signal, Replica]
"""A signal and the replica that it is about, as last read."""


def decide(sightings: Sequence[Sighting]) -> list[Action]:
    """Actions for signals about replicas that haven't ended; several about one instance count once.

    A rebalance recommendation does nothing by itself: most are not followed by an interruption, and acting on
    all of them churns a fleet (NTH #141, #786; karpenter #2853).
    """
    by_replica: dict[int, list[Signal]] = {}
    replicas = {}
    for signal, replica in sightings:
        by_replica.setdefault(replica.id, []).append(signal)
        replicas[replica.id] = replica
    actions = []
    for id_, signals in by_replica.items():
        action = _for_one(replicas[id_], signals)
        if action is not None:
            actions.append(action)
    return actions


def _for_one(replica: Replica, signals: Sequence[Signal]) -> Action | None:
    warned_at: datetime | None = None
    state: InstanceState | None = None
    for signal in signals:
        match signal:
            case InterruptionWarning(at=at):
                warned_at = min(at, warned_at or at)
            case StateChange(state=new):
                # Out of order within a batch: whatever says that the instance is gone outweighs the rest.
                state = new if state is None or state.is_alive else state
            case RebalanceRecommendation():
                pass
    gone = state is not None and not state.is_alive
    if replica.state is ReplicaState.DRAINING:
        if state is InstanceState.TERMINATED:
            return End(replica, replica.reason)
        return NoteWarning(replica, warned_at) if warned_at and not replica.is_warned else None
    if warned_at:
        return Drain(replica, "interruption warning", warned_at=warned_at, cool_pool=True)
    if gone:
        return Drain(replica, f"instance {state}")
    if state is InstanceState.RUNNING and replica.state is ReplicaState.PROVISIONING:
        return Start(replica)
    return None

"""Replicas that should be replaced and needn't go at once: the replacement first, then the drain.

EC2 recommends to leave an instance, or a replica doesn't answer its health checks. The load balancer sends an
unhealthy one nothing while others are healthy, and spreads over all when none is: there it still helps.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from spotrelay.core import timing
from spotrelay.core.replica import Replica, ReplicaState
from spotrelay.core.spec import OnRebalance, ServiceSpec
from spotrelay.core.timing import seconds
from spotrelay.serving import strength
from spotrelay.serving.actions import Action, Drain, End, Fail, NoteHealth, ServeOn, Supersede
from spotrelay.serving.interruption import NEEDLESS
from spotrelay.serving.observation import Observation


def decide(spec: ServiceSpec, seen: Observation, decided: list[Action], now: datetime) -> Iterator[Action]:
    """Replace what EC2 recommends to leave: the new one first, and no more at a time than `surge`."""
    going = {a.replica.id for a in decided if isinstance(a, Drain | ServeOn | Fail | End)}
    staying = [
        r for r in seen.rows.replicas.values() if r.is_counted and r.id not in going and not r.is_fallback
    ]
    superseded = {r.id: r for r in staying if r.superseded_in(seen.rows)}
    may_go = strength.spare(spec, seen, decided)
    extra = 0
    for replica in superseded.values():
        successor = seen.rows.replicas[replica.replaced_by or 0]
        if successor.stays and (may_go > 0 or not replica.serves):
            may_go -= replica.serves
            yield Drain(replica, successor.reason, replace=False)
        elif successor.stays:
            extra += 1
    # One that has just recovered isn't unhealthy any more, whatever its row says.
    recovered = {a.replica.id for a in decided if isinstance(a, NoteHealth) and a.unhealthy_since is None}
    candidates = [r for r in staying if r.id not in {*superseded, *recovered} and _why(spec, r, now)]
    # One that was to be replaced and serves all the same takes the place of another that doesn't answer.
    for replica in [r for r in candidates if not r.serves][:extra]:
        candidates.remove(replica)
        yield Drain(replica, f"{_why(spec, replica, now)}{NEEDLESS}", replace=False)
    # A replica that should be superseded may have lost its replacement, which was itself replaced since.
    replaced = sum(isinstance(a, Drain | ServeOn) and a.replace for a in decided)
    beyond = max(len(superseded), len(staying) + replaced - spec.replicas)
    for replica in sorted(candidates, key=_urgency)[: max(spec.surge - beyond, 0)]:
        yield Supersede(replica, _why(spec, replica, now))


RECOMMENDED = "rebalance recommendation"


def _why(spec: ServiceSpec, replica: Replica, now: datetime) -> str:
    """Why it should be replaced; empty if it shouldn't."""
    if replica.state is not ReplicaState.READY:
        return ""
    if replica.unhealthy_since is not None:
        is_due = now - replica.unhealthy_since >= seconds(timing.UNHEALTHY_REPLACED_S)
        return f"unhealthy for {timing.UNHEALTHY_REPLACED_S:.0f} s" if is_due else ""
    is_followed = spec.on_rebalance is OnRebalance.REPLACE and replica.rebalance_at is not None
    return RECOMMENDED if is_followed and now - replica.since >= seconds(timing.REBALANCE_MIN_AGE_S) else ""


def _urgency(replica: Replica) -> tuple[bool, datetime]:
    """What doesn't answer first, then the oldest."""
    return replica.serves, replica.since

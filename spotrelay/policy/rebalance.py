"""What follows from EC2's recommendations to leave an instance: the replacement first, then the drain."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from spotrelay.model import OnRebalance, ServiceSpec, seconds
from spotrelay.policy import timing
from spotrelay.policy.actions import Action, Drain, End, Fail, Supersede
from spotrelay.policy.observation import Observation, serves


def decide(spec: ServiceSpec, seen: Observation, decided: list[Action], now: datetime) -> Iterator[Action]:
    """Replace what EC2 recommends to leave: the new one first, and no more at a time than `surge`."""
    going = {a.replica.id for a in decided if isinstance(a, Drain | Fail | End)}
    staying = [
        r
        for r in seen.rows.replicas.values()
        if r.state.is_active and r.id not in going and not r.is_stand_in
    ]
    superseded = {r.id: r for r in staying if r.superseded_in(seen.rows)}
    for replica in superseded.values():
        if serves(seen.rows.replicas[replica.replaced_by or 0]):
            yield Drain(replica, "rebalance recommendation", replace=False)
    if spec.on_rebalance is not OnRebalance.REPLACE:
        return
    candidates = [
        r
        for r in staying
        if r.rebalance_at is not None
        and r.id not in superseded
        and serves(r)
        and now - r.since >= seconds(timing.REBALANCE_MIN_AGE_S)
    ]
    # A replica that should be superseded may have lost its replacement, which was itself replaced since.
    replaced = sum(isinstance(a, Drain) and a.replace for a in decided)
    beyond = max(len(superseded), len(staying) + replaced - spec.replicas)
    for replica in sorted(candidates, key=lambda r: r.since)[: max(spec.surge - beyond, 0)]:
        yield Supersede(replica, "rebalance recommendation")

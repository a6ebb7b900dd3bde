"""A product and a market in miniature, for stories to be told on; time passes only while they wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from lab.demo.stage import Delivery, Stage
from lab.demo.stories import STORIES
from spotrelay.operator.look.watch import Watch
from spotrelay.plane.core.pools import CapacityPool, Offering, PurchaseOption
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving.steps import WARNED

ALL_STORIES = sorted((story for told in STORIES.values() for story in told), key=lambda story: story.key)

START = datetime(2026, 1, 1, tzinfo=UTC)
WARNING_S, SCHEDULE_S = 20.0, 10.0
READY_AFTER_S = 6.0
START_S = 60.0
"""A start may take so long."""
REST_S = 30.0
"""A pool that refused isn't asked again before."""
SETTLE_S = 20.0
"""A fallback drains so long."""
DRAIN_DEADLINE_S = 2.0
"""So long after the warning a replica that keeps serving leaves at the latest, unless it is the last one."""
LAST_ONE_S = 10.0
"""So long before its end leaves the last one."""
POOLS = tuple(
    CapacityPool("us-east-1", f"us-east-1{zone}", type_)
    for type_ in ("g5.xlarge", "g6.xlarge")
    for zone in "abc"
)


class Theatre:
    """A market (`stage.StagedMarket`) and the rows of a product (`watch.RowReader`) that reacts as it should.

    What it gets wrong is for tests to choose: `flaw` is one of "deaf" (never replaces anything), "twins" (two
    replacements each), "stubborn" (never leaves a pool), "greedy" (terminates what EC2 warned), "stingy" (its
    fallbacks are on Spot), "homeless" (buys on-demand what Spot has refused once), "clinging" (gives no
    fallback up), "hasty" (nobody keeps serving) and "slow" (replacements take longer than a warning).
    """

    def __init__(self, pools: Sequence[CapacityPool], flaw: str = "") -> None:
        self.now = START
        self.flaw = flaw
        self.said: list[str] = []
        self._dry: set[CapacityPool] = set()
        self._rows: dict[int, Replica] = {}
        self._records: dict[str, dict[str, Any]] = {}
        self._refused: dict[int, int] = {}
        """Replicas that Spot refused: their IDs, and those of their fallbacks."""
        for pool in pools:
            self._launch(Offering(pool, PurchaseOption.SPOT), ready_after_s=0)

    def stage(self) -> Stage:
        """A stage in this theatre."""
        watch = Watch(
            self,
            "demo",
            lambda _: None,
            sleep=self._pass,
            clock=lambda: (self.now - START).total_seconds(),
        )
        types = {pool.instance_type for pool in POOLS}
        return Stage(self, watch, self.said.append, types, len(self._rows), WARNING_S, SCHEDULE_S, START_S)

    def stand_by(self) -> None:
        """Have one more instance, which stands by from now on."""
        standby = self._launch(Offering(POOLS[0], PurchaseOption.ON_DEMAND), is_fallback=False)
        entered = {ReplicaState.REQUESTED: self.now, ReplicaState.STANDBY: self.now}
        self._rows[standby.id] = replace(standby, entered=entered, is_standby=True, resume_s=START_S)

    # --- watch.RowReader ---

    def load(self, service: str) -> Rows:
        """The rows as of now."""
        present = {r.id: r for r in self._seen() if not r.state.is_ended}
        return Rows(max(self._rows), replicas=present)

    def history(self, service: str, limit: int) -> list[Replica]:
        """The rows that have ended."""
        return [r for r in self._seen() if r.state.is_ended]

    # --- stage.Market ---

    def dry_up(
        self, zone: str | None = None, instance_type: str | None = None, *, warn: bool = True
    ) -> list[str]:
        """Close the matching pools."""
        hit = {
            pool
            for pool in POOLS
            if zone in (None, pool.zone) and instance_type in (None, pool.instance_type)
        }
        self._dry |= hit
        there = [
            r.instance_id
            for r in self._seen()
            if r.state is ReplicaState.READY
            and r.instance_id
            and r.offering
            and r.offering.pool in hit
            and r.offering.purchase_option is PurchaseOption.SPOT
        ]
        if not warn:
            return []
        self.warn_all(there)
        return there

    def bring_back(self, zone: str | None = None, instance_type: str | None = None) -> None:
        """Open the matching pools; what was refused comes from them as soon as they have rested."""
        self._dry -= {
            pool
            for pool in POOLS
            if zone in (None, pool.zone) and instance_type in (None, pool.instance_type)
        }
        while self._refused and len(self._dry) < len(POOLS):
            self._return(*self._refused.popitem())

    def warn_all(self, instance_ids: Sequence[str]) -> None:
        """Take the instances back; those of them that are needed keep serving."""
        staying = sum(r.stays and r.instance_id not in instance_ids for r in self._seen())
        for instance_id in instance_ids:
            is_last = staying == 0 and instance_id == instance_ids[-1]
            serves_on_s = WARNING_S - LAST_ONE_S if is_last else DRAIN_DEADLINE_S
            self.warn(instance_id, serves_on_s=serves_on_s if staying < 2 else 0)

    def warn(self, instance_id: str, *, deliver: Delivery = "once", serves_on_s: float = 0) -> None:
        """Take the instance back, and have the product react; until when it keeps serving at the latest."""
        lost = next(r for r in self._rows.values() if r.instance_id == instance_id)
        noticed = self.now + seconds(SCHEDULE_S if deliver == "lost" else 0.1)
        is_deaf = self.flaw == "deaf"
        greedy = self.flaw == "greedy"
        self._records[instance_id] = {
            "instance_id": instance_id,
            "warned_at": self.now.timestamp(),
            "deregistered_at": None if is_deaf else noticed.timestamp(),
            "reclaimed_at": None if greedy else (self.now + seconds(WARNING_S)).timestamp(),
            "terminated_at": (self.now + seconds(1)).timestamp() if greedy else None,
            "event": deliver,
        }
        if is_deaf:
            return
        replacements = [self._replacement(lost, noticed) for _ in range(2 if self.flaw == "twins" else 1)]
        gone = self.now + seconds(1 if greedy else WARNING_S + 1)
        left = noticed
        if serves_on_s and self.flaw != "hasty":
            left = self.now + seconds(serves_on_s)
            ready = replacements[0].entered.get(ReplicaState.READY)
            if ready is not None:
                left = min(left, ready)  # decided by the same tick
            self._records[instance_id]["deregistered_at"] = left.timestamp()
        self._rows[lost.id] = replace(
            lost,
            state=ReplicaState.TERMINATED,
            reason=WARNED,
            entered={**lost.entered, ReplicaState.DRAINING: left, ReplicaState.TERMINATED: gone},
            replaced_by=replacements[0].id,
            warned_at=self.now,
        )

    def interruptions(self) -> list[Mapping[str, Any]]:
        """What became of every warning, as far as it is over."""
        now = self.now.timestamp()
        return [
            {k: None if k.endswith("ed_at") and v is not None and v > now else v for k, v in record.items()}
            for record in self._records.values()
        ]

    # --- the product ---

    def _replacement(self, lost: Replica, noticed: datetime) -> Replica:
        if self.flaw == "stubborn" and lost.offering:
            return self._launch(lost.offering, replaces=lost.id, requested=noticed)
        if any(pool not in self._dry for pool in POOLS):
            return self._launch(self._free_on_spot(), replaces=lost.id, requested=noticed)
        return self._wait_for_spot(lost, noticed)

    def _free_on_spot(self) -> Offering:
        busy = {r.offering.pool for r in self._rows.values() if r.offering}
        free = [pool for pool in POOLS if pool not in self._dry]
        return Offering(next((p for p in free if p not in busy), free[0]), PurchaseOption.SPOT)

    def _wait_for_spot(self, lost: Replica, noticed: datetime) -> Replica:
        """A replacement that every pool refuses, and a second later the fallback."""
        id_ = len(self._rows) + 1
        waiting = replace(
            Replica.requested("demo", id_, 1, noticed, reason="test", replaces=lost.id), attempts=1
        )
        self._rows[id_] = waiting
        option = PurchaseOption.SPOT if self.flaw == "stingy" else PurchaseOption.ON_DEMAND
        fallback = self._launch(Offering(POOLS[0], option), requested=noticed + seconds(1), is_fallback=True)
        self._refused[id_] = fallback.id
        return waiting

    def _return(self, waiting_id: int, fallback_id: int) -> None:
        """Spot gives the replacement its instance, and the fallback goes once that has stayed."""
        waiting, fallback = self._rows[waiting_id], self._rows[fallback_id]
        requested = waiting.entered[ReplicaState.REQUESTED]
        launched = max(self.now, requested + seconds(REST_S))
        offering = self._free_on_spot()
        if self.flaw == "homeless":
            offering = replace(offering, purchase_option=PurchaseOption.ON_DEMAND)
        entered = {ReplicaState.REQUESTED: requested, **_rising(launched, READY_AFTER_S)}
        self._rows[waiting_id] = replace(
            waiting, entered=entered, offering=offering, instance_id=f"i-{waiting_id}"
        )
        if self.flaw != "clinging":
            drained = entered[ReplicaState.READY] + seconds(READY_AFTER_S)
            gone = drained + seconds(SETTLE_S)
            self._rows[fallback_id] = replace(
                fallback,
                reason="Spot is back",
                entered={
                    **fallback.entered,
                    ReplicaState.DRAINING: drained,
                    ReplicaState.TERMINATED: gone,
                },
            )

    def _launch(
        self,
        offering: Offering,
        *,
        replaces: int | None = None,
        requested: datetime | None = None,
        ready_after_s: float = READY_AFTER_S,
        is_fallback: bool = False,
    ) -> Replica:
        at = requested or self.now
        id_ = len(self._rows) + 1
        if self.flaw == "slow" and replaces:
            ready_after_s *= 5
        replica = replace(
            Replica.requested("demo", id_, 1, at, reason="test", replaces=replaces, is_fallback=is_fallback),
            entered={ReplicaState.REQUESTED: at, **_rising(at, ready_after_s)},
            offering=offering,
            instance_id=f"i-{id_}",
        )
        self._rows[id_] = replica
        return replica

    def _seen(self) -> list[Replica]:
        """Each row as it is now: the latest state that it has entered, and nothing of what is to come."""
        seen = []
        for row in self._rows.values():
            entered = {state: at for state, at in row.entered.items() if at <= self.now}
            if entered:
                state = max(entered, key=lambda s: (entered[s], list(ReplicaState).index(s)))
                by = self._rows.get(row.replaced_by or 0)
                if by is None or by.entered[ReplicaState.REQUESTED] > self.now:
                    row = replace(row, replaced_by=None, warned_at=None)
                seen.append(replace(row, state=state, entered=entered))
        return seen

    def _pass(self, duration_s: float) -> None:
        self.now += seconds(duration_s)


def _rising(launched: datetime, ready_after_s: float) -> dict[ReplicaState, datetime]:
    return {
        ReplicaState.PROVISIONING: launched,
        ReplicaState.STARTING: launched + seconds(ready_after_s / 2),
        ReplicaState.READY: launched + seconds(ready_after_s),
    }

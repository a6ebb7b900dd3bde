"""SpotHedge, the policy of SkyServe: one replica more than needed, on-demand until Spot is ready."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from random import Random
from typing import TYPE_CHECKING, ClassVar

from lab.replay.baselines.news import News
from lab.replay.baselines.plan import launch_planned
from lab.replay.cloud import LOST, NEVER, UP, WARNED
from spotrelay.plane.core.pools import CapacityPool, PurchaseOption

if TYPE_CHECKING:
    from lab.replay.cloud import Event, Machine, ReplayCloud
    from lab.replay.settings import ReplaySettings
    from lab.replay.traces import Trace

OVERPROVISIONED = 1
"""Spot replicas beyond N, in the paper's main experiments."""

PROBE_S = 10.0
PROBE_TIMEOUT_S = 15.0
"""SkyServe probes its replicas that often; one that is gone doesn't refuse, it is silent."""

DECISION_S = 20.0
"""SkyServe decides about replicas that often."""

LAUNCH_S = 20.0
"""SkyServe starts launches from a pool of processes that it looks at that often."""


class SpotHedge:
    """N + 1 Spot replicas over the zones that seem to work, and min(N, N + 1 - ready Spot) on-demand ones.

    *Where*: a pool is active until it loses a replica or refuses a launch, and again once it grants one; when
    at most one is active (of three pools or fewer: none), all are. Each missing Spot replica goes to the
    cheapest active pool that has none, or, if all have, to the cheapest active one; of equals, to a random
    one. (A filter in the product that is upside down is taken the way its comment means it.)

    *When*: SkyServe hears no warnings. A loss is found by a probe and acted upon by two loops that turn every
    20 s: a replacement starts 15 to 65 s after the loss. That a replica has become ready takes a probe and a
    decision to be known. A refused launch is tried again with the next decision. Each delay is drawn anew,
    because the loops' clocks drift.

    In favour of the policy: a probe that succeeds, a launch and the look-up of why a replica is silent take
    no time, and an on-demand replica that isn't needed any more ends at once, without SkyServe's two minutes
    of draining.
    """

    name: ClassVar[str] = "spothedge"
    summary: ClassVar[str] = (
        "SkyServe: N + 1 Spot replicas, on-demand while they aren't ready; polls for losses"
    )
    source: ClassVar[str] = (
        "SkyServe (EuroSys'25, arXiv 2411.01438), artifact MaoZiming/spothedge_ae; skypilot-org/skypilot"
    )
    hears_warnings: ClassVar[bool] = False

    def __init__(self, trace: Trace, settings: ReplaySettings) -> None:
        self._replicas = settings.replicas
        self._chance = Random(f"{settings.seed} {self.name}")  # noqa: S311 - to be repeated
        self._pools = [p.pool for p in trace.pools]
        self._active = set(self._pools)
        # The artifact's rule. The product's, at most one whatever their number, keeps going back to the bad
        # one of three: a tenth dearer, and hardly more available.
        self._fewest_active = min(1, max(0, len(self._pools) - 3))
        self._spot: dict[str, Machine] = {}
        """The Spot replicas that it believes to have."""
        self._ready: set[str] = set()
        """Those of them that it knows to be ready."""
        self._on_demand: list[Machine] = []
        self._news = News()
        self._retry_at = 0.0

    def wake(self, cloud: ReplayCloud, events: Sequence[Event]) -> float:
        """Decide, if there is news or something is still missing."""
        for event in events:
            if event.machine.is_spot:
                self._news.add(event.at + self._delay(event), event)
        news = self._news.known(cloud.now)
        for event in news:
            self._learn(event)
        if news or cloud.now >= self._retry_at:
            is_whole = self._launch_spot(cloud)
            self._adjust_on_demand(cloud)
            self._retry_at = NEVER if is_whole else cloud.now + DECISION_S
        return min(self._retry_at, self._news.next_at)

    def _delay(self, event: Event) -> float:
        """How long it takes until this is acted upon."""
        if event.kind is WARNED:
            return 0
        delay = self._chance.uniform(0, PROBE_S) + self._chance.uniform(0, DECISION_S)
        if event.kind is LOST:
            delay += PROBE_TIMEOUT_S + self._chance.uniform(0, LAUNCH_S)
        return delay

    def _learn(self, event: Event) -> None:
        id_ = event.machine.id
        if event.kind is UP:
            # It may have been lost, or warned, in the meantime.
            if id_ in self._spot:
                self._ready.add(id_)
        elif self._spot.pop(id_, None):
            self._ready.discard(id_)
            self._preempted(event.machine.offering.pool)

    def _launch_spot(self, cloud: ReplayCloud) -> bool:
        """Ask for what is missing; whether all of it was granted."""
        launched, refused = launch_planned(cloud, self._plan(cloud))
        for machine in launched:
            self._spot[machine.id] = machine
            self._active.add(machine.offering.pool)
        for pool in refused:
            self._preempted(pool)
        return not refused

    def _plan(self, cloud: ReplayCloud) -> list[CapacityPool]:
        """A pool for each Spot replica that is missing."""
        active = [pool for pool in self._pools if pool in self._active]
        taken = {machine.offering.pool for machine in self._spot.values()}
        unused = [pool for pool in active if pool not in taken]
        missing = self._replicas + OVERPROVISIONED - len(self._spot)
        spread: list[CapacityPool] = []
        for _, equals in groupby(sorted(unused, key=cloud.price), cloud.price):
            among = list(equals)
            spread += self._chance.sample(among, min(missing - len(spread), len(among)))
        least = min(map(cloud.price, active))
        cheapest = [pool for pool in active if cloud.price(pool) == least]
        return spread + self._chance.choices(cheapest, k=missing - len(spread))

    def _preempted(self, pool: CapacityPool) -> None:
        self._active.discard(pool)
        if len(self._active) <= self._fewest_active:
            self._active = set(self._pools)

    def _adjust_on_demand(self, cloud: ReplayCloud) -> None:
        wanted = min(self._replicas, self._replicas + OVERPROVISIONED - len(self._ready))
        missing = wanted - len(self._on_demand)
        if missing > 0:
            self._on_demand += cloud.launch(PurchaseOption.ON_DEMAND, missing)[0]
        # The newest go first: they may not be ready yet.
        for machine in self._on_demand[wanted:]:
            cloud.terminate(machine)
        del self._on_demand[wanted:]

"""The number of replicas that follows the load, as docs/scaling.md explains it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from lab.sim.faults import Call
from lab.sim.gate import Invocation, at, time_of
from lab.sim.load import SimLoads
from lab.sim.rules import Rule
from lab.sim.rules.desired import begun
from lab.sim.rules.history import History
from spotrelay.plane.core.pools import PurchaseOption
from spotrelay.plane.core.replica import Replica
from spotrelay.plane.core.rows import Rows, ScaleRequest, Source
from spotrelay.plane.core.scaling import Load, Ongoing, OngoingTotal, Scaling
from spotrelay.plane.core.spec import ServiceSpec

SLACK_S = 2.0
"""By how much functions' clocks may make a delay seem shorter: each is off by a second at most."""


ROUNDING = 1e-6
"""A sum of hundreds of requests isn't exact."""

KNOWN_S = 300.0
"""So long counts what the replicas told of their requests."""


@dataclass(frozen=True, slots=True)
class Asked:
    """How many replicas a load asks for."""

    number: int
    is_least: bool
    """Whether a part of the load isn't known: perhaps it asks for more."""

    def than(self, was: int) -> int | None:
        """The number, as far as it says something of how many there are now."""
        return None if self.is_least and self.number <= was else self.number


def asked_for(spec: ServiceSpec, scaling: Scaling, load: Load, rows: Rows) -> Asked:
    """What a load asks for. Without a replica, nobody knows of requests in progress."""
    serving = [r for r in rows.replicas.values() if r.serves and r.offering]
    asked = list[int | None]()
    if scaling.target_qps_per_replica is not None:
        rate, usual = load.requests_per_s, scaling.target_qps_per_replica
        asked.append(None if rate is None else _needed(rate, _strengths(spec, scaling, serving), usual))
    elif scaling.min_replicas == 0:
        asked.append(None if load.requests_per_s is None else int(load.requests_per_s > 0))
    if scaling.ongoing is not None:
        total = load.ongoing if serving else None
        asked.append(None if total is None else _needed(total, (), scaling.ongoing.target))
    number = max((one for one in asked if one is not None), default=0)
    clipped = min(max(number, scaling.min_replicas), scaling.max_replicas)
    return Asked(clipped, load.is_ongoing_partial or None in asked)


def qps(scaling: Scaling, row: Replica) -> float:
    """How many requests a second a replica is to have; 0 if that is unknown, or no target is of requests."""
    usual = scaling.target_qps_per_replica or 0.0
    type_ = row.offering and row.offering.pool.instance_type
    return scaling.qps_by_instance_type.get(type_, usual) if type_ else 0.0


def _strengths(spec: ServiceSpec, scaling: Scaling, serving: Sequence[Replica]) -> list[float]:
    """How much each can do, in the order in which they stay: the on-demand base, and then the strongest."""
    known = {r.id: qps(scaling, r) for r in serving}
    steady = {r.id for r in serving if r.purchase_option is PurchaseOption.ON_DEMAND and not r.is_fallback}
    base = sorted(steady, key=lambda id_: known[id_], reverse=True)[: spec.base_on_demand]
    others = sorted(known.keys() - base, key=lambda id_: known[id_], reverse=True)
    return [known[id_] for id_ in (*base, *others)]


def _needed(load: float, strengths: Sequence[float], usual: float) -> int:
    """The fewest that can do it: of those that serve, and then usual ones."""
    can_do = [sum(strengths[:number]) for number in range(len(strengths) + 1)]
    enough = (number for number, sum_ in enumerate(can_do) if sum_ >= load - ROUNDING)
    return next(enough, len(strengths) + ceil(round((load - can_do[-1]) / usual, 6)))


def _seen(spec: ServiceSpec, scaling: Scaling, load: Load, rows: Rows, at: float) -> Asked:
    """What a tick asks for by what it was told, and by what its rows say of requests in progress."""
    told = rows.ongoing
    # A second more or less: clocks differ.
    if told is not None and at - time_of(told.at) <= KNOWN_S + SLACK_S:
        load = replace(load, ongoing=told.requests, is_ongoing_partial=told.unknown > 0)
    return asked_for(spec, scaling, load, rows)


def requests_told(invocation: Invocation) -> OngoingTotal | None:
    """What the replicas that serve told of their requests, and how many told nothing; None: nobody asked."""
    asked = next((c for c in invocation.calls if c.call is Call.ONGOING), None)
    if asked is None:
        return None
    told = asked.answer.requests if isinstance(asked.answer, Ongoing) else {}
    serving = sum(row.serves for row in invocation.loaded.values())
    return OngoingTotal(at(asked.at), sum(told.values()), serving - len(told))


@dataclass(slots=True)
class LoadChecker:
    """Checks every tick of a service whose number follows the load."""

    history: History
    loads: SimLoads
    seen: dict[str, list[tuple[float, Asked]]] = field(default_factory=dict)
    """By service: when it was measured, and what was asked for."""
    kept_since: dict[str, float] = field(default_factory=dict)
    """By service: from when on all that was found out is on record."""

    def check(self, invocation: Invocation) -> None:
        """Check a tick that has ended, or was killed."""
        self._check_counted(invocation)
        asked = next((c for c in invocation.calls if c.call is Call.OBSERVE_LOAD), None)
        if asked is None or not isinstance(asked.about, ServiceSpec) or asked.about.scaling is None:
            return
        spec, scaling = asked.about, asked.about.scaling
        rows = invocation.rows or Rows()
        load = asked.answer if isinstance(asked.answer, Load) else Load()
        number = _seen(spec, scaling, load, rows, asked.at)
        ended = self.seen.setdefault(spec.service, [])
        ended.append((asked.at, number))
        # Others may be under way, and have written down what they made of theirs.
        told = self.loads.told.get(spec.service, ())
        under_way = {at: _seen(spec, scaling, one, read, at) for at, one, read in told if one != Load()}
        known = sorted((under_way | dict(ended)).items())
        seen = [one for one in known if one[0] <= asked.at]
        before = rows.requests.get(Source.LOAD)
        was = begun(spec, rows) if before is None else before.replicas
        was = min(max(was, scaling.min_replicas), scaling.max_replicas)
        about = next((c.about for c in invocation.calls if c.call is Call.NOTE_REQUEST), None)
        became = about.replicas if isinstance(about, ScaleRequest) else was
        damaged_at = self.history.damaged.get(spec.service, 0.0)
        self.kept_since[spec.service] = max(self.kept_since.get(spec.service, 0.0), damaged_at)
        # With the highest ID the number got lost, too: rows don't tell what it began with.
        if before is not None or all(id_ <= rows.highest_id for id_ in rows.replicas):
            self._check_change(spec.service, scaling, seen, was, became, invocation.began_at)
            if was == became == 0 and number.number and not invocation.disturbances:
                self.history.report(Rule.SCALED_AFTER_DELAY, f"{spec.service}: none, {number} are asked for")
        if invocation.disturbances:  # perhaps it was killed before it could write anything
            earlier = self.kept_since.get(spec.service, 0.0)
            self.kept_since[spec.service] = max(earlier, asked.at + SLACK_S)

    def _check_counted(self, invocation: Invocation) -> None:
        """Is what the replicas told of their requests on record, where that was written?"""
        told = requests_told(invocation)
        noted = next((c.about for c in invocation.calls if c.call is Call.NOTE_ONGOING), None)
        if told and isinstance(noted, OngoingTotal):
            if (noted.requests, noted.unknown) != (told.requests, told.unknown):
                self.history.report(Rule.REQUESTS_COUNTED, f"{noted} on record, {told} were told")
        elif told and not invocation.disturbances:
            self.history.report(Rule.REQUESTS_COUNTED, f"{told} were told, and nothing is on record")

    def _check_change(
        self,
        service: str,
        scaling: Scaling,
        seen: list[tuple[float, Asked]],
        was: int,
        became: int,
        began_at: float,
    ) -> None:
        if not scaling.min_replicas <= became <= scaling.max_replicas:
            bounds = f"{scaling.min_replicas} to {scaling.max_replicas}"
            self.history.report(Rule.SCALED_WITHIN_BOUNDS, f"{service}: {became}, and it is {bounds}")
        now, number = seen[-1][0], seen[-1][1].than(was)
        if became != was and (number is None or became != number):
            what = f"{service}: from {was} to {became}, and {number} were asked for"
            self.history.report(Rule.UNKNOWN_LOAD_HOLDS, what)
        if became == was or self.history.is_damaged(service, began_at) or (was == 0 and became > 0):
            return
        is_up = became > was
        delay_s = scaling.upscale_delay_s if is_up else scaling.downscale_delay_s
        for then, asked in reversed(seen):
            one = asked.than(was)
            if then < self.kept_since.get(service, 0.0):
                return  # what was found out then may not be on record
            # What nobody knew speaks against fewer, and not against more.
            is_same = is_up if one is None else one > was if is_up else one < was
            if not is_same:
                what = f"{service}: from {was} to {became}, {one} at {then:.1f} s"
                self.history.report(Rule.SCALED_AFTER_DELAY, what)
                return
            if now - then >= delay_s - SLACK_S:
                return
        self.history.report(Rule.SCALED_AFTER_DELAY, f"{service}: from {was} to {became} at once")

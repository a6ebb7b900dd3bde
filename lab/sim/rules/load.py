"""The number of replicas that follows the load, as docs/scaling.md explains it."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from lab.sim.faults import Call
from lab.sim.gate import Invocation
from lab.sim.load import SimLoads
from lab.sim.rules import Rule
from lab.sim.rules.desired import begun
from lab.sim.rules.history import History
from spotrelay.plane.core.rows import Rows, ScaleRequest, Source
from spotrelay.plane.core.scaling import Load, Scaling
from spotrelay.plane.core.spec import ServiceSpec

SLACK_S = 2.0
"""By how much functions' clocks may make a delay seem shorter: each is off by a second at most."""


def asked_for(scaling: Scaling, rate: float) -> int:
    """How many replicas the load asks for."""
    per_replica = scaling.target_qps_per_replica or 1.0
    number = ceil(round(rate / per_replica, 6))
    return min(max(number, scaling.min_replicas), scaling.max_replicas)


@dataclass(slots=True)
class LoadChecker:
    """Checks every tick of a service whose number follows the load."""

    history: History
    loads: SimLoads
    seen: dict[str, list[tuple[float, int | None]]] = field(default_factory=dict)
    """By service: when it was measured, and what was asked for; None if nobody could tell."""
    kept_since: dict[str, float] = field(default_factory=dict)
    """By service: from when on all that was found out is on record."""

    def check(self, invocation: Invocation) -> None:
        """Check a tick that has ended, or was killed."""
        asked = next((c for c in invocation.calls if c.call is Call.OBSERVE_LOAD), None)
        if asked is None or not isinstance(asked.about, ServiceSpec) or asked.about.scaling is None:
            return
        spec, scaling = asked.about, asked.about.scaling
        load = asked.answer if isinstance(asked.answer, Load) else Load()
        rate = load.requests_per_s
        number = None if rate is None else asked_for(scaling, rate)
        ended = self.seen.setdefault(spec.service, [])
        ended.append((asked.at, number))
        # Others may be under way, and have written down what they made of theirs.
        told = self.loads.told.get(spec.service, ())
        under_way = {at: asked_for(scaling, one.requests_per_s or 0.0) for at, one in told if one != Load()}
        known = sorted((under_way | dict(ended)).items())
        seen = [one for one in known if one[0] <= asked.at]
        rows = invocation.rows or Rows()
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
            if was == became == 0 and number and not invocation.disturbances:
                self.history.report(Rule.SCALED_AFTER_DELAY, f"{spec.service}: none, {number} are asked for")
        if invocation.disturbances:  # perhaps it was killed before it could write anything
            earlier = self.kept_since.get(spec.service, 0.0)
            self.kept_since[spec.service] = max(earlier, asked.at + SLACK_S)

    def _check_change(
        self,
        service: str,
        scaling: Scaling,
        seen: list[tuple[float, int | None]],
        was: int,
        became: int,
        began_at: float,
    ) -> None:
        if not scaling.min_replicas <= became <= scaling.max_replicas:
            bounds = f"{scaling.min_replicas} to {scaling.max_replicas}"
            self.history.report(Rule.SCALED_WITHIN_BOUNDS, f"{service}: {became}, and it is {bounds}")
        now, number = seen[-1]
        if became != was and (number is None or became != number):
            what = f"{service}: from {was} to {became}, and {number} were asked for"
            self.history.report(Rule.UNKNOWN_LOAD_HOLDS, what)
        if became == was or self.history.is_damaged(service, began_at) or (was == 0 and became > 0):
            return
        is_up = became > was
        delay_s = scaling.upscale_delay_s if is_up else scaling.downscale_delay_s
        for at, one in reversed(seen):
            if at < self.kept_since.get(service, 0.0):
                return  # what was found out then may not be on record
            # What nobody knew speaks against fewer, and not against more.
            is_same = is_up if one is None else one > was if is_up else one < was
            if not is_same:
                what = f"{service}: from {was} to {became}, {one} at {at:.1f} s"
                self.history.report(Rule.SCALED_AFTER_DELAY, what)
                return
            if now - at >= delay_s - SLACK_S:
                return
        self.history.report(Rule.SCALED_AFTER_DELAY, f"{service}: from {was} to {became} at once")

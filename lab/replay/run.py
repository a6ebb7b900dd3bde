"""Runs one policy through one trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from time import perf_counter

from lab.replay import production
from lab.replay.baselines import BASELINES
from lab.replay.baselines.baseline import Baseline
from lab.replay.baselines.optimal import NAME as OPTIMAL
from lab.replay.baselines.optimal import optimal_cost
from lab.replay.cloud import ADVISED, WARNED, ReplayCloud
from lab.replay.result import Result, StandbysFound, oracle, result_of
from lab.replay.settings import ReplaySettings, ReplaySettingsError
from lab.replay.traces import EQUAL_PRICES, Trace

PRODUCTION = "spotrelay"
"""The production controller, as a policy among others."""

POLICIES: tuple[str, ...] = (PRODUCTION, OPTIMAL, *BASELINES)
"""In the order in which they are shown."""

Progress = Callable[[float], None]
"""Told the share of the trace that is done."""

PROGRESS_STEPS = 100
"""Progress is told at most so often: whoever shows it shows percents."""


class PolicyError(ValueError):
    """No policy of that name."""


def run(trace: Trace, policy: str, settings: ReplaySettings, progress: Progress | None = None) -> Result:
    """Run the policy through the whole trace.

    Raises:
        PolicyError: there is no such policy.
        ReplaySettingsError: the trace ends before measuring begins, or Spot costs more than on-demand.
    """
    if policy not in POLICIES:
        raise PolicyError(f"policy {policy!r} is unknown: give one of {', '.join(POLICIES)}")
    if trace.duration_s <= settings.measured_from_s:
        raise ReplaySettingsError(
            f"trace {trace.name} lasts {trace.duration_s:.0f} s, and measuring begins after "
            f"{settings.measured_from_s:.0f} s, three cold starts: give a longer trace or another cold start"
        )
    dearest, pool = max((price, p.pool) for p in trace.pools for _, price in p.prices)
    if trace.prices != EQUAL_PRICES and dearest > settings.od_price_ratio:
        raise ReplaySettingsError(
            f"on-demand price ratio is {settings.od_price_ratio:g}, but Spot in {pool} costs up to "
            f"{dearest:.2f} times the mean, and never costs more than on-demand: give {ceil(dearest)} or more"
        )
    least = optimal_cost(trace, settings, settings.measured_from_s, trace.duration_s)
    if policy == OPTIMAL:
        return oracle(trace, policy, settings, least)
    began = perf_counter()
    cloud = ReplayCloud(trace, settings)
    said = _Paced(progress, trace.duration_s)
    found: Sequence[StandbysFound] = ()
    if policy == PRODUCTION:
        found = production.drive(cloud, trace.duration_s, said)
    else:
        drive(BASELINES[policy](trace, settings), cloud, trace.duration_s, said)
    return result_of(trace, policy, cloud, least, perf_counter() - began, found)


def drive(baseline: Baseline, cloud: ReplayCloud, until: float, progress: Progress | None = None) -> None:
    """Wake the policy at the beginning, when it asked for it, and when something happens to its machines."""
    wake_at = baseline.wake(cloud, [])
    while (at := min(wake_at, cloud.next_event_at())) < until:
        events = [event for event in cloud.advance(at) if event.kind is not ADVISED]
        if not baseline.hears_warnings:
            events = [event for event in events if event.kind is not WARNED]
        if events or at == wake_at:
            wake_at = baseline.wake(cloud, events)
            if wake_at <= at:
                raise ValueError(
                    f"{baseline.name} wants to be woken at {wake_at:g}, but that is over at {at:g}"
                )
        if progress is not None:
            progress(at)


class _Paced:
    """Tells the share that is done whenever it has grown enough to be seen."""

    def __init__(self, progress: Progress | None, until: float) -> None:
        self._progress = progress
        self._until = until
        self._next = 0.0

    def __call__(self, now: float) -> None:
        if self._progress is not None and now >= self._next:
            self._progress(now / self._until)
            self._next = now + self._until / PROGRESS_STEPS

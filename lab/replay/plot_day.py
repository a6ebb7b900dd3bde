"""Draws a day of one policy: what the pools held, which replicas there were, how strong the service was."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from lab.replay.result import DAY_S, Life, Result
from lab.replay.traces import PoolTrace, Trace
from lab.replay.wording import span
from spotrelay.plane.core.pools import PurchaseOption

SPOT, ON_DEMAND, STARTING, WARNED = "#2563eb", "#f59e0b", "#93c5fd", "#dc2626"
STARTING_ON_DEMAND = "#fde68a"
HELD = "#16a34a"
"""Capacity; the fuller the pool, the stronger."""

HOUR_S = 3600.0
STEP_S = HOUR_S
"""Days begin at whole hours after the trace's start."""

MOST_POOLS = 14
"""Rows that can be read; pools that the policy used come first."""

ON_DEMAND_ROW = "on-demand"


@dataclass(frozen=True, slots=True)
class PoolRow:
    """A pool, or all that was bought on-demand, and its replicas in lanes."""

    title: str
    pool: PoolTrace | None
    lanes: tuple[tuple[Life, ...], ...]


@dataclass(frozen=True, slots=True)
class Day:
    """A piece of a run's timeline."""

    result: Result
    begin_s: float
    end_s: float
    rows: tuple[PoolRow, ...]
    is_whole: bool
    """Whether the trace is no longer than this."""

    @classmethod
    def of(cls, trace: Trace, result: Result) -> Day:
        """The day with most losses."""
        begin_s = _worst_day(result, trace.duration_s)
        end_s = min(begin_s + DAY_S, trace.duration_s)
        lives = [life for life in result.timeline if life.launched_at < end_s and life.ended_at > begin_s]
        spot = [life for life in lives if life.option is PurchaseOption.SPOT]
        pools = sorted(trace.pools, key=lambda p: p.pool)
        if len(pools) > MOST_POOLS:
            used = {life.pool for life in spot}
            shown = sorted(pools, key=lambda p: (p.pool not in used, p.pool))[:MOST_POOLS]
            pools = sorted(shown, key=lambda p: p.pool)
        zones = [p.pool.zone for p in pools]
        rows = [
            PoolRow(
                p.pool.zone if zones.count(p.pool.zone) == 1 else str(p.pool),
                p,
                _lanes([life for life in spot if life.pool == p.pool]),
            )
            for p in pools
        ]
        rows.append(PoolRow(ON_DEMAND_ROW, None, _lanes([life for life in lives if life not in spot])))
        return cls(result, begin_s, end_s, tuple(rows), trace.duration_s <= DAY_S)

    @property
    def lanes(self) -> int:
        """Lines of replicas in all rows."""
        return sum(len(row.lanes) for row in self.rows)


def draw_pools(axes: Axes, day: Day) -> None:
    """A row per pool, shaded by what it held, and its replicas as bars."""
    when = (
        "the whole trace" if day.is_whole else f"the day with most losses, from day {day.begin_s / DAY_S:.1f}"
    )
    settings = day.result.settings
    axes.set_title(
        f"{day.result.policy} in {day.result.trace}: {when} (cold start {settings.cold_start_s:g} s)", pad=22
    )
    ticks, titles = [], []
    top = 0.0
    for row in day.rows:
        height = len(row.lanes)
        if row.pool:
            _shade(axes, row.pool, day, top, height)
        for lane, lives in enumerate(row.lanes):
            for life in lives:
                _bar(axes, life, day, top + lane)
        axes.axhline(top + height, color="white", linewidth=2)
        ticks.append(top + height / 2)
        titles.append(row.title)
        top += height
    axes.set_ylim(top, 0)
    axes.set_yticks(ticks, titles, fontsize=9)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelbottom=False)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_xlim(day.begin_s, day.end_s)
    handles = [
        Patch(facecolor=HELD, alpha=0.3, label="pool has Spot"),
        Patch(facecolor=SPOT, label="on Spot"),
        Patch(facecolor=ON_DEMAND, label="on-demand"),
        Patch(facecolor=STARTING, label="starting"),
        Patch(facecolor=WARNED, label="warned"),
    ]
    axes.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(-0.005, 1.0), ncols=5, frameon=False, fontsize=9,
        borderaxespad=0.2, handlelength=1.2, columnspacing=1.2,
    )  # fmt: skip


def draw_strength(axes: Axes, day: Day) -> None:
    """Ready replicas over time; what is missing to N stands out."""
    wanted = day.result.settings.replicas
    steps = list(strength(day.result.timeline, day.begin_s, day.end_s))
    times = [at for at, _ in steps] + [day.end_s]
    ready = [count for _, count in steps] + [steps[-1][1]]
    axes.fill_between(times, ready, step="post", color=SPOT, alpha=0.25, linewidth=0)
    axes.step(times, ready, where="post", color=SPOT, linewidth=1.2)
    present = [min(count, wanted) for count in ready]
    axes.fill_between(times, present, wanted, step="post", color=WARNED, linewidth=0)
    axes.axhline(wanted, color="#334155", linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set_ylim(0, max(*ready, wanted) + 0.4)
    axes.set_yticks([0, wanted])
    axes.set_ylabel("ready")
    axes.set_title(_gaps(steps, wanted, day.end_s), loc="right", fontsize=9, fontweight="normal", pad=2)
    hours = range(0, math.ceil((day.end_s - day.begin_s) / HOUR_S) + 1, 3)
    axes.set_xticks([day.begin_s + hour * HOUR_S for hour in hours], [f"{hour} h" for hour in hours])
    axes.set_xlim(day.begin_s, day.end_s)


def strength(timeline: Sequence[Life], begin_s: float, end_s: float) -> Iterator[tuple[float, int]]:
    """How many replicas are ready, from when on; changes only, the first at `begin_s`."""
    changes: dict[float, int] = {begin_s: 0}
    for life in timeline:
        over = min(life.drained_at if life.warned_at > life.drained_at else math.inf, life.ended_at)
        first = max(life.up_at, begin_s)
        if first < min(over, end_s):
            changes[first] = changes.get(first, 0) + 1
            if over < end_s:
                changes[over] = changes.get(over, 0) - 1
    ready = 0
    before = -1
    for at, change in sorted(changes.items()):
        ready += change
        if ready != before:
            yield at, ready
        before = ready


def _gaps(steps: Sequence[tuple[float, int]], wanted: int, end_s: float) -> str:
    """What a line's width makes look longer than it was."""
    gaps: list[float] = []
    is_short = False
    for (at, ready), (until, _) in pairwise([*steps, (end_s, 0)]):
        if ready < wanted and is_short:
            gaps[-1] += until - at
        elif ready < wanted:
            gaps.append(until - at)
        is_short = ready < wanted
    if not gaps:
        return f"never below {wanted}"
    return (
        f"below {wanted} for {span(sum(gaps))} of {span(end_s - steps[0][0])}, longest gap {span(max(gaps))}"
    )


def _worst_day(result: Result, duration_s: float) -> float:
    """When the day begins that lost most replicas; of several the middle one, which has them in its midst."""
    lost = sorted(life.ended_at for life in result.timeline if life.is_lost)
    begins = [n * STEP_S for n in range(int(max(0.0, duration_s - DAY_S) // STEP_S) + 1)]
    counts = [bisect_right(lost, at + DAY_S) - bisect_right(lost, at) for at in begins]
    worst = [at for at, count in zip(begins, counts, strict=True) if count == max(counts)]
    return worst[len(worst) // 2]


def _lanes(lives: Sequence[Life]) -> tuple[tuple[Life, ...], ...]:
    """Bars that don't overlap share a lane; there is one lane at least."""
    lanes: list[list[Life]] = []
    for life in sorted(lives, key=lambda life: life.launched_at):
        free = next((lane for lane in lanes if lane[-1].ended_at <= life.launched_at), None)
        if free is None:
            lanes.append([life])
        else:
            free.append(life)
    return tuple(tuple(lane) for lane in lanes) or ((),)


def _shade(axes: Axes, pool: PoolTrace, day: Day, top: float, height: float) -> None:
    enough = day.result.settings.replicas
    for (at, held), (until, _) in pairwise([*pool.capacity, (math.inf, 0)]):
        begin, end = max(at, day.begin_s), min(until, day.end_s)
        if begin < end:
            strong = 0.08 + 0.22 * min(1.0, held / enough) if held else 0.0
            colour = HELD if held else "#f1f5f9"
            axes.add_patch(
                Rectangle(
                    (begin, top), end - begin, height, facecolor=colour, alpha=strong or 1.0, linewidth=0
                )
            )


def _bar(axes: Axes, life: Life, day: Day, top: float) -> None:
    is_spot = life.option is PurchaseOption.SPOT
    phases: Mapping[str, tuple[float, float]] = {
        STARTING if is_spot else STARTING_ON_DEMAND: (life.launched_at, life.up_at),
        SPOT if is_spot else ON_DEMAND: (life.up_at, life.warned_at),
        WARNED: (life.warned_at, life.ended_at),
    }
    for colour, (first, last) in phases.items():
        begin = max(first, day.begin_s)
        end = min(last, life.ended_at, day.end_s)
        if begin < end:
            axes.add_patch(
                Rectangle((begin, top + 0.14), end - begin, 0.72, facecolor=colour, linewidth=0, zorder=3)
            )

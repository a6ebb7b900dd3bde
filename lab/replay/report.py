"""What a replay found, as tables for a terminal or a text file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from lab.replay.result import Result
from lab.replay.run import PRODUCTION
from lab.replay.settings import ReplaySettings
from lab.replay.traces import Trace
from lab.replay.wording import span

WIDTH = 158
"""Columns that the tables need; a narrower terminal may wrap them."""

FEW = 6
"""Up to so many replicas each strength has a column of its own; beyond, each quarter of N has one."""

Band = tuple[str, int, int]
"""Title, and the ready replicas that it stands for: from, up to and including."""


def tables(trace: Trace, results: Sequence[Result]) -> Iterator[RenderableType]:
    """A trace's results: for each setting what the policies did, and for how long at which strength."""
    heading = f"{trace.name}: {span(trace.duration_s)}, {_pools(trace)}, {_prices(trace)}"
    yield Text(heading, style="bold")
    for note in trace.notes:
        yield Text(f"  {note}")
    for settings, same in groupby(results, key=lambda result: result.settings):
        group = list(same)
        # Titles are lines of their own: a table's title wraps at its table's width.
        yield Text(f"\n{_title(settings)}; cost relative to as many on-demand replicas")
        if any(result.policy == PRODUCTION for result in group):
            yield Text(f"{PRODUCTION}: on_warning {settings.on_warning}, drain {settings.drain_s:g} s")
        yield _policies(group)
        yield Text("Share of time by number of ready replicas")
        yield _strengths(settings, group)


def _pools(trace: Trace) -> str:
    regions = len({pool.pool.region for pool in trace.pools})
    return f"{_count(len(trace.pools), 'capacity pool')} in {_count(regions, 'region')}"


def _prices(trace: Trace) -> str:
    kind, _, seed = trace.prices.partition(":")
    return f"{kind} Spot prices" + (f" (seed {seed})" if seed else "")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _standbys(number: int | str) -> str:
    return _count(number, "standby") if isinstance(number, int) else f"{number} standbys"


def _title(settings: ReplaySettings) -> str:
    warning = f"warning {settings.warning_s:g} s" if settings.warning_s else "no warnings"
    lost = f", {settings.warning_loss:.0%} of them lost" if settings.warning_loss else ""
    advised = (
        f", {settings.recommendations:.0%} of losses recommended"
        f" ({settings.false_recommendations:.0%} false, {settings.on_rebalance})"
        if settings.recommendations
        else ""
    )
    dry = (
        f", dry in {settings.on_demand_dry:.0%} of the spells without Spot" if settings.on_demand_dry else ""
    )
    standby = (
        f", {_standbys(settings.standby)} up in {settings.standby_start_s:g} s"
        f" ({settings.standby_refusal:.0%} refused)"
        if settings.standby
        else ""
    )
    share = settings.rebalance_cost
    moves = f", moving for {share:.0%} less" if share is not None else ""
    return (
        f"{_count(settings.replicas, 'replica')}, cold start {settings.cold_start_s:g} s, "
        f"{warning}{lost}{advised}, "
        f"on-demand = {settings.od_price_ratio:g} times Spot{dry}{standby}{moves}"
    )


def _policies(results: Sequence[Result]) -> Table:
    table = _table()
    for name in ("available", "in\nrotation", "zero s\nin 30 d", "zero\ntimes", "zero\nmax", "mean\nready"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("cost", "cost /\noptimal", "losses\nper day", "launches", "refusals"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("gap\np50", "gap\np99", "gap\nmax"):
        table.add_column(name, justify="right", no_wrap=True)
    for result in results:
        table.add_row(
            result.policy,
            f"{result.availability:.3%}",
            f"{result.in_rotation:.3%}",
            f"{result.zero_s_per_30d:,.0f}",
            f"{result.zero_outages:,}",
            _length(result.zero_longest_s),
            f"{result.mean_ready:.3%}",
            f"{result.cost:.3f}",
            f"{result.cost / result.optimal_cost:.3f}",
            f"{result.losses_per_day:.1f}",
            f"{result.launches:,}",
            f"{result.refusals:,}",
            *map(_length, (result.gaps.p50, result.gaps.p99, result.gaps.max)),
            style=_style(result),
        )
    return table


def _length(duration_s: float) -> str:
    return span(duration_s) if duration_s else "-"


def _strengths(settings: ReplaySettings, results: Sequence[Result]) -> Table:
    bands = list(_bands(settings.replicas, max(max(r.time_at_strength, default=0) for r in results)))
    table = _table()
    for title, _, _ in bands:
        table.add_column(title, justify="right", no_wrap=True)
    for result in results:
        shares = (
            sum(share for ready, share in result.time_at_strength.items() if first <= ready <= last)
            for _, first, last in bands
        )
        table.add_row(
            result.policy, *(f"{share:.3%}" if share else "-" for share in shares), style=_style(result)
        )
    return table


def _bands(wanted: int, most: int) -> Iterator[Band]:
    if wanted <= FEW:
        yield from ((str(ready), ready, ready) for ready in range(wanted))
    else:
        yield "0", 0, 0
        bounds = [0, *(wanted * quarter // 4 for quarter in (1, 2, 3)), wanted - 1]
        for below, last in pairwise(bounds):
            yield (f"{below + 1} to {last}" if below + 1 < last else str(last)), below + 1, last
    yield f"{wanted} (all)", wanted, wanted
    if most > wanted:
        yield "more", wanted + 1, most


def _table() -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("policy", no_wrap=True)
    return table


def _style(result: Result) -> str | None:
    return "bold" if result.policy == PRODUCTION else None

"""What a service's own days say of its instance types: which earned their place, which to drop, what to add.

Days are the account's own experience, where AWS's figures are averages over all customers. A type that was
never launched costs nothing: a request names all pools, and EC2 chooses. So little speaks for dropping one,
and it is said only of what was lost far more often than the rest, or costs more than on-demand would.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any

from spotrelay.messages import few
from spotrelay.operator.advice.ranking import MOST_TIMES
from spotrelay.plane.accounting.days import Day
from spotrelay.plane.core.instance_types import InstanceType
from spotrelay.plane.core.pools import Survey
from spotrelay.plane.core.requirements import Accelerators, Requirements, find
from spotrelay.plane.core.timing import LOW_SCORE, MOVE_SCORE_GAIN

LEAST_DAYS = 7
"""With fewer, nothing is said of a type that wasn't used: a week has quiet and busy days."""

LEAST_LOSSES = 3
"""With fewer of them a rate of losses is chance."""

FAR_MORE = 3.0
"""So many times as often as the others is far more often."""

LEAST_HOURS = 24.0
"""So long must the others have run to be compared with."""

MOST_ADDED = 3
"""Accelerators that are named to be added, those nearest in memory first."""


class Verdict(StrEnum):
    """What a type was worth."""

    EARNED = "earned its place"
    SPARE = "spare"
    """It wasn't used, or hardly: it costs nothing, and is one more place to go."""
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class PoolHistory:
    """What one pool gave, over all days."""

    zone: str
    instance_type: str
    hours: float
    """That instances ran there on Spot."""
    launched: int
    lost: int
    refused: int
    """Refusals in a row that each day's last cooldown was for, added up."""
    usd_per_hour: float | None
    """The mean of the days' Spot prices; None: EC2 told none."""
    score: float | None
    """The mean of the zone's placement scores, of all its hours; None: EC2 told none."""


@dataclass(frozen=True, slots=True)
class TypeHistory:
    """What a type gave, in all zones, and what that was worth."""

    instance_type: str
    verdict: Verdict
    why: str
    hours: float
    launched: int
    lost: int
    refused: int
    usd_per_hour: float | None
    """By the hours that it ran in each pool; if in none, the mean of its pools."""


@dataclass(frozen=True, slots=True)
class OwnHistory:
    """What a service's days say."""

    service: str
    days: int
    pools: Sequence[PoolHistory]
    """Those with the most hours first."""
    types: Sequence[TypeHistory]
    add: Sequence[str] = field(default_factory=tuple)
    """What would make more or better pools, each in a line."""
    notes: Sequence[str] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        """It as JSON."""
        return asdict(self)


def own_history(
    service: str,
    days: Sequence[Day],
    survey: Survey | None,
    asked: Requirements,
    catalog: Iterable[InstanceType],
    recommended_types: int,
) -> OwnHistory:
    """What the days say; the survey says what is on offer now, and the catalog what else there is."""
    pools = sorted(_pools(days), key=lambda one: (-one.hours, -one.launched, one.instance_type, one.zone))
    on_demand = survey.on_demand_prices if survey else {}
    length = (max(day.date for day in days) - min(day.date for day in days)) if days else timedelta()
    types = list(_types(pools, on_demand, length.days + 1 if days else 0))
    dropped = {one.instance_type for one in types if one.verdict is Verdict.DROP}
    left = len(types) - len(dropped)
    notes = []
    if dropped and left < recommended_types:
        notes.append(
            f"Without {', '.join(sorted(dropped))} {left} types are left, and AWS asks for at least"
            f" {recommended_types} for Spot: add others first."
        )
    if days and length.days + 1 < LEAST_DAYS:
        notes.append(
            f"{length.days + 1} days are little: of types that weren't used, a week says more."
            if length.days
            else "One day is little: of types that weren't used, a week says more."
        )
    return OwnHistory(
        service,
        len(days),
        pools,
        types,
        (*_more_accelerators(asked, list(catalog)), *_more_places(survey)),
        notes,
    )


def _pools(days: Sequence[Day]) -> Iterator[PoolHistory]:
    found = defaultdict(list)
    scores: dict[str, list[int]] = defaultdict(list)
    for day in days:
        for name, one in day.pools.items():
            found[name].append(one)
        for zone, hours in day.scores.items():
            scores[zone] += hours.values()
    for name, all_days in found.items():
        zone, _, instance_type = name.partition("/")
        prices = [one.usd_per_hour for one in all_days if one.usd_per_hour is not None]
        yield PoolHistory(
            zone,
            instance_type,
            round(sum(one.hours for one in all_days), 2),
            sum(one.launched for one in all_days),
            sum(one.lost for one in all_days),
            sum(one.refused for one in all_days),
            _mean(prices),
            _mean(scores[zone]),
        )


def _types(pools: Sequence[PoolHistory], on_demand: Mapping[str, float], days: int) -> Iterator[TypeHistory]:
    by_type: dict[str, list[PoolHistory]] = defaultdict(list)
    for pool in pools:
        by_type[pool.instance_type].append(pool)
    found = []
    for name, its in by_type.items():
        hours = sum(pool.hours for pool in its)
        priced = [(pool.usd_per_hour, pool.hours) for pool in its if pool.usd_per_hour is not None]
        ran = sum(part for _, part in priced)
        found.append(
            TypeHistory(
                name,
                Verdict.SPARE,
                "",
                round(hours, 2),
                sum(pool.launched for pool in its),
                sum(pool.lost for pool in its),
                sum(pool.refused for pool in its),
                round(sum(usd * part for usd, part in priced) / ran, 4)
                if ran
                else _mean([usd for usd, _ in priced]),
            )
        )
    cheapest = min(((usd, name) for name, usd in on_demand.items() if name in by_type), default=None)
    for one in sorted(found, key=lambda one: (-one.hours, -one.launched, one.instance_type)):
        others = [other for other in found if other is not one]
        verdict, why = _judged(one, others, cheapest, days)
        yield replace(one, verdict=verdict, why=why)


def _judged(
    one: TypeHistory, others: Sequence[TypeHistory], cheapest: tuple[float, str] | None, days: int
) -> tuple[Verdict, str]:
    """What a type was worth, and why in one line."""
    others_ran, others_lost = sum(o.hours for o in others), sum(o.lost for o in others)
    is_compared = one.lost >= LEAST_LOSSES and others_ran >= LEAST_HOURS
    if is_compared and one.lost * others_ran > FAR_MORE * max(others_lost, 1) * one.hours:
        rest = f"one in {others_ran / others_lost:.0f} h" if others_lost else f"none in {others_ran:.0f} h"
        return Verdict.DROP, f"lost {one.lost} in {one.hours:.0f} h, where the others lost {rest}"
    if cheapest and one.usd_per_hour is not None and one.usd_per_hour >= cheapest[0]:
        return (
            Verdict.DROP,
            f"its Spot price, {one.usd_per_hour:.3f} USD an hour, is no less than {cheapest[1]} costs on"
            f" demand, {cheapest[0]:.3f}",
        )
    if one.hours > 0:
        price = f" at {one.usd_per_hour:.3f} USD an hour" if one.usd_per_hour is not None else ""
        lost = f"lost {one.lost}" if one.lost else "lost none"
        return Verdict.EARNED, f"ran {one.hours:.0f} h{price}, {lost}"
    if one.refused:
        return Verdict.SPARE, f"EC2 refused it each time it was short ({one.refused}); asking costs nothing"
    if days < LEAST_DAYS:
        return Verdict.SPARE, "not used yet"
    return (
        Verdict.SPARE,
        f"not used in {days} days: EC2 had others that were cheaper or deeper; it costs nothing",
    )


def _more_accelerators(asked: Requirements, types: Sequence[InstanceType]) -> Iterator[str]:
    """Accelerators with as much memory or more, as many of them, that the file doesn't name."""
    for choice in asked.choices:
        named = {one.name for one in choice.accelerators}
        counts = {one.count for one in choice.accelerators}
        # Some types have a share of an accelerator: those are no measure.
        whole = [t for t in types if t.accelerator_count]
        memory = [t.accelerator_memory_gb for t in whole if t.accelerator in named]
        if not memory or choice.instance_types or len(counts) != 1:
            continue
        (count,) = counts
        more = []
        for name in {t.accelerator for t in whole if t.is_nvidia} - named:
            other = replace(choice, accelerators=(Accelerators(name, count),))
            found = find(other, types).types
            gb = min((t.accelerator_memory_gb for t in found), default=0)
            # A far larger one costs far more: what `recommend` leaves out isn't added here.
            if min(memory) <= gb <= MOST_TIMES * min(memory):
                more.append((gb, name, found))
        for gb, name, found in sorted(more, key=lambda each: each[:2])[:MOST_ADDED]:
            names = few([t.name for t in found], 3)
            yield f"accelerator {name}, {gb} GB: {names}, where the region has them"


def _more_places(survey: Survey | None) -> Iterator[str]:
    """Zones and regions that score clearly better than the service's best zone."""
    best = max(survey.scores.values(), default=None) if survey else None
    if survey is None or best is None:
        return
    for place, score in sorted(survey.elsewhere.items(), key=lambda one: (-one[1], one[0])):
        if not place[-1].isdigit() and score >= best + MOVE_SCORE_GAIN:
            yield f"a subnet in {place}: it scores {score}, the best zone that the service has {best}"
    if best <= LOW_SCORE and not survey.elsewhere:
        yield f"other zones or regions: the best zone that the service has scores {best}"


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None

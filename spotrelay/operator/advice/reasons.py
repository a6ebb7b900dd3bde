"""An answer in words: why what is recommended is, and why well-known others aren't."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from spotrelay.file import catalog
from spotrelay.messages import few
from spotrelay.operator.advice.advising import Advice
from spotrelay.operator.advice.fitting import TIGHT, Cause, Out
from spotrelay.operator.advice.gpu_memory import Phase, gib
from spotrelay.operator.advice.ranking import Choice, Rank
from spotrelay.plane.core.requirements import Accelerators

MOST_NAMES = 5
"""Types that a line names."""

OTHER_ACCELERATORS = 2
"""How many of them are named that would add pools."""


def whole_number(number: float) -> str:
    """With so many digits as say something."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def order(advice: Advice) -> str:
    """By what the choices are ranked."""
    unit = _unit(advice)
    if advice.rank is Rank.SPEED:
        return f"Ranked by the bound: the most {unit} first."
    if advice.is_priced:
        return f"Ranked by what a USD buys at most, of {unit.removesuffix('/s')}: at {_prices_of(advice)}."
    return (
        "No price is known: ranked by the bound for each GiB of GPU memory, which prices follow most closely."
    )


def _prices_of(advice: Advice) -> str:
    listed = advice.market.listed
    if listed is None:
        return "Spot's price where it is known"
    what = f"on-demand's list price in {listed.region} on {listed.origin.date}"
    is_mixed = any(choice.price.spot is not None for choice in advice.choices)
    return f"Spot's price where it is known, and {what} elsewhere" if is_mixed else what


def _unit(advice: Advice) -> str:
    return next((choice.bound.unit for choice in advice.choices if choice.bound), "tokens/s")


def why_in(advice: Advice) -> list[str]:
    """A line for each kind of GPUs that is recommended."""
    return [_why(which, found, advice) for which, found in advice.groups().items()]


def _why(which: Accelerators, found: Sequence[Choice], advice: Advice) -> str:
    question, best = advice.question, found[0]
    fit, chip = best.fit, catalog.all_chips()[which.name]
    parts = [f"{fit.gpu_bytes / 1024**3:.1f} GiB hold {gib(question.need.total)}"]
    if fit.is_tight(question.need):
        share = question.need.total / fit.gpu_bytes
        parts.append(f"tight: {share:.0%} of it, where vLLM takes {TIGHT:.0%} unless told otherwise")
    elif (more := fit.further_requests(question.need)) is not None:
        parts.append(f"room for {more} more such request{'' if more == 1 else 's'}")
    preferred = question.precision.computed_in[0]
    if fit.computed_in == preferred:
        parts.append(f"{preferred.upper()} in hardware" if preferred != "fp32" else "FP32")
    else:
        parts.append(f"no {preferred.upper()} in hardware: computed in {fit.computed_in.upper()}")
    parts.append(_limit(best, question.phase))
    if which.count > 1:
        without = "no NVLink" if chip.nvlink == 0 else "no NVLink is known"
        parts.append(
            f"NVLink of {chip.nvlink:g} GB/s between its GPUs"
            if chip.nvlink
            else f"{without}: what its GPUs exchange goes over PCIe"
        )
    return f"{which}: {'; '.join(parts)}."


def _limit(choice: Choice, phase: Phase) -> str:
    chip = catalog.all_chips()[choice.fit.type.accelerator]
    if choice.bound is None:
        what = "bandwidth" if phase is Phase.DECODE else f"rate in {choice.fit.computed_in.upper()}"
        return f"its {what} isn't known from a source of its maker's, so there is no bound"
    if choice.bound.limit == "bandwidth":
        return f"{chip.bandwidth:,g} GB/s{_each(choice)} is the limit"
    rate = chip.rate(choice.fit.computed_in)
    return f"{rate:,g} TFLOP/s{_each(choice)} in {choice.fit.computed_in.upper()} is the limit"


def _each(choice: Choice) -> str:
    return " each" if choice.fit.used > 1 else ""


def why_out(outs: Iterable[Out]) -> list[str]:
    """A line for each reason, with the types that it leaves out; what is nearest to being in first."""
    by_reason: dict[tuple[Cause, str], list[Out]] = {}
    for out in sorted(outs, key=lambda out: -list(Cause).index(out.cause)):
        by_reason.setdefault((out.cause, _alike(out)), []).append(out)
    return [
        f"{few([out.type.name for out in found], MOST_NAMES)}: {_together(found)}."
        for found in by_reason.values()
    ]


def _alike(out: Out) -> str:
    """What the outs of one line have in common: their reason, or enough of it that one speaks for all."""
    if out.cause in (Cause.MANY, Cause.COUNT):
        return _after_count(out)
    if out.cause in (Cause.SMALL, Cause.LARGE):
        return f"{out.type.accelerator}:{out.type.accelerator_count if out.cause is Cause.LARGE else ''}"
    return out.reason


def _after_count(out: Out) -> str:
    # `4 A10G, of which 1 would be used`: the same is true of other GPUs, and of 8.
    return out.reason.partition(", ")[2]


def _together(outs: Sequence[Out]) -> str:
    """What is true of all of them."""
    first = outs[0]
    counts = sorted({out.type.accelerator_count for out in outs})
    if first.cause in (Cause.MANY, Cause.COUNT):
        names = {out.type.accelerator for out in outs}
        *fewer, most = map(str, counts)
        number = f"{', '.join(fewer)} or {most}" if fewer else most
        return f"{number} {names.pop() if len(names) == 1 else 'GPUs'}, {_after_count(first)}"
    if first.cause is Cause.SMALL:
        largest = max(outs, key=lambda out: out.type.accelerator_count)
        return f"even {largest.reason}" if len(counts) > 1 else largest.reason
    # Of the same GPUs those with the smallest host are the cheapest.
    least = min(outs, key=lambda out: out.type.vcpus)
    return f"{least.reason}, or more" if any(out.reason != least.reason for out in outs) else least.reason


def widening(advice: Advice, recommended_types: int) -> Iterator[str]:
    """How many pools there are, and what would make more; AWS recommends so many types at least."""
    regions = advice.question.regions
    types = len(advice.choices)
    yield (
        f"{_counted(advice.pools, 'capacity pool')} in {' and '.join(regions)}:"
        f" {_counted(types, 'type')} in the zones that offer them."
        + (f" AWS asks for at least {recommended_types} types for Spot." if types < recommended_types else "")
    )
    for more in advice.more_accelerators()[:OTHER_ACCELERATORS]:
        yield (
            f"{more.accelerators} would add {_counted(more.types, 'type')} and"
            f" {_counted(more.pools, 'pool')}; it has more than is needed."
        )
    elsewhere = [f"{region} {pools}" for region, pools in advice.more_regions()]
    if elsewhere:
        yield f"Pools of the same types in another region: {', '.join(elsewhere)}."


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def document(advice: Advice) -> dict[str, Any]:
    """All of it, JSON-ready."""
    question = advice.question
    return {
        "need": {
            "gpu_bytes": round(question.need.total),
            "weights_bytes": round(question.need.weights),
            "cache_bytes": round(question.need.cache),
            "overhead_bytes": round(question.need.overhead),
            "host_memory_gib": str(question.host_gib),
            "working": list(question.need.working),
        },
        "precision": question.precision.name,
        "phase": str(question.phase),
        "regions": list(question.regions),
        "order": order(advice),
        "list_prices": _listed(advice),
        "recommended": [_choice(choice) for choice in advice.choices],
        "why": why_in(advice),
        "not_recommended": [
            {"instance_type": out.type.name, "cause": out.cause.value, "reason": out.reason}
            for out in advice.outs
        ],
        "pools": advice.pools,
        "more_accelerators": [
            {"accelerators": str(more.accelerators), "types": more.types, "pools": more.pools}
            for more in advice.more_accelerators()
        ],
        "more_regions": dict(advice.more_regions()),
        "placement_scores": dict(advice.market.scores),
    }


def _listed(advice: Advice) -> dict[str, str] | None:
    """Where on-demand's prices are from, if nobody was asked; None: of each type's region, and of now."""
    listed = advice.market.listed
    return {"region": listed.region, **asdict(listed.origin)} if listed else None


def _choice(choice: Choice) -> dict[str, Any]:
    host = catalog.host_of(choice.name)
    return {
        "instance_type": choice.name,
        "accelerators": str(choice.fit.accelerators),
        "region": choice.region,
        "zones": {region: list(zones) for region, zones in choice.fit.zones.items()},
        "vcpus": choice.fit.type.vcpus,
        "memory_gib": choice.fit.type.memory_gib,
        "computed_in": choice.fit.computed_in,
        "bound": choice.bound
        and {"at_most": round(choice.bound.rate, 1), "unit": choice.bound.unit, "limit": choice.bound.limit},
        "bought_by_a_usd_at_most": choice.per_usd and round(choice.per_usd),
        "spot_usd": choice.price.spot,
        "on_demand_usd": choice.price.on_demand,
        "interrupted": choice.band and str(choice.band),
        "savings_percent": choice.band and choice.band.savings,
        "load_s_at_least": round(choice.load_s, 1),
        "local_disk_gb": host.local_disk_gb,
    }

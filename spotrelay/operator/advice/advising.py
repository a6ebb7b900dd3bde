"""The answer as a whole: what is recommended, what isn't, and what would widen or enable it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from spotrelay.file import catalog
from spotrelay.operator.advice.fitting import Cause, Fit, Out, Question, candidates, fitting, relaxed
from spotrelay.operator.advice.gpu_memory import PRECISIONS
from spotrelay.operator.advice.ranking import Choice, Market, Rank, choices, ranked, worthwhile
from spotrelay.plane.core.requirements import Accelerators

OTHER_REGIONS = 3
"""How many of them are named."""


@dataclass(frozen=True, slots=True)
class More:
    """What one more accelerator would add."""

    accelerators: Accelerators
    types: int
    pools: int


@dataclass(frozen=True, slots=True)
class Advice:
    """An answer."""

    question: Question
    choices: tuple[Choice, ...]
    """The best first."""
    outs: tuple[Out, ...]
    market: Market
    rank: Rank = Rank.PRICE

    @property
    def pools(self) -> int:
        """How many capacity pools the choices make, in all zones of the regions."""
        return sum(choice.fit.pools for choice in self.choices)

    @property
    def is_priced(self) -> bool:
        """Whether any price is known."""
        return any(choice.price.paid is not None for choice in self.choices)

    @property
    def is_affordability_known(self) -> bool:
        """Whether a budget could be held against any price."""
        return any(choice.price.paid is not None and not choice.price.is_elsewhere for choice in self.choices)

    def groups(self) -> Mapping[Accelerators, Sequence[Choice]]:
        """The choices by what GPUs they have, the best first."""
        found: dict[Accelerators, list[Choice]] = {}
        for choice in self.choices:
            found.setdefault(choice.fit.accelerators, []).append(choice)
        return found

    def more_accelerators(self) -> list[More]:
        """Those that would do and are left out as larger or dearer than it takes, most pools first."""
        found: dict[Accelerators, list[Fit]] = {}
        fits, _ = fitting(
            self.question, (out.type for out in self.outs if out.cause in (Cause.LARGE, Cause.DEAR))
        )
        for fit in fits:
            if fit.accelerators not in self.groups():
                found.setdefault(fit.accelerators, []).append(fit)
        more = [More(which, len(fits), sum(fit.pools for fit in fits)) for which, fits in found.items()]
        return sorted(more, key=lambda one: (-one.pools, str(one.accelerators)))

    def more_regions(self) -> list[tuple[str, int]]:
        """Other regions with the pools that the same types have there, most pools first."""
        counts = {
            region: sum(len(catalog.offered(choice.name).get(region, ())) for choice in self.choices)
            for region in catalog.regions()
            if region not in self.question.regions
        }
        most = sorted(
            (region for region in counts if counts[region]), key=lambda region: (-counts[region], region)
        )
        return [(region, counts[region]) for region in most[:OTHER_REGIONS]]


def advise(question: Question, market: Market, rank: Rank = Rank.PRICE) -> Advice:
    """What is recommended."""
    fits, outs = fitting(question, candidates())
    kept, unworthy = worthwhile(choices(fits, question, market), question)
    return Advice(question, tuple(ranked(kept, question.need, rank)), (*outs, *unworthy), market, rank)


def suitable(question: Question) -> list[Fit]:
    """Every type that holds the model, whatever it costs: whose prices are worth asking for."""
    return fitting(question, candidates())[0]


def what_would(question: Question, market: Market, narrower: Mapping[str, Question]) -> list[str]:
    """What would give an answer where there is none, in words; `narrower`: the same with a smaller model."""
    found = []
    for words, easier in [*relaxed(question), *narrower.items()]:
        answer = advise(easier, market)
        if answer.choices:
            names = list(dict.fromkeys(str(choice.fit.accelerators) for choice in answer.choices))
            found.append(f"{words}: {', '.join(names[:4])}")
    return found


def unused_precisions(precision: str) -> list[str]:
    """Those that take fewer bits, the widest first."""
    bits = PRECISIONS[precision].bits
    fewer = [one for one in PRECISIONS.values() if one.bits < bits]
    return [one.name for one in sorted(fewer, key=lambda one: -one.bits)]


def in_regions(question: Question, regions: Sequence[str]) -> Question:
    """The same elsewhere."""
    return replace(question, regions=tuple(regions))

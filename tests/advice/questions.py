"""Questions as tests ask them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from spotrelay.operator.advice.advising import Advice, advise
from spotrelay.operator.advice.fitting import Question
from spotrelay.operator.advice.ranking import Market, Rank
from spotrelay.operator.cli.asked import Asked, question

REGION = "us-east-1"

NOTHING_KNOWN = Market()


def asked(regions: Sequence[str] = (REGION,), **options: Any) -> Question:
    """What the command would make of these options."""
    return replace(question(Asked(**options)), regions=tuple(regions))


def advised(market: Market = NOTHING_KNOWN, rank: Rank = Rank.PRICE, **options: Any) -> Advice:
    """The answer."""
    return advise(asked(**options), market, rank)


def names(advice: Advice) -> list[str]:
    """The recommended types, the best first."""
    return [choice.name for choice in advice.choices]


def groups(advice: Advice) -> list[str]:
    """The recommended GPUs, the best first."""
    return [str(which) for which in advice.groups()]


def why_not(advice: Advice, name: str) -> str:
    """The reason why a type is out."""
    (out,) = [out for out in advice.outs if out.type.name == name]
    return out.reason


def bounds(advice: Advice) -> dict[str, float]:
    """Accelerator → its bound, where it is known."""
    return {
        choice.fit.type.accelerator: choice.bound.rate
        for choice in advice.choices
        if choice.bound is not None
    }

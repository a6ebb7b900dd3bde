"""In which order types are recommended: by what they do for the money, as far as prices are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from spotrelay.file import catalog
from spotrelay.operator.advice.fitting import Cause, Fit, Out, Question
from spotrelay.operator.advice.gpu_memory import Need, Phase
from spotrelay.operator.advice.interruptions import Band

MOST_TIMES = 2.5
"""How much dearer, or larger, than the cheapest a type may be that isn't known to be cheaper as Spot. The
source documents' own average of Spot on GPU types is 60 % and more under on-demand (63 % of g5 in Oregon): at
2.5 times the price such a type costs as Spot what the cheapest costs on-demand, which stands in anyway."""

PEAKS_ERR = 2.0
"""How far the bounds of two kinds of GPU may be from what both do. The source documents have L40S at up to
2.5 times A10G's speed for images, where peak arithmetic says 5.2: no kind is left out for less than that."""

MOST_TIMES_VCPUS = 4
"""The same where nothing is known but sizes. Most of a small GPU type's price is the GPU: among g5, g6 and
g6e four times the vCPU cost twice as much, eight times three to four times as much (us-east-1, 2025)."""


class Rank(Enum):
    """What comes first."""

    PRICE = "price"
    """What does most for the money."""
    SPEED = "speed"
    """What does most."""


@dataclass(frozen=True, slots=True)
class Price:
    """USD an hour of one type in one region; None where unknown."""

    on_demand: float | None = None
    spot: float | None = None
    """In the region's cheapest zone."""
    is_elsewhere: bool = False
    """Another region's, which only gives an order."""

    @property
    def paid(self) -> float | None:
        """Spot's, as long as it is known."""
        return self.on_demand if self.spot is None else self.spot


@dataclass(frozen=True, slots=True)
class Market:
    """What was learned of prices and risks; nothing of it must be known."""

    prices: Mapping[tuple[str, str], Price] = field(default_factory=dict)
    """By region and type."""
    bands: Mapping[tuple[str, str], Band] = field(default_factory=dict)
    """By region and type."""
    scores: Mapping[str, int] = field(default_factory=dict)
    """Region → placement score of the recommended types together."""
    listed: catalog.ListPrices | None = None
    """On-demand's prices where nobody told any: of one region, and in others for the order."""

    def price(self, region: str, instance_type: str) -> Price:
        """The known one, or what stands in."""
        known = self.prices.get((region, instance_type), Price())
        if self.listed is None or known.on_demand is not None:
            return known
        usd = self.listed.usd.get(instance_type)
        if region == self.listed.region:
            return Price(usd, known.spot)
        # Beside this region's Spot price another region's on-demand price would be taken for its own.
        return known if known.spot is not None else Price(usd, is_elsewhere=True)


@dataclass(frozen=True, slots=True)
class Bound:
    """What no program on this hardware exceeds: a limit to compare by, no forecast."""

    rate: float
    unit: str
    limit: str
    """What limits it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A type that is recommended, where it is cheapest."""

    fit: Fit
    bound: Bound | None
    """None: not known of its GPU."""
    region: str
    price: Price
    band: Band | None
    load_s: float
    """To read the weights over the network or from an EBS volume, whichever is faster: no start is
    shorter."""

    @property
    def name(self) -> str:
        """The instance type's."""
        return self.fit.type.name

    @property
    def per_usd(self) -> float | None:
        """What a USD buys at most: tokens, or TFLOP, in units of the bound."""
        return _per_usd(self.bound, self.price.paid)

    @property
    def per_usd_on_demand(self) -> float | None:
        """The same at on-demand's price."""
        return _per_usd(self.bound, self.price.on_demand)

    @property
    def density(self) -> float | None:
        """The bound for each GiB of GPU memory."""
        return self.bound.rate / (self.fit.gpu_bytes / 1024**3) if self.bound else None


def _per_usd(bound: Bound | None, price: float | None) -> float | None:
    return bound.rate * 3600 / price if bound and price else None


def bound(fit: Fit, question: Question) -> Bound | None:
    """The limit of one replica: all GPUs of the instance, as if they shared the work without loss.

    Decoding a token takes at least a reading of the weights, which serves a batch at once, and 2 operations
    for each parameter. A prompt's token takes these 2, a training token 6 (arXiv:2001.08361, section 2.1).
    The KV cache, attention and activations come on top: so this is a bound.
    """
    chip = catalog.all_chips()[fit.type.accelerator]
    flops = chip.rate(fit.computed_in)
    flops = flops and flops * fit.used * 1e12
    if question.phase is Phase.DECODE:
        if not chip.bandwidth:
            return None
        read = question.need.total if question.read is None else question.read
        by_bandwidth = chip.bandwidth * 1e9 * fit.used / read * question.batch
        by_arithmetic = flops / (2 * question.params) if flops and question.params else None
        if by_arithmetic is not None and by_arithmetic < by_bandwidth:
            return Bound(by_arithmetic, "tokens/s", "FLOP/s")
        return Bound(by_bandwidth, "tokens/s", "bandwidth")
    if not flops:
        return None
    operations = {Phase.PREFILL: 2, Phase.TRAINING: 6}.get(question.phase)
    if operations and question.params:
        return Bound(flops / (operations * question.params), "tokens/s", "FLOP/s")
    return Bound(flops / 1e12, "TFLOP/s", "FLOP/s")


def choices(fits: Iterable[Fit], question: Question, market: Market) -> list[Choice]:
    """Each in the region where it is cheapest; the first one, where nobody knows."""
    return [_choice(fit, question, market) for fit in fits]


def _choice(fit: Fit, question: Question, market: Market) -> Choice:
    def cost(region: str) -> tuple[bool, bool, float]:
        price = market.price(region, fit.type.name)
        return price.paid is None, price.is_elsewhere, price.paid or 0.0

    region = min(fit.zones, key=cost)  # of equals the first
    host = catalog.host_of(fit.type.name)
    weights = question.need.weights
    return Choice(
        fit,
        bound(fit, question),
        region,
        market.price(region, fit.type.name),
        market.bands.get((region, fit.type.name)),
        weights / max(host.network_burst_gbps * 1e9 / 8, host.ebs_burst_mb_s * 1e6),
    )


def worthwhile(found: Sequence[Choice], question: Question) -> tuple[list[Choice], list[Out]]:
    """Those that are worth their money, or their size; and why the others aren't."""
    kept: list[Choice] = []
    outs: list[Out] = []
    affordable = []
    for choice in found:
        paid = None if choice.price.is_elsewhere else choice.price.paid
        if question.budget_usd is not None and paid is not None and paid > question.budget_usd:
            reason = f"{paid:.3f} USD an hour, where the budget is {question.budget_usd:g}"
            outs.append(Out(choice.fit.type, Cause.BUDGET, reason))
        else:
            affordable.append(choice)
    large = {choice.name: out for choice in affordable if (out := _large(choice, affordable))}
    sensible = [choice for choice in affordable if choice.name not in large]
    for choice in affordable:
        is_priced = choice.price.paid is not None
        out = large.get(choice.name) or (_dear if is_priced else _oversized)(choice, sensible)
        if out:
            outs.append(Out(choice.fit.type, *out))
        else:
            kept.append(choice)
    return kept, outs


def _dear(choice: Choice, others: Sequence[Choice]) -> tuple[Cause, str] | None:
    """Whether an on-demand instance, which stands in anyway, does more for the money than this one."""
    alike = [
        other
        for other in others
        if other.fit.accelerators == choice.fit.accelerators and other.price.on_demand is not None
    ]
    if alike:
        # The same GPUs do the same work: here the prices say enough, even where no bound is known.
        least = min(alike, key=lambda other: other.price.on_demand or 0.0)
        times = (choice.price.on_demand or choice.price.paid or 0.0) / (least.price.on_demand or 1.0)
        most = 1.0 if choice.price.spot is not None else MOST_TIMES
        if (choice.price.paid or 0.0) > most * (least.price.on_demand or 0.0):
            reason = f"{choice.fit.accelerators} like {least.name} at {times:.1f} times the price"
            return Cause.DEAR, f"{reason} ({_priced(choice)})"
    by_work = [other for other in others if other.per_usd_on_demand is not None]
    if choice.per_usd is None or not by_work:
        return None
    best = max(by_work, key=lambda other: other.per_usd_on_demand or 0.0)
    needed = choice.per_usd * PEAKS_ERR * (1.0 if choice.price.spot is not None else MOST_TIMES)
    if best is choice or needed >= (best.per_usd_on_demand or 0.0):
        return None
    more = (best.per_usd_on_demand or 0.0) / choice.per_usd
    return Cause.DEAR, f"{_priced(choice)}; {best.name} on-demand does {more:.1f} times as much for the money"


def _priced(choice: Choice) -> str:
    if choice.price.spot is not None:
        return f"Spot at {choice.price.spot:.3f} USD an hour"
    return f"on-demand at {choice.price.on_demand:.3f} USD an hour"


def _large(choice: Choice, others: Sequence[Choice]) -> tuple[Cause, str] | None:
    """Whether its GPUs are much larger than they must be, and it isn't cheap all the same.

    The bound alone would rather have eight GPUs than one for a model that one of them holds: together they
    read faster, in theory. A replica is paid by the hour.
    """
    smallest = min(others, key=lambda other: (other.fit.gpu_bytes, other.fit.type.vcpus))
    if choice.fit.gpu_bytes <= MOST_TIMES * smallest.fit.gpu_bytes:
        return None
    reason = (
        f"{choice.fit.accelerators} has {choice.fit.gpu_bytes / 1024**3:.0f} GiB, where"
        f" {smallest.fit.accelerators} of {smallest.fit.gpu_bytes / 1024**3:.0f} is enough"
    )
    listed = [other for other in others if other.price.on_demand is not None]
    if not listed or choice.price.paid is None:
        return Cause.LARGE, reason
    least = min(listed, key=lambda other: other.price.on_demand or 0.0)
    if choice.price.paid <= (least.price.on_demand or 0.0):
        return None
    if choice.price.spot is None:
        times = choice.price.paid / (least.price.on_demand or 1.0)
        return Cause.LARGE, f"{reason}, at {times:.1f} times the price of {least.name}"
    stands_in = f"{least.name} costs {least.price.on_demand:.3f} on-demand"
    return Cause.LARGE, f"{reason}; {_priced(choice)}, where {stands_in}"


def _oversized(choice: Choice, others: Sequence[Choice]) -> tuple[Cause, str] | None:
    """Whether its host is much larger than it must be, where no price says what that costs."""
    alike = [other for other in others if other.fit.accelerators == choice.fit.accelerators]
    least = min(alike, key=lambda other: other.fit.type.vcpus)
    if choice.fit.type.vcpus <= MOST_TIMES_VCPUS * least.fit.type.vcpus:
        return None
    more = f"{choice.fit.type.vcpus} vCPU with the same {choice.fit.accelerators} as {least.name}, which has"
    return Cause.OVERSIZED, f"{more} {least.fit.type.vcpus}"


def ranked(found: Iterable[Choice], need: Need, rank: Rank = Rank.PRICE) -> list[Choice]:
    """Most for the money first.

    Without any price: the highest bound for each GiB of GPU memory. Of all that the catalog knows that comes
    nearest to what AWS charges for: of the single-GPU types of g4dn, g5 and g6 with 8 vCPU it gives the
    order that on-demand prices of us-east-1 (2025) give, in decoding and in prefill. What isn't known comes
    last, before what fits so tightly that a server must be told; of equals the smaller host comes first.
    """
    found = list(found)
    is_priced = any(choice.price.paid is not None for choice in found)

    def key(choice: Choice) -> tuple[object, ...]:
        if rank is Rank.SPEED:
            score = choice.bound.rate if choice.bound else None
        else:
            score = choice.per_usd if is_priced else choice.density
        paid = choice.price.paid
        return (
            choice.fit.is_tight(need),
            score is None,
            -(score or 0.0),
            paid is None,
            paid or 0.0,
            choice.fit.gpu_bytes,
            choice.fit.type.vcpus,
            choice.fit.type.memory_mib,
            choice.name,
        )

    return sorted(found, key=key)

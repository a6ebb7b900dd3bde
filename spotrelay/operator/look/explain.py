"""Why a replica is where it is, and why it went: told from its row and from those that it names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from spotrelay.operator.look.cost import spending_json
from spotrelay.plane.accounting.spending import HOUR, Spending
from spotrelay.plane.core import timing
from spotrelay.plane.core.pools import Offering, PriceKind
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.view import start_failures, starts
from spotrelay.plane.view.losses import losses
from spotrelay.plane.view.snapshot import ServiceSnapshot
from spotrelay.plane.view.words import duration, percent, usd


@dataclass(frozen=True, slots=True)
class Explanation:
    """A replica's story: what it is, and a line for each thing that led to it."""

    replica: int
    headline: str
    lines: tuple[tuple[str, str], ...]
    """What each is about, and what there is to say."""
    entered: tuple[tuple[str, datetime], ...]
    """Its states, and when it entered them."""
    spent: Spending | None
    """What it cost; None: it never had an instance, or EC2's prices couldn't be read."""

    def to_json(self) -> dict[str, Any]:
        """It as JSON."""
        return {
            "replica": self.replica,
            "headline": self.headline,
            "facts": [{"about": about, "words": words} for about, words in self.lines],
            "entered": {state: at.isoformat(timespec="milliseconds") for state, at in self.entered},
            "cost": spending_json(self.spent) if self.spent else None,
        }


def explain(seen: ServiceSnapshot, replica_id: int, spent: Spending | None) -> Explanation | None:
    """The replica's story; None: nothing is known of it. `spent`: see `Explanation.spent`."""
    replica = seen.replicas.get(replica_id)
    if replica is None:
        return None
    where = f"in {replica.offering}" if replica.offering else "without an instance"
    instance = f", {replica.instance_id}" if replica.instance_id else ""
    return Explanation(
        replica.id,
        f"replica {replica.id} of {replica.service}, version {replica.version}:"
        f" {replica.state} {where}{instance}",
        tuple(_lines(replica, seen, spent)),
        tuple((str(state), at) for state, at in sorted(replica.entered.items(), key=lambda entry: entry[1])),
        spent,
    )


def _lines(replica: Replica, seen: ServiceSnapshot, spent: Spending | None) -> Iterator[tuple[str, str]]:
    yield "why it exists", _origin(replica, seen)
    yield from _launch(replica)
    yield from _price(replica, seen)
    if replica.retry_at and replica.state is ReplicaState.REQUESTED:
        tries = f"{replica.attempts} refusals" if replica.attempts != 1 else "one refusal"
        yield "waits", f"after {tries} EC2 is asked again at {replica.retry_at:%H:%M:%S}"
    if replica.trouble:
        yield "why it wasn't ready" if replica.state.is_ended else "why it isn't ready", replica.trouble
        if mended := start_failures.remedy(replica.trouble):
            yield "what may mend it", mended
    if start := starts.start_of(replica):
        yield "start", start.in_words(seen.at)
    yield from _loss(replica, seen)
    if replica.state in (ReplicaState.DRAINING, ReplicaState.TERMINATED, ReplicaState.FAILED):
        yield "why it went", replica.reason or "no reason on record"
    if replica.replaced_by is not None:
        yield "replaced by", _named(seen.replicas.get(replica.replaced_by), replica.replaced_by)
    if replica.instance_id:
        yield "cost" if replica.state.is_ended else "cost so far", _cost(spent)


def _origin(replica: Replica, seen: ServiceSnapshot) -> str:
    before = seen.replicas.get(replica.replaces or 0)
    if replica.replaces is not None:
        return f"it replaces {_named(before, replica.replaces)}{_left_alone(before, replica)}"
    if replica.is_adopted:
        return "an operator adopted its instance, which something else had launched"
    if replica.is_fallback:
        return "on-demand fallback: it stands in while Spot isn't ready"
    if replica.stands_by:
        return "a standby: prepared, then stopped until a replica is missing"
    if replica.max_price is not None:
        return f"to move to cheaper Spot, for {replica.max_price} USD per hour at most"
    if replica.min_score is not None:
        return f"to move to a zone that scores better for Spot, {replica.min_score} at least"
    return "it is one of as many as the service should have"


def _named(replica: Replica | None, replica_id: int) -> str:
    if replica is None:
        return f"replica {replica_id}, of which nothing is known any more"
    where = f" in {replica.offering}" if replica.offering else ""
    words = f"replica {replica_id}{where}"
    if replica.warned_at:
        return f"{words}, which EC2 took back (warned {replica.warned_at:%Y-%m-%d %H:%M:%S})"
    return f"{words} ({replica.reason})" if replica.reason else words


def _left_alone(before: Replica | None, replica: Replica) -> str:
    """What the loss means for the pool that it came from, unless the launch's own words say it."""
    if before is None or before.offering is None or not before.is_warned:
        return ""
    pool = before.offering.pool
    if replica.offering and replica.offering.pool == pool:
        return ""
    least, most = timing.LOSS_COOLDOWN_S / 60, timing.LOSS_COOLDOWN_MAX_S / 3600
    return (
        f". {pool} was left out because it had just lost an instance: such a pool is left alone for"
        f" {least:.0f} minutes, and twice as long each time that it loses another, up to {most:.0f} hours"
    )


def _launch(replica: Replica) -> Iterator[tuple[str, str]]:
    """The launch's own words: what was asked, what was left out and why, what EC2 answered."""
    for part in (replica.launch or "").split("; "):
        about, colon, words = part.partition(": ")
        if colon and about in ("left out", "EC2", "refused elsewhere", "resumed"):
            yield {"EC2": "EC2 answered"}.get(about, about), words
        elif part:
            yield "asked", part


def _price(replica: Replica, seen: ServiceSnapshot) -> Iterator[tuple[str, str]]:
    if replica.offering is None or replica.state.is_ended:
        return
    now = seen.usd_per_hour(replica)
    on_demand = seen.on_demand_usd_per_hour(replica)
    if now is None:
        yield "price", "unknown: no survey has found it"
        return
    market = {
        offering: usd
        for offering, usd in seen.prices.items()
        if offering.purchase_option.price_kind is PriceKind.MARKET
    }
    cheapest: Offering | None = min(market, key=lambda offering: market[offering], default=None)
    words = f"{now:.3f} USD an hour" + (f", one of {replica.slots} shares" if replica.slots > 1 else "")
    if on_demand:
        words += f", on-demand {on_demand:.3f}"
    if cheapest and cheapest != replica.offering:
        words += f"; the cheapest {cheapest.purchase_option.label} pool is {cheapest.pool}"
        words += f" at {market[cheapest]:.3f}"
        words += " an instance" if replica.slots > 1 else ""
    yield "price now", words


def _loss(replica: Replica, seen: ServiceSnapshot) -> Iterator[tuple[str, str]]:
    loss = next((one for one in losses(seen.replicas.values()) if one.replica == replica.id), None)
    if loss is None:
        return
    warned = "EC2's warning" if loss.is_warned else "a loss without a warning"
    parts = [
        f"{what} after {seconds:.1f} s"
        for what, seconds in (
            ("out of rotation", loss.out_s),
            ("replacement launched", loss.launched_s),
            ("ready", loss.ready_s),
            ("fleet whole", loss.whole_s),
        )
        if seconds is not None
    ]
    yield "lost", f"{warned} at {loss.at:%Y-%m-%d %H:%M:%S}: {', '.join(parts) or 'nothing followed yet'}"


def _cost(spent: Spending | None) -> str:
    """What it cost, what that is made of, and what it would have cost on demand."""
    if spent is None:
        return "unknown: EC2's prices couldn't be read"
    disk = f"its disk {usd(spent.disk_usd, 4)}"
    if spent.unpriced_hours:
        return f"unknown: no price is known of its {_long(spent.unpriced_hours)}; {disk} USD"
    parts = []
    if spent.waived_usd:
        parts.append(
            f"{_long(spent.spot_hours)} of Spot, which EC2 took back within the first hour and doesn't charge"
        )
    elif spent.spot_hours:
        parts.append(f"{_long(spent.spot_hours)} of Spot {usd(spent.spot_usd, 4)}")
    if spent.on_demand_hours:
        parts.append(f"{_long(spent.on_demand_hours)} on demand {usd(spent.on_demand_usd, 4)}")
    words = f"{usd(spent.total_usd, 4)} USD: {', '.join([*parts, disk])}"
    if spent.spot_hours and spent.listed_usd:
        share = percent(spent.saved_usd / spent.listed_usd)
        words += f"; the same time on demand {usd(spent.listed_usd, 4)}, saved {share}"
    return words


def _long(hours: float) -> str:
    return duration((hours * HOUR).total_seconds())

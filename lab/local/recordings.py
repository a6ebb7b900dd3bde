"""Recorded prices, which the local cloud serves instead of made-up ones: AWS's JSON, as its CLI prints it.

    aws ec2 describe-spot-price-history --instance-types g5.xlarge g6.xlarge > spot.json
    aws pricing get-products --region us-east-1 --service-code AmazonEC2 --filters … > listed.json
    curl -O https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json

A directory may hold any number of such files; each is known by what is in it, not by its name. The newest
Spot price counts as one of today: all are moved by the same number of whole days, so that the hours stay.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lab.local.environment import REGION, ZONES
from spotrelay.operator.advice.interruptions import UnreadableAdvisorError, bands
from spotrelay.plane.aws.prices import LINUX, PLAIN_LINUX, hourly_usd
from spotrelay.plane.core.pools import CapacityPool

MOST_BYTES = 256 * 1024 * 1024
"""Of a file. A price list of all products has gigabytes; that of instances with GPUs a few megabytes."""

Changes = tuple[tuple[datetime, float], ...]
"""When each price of a pool began, and what it was, USD an hour; oldest first."""


class RecordingError(ValueError):
    """A file isn't what AWS answers; the text says which, where, and what was expected."""


@dataclass(frozen=True, slots=True)
class Recordings:
    """All that a directory's files say of this region. By default nothing: what is shown is made up."""

    spot: Mapping[CapacityPool, Changes] = field(default_factory=dict)
    listed: tuple[Mapping[str, Any], ...] = ()
    """Products of the price list."""
    advisor: bytes = b""
    left_out: int = 0
    """Spot prices of other products, and of zones that aren't here."""
    moved: timedelta = timedelta()
    """How much later the Spot prices are shown than they were."""

    @property
    def on_demand(self) -> Mapping[str, float]:
        """Type → what plain Linux costs by the price list."""
        found = {}
        for product in self.listed:
            attributes = product["product"]["attributes"]
            if all(attributes.get(name) == value for name, value in PLAIN_LINUX.items()):
                for usd in hourly_usd(product):
                    found[attributes["instanceType"]] = usd
        return found

    def as_of(self, now: datetime) -> Recordings:
        """The same with Spot prices that end today."""
        if not self.spot:
            return self
        moved = timedelta(days=(now - max(changes[-1][0] for changes in self.spot.values())).days)
        spot = {pool: tuple((at + moved, usd) for at, usd in changes) for pool, changes in self.spot.items()}
        return replace(self, spot=spot, moved=moved)

    def described(self) -> Iterator[str]:
        """What is recorded, a line for each kind, and what is made up."""
        if self.spot:
            first = min(changes[0][0] for changes in self.spot.values()) - self.moved
            last = max(changes[-1][0] for changes in self.spot.values()) - self.moved
            later = f", shown {self.moved.days} days later" if self.moved else ""
            left = f"; {self.left_out} of other products or zones are left out" if self.left_out else ""
            yield (
                f"Spot prices: recorded, of {len(self.spot)} pools from {first:%Y-%m-%d} to {last:%Y-%m-%d}"
                f"{later}{left}. Other pools' aren't shown."
            )
        else:
            yield "Spot prices: made up. --prices DIR shows recorded ones."
        yield (
            f"On-demand prices: recorded, of {len(self.listed)} products. Other types' aren't shown."
            if self.listed
            else "On-demand prices: the catalog's copy of AWS's, and made up for types that it lacks."
        )
        yield f"Spot Instance Advisor: {'recorded' if self.advisor else 'none'}. Capacity: made up."


def read(directory: Path) -> Recordings:
    """What the directory's JSON files say, those in its folders too.

    Raises:
        RecordingError: it can't be read, has none, or one is something else.
    """
    if not directory.is_dir():
        raise RecordingError(f"{directory}: expected a directory of JSON files")
    found = Recordings()
    rows: dict[CapacityPool, dict[datetime, float]] = {}
    seen = left_out = 0
    for file in sorted(directory.rglob("*.json")):
        content = _content(file)
        kind = next((key for key in _KINDS if key in content), None)
        if kind is None:
            raise RecordingError(f"{file}: expected an object with {', '.join(_KINDS)}; {_EXPECTED}")
        if kind == "spot_advisor":
            found = replace(found, advisor=_advisor(file))
        elif kind == "PriceList":
            found = replace(found, listed=(*found.listed, *_products(file, content[kind])))
        else:
            for pool, at, usd in _spot_prices(file, content[kind]):
                seen += 1
                if pool is None:
                    left_out += 1
                else:
                    rows.setdefault(pool, {})[at] = usd
    if not (seen or found.listed or found.advisor):
        raise RecordingError(f"{directory}: expected recorded prices in .json files; {_EXPECTED}")
    if seen and not rows:
        zones = ", ".join(ZONES)
        raise RecordingError(f"{directory}: none of its {seen} Spot prices is of {LINUX} in {zones}")
    spot = {pool: tuple(sorted(changes.items())) for pool, changes in rows.items()}
    return replace(found, spot=spot, left_out=left_out)


_KINDS = ("SpotPriceHistory", "PriceList", "spot_advisor")

_EXPECTED = (
    "that is what `aws ec2 describe-spot-price-history` and `aws pricing get-products` print, and the Spot"
    " Instance Advisor's file"
)


def _content(file: Path) -> Mapping[str, Any]:
    try:
        if file.stat().st_size > MOST_BYTES:
            raise RecordingError(f"{file}: more than {MOST_BYTES // 1024**2} MiB")
        content: Any = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        if isinstance(error, RecordingError):
            raise
        raise RecordingError(f"{file}: {error}") from error
    if not isinstance(content, dict):
        raise RecordingError(f"{file}: expected an object, got {_short(content)}; {_EXPECTED}")
    return content


def _advisor(file: Path) -> bytes:
    text = file.read_bytes()
    try:
        bands(text)
    except UnreadableAdvisorError as error:
        raise RecordingError(f"{file}: {error}") from error
    return text


def _products(file: Path, told: Any) -> Iterator[Mapping[str, Any]]:
    for number, entry in enumerate(_listing(file, "PriceList", told)):
        place = f"{file}: PriceList[{number}]"
        try:
            product = json.loads(entry) if isinstance(entry, str) else entry
            attributes = product["product"]["attributes"]
            is_ours = attributes["regionCode"] == REGION
            hourly_usd(product)
            str(attributes["instanceType"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise RecordingError(f"{place}: not a product as GetProducts gives it: {error!r}") from error
        if is_ours:
            yield product


def _spot_prices(file: Path, told: Any) -> Iterator[tuple[CapacityPool | None, datetime, float]]:
    """Pool, time and price of each row; no pool for one of another product or zone."""
    for number, row in enumerate(_listing(file, "SpotPriceHistory", told)):
        place = f"{file}: SpotPriceHistory[{number}]"
        if not isinstance(row, dict):
            raise RecordingError(f"{place}: expected an object, got {_short(row)}")
        zone, name, product = (
            _field(row, key, place, _text, "a text")
            for key in ("AvailabilityZone", "InstanceType", "ProductDescription")
        )
        usd = _field(row, "SpotPrice", place, _usd, 'USD an hour such as "0.4512"')
        at = _field(row, "Timestamp", place, _time, 'a time such as "2026-02-20T22:22:46+00:00"')
        is_ours = product == LINUX and zone in ZONES
        yield CapacityPool(REGION, zone, name) if is_ours else None, at, usd


def _listing(file: Path, key: str, told: Any) -> Sequence[Any]:
    if not isinstance(told, list):
        raise RecordingError(f"{file}: {key}: expected a list, got {_short(told)}")
    return told


def _field(row: Mapping[str, Any], key: str, place: str, read_: Callable[[Any], Any], expected: str) -> Any:
    if key not in row:
        raise RecordingError(f"{place}: has no {key}")
    try:
        return read_(row[key])
    except (ValueError, TypeError) as error:
        raise RecordingError(f"{place}.{key}: expected {expected}, got {_short(row[key])}") from error


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("no text")
    return value


def _usd(value: Any) -> float:
    usd = float(_text(value))
    if not (math.isfinite(usd) and usd > 0):
        raise ValueError("no price")
    return usd


def _time(value: Any) -> datetime:
    at = datetime.fromisoformat(_text(value))
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"

"""What AWS and the user say of prices and risks, as far as anybody may be asked, and what stands in."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotrelay.messages import did_you_mean
from spotrelay.operator.advice.ranking import Market, Price
from spotrelay.operator.cli.errors import CommandError
from spotrelay.operator.cli.nearest import unknown
from spotrelay.operator.cli.options import Where

if TYPE_CHECKING:
    from spotrelay.file import catalog
    from spotrelay.operator.cli.control_plane import Told
    from spotrelay.plane.aws.clients import Clients

Regions = Annotated[
    list[str] | None,
    typer.Option(
        "--region",
        help="AWS region; again for more; as your AWS configuration says, if left out.",
        metavar="R",
        show_default=False,
    ),
]
PriceFile = Annotated[
    Path | None,
    typer.Option(
        "--prices",
        help='Your own prices, as JSON: {"g5.2xlarge": {"on_demand_usd": 1.212, "spot_usd": 0.45}}.',
        metavar="FILE",
        show_default=False,
    ),
]

FALLBACK_REGION = "us-east-1"
"""Where no region is named: it has the most types."""

AT_ONCE = 8
"""Questions to the price list, one for each type: the list takes no more of them a second than that."""

MAX_PRICE_FILE_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Named:
    """The regions that count."""

    names: tuple[str, ...]
    notes: tuple[str, ...] = ()


def regions_of(named: Sequence[str] | None, where: Where, *, is_offline: bool) -> Named:
    """Those named, or the configured one.

    Raises:
        CommandError: one that no type with an accelerator is offered in.
    """
    from spotrelay.file import catalog

    if named:
        for name in named:
            if name not in catalog.regions():
                what = "region with GPU types"
                raise CommandError(f"--region: {unknown(what, name, catalog.regions())}")
        return Named(tuple(dict.fromkeys(named)))
    found = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not found and not is_offline:
        found = _configured(where)
    if found in catalog.regions():
        return Named((str(found),))
    said = f"{found} has no type with a GPU in the catalog" if found else "no region is named"
    return Named((FALLBACK_REGION,), (f"{said}: this is about {FALLBACK_REGION}; --region names another.",))


def _configured(where: Where) -> str | None:
    from botocore.exceptions import BotoCoreError

    try:
        name: str | None = where.session().region_name
    except BotoCoreError:
        return None  # which is told when prices are asked for
    return name


def told(path: Path | None, regions: Sequence[str]) -> Mapping[tuple[str, str], Price]:
    """The user's own prices, which hold in each region; nothing without a file.

    Raises:
        CommandError: it can't be read, or says something else.
    """
    if path is None:
        return {}
    try:
        with path.open("rb") as file:
            text = file.read(MAX_PRICE_FILE_BYTES)
        rows: Any = json.loads(text)
        if not isinstance(rows, dict):
            raise ValueError("no object")  # noqa: TRY301, TRY004  # as one with what json itself raises
    except (OSError, ValueError) as error:
        expected = 'expected JSON such as {"g5.2xlarge": {"on_demand_usd": 1.212, "spot_usd": 0.45}}'
        raise CommandError(f"--prices: {path}: {error}: {expected}") from error
    return {(region, name): _price(path, name, row) for name, row in rows.items() for region in regions}


def _price(path: Path, name: str, row: Any) -> Price:
    from spotrelay.file import catalog

    if catalog.find_type(name) is None:
        raise CommandError(f"--prices: {path}: {unknown_type(name)}")
    fields = {"on_demand_usd", "spot_usd"}
    good = isinstance(row, dict) and row.keys() <= fields and all(map(_is_usd, row.values()))
    if not good:
        raise CommandError(
            f"--prices: {path}: {name}: expected on_demand_usd and spot_usd in USD an hour, got {row!r}"
        )
    return Price(row.get("on_demand_usd"), row.get("spot_usd"))


def _is_usd(value: Any) -> bool:
    return value is None or (
        isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 10_000
    )


def unknown_type(name: str) -> str:
    """That there is no such instance type, and which is nearest."""
    from spotrelay.file import catalog

    names = [type_.name for type_ in catalog.all_types()]
    return f"no instance type is called {name!r}{did_you_mean(name, names)}"


@dataclass(frozen=True, slots=True)
class Learned:
    """What could be found out, and what couldn't."""

    market: Market
    notes: tuple[str, ...]
    """Where it is from, how old it is, and what is missing."""
    exit_code: int = 0
    """Of what AWS didn't tell; 0: it told, or wasn't asked."""


def learned(
    types: Iterable[str],
    regions: Sequence[str],
    where: Where,
    given: Mapping[tuple[str, str], Price],
    *,
    is_offline: bool,
) -> Learned:
    """Prices of the types and how often they are interrupted. Nothing that can't be known ends it."""
    from spotrelay.file import catalog
    from spotrelay.operator.cli.spot_advisor import advisor, advisor_at

    now = datetime.now(UTC)
    endpoint = where.endpoint_url or os.environ.get("AWS_ENDPOINT_URL")
    advised = advisor_at(endpoint) if endpoint and not is_offline else advisor(now, is_offline=is_offline)
    notes = [advised.note]
    prices = dict(given)
    listed = None
    exit_code = 0
    if given:
        notes.insert(0, "Prices: given with --prices.")
    elif is_offline:
        listed = catalog.list_prices()
        notes.insert(0, f"Prices: not asked. {_stand_in(listed, regions)}")
    else:
        names = sorted(types)
        for region in regions:
            found, failed = _priced(names, region, where, now)
            prices.update(found)
            if failed is None:
                said = f"{endpoint}, which stands in for AWS" if endpoint else _AWS
                notes.insert(0, f"Prices in {region}: {said}.")
            else:
                notes.insert(0, f"Prices in {region}: unknown; {failed}.")
                exit_code = failed.exit_code
        if exit_code and not any(price.on_demand for price in prices.values()):
            listed = catalog.list_prices()
            notes.insert(len(regions), _stand_in(listed, regions))
    return Learned(Market(prices, advised.bands, listed=listed), tuple(notes), exit_code)


_AWS = "AWS's price list, and EC2's Spot price history of now"


def _stand_in(listed: catalog.ListPrices, regions: Sequence[str]) -> str:
    """Which prices are shown instead of the ones of now."""
    others = [region for region in regions if region != listed.region]
    elsewhere = f" Those of {' and '.join(others)} differ: here they only give an order." if others else ""
    return (
        f"On-demand's come with SpotRelay: those of {listed.region} on {listed.origin.date}, which may be"
        f" out of date.{elsewhere} Spot's change daily, and don't come with it; --prices takes your own."
    )


def _priced(
    names: Sequence[str], region: str, where: Where, now: datetime
) -> tuple[dict[tuple[str, str], Price], Told | None]:
    """What AWS tells, and why it doesn't."""
    from concurrent.futures import ThreadPoolExecutor

    from spotrelay.operator.cli.control_plane import explained
    from spotrelay.plane.aws.clients import Clients
    from spotrelay.plane.aws.prices import Prices

    found: dict[tuple[str, str], Price] = {}
    try:
        clients = Clients(replace(where, region=region).session())
        asked = Prices(clients)
        spot: dict[str, float] = {}
        for pool, usd in asked.spot(region, names, now).items():
            spot[pool.instance_type] = min(usd, spot.get(pool.instance_type, usd))
        found = {(region, name): Price(None, usd) for name, usd in spot.items()}
        _ = clients.pricing  # built once, not by each thread
        with ThreadPoolExecutor(AT_ONCE) as threads:
            listed = threads.map(lambda name: asked.on_demand(region, name), names)
            found = {
                (region, name): Price(usd, spot.get(name)) for name, usd in zip(names, listed, strict=True)
            }
    except Exception as error:
        why = explained(error)
        if why is None:
            raise
        return found, why
    return found, None


def scores(types: Sequence[str], regions: Sequence[str], where: Where) -> tuple[Mapping[str, int], str]:
    """Region → placement score of one instance of any of the types; and a note."""
    from spotrelay.operator.cli.control_plane import explained
    from spotrelay.plane.aws.clients import Clients
    from spotrelay.plane.aws.scores import Scores
    from spotrelay.plane.core.pools import LEAST_TYPES

    if len(types) < LEAST_TYPES:
        return {}, f"Placement score: not asked, with fewer than {LEAST_TYPES} types it is always low."
    try:
        clients: Clients = Clients(replace(where, region=regions[0]).session())
        found = Scores(clients).by_region(regions, types)
    except Exception as error:
        why = explained(error)
        if why is None:
            raise
        return {}, f"Placement score: unknown; {why}."
    told = ", ".join(f"{region} {score}" for region, score in sorted(found.items()))
    return found, f"Placement score of these types together, 1 to 10, as of now: {told or 'none was given'}."

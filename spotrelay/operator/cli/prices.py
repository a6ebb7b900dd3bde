"""`spotrelay prices`: what Spot cost in each of a service's pools, and what on-demand does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotrelay.operator.cli.errors import EXIT_FAILED, CommandError
from spotrelay.operator.cli.options import AsJson, EndpointUrl, Profile, Region, ServiceName, Where
from spotrelay.operator.cli.telling import echo_json
from spotrelay.plane.view.words import percent, usd

if TYPE_CHECKING:
    from spotrelay.operator.look.curves import Curve

LONGEST = timedelta(days=90)
"""EC2 knows no older prices."""

SAMPLES = 48
"""Of a curve in a terminal: one an hour in two days."""

MOST_POOLS = 20
"""In a terminal: the cheapest. JSON has all."""


def prices(
    name: ServiceName,
    since: Annotated[
        str, typer.Option("--since", help="How far to look back: 48h or 90d.", metavar="TIME")
    ] = "48h",
    picture: Annotated[
        Path | None,
        typer.Option("--out", help="Draw the prices into this file, .png or .svg.", metavar="FILE"),
    ] = None,
    is_json: AsJson = False,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
) -> None:
    """Show the Spot price of each pool that the service may use, over time, the cheapest first.

    Example: spotrelay prices demo --since 7d --out prices.png
    """
    from spotrelay.operator.cli import control_plane
    from spotrelay.operator.cli.times import period
    from spotrelay.operator.look.details import curves_of
    from spotrelay.plane.view.rows import rows

    with control_plane.errors_shown("prices"):
        look_back = period(since, "--since", LONGEST)
        _check(picture)
        plane = control_plane.find(name, Where(region, profile, endpoint_url))
        control_plane.deployed(plane, name)
        now = datetime.now(UTC)
        found = curves_of(plane, rows(plane, name, now, ended=1), now - look_back)
        if not found:
            raise CommandError(f"EC2 has no Spot price for any pool of {name} in {plane.region}", EXIT_FAILED)
        if picture:
            _draw(
                found, f"{name}: Spot prices in {plane.region}, {since} (UTC)", now - look_back, now, picture
            )
        if is_json:
            echo_json({"service": name, "pools": [curve.to_json() for curve in found]})
        else:
            _print(found, now - look_back, now)


def _check(picture: Path | None) -> None:
    if picture is None:
        return
    if picture.suffix.lower() not in (".png", ".svg"):
        raise CommandError(f"--out {picture}: expected a name that ends in .png or .svg")
    if find_spec("matplotlib") is None:
        raise CommandError(
            f"--out {picture}: matplotlib, which draws, isn't installed: a clone has it after make setup; the"
            " commands alone by uv tool install --with matplotlib, or pipx inject spotrelay matplotlib"
        )


def _draw(found: list[Curve], title: str, start: datetime, end: datetime, path: Path) -> None:
    from spotrelay.operator.look.drawing import draw

    try:
        shown = draw(found, title, start, end, path)
    except OSError as error:
        raise CommandError(f"--out {path}: {error.strerror or error}") from error
    left = f", the {len(shown)} cheapest pools of {len(found)}" if len(shown) < len(found) else ""
    typer.echo(f"drawn into {path}{left}", err=True)


def _print(found: list[Curve], start: datetime, end: datetime) -> None:
    from spotrelay.operator.cli.tables import GAP, console, draw, room, table
    from spotrelay.operator.look.curves import sparkline

    out = console()
    pools = table(
        ("POOL", "OVER TIME", "NOW", "LEAST", "MOST", "ON-DEMAND", "OF IT"), left=("POOL", "OVER TIME")
    )
    shown = found[:MOST_POOLS]
    samples = room(out, max(len(str(curve.pool)) for curve in shown) + GAP, SAMPLES)
    for curve in shown:
        pools.add_row(
            str(curve.pool),
            sparkline(curve.sampled(start, end, samples), curve.least, curve.most),
            usd(curve.now, 4),
            usd(curve.least, 4),
            usd(curve.most, 4),
            usd(curve.on_demand_usd, 4),
            percent(curve.share),
        )
    draw(out, pools)
    if len(shown) < len(found):
        draw(out, f"and {len(found) - len(shown)} dearer pools: --json has all")
    draw(out, "USD per hour and instance; each line of blocks is from its least to its most")

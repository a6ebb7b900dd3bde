"""`spotrelay compare`: one on-demand instance beside a group of Spot instances."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotrelay.operator.cli.errors import CommandError, bad_input_shown
from spotrelay.operator.cli.market import PriceFile
from spotrelay.operator.cli.options import AsJson, EndpointUrl, Profile, Region, Where
from spotrelay.operator.cli.telling import echo_json
from spotrelay.plane.core.timing import HOURS_OF_MONTH

if TYPE_CHECKING:
    from spotrelay.operator.advice.comparing import Loss, Side
    from spotrelay.operator.advice.interruptions import Band

UNKNOWN = "?"

MOST_INSTANCES = 1000


def compare(
    on_demand: Annotated[
        str, typer.Option("--on-demand", help="Such as p4d.24xlarge.", metavar="TYPE", show_default=False)
    ],
    spot: Annotated[
        str, typer.Option("--spot", help="Such as g6e.xlarge*8.", metavar="TYPE*N", show_default=False)
    ],
    hours: Annotated[
        float, typer.Option(help="How long it runs.", metavar="HOURS", min=1, max=100_000)
    ] = HOURS_OF_MONTH,
    precision: Annotated[str, typer.Option(help="Whose TFLOP/s are shown.", metavar="P")] = "bf16",
    checkpoint_minutes: Annotated[
        float, typer.Option(help="Between two checkpoints.", metavar="MINUTES", min=0, max=100_000)
    ] = 30,
    restart_minutes: Annotated[
        float,
        typer.Option(
            help="Until a lost instance is replaced and all go on.", metavar="MINUTES", min=0, max=10_000
        ),
    ] = 10,
    region: Region = None,
    prices: PriceFile = None,
    is_offline: Annotated[
        bool, typer.Option("--offline", help="Ask no server: no prices but given ones.")
    ] = False,
    is_json: AsJson = False,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
) -> None:
    """Show side by side what an on-demand instance and a group of Spot instances have, cost and lose.

    How often instances are taken is the Spot Instance Advisor's range for the last 30 days. The exit code is
    2 for wrong input, 3 if AWS can't be asked.

    Example: spotrelay compare --on-demand p4d.24xlarge --spot 'g6e.xlarge*8'
    """
    where = Where(None, profile, endpoint_url)
    with bad_input_shown("compare"):
        exit_code = _compare(
            on_demand,
            spot,
            hours,
            precision,
            (checkpoint_minutes, restart_minutes),
            region,
            prices,
            where,
            is_offline=is_offline,
            is_json=is_json,
        )
    if exit_code:
        raise typer.Exit(exit_code)


def _compare(
    on_demand: str,
    spot: str,
    hours: float,
    precision: str,
    minutes: tuple[float, float],
    region: str | None,
    prices: Path | None,
    where: Where,
    *,
    is_offline: bool,
    is_json: bool,
) -> int:
    from spotrelay.operator.advice.comparing import Side, loss
    from spotrelay.operator.cli.asked import known_precision
    from spotrelay.operator.cli.market import learned, regions_of, told

    precision = known_precision(precision).name
    one, many = _side("--on-demand", on_demand), _side("--spot", spot)
    named = regions_of([region] if region else None, where, is_offline=is_offline)
    (there,) = named.names
    given = told(prices, named.names)
    types = {one[0].name, many[0].name}
    found = learned(types, named.names, where, given, is_offline=is_offline)
    listed, spot_price = (found.market.price(there, side[0].name) for side in (one, many))
    sides = (
        Side(*one, None if listed.is_elsewhere else listed.on_demand),
        Side(*many, spot_price.spot),
    )
    band = found.market.bands.get((there, many[0].name))
    lost = loss(band, many[1], hours, *minutes) if band else None
    notes = [*named.notes, *_missing(sides, there), *found.notes]
    if is_json:
        echo_json(_document(sides, band, lost, hours, precision, notes))
    else:
        _print(sides, hours, precision, [*_lines(sides, band, lost, hours), "", *notes])
    return found.exit_code


def _side(option: str, text: str) -> tuple[Any, int]:
    """`g6e.xlarge*8` as the type and the number."""
    from spotrelay.file import catalog
    from spotrelay.operator.cli.market import unknown_type

    written = re.fullmatch(r"([a-z0-9.-]+)(?: ?[*x] ?([0-9]{1,5}))?", text)
    count = int(written[2] or 1) if written else 0
    if written is None or not 1 <= count <= MOST_INSTANCES:
        expected = f"a type such as p4d.24xlarge, or several (g6e.xlarge*8, at most {MOST_INSTANCES})"
        raise CommandError(f"{option}: expected {expected}, got {text!r}")
    type_ = catalog.find_type(written[1])
    if type_ is None:
        raise CommandError(f"{option}: {unknown_type(written[1])}")
    if not type_.accelerator_count:
        raise CommandError(f"{option}: {type_.name} has no whole GPU")
    return type_, count


def _missing(sides: tuple[Side, Side], region: str) -> Iterator[str]:
    from spotrelay.file import catalog

    for side in sides:
        if region not in catalog.offered(side.type.name):
            some = ", ".join(list(catalog.offered(side.type.name))[:3])
            yield f"{side.type.name} isn't offered in {region}, but in {some}: --region names another."


def _print(sides: tuple[Side, Side], hours: float, precision: str, lines: Sequence[str]) -> None:
    from spotrelay.operator.advice.reasons import whole_number
    from spotrelay.operator.cli.tables import console, draw, table

    def number(value: float | None) -> str:
        return UNKNOWN if value is None else whole_number(value)

    def usd(value: float | None, times: float = 1.0) -> str:
        return UNKNOWN if value is None else f"{value * times:,.2f}"

    rows = {
        "GPUs": [f"{side.gpus} {side.type.accelerator}" for side in sides],
        "GPU memory, GiB": [number(side.gpu_bytes / 1024**3) for side in sides],
        f"{precision.upper()}, dense TFLOP/s": [number(side.tflops(precision)) for side in sides],
        "memory bandwidth, GB/s": [number(side.bandwidth_gb_s) for side in sides],
        "between GPUs": [side.link for side in sides],
        "vCPU": [f"{side.count * side.type.vcpus}" for side in sides],
        "host memory, GiB": [f"{side.count * side.type.memory_gib:g}" for side in sides],
        "USD an hour": [usd(side.hourly) for side in sides],
        "USD a month": [usd(side.hourly, HOURS_OF_MONTH) for side in sides],
        f"USD for {hours:g} hours": [usd(side.hourly, hours) for side in sides],
    }
    shown = table(("", f"on-demand {sides[0]}", f"Spot {sides[1]}"), left=("",))
    for label, values in rows.items():
        shown.add_row(label, *values)
    out = console()
    draw(out, shown)
    for line in ("", *lines):
        draw(out, line)


def _lines(sides: tuple[Side, Side], band: Band | None, lost: Loss | None, hours: float) -> Iterator[str]:
    from spotrelay.file import catalog

    one, many = sides
    if one.hourly is not None and many.hourly is not None:
        saved = 1 - many.hourly / one.hourly
        yield f"The group costs {abs(saved):.0%} {'less' if saved >= 0 else 'more'}."
    if (link := catalog.all_chips()[one.type.accelerator].nvlink) and many.count > 1:
        network = catalog.host_of(many.type.name).network_gbps / 8
        if one.gpus > 1:
            yield (
                f"Lost: NVLink. {link:g} GB/s between any two GPUs become {network:.3g} GB/s of network"
                " for each instance: what is exchanged at each step decides whether that pays."
            )
    if lost is None or band is None:
        yield "How often the group would be interrupted is unknown."
    else:
        most = "" if band.most < 1 else ", and AWS doesn't say how many more"
        expected = f"{lost.least:.2g} or more" if most else f"{lost.least:.2g} to {lost.most:.2g}"
        yield f"Interrupted: {band} of such instances in 30 days{most}: {expected} times in {hours:g} hours."
        if not most:
            yield f"Lost to that: {lost.hours_lost:.2g} hours of the whole group at most."


def _document(
    sides: tuple[Side, Side],
    band: Band | None,
    lost: Loss | None,
    hours: float,
    precision: str,
    notes: list[str],
) -> dict[str, Any]:
    def told(side: Side) -> dict[str, Any]:
        return {
            "instance_type": side.type.name,
            "instances": side.count,
            "accelerator": side.type.accelerator,
            "gpus": side.gpus,
            "gpu_bytes": round(side.gpu_bytes),
            "tflops_dense": side.tflops(precision),
            "bandwidth_gb_s": side.bandwidth_gb_s,
            "between_gpus": side.link,
            "usd_per_hour": side.hourly,
            "usd": side.hourly and side.hourly * hours,
        }

    return {
        "hours": hours,
        "precision": precision,
        "on_demand": told(sides[0]),
        "spot": told(sides[1]),
        "interrupted": band and str(band),
        "interruptions_at_least": lost and lost.least,
        "interruptions_at_most": lost and (lost.most if band and band.most < 1 else None),
        "hours_lost_at_most": lost and (lost.hours_lost if band and band.most < 1 else None),
        "notes": notes,
    }

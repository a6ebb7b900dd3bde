"""`spotrelay explain`: why a replica is where it is, and why it went."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated

import typer

from spotrelay.cli.options import AsJson, EndpointUrl, Profile, Region, ServiceName, Where
from spotrelay.operate.words import duration


def explain(
    name: ServiceName,
    replica: Annotated[
        int,
        typer.Argument(help="The replica's ID, as in `spotrelay status`.", metavar="ID", show_default=False),
    ],
    is_json: AsJson = False,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
) -> None:
    """Say why a replica exists, which pools were asked for it and which were left out, and why it went.

    Times are UTC.
    """
    from spotrelay.cli import control_plane
    from spotrelay.cli.tables import console
    from spotrelay.operate.details import ENDED
    from spotrelay.operate.explain import explain as explained
    from spotrelay.operate.rows import rows

    with control_plane.errors_shown("explain"):
        plane = control_plane.find(name, Where(region, profile, endpoint_url))
        seen = rows(plane, name, datetime.now(UTC), ended=ENDED)
        if not seen.replicas and seen.spec is None:
            raise control_plane.CommandError(control_plane.not_deployed(plane, name))
        found = explained(seen, replica)
        if found is None:
            known = (
                f"known are {min(seen.replicas)} to {max(seen.replicas)}" if seen.replicas else "it has none"
            )
            raise control_plane.CommandError(
                f"{name} has no replica {replica}: {known}; rows are kept for 30 days"
            )
        if is_json:
            typer.echo(json.dumps(found.to_json(), indent=2, ensure_ascii=False))
            return
        out = console()
        out.print(found.headline, style="bold", highlight=False, markup=False, soft_wrap=True)
        widest = max(len(about) for about, _ in found.lines)
        for about, words in found.lines:
            out.print(f"  {about:{widest}}  {words}", highlight=False, markup=False, soft_wrap=True)
        ends = [at for _, at in found.entered[1:]] + [seen.at]
        for (state, at), end in zip(found.entered, ends, strict=True):
            lasted = f"for {duration((end - at).total_seconds())}"
            is_last = (state, at) == found.entered[-1]
            out.print(
                f"  {at:%Y-%m-%d %H:%M:%S.%f}"[:-3] + f"  {state}" + ("" if is_last else f" {lasted}"),
                highlight=False,
            )

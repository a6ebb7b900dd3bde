"""`spotrelay scores`: how likely a Spot request succeeds in each of a service's zones, now and over time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from spotrelay.operator.cli.options import AsJson, EndpointUrl, Profile, Region, ServiceName, Where
from spotrelay.operator.cli.telling import echo_json
from spotrelay.plane.view.words import duration

LONGEST = timedelta(days=400)
"""Days are kept for so long."""

LEAST, MOST = 1, 10
"""A score's range."""

SAMPLES = 48
"""Of a line in a terminal: the hours of two days. A longer time has the lowest score of each part."""


def scores(
    name: ServiceName,
    since: Annotated[
        str, typer.Option("--since", help="How far to look back: 48h or 30d.", metavar="TIME")
    ] = "48h",
    is_json: AsJson = False,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
) -> None:
    """Show each zone's Spot placement score, 1 (unlikely to get Spot) to 10, now and over time.

    Example: spotrelay scores demo --since 30d
    """
    from spotrelay.operator.cli import control_plane
    from spotrelay.operator.cli.tables import console, draw, room
    from spotrelay.operator.cli.times import period
    from spotrelay.operator.look.details import zone_scores_of
    from spotrelay.operator.look.scores import why_none
    from spotrelay.plane.view.rows import rows

    with control_plane.errors_shown("scores"):
        look_back = period(since, "--since", LONGEST)
        plane = control_plane.find(name, Where(region, profile, endpoint_url))
        control_plane.deployed(plane, name)
        now = datetime.now(UTC)
        seen = rows(plane, name, now, ended=1)
        found = zone_scores_of(plane, seen, now - look_back)
        if is_json:
            echo_json({"service": name, "zones": [one.to_json() for one in found]})
        elif not found:
            typer.echo(why_none(seen))
        else:
            out = console()
            names = [f"{one.zone}  {one.now if one.now is not None else '?':>2}  " for one in found]
            samples = room(out, max(map(len, names)), SAMPLES)
            for name_, one in zip(names, found, strict=True):
                draw(out, f"{name_}{one.line(now - look_back, now, samples)}")
            survey = seen.memory.survey
            if survey and survey.elsewhere:
                others = sorted(survey.elsewhere.items(), key=lambda one: (-one[1], one[0]))
                draw(out, f"elsewhere: {', '.join(f'{place} {score}' for place, score in others)}")
            age = duration((now - survey.at).total_seconds()) if survey else "an unknown time"
            draw(out, f"surveyed {age} ago; a blank is an hour without a survey")

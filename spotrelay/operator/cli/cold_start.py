"""`spotrelay cold-start`: where the time of a service's starts goes, and what shortens it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from spotrelay.operator.cli.options import AsJson, EndpointUrl, Profile, Region, ServiceName, Where
from spotrelay.operator.cli.telling import echo_json
from spotrelay.plane.view.words import clock, duration

if TYPE_CHECKING:
    from spotrelay.operator.look.access import ControlPlane
    from spotrelay.operator.look.cold_start import ColdStarts
    from spotrelay.plane.core.spec import ServiceSpec

TITLES = ("BEGAN", "REPLICA", "IN", "AS", "TOOK", "")

UNSEEN = (
    "whether each kind of accelerator has its engine cache can't be seen: that takes"
    " ec2:DescribeLaunchTemplateVersions"
)

BAR = 40
"""Blocks of the longest start."""


def cold_start(
    name: ServiceName,
    is_json: AsJson = False,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
) -> None:
    """Show where the time of the last starts went: a bar for each, and what would make each part shorter.

    From the decision until the replica was in rotation. What nothing on record tells apart is drawn as one
    stretch of question marks. Times are UTC.

    Example: spotrelay cold-start demo
    """
    from spotrelay.operator.cli import control_plane
    from spotrelay.operator.look.cold_start import cold_starts
    from spotrelay.operator.look.details import ENDED

    with control_plane.errors_shown("cold-start"):
        plane = control_plane.find(name, Where(region, profile, endpoint_url))
        seen = control_plane.seen(plane, name, datetime.now(UTC), ended=ENDED)
        found = _with_caches(cold_starts(seen), plane, seen.spec)
        if is_json:
            echo_json(found.to_json())
        else:
            _print(found)


def _with_caches(found: ColdStarts, plane: ControlPlane, spec: ServiceSpec | None) -> ColdStarts:
    """With the accelerators for which there is no engine cache."""
    from spotrelay.operator.cli.packs import without_cache_deployed
    from spotrelay.plane.core.ports import Denied

    if spec is None or not found.starts:
        return found
    try:
        return replace(found, without_cache=tuple(without_cache_deployed(plane, spec)))
    except Denied:
        return replace(found, without_cache=None)


def _print(found: ColdStarts) -> None:
    from spotrelay.operator.cli.packs import no_cache
    from spotrelay.operator.cli.tables import console, draw, room, table
    from spotrelay.operator.look.cold_start import bar, drawn_longest_s

    out = console()
    if not found.starts:
        draw(out, f"{found.service}: no start is on record; rows are kept for 30 days")
        return
    longest_s = drawn_longest_s(found.starts, found.at)
    blocks = room(out, 70, BAR)
    shown = table(TITLES, left=("BEGAN", "IN", "AS", ""), names=2)
    for start in found.starts:
        offering = start.replica.offering
        option = str(offering.purchase_option) if offering else ""
        shown.add_row(
            clock(start.began, found.at),
            str(start.replica.id),
            str(offering.pool) if offering else "",
            f"{option}, resumed" if start.is_resume else option,
            duration(start.took_s) if start.took_s is not None else "starts",
            bar(start, found.at, longest_s, blocks),
        )
    draw(out, shown)
    if found.usual:
        draw(out, "")
        usual = table(
            ("", "PART", "WHOSE", "MEDIAN", "LONGEST", "WHAT SHORTENS IT"),
            left=("", "PART", "WHOSE", "WHAT SHORTENS IT"),
            wraps=("WHAT SHORTENS IT",),
            names=2,
        )
        for one in found.usual:
            longest = duration(max(one.took_s))
            usual.add_row(one.letter, one.name, one.whose, duration(one.median_s), longest, one.advice)
        draw(out, usual)
    if found.without_cache is None:
        draw(out, "")
        draw(out, UNSEEN)
    elif words := no_cache(found.service, "FILE", found.without_cache, is_packed=True):
        draw(out, "")
        draw(out, f"{words}, and spotrelay up FILE lets replicas have it")
    if found.goal:
        draw(out, "")
        draw(out, found.goal.words)
    under_way = [start for start in found.starts if start.took_s is None]
    for start in under_way:
        draw(out, f"replica {start.replica.id}: {start.in_words(found.at)}")

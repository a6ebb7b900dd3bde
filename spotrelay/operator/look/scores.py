"""Spot placement scores of a service's zones, hour by hour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from spotrelay.operator.look.curves import BLOCKS
from spotrelay.plane.accounting.days import Day, bounds
from spotrelay.plane.core.pools import LEAST_TYPES
from spotrelay.plane.view.snapshot import ServiceSnapshot

HOUR = timedelta(hours=1)

MOST = 10
"""The best score."""


@dataclass(frozen=True, slots=True)
class ZoneScores:
    """One zone's."""

    zone: str
    now: int | None
    """As last surveyed; None: this zone wasn't among the answers."""
    hours: Mapping[datetime, int]
    """By the beginning of the hour."""

    def line(self, start: datetime, end: datetime, count: int) -> str:
        """So many blocks, each the lowest score of its part of the time; a blank where none is known."""
        step = (end - start) / count
        parts = []
        for index in range(count):
            begin = start + step * index
            inside = [s for at, s in self.hours.items() if at < begin + step and at + HOUR > begin]
            parts.append(BLOCKS[round((min(inside) - 1) / (MOST - 1) * (len(BLOCKS) - 1))] if inside else " ")
        return "".join(parts)

    def to_json(self) -> dict[str, Any]:
        """It as JSON."""
        hours = {at.isoformat(timespec="minutes"): score for at, score in self.hours.items()}
        return {"zone": self.zone, "now": self.now, "hours": hours}


def scores_of(seen: ServiceSnapshot, days: Sequence[Day], since: datetime) -> list[ZoneScores]:
    """Each zone of which a score is known, the best first."""
    hours: dict[str, dict[datetime, int]] = {zone: {} for zone in seen.scores}
    for day in days:
        begin, _ = bounds(day.date)
        for zone, of_zone in day.scores.items():
            found = {begin + HOUR * hour: score for hour, score in sorted(of_zone.items())}
            hours.setdefault(zone, {}).update({at: s for at, s in found.items() if at + HOUR > since})
    if seen.memory.survey:
        at = seen.memory.survey.at.replace(minute=0, second=0, microsecond=0)
        for zone, score in seen.scores.items():
            hours[zone].setdefault(at, score)
    found_zones = [ZoneScores(zone, seen.scores.get(zone), of_zone) for zone, of_zone in hours.items()]
    return sorted(found_zones, key=lambda one: (-(one.now or 0), one.zone))


def why_none(seen: ServiceSnapshot) -> str:
    """Why no score is known of any zone."""
    survey = seen.memory.survey
    types = {pool.instance_type for pool in survey.pools} if survey else set()
    if survey is None:
        return "no survey has been made yet: one comes within the hour, and after a deployment"
    if len(types) < LEAST_TYPES:
        return (
            f"{len(types)} instance types: with fewer than {LEAST_TYPES} EC2's score is always low and says"
            " nothing, so it isn't asked for"
        )
    return "EC2 told no score: the survey's log says why (survey_refused, survey_unanswered)"

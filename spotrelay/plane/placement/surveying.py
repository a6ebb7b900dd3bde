"""Surveys: for every deployed service, what EC2 offers to it is asked, kept for launches, and shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from spotrelay.plane.core import timing
from spotrelay.plane.core.asking import Asking
from spotrelay.plane.core.mending import FindingKind
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.pools import Image, Reading, Survey
from spotrelay.plane.core.ports import (
    Announcer,
    Clock,
    OtherControlPlane,
    Services,
    Store,
    Surveyor,
    Telemetry,
)
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.slots import host
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.events.ticks import parse_tick


class SurveyFailedError(Exception):
    """Services that could not be surveyed, and why; the others were."""


def following(survey: Survey, last: Survey | None) -> Survey:
    """The survey with the scores that came before it, if they answer the same.

    They go back to the first that is as old as scores must last; not across a gap, in which nobody looked.
    """
    if last is None or last.asked != survey.asked:
        return survey
    earlier: list[Reading] = []
    newer = survey.at
    for reading in (Reading(last.at, last.scores), *last.earlier):
        is_reached = survey.at - newer >= seconds(timing.SCORES_LAST_S)
        if is_reached or newer - reading.at > seconds(timing.SURVEY_OLD_S):
            break
        earlier.append(reading)
        newer = reading.at
    return replace(survey, earlier=tuple(earlier))


def better_elsewhere(survey: Survey, region: str) -> dict[str, int]:
    """Zones and regions that score clearly better, if all of the service's zones have long scored low."""
    lasting = [survey.lasting(zone, timing.SCORES_LAST_S) for zone in survey.scores]
    known = [both[1] for both in lasting if both]
    if not known or len(known) < len(lasting) or max(known) > timing.LOW_SCORE:
        return {}
    # A region's score is of all its zones together: it says more than any one zone's, here as there.
    own = {True: survey.elsewhere.get(region, max(known)), False: max(known)}
    return {
        place: score
        for place, score in survey.elsewhere.items()
        if score >= own[place[-1].isdigit()] + timing.MOVE_SCORE_GAIN
    }


def to_be_told(rows: Rows, announced: Mapping[str, str]) -> dict[str, str]:
    """What EC2 announces for instances of regular replicas that nothing is to replace yet."""
    hosts = {
        host(r.instance_id)
        for r in rows.replicas.values()
        if r.instance_id and r.is_counted and not r.is_fallback and not r.superseded_in(rows)
    }
    return {instance_id: what for instance_id, what in announced.items() if instance_id in hosts}


@dataclass(frozen=True, slots=True)
class Surveying:
    """Surveys services and keeps what was found."""

    services: Services
    surveyor: Surveyor
    store: Store
    announcer: Announcer
    telemetry: Telemetry
    clock: Clock
    written_until: Callable[[str], datetime | None]
    """The time up to which a service's days are written, as `Ledger.written_until` says it."""

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Survey what an event is about: all services (the schedule's), or the one that was deployed.

        Raises:
            MalformedTickError: it is about neither.
            SurveyFailedError: see `survey`.
        """
        # The same events that bring ticks, from the same rules.
        tick = parse_tick(json.dumps(event))
        if tick.service is None:
            self.survey(self.services.names())
        else:
            self.survey([tick.service], fresh=True)

    def survey(self, services: Iterable[str], *, fresh: bool = False) -> None:
        """Survey each of the services; one that isn't deployed any more is passed over.

        With `fresh`, no document is used that was read before.

        Raises:
            SurveyFailedError: some failed. The rest are done with all the same.
        """
        failed: dict[str, str] = {}
        for service in services:
            try:
                self._survey(service, fresh=fresh)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this service's, and raised at the end
                self.telemetry.record("survey_failed", service=service, error=repr(error))
                failed[service] = repr(error)
        if failed:
            raise SurveyFailedError("; ".join(f"{service}: {why}" for service, why in failed.items()))

    def _survey(self, service: str, *, fresh: bool) -> None:
        try:
            spec = self.services.get(service, fresh=fresh)
        except OtherControlPlane as error:
            self.telemetry.record("not_surveyed", service=service, why=str(error))
            return
        if spec is None:
            return
        asking, now, last = Asking(service, self.telemetry), self.clock.now(), self._last(spec)
        survey = following(self.surveyor.survey(spec, now), last)
        rows = self._rows(spec)
        images = self._images(spec, {spec.version, *rows.earlier}, asking)
        announced = asking.ask("announced events", self.surveyor.announced) or {}
        written = asking.ask("days", lambda: self.written_until(service))
        known_before = last.accounted_at if last else None
        survey = replace(
            survey,
            images=images,
            findings=(*survey.findings, *asking.findings),
            accounted_at=written or known_before or now,
        )
        self.store.note_survey(survey)
        self._show(survey, spec)
        if to_tell := to_be_told(rows, announced):
            self.telemetry.record("announced", service=service, instances=to_tell)
            self.announcer.announce(service, to_tell)

    def _images(self, spec: ServiceSpec, versions: Collection[int], asking: Asking) -> Mapping[int, Image]:
        images = asking.ask("images", lambda: self.surveyor.images(spec, versions)) or {}
        for version, image in images.items():
            if image.made_at is None:
                self.telemetry.count(Metric.IMAGES_GONE)
                words = f"version {version} can't be launched any more: {image.id}"
                asking.found(FindingKind.IMAGE_GONE, words, version=version, image=image.id)
        return images

    def _last(self, spec: ServiceSpec) -> Survey | None:
        """The survey before; None if there is none, or it can't be read: the new one takes its place."""
        try:
            return self.store.recall(spec.service, spec.region, self.clock.now()).survey
        except Exception as error:  # noqa: BLE001 - whatever it is, the new survey is worth more than the old
            self.telemetry.record("last_survey_unread", service=spec.service, error=repr(error))
            return None

    def _rows(self, spec: ServiceSpec) -> Rows:
        """What the table says of the service; nothing if it can't be read."""
        try:
            return self.store.load(spec.service)
        except Exception as error:  # noqa: BLE001 - whatever it is, the survey is worth more than these
            self.telemetry.record("rows_unread", service=spec.service, error=repr(error))
            return Rows()

    def _show(self, survey: Survey, spec: ServiceSpec) -> None:
        service, scores = survey.service, survey.scores
        best = max(scores.values(), default=None)
        self.telemetry.count(Metric.ELIGIBLE_POOLS, len(survey.pools), service=service)
        if best is not None:
            self.telemetry.count(Metric.BEST_PLACEMENT_SCORE, best, service=service)
            if best <= timing.LOW_SCORE:
                self.telemetry.count(Metric.ALL_ZONES_SCORE_LOW)
        if better := better_elsewhere(survey, spec.region):
            self.telemetry.count(Metric.BETTER_ELSEWHERE, service=service)
            self.telemetry.record("better_elsewhere", service=service, best_score=best, scores=better)
        # Each zone's is in the log only: as metrics they would cost more than all else of a service at rest.
        self.telemetry.record(
            "surveyed",
            service=service,
            pools=len(survey.pools),
            instance_types=sorted({pool.instance_type for pool in survey.pools}),
            scores=dict(scores),
            best_score=best,
            are_all_scores_low=best is not None and best <= timing.LOW_SCORE,
            spot_prices=len(survey.spot_prices),
            on_demand_prices=len(survey.on_demand_prices),
        )

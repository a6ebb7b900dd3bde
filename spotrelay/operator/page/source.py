"""What the poller asks: a control plane."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from spotrelay.operator.aws.console import console_output
from spotrelay.operator.aws.counted import most_by_minute
from spotrelay.operator.look import details
from spotrelay.operator.look.access import ControlPlane
from spotrelay.operator.look.reading import SnapshotReader
from spotrelay.operator.page.poller import COST_DAYS, PRICES, Details
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.ports import OtherControlPlane, PortError, UnreadableDocument
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.view.rows import rows
from spotrelay.plane.view.snapshot import Minute, ServiceSnapshot

T = TypeVar("T")


class PlaneSource:
    """A control plane's services: all of them, or those that are named. See `poller.Source`.

    The two threads of a poller have clients of their own: a session isn't made for several at once.
    """

    def __init__(
        self,
        for_looks: ControlPlane,
        for_details: ControlPlane,
        explain: Callable[[Exception], str | None],
        only: Sequence[str] = (),
    ) -> None:
        self._looks = for_looks
        self._details = for_details
        self._explain = explain
        self._only = only
        for_details.clients.make("ec2")  # for threads that read a console

    def names(self) -> Collection[str]:
        """Services with a document or with rows."""
        return self._only or {*self._looks.services.names(), *self._looks.store.services()}

    def look(self, service: str, now: datetime, earlier: ServiceSnapshot | None) -> ServiceSnapshot:
        """A snapshot, read with the clients that are for looks."""
        return SnapshotReader(self._looks).read(service, now, earlier=earlier)

    def details(self, service: str, now: datetime, before: Details | None) -> Details:
        """Each part is asked for on its own: one that fails is as it was `before`."""
        plane, old, problems = self._details, before or Details(now), list[str]()

        def part(what: str, ask: Callable[[], T], otherwise: T) -> T:
            try:
                return ask()
            except (PortError, UnreadableDocument, OtherControlPlane, ClientError, BotoCoreError) as error:
                problems.append(f"{what}: {self._explain(error) or error}")
                return otherwise

        seen = rows(plane, service, now, ended=details.ENDED)
        since = now - PRICES
        return Details(
            at=now,
            curves=part("prices", lambda: tuple(details.curves_of(plane, seen, since)), old.curves),
            scores=part("scores", lambda: tuple(details.zone_scores_of(plane, seen, since)), old.scores),
            cost=part("cost", lambda: details.cost_of(plane, seen, COST_DAYS), old.cost),
            errors=part("5xx", lambda: details.errors_of(plane, seen, since), old.errors),
            problems=tuple(problems),
        )

    def served(self, spec: ServiceSpec, since: datetime, now: datetime) -> tuple[Minute, ...] | None:
        """The load balancer's minutes, with the requests that replicas counted themselves."""
        plane = self._details
        ongoing: Mapping[datetime, float] = {}
        if spec.scaling and spec.scaling.ongoing:
            ongoing = most_by_minute(
                plane.clients, plane.log_groups, spec.service, Metric.ONGOING_REQUESTS, since, now
            )
        return plane.requests.minutes(spec, since, now, ongoing)

    def console(self, instance_id: str) -> str:
        """EC2's console output."""
        return console_output(self._details.clients, instance_id)

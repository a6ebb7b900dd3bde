"""Reads a service's snapshot. What the credentials may not read is missing from it; the rest is there."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from botocore.exceptions import ClientError

from spotrelay.operator.look.denied import missing_action
from spotrelay.plane.aws import alarms
from spotrelay.plane.core.pools import PoolMemory
from spotrelay.plane.core.ports import (
    Denied,
    NewerRows,
    OtherControlPlane,
    PortError,
    UnreadableDocument,
)
from spotrelay.plane.core.replica import Replica
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.view.snapshot import Part, ServiceSnapshot

if TYPE_CHECKING:
    from spotrelay.operator.look.access import ControlPlane

T = TypeVar("T")

ENDED_SHOWN = 300
"""Ended replicas that a status looks at: a day of an hourly loss of ten, and one page of the table."""


class SnapshotReader:
    """Reads snapshots of a control plane's services."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def read(
        self,
        service: str,
        now: datetime,
        *,
        ended: int = ENDED_SHOWN,
        earlier: ServiceSnapshot | None = None,
    ) -> ServiceSnapshot:
        """The service as of now, with the last `ended` replicas that are history.

        Alarms are those of the `earlier` snapshot, if there is one: for whoever looks all the time.

        Raises:
            BotoCoreError: there are no credentials, or nobody answers.
        """
        plane, missing = self._plane, dict[Part, str]()

        def part(which: Part, ask: Callable[[], T], otherwise: T) -> T:
            try:
                return ask()
            except (PortError, UnreadableDocument, OtherControlPlane) as error:
                missing[which] = _why(error)
                return otherwise

        def replicas() -> tuple[Rows, tuple[Replica, ...]]:
            # In this order: a replica that ends in between is read twice, never missed.
            found = part(Part.ROWS, lambda: plane.store.load(service), Rows())
            return found, part(Part.HISTORY, lambda: tuple(plane.store.history(service, ended)), ())

        # The answers are waited for together.
        plane.clients.make("dynamodb", "ssm", *(() if earlier else ("cloudwatch",)))
        with ThreadPoolExecutor() as threads:
            asked = threads.submit(replicas)
            recalled = threads.submit(
                part, Part.POOLS, lambda: plane.store.recall(service, plane.region, now), PoolMemory()
            )
            ringing = None
            if not earlier:
                ringing = threads.submit(
                    part, Part.ALARMS, lambda: alarms.of_service(plane.clients, service), ()
                )
            spec = part(Part.DOCUMENT, lambda: plane.services.get(service, fresh=True), None)
        found, history = asked.result()
        if earlier and Part.ALARMS in earlier.missing:
            missing[Part.ALARMS] = earlier.missing[Part.ALARMS]
        return ServiceSnapshot(
            service=service,
            region=plane.region,
            at=now,
            spec=spec or (found.document if Part.DOCUMENT in missing else None),
            rows=found,
            history=history,
            memory=recalled.result(),
            alarms=ringing.result() if ringing else earlier.alarms if earlier else (),
            missing={which: missing[which] for which in Part if which in missing},
        )


def _why(error: Exception) -> str:
    """One line for people: the permission that is missing, or what else is wrong."""
    action = missing_action(error)
    if action is not None:
        return f"missing {action}"
    if isinstance(error, NewerRows):
        return f"{error}: run the `spotrelay` of the version that is deployed, or a later one"
    cause = error.__cause__
    if isinstance(error, Denied) and isinstance(cause, ClientError):
        return str(cause.response.get("Error", {}).get("Code", error))
    return str(error)

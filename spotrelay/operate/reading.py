"""Reads a service's snapshot. What the credentials may not read is missing from it; the rest is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from botocore.exceptions import ClientError

from spotrelay.aws.errors import translated
from spotrelay.core.names import alarms_prefix
from spotrelay.core.pools import PoolMemory
from spotrelay.core.ports import (
    Denied,
    NewerRows,
    OtherControlPlane,
    PortError,
    UnreadableDocument,
)
from spotrelay.core.replica import Replica
from spotrelay.core.rows import Rows
from spotrelay.operate.permissions import missing_action
from spotrelay.operate.snapshot import Alarm, AlarmState, Part, ServiceSnapshot

if TYPE_CHECKING:
    from spotrelay.operate.access import ControlPlane

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

        Address and alarms are those of the `earlier` snapshot, if there is one: for whoever looks all the
        time.

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

        # Clients are made in one thread, as boto3 asks. Then the answers are waited for together.
        _ = plane.clients.dynamodb, plane.clients.ssm
        if not earlier:
            _ = plane.clients.cloudwatch, plane.clients.elbv2
        with ThreadPoolExecutor() as threads:
            asked = threads.submit(replicas)
            recalled = threads.submit(
                part, Part.POOLS, lambda: plane.store.recall(service, plane.region, now), PoolMemory()
            )
            ringing = None
            if not earlier:
                ringing = threads.submit(part, Part.ALARMS, lambda: tuple(self._alarms(service)), ())
            spec = part(Part.DOCUMENT, lambda: plane.services.get(service, fresh=True), None)
            known = spec or asked.result()[0].document
            address = earlier.address if earlier else None
            balancer = known.load_balancer.split("/")[1] if known and known.load_balancer.count("/") else ""
            if balancer and not earlier:
                address = part(Part.ADDRESS, lambda: self._address(balancer), None)
        found, history = asked.result()
        if earlier:
            for which in (Part.ADDRESS, Part.ALARMS):
                if which in earlier.missing:
                    missing[which] = earlier.missing[which]
        return ServiceSnapshot(
            service=service,
            region=plane.region,
            at=now,
            spec=known if Part.DOCUMENT in missing else spec,
            rows=found,
            history=history,
            memory=recalled.result(),
            address=address,
            alarms=ringing.result() if ringing else earlier.alarms if earlier else (),
            missing={which: missing[which] for which in Part if which in missing},
        )

    def _address(self, balancer: str) -> str | None:
        with translated():
            answer = self._plane.clients.elbv2.describe_load_balancers(Names=[balancer])
        return next((found["DNSName"] for found in answer["LoadBalancers"]), None)

    def _alarms(self, service: str) -> Iterator[Alarm]:
        prefix = alarms_prefix(service)
        with translated():
            pages = self._plane.clients.cloudwatch.get_paginator("describe_alarms").paginate(
                AlarmNamePrefix=prefix, AlarmTypes=["MetricAlarm", "CompositeAlarm"]
            )
            found = [alarm for page in pages for kind in _KINDS for alarm in page.get(kind, [])]
        for alarm in found:
            name = alarm["AlarmName"].removeprefix(prefix)
            if "/" in name:
                continue  # a part of another alarm, which tells nobody by itself
            yield Alarm(
                name,
                AlarmState(alarm["StateValue"]),
                alarm["StateUpdatedTimestamp"],
                alarm.get("AlarmDescription", ""),
            )


_KINDS = ("MetricAlarms", "CompositeAlarms")


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

"""Reads a service's replicas and pools: all that a dashboard's widget needs, and most of what commands do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from spotrelay.core.ports import Services, Store
from spotrelay.operate.snapshot import ServiceSnapshot


@dataclass(frozen=True, slots=True)
class Account:
    """Where services and their rows are read."""

    store: Store
    services: Services
    region: str


def rows(account: Account, service: str, now: datetime, *, ended: int) -> ServiceSnapshot:
    """The service's replicas and pools alone, for what needs no more.

    Raises:
        PortError, UnreadableDocument: they can't be read.
    """
    # In this order: a replica that ends in between is read twice, never missed.
    known = account.store.load(service)
    return ServiceSnapshot(
        service=service,
        region=account.region,
        at=now,
        spec=account.services.get(service, fresh=True) or known.document,
        rows=known,
        history=tuple(account.store.history(service, ended)),
        memory=account.store.recall(service, account.region, now),
    )

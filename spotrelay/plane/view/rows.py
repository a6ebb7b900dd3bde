"""Reads a service's replicas and pools: all that a dashboard's widget needs, and most of what commands do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from spotrelay.plane.core.ports import Services, Store
from spotrelay.plane.view.snapshot import ServiceSnapshot


class Readable(Protocol):
    """Where services and their rows are read: a control plane, or one of its functions."""

    @property
    def store(self) -> Store:
        """Its rows."""
        ...

    @property
    def services(self) -> Services:
        """Its services' documents."""
        ...

    @property
    def region(self) -> str:
        """Where it is."""
        ...


@dataclass(frozen=True, slots=True)
class Account:
    """The same, put together by hand."""

    store: Store
    services: Services
    region: str


def rows(account: Readable, service: str, now: datetime, *, ended: int) -> ServiceSnapshot:
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

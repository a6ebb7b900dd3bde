"""How many replicas a service should have, and who says so: derived here, from what is stored, for everybody.

The service file gives a number for good. Others may ask for another one for a while. What follows from that
is stored nowhere: it is derived wherever a document and a service's rows are both at hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from spotrelay.core.spec import ServiceSpec


class Source(StrEnum):
    """Who says how many replicas a service should have. A later member outranks the ones before it."""

    SERVICE_FILE = "service file"
    LOAD = "load"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class ScaleRequest:
    """So many replicas instead of the service file's number."""

    replicas: int
    until: datetime | None
    """From this moment on it doesn't count any more: nobody has to remember what a person asked for. None: it
    counts until another is made. Only the load's does: what was measured last holds while nothing is."""
    rising_since: datetime | None = None
    """Since when the load has been asking for more than `replicas`."""
    falling_since: datetime | None = None
    """Since when it has been asking for fewer."""
    unknown_since: datetime | None = None
    """Since when something serves, and not all of the load that it is to go by can be measured."""

    def counts(self, now: datetime) -> bool:
        """Whether it isn't over."""
        return self.until is None or now < self.until


@dataclass(frozen=True, slots=True)
class Desired:
    """How many replicas a service should have at a given time."""

    replicas: int
    source: Source
    until: datetime | None
    """When its request ends; None: it counts until the load, or another service file, says otherwise."""

    def applied_to(self, spec: ServiceSpec) -> ServiceSpec:
        """The document in effect: the service file's with this number of replicas, and those beyond it.

        The on-demand base is a part of the replicas, so fewer of these limit it. What a person asks for is
        the whole number: none means none.
        """
        beyond = 0 if self.source is Source.OPERATOR else spec.overprovision
        base = min(spec.base_on_demand, self.replicas)
        return replace(spec, replicas=self.replicas + beyond, base_on_demand=base, overprovision=beyond)


def derive(spec: ServiceSpec, requests: Mapping[Source, ScaleRequest], now: datetime) -> Desired:
    """What the highest source says whose request isn't over; without any, the service file's number."""
    for source in reversed(Source):
        request = requests.get(source)
        if source is Source.LOAD and spec.scaling is None:
            continue  # of an earlier service file, whose number followed the load
        if request is not None and request.counts(now):
            return Desired(request.replicas, source, request.until)
    return Desired(spec.replicas, Source.SERVICE_FILE, None)


def in_effect(spec: ServiceSpec, requests: Mapping[Source, ScaleRequest], now: datetime) -> ServiceSpec:
    """The document that decisions go by; the service file's own is kept as it is."""
    return derive(spec, requests, now).applied_to(spec)

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
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class ScaleRequest:
    """So many replicas instead of the service file's number. It always ends: nobody has to remember it."""

    replicas: int
    until: datetime
    """From this moment on it doesn't count any more."""


@dataclass(frozen=True, slots=True)
class Desired:
    """How many replicas a service should have at a given time."""

    replicas: int
    source: Source
    until: datetime | None
    """When its request ends; None: the service file's number counts until another is deployed."""

    def applied_to(self, spec: ServiceSpec) -> ServiceSpec:
        """The document in effect: the service file's with this number of replicas.

        The on-demand base is a part of the replicas, so fewer of these limit it.
        """
        if self.replicas == spec.replicas:
            return spec
        base = min(spec.base_on_demand, self.replicas)
        return replace(spec, replicas=self.replicas, base_on_demand=base)


def derive(spec: ServiceSpec, requests: Mapping[Source, ScaleRequest], now: datetime) -> Desired:
    """What the highest source says whose request isn't over; without any, the service file's number."""
    for source in reversed(Source):
        request = requests.get(source)
        if request is not None and now < request.until:
            return Desired(request.replicas, source, request.until)
    return Desired(spec.replicas, Source.SERVICE_FILE, None)


def in_effect(spec: ServiceSpec, requests: Mapping[Source, ScaleRequest], now: datetime) -> ServiceSpec:
    """The document that decisions go by; the service file's own is kept as it is."""
    return derive(spec, requests, now).applied_to(spec)

"""The document in effect, as docs/operating.md explains it: derived here once more, because it is checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from lab.sim.gate import time_of
from spotrelay.core.desired import ScaleRequest, Source
from spotrelay.core.spec import ServiceSpec

Spec = TypeVar("Spec", ServiceSpec, ServiceSpec | None)

CLOCKS_S = 1.5
"""How far from EC2's time a function may take a request for over."""


def in_effect(spec: Spec, requests: Mapping[Source, ScaleRequest], time: float) -> Spec:
    """The deployed document with the operator's number in it, if one is asked for."""
    asked = requests.get(Source.OPERATOR)
    if spec is None or asked is None or time >= time_of(asked.until):
        return spec
    base = spec.base_on_demand if spec.base_on_demand < asked.replicas else asked.replicas
    return replace(spec, replicas=asked.replicas, base_on_demand=base)


def ends_between(requests: Mapping[Source, ScaleRequest], began: float, ended: float) -> bool:
    """Whether a request may have ended between two times, by somebody's clock."""
    return any(began - CLOCKS_S <= time_of(r.until) <= ended + CLOCKS_S for r in requests.values())

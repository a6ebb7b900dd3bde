"""The document in effect, as docs/commands.md explains it: derived here once more, because it is checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from lab.sim.faults import Call
from lab.sim.gate import Invocation, time_of
from spotrelay.plane.core.rows import Rows, ScaleRequest, Source
from spotrelay.plane.core.spec import ServiceSpec

Spec = TypeVar("Spec", ServiceSpec, ServiceSpec | None)

CLOCKS_S = 1.5
"""How far from EC2's time a function may take a request for over."""


def in_effect(spec: Spec, requests: Mapping[Source, ScaleRequest], time: float) -> Spec:
    """The deployed document with the number of the operator, or of the load, and what is beyond it."""
    if spec is None:
        return spec
    asked, load = requests.get(Source.OPERATOR), requests.get(Source.LOAD)
    beyond = spec.overprovision
    if asked is not None and (asked.until is None or time < time_of(asked.until)):
        number, beyond = asked.replicas, 0
    elif load is not None and spec.scaling is not None:
        number = load.replicas
    else:
        number = spec.replicas
    base = spec.base_on_demand if spec.base_on_demand < number else number
    if (number + beyond, base, beyond) == (spec.replicas, spec.base_on_demand, spec.overprovision):
        return spec  # nearly always, and eleven thousand times in forty runs
    return replace(spec, replicas=number + beyond, base_on_demand=base, overprovision=beyond)


def rolled_back(spec: Spec, rows: Rows) -> Spec:
    """The deployed document, or what an operator went back to: with what belongs to a replica's version."""
    back = rows.rollback
    if spec is None or back is None or back.version != spec.version:
        return spec
    kept = {**rows.earlier, **({rows.document.version: rows.document} if rows.document else {})}.get(back.to)
    before = replace(spec, version=back.to, port=back.port, on_demand_template=None, slots={})
    if kept is None:
        return before
    probe = spec.readiness_probe and kept.readiness_probe
    return replace(
        before,
        on_demand_template=kept.on_demand_template,
        slots=kept.slots,
        readiness_probe=probe,
        initial_delay_s=kept.initial_delay_s,
        busy=kept.busy,
    )


def begun(spec: ServiceSpec, rows: Rows) -> int:
    """Where the load's number isn't on record: as many as are there, or the file's number if it is more."""
    regular = (r for r in rows.replicas.values() if r.is_counted and not r.is_fallback)
    there = sum(not r.superseded_in(rows) for r in regular) - spec.overprovision
    return there if there > spec.replicas else spec.replicas


def gone_by(invocation: Invocation, rows: Rows) -> Mapping[Source, ScaleRequest]:
    """The requests that it read, and what it wrote itself of the load."""
    spec = next((c.about for c in invocation.calls if c.call is Call.OBSERVE_LOAD), None)
    if not isinstance(spec, ServiceSpec):
        return rows.requests
    known = rows.requests.get(Source.LOAD) or ScaleRequest(begun(spec, rows), None)
    written = (c.about for c in invocation.calls if c.call is Call.NOTE_REQUEST and not c.is_error)
    noted = next((about for about in written if isinstance(about, ScaleRequest)), known)
    return {**rows.requests, Source.LOAD: noted}


def ends_between(requests: Mapping[Source, ScaleRequest], began: float, ended: float) -> bool:
    """Whether a request may have ended between two times, by somebody's clock."""
    ends = (time_of(r.until) for r in requests.values() if r.until)
    return any(began - CLOCKS_S <= end <= ended + CLOCKS_S for end in ends)

"""Steps about one replica follow each other, in whatever the simulation does to a service."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from lab.sim.run import run
from spotrelay.plane.core.replica import Replica
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.serving import changes
from spotrelay.plane.serving.steps import Step


def _strays(rows: Rows, decided: Sequence[Step]) -> list[str]:
    """The steps that weren't decided on the row that the one before leaves: what that changed gets lost."""
    left = dict(rows.replicas)
    strays = []
    for step in decided:
        if step.before:
            if _without_successor(step.before) != _without_successor(left[step.before.id]):
                strays.append(step.name)
            left[step.before.id] = step.after or left[step.before.id]
    return strays


def _without_successor(row: Replica) -> Replica:
    """A successor has its ID only once it is written."""
    return replace(row, replaced_by=None)


def test_each_step_follows_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever one of them says of a replica is in the row that is written."""
    strays: list[str] = []
    written, decisions = changes.written, 0

    def checked(service: str, spec: ServiceSpec | None, rows: Rows, steps: Sequence[Step]) -> Iterator[Step]:
        nonlocal decisions
        decisions += 1
        strays.extend(_strays(rows, steps))
        return written(service, spec, rows, steps)

    monkeypatch.setattr(changes, "written", checked)
    for seed in range(20):
        run(seed)
    assert decisions > 1000
    assert strays == []

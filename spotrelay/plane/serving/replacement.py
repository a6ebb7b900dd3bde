"""What comes in the place of replicas that a tick finds lost; with a signal, `interruption` says it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.serving import rollout, steps
from spotrelay.plane.serving.interruption import goes_without, is_missed
from spotrelay.plane.serving.observation import Observation, counted
from spotrelay.plane.serving.steps import WARNED, Step


def decide(spec: ServiceSpec, seen: Observation, now: datetime) -> Iterator[Step]:
    """Replace what the tick found lost, as far as it is missed.

    The service may have been scaled in, or instances that had been lost sight of were taken in again.
    """
    lost = [
        replica
        for replica in seen.read.replicas.values()
        if replica.state.is_active
        and (row := seen.rows.replicas.get(replica.id))
        and not row.is_counted
        and (replica.is_counted or not row.state.is_active)
    ]
    # Nothing waits for what was to come where another stays for it.
    moving = {r.id for r in lost if r.moves_in(seen.rows)}
    missed = [r.id for r in lost if r.id not in moving and is_missed(r, seen.read)]
    # One that is due to go needs its replacement, and the next one if that is lost. A roll-out can wait, and
    # so can a move.
    due = {
        replica.id
        for replica in seen.read.replicas.values()
        if replica.superseded_in(seen.read)
        and (successor := seen.read.replicas[replica.replaced_by or 0]).version == replica.version
        and not successor.is_move
    }
    left = sum(not replica.is_fallback and replica.id not in due for replica in counted(seen.rows))
    needless = set(missed[: max(len(missed) + left - spec.replicas, 0)])
    replaced = {*missed} - needless
    for replica in lost:
        row = seen.rows.replicas[replica.id]
        if replica.id in replaced:
            reason = WARNED if row.state.is_active else row.reason
            yield steps.replace(row, now, reason, rollout.proven(spec, seen.rows, replica))
        elif replica.id in needless | moving or goes_without(replica):
            yield steps.go_without(row)

"""The timeline of a service's last hour: the demo's drawing, moving."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from spotrelay.operator.look import timeline
from spotrelay.plane.core.replica import Replica
from spotrelay.plane.view.losses import Loss, losses
from spotrelay.plane.view.snapshot import ServiceSnapshot

HOUR = timedelta(hours=1)

SHORTEST = timedelta(minutes=1)
"""A fleet that is younger than an hour fills the picture, but seconds aren't drawn as if they were hours."""

MOST_ROWS = 40
"""The newest: more can't be told apart, and `spotrelay history` has them."""

SERVED_ON_S = 2.0
"""What left the rotation later than this after its warning served on: otherwise it takes a moment."""

WARNED, UNWARNED = "w", "!"
FLAGS = ((WARNED, "lost, warned"), (UNWARNED, "lost, no warning"))


def last_hour(seen: ServiceSnapshot, layout: timeline.Layout = timeline.WIDE) -> str:
    """As SVG."""
    replicas = seen.replicas.values()
    shown = _shown(seen)
    begun = min((min(r.entered.values()) for r in shown), default=seen.at)
    start = max(seen.at - HOUR, min(begun, seen.at - SHORTEST))
    ids = {r.id for r in shown}
    lost = [loss for loss in losses(replicas) if loss.at >= seen.at - HOUR and loss.replica in ids]
    hidden = sum(_end(r, seen.at) >= start for r in replicas) - len(shown)
    older = f", {hidden} older ones aren't shown" if hidden > 0 else ""
    return timeline.draw(
        shown,
        [_mark(loss) for loss in lost],
        start,
        seen.at,
        f"{seen.service}: {len(lost)} lost",
        f"{start:%H:%M:%S} to {seen.at:%H:%M:%S} UTC, {len(shown)} replicas{older}",
        axis=timeline.Axis.CLOCK,
        flags=FLAGS,
        layout=layout,
    )


def _shown(seen: ServiceSnapshot) -> Sequence[Replica]:
    return [r for r in seen.replicas.values() if _end(r, seen.at) >= seen.at - HOUR][-MOST_ROWS:]


def _end(replica: Replica, now: datetime) -> datetime:
    return replica.since if replica.state.is_ended else now


def _mark(loss: Loss) -> timeline.Mark:
    serves_on = loss.warned_at and loss.out_s is not None and loss.out_s > SERVED_ON_S
    return timeline.Mark(
        label=WARNED if loss.is_warned else UNWARNED,
        replica=loss.replica,
        fallback=loss.fallback,
        warned_at=loss.at,
        serves_on_since=loss.warned_at if serves_on else None,
        out_at=loss.out_at,
        taken_at=loss.taken_at,
    )

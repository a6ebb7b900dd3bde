"""What happened to a service: each loss with what followed, and the starts that failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.view.losses import Loss, losses
from spotrelay.plane.view.snapshot import ServiceSnapshot

MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Failures:
    """Starts that failed one after the other, all for the same reason."""

    first: datetime
    last: datetime
    replicas: tuple[int, ...]
    version: int
    reason: str

    def to_json(self) -> dict[str, Any]:
        """It as JSON."""
        return {
            "first": self.first.isoformat(timespec="milliseconds"),
            "last": self.last.isoformat(timespec="milliseconds"),
            "replicas": list(self.replicas),
            "version": self.version,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class History:
    """What happened since `since`, oldest first."""

    service: str
    since: datetime
    at: datetime
    losses: tuple[Loss, ...]
    failures: tuple[Failures, ...]
    errors: Mapping[datetime, int] | None
    """Answers of 5xx that clients got, by minute; None: nobody counted them, or they couldn't be read."""

    def felt(self, loss: Loss) -> int | None:
        """Answers of 5xx from the minute of the loss until the fleet was whole again."""
        if self.errors is None:
            return None
        begin = loss.at.replace(second=0, microsecond=0)
        end = loss.whole_at or self.at
        return sum(count for minute, count in self.errors.items() if begin <= minute <= end)

    def to_json(self) -> dict[str, Any]:
        """It as JSON: times in ISO 8601, durations in seconds."""
        return {
            "service": self.service,
            "since": self.since.isoformat(timespec="milliseconds"),
            "losses": [{**loss.to_json(), "errors": self.felt(loss)} for loss in self.losses],
            "failures": [one.to_json() for one in self.failures],
        }


def history(seen: ServiceSnapshot, since: datetime, errors: Mapping[datetime, int] | None) -> History:
    """What a snapshot tells of the time since then."""
    replicas = seen.replicas.values()
    failed = [r for r in replicas if r.state is ReplicaState.FAILED and r.since >= since]
    return History(
        seen.service,
        since,
        seen.at,
        tuple(loss for loss in losses(replicas) if loss.at >= since),
        tuple(_failures(failed)),
        errors,
    )


def _failures(failed: Sequence[Replica]) -> list[Failures]:
    ordered = sorted(failed, key=lambda r: r.since)
    found = []
    for (version, reason), group in groupby(ordered, key=lambda r: (r.version, r.reason)):
        several = list(group)
        ids = tuple(r.id for r in several)
        found.append(Failures(several[0].since, several[-1].since, ids, version, reason))
    return found

"""A service's replicas as they change: its rows, read again and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from spotrelay.plane.core.ports import Throttled, Unavailable
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows

POLL_S = 0.25
"""As it happens, to a person who looks on; each look is two queries of the table."""

HISTORY_LIMIT = 1000
"""Ended replicas that a look reads: more than anybody reads, and two pages of the table at most."""


class NotInTimeError(Exception):
    """What was waited for didn't come; the line says what, and which replicas there are."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every replica there is, and the last ones that there were, as of `at`."""

    at: datetime
    replicas: Mapping[int, Replica] = field(default_factory=dict)
    """By ID, in rising order."""

    @property
    def ready(self) -> tuple[Replica, ...]:
        """Replicas that serve."""
        return tuple(r for r in self.replicas.values() if r.state is ReplicaState.READY)

    @property
    def present(self) -> tuple[Replica, ...]:
        """Replicas that aren't history."""
        return tuple(r for r in self.replicas.values() if not r.state.is_ended)

    def replacements(self, replica_id: int) -> tuple[Replica, ...]:
        """Replicas that say that they replace this one: exactly one, if the product does what it promises."""
        return tuple(r for r in self.replicas.values() if r.replaces == replica_id)


class RowReader(Protocol):
    """The part of `ports.Store` that is read here."""

    def load(self, service: str) -> Rows:
        """Everything about the service that isn't history."""
        ...

    def history(self, service: str, limit: int) -> Collection[Replica]:
        """The replicas that ended, newest ID first."""
        ...


class Watch:
    """Reads one service's replicas and waits for what should become of them.

    `on_look` is called with every snapshot: to show it, or to raise because waiting on is pointless.
    """

    def __init__(
        self,
        rows: RowReader,
        service: str,
        on_look: Callable[[Snapshot], None],
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rows = rows
        self._service = service
        self._on_look = on_look
        self._sleep = sleep
        self._clock = clock

    def look(self) -> Snapshot:
        """The fleet as it is now."""
        # In this order: a replica that ends in between is seen twice, never missed; its newer row wins.
        present = self._rows.load(self._service).replicas
        ended = {r.id: r for r in self._rows.history(self._service, HISTORY_LIMIT)}
        snapshot = Snapshot(datetime.now(UTC), dict(sorted({**present, **ended}.items())))
        self._on_look(snapshot)
        return snapshot

    def until(self, is_so: Callable[[Snapshot], bool], what: str, within_s: float) -> Snapshot:
        """The first snapshot for which `is_so`; `what` names that in the error.

        A look that gets no answer is one that didn't find it so.

        Raises:
            NotInTimeError: it isn't so within the time.
        """
        deadline = self._clock() + within_s
        while True:
            try:
                snapshot = self.look()
            except (Throttled, Unavailable) as error:
                found = str(error)
            else:
                if is_so(snapshot):
                    return snapshot
                found = f"replicas: {', '.join(f'{r.id} {r.state}' for r in snapshot.present) or 'none'}"
            if self._clock() >= deadline:
                raise NotInTimeError(f"{what}: not within {within_s:.0f} s ({found})")
            self._sleep(POLL_S)

"""Replicas as they change: what a look sees, and how waiting ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spotrelay.operator.look.watch import POLL_S, NotInTimeError, Snapshot, Watch
from spotrelay.plane.core.ports import Throttled, Unavailable
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows
from tests.operate.replicas import replica

NOTHING: Callable[[Snapshot], None] = lambda _: None  # noqa: E731 - a callback that has no use


class Table:
    """Rows that change with each look: at the n-th look, the n-th of these; the last ones stay."""

    def __init__(self, *looks: tuple[list[Replica], list[Replica]]) -> None:
        self._looks = list(looks)

    def load(self, service: str) -> Rows:
        """Those that are present."""
        return Rows(replicas={r.id: r for r in self._looks[0][0]})

    def history(self, service: str, limit: int) -> list[Replica]:
        """Those that ended; it is read last."""
        ended = self._looks[0][1]
        if len(self._looks) > 1:
            self._looks.pop(0)
        return ended


def test_a_look_sees_who_is_there_and_who_was() -> None:
    """Rows and history together, by ID, and `on_look` gets the same."""
    seen: list[Snapshot] = []
    table = Table(([replica(3), replica(2, ReplicaState.STARTING)], [replica(1, ReplicaState.TERMINATED)]))
    snapshot = Watch(table, "chat", seen.append).look()
    assert [r.id for r in snapshot.replicas.values()] == [1, 2, 3]
    assert [r.id for r in snapshot.ready] == [3]
    assert [r.id for r in snapshot.present] == [2, 3]
    assert seen == [snapshot]


def test_a_replica_that_ends_during_a_look_has_ended() -> None:
    """Read as present, and then once more from the history: the later row is the one that is true."""
    table = Table(([replica(1)], [replica(1, ReplicaState.TERMINATED)]))
    assert Watch(table, "chat", NOTHING).look().present == ()


def test_waiting_outlasts_a_look_without_an_answer() -> None:
    """One read that times out says nothing of the fleet: a drill doesn't end over it."""
    table = Table(([replica(1)], []))
    answers = iter([Unavailable("read timeout"), Throttled("slow down"), None])
    load = table.load

    def unsure(service: str) -> Rows:
        error = next(answers, None)
        if error:
            raise error
        return load(service)

    table.load = unsure  # type: ignore[method-assign]
    watch = Watch(table, "chat", NOTHING, sleep=lambda _: None)
    assert watch.until(lambda s: bool(s.ready), "it serves", 60).ready
    answers = iter([Unavailable("read timeout")])
    with pytest.raises(NotInTimeError, match="it serves: not within 0 s \\(read timeout\\)"):
        watch.until(lambda s: bool(s.ready), "it serves", 0)


def test_waiting_ends_when_it_is_so() -> None:
    """It looks again until the condition holds, and returns that look."""
    slept: list[float] = []
    table = Table(([replica(1, ReplicaState.STARTING)], []), ([replica(1)], []))
    seen = Watch(table, "chat", NOTHING, sleep=slept.append).until(lambda s: bool(s.ready), "it serves", 60)
    assert [r.id for r in seen.ready] == [1]
    assert slept == [POLL_S]


def test_waiting_in_vain_says_for_what() -> None:
    """When the time is over, the error names what was waited for, how long, and the replicas there are."""
    times = iter((0.0, 4.0, 5.0))
    watch = Watch(
        Table(([replica(1), replica(2, ReplicaState.DRAINING)], [])),
        "chat",
        NOTHING,
        sleep=lambda _: None,
        clock=lambda: next(times),
    )
    with pytest.raises(NotInTimeError) as caught:
        watch.until(lambda _: False, "a third replica", 5)
    assert str(caught.value) == "a third replica: not within 5 s (replicas: 1 READY, 2 DRAINING)"

"""Losses, told from rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from spotrelay.plane.core.instances import InstanceState
from spotrelay.plane.core.pools import PurchaseOption
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving.steps import NEEDLESS, WARNED
from spotrelay.plane.view.losses import Loss, losses, outages
from tests.operate.replicas import POOL, START, replica
from tests.unit.cases import NOW, a_replica, an_instance, decide

NAMES = {
    "requested": "REQUESTED",
    "launched": "PROVISIONING",
    "ready": "READY",
    "out": "DRAINING",
    "gone": "TERMINATED",
    "failed": "FAILED",
}


def row(id_: int, *, warned: float | None = None, reason: str = "", **times: Any) -> Replica:
    """A replica as its times (seconds from `START`) leave it; everything else is a fact of the row."""
    entered = {NAMES[name]: times.pop(name) for name in list(times) if name in NAMES}
    state = ReplicaState(list(entered)[-1])
    warned_at = None if warned is None else START + seconds(warned)
    reason = reason or (WARNED if warned is not None else "")
    found = replica(id_, state, entered=entered, warned_at=warned_at, **times)
    return replace(found, reason=reason)


def lost(id_: int, warned: float, **more: Any) -> Replica:
    """A Spot replica that EC2 warned, and that left at once."""
    times = {"requested": -100, "launched": -99, "ready": -50, "out": warned + 0.25, "gone": warned + 121}
    return row(id_, warned=warned, **{**times, **more})


def coming(id_: int, requested: float, **more: Any) -> Replica:
    """One that was requested then, launched half a second later and ready in 60 s."""
    return row(id_, **{"requested": requested, "launched": requested + 0.5, "ready": requested + 60, **more})


def told(*rows: Replica) -> list[Loss]:
    """What was lost."""
    return losses(rows)


def durations(loss: Loss) -> tuple[float | None, ...]:
    """From the warning until it was out, another launched, another ready, and the fleet whole."""
    return loss.out_s, loss.launched_s, loss.ready_s, loss.whole_s


def test_a_warned_replica_and_its_replacement() -> None:
    """A loss has the row's own times, counted from the warning."""
    (loss,) = told(lost(1, 10, replaced_by=3), row(2, ready=0), coming(3, 10.25, replaces=1))
    assert (loss.replica, loss.pool, loss.replaced_by, loss.restored_by) == (1, POOL, 3, 3)
    assert (loss.is_warned, loss.is_missed, loss.fallback, loss.reason) == (True, True, None, WARNED)
    assert durations(loss) == (0.25, 0.75, 60.25, 60.25)
    assert (loss.warned_at, loss.at) == (START + seconds(10), START + seconds(10))
    assert loss.taken_at == START + seconds(131)


def test_what_has_not_happened_yet() -> None:
    """One that serves on, and whose replacement waits for an instance, has no times but the warning's."""
    serves_on = row(1, warned=10, ready=0, replaced_by=2)
    (loss,) = told(serves_on, row(2, requested=10.5, replaces=1))
    assert durations(loss) == (None, None, None, None)
    assert (loss.is_warned, loss.taken_at, loss.replaced_by) == (True, None, 2)


def test_a_loss_without_a_warning() -> None:
    """What is found gone counts from then; it is marked as not warned, whatever EC2 called its state."""
    for reason in ("instance gone", "instance terminated: Client.UserInitiatedShutdown"):
        vanished = row(1, reason=reason, ready=0, out=30, gone=90, replaced_by=2)
        (loss,) = told(vanished, coming(2, 30, replaces=1))
        assert (loss.is_warned, loss.warned_at, loss.at) == (False, None, START + seconds(30))
        assert durations(loss) == (0.0, 0.5, 60.0, 60.0)


def test_what_was_no_loss() -> None:
    """Replicas that serve, failed, were scaled in, stood by, or were leaving when the warning came."""
    assert (
        told(
            row(1, ready=0),
            row(2, requested=0, launched=1, failed=2, reason="instance terminated, before it was ready"),
            row(3, ready=0, out=10, gone=40, reason="version 2"),
            row(4, ready=0, out=10, gone=40, reason="version 2", warned=20),
            row(5, ready=0, out=10, gone=40, reason="more than wanted", warned=-80),
            row(6, requested=0, out=10, gone=40, reason="instance terminated", is_standby=True),
            row(7, requested=0, gone=2, reason=WARNED, replaces=1),
        )
        == []
    )


def test_the_controller_calls_it_so() -> None:
    """Of an instance that ended, and of one that isn't there, the controller's own reason says so."""
    ready = a_replica(1, ReplicaState.READY)
    dead = an_instance(1, InstanceState.TERMINATED)
    (drain,) = (a for a in decide(ready, instances=(dead,)) if a.name == "Drain")
    assert [loss.is_warned for loss in told(drain.row)] == [False]
    starting = a_replica(1, ReplicaState.STARTING, missing_since=NOW - seconds(60))
    (drain,) = (a for a in decide(starting) if a.name == "Drain")
    assert [loss.is_warned for loss in told(drain.row)] == [False]


def test_a_warning_that_comes_after_the_end() -> None:
    """It is a warned loss, and counts from when the instance was found gone."""
    (loss,) = told(row(1, reason="instance shutting-down", ready=0, out=10, gone=20, warned=12))
    assert (loss.is_warned, loss.at, loss.out_s) == (True, START + seconds(10), 0.0)


def test_a_fallback_restores_the_strength() -> None:
    """Launched and ready are the fallback's, if it served before the replacement."""
    fallback = coming(4, 12, is_fallback=True, option=PurchaseOption.ON_DEMAND)
    rows = [lost(1, 10, replaced_by=3), row(3, requested=10.25, replaces=1), fallback]
    (loss,) = told(*rows)
    assert (loss.fallback, loss.replaced_by, loss.restored_by) == (4, 3, 4)
    assert durations(loss) == (0.25, 2.5, 62.0, 62.0)
    late = coming(3, 10.25, launched=80, ready=90, replaces=1)
    assert told(rows[0], late, fallback) == [loss]


@pytest.mark.parametrize(
    "facts",
    [{"ready": 72}, {"requested": 10}, {"is_fallback": False}],
    ids=["too late", "asked for before", "no fallback"],
)
def test_who_did_not_restore_it(facts: Mapping[str, Any]) -> None:
    """A fallback that is slower than the replacement, or was there for another, restored nothing."""
    fallback = row(4, **{"requested": 11, "launched": 12, "ready": 60, "is_fallback": True, **facts})
    (loss,) = told(lost(1, 10, replaced_by=3), coming(3, 10.25, replaces=1), fallback)
    assert (loss.fallback, loss.ready_s) == (None, 60.25)


def test_a_standby_restores_it_when_it_was_resumed() -> None:
    """Its instance was requested long before; what counts is when it was resumed."""
    standby = row(4, requested=-500, launched=10.25, ready=30, is_fallback=True, is_standby=True)
    rows = lost(1, 10, replaced_by=3), coming(3, 10.25, replaces=1)
    (loss,) = told(*rows, standby)
    assert (loss.fallback, loss.launched_s, loss.ready_s) == (4, 0.25, 20.0)
    before = row(4, requested=-500, launched=10, ready=30, is_fallback=True, is_standby=True)
    assert [loss.fallback for loss in told(*rows, before)] == [None]


def test_two_losses_do_not_share_a_fallback() -> None:
    """Each gets its own, or none."""
    rows = [
        lost(1, 10, replaced_by=3),
        lost(2, 11, replaced_by=4),
        row(3, requested=10.25, replaces=1),
        row(4, requested=11.25, replaces=2),
        coming(5, 12, is_fallback=True),
        coming(6, 13, is_fallback=True),
    ]
    assert [loss.fallback for loss in told(*rows)] == [5, 6]
    first, second = told(*rows[:-1])
    assert (first.fallback, second.fallback, first.whole_at, second.whole_at) == (5, None, None, None)


def test_a_replacement_that_is_lost_or_fails() -> None:
    """The strength is back with the first in the line that serves; the row says who came first."""
    (first, second) = told(
        lost(1, 10, replaced_by=2),
        row(2, requested=10.25, launched=11, out=30, gone=150, warned=29.75, replaces=1, replaced_by=3),
        coming(3, 30, replaces=2),
    )
    assert (first.replaced_by, first.ready_s, first.launched_s) == (2, 80.0, 20.5)
    assert (second.replica, second.ready_s, second.whole_s) == (2, 60.25, 60.25)
    (loss,) = told(
        lost(1, 10, replaced_by=2),
        row(2, requested=10.25, launched=11, failed=200, replaces=1),
        coming(3, 150),
        coming(4, 230, is_standby=True),
        coming(5, 260),
    )
    assert (loss.replaced_by, loss.ready_s) == (2, 310.0)
    failed = row(2, requested=10.25, launched=11, failed=200, replaces=1, replaced_by=6)
    (loss,) = told(lost(1, 10, replaced_by=2), failed, coming(5, 260), coming(6, 300, replaces=2))
    assert loss.ready_s == 350.0, "the row says who came next"


def test_a_fallback_that_is_lost() -> None:
    """The one it stood in for is missing again, until its replacement serves."""
    fallback = row(
        4, requested=11, launched=12, ready=40, out=50, gone=60, is_fallback=True, reason="instance gone"
    )
    waiting = row(3, requested=10.25, launched=80, ready=90, replaces=1)
    first, second = told(lost(1, 10, replaced_by=3), waiting, fallback)
    assert (first.fallback, first.ready_s, first.whole_s) == (4, 30.0, 30.0)
    assert (second.replica, second.is_warned, second.ready_s, second.is_missed) == (4, False, 40.0, True)
    before = row(3, requested=10.25, launched=30, ready=45, replaces=1)
    *_, second = told(lost(1, 10, replaced_by=3), before, fallback)
    assert second.whole_s == 0.0


def test_what_nobody_misses() -> None:
    """A loss that leaves as many as wanted needs no replacement, and the fleet stays whole."""
    (loss,) = told(lost(1, 10, reason=f"{WARNED}{NEEDLESS}"))
    assert (loss.is_missed, loss.replaced_by, loss.ready_s, loss.whole_s) == (False, None, None, 0.0)
    (unmarked,) = told(lost(1, 10))
    assert (unmarked.is_missed, unmarked.whole_s) == (False, 0.0), "its service was being removed"


def test_a_replacement_that_nobody_needs_any_more() -> None:
    """Fewer are wanted: the loss ends there, and those that come later are stories of their own."""
    given_up = row(3, requested=10.25, launched=11, gone=30, replaces=1, reason="more replicas than wanted")
    needless = row(4, requested=10.25, launched=11, out=40, gone=60, replaces=2, warned=39)
    needless = replace(needless, reason=f"{WARNED}{NEEDLESS}")
    rows = [
        lost(1, 10, replaced_by=3),
        lost(2, 10, replaced_by=4),
        replace(given_up, instance_id=None),
        needless,
        lost(5, 500, replaced_by=6, requested=400, launched=401, ready=450),
        coming(6, 500, replaces=5),
    ]
    found = told(*rows)
    assert [(loss.replica, loss.whole_s) for loss in found] == [(1, 30.0), (2, 30.0), (4, 1.0), (5, 60.0)]
    assert [(loss.is_missed, loss.ready_at) for loss in found[:2]] == [(True, None)] * 2


def test_what_was_lost_while_its_stack_was_gone() -> None:
    """Nothing was requested in its place; once there is a document again, too few are there."""
    failed = row(4, requested=80, launched=81, failed=90)
    (loss,) = told(lost(1, 10), coming(2, 5), coming(3, 60, is_standby=True), failed, coming(5, 95))
    assert (loss.replaced_by, loss.is_missed, loss.ready_s) == (None, True, 145.0)


def test_a_loss_in_the_moment_in_which_another_is_made_good() -> None:
    """There was no moment between them in which nothing was missing."""
    rows = (lost(1, 10, replaced_by=4), coming(4, 10, replaces=1))
    second = (lost(2, 70, replaced_by=5), coming(5, 70, replaces=2))
    assert [loss.whole_s for loss in told(*rows, *second)] == [120.0, 60.0]


def test_whole_is_when_nothing_is_missing_any_more() -> None:
    """Losses that overlap wait for the last of them; one after that is a story of its own."""
    rows = (
        lost(1, 10, replaced_by=4),
        coming(4, 10.25, replaces=1),
        lost(2, 40, replaced_by=5),
        coming(5, 40.25, replaces=2),
        lost(3, 200, replaced_by=6),
        coming(6, 200.25, replaces=3),
    )
    assert [loss.whole_s for loss in told(*rows)] == [90.25, 60.25, 60.25]
    unready = [r for r in rows if r.id != 5]
    assert [loss.whole_s for loss in told(*unready)] == [None, None, None]


def test_a_replacement_that_was_there_before_the_warning() -> None:
    """EC2 recommends to leave before it warns: then nothing is missing at any time."""
    (loss,) = told(lost(1, 100, replaced_by=2), coming(2, 10, replaces=1))
    assert durations(loss) == (0.25, 0.0, 0.0, 0.0)


def test_a_row_that_says_nonsense_ends_the_tale() -> None:
    """Rows that replace each other in a circle, or a replacement that is no longer on record."""
    (loss,) = told(lost(1, 10, replaced_by=9))
    assert (loss.replaced_by, loss.ready_at) == (9, None)
    first, second = told(lost(1, 10, replaced_by=2), lost(2, 20, replaced_by=1))
    assert (first.ready_s, second.ready_s) == (0.0, None)


def test_it_is_json() -> None:
    """All of it can be written; times have milliseconds."""
    (loss,) = told(lost(1, 10, replaced_by=3), coming(3, 10.25, replaces=1))
    built = loss.to_json()
    assert json.loads(json.dumps(built)) == built
    assert (built["pool"], built["ready_s"]) == (str(POOL), 60.25)
    assert built["out_at"] == "2026-01-01T00:00:10.250+00:00"


def test_pauses_are_when_nobody_serves() -> None:
    """From the last one's leave, or since it fails its checks, until the next is ready."""
    rows = [lost(1, 10, replaced_by=2), coming(2, 10.25, replaces=1)]
    (outage,) = outages(rows, START, START + seconds(300))
    assert outage == (START + seconds(10.25), START + seconds(70.25))
    assert outages([*rows, row(3, ready=0)], START, START + seconds(300)) == []
    ill = replace(row(3, ready=0), unhealthy_since=START + seconds(40))
    assert outages([*rows, ill], START, START + seconds(300)) == [
        (START + seconds(40), START + seconds(70.25))
    ]
    assert outages(rows, START + seconds(20), START + seconds(30)) == [
        (START + seconds(20), START + seconds(30))
    ]
    assert outages([], START, START + seconds(30)) == [(START, START + seconds(30))]


def test_a_fallback_of_a_fallback() -> None:
    """Whatever stands in, and is lost in turn, leaves the same replica missing."""
    rows = [
        lost(1, 10, replaced_by=3),
        row(3, requested=10.25, launched=180, ready=190, replaces=1),
        *(
            row(
                id_,
                requested=at,
                launched=at + 1,
                ready=at + 10,
                out=at + 40,
                gone=at + 50,
                is_fallback=True,
                reason="instance gone",
            )
            for id_, at in ((4, 11), (5, 60))
        ),
    ]
    assert [(loss.replica, loss.fallback) for loss in told(*rows)] == [(1, 4), (4, 5), (5, None)]
    assert told(*rows)[-1].ready_s == 90.0

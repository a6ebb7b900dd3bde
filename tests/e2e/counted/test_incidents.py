"""Alarms that ticks feed ring and clear: through the deployed functions, their logs, metrics and alarms.

Nobody waits for an alarm's minutes: what CloudWatch has heard and what is on record grow older by one for
each look, and a tick or two run in it. CannotLaunch is looked at in tests/e2e/operators, CrashLooping beside
what else a version that never becomes ready causes, and RolloutStopped in tests/e2e/rollouts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from lab.demo.operator import Operator
from spotrelay.plane.core.names import Alarm
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Changes
from spotrelay.plane.core.timing import LONG_FALLBACK_S, seconds
from spotrelay.plane.serving.incidents import BLOCKED_S, start_s
from tests.e2e.faults.bench import Bench
from tests.e2e.stand import WITHIN_S

pytestmark = pytest.mark.slow

RARE = "rare"

FOREVER_S = 600.0
"""The test ends the fault itself."""


@pytest.fixture
def rare(operator: Operator) -> Iterator[Bench]:
    """The light service, whole and without an incident."""
    bench = Bench(operator, RARE)
    bench.settled(has_history=False)
    if rings := bench.ringing():  # of a test before; a refusal that was mended counts for twenty minutes
        bench.pass_minutes(BLOCKED_S / 60)
    for alarm in rings:
        bench.until_rings(alarm, rings=False)
    yield bench
    bench.cloud.clear_faults()


def test_nothing_ready_rings_alone(rare: Bench) -> None:
    """EC2 takes all and has nothing else: one alarm tells it, until something serves again."""
    bring_back = rare.dry_up()
    try:
        rare.warn_all(rare.watch.look().ready)
        rare.watch.until(lambda seen: not seen.ready, "nothing serves", WITHIN_S)
        rare.until_rings(Alarm.NOTHING_READY)
        rare.pass_minutes(10)  # it can't launch, and isn't whole: all that is one incident
        rare.pass_minutes()
        assert rare.ringing() == {Alarm.NOTHING_READY}
    finally:
        bring_back()
    rare.watch.until(lambda seen: bool(seen.ready), "something serves", FOREVER_S)
    rare.until_rings(Alarm.NOTHING_READY, rings=False)
    assert rare.ringing() == set()


def test_not_whole_rings_after_a_start(rare: Bench) -> None:
    """One that has an instance never enters the rotation: not before a start's time, and until it has."""
    replicas = rare.spec.replicas
    rare.cloud.inject_fault("RegisterTargets", "InternalFailure", status=500, for_s=FOREVER_S)
    rare.want(replicas + 1)
    rare.watch.until(lambda seen: len(seen.present) == replicas + 1, "one more is launched", WITHIN_S)
    rare.pass_minutes(start_s(rare.spec) / 60 - 2)
    assert rare.ringing() == set()
    rare.until_rings(Alarm.NOT_WHOLE)
    assert rare.ringing() == {Alarm.NOT_WHOLE}
    rare.cloud.clear_faults()
    rare.whole(replicas + 1)
    rare.until_rings(Alarm.NOT_WHOLE, rings=False)
    rare.want(replicas)
    rare.whole(replicas)


def test_a_fallback_that_stays_too_long_rings(rare: Bench) -> None:
    """After its two hours; until Spot is to be had again and serves in its place."""
    bring_back = rare.dry_up(has_on_demand=True)
    try:
        rare.warn(rare.victim())
        seen = rare.watch.until(
            lambda seen: any(r.is_fallback for r in seen.ready), "a fallback serves", WITHIN_S
        )
        (fallback,) = (r for r in seen.ready if r.is_fallback)
        rare.pass_minutes(LONG_FALLBACK_S / 60)
        assert rare.ringing() == set()
        older(rare, fallback, LONG_FALLBACK_S)
        rare.until_rings(Alarm.FALLBACK_TOO_LONG)
        assert rare.ringing() == {Alarm.FALLBACK_TOO_LONG}
    finally:
        bring_back()
    rare.watch.until(lambda seen: not any(r.is_fallback for r in seen.present), "Spot serves", FOREVER_S)
    rare.until_rings(Alarm.FALLBACK_TOO_LONG, rings=False)
    rare.whole(rare.spec.replicas)


def older(bench: Bench, replica: Replica, by_s: float) -> None:
    """A replica has had its instance for so much longer."""

    def write() -> None:
        row = bench.watch.look().replicas[replica.id]
        launched_at = row.entered[ReplicaState.PROVISIONING] - seconds(by_s)
        entered = {**row.entered, ReplicaState.PROVISIONING: launched_at}
        bench.operator.store.commit(Changes(bench.service, update=(replace(row, entered=entered),)))

    bench.written(write)

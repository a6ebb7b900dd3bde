"""Ticks that announce ticks, under Lambda's recursive loop detection."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.core.timing import TICK_IN_TRANSITION_S
from tests.e2e.stand import WITHIN_S, Stand

pytestmark = pytest.mark.slow

TICKS = 20
"""Lambda ends a chain of sixteen, unless it may go on: then a fiftieth is no other than a twentieth."""

COLD_START_S = TICKS * TICK_IN_TRANSITION_S

FIRST_START_WITHIN_S = 4 * WITHIN_S
"""Minutes last as long as AWS's here, and what one tick misses the next one sees a minute later."""


class Loops:
    """Lambda's view of the function that runs ticks."""

    def __init__(self, stand: Stand) -> None:
        self.function = stand.outputs["ReconcileFunction"]
        self._stand = stand
        self._lambda: Any = stand.operator.session.client("lambda")
        self._cloudwatch: Any = stand.operator.session.client("cloudwatch")

    @property
    def setting(self) -> str:
        """What the function's recursion setting is."""
        return str(self._lambda.get_function_recursion_config(FunctionName=self.function)["RecursiveLoop"])

    @setting.setter
    def setting(self, value: str) -> None:
        self._lambda.put_function_recursion_config(FunctionName=self.function, RecursiveLoop=value)

    @property
    def longest(self) -> int:
        """Invocations of the longest chain so far."""
        return self._stand.cloud.longest_chains().get(self.function, 0)

    @property
    def dropped(self) -> int:
        """How many of them Lambda didn't let run."""
        now = datetime.now(UTC)
        points = self._cloudwatch.get_metric_statistics(
            Namespace="AWS/Lambda",
            MetricName="RecursiveInvocationsDropped",
            Dimensions=[{"Name": "FunctionName", "Value": self.function}],
            StartTime=now - timedelta(hours=1),
            EndTime=now + timedelta(minutes=1),
            Period=60,
            Statistics=["Sum"],
        )["Datapoints"]
        return int(sum(point["Sum"] for point in points))


@contextmanager
def a_long_start(cold: Stand, held: Path) -> Iterator[None]:
    """A replica is held in its start, so that ticks follow each other; in the end it serves.

    No tick of the schedule's comes between: now and then one is announced first, and begins a new chain.
    """
    replicas = cold.spec.replicas + 1
    held.touch()
    cold.want(replicas)
    cold.watch.until(
        lambda seen: any(r.state is ReplicaState.STARTING for r in seen.present), "one starts", WITHIN_S
    )
    events: Any = cold.operator.session.client("events")
    (every_minute,) = (rule["Name"] for rule in events.list_rules()["Rules"] if "EveryMinute" in rule["Name"])
    events.disable_rule(Name=every_minute)
    try:
        yield
    finally:
        events.enable_rule(Name=every_minute)
        held.unlink()
    cold.whole(replicas, FIRST_START_WITHIN_S)


@pytest.mark.timeout(2 * COLD_START_S + 3 * FIRST_START_WITHIN_S)
def test_a_chain_of_twenty_ticks_runs_through(cold: Stand, held: Path) -> None:
    """A start of minutes is watched from its beginning to its end: each tick announces the next one."""
    loops = Loops(cold)
    assert loops.setting == "Allow", "as deployed"
    cold.whole(cold.spec.replicas, FIRST_START_WITHIN_S)
    with a_long_start(cold, held):
        deadline = time.monotonic() + 2 * COLD_START_S
        while loops.longest <= TICKS and time.monotonic() < deadline:
            time.sleep(1)
        assert loops.longest > TICKS
    assert loops.dropped == 0


@pytest.mark.timeout(4 * FIRST_START_WITHIN_S)
def test_a_chain_that_lambda_takes_for_a_loop_is_dropped(cold: Stand, held: Path) -> None:
    """Under the default setting it ends after sixteen; only the minute's tick goes on.

    The message that is dropped stays in the queue. Half an hour later it has failed five times, is a dead
    letter, and rings: `tests/local/test_functions.py` has that in seconds.
    """
    loops = Loops(cold)
    cold.whole(cold.spec.replicas, FIRST_START_WITHIN_S)
    loops.setting = "Terminate"
    try:
        with a_long_start(cold, held):
            cold.eventually(lambda: loops.dropped > 0, "an invocation is dropped")
    finally:
        loops.setting = "Allow"

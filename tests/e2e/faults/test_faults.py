"""Faults in the real stack: deployed by the CDK, run as processes, driven through real queues.

What a test breaks is repaired by the product alone; `rules` says what must be true afterwards.
"""

from __future__ import annotations

import time
from typing import Any, Literal

from tests.e2e.faults.bench import Bench
from tests.e2e.faults.conftest import Killed

OUTAGE_S = 30.0
"""In the local cloud's compressed time this is five minutes."""

OUTAGE_BEFORE_WARNING_S = 18.0
"""EC2 takes the instance before the outage is over, and the signals' third attempts come after it is."""

FOREVER_S = 600.0
"""The test ends the outage itself, once it has seen what it wanted to."""

STORM = 200
"""Replicas, all warned at once."""

POOL_CAPACITY = 20
"""Instances per pool in the storm, so that it takes many pools before it, and others after."""

MALFORMED = "{not JSON"

THROTTLED: dict[str, Any] = {"error_code": "Throttling", "count": 3}
EXCEEDED: dict[str, Any] = {"error_code": "RequestLimitExceeded", "status": 503, "count": 3}
LOST: dict[str, Any] = {"error_code": "InternalServerError", "status": 500, "after": True}
"""Three are all attempts that the clients make of a call, two of a launch."""


def test_the_table_unavailable_for_30_s(fresh: Bench) -> None:
    """A warned instance is replaced once the table is back, and out of rotation by then.

    Whether before EC2 takes it depends on who hears of it: only a function that has met it before can tell
    whose it is.
    """
    before = fresh.settled().regulars
    victim = fresh.victim()
    started = time.monotonic()
    for role in (fresh.on_signal, fresh.reconcile):
        fresh.cloud.inject_fault("dynamodb:*", "InternalServerError", status=503, role=role, for_s=FOREVER_S)
    time.sleep(OUTAGE_BEFORE_WARNING_S)
    since = fresh.last_call()  # a tick under way when the outage began has ended
    fresh.warn(victim)
    fresh.eventually(lambda: fresh.interruption(victim)["reclaimed_at"] is not None, "EC2 takes the instance")
    time.sleep(max(started + OUTAGE_S - time.monotonic(), 0))
    calls = [c for role in ("OnSignalRole", "ReconcileRole") for c in fresh.calls(role, since)]
    fresh.cloud.clear_faults()
    assert {c["status"] for c in calls if c["service"] == "dynamodb"} == {503}
    assert fresh.settled().regulars == before + 1
    assert fresh.interruption(victim)["deregistered_at"] is not None


def test_lost_and_repeated_warnings(light: Bench) -> None:
    """A warning that arrives three times, twenty times or never makes one replacement each time.

    And the replica leaves the rotation: before EC2 takes it if the warning came. If it never came, a tick
    notices, which a busy machine may run after these short warnings have ended; the simulation says when.
    """
    before = light.settled().regulars
    deliveries: tuple[Literal["lost"] | int, ...] = (3, 20, "lost")
    victims = []
    for deliver in deliveries:
        victims.append(light.victim())
        light.warn(victims[-1], deliver=deliver)
    assert light.settled().regulars == before + len(deliveries)
    for victim, deliver in zip(victims, deliveries, strict=True):
        known = light.interruption(victim)
        assert known["deregistered_at"] is not None
        in_time = known["reclaimed_at"] is None or known["deregistered_at"] < known["reclaimed_at"]
        assert in_time or deliver == "lost"


def test_aws_throttles_fails_and_loses_answers(light: Bench) -> None:
    """Calls that AWS refuses, or carries out without an answer, cost time and nothing else."""
    before = light.settled().regulars
    lost = light.strike("DeregisterTargets", **THROTTLED)
    lost += light.strike("TransactWriteItems", **LOST)
    lost += light.strike("CreateFleet", **{**EXCEEDED, "count": 2})
    lost += light.strike("CreateFleet", **LOST, count=2)
    light.cloud.inject_fault("DescribeInstances", role=light.reconcile, **EXCEEDED)
    light.cloud.inject_fault("TransactWriteItems", role=light.reconcile, **LOST)
    light.cloud.inject_fault("DescribeTargetHealth", role=light.reconcile, **THROTTLED)
    light.struck()
    assert light.settled().regulars == before + lost


def test_200_warnings_at_once_over_200_replicas(light: Bench) -> None:
    """Every one of them is taken out of rotation and replaced exactly once."""
    light.cloud.set_capacity(spot=POOL_CAPACITY)
    light.want(STORM)
    before = light.settled()
    light.warn_all(before.present)
    after = light.settled()
    assert after.regulars == before.regulars + STORM
    assert all(light.interruption(r)["deregistered_at"] for r in before.present)


def test_functions_killed_between_two_calls(killed: Killed) -> None:
    """Each loss has one replacement, and what a dead tick launched serves in place of what was lost."""
    facts = killed.bench.settled()
    assert facts.regulars == killed.regulars + killed.losses
    (replacement,) = (r for r in facts.ever if r.replaces == killed.replica.id)
    assert replacement.instance_id == killed.orphan


def test_nothing_is_left_in_a_queue(light: Bench) -> None:
    """After all this every message has been processed; dead is only what is malformed."""
    light.deliver(MALFORMED)
    light.queues_are_empty()
    assert light.dead() == [MALFORMED]


def test_nothing_was_refused_for_want_of_a_permission(light: Bench) -> None:
    """Whatever went wrong, no function asked for more than its grants; and signals take out the warned."""
    decisions = light.cloud.decisions()
    ours = {light.outputs[name] for name in ("OnSignalRole", "ReconcileRole", "SurveyRole")}
    assert not [d for d in decisions if d["role"] in ours and d["refused"]]
    by_signals = {d["action"] for d in decisions if d["role"] == light.on_signal}
    assert "elasticloadbalancing:DeregisterTargets" in by_signals

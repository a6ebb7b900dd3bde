"""A target's health, check by check."""

from __future__ import annotations

import pytest

from lab.local.balancer.config import HealthCheck
from lab.local.balancer.target import HEALTHY, REGISTERING, CheckFailure, Health, State, Target

CHECK = HealthCheck(healthy_threshold=3, unhealthy_threshold=2)
TIMEOUT = CheckFailure("Target.Timeout", "Request timed out")


def states(results: str) -> str:
    """The states after each check: "+" passed, "-" failed; i(nitial), h(ealthy), u(nhealthy)."""
    target, seen = Target("i-1", 80), ""
    for result in results:
        target.judge(None if result == "+" else TIMEOUT, CHECK)
        seen += target.health.state[0]
    return seen


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ("+", "h"),
        ("-+", "ih"),
        ("--+++", "iuuuh"),
        ("+-+--", "hhhhu"),
        ("--++-+++", "iuuuuuuh"),
    ],
)
def test_thresholds(results: str, expected: str) -> None:
    """A new target needs one passed check; after that thresholds count checks in a row."""
    assert states(results) == expected


def test_reasons() -> None:
    """Each state comes with AWS's reason for it, and a healthy one without."""
    target = Target("i-1", 80)
    assert target.health == REGISTERING
    target.judge(TIMEOUT, CHECK)
    assert target.health.reason == "Elb.InitialHealthChecking"
    target.judge(TIMEOUT, CHECK)
    assert target.health == Health(State.UNHEALTHY, "Target.Timeout", "Request timed out")
    target.restart(REGISTERING)
    target.judge(None, CHECK)
    assert target.health == HEALTHY
    assert (HEALTHY.reason, HEALTHY.description) == (None, None)


def test_checks_dont_end_a_drain() -> None:
    """A check that was under way when draining began changes nothing."""
    target = Target("i-1", 80)
    target.drain(1.0)
    target.judge(None, CHECK)
    assert target.health.reason == "Target.DeregistrationInProgress"


@pytest.mark.parametrize(
    ("matcher", "passing", "failing"),
    [("200", [200], [201, 503]), ("200,202", [200, 202], [201]), ("200-299", [200, 299], [199, 300])],
)
def test_matcher(matcher: str, passing: list[int], failing: list[int]) -> None:
    """A matcher is a code, a list or a range."""
    check = HealthCheck(matcher=matcher)
    assert all(check.accepts(status) for status in passing)
    assert not any(check.accepts(status) for status in failing)


@pytest.mark.parametrize("matcher", ["", "ok", "200;201", "-"])
def test_bad_matcher(matcher: str) -> None:
    """What is no matcher is refused at once, not at the first check."""
    with pytest.raises(ValueError, match="expected HTTP codes"):
        HealthCheck(matcher=matcher)


def test_port() -> None:
    """The traffic port is the target's own; any other is taken as it is."""
    assert HealthCheck().port_of(8081) == 8081
    assert HealthCheck(port="9000").port_of(8081) == 9000

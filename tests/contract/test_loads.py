"""`ports.Loads` with CloudWatch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.stub import Stubber

from spotrelay.aws.clients import Clients
from spotrelay.aws.loads import KEPT_S, CloudWatchLoads
from spotrelay.core.ports import Denied, Throttled
from spotrelay.core.scaling import Load, MetricTarget, OngoingTarget, Scaling
from spotrelay.core.spec import ServiceSpec
from spotrelay.core.timing import seconds
from spotrelay.memory import MemoryLoads
from tests.contract.conftest import Monotonic
from tests.examples import demo_spec

NOW = datetime(2026, 11, 23, 12, 0, 30, tzinfo=UTC)
MINUTE = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)

QPS = Scaling(min_replicas=0, max_replicas=9, target_qps_per_replica=1.0)
CPU = MetricTarget(namespace="AWS/EC2", name="CPUUtilization", target=50.0, dimensions={"Group": "g"})

Points = Mapping[int, float]
"""Minutes before 12:00 → value."""


def spec_of(scaling: Scaling | None = QPS) -> ServiceSpec:
    """A service behind a load balancer."""
    return replace(demo_spec(), scaling=scaling, load_balancer="app/demo/0123456789abcdef")


@pytest.fixture
def metrics(clients: Clients) -> Iterator[Stubber]:
    """Answers for CloudWatch's calls."""
    with Stubber(clients.cloudwatch) as stubber:
        yield stubber


def answer(*, status: str = "Complete", **points: Points) -> dict[str, Any]:
    """What CloudWatch says of each metric, newest first."""
    return {
        "MetricDataResults": [
            {
                "Id": id_,
                "StatusCode": status,
                "Timestamps": [MINUTE - seconds(60 * ago) for ago in sorted(known)],
                "Values": [known[ago] for ago in sorted(known)],
            }
            for id_, known in points.items()
        ]
    }


def rate(clients: Clients, metrics: Stubber, **facts: Any) -> float | None:
    """What it makes of them."""
    known = {"requests": {}, "hosts": {}, "nobody": {}, **facts}
    metrics.add_response("get_metric_data", answer(**known))
    return CloudWatchLoads(clients).observe(spec_of(), NOW).requests_per_s


def test_the_ports_in_memory_know_what_they_are_told() -> None:
    """And nothing else."""
    loads = MemoryLoads()
    loads.loads["demo"] = Load(3.0)
    assert loads.observe(spec_of(), NOW) == Load(3.0)
    assert loads.observe(demo_spec("other"), NOW) == Load()


def test_one_call_asks_for_what_the_service_goes_by(clients: Clients, metrics: Stubber) -> None:
    """Its target group's requests and hosts, its load balancer's 503s, and the metric that its file names."""
    group = [
        {"Name": "TargetGroup", "Value": "targetgroup/demo/1"},
        {"Name": "LoadBalancer", "Value": "app/demo/0123456789abcdef"},
    ]
    of_balancer = {"Namespace": "AWS/ApplicationELB"}
    cpu = {
        "Namespace": "AWS/EC2",
        "MetricName": "CPUUtilization",
        "Dimensions": [{"Name": "Group", "Value": "g"}],
    }
    expected = [
        ("requests", {**of_balancer, "MetricName": "RequestCount", "Dimensions": group}, "Sum"),
        ("hosts", {**of_balancer, "MetricName": "HealthyHostCount", "Dimensions": group}, "Maximum"),
        ("nobody", {**of_balancer, "MetricName": "HTTPCode_ELB_503_Count", "Dimensions": group[1:]}, "Sum"),
        ("metric", cpu, "Average"),
    ]
    queries = [
        {"Id": id_, "MetricStat": {"Metric": metric, "Period": 60, "Stat": statistic}}
        for id_, metric, statistic in expected
    ]
    metrics.add_response(
        "get_metric_data",
        answer(requests={3: 120.0}, hosts={3: 1.0}, nobody={}, metric={3: 70.0, 2: 80.0, 1: 10.0}),
        {
            "MetricDataQueries": queries,
            "StartTime": NOW - seconds(600),
            "EndTime": NOW,
            "ScanBy": "TimestampDescending",
        },
    )
    loads = CloudWatchLoads(clients)
    assert loads.observe(spec_of(replace(QPS, metric=CPU)), NOW) == Load(2.0, metric=80.0)


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ({"requests": {2: 60.0, 3: 600.0}}, 1.0),  # the last complete minute
        ({"requests": {2: 60.0, 1: 30.0}}, 1.0),  # a later one is complete in a minute
        ({"requests": {2: 60.0, 1: 90.0}}, 1.5),  # and shows by now that there is more
        ({"requests": {2: 60.0, 0: 120.0}}, 2.0),
        ({"requests": {2: 60.0}, "nobody": {2: 60.0}}, 2.0),
        ({"requests": {3: 60.0}, "hosts": {2: 3.0}}, 0.0),  # hosts, and no requests
        ({"hosts": {2: 3.0}}, 0.0),
        ({"nobody": {1: 6.0}}, 0.1),
        ({"nobody": {0: 6.0}}, 0.1),
        ({"requests": {5: 60.0}}, None),  # that was five minutes ago
        ({"requests": {4: 60.0}}, 1.0),
        ({}, None),
    ],
)
def test_requests_a_second(
    clients: Clients, metrics: Stubber, points: dict[str, Points], expected: float | None
) -> None:
    """Those of the last complete minute, or of a later one if they are more; those that found nobody, too."""
    assert rate(clients, metrics, **points) == expected


@pytest.mark.parametrize(
    ("points", "expected"),
    [({"nobody": {0: 6.0}}, True), ({"requests": {1: 6.0}}, True), ({"hosts": {2: 3.0}}, False), ({}, False)],
)
def test_without_a_whole_minute_there_are_at_least_as_many(
    clients: Clients, metrics: Stubber, points: dict[str, Points], expected: bool
) -> None:
    """After a gap of CloudWatch's, or at a service's beginning, only a part is known."""
    known: dict[str, Any] = {"requests": {}, "hosts": {}, "nobody": {}, **points}
    metrics.add_response("get_metric_data", answer(**known))
    assert CloudWatchLoads(clients).observe(spec_of(), NOW).is_rate_partial is expected


@pytest.mark.parametrize("status", ["PartialData", "InternalError", "Forbidden"])
def test_a_part_of_an_answer_is_none(clients: Clients, metrics: Stubber, status: str) -> None:
    """It would look like less load than there is."""
    assert rate(clients, metrics, status=status, requests={2: 60.0}) is None


def test_a_metric_that_comes_every_five_minutes_is_known(clients: Clients, metrics: Stubber) -> None:
    """Requests aren't asked for where they don't matter; what is older than ten minutes isn't there."""
    scaling = Scaling(min_replicas=1, max_replicas=3, metric=CPU)
    metrics.add_response("get_metric_data", answer(metric={4: 70.0, 9: 50.0}))
    assert CloudWatchLoads(clients).observe(spec_of(scaling), NOW) == Load(metric=70.0)
    metrics.add_response("get_metric_data", answer(metric={0: 70.0}))
    assert CloudWatchLoads(clients).observe(spec_of(scaling), NOW) == Load(metric=70.0)
    metrics.add_response("get_metric_data", answer(metric={}))
    assert CloudWatchLoads(clients).observe(spec_of(scaling), NOW) == Load()


def test_what_needs_no_metric_asks_none(clients: Clients, metrics: Stubber) -> None:
    """A service with schedules alone, with what its replicas tell themselves, or none."""
    loads = CloudWatchLoads(clients)
    streams = Scaling(min_replicas=1, max_replicas=9, ongoing=OngoingTarget(target=8.0, metrics=("busy",)))
    assert loads.observe(spec_of(streams), NOW) == Load()
    assert loads.observe(spec_of(Scaling(min_replicas=1, max_replicas=1)), NOW) == Load()
    assert loads.observe(spec_of(None), NOW) == Load()
    metrics.assert_no_pending_responses()


def test_an_answer_is_kept_for_a_moment(clients: Clients, metrics: Stubber, monotonic: Monotonic) -> None:
    """Ticks come every few seconds while something moves, and CloudWatch has news once a minute."""
    loads = CloudWatchLoads(clients, monotonic)
    metrics.add_response("get_metric_data", answer(requests={2: 60.0}, hosts={}, nobody={}))
    assert loads.observe(spec_of(), NOW) == loads.observe(spec_of(), NOW) == Load(1.0)
    monotonic.advance(KEPT_S)
    metrics.add_response("get_metric_data", answer(requests={2: 120.0}, hosts={}, nobody={}))
    assert loads.observe(spec_of(), NOW) == Load(2.0)


@pytest.mark.parametrize(
    ("code", "error"),
    [("Throttling", Throttled), ("AccessDenied", Denied), ("AccessDeniedException", Denied)],
)
def test_refusals(clients: Clients, metrics: Stubber, code: str, error: type[Exception]) -> None:
    """In the ports' words, and asked again the next time."""
    loads = CloudWatchLoads(clients)
    for _ in range(2):
        metrics.add_client_error("get_metric_data", code)
        with pytest.raises(error):
            loads.observe(spec_of(), NOW)

"""`ports.Loads` with CloudWatch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from botocore.stub import Stubber
from hypothesis import given
from hypothesis import strategies as st

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.loads import KEPT_S, CloudWatchLoads
from spotrelay.plane.core.ports import Denied, Throttled
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows, ScaleRequest
from spotrelay.plane.core.scaling import Load, MetricTarget, Needed, OngoingTarget, Scaling
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.memory import MemoryLoads
from spotrelay.plane.serving.autoscaling import decide, is_open, needed
from tests.contract.conftest import Monotonic
from tests.examples import demo_spec

NOW = datetime(2026, 11, 23, 12, 0, 30, tzinfo=UTC)
MINUTE = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)

QPS = Scaling(min_replicas=0, max_replicas=9, target_qps_per_replica=1.0)
CPU = MetricTarget(namespace="AWS/EC2", name="CPUUtilization", target=50.0, dimensions={"Group": "g"})

ALL = Needed()
AT_REST = Needed(unserved=False, silence=False)
"""Of a service with as few replicas as there may be."""
ASLEEP = Needed(routed=False, silence=False)
NONE = Needed(routed=False, unserved=False, silence=False)

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


def answer(status: str = "Complete", /, **points: Points) -> dict[str, Any]:
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


def observed(clients: Clients, metrics: Stubber, needed: Needed, points: Mapping[str, Points]) -> Load:
    """What it makes of them; it asks for each of them, and for hosts only where there are some here."""
    first = {"requests": needed.routed, "nobody": needed.unserved}
    asked = {id_: points.get(id_, {}) for id_, is_asked in first.items() if is_asked}
    metrics.add_response("get_metric_data", answer(**asked))
    if "hosts" in points:
        metrics.add_response("get_metric_data", answer(hosts=points["hosts"]))
    found = CloudWatchLoads(clients).observe(spec_of(), needed, NOW)
    metrics.assert_no_pending_responses()
    return found


def test_the_ports_in_memory_know_what_they_are_told() -> None:
    """And nothing else."""
    loads = MemoryLoads()
    loads.loads["demo"] = Load(3.0)
    assert loads.observe(spec_of(), ALL, NOW) == Load(3.0)
    assert loads.observe(demo_spec("other"), ALL, NOW) == Load()


GROUP = [
    {"Name": "TargetGroup", "Value": "targetgroup/demo/1"},
    {"Name": "LoadBalancer", "Value": "app/demo/0123456789abcdef"},
]
OF_BALANCER = {"Namespace": "AWS/ApplicationELB"}
QUERIES = {
    "requests": ({**OF_BALANCER, "MetricName": "RequestCount", "Dimensions": GROUP}, "Sum"),
    "nobody": ({**OF_BALANCER, "MetricName": "HTTPCode_ELB_503_Count", "Dimensions": GROUP[1:]}, "Sum"),
    "hosts": ({**OF_BALANCER, "MetricName": "HealthyHostCount", "Dimensions": GROUP}, "Maximum"),
    "metric": (
        {
            "Namespace": "AWS/EC2",
            "MetricName": "CPUUtilization",
            "Dimensions": [{"Name": "Group", "Value": "g"}],
        },
        "Average",
    ),
}


def expect(metrics: Stubber, **points: Points) -> None:
    """That it asks for these metrics in one call, and for no other."""
    queries = [
        {"Id": id_, "MetricStat": {"Metric": metric, "Period": 60, "Stat": statistic}}
        for id_, (metric, statistic) in ((id_, QUERIES[id_]) for id_ in points)
    ]
    times = {"StartTime": NOW - seconds(600), "EndTime": NOW, "ScanBy": "TimestampDescending"}
    metrics.add_response("get_metric_data", answer(**points), {"MetricDataQueries": queries, **times})


def test_one_call_asks_for_what_the_service_goes_by(clients: Clients, metrics: Stubber) -> None:
    """Its target group's requests, its load balancer's 503s, and the metric that its file names."""
    expect(metrics, requests={2: 120.0}, nobody={}, metric={3: 70.0, 2: 80.0, 1: 10.0})
    loads = CloudWatchLoads(clients)
    assert loads.observe(spec_of(replace(QPS, metric=CPU)), ALL, NOW) == Load(2.0, metric=80.0)
    metrics.assert_no_pending_responses()


def test_only_what_is_needed_is_asked_for(clients: Clients, metrics: Stubber) -> None:
    """One metric while replicas serve, and one while there are none: each costs 0.44 USD a month."""
    loads = CloudWatchLoads(clients)
    expect(metrics, requests={2: 120.0})
    assert loads.observe(spec_of(), AT_REST, NOW) == Load(2.0)
    expect(metrics, nobody={1: 6.0})
    assert loads.observe(spec_of(), ASLEEP, NOW) == Load(0.1, is_rate_partial=True)
    metrics.assert_no_pending_responses()


def test_hosts_are_asked_for_where_the_last_minute_has_no_requests(
    clients: Clients, metrics: Stubber
) -> None:
    """And where that is of interest: not for a minute that has some."""
    expect(metrics, requests={3: 120.0})
    expect(metrics, hosts={2: 1.0})
    needed = Needed(unserved=False)
    assert CloudWatchLoads(clients).observe(spec_of(), needed, NOW) == Load(0.0)
    expect(metrics, requests={2: 120.0})
    assert CloudWatchLoads(clients).observe(spec_of(), needed, NOW) == Load(2.0)
    metrics.assert_no_pending_responses()


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ({"requests": {2: 60.0, 3: 600.0}}, 1.0),  # the last complete minute
        ({"requests": {2: 60.0, 1: 30.0}}, 1.0),  # a later one is complete in a minute
        ({"requests": {2: 60.0, 1: 90.0}}, 1.5),  # and shows by now that there is more
        ({"requests": {2: 60.0, 0: 120.0}}, 2.0),
        ({"requests": {2: 60.0}, "nobody": {2: 60.0}}, 2.0),
        ({"requests": {3: 60.0}, "hosts": {2: 3.0}}, 0.0),  # hosts, and no requests
        ({"requests": {3: 60.0}, "hosts": {3: 3.0}}, 1.0),  # CloudWatch doesn't know of the last one
        ({"requests": {3: 60.0}, "hosts": {}}, 1.0),
        ({"hosts": {2: 3.0}}, 0.0),
        ({"nobody": {1: 6.0}, "hosts": {}}, 0.1),
        ({"nobody": {0: 6.0}, "hosts": {}}, 0.1),
        ({"requests": {5: 60.0}, "hosts": {}}, None),  # that was five minutes ago
        ({"requests": {5: 60.0}, "hosts": {5: 3.0}}, None),
        ({"requests": {4: 60.0}, "hosts": {}}, 1.0),
        ({"hosts": {}}, None),
    ],
)
def test_requests_a_second(
    clients: Clients, metrics: Stubber, points: dict[str, Points], expected: float | None
) -> None:
    """Those of the last complete minute, or of a later one if they are more; those that found nobody, too."""
    assert observed(clients, metrics, ALL, points).requests_per_s == expected


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ({"nobody": {0: 6.0}, "hosts": {}}, True),
        ({"requests": {1: 6.0}, "hosts": {}}, True),
        ({"hosts": {2: 3.0}}, False),
        ({"hosts": {}}, False),
    ],
)
def test_without_a_whole_minute_there_are_at_least_as_many(
    clients: Clients, metrics: Stubber, points: dict[str, Points], expected: bool
) -> None:
    """After a gap of CloudWatch's, or at a service's beginning, only a part is known."""
    found = observed(clients, metrics, ALL, points)
    assert (found.is_rate_partial, found.is_silence_presumed) == (expected, False)


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ({}, 0.0),  # perhaps there were none, perhaps CloudWatch doesn't know
        ({1: 6.0}, 0.1),
        ({3: 60.0}, 1.0),  # perhaps there were none since
        ({3: 60.0, 0: 120.0}, 2.0),
        ({5: 60.0}, 0.0),
    ],
)
def test_where_nobody_asks_about_silence_there_are_at_least_as_many(
    clients: Clients, metrics: Stubber, points: Points, expected: float
) -> None:
    """Hosts aren't asked for, and what is seen of the requests is a lower bound."""
    found = observed(clients, metrics, AT_REST, {"requests": points})
    assert found == Load(expected, is_rate_partial=True, is_silence_presumed=True)


def test_a_service_that_sleeps_has_no_silence(clients: Clients, metrics: Stubber) -> None:
    """Its load balancer has nothing to say, and nothing is made of it."""
    assert observed(clients, metrics, ASLEEP, {}) == Load()
    assert observed(clients, metrics, replace(ASLEEP, silence=True), {}) == Load()
    assert observed(clients, metrics, ASLEEP, {"nobody": {2: 6.0}}) == Load(0.1)


@pytest.mark.parametrize("status", ["PartialData", "InternalError", "Forbidden"])
def test_a_part_of_an_answer_is_none(clients: Clients, metrics: Stubber, status: str) -> None:
    """It would look like less load than there is."""
    loads = CloudWatchLoads(clients)
    metrics.add_response("get_metric_data", answer(status, requests={2: 60.0}, nobody={}))
    assert loads.observe(spec_of(), ALL, NOW) == Load()
    metrics.add_response("get_metric_data", answer(requests={3: 60.0}))
    metrics.add_response("get_metric_data", answer(status, hosts={3: 1.0}))
    assert loads.observe(spec_of(), Needed(unserved=False), NOW) == Load()


def test_a_metric_that_comes_every_five_minutes_is_known(clients: Clients, metrics: Stubber) -> None:
    """Requests aren't asked for where they don't matter; what is older than ten minutes isn't there."""
    scaling = Scaling(min_replicas=1, max_replicas=3, metric=CPU)
    for points, expected in (({4: 70.0, 9: 50.0}, 70.0), ({0: 70.0}, 70.0), ({}, None)):
        metrics.add_response("get_metric_data", answer(metric=points))
        assert CloudWatchLoads(clients).observe(spec_of(scaling), NONE, NOW) == Load(metric=expected)


def test_what_needs_no_metric_asks_none(clients: Clients, metrics: Stubber) -> None:
    """A service with schedules alone, with what its replicas tell themselves, or none."""
    loads = CloudWatchLoads(clients)
    streams = Scaling(min_replicas=1, max_replicas=9, ongoing=OngoingTarget(target=8.0, metrics=("busy",)))
    assert loads.observe(spec_of(streams), NONE, NOW) == Load()
    assert loads.observe(spec_of(Scaling(min_replicas=1, max_replicas=1)), NONE, NOW) == Load()
    assert loads.observe(spec_of(None), NONE, NOW) == Load()
    metrics.assert_no_pending_responses()


def test_an_answer_is_kept_for_most_of_a_minute(
    clients: Clients, metrics: Stubber, monotonic: Monotonic
) -> None:
    """Ticks come every few seconds while something moves, and CloudWatch has news once a minute.

    Another question is another answer.
    """
    loads = CloudWatchLoads(clients, monotonic)
    expect(metrics, requests={2: 60.0})
    assert loads.observe(spec_of(), AT_REST, NOW) == loads.observe(spec_of(), AT_REST, NOW) == Load(1.0)
    expect(metrics, requests={2: 60.0}, nobody={2: 60.0})
    assert loads.observe(spec_of(), ALL, NOW) == Load(2.0)
    monotonic.advance(KEPT_S)
    expect(metrics, requests={2: 120.0})
    assert loads.observe(spec_of(), AT_REST, NOW) == Load(2.0)


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
            loads.observe(spec_of(), ALL, NOW)


class Known:
    """CloudWatch's client, with what is known of each minute before now; it counts the metrics asked for."""

    def __init__(self, points: Mapping[str, Points]) -> None:
        self.points = points
        self.asked = 0
        self.cloudwatch = self

    def get_metric_data(self, MetricDataQueries: list[dict[str, Any]], **_: object) -> dict[str, Any]:  # noqa: N803 - AWS's
        """What it knows of these."""
        self.asked += len(MetricDataQueries)
        return answer(**{query["Id"]: self.points[query["Id"]] for query in MetricDataQueries})


MINUTES = st.integers(0, 6)
BEFORE = st.builds(
    ScaleRequest,
    st.integers(1, 9),
    st.none(),
    st.none() | st.just(NOW - seconds(100)),
    st.none() | st.just(NOW - seconds(100)),
)


@given(
    st.dictionaries(MINUTES, st.sampled_from([6.0, 60.0, 120.0, 600.0])),
    st.dictionaries(MINUTES, st.just(3.0)),
    BEFORE,
    st.sampled_from([0, 60, 600]),
)
def test_what_is_decided_is_the_same_as_if_everything_were_asked(
    requests: Points, hosts: Points, before: ScaleRequest, delay_s: int
) -> None:
    """Whatever CloudWatch knows, and whatever is on record; with one metric where nothing changes."""
    scaling = replace(QPS, min_replicas=1, upscale_delay_s=delay_s, downscale_delay_s=delay_s)
    asked = Replica.requested("demo", 1, 1, NOW, reason="wanted")
    entered = {ReplicaState.READY: NOW - seconds(1000)}
    rows = Rows(replicas={1: asked.but(state=ReplicaState.READY, entered=entered)})

    def decided(needed: Needed) -> tuple[Load, ScaleRequest]:
        load = CloudWatchLoads(cast("Clients", known)).observe(spec_of(scaling), needed, NOW)
        return load, decide(scaling, before, load, ["g5.xlarge"], NOW)

    known = Known({"requests": requests, "hosts": hosts, "nobody": {}})
    _, with_all = decided(ALL)
    known.asked = 0
    load, found = decided(needed(scaling, before, rows, NOW + seconds(60)))
    if is_open(before, found, load):
        load, found = decided(ALL)
    elif before.replicas == 1 and not before.rising_since:
        assert known.asked == 1
    assert replace(found, unknown_since=None) == replace(with_all, unknown_since=None)
    assert load.is_silence_presumed or found == with_all

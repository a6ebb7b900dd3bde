"""Service files whose number of replicas follows the load."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from spotrelay.file.service import InvalidServiceFileError
from spotrelay.plane.core.scaling import MetricTarget, OngoingTarget, Scaling, Schedule

from .conftest import Loader

POLICY = {"min_replicas": 1, "max_replicas": 5, "target_qps_per_replica": 2.5}
QUEUE = {"namespace": "AWS/SQS", "name": "Visible", "dimensions": {"QueueName": "q"}, "target_per_replica": 9}
BUSY = {"target_per_replica": 8, "metric": ["busy"]}
DAY = {"cron": "0 8 * * *", "min_replicas": 2}


def file(policy: Any = None, scaling: Any = None, **service: Any) -> str:
    """A service file with these sections; JSON is YAML."""
    if policy is not None:
        service["replica_policy"] = policy
    values: dict[str, Any] = {
        "name": "chat",
        "service": service,
        "resources": {"accelerators": ["A10G", "L4"], "ports": 80},
        "run": "serve",
    }
    if scaling is not None:
        values["spotrelay"] = {"scaling": scaling}
    return json.dumps(values, indent=1)


def test_skyserve_s_replica_policy(service: Loader) -> None:
    """Its numbers, SkyServe's delays where it has none, and the number to begin with."""
    chat = service(file({**POLICY, "num_overprovision": 1}))
    assert chat.scaling == Scaling(min_replicas=1, max_replicas=5, target_qps_per_replica=2.5)
    assert (chat.scaling.upscale_delay_s, chat.scaling.downscale_delay_s) == (300, 1200)
    assert (chat.replicas, chat.overprovision, chat.most_replicas) == (1, 1, 6)


@pytest.mark.parametrize("policy", [{"min_replicas": 3}, {"min_replicas": 3, "max_replicas": 3}])
def test_a_policy_with_one_number_is_a_fixed_number(service: Loader, policy: dict[str, int]) -> None:
    """As `replicas: 3`."""
    chat = service(file(policy))
    assert (chat.replicas, chat.scaling, chat.most_replicas) == (3, None, 3)


def test_a_target_for_each_accelerator(service: Loader) -> None:
    """By instance type in the document; what isn't named has the least."""
    chat = service(file({**POLICY, "target_qps_per_replica": {"L4": 1, "A10G:1": 2.5}}))
    assert chat.scaling is not None
    assert chat.scaling.target_qps_per_replica == 1
    assert chat.scaling.qps_by_instance_type["g5.xlarge"] == 2.5
    assert "g6.xlarge" not in chat.scaling.qps_by_instance_type


def test_what_skyserve_has_no_place_for(service: Loader) -> None:
    """A metric, schedules."""
    policy = {"min_replicas": 1, "max_replicas": 5}
    extra = {"metric": QUEUE, "schedules": [DAY]}
    assert service(file(policy, extra)).scaling == Scaling(
        min_replicas=1,
        max_replicas=5,
        metric=MetricTarget(
            namespace="AWS/SQS", name="Visible", target=9, dimensions={"QueueName": "q"}, is_total=True
        ),
        schedules=(Schedule(cron="0 8 * * *", min_replicas=2, max_replicas=2),),
    )


def test_requests_in_progress(service: Loader) -> None:
    """vLLM's own metrics unless others are named; one that is named twice counts once."""
    policy = {"min_replicas": 1, "max_replicas": 5}
    vllm = service(file(policy, {"ongoing": {"target_per_replica": 8}})).scaling
    assert vllm == Scaling(
        min_replicas=1,
        max_replicas=5,
        ongoing=OngoingTarget(
            target=8, metrics=("vllm:num_requests_running", "vllm:num_requests_waiting"), path="/metrics"
        ),
    )
    own = {"target_per_replica": 0.5, "metric": ["busy", "busy"], "path": "/stats"}
    chat = service(file(policy, {"ongoing": own}))
    assert chat.scaling
    assert chat.scaling.ongoing == OngoingTarget(target=0.5, metrics=("busy",), path="/stats")


def test_gpu_utilisation_is_a_metric_of_the_service_s_own(service: Loader) -> None:
    """The average of all its GPUs, in a namespace that only its instances write to."""
    scaling = service(file({"min_replicas": 1, "max_replicas": 5}, {"gpu_utilization": 60})).scaling
    assert scaling == Scaling(
        min_replicas=1,
        max_replicas=5,
        metric=MetricTarget(
            namespace="SpotRelay/chat",
            name="nvidia_smi_utilization_gpu",
            target=60,
            dimensions={"service": "chat"},
        ),
    )


@pytest.mark.parametrize("cpus", [{"cpus": "4+"}, {"instance_types": ["c7i.xlarge"]}])
def test_gpu_utilisation_of_no_gpu_is_refused(service: Loader, cpus: dict[str, Any]) -> None:
    """Nobody would ever know it, and the number would hold for good."""
    values = json.loads(file({"min_replicas": 1, "max_replicas": 5}, {"gpu_utilization": 60}))
    del values["resources"]["accelerators"]
    values["resources"] |= cpus
    said = r"scaling\.gpu_utilization: is NVIDIA's, and \S+ may be launched, which has none"
    with pytest.raises(InvalidServiceFileError, match=said):
        service(json.dumps(values, indent=1))


def test_schedules_alone_begin_with_the_fixed_number(service: Loader) -> None:
    """Until the first of them has fired."""
    scaling = service(file(None, {"schedules": [DAY]}, replicas=4)).scaling
    assert scaling is not None
    assert (scaling.min_replicas, scaling.max_replicas, scaling.extremes.least) == (4, 4, 2)


def test_the_base_is_a_part_of_the_most(service: Loader) -> None:
    """Fewer replicas than it limit it, see `core.rows`."""
    assert service(file(POLICY, base_on_demand=5)).base_on_demand == 5
    with pytest.raises(InvalidServiceFileError, match="from 0 to replicas, 5, got 6"):
        service(file(POLICY, base_on_demand=6))


@pytest.mark.parametrize(
    ("policy", "scaling", "said"),
    [
        ({**POLICY, "replicas": 2}, None, "service.replica_policy.replicas: unknown field"),
        ({"max_replicas": 2}, None, "service.replica_policy.min_replicas: missing"),
        ({"min_replicas": 2, "max_replicas": 1}, None, "max_replicas: expected min_replicas, 2, or more"),
        ({"min_replicas": 1, "max_replicas": 2}, None, "target_qps_per_replica: missing: between"),
        ({**POLICY, "target_qps_per_replica": 0}, None, "target_qps_per_replica: expected requests a second"),
        ({**POLICY, "target_qps_per_replica": {"A10G": -1}}, None, "target_qps_per_replica.A10G: expected"),
        (
            {**POLICY, "target_qps_per_replica": {}},
            None,
            "target_qps_per_replica: expected requests a second",
        ),
        ({**POLICY, "upscale_delay_seconds": -1}, None, "upscale_delay_seconds: expected whole seconds"),
        (POLICY, {"schedules": [{**DAY, "cron": "daily"}]}, "cron: expected a cron expression such as"),
        (POLICY, {"schedules": [{**DAY, "time_zone": "Berlin"}]}, "time_zone: expected a time zone such as"),
        (POLICY, {"schedules": [{**DAY, "time_zone": "../x"}]}, "time_zone: expected a time zone such as"),
        (POLICY, {"metric": {**QUEUE, "target_value": 1}}, "expected one of target_value"),
        (POLICY, {"metric": {**QUEUE, "statistic": "Mean"}}, "statistic: expected Average"),
        (POLICY, {"ongoing": {}}, "ongoing.target_per_replica: missing"),
        (POLICY, {"ongoing": {**BUSY, "target_per_replica": 0}}, "target_per_replica: expected how many"),
        (POLICY, {"ongoing": {**BUSY, "metric": []}}, "ongoing.metric: expected a list of 1 to 10"),
        (POLICY, {"ongoing": {**BUSY, "metric": ["a"] * 11}}, "ongoing.metric: expected a list of 1 to 10"),
        (
            POLICY,
            {"ongoing": {**BUSY, "metric": ["busy{}"]}},
            "ongoing.metric[0]: expected a list of 1 to 10",
        ),
        (POLICY, {"ongoing": {**BUSY, "metric": "busy"}}, "ongoing.metric: expected a list of 1 to 10"),
        (POLICY, {"ongoing": {**BUSY, "path": "metrics"}}, "ongoing.path: expected a path such as"),
        (POLICY, {"ongoing": {**BUSY, "path": "/a b"}}, "ongoing.path: expected a path such as"),
        (None, {"ongoing": BUSY}, "without service.replica_policy nothing says between which numbers"),
        (None, {"gpu_utilization": 60}, "without service.replica_policy nothing says between which"),
        (POLICY, {"gpu_utilization": 0}, "gpu_utilization: expected percent"),
        (POLICY, {"gpu_utilization": 101}, "gpu_utilization: expected percent"),
        (POLICY, {"gpu_utilization": 60, "metric": QUEUE}, "gpu_utilization: is a metric itself"),
        (None, {"metric": QUEUE}, "without service.replica_policy nothing says between which numbers"),
    ],
)
def test_what_is_wrong_is_said_at_its_place(service: Loader, policy: Any, scaling: Any, said: str) -> None:
    """The field, what would be right, and what to do."""
    with pytest.raises(InvalidServiceFileError, match=re.escape(said)):
        service(file(policy, scaling, **({} if policy else {"replicas": 2})))


def test_a_range_without_a_target_is_refused_in_a_schedule_too(service: Loader) -> None:
    """Nothing would decide between the two numbers."""
    with pytest.raises(InvalidServiceFileError, match=r"schedules.*max_replicas: is 5 and min_replicas is 2"):
        service(file(None, {"schedules": [{**DAY, "max_replicas": 5}]}, replicas=2))


def test_a_fixed_number_beside_a_policy_is_refused(service: Loader) -> None:
    """Both say how many there are."""
    with pytest.raises(InvalidServiceFileError, match=r"service\.replicas: stands beside replica_policy"):
        service(file(POLICY, replicas=2))


@pytest.mark.parametrize("name", ["H999", "A100"])
def test_an_accelerator_that_no_replica_has_is_told(service: Loader, name: str) -> None:
    """Its figure has no effect, be it a slip or what AWS lacks."""
    chat = service(file({**POLICY, "target_qps_per_replica": {"A10G": 2, name: 9}}))
    assert [(one.field, name in one.message) for one in chat.warnings] == [
        ("service.replica_policy.target_qps_per_replica", True)
    ]

"""Drills' calls to AWS: experiments and the requests that failed, held against botocore's models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import boto3
import pytest
from botocore.response import StreamingBody
from botocore.stub import ANY, Stubber

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.experiments import Experiments, OperatorExperiments
from spotrelay.plane.aws.requests import Requests, ServedRequests
from spotrelay.plane.core.ports import Denied, Unavailable
from spotrelay.plane.view.snapshot import Minute
from tests.examples import demo_spec

ROLE = "arn:aws-us-gov:iam::123456789012:role/drill"
OURS = {"spotrelay:service": "demo"}
START = {"clientToken": ANY, "experimentTemplateId": "EXT1", "tags": OURS}
NOW = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)


@pytest.fixture
def clients() -> Clients:
    """Clients that ask nobody."""
    return Clients(boto3.Session("testing", "testing", region_name="us-gov-west-1"))


@pytest.fixture
def fis(clients: Clients) -> Iterator[Stubber]:
    """FIS, as told."""
    with Stubber(clients.fis) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


@pytest.fixture
def function(clients: Clients) -> Iterator[Stubber]:
    """Lambda, as told."""
    with Stubber(clients.lambda_) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


def _created(fis: Stubber) -> None:
    arns = [f"arn:aws-us-gov:ec2:us-gov-west-1:123456789012:instance/i-{n}" for n in (1, 2)]
    replicas = {
        "resourceType": "aws:ec2:spot-instance", "resourceArns": arns, "selectionMode": "ALL"
    }  # fmt: skip
    interrupt = {
        "actionId": "aws:ec2:send-spot-instance-interruptions",
        "parameters": {"durationBeforeInterruption": "PT2M"},
        "targets": {"SpotInstances": "replicas"},
    }
    asked = {
        "clientToken": ANY, "description": ANY, "roleArn": ROLE, "stopConditions": [{"source": "none"}],
        "targets": {"replicas": replicas}, "actions": {"interrupt": interrupt}, "tags": OURS,
    }  # fmt: skip
    made = {"experimentTemplate": {"id": "EXT1"}}
    fis.add_response("create_experiment_template", made, asked)


def test_what_is_started_needs_no_template_any_more(clients: Clients, fis: Stubber) -> None:
    """It goes at once: if the experiment runs, and if it couldn't be started, which is told then."""
    experiments = Experiments(clients)
    _created(fis)
    fis.add_response("start_experiment", {"experiment": {"id": "EXP1"}}, START)
    fis.add_response("delete_experiment_template", {}, {"id": "EXT1"})
    assert experiments.start(ROLE, ["i-1", "i-2"], "demo") == "EXP1"
    _created(fis)
    fis.add_client_error("start_experiment", "AccessDeniedException", http_status_code=403)
    fis.add_response("delete_experiment_template", {}, {"id": "EXT1"})
    with pytest.raises(Denied):
        experiments.start(ROLE, ["i-1", "i-2"], "demo")


def test_a_template_that_stays_hides_nothing(clients: Clients, fis: Stubber) -> None:
    """Neither why nothing started, nor what did."""
    experiments = Experiments(clients)
    _created(fis)
    fis.add_client_error("start_experiment", "AccessDeniedException", "no fis:StartExperiment")
    fis.add_client_error("delete_experiment_template", "AccessDeniedException", "no deletion")
    with pytest.raises(Denied, match="StartExperiment"):
        experiments.start(ROLE, ["i-1", "i-2"], "demo")
    _created(fis)
    fis.add_response("start_experiment", {"experiment": {"id": "EXP1"}})
    fis.add_client_error("delete_experiment_template", "AccessDeniedException", "no deletion")
    assert experiments.start(ROLE, ["i-1", "i-2"], "demo") == "EXP1"


@pytest.mark.parametrize(
    ("instance_ids", "said"),
    [
        ([], "1 to 5 instances"),
        ([f"i-{n}" for n in range(6)], "1 to 5 instances"),
        (["i-1", "i-1/../*"], "'i-1/../\\*' is no instance's ID"),
        (["*"], "no instance's ID"),
    ],
)
def test_only_named_instances_are_interrupted(clients: Clients, instance_ids: list[str], said: str) -> None:
    """No pattern, no other resource, and no more than one action takes: nobody is asked."""
    with pytest.raises(ValueError, match=said):
        Experiments(clients).start(ROLE, instance_ids, "demo")


def _answers(function: Stubber, said: object, **answer: Any) -> None:
    payload = StreamingBody(BytesIO(json.dumps(said).encode()), len(json.dumps(said)))
    function.add_response("invoke", {"StatusCode": 200, "Payload": payload, **answer}, ASKED)


ASKED = {
    "FunctionName": "SpotRelay-drill",
    "Payload": json.dumps({"instance_ids": ["i-1"], "service": "demo"}),
}


def test_an_operator_has_the_function_start_it(clients: Clients, function: Stubber) -> None:
    """Asked once, never twice: a repeat would interrupt others. What it says is said."""
    experiments = OperatorExperiments(clients, "SpotRelay-drill")
    _answers(function, {"experiment": "EXP1"})
    assert experiments.start(["i-1"], "demo") == "EXP1"
    assert vars(clients.lambda_.meta.config)["retries"]["total_max_attempts"] == 1
    _answers(function, {"errorMessage": "too many experiments", "errorType": "Denied"}, FunctionError="x")
    with pytest.raises(Unavailable, match="SpotRelay-drill: too many experiments"):
        experiments.start(["i-1"], "demo")
    function.add_client_error("invoke", "AccessDeniedException", "no lambda:InvokeFunction", 403)
    with pytest.raises(Denied, match="lambda:InvokeFunction"):
        experiments.start(["i-1"], "demo")


@pytest.mark.parametrize(
    ("status", "has_failed"),
    [("running", False), ("completed", False), ("failed", True), ("stopped", True), ("cancelled", True)],
)
def test_what_became_of_it(clients: Clients, fis: Stubber, status: str, has_failed: bool) -> None:
    """FIS's own state and words; one that was stopped interrupts no longer what it should."""
    answer = {"experiment": {"state": {"status": status, "reason": "why"}}}
    fis.add_response("get_experiment", answer, {"id": "EXP1"})
    state = OperatorExperiments(clients, "").state("EXP1")
    assert (state.status, state.reason, state.has_failed) == (status, "why", has_failed)


def test_one_that_is_over_is_stopped_already(clients: Clients, fis: Stubber) -> None:
    """To stop it is no error."""
    fis.add_client_error("stop_experiment", "ValidationException")
    OperatorExperiments(clients, "").stop("EXP1")


def test_requests_from_the_minute_on(clients: Clients) -> None:
    """All that came, those without a target too; failed are the replicas' and the load balancer's 5xx."""
    sums = {"routed": [500.0, 10.0], "nobody": [2.0], "target": [1.0], "balancer": [2.0, 1.0]}
    minutes = [NOW.replace(second=0), NOW.replace(second=0, minute=1)]
    results = [
        {"Id": id_, "Values": values, "Timestamps": minutes[: len(values)]} for id_, values in sums.items()
    ]
    asked: dict[str, Any] = {
        "MetricDataQueries": ANY,
        "StartTime": NOW.replace(second=0),
        "EndTime": NOW.replace(minute=2),
    }
    spec = replace(demo_spec(), load_balancer="app/demo/1")
    with Stubber(clients.cloudwatch) as cloudwatch:
        for _ in range(2):
            cloudwatch.add_response("get_metric_data", {"MetricDataResults": results}, asked)
        found = ServedRequests(clients).between(spec, NOW, NOW.replace(minute=1))
        failed = ServedRequests(clients).failed_by_minute(spec, NOW, NOW.replace(minute=1))
    assert found == Requests(512, 4)
    assert failed == {minutes[0]: 3, minutes[1]: 1}
    assert ServedRequests(clients).between(replace(spec, load_balancer=""), NOW, NOW) is None


def test_requests_by_the_minute_with_how_long_they_took(clients: Clients) -> None:
    """Only minutes that are complete; without an answer there is no time of one."""
    minutes = [NOW.replace(second=0, minute=minute) for minute in (0, 1, 8)]
    told = {"routed": [50.0, 9.0, 3.0], "target": [1.0], "p50": [0.2], "p99": [1.5], "balancer": [2.0, 1.0]}
    results = [
        {"Id": id_, "Values": values, "Timestamps": minutes[: len(values)]} for id_, values in told.items()
    ]
    spec = replace(demo_spec(), load_balancer="app/demo/1")
    until = NOW.replace(minute=9)
    with Stubber(clients.cloudwatch) as cloudwatch:
        cloudwatch.add_response("get_metric_data", {"MetricDataResults": results})
        found = ServedRequests(clients).minutes(spec, NOW, until)
    assert found == (
        Minute(minutes[0], 50, 3, 0.2, 1.5, failed_by_balancer=2),
        Minute(minutes[1], 9, 1, failed_by_balancer=1),
    )
    assert ServedRequests(clients).minutes(replace(spec, load_balancer=""), NOW, NOW) is None

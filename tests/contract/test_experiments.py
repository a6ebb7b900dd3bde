"""Drills' calls to AWS: experiments and the requests that failed, held against botocore's models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from spotrelay.aws.clients import Clients
from spotrelay.aws.experiments import Experiments
from spotrelay.aws.requests import Requests, ServedRequests
from spotrelay.core.ports import Denied
from tests.examples import demo_spec

ROLE = "arn:aws-us-gov:iam::123456789012:role/drill"
TAGS = {"a": "b"}
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
        "targets": {"replicas": replicas}, "actions": {"interrupt": interrupt}, "tags": {"a": "b"},
    }  # fmt: skip
    made = {"experimentTemplate": {"id": "EXT1"}}
    fis.add_response("create_experiment_template", made, asked)


def test_the_template_goes_whatever_happens(clients: Clients, fis: Stubber) -> None:
    """After the experiment, after an error in it, and if it couldn't be started."""
    experiments = Experiments(clients)
    start = {"clientToken": ANY, "experimentTemplateId": "EXT1", "tags": {"a": "b"}}
    _created(fis)
    fis.add_response("start_experiment", {"experiment": {"id": "EXP1"}}, start)
    fis.add_response("delete_experiment_template", {}, {"id": "EXT1"})
    with (
        suppress(KeyboardInterrupt),
        experiments.interrupting(ROLE, ["i-1", "i-2"], {"a": "b"}) as experiment,
    ):
        assert experiment == "EXP1"
        raise KeyboardInterrupt
    _created(fis)
    fis.add_client_error("start_experiment", "AccessDeniedException", http_status_code=403)
    fis.add_response("delete_experiment_template", {}, {"id": "EXT1"})
    with pytest.raises(Denied), experiments.interrupting(ROLE, ["i-1", "i-2"], {"a": "b"}):
        pass


def test_what_went_wrong_is_told_and_not_what_followed(clients: Clients, fis: Stubber) -> None:
    """Whoever may neither start nor delete reads why nothing started; after a drill, what is left."""
    experiments = Experiments(clients)
    _created(fis)
    fis.add_client_error("start_experiment", "AccessDeniedException", "no fis:StartExperiment")
    fis.add_client_error("delete_experiment_template", "AccessDeniedException", "no deletion")
    with pytest.raises(Denied, match="StartExperiment"), experiments.interrupting(ROLE, ["i-1", "i-2"], TAGS):
        pass
    _created(fis)
    fis.add_response("start_experiment", {"experiment": {"id": "EXP1"}})
    fis.add_client_error("delete_experiment_template", "AccessDeniedException", "no deletion")
    with pytest.raises(Denied, match="deletion"), experiments.interrupting(ROLE, ["i-1", "i-2"], TAGS):
        pass


@pytest.mark.parametrize(
    ("status", "has_failed"),
    [("running", False), ("completed", False), ("failed", True), ("stopped", True), ("cancelled", True)],
)
def test_what_became_of_it(clients: Clients, fis: Stubber, status: str, has_failed: bool) -> None:
    """FIS's own state and words; one that was stopped interrupts no longer what it should."""
    answer = {"experiment": {"state": {"status": status, "reason": "why"}}}
    fis.add_response("get_experiment", answer, {"id": "EXP1"})
    state = Experiments(clients).state("EXP1")
    assert (state.status, state.reason, state.has_failed) == (status, "why", has_failed)


def test_one_that_is_over_is_stopped_already(clients: Clients, fis: Stubber) -> None:
    """To stop it is no error."""
    fis.add_client_error("stop_experiment", "ValidationException")
    Experiments(clients).stop("EXP1")


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

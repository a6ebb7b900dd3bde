"""What the functions' roles allow: nothing that isn't needed, nothing that isn't ours."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import pytest

from spotrelay.names import TAG_SERVICE
from stacks.permissions import AS_CDK_NAG_WRITES, Function, actions, grants
from tests.template.support import Template, as_list, flat, function, mapping_of, refers_to

FUNCTIONS = list(Function)

CONTROLLERS = [Function.ON_SIGNAL, Function.RECONCILE]
"""Those that a queue feeds, and that launch and route."""

OWN_QUEUE = {
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "sqs:ChangeMessageVisibility",
    "sqs:GetQueueUrl",
    "sqs:GetQueueAttributes",
}
OWN_LOG = {"logs:CreateLogStream", "logs:PutLogEvents"}

OF_INSTANCES = {
    "ec2:DescribeInstances",
    "ec2:DescribeSpotInstanceRequests",
    "elasticloadbalancing:DescribeTargetHealth",
}
OF_OFFERS = {
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeSpotPriceHistory",
    "ec2:GetSpotPlacementScores",
    "pricing:GetProducts",
    "servicequotas:GetServiceQuota",
}
WITHOUT_NARROWER_RESOURCE = OF_INSTANCES | OF_OFFERS
"""Read-only, and AWS knows no resource for them."""


def _statements(template: Template, name: Function) -> list[dict[str, Any]]:
    return template.statements(refers_to(function(template, name)["Role"]))


def _allowed(template: Template, name: Function, action: str) -> list[dict[str, Any]]:
    return [s for s in _statements(template, name) if action in as_list(s["Action"])]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_role_allows_what_is_listed_and_no_more(control_plane: Template, name: Function) -> None:
    """A role has the listed permissions, may take from its function's queue, and write its log."""
    granted = {action for s in _statements(control_plane, name) for action in as_list(s["Action"])}
    own_queue = OWN_QUEUE if name in CONTROLLERS else set()
    assert granted == actions(grants(name, AS_CDK_NAG_WRITES)) | own_queue | OWN_LOG


def test_each_function_has_a_role_of_its_own(control_plane: Template) -> None:
    """What one function may do, the other may not by that."""
    roles = [refers_to(function(control_plane, name)["Role"]) for name in FUNCTIONS]
    assert len(set(roles)) == len(FUNCTIONS)
    assert not any("ManagedPolicyArns" in control_plane.all("AWS::IAM::Role")[role] for role in roles)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_action_is_a_wildcard(control_plane: Template, name: Function) -> None:
    """Every action is named."""
    assert not [a for s in _statements(control_plane, name) for a in as_list(s["Action"]) if "*" in a]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_only_descriptions_reach_everything(control_plane: Template, name: Function) -> None:
    """The resource `*` stands only where AWS knows no narrower one, and then nothing can be changed."""
    everywhere = {
        action
        for s in _statements(control_plane, name)
        if "*" in as_list(s["Resource"])
        for action in as_list(s["Action"])
    }
    assert everywhere <= WITHOUT_NARROWER_RESOURCE


def test_only_the_tick_ends_or_looks_at_instances(control_plane: Template) -> None:
    """The signal's path, which an event of any instance of the account triggers, can terminate nothing."""
    for action in ("ec2:TerminateInstances", *OF_INSTANCES):
        assert _allowed(control_plane, Function.RECONCILE, action)
        assert not _allowed(control_plane, Function.ON_SIGNAL, action)
        assert not _allowed(control_plane, Function.SURVEY, action)


def test_the_survey_asks_and_notes_and_touches_nothing(control_plane: Template) -> None:
    """It reads what EC2 offers and the services' documents, writes into the table, and does nothing else."""
    allowed = {a for s in _statements(control_plane, Function.SURVEY) for a in as_list(s["Action"])}
    documents = {"ssm:GetParameters", "ssm:GetParametersByPath"}
    assert allowed == OF_OFFERS | documents | OWN_LOG | {"dynamodb:PutItem", "sqs:SendMessage"}
    (send,) = _allowed(control_plane, Function.SURVEY, "sqs:SendMessage")
    dead_letters = function(control_plane, Function.SURVEY)["DeadLetterConfig"]["TargetArn"]
    assert refers_to(send["Resource"]) == refers_to(dead_letters)
    for action in OF_OFFERS:
        assert not _allowed(control_plane, Function.ON_SIGNAL, action)
        assert not _allowed(control_plane, Function.RECONCILE, action)


@pytest.mark.parametrize(
    ("action", "name"),
    [
        ("ec2:TerminateInstances", Function.RECONCILE),
        *(
            (f"elasticloadbalancing:{action}", name)
            for action in ("RegisterTargets", "DeregisterTargets")
            for name in CONTROLLERS
        ),
    ],
)
def test_foreign_resources_are_out_of_reach(control_plane: Template, action: str, name: Function) -> None:
    """Instances and target groups without our tag can't be terminated, filled or emptied."""
    for statement in _allowed(control_plane, name, action):
        assert statement["Condition"] == {"Null": {f"aws:ResourceTag/{TAG_SERVICE}": "false"}}


@pytest.mark.parametrize("name", CONTROLLERS)
@pytest.mark.parametrize("action", ["ec2:CreateFleet", "ec2:RunInstances"])
@pytest.mark.parametrize(
    ("kind", "condition"), [("launch-template", "aws:ResourceTag"), ("instance", "aws:RequestTag")]
)
def test_launches_are_ours(
    control_plane: Template, name: Function, action: str, kind: str, condition: str
) -> None:
    """A launch is only possible from a launch template of ours, and only of instances that get our tag."""
    concerned = [
        s
        for s in _allowed(control_plane, name, action)
        if any(fnmatchcase(f":{kind}/x", flat(r)[flat(r).rindex(":") :]) for r in as_list(s["Resource"]))
    ]
    assert [s["Condition"] for s in concerned] == [{"Null": {f"{condition}/{TAG_SERVICE}": "false"}}]


@pytest.mark.parametrize("name", CONTROLLERS)
def test_tags_are_set_at_launch_only(control_plane: Template, name: Function) -> None:
    """No function can make a foreign instance ours by tagging it."""
    (statement,) = _allowed(control_plane, name, "ec2:CreateTags")
    assert statement["Condition"] == {"StringEquals": {"ec2:CreateAction": ["CreateFleet", "RunInstances"]}}


@pytest.mark.parametrize("name", CONTROLLERS)
def test_only_instance_roles_are_passed(
    control_plane: Template, service_stack: Template, name: Function
) -> None:
    """A function gives EC2 the roles under our path, where the services' roles are; others get none."""
    (statement,) = _allowed(control_plane, name, "iam:PassRole")
    assert flat(statement["Resource"]) == "arn:<AWS::Partition>:iam::<AWS::AccountId>:role/spotrelay/*"
    passed_to = statement["Condition"]["StringEquals"]["iam:PassedToService"]
    assert all(service.startswith("ec2.amazonaws.com") for service in passed_to)
    roles = service_stack.all("AWS::IAM::Role")
    assert roles[service_stack.id_with("AWS::IAM::Role", "Instances")]["Path"] == "/spotrelay/"
    assert sum(role.get("Path") == "/spotrelay/" for role in roles.values()) == 1


@pytest.mark.parametrize("name", CONTROLLERS)
def test_a_function_takes_from_its_own_queue_and_sends_ticks(control_plane: Template, name: Function) -> None:
    """It receives from its own queue, and sends to the tick queue and to its own dead letters."""
    queue = refers_to(mapping_of(control_plane, name)["EventSourceArn"])
    dead_letters = control_plane.all("AWS::SQS::Queue")[queue]["RedrivePolicy"]["deadLetterTargetArn"]
    tick_queue = refers_to(mapping_of(control_plane, Function.RECONCILE)["EventSourceArn"])
    receive = _allowed(control_plane, name, "sqs:ReceiveMessage")
    send = _allowed(control_plane, name, "sqs:SendMessage")
    assert {refers_to(s["Resource"]) for s in receive} == {queue}
    assert {refers_to(s["Resource"]) for s in send} == {tick_queue, refers_to(dead_letters)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parameters_of_services_are_readable_and_no_secrets(control_plane: Template, name: Function) -> None:
    """Functions read the runtime documents and whose they are; secrets are for the instances alone."""
    (statement,) = _allowed(control_plane, name, "ssm:GetParameters")
    assert [flat(r).partition(":parameter")[2] for r in as_list(statement["Resource"])] == [
        "/spotrelay/services",
        "/spotrelay/services/*",
        "/spotrelay/control-plane",
    ]
    assert not _allowed(control_plane, name, "kms:Decrypt")

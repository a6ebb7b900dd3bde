"""What the functions' roles allow: nothing that isn't needed, nothing that isn't ours."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from spotrelay.plane.core.names import TAG_SERVICE
from stacks.permissions import AS_CDK_NAG_WRITES, Function, Place, actions, grants
from tests.template.support import (
    LEAVES,
    Template,
    as_list,
    flat,
    function,
    mapping_of,
    queue_of,
    refers_to,
)

FUNCTIONS = list(Function)

ONLY_OURS = {"Null": {f"aws:ResourceTag/{TAG_SERVICE}": "false"}}

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

OF_INSTANCES = {"ec2:DescribeInstances", "ec2:DescribeSpotInstanceRequests"}
OF_TARGETS = {"elasticloadbalancing:DescribeTargetHealth"}
OF_OFFERS = {
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceStatus",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeLaunchTemplateVersions",
    "ec2:DescribeSpotPriceHistory",
    "ec2:GetSpotPlacementScores",
    "pricing:GetProducts",
    "servicequotas:GetAWSDefaultServiceQuota",
    "servicequotas:GetServiceQuota",
}
OF_METRICS = {"cloudwatch:GetMetricData", "cloudwatch:DescribeAlarms"}
WITHOUT_NARROWER_RESOURCE = OF_INSTANCES | OF_TARGETS | OF_OFFERS | OF_METRICS
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
    """The signal's path, which an event of any instance of the account triggers, ends and stops nothing."""
    for action in ("ec2:TerminateInstances", "ec2:StopInstances", "ec2:GetConsoleOutput", *OF_INSTANCES):
        assert _allowed(control_plane, Function.RECONCILE, action)
        assert not _allowed(control_plane, Function.ON_SIGNAL, action)
        assert not _allowed(control_plane, Function.SURVEY, action)


def test_the_survey_asks_and_notes_and_touches_nothing(control_plane: Template) -> None:
    """It reads what EC2 offers, and services' documents and rows; it notes and tells what it found."""
    allowed = {a for s in _statements(control_plane, Function.SURVEY) for a in as_list(s["Action"])}
    documents = {"ssm:GetParameters", "ssm:GetParametersByPath"}
    table = {"dynamodb:PutItem", "dynamodb:GetItem", "dynamodb:Query"}
    assert allowed == OF_OFFERS | documents | OWN_LOG | table | {"sqs:SendMessage", "sqs:GetQueueAttributes"}
    to = {refers_to(send["Resource"]) for send in _allowed(control_plane, Function.SURVEY, "sqs:SendMessage")}
    dead_letters = function(control_plane, Function.SURVEY)["DeadLetterConfig"]["TargetArn"]
    assert to == {refers_to(dead_letters), queue_of(control_plane, "reconcile")}
    for action in OF_OFFERS:
        assert not _allowed(control_plane, Function.ON_SIGNAL, action)
        assert not _allowed(control_plane, Function.RECONCILE, action)


@pytest.mark.parametrize("action", ["RegisterTargets", "DeregisterTargets"])
@pytest.mark.parametrize("name", CONTROLLERS)
def test_foreign_target_groups_are_out_of_reach(control_plane: Template, action: str, name: Function) -> None:
    """Target groups without our tag can't be filled or emptied."""
    (statement,) = _allowed(control_plane, name, f"elasticloadbalancing:{action}")
    assert statement["Condition"] == ONLY_OURS


@pytest.mark.parametrize(
    ("name", "action"),
    [
        (Function.RECONCILE, "TerminateInstances"),
        (Function.RECONCILE, "StopInstances"),
        (Function.RECONCILE, "StartInstances"),
        (Function.RECONCILE, "GetConsoleOutput"),
        (Function.ON_SIGNAL, "StartInstances"),
    ],
)
def test_foreign_instances_are_out_of_reach(
    control_plane: Template, service_stack: Template, name: Function, action: str
) -> None:
    """What is ended, stopped, started or read has our tag, EC2's own of a template, a profile of our path."""
    (statement,) = _allowed(control_plane, name, f"ec2:{action}")
    condition = statement["Condition"]
    assert condition["Null"] == ONLY_OURS["Null"]
    assert condition["StringLike"] == {"aws:ResourceTag/aws:ec2launchtemplate:id": "lt-*"}
    profiles = "arn:<AWS::Partition>:iam::<AWS::AccountId>:instance-profile/spotrelay/*"
    assert flat(condition["ArnLike"]["ec2:InstanceProfile"]) == profiles
    profile = service_stack.id_with("AWS::IAM::InstanceProfile", "InstancesProfile")
    assert service_stack.all("AWS::IAM::InstanceProfile")[profile]["Path"] == "/spotrelay/"


MADE = {"instance", "network-interface", "volume"}
USED = {"capacity-reservation", "image", "security-group", "snapshot", "subnet"}
"""Kinds of resources for which RunInstances carries ec2:LaunchTemplate, of those that we may launch with.
Source: https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html"""


@pytest.mark.parametrize("name", CONTROLLERS)
def test_launches_are_ours(control_plane: Template, name: Function) -> None:
    """A launch is only possible from a launch template of ours, and only of instances that get our tag."""
    run, fleet = (_by_kind(control_plane, name, f"ec2:{a}") for a in ("RunInstances", "CreateFleet"))
    rest = {"launch-template", "spot-instances-request", "group"}
    assert set(run) == MADE | USED | rest
    assert set(fleet) == MADE | USED | rest | {"fleet"}
    assert run["launch-template"] == fleet["launch-template"] == ONLY_OURS
    tagged = {f"aws:RequestTag/{TAG_SERVICE}": "false"}
    assert [c["Null"] for c in (run["instance"], fleet["instance"], fleet["fleet"])] == [tagged] * 3
    templates = "arn:<AWS::Partition>:ec2:<AWS::Region>:<AWS::AccountId>:launch-template/*"
    for kind in MADE | USED:
        assert flat(run[kind]["ArnLike"]["ec2:LaunchTemplate"]) == templates, kind
    groups = "arn:<AWS::Partition>:resource-groups:<AWS::Region>:<AWS::AccountId>:group/*"
    (reserved,) = _allowed(control_plane, name, "resource-groups:ListGroupResources")
    assert flat(reserved["Resource"]) == groups
    # What a template names can't be replaced; instance type and subnet are for us to choose.
    for kind in ("image", "security-group"):
        assert run[kind]["Bool"] == {"ec2:IsLaunchTemplateResource": "true"}


@pytest.mark.parametrize("name", [Function.ON_SIGNAL, Function.RECONCILE])
def test_launches_are_ours_without_keys_of_templates_too(name: Function) -> None:
    """Where CreateFleet doesn't pass these keys on, the tags of template and instance hold all the same."""
    place = Place.without_own("aws", "us-east-1", "111122223333")
    with_keys, without = (
        [g for g in grants(name, replace(place, template_conditions=t)) if "ec2:RunInstances" in g.actions]
        for t in (True, False)
    )
    assert [(g.actions, g.resources) for g in with_keys] == [(g.actions, g.resources) for g in without]
    assert "LaunchTemplate" in str([g.condition for g in with_keys])
    assert "LaunchTemplate" not in str([g.condition for g in without])
    of_template, of_instance = (
        next(g for g in without if kind in str(g.resources)) for kind in (":launch-template/", ":instance/")
    )
    assert of_template.condition == ONLY_OURS
    assert of_instance.condition == {"Null": {f"aws:RequestTag/{TAG_SERVICE}": "false"}}


@pytest.mark.parametrize("name", CONTROLLERS)
def test_create_fleet_is_asked_for_no_key_that_it_lacks(control_plane: Template, name: Function) -> None:
    """EC2 gives CreateFleet neither key about templates: a condition on one would refuse every fleet."""
    conditions = str(_by_kind(control_plane, name, "ec2:CreateFleet"))
    assert "LaunchTemplate'" not in conditions
    assert "IsLaunchTemplateResource" not in conditions


def _by_kind(template: Template, name: Function, action: str) -> dict[str, dict[str, Any]]:
    """By kind of EC2's resources, the condition under which an action is allowed; one statement for each."""
    pairs = [
        (flat(resource).rpartition(":")[2].partition("/")[0], statement.get("Condition", {}))
        for statement in _allowed(template, name, action)
        for resource in as_list(statement["Resource"])
    ]
    assert len(pairs) == len({kind for kind, _ in pairs})
    return dict(pairs)


WRITES = {
    "dynamodb:PutItem": ["SERVICE#*", "HISTORY#*", "INSTANCE#*", "COOLDOWNS#*", "SERVICES"],
    "dynamodb:UpdateItem": ["SERVICE#*"],
    "dynamodb:DeleteItem": ["SERVICE#*", "SERVICES"],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_function_writes_its_own_partitions(control_plane: Template, name: Function) -> None:
    """The survey writes surveys and days alone, a widget nothing, the others all but those and history."""
    own = {Function.SURVEY: {"dynamodb:PutItem": ["SURVEY#*", "DAYS#*"]}, Function.WIDGET: {}}
    wanted: Mapping[str, Sequence[str]] = own.get(name, WRITES)
    for action in WRITES:
        limits = [s["Condition"]["ForAllValues:StringLike"] for s in _allowed(control_plane, name, action)]
        assert limits == ([{"dynamodb:LeadingKeys": wanted[action]}] if action in wanted else [])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_roles_policies_fit(control_plane: Template, name: Function) -> None:
    """IAM takes 10,240 characters of inline policies per role, 6,144 of a managed one, and tells late.

    Far from that the CDK splits no policy: its estimate isn't the same at each synthesis.
    """
    role = refers_to(function(control_plane, name)["Role"])

    def lengths(kind: str) -> dict[str, int]:  # with CloudFormation's own words for ARNs, which are longer
        return {
            id_: len(json.dumps(policy["PolicyDocument"], separators=(",", ":")))
            for id_, policy in control_plane.all(kind).items()
            if {"Ref": role} in policy.get("Roles", [])
        }

    inline, managed = lengths("AWS::IAM::Policy"), lengths("AWS::IAM::ManagedPolicy")
    assert sum(inline.values()) < 10_240
    assert all(length < 6_144 for length in managed.values())
    assert len(managed) == (name in CONTROLLERS)
    for id_ in inline if managed else ():
        assert managed.keys() <= control_plane.comes_after(id_), "an update leaves no moment without launches"


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
    assert roles[service_stack.id_with("AWS::IAM::Role", "InstancesRole")]["Path"] == "/spotrelay/"
    assert sum(role.get("Path") == "/spotrelay/" for role in roles.values()) == 1


@pytest.mark.parametrize("name", CONTROLLERS)
def test_a_function_takes_from_its_own_queue_and_sends_ticks(control_plane: Template, name: Function) -> None:
    """It receives from its own queues, and sends to those of the ticks and to its own dead letters."""
    queue = refers_to(mapping_of(control_plane, name)["EventSourceArn"])
    dead_letters = control_plane.all("AWS::SQS::Queue")[queue]["RedrivePolicy"]["deadLetterTargetArn"]
    ticked = {queue_of(control_plane, Function.RECONCILE, feed) for feed in ("", LEAVES)}
    receive = _allowed(control_plane, name, "sqs:ReceiveMessage")
    send = _allowed(control_plane, name, "sqs:SendMessage")
    assert {refers_to(s["Resource"]) for s in receive} == (ticked if name is Function.RECONCILE else {queue})
    sent_to = {refers_to(queue) for s in send for queue in as_list(s["Resource"])}
    assert sent_to == ticked | {refers_to(dead_letters)}


def test_the_tick_alone_tells_and_only_in_our_name(control_plane: Template) -> None:
    """On the default bus, with our source: nothing that it sends passes for AWS's or somebody else's."""
    for name in FUNCTIONS:
        statements = _allowed(control_plane, name, "events:PutEvents")
        assert len(statements) == (name is Function.RECONCILE)
        for statement in statements:
            assert flat(statement["Resource"]).endswith(":event-bus/default")
            assert statement["Condition"] == {"StringEquals": {"events:source": "spotrelay"}}


def test_our_own_events_wake_nobody_here(control_plane: Template) -> None:
    """Every rule matches sources of AWS's, or is a schedule."""
    rules = control_plane.all("AWS::Events::Rule").values()
    sources = [rule["EventPattern"]["source"] for rule in rules if "EventPattern" in rule]
    assert len(sources) > 1
    assert all(source.startswith("aws.") for one in sources for source in one)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parameters_of_services_are_readable_and_no_secrets(control_plane: Template, name: Function) -> None:
    """Functions read the runtime documents and whose they are; secrets are for the instances alone."""
    assert _parameters(control_plane, name, "ssm:GetParameters") == [
        ["/spotrelay/services/*", "/spotrelay/control-plane"]
    ]
    # A signal names its instance, and that its service: only the others look for all.
    everyone = [["/spotrelay/services", "/spotrelay/services/*"]]
    found = _parameters(control_plane, name, "ssm:GetParametersByPath")
    assert found == ([] if name is Function.ON_SIGNAL else everyone)


def _parameters(template: Template, name: Function, action: str) -> list[list[str]]:
    return [
        [flat(resource).partition(":parameter")[2] for resource in as_list(statement["Resource"])]
        for statement in _allowed(template, name, action)
    ]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_key_is_usable_without_being_named(control_plane: Template, name: Function) -> None:
    """AWS's own key for EBS needs no permission, so there is none unless a key is given."""
    assert not [a for s in _statements(control_plane, name) for a in as_list(s["Action"]) if "kms:" in a]


KEY = "arn:aws:kms:us-east-1:000000000000:key/00000000-0000-0000-0000-000000000001"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_given_key_is_used_through_ec2_only(name: Function) -> None:
    """Who launches may have EC2 use the key, and let EC2 hand it on to the instance's disk; nothing else."""
    place = replace(AS_CDK_NAG_WRITES, region="us-east-1", kms_key_arn=KEY)
    using = {
        action: grant
        for grant in grants(name, place)
        for action in grant.actions
        if action.startswith("kms:")
    }
    if name in (Function.SURVEY, Function.WIDGET):
        assert using == {}
        return
    assert set(using) == {
        "kms:CreateGrant",
        "kms:Decrypt",
        "kms:DescribeKey",
        "kms:GenerateDataKeyWithoutPlaintext",
        "kms:ReEncryptFrom",
        "kms:ReEncryptTo",
    }
    assert {grant.resources for grant in using.values()} == {(KEY,)}
    for grant in using.values():
        assert grant.condition["StringEquals"]["kms:ViaService"][0] == "ec2.us-east-1.amazonaws.com"
    assert using["kms:CreateGrant"].condition["Bool"] == {"kms:GrantIsForAWSResource": "true"}

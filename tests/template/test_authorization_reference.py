"""Every grant of ours, read by a program that knows AWS's Service Authorization Reference.

It knows which actions there are, which resources and condition keys each of them has, not our stacks:
a key that an action doesn't have makes a condition that is never true, or one that never refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from policy_sentry.querying.actions import get_action_data

from spotrelay.plane.core.names import TAG_SERVICE
from stacks.application import SERVICE_PREFIX
from tests.template.conftest import SERVICE_FILES, synthesize
from tests.template.support import Properties, Template, as_list, flat
from tests.template.test_bring_your_own import GROUP, PROFILE, TARGET_GROUP, settings, write

OUR_TAG = f"aws:ResourceTag/{TAG_SERVICE}"

GLOBAL_KEYS = {
    "aws:PrincipalAccount": "the one who asks",
    "aws:ResourceAccount": "the resource's account: https://docs.aws.amazon.com/IAM/latest/UserGuide/"
    "reference_policies_condition-keys.html#condition-keys-resourceaccount",
    "aws:SecureTransport": "whether TLS is used",
    "lambda:SourceFunctionArn": "the function that calls: https://docs.aws.amazon.com/lambda/latest/dg/"
    "permissions-source-function-arn.html",
}
"""Keys that any action has, which the reference doesn't list with each."""

EVERYWHERE = {
    "ec2:AssignPrivateIpAddresses": "Lambda's own, for a function in a VPC; denied to the function itself",
    "ec2:CreateNetworkInterface": "the same",
    "ec2:DeleteNetworkInterface": "the same",
    "ec2:UnassignPrivateIpAddresses": "the same",
    "cloudwatch:DescribeAlarms": "composite alarms are shown to nobody with a narrower scope: "
    "https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_DescribeAlarms.html",
    "logs:GetQueryResults": "it names a query's ID, and who started it may read those log groups",
    "servicequotas:GetServiceQuota": "it reads one number; whether AWS asks for the quota's ARN, no account"
    " has shown yet",
    "ssm:UpdateInstanceInformation": "an instance's own, as AWS's policy for Session Manager has it",
}
"""Actions that know a resource and are granted on all of them, and why."""

BY_TAG_ALONE = {
    "ec2:CreateFleet": "our templates: who tags a template could as well write one of ours",
    "ec2:RunInstances": "the same",
    "elasticloadbalancing:DeregisterTargets": "ELB knows no other mark of a target group",
    "elasticloadbalancing:RegisterTargets": "the same",
    "fis:DeleteExperimentTemplate": "FIS knows no other mark; not closed yet, see docs/security.md",
    "fis:GetExperiment": "the same",
    "fis:StartExperiment": "the same",
    "fis:StopExperiment": "the same",
}
"""Actions that are granted by our tag, which anybody can set who may tag, and nothing else; and why."""


UNLISTED = {
    ("ec2:CreateFleet", "capacity-reservation"): "in one statement with RunInstances, which knows it",
    ("ec2:CreateFleet", "group"): "the same",
    ("ec2:CreateFleet", "network-interface"): "the same",
    ("ec2:CreateFleet", "security-group"): "the same",
    ("ec2:CreateFleet", "snapshot"): "the same",
    ("ec2:CreateFleet", "spot-instances-request"): "the same",
    (
        "ec2:RunInstances",
        "spot-instances-request",
    ): "a Spot launch is checked for it: https://docs.aws.amazon.com"
    "/AWSEC2/latest/UserGuide/ExamplePolicies_EC2.html",
}
"""Types of resources that actions are granted on, and that the reference doesn't list with them; and why."""


@dataclass(frozen=True)
class Granted:
    """One action of one statement."""

    action: str
    resources: tuple[str, ...]
    keys: frozenset[str]
    """Of its condition."""
    effect: str

    def __str__(self) -> str:
        return f"{self.action} on {', '.join(self.resources)}"


def _documents(template: Template) -> Iterator[Properties]:
    for resource in template.body["Resources"].values():
        properties = resource.get("Properties", {})
        match resource["Type"]:
            case "AWS::IAM::Policy" | "AWS::IAM::ManagedPolicy":
                yield properties["PolicyDocument"]
            case "AWS::IAM::Role":
                yield from (policy["PolicyDocument"] for policy in properties.get("Policies", ()))


def granted(template: Template) -> list[Granted]:
    """Everything that a template's policies say of what its roles, or people, may do."""
    return [
        Granted(
            action,
            tuple(map(flat, as_list(statement["Resource"]))),
            frozenset(key for keys in statement.get("Condition", {}).values() for key in keys),
            statement["Effect"],
        )
        for document in _documents(template)
        for statement in as_list(document["Statement"])
        for action in as_list(statement["Action"])
    ]


@pytest.fixture(scope="module")
def all_granted(
    assembly: Path, control_plane: Template, scaled: Template, tmp_path_factory: pytest.TempPathFactory
) -> list[Granted]:
    """Of every stack, one of a service that brings a target group and a profile among them."""
    services = [Template.read(assembly, SERVICE_PREFIX + name) for name in SERVICE_FILES]
    directory = tmp_path_factory.mktemp("brought")
    own = {"security_groups": [GROUP], "target_group": TARGET_GROUP, "instance_profile": PROFILE}
    out = synthesize(directory / "out", settings(write(directory, own)))
    brought = Template.read(out, SERVICE_PREFIX + "chat")
    return [one for template in (control_plane, *services, scaled, brought) for one in granted(template)]


@cache
def _reference(action: str) -> list[dict[str, Any]]:
    """What AWS says of an action: a row for each type of resource, one for none (`*`)."""
    service, _, name = action.partition(":")
    found = get_action_data(service, name)
    return found[service] if found else []


def _is_of_type(resource: str, pattern: str) -> bool:
    """Whether an ARN of ours may be one of the type that AWS writes so."""
    ours, kind = (re.sub(r"<.*?>|\$\{.*?\}", "*", arn).split(":", 5) for arn in (resource, pattern))
    if len(ours) < 6:  # the ARN of one of the stack's own resources, of the type that the template says
        return ours == ["*"] and pattern != "*"
    start, end = ours[5].partition("*")[0], kind[-1].partition("*")[0]
    return len(kind) == len(ours) and ours[2] == kind[2] and (start.startswith(end) or end.startswith(start))


def test_every_action_is_one_of_awss(all_granted: list[Granted]) -> None:
    """A slip in a name grants nothing, and is seen in a real account only."""
    assert [one.action for one in all_granted if not _reference(one.action)] == []


def test_everywhere_is_granted_only_what_knows_no_resource(all_granted: list[Granted]) -> None:
    """On `*`, AWS has nothing narrower; of what has, each exception is there and has its reason."""
    everywhere = {one.action for one in all_granted if "*" in one.resources and one.effect == "Allow"}
    narrower = {a for a in everywhere if any(r["resource_arn_format"] != "*" for r in _reference(a))}
    assert narrower == set(EVERYWHERE)


def test_each_resource_is_of_a_type_that_its_action_knows(all_granted: list[Granted]) -> None:
    """Otherwise the grant is of nothing; each exception is there and has its reason."""
    strange = {
        (one.action, resource.rpartition(":")[2].partition("/")[0])
        for one in all_granted
        for resource in one.resources
        if resource != "*"
        if not any(_is_of_type(resource, r["resource_arn_format"]) for r in _reference(one.action))
    }
    assert strange == set(UNLISTED)


def test_each_condition_has_keys_that_its_action_knows(all_granted: list[Granted]) -> None:
    """A key that isn't there is no limit where it may be missing, and no grant where it must be."""
    strange = [
        f"{one}: {key}"
        for one in all_granted
        for key in one.keys - GLOBAL_KEYS.keys()
        if re.sub(r"(Tag/).*", r"\1${TagKey}", key)
        not in {known for row in _reference(one.action) for known in row["condition_keys"]}
    ]
    assert strange == []


def test_our_tag_alone_opens_only_what_has_no_better_mark(all_granted: list[Granted]) -> None:
    """Who may tag anything can set it, so no instance is ours by it."""
    by_tag = {one.action for one in all_granted if one.keys == {OUR_TAG} and one.effect == "Allow"}
    assert by_tag == set(BY_TAG_ALONE)

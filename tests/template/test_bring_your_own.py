"""What a service brings is used instead of what the stack would make; the functions may use only that."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from spotrelay.file.service import ServiceFileError, load
from spotrelay.plane.core.spec import ServiceSpec
from stacks.application import CONTROL_PLANE, SERVICE_PREFIX
from stacks.permissions import Function
from stacks.settings import AppSettings
from tests.template.conftest import synthesize
from tests.template.support import Template, alarms_of, as_list, document_text, metrics_of, refers_to

GROUP = "sg-0123456789abcdef0"
ELB = "arn:aws:elasticloadbalancing:us-east-1:000000000000"
TARGET_GROUP = f"{ELB}:targetgroup/old/0123456789abcdef"
LISTENER = f"{ELB}:listener/app/web/0123456789abcdef/fedcba9876543210"
PROFILE = "arn:aws:iam::000000000000:instance-profile/gpu"
ROLE = "arn:aws:iam::000000000000:role/gpu"
IN_US_EAST_1 = {"account": "000000000000", "region": "us-east-1"}
NETWORK = {
    "vpc_id": "vpc-00000001",
    "subnets": "subnet-00000001=us-east-1a,subnet-00000002=us-east-1b",
}
PROBE = {"path": "/v1", "post_data": {"a": 1}}

Stack = Callable[..., Template]


def write(directory: Path, own: Mapping[str, Any], name: str = "chat", **service: Any) -> Path:
    """A service file with this section of ours."""
    values = {
        "name": name,
        "service": {"replicas": 2, **service},
        "resources": {"accelerators": "A10G", "ports": 8080},
        "secrets": {"TOKEN": "/chat/token"},
        "spotrelay": own,
        "run": "serve",
    }
    file = directory / f"{name}.yaml"
    file.write_text(json.dumps(values), encoding="utf-8")  # JSON is YAML
    return file


def settings(*files: Path, **context: Any) -> AppSettings:
    """In a VPC that exists, unless it says otherwise."""
    return AppSettings.from_context(
        {**NETWORK, **IN_US_EAST_1, "services": [str(file) for file in files], **context}.get
    )


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """Synthesize a service with this section of ours; its template."""

    def synthesized(own: Mapping[str, Any], **service: Any) -> Template:
        directory = tmp_path_factory.mktemp("given")
        out = synthesize(directory / "out", settings(write(directory, own, **service)))
        # What the stack imports, the control plane exports.
        exports = [
            str(output["Export"]["Name"])
            for output in Template.read(out, CONTROL_PLANE).body["Outputs"].values()
            if "Export" in output
        ]
        template = Template.read(out, SERVICE_PREFIX + "chat")
        roles = [role for p in template.all("AWS::IAM::ManagedPolicy").values() for role in p["Roles"]]
        assert {role["Fn::ImportValue"] for role in roles} <= set(exports)
        return template

    return synthesized


@pytest.fixture(scope="module")
def behind_group(stack: Stack) -> Template:
    """A service in a target group and with a profile that exist."""
    own = {"security_groups": [GROUP], "target_group": TARGET_GROUP, "instance_profile": PROFILE}
    return stack(own)


@pytest.fixture(scope="module")
def behind_listener(stack: Stack) -> Template:
    """A probed service at a listener that exists."""
    rule = {"arn": LISTENER, "priority": 7, "paths": ["/chat/*"], "hosts": ["a.example.com"]}
    return stack({"security_groups": [GROUP], "listener": rule}, readiness_probe=PROBE)


def launched(template: Template) -> dict[str, Any]:
    """What the launch template says."""
    data: dict[str, Any] = template.only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]
    return data


def document(template: Template) -> ServiceSpec:
    """What the controller reads."""
    return ServiceSpec.from_json(document_text(template, "1"))


def granted(template: Template, function: Function) -> list[dict[str, Any]]:
    """What a function of the control plane may do besides, by the service's stack."""
    return [
        statement
        for policy in template.all("AWS::IAM::ManagedPolicy").values()
        if [role["Fn::ImportValue"] for role in policy["Roles"]]
        == [f"SpotRelay-role-{function.replace('_', '-')}"]
        for statement in policy["PolicyDocument"]["Statement"]
    ]


def allowed(template: Template, function: Function, action: str) -> list[dict[str, Any]]:
    """The statements among those that allow an action."""
    return [s for s in granted(template, function) if action in as_list(s["Action"])]


def test_peers_reach_each_other_beside_groups_that_exist(stack: Stack) -> None:
    """By a group of ours that lets in nobody else, where nothing of ours needs one besides."""
    models = [{"source": "s3://weights/llama", "path": "/models/llama"}]
    own = {"security_groups": [GROUP], "target_group": TARGET_GROUP, "instance_profile": PROFILE}
    template = stack({**own, "peers": True, "models": models})
    group, *others = launched(template)["SecurityGroupIds"]
    (rule,) = template.all("AWS::EC2::SecurityGroupIngress").values()
    assert others == [GROUP]
    assert (rule["GroupId"], rule["SourceSecurityGroupId"], rule["FromPort"]) == (group, group, 7420)


def test_a_given_target_group_is_the_services(behind_group: Template) -> None:
    """The controller is told of it, and neither a balancer, a group nor a listener is made."""
    assert document(behind_group).target_group_arn == TARGET_GROUP
    assert document(behind_group).load_balancer == ""
    types = {resource["Type"] for resource in behind_group.body["Resources"].values()}
    assert not [type_ for type_ in types if "ElasticLoadBalancing" in type_]
    assert "Endpoint" not in behind_group.body["Outputs"]


def test_a_given_listener_gets_a_rule(behind_listener: Template) -> None:
    """It forwards what the file says to the service's own target group, with the file's priority."""
    (group,) = behind_listener.all("AWS::ElasticLoadBalancingV2::TargetGroup")
    rule = behind_listener.only("AWS::ElasticLoadBalancingV2::ListenerRule")
    assert {name: value for name, value in rule.items() if name != "Tags"} == {
        "ListenerArn": LISTENER,
        "Priority": 7,
        "Conditions": [
            {"Field": "path-pattern", "Values": ["/chat/*"]},
            {"Field": "host-header", "Values": ["a.example.com"]},
        ],
        "Actions": [{"Type": "forward", "TargetGroupArn": {"Ref": group}}],
    }
    for made in ("LoadBalancer", "Listener"):
        assert not behind_listener.all(f"AWS::ElasticLoadBalancingV2::{made}")


def test_a_given_listener_tells_its_balancer(behind_listener: Template) -> None:
    """Requests and answers are counted under its name, and the alarm is of this service's answers alone."""
    assert document(behind_listener).load_balancer == "app/web/0123456789abcdef"
    alarms = alarms_of(behind_listener, "chat")
    for alarm in ("SlowAnswers", "Elb5xx"):
        of_balancer = [m for m in metrics_of(alarms[alarm]) if m["Namespace"] == "AWS/ApplicationELB"]
        assert of_balancer
        for metric in of_balancer:
            assert [one["Name"] for one in metric["Dimensions"]] == ["LoadBalancer", "TargetGroup"]


def test_the_document_comes_after_the_rule_and_the_rights(
    behind_listener: Template, behind_group: Template
) -> None:
    """What the controller acts on is there before it is told, and stays until all replicas have gone."""
    for template, type_ in (
        (behind_listener, "AWS::ElasticLoadBalancingV2::ListenerRule"),
        (behind_group, "AWS::IAM::ManagedPolicy"),
    ):
        removal = template.id_with("Custom::SpotRelayReplicas", "")
        parameter = template.id_with("AWS::SSM::Parameter", "")
        for needed in template.all(type_):
            assert needed in template.comes_after(removal)
            assert needed in template.comes_after(parameter)


def test_given_groups_decide_alone_where_nothing_of_ours_comes_in(behind_group: Template) -> None:
    """No group is made, so nothing is opened beside the user's."""
    assert launched(behind_group)["SecurityGroupIds"] == [GROUP]
    assert not behind_group.all("AWS::EC2::SecurityGroup")


def test_beside_given_groups_ours_lets_in_the_probe_and_opens_nothing_else(
    behind_listener: Template,
) -> None:
    """The instances may connect to what the user's groups allow: one of ours would allow everything."""
    ours, theirs = launched(behind_listener)["SecurityGroupIds"]
    assert theirs == GROUP
    group = behind_listener.all("AWS::EC2::SecurityGroup")[refers_to(ours)]
    assert [rule["Description"] for rule in group["SecurityGroupEgress"]] == ["Disallow all traffic"]
    rules = behind_listener.all("AWS::EC2::SecurityGroupIngress").values()
    found = [*group.get("SecurityGroupIngress", ()), *rules]
    assert [rule["Description"] for rule in found] == ["readiness probes"]


def test_given_groups_come_beside_the_balancers(stack: Stack) -> None:
    """Where the balancer is SpotRelay's, its group and the prober's are let in by one of ours."""
    template = stack({"security_groups": [GROUP]})
    ours, theirs = launched(template)["SecurityGroupIds"]
    assert theirs == GROUP
    group = template.all("AWS::EC2::SecurityGroup")[refers_to(ours)]
    rules = [*group.get("SecurityGroupIngress", ()), *template.all("AWS::EC2::SecurityGroupIngress").values()]
    assert [rule["Description"] for rule in rules] == ["requests and health checks", "readiness probes"]


def test_a_given_profile_is_the_instances(behind_group: Template) -> None:
    """No profile is made, nor any role that EC2 may take."""
    assert launched(behind_group)["IamInstanceProfile"] == {"Arn": PROFILE}
    assert not behind_group.all("AWS::IAM::InstanceProfile")
    roles = behind_group.all("AWS::IAM::Role").values()
    assert not [role for role in roles if "ec2" in str(role["AssumeRolePolicyDocument"])]


@pytest.mark.parametrize("function", [Function.ON_SIGNAL, Function.RECONCILE])
def test_the_functions_may_use_what_is_given_and_nothing_more(
    behind_group: Template, function: Function
) -> None:
    """That target group, and that role for EC2 alone: by their ARNs, without any wildcard."""
    for action in ("RegisterTargets", "DeregisterTargets"):
        (routing,) = allowed(behind_group, function, f"elasticloadbalancing:{action}")
        assert routing["Resource"] == TARGET_GROUP
    (passing,) = allowed(behind_group, function, "iam:PassRole")
    assert passing["Resource"] == ROLE
    assert list(passing["Condition"]["StringEquals"]) == ["iam:PassedToService"]


def test_a_role_of_another_name_is_the_one_that_is_passed(stack: Stack) -> None:
    """A profile doesn't tell its role: the file may."""
    role = "arn:aws:iam::000000000000:role/team/serving"
    template = stack({"instance_profile": {"arn": PROFILE, "role": role}})
    (passing,) = allowed(template, Function.RECONCILE, "iam:PassRole")
    assert passing["Resource"] == role


def test_what_ends_instances_is_limited_to_the_services(behind_group: Template) -> None:
    """Those with the profile, from a template; and what an operator handed over. The signal ends nothing."""
    with_profile, adopted = allowed(behind_group, Function.RECONCILE, "ec2:TerminateInstances")
    assert with_profile["Condition"] == {
        "StringEquals": {"aws:ResourceTag/spotrelay:service": "chat"},
        "StringLike": {"aws:ResourceTag/aws:ec2launchtemplate:id": "lt-*"},
        "ArnEquals": {"ec2:InstanceProfile": PROFILE},
    }
    assert adopted["Condition"] == {
        "StringEquals": {"aws:ResourceTag/spotrelay:service": "chat"},
        "Null": {"aws:ResourceTag/spotrelay:adopted": "false"},
    }
    assert as_list(adopted["Action"]) == ["ec2:TerminateInstances"]
    assert not allowed(behind_group, Function.ON_SIGNAL, "ec2:TerminateInstances")
    (reading,) = allowed(behind_group, Function.RECONCILE, "ec2:GetConsoleOutput")
    assert reading["Condition"] == with_profile["Condition"]
    (starting,) = allowed(behind_group, Function.ON_SIGNAL, "ec2:StartInstances")
    assert starting["Condition"] == with_profile["Condition"]


def test_a_drill_may_interrupt_the_services(behind_group: Template) -> None:
    """The role that FIS gets, which knows our own profiles only."""
    (interrupting,) = (
        statement
        for policy in behind_group.all("AWS::IAM::ManagedPolicy").values()
        if "SpotRelay-role-drill" in json.dumps(policy["Roles"])
        for statement in policy["PolicyDocument"]["Statement"]
    )
    (ending, _) = allowed(behind_group, Function.RECONCILE, "ec2:TerminateInstances")
    assert as_list(interrupting["Action"]) == ["ec2:SendSpotInstanceInterruptions"]
    assert interrupting["Condition"] == ending["Condition"]


def test_a_service_that_brings_nothing_grants_nothing(service_stack: Template) -> None:
    """No policy of the functions' is in its stack; nor for one that brings what bears our tags."""
    assert not service_stack.all("AWS::IAM::ManagedPolicy")


def test_a_service_at_a_given_listener_grants_nothing(behind_listener: Template) -> None:
    """Its target group is made by the stack, so the functions may use it by its tag."""
    assert not behind_listener.all("AWS::IAM::ManagedPolicy")


@pytest.mark.parametrize(
    ("own", "context", "expected"),
    [
        (
            {"target_group": TARGET_GROUP, "security_groups": [GROUP]},
            {"region": "eu-west-1", **dict.fromkeys(NETWORK, "")},
            "spotrelay.target_group: its region is us-east-1, and this would deploy to eu-west-1: name one",
        ),
        (
            {"instance_profile": PROFILE},
            {"account": "111111111111"},
            "spotrelay.instance_profile.arn: its account is 000000000000, and this would deploy to"
            " 111111111111: name one there",
        ),
        (
            {"instance_profile": PROFILE},
            {"region": "cn-north-1", **dict.fromkeys(NETWORK, "")},
            "spotrelay.instance_profile.arn: its partition is aws, and this would deploy to aws-cn: name one"
            " there",
        ),
        (
            {"security_groups": [GROUP]},
            dict.fromkeys(NETWORK, ""),
            "spotrelay.security_groups: is in a VPC that exists, and without one named SpotRelay makes its",
        ),
        (
            {"target_group": TARGET_GROUP, "security_groups": [GROUP]},
            {"api_keys": "web"},
            "spotrelay.target_group: context api_keys is for load balancers of SpotRelay's own, and yours"
            " would serve without a key:",
        ),
    ],
)
def test_what_is_given_suits_the_deployment(
    tmp_path: Path, own: dict[str, Any], context: dict[str, str], expected: str
) -> None:
    """Else nothing is synthesized, and the error says which field, what is wrong, and what to do."""
    with pytest.raises(ServiceFileError) as caught:
        synthesize(tmp_path / "out", settings(write(tmp_path, own), **context))
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        ({"target_group": TARGET_GROUP}, {"target_group": TARGET_GROUP}, "chat has the same target group"),
        (
            {"listener": {"arn": LISTENER, "priority": 7, "paths": ["/a"]}},
            {"listener": {"arn": LISTENER, "priority": 7, "paths": ["/b"]}},
            "chat has a rule of the same priority at the same listener",
        ),
        (
            {"listener": {"arn": LISTENER, "priority": 7, "paths": ["/a"]}},
            {"listener": {"arn": LISTENER, "priority": 8, "paths": ["/b"]}},
            "",
        ),
    ],
)
def test_two_services_bring_what_both_can_have(
    tmp_path: Path, one: dict[str, Any], two: dict[str, Any], expected: str
) -> None:
    """ELB would refuse the second rule in the middle of a deployment."""
    from stacks import placement

    files = [
        write(tmp_path, {**own, "security_groups": [GROUP]}, name)
        for own, name in ((one, "chat"), (two, "draw"))
    ]
    found = [str(problem) for problem in placement.conflicts([load(file) for file in files])]
    assert [expected in problem for problem in found] == ([True] if expected else [])

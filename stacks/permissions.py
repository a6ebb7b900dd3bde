"""What each function may do, in one place: IAM policies are made from it, tests hold real calls against it.

Wherever AWS can limit an action to our own resources, it is limited: by name, by path, or by the tag
`spotrelay:service`, which everything of ours carries. Where it can't, the grant says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from aws_cdk import aws_iam as iam

from spotrelay.names import (
    CONTROL_PLANE_PARAMETER,
    INSTANCE_ROLE_PATH,
    SERVICES_PATH,
    TAG_SERVICE,
    prober_function,
)


class Function(StrEnum):
    """The functions, by the name of their module in lambdas/."""

    ON_SIGNAL = "on_signal"
    RECONCILE = "reconcile"
    SURVEY = "survey"


@dataclass(frozen=True)
class Place:
    """Where the grants hold: tokens at synth, any text in tests."""

    partition: str
    region: str
    account: str
    table_arn: str
    tick_queue_arn: str
    dead_letter_queue_arns: Mapping[Function, str]

    def ec2(self, *kinds: str) -> tuple[str, ...]:
        """Every EC2 resource of these kinds in this account and region; images and snapshots of any owner."""
        ownerless = ("image", "snapshot")
        return tuple(
            f"arn:{self.partition}:ec2:{self.region}:{'' if kind in ownerless else self.account}:{kind}/*"
            for kind in kinds
        )

    def arn(self, service: str, resource: str, *, region: str | None = None) -> str:
        """An ARN in this account, and in this region unless the service is global (`region=""`)."""
        where = self.region if region is None else region
        return f"arn:{self.partition}:{service}:{where}:{self.account}:{resource}"


Condition = Mapping[str, Mapping[str, str | list[str]]]

ONLY_OUR_RESOURCES: Condition = {"Null": {f"aws:ResourceTag/{TAG_SERVICE}": "false"}}
ONLY_TAGGED_AS_OURS: Condition = {"Null": {f"aws:RequestTag/{TAG_SERVICE}": "false"}}


@dataclass(frozen=True)
class Grant:
    """Actions on resources, and why a function needs them."""

    why: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    condition: Condition = field(default_factory=dict)

    def statement(self) -> iam.PolicyStatement:
        """The grant as IAM writes it."""
        return iam.PolicyStatement(
            actions=list(self.actions), resources=list(self.resources), conditions=dict(self.condition)
        )


def grants(function: Function, place: Place) -> tuple[Grant, ...]:
    """Everything `function` may do beyond taking from its own queue and writing its own log."""
    if function is Function.SURVEY:
        return (_services(place), *_surveying(place), _setting_aside(function, place))
    common = (*_state(place), *_routing(place), *_launching(place), _setting_aside(function, place))
    match function:
        case Function.ON_SIGNAL:
            return common
        case Function.RECONCILE:
            return (*common, *_observing(), *_probing(place), *_terminating(place))


AS_CDK_NAG_WRITES = Place(
    partition="<AWS::Partition>",
    region="<AWS::Region>",
    account="<AWS::AccountId>",
    table_arn="",
    tick_queue_arn="",
    dead_letter_queue_arns=dict.fromkeys(Function, ""),
)


def wildcards(function: Function) -> dict[str, str]:
    """Every resource with a wildcard, as cdk-nag writes it, and why the function may use it."""
    reasons: dict[str, list[str]] = {}
    for grant in grants(function, AS_CDK_NAG_WRITES):
        for resource in grant.resources:
            if "*" in resource:
                reasons.setdefault(resource, []).append(grant.why)
    return {resource: "; ".join(whys) for resource, whys in reasons.items()}


def actions(granted: Iterable[Grant]) -> frozenset[str]:
    """Every action of the grants."""
    return frozenset(action for grant in granted for action in grant.actions)


def _state(place: Place) -> tuple[Grant, ...]:
    return (
        Grant(
            "read and write replicas; a transaction needs the rights of the writes in it",
            tuple(
                f"dynamodb:{action}"
                for action in (
                    "GetItem", "BatchGetItem", "Query",
                    "PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem",
                )
            ),
            (place.table_arn,),
        ),
        _services(place),
        Grant(
            "have the next tick come in seconds while something is in transition",
            ("sqs:SendMessage",),
            (place.tick_queue_arn,),
        ),
    )  # fmt: skip


def _services(place: Place) -> Grant:
    return Grant(
        "read the runtime documents that the service stacks wrote, and whose they are to act on",
        ("ssm:GetParameters", "ssm:GetParametersByPath"),
        tuple(
            place.arn("ssm", f"parameter{name}")
            for name in (SERVICES_PATH, f"{SERVICES_PATH}/*", CONTROL_PLANE_PARAMETER)
        ),
    )


def _setting_aside(function: Function, place: Place) -> Grant:
    return Grant(
        "set a message aside at once that no retry would mend, and say why",
        ("sqs:SendMessage",),
        (place.dead_letter_queue_arns[function],),
    )


def _routing(place: Place) -> tuple[Grant, ...]:
    return (
        Grant(
            "take replicas into and out of rotation",
            ("elasticloadbalancing:RegisterTargets", "elasticloadbalancing:DeregisterTargets"),
            (place.arn("elasticloadbalancing", "targetgroup/*"),),
            ONLY_OUR_RESOURCES,
        ),
    )


def _launching(place: Place) -> tuple[Grant, ...]:
    launch = ("ec2:CreateFleet", "ec2:RunInstances")
    return (
        Grant(
            "launch from our launch templates only",
            launch,
            place.ec2("launch-template"),
            ONLY_OUR_RESOURCES,
        ),
        Grant(
            "launch no instance that doesn't carry our tag: nothing we start can be lost sight of",
            launch,
            place.ec2("instance"),
            ONLY_TAGGED_AS_OURS,
        ),
        Grant(
            "what a launch uses or makes besides; the launch template says which, and it must be ours",
            launch,
            place.ec2(
                "fleet", "image", "network-interface", "security-group", "snapshot", "spot-instances-request",
                "subnet", "volume",
            ),
        ),
        Grant(
            "tag what a launch makes, at the launch and never later",
            ("ec2:CreateTags",),
            place.ec2("fleet", "instance", "network-interface", "spot-instances-request", "volume"),
            {"StringEquals": {"ec2:CreateAction": ["CreateFleet", "RunInstances"]}},
        ),
        Grant(
            "give an instance its service's role, and no other role to anything",
            ("iam:PassRole",),
            (place.arn("iam", f"role{INSTANCE_ROLE_PATH}*", region=""),),
            {"StringEquals": {"iam:PassedToService": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]}},
        ),
        Grant(
            "an account's first Spot request and first fleet make these two roles of EC2's own",
            ("iam:CreateServiceLinkedRole",),
            tuple(
                place.arn("iam", f"role/aws-service-role/{service}/*", region="")
                for service in ("spot.amazonaws.com", "ec2fleet.amazonaws.com")
            ),
            {"StringEquals": {"iam:AWSServiceName": ["spot.amazonaws.com", "ec2fleet.amazonaws.com"]}},
        ),
    )  # fmt: skip


def _observing() -> tuple[Grant, ...]:
    return (
        Grant(
            "see what is there; AWS offers no narrower resource for these read-only calls",
            (
                "ec2:DescribeInstances",
                "ec2:DescribeSpotInstanceRequests",
                "elasticloadbalancing:DescribeTargetHealth",
            ),
            ("*",),
        ),
    )


def _surveying(place: Place) -> tuple[Grant, ...]:
    return (
        Grant("keep what was found; it reads nothing there", ("dynamodb:PutItem",), (place.table_arn,)),
        Grant(
            "ask what EC2 offers, at which price and within which quotas; AWS offers no narrower resource for"
            " these read-only calls",
            (
                "ec2:DescribeAvailabilityZones",
                "ec2:DescribeInstanceTypeOfferings",
                "ec2:DescribeInstanceTypes",
                "ec2:DescribeSpotPriceHistory",
                "ec2:GetSpotPlacementScores",
                "pricing:GetProducts",
                "servicequotas:GetServiceQuota",
            ),
            ("*",),
        ),
    )


def _probing(place: Place) -> tuple[Grant, ...]:
    return (
        Grant(
            "have a service's own function ask its replicas whether they are ready",
            ("lambda:InvokeFunction",),
            (place.arn("lambda", f"function:{prober_function('*')}"),),
        ),
    )


def _terminating(place: Place) -> tuple[Grant, ...]:
    return (
        Grant(
            "terminate drained replicas and orphans",
            ("ec2:TerminateInstances",),
            place.ec2("instance"),
            ONLY_OUR_RESOURCES,
        ),
    )

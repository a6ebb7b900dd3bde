"""What each function may do, in one place: IAM policies are made from it, tests hold real calls against it.

Wherever AWS can limit an action to our own resources, it is limited: by name, by path, by the table's
partition, or by the tag `spotrelay:service`, which everything of ours carries. Where it can't, the grant says
so. AWS's Service Authorization Reference says which condition keys an action knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import IConstruct

from spotrelay.plane.core.names import (
    CONTROL_PLANE_PARAMETER,
    EVENT_SOURCE,
    INSTANCE_ROLE_PATH,
    SERVICES_PATH,
    TAG_ADOPTED,
    TAG_LAUNCH_TEMPLATE,
    TAG_SERVICE,
    Partition,
    prober_function,
)
from stacks.validation import acknowledge


class Function(StrEnum):
    """The functions, by the name of their module in lambdas/."""

    ON_SIGNAL = "on_signal"
    RECONCILE = "reconcile"
    SURVEY = "survey"
    WIDGET = "widget"


@dataclass(frozen=True)
class Place:
    """Where the grants hold: tokens at synth, any text in tests."""

    partition: str
    region: str
    account: str
    table_arn: str
    tick_queue_arn: str
    leave_queue_arn: str
    dead_letter_queue_arn: str
    surveys_failed_arn: str
    kms_key_arn: str | None = None
    """The customer-managed key that encrypts the instances' disks, if there is one."""
    template_conditions: bool = True
    """Whether a launch must carry EC2's condition keys about its template."""

    def ec2(self, *kinds: str) -> tuple[str, ...]:
        """Every EC2 resource of these kinds in this account and region; images and snapshots of any owner."""
        ownerless = ("image", "snapshot")
        return tuple(
            f"arn:{self.partition}:ec2:{self.region}:{'' if kind in ownerless else self.account}:{kind}/*"
            for kind in kinds
        )

    @classmethod
    def without_own(cls, partition: str, region: str, account: str) -> Place:
        """Where the grants hold for what a service brings: none of them is about the control plane's own."""
        return cls(partition, region, account, "", "", "", "", "")

    @classmethod
    def of(cls, stack: Stack, table_arn: str = "") -> Place:
        """The same for a stack, and perhaps the control plane's table."""
        return replace(cls.without_own(stack.partition, stack.region, stack.account), table_arn=table_arn)

    def arn(self, service: str, resource: str, *, region: str | None = None) -> str:
        """An ARN in this account, and in this region unless the service is global (`region=""`)."""
        where = self.region if region is None else region
        return f"arn:{self.partition}:{service}:{where}:{self.account}:{resource}"


@dataclass(frozen=True)
class Given:
    """What a service brings that the functions must use: nothing of it bears our tags or paths."""

    service: str
    target_group_arn: str | None = None
    profile_arn: str | None = None
    role_arn: str | None = None
    """The role in the profile."""


Condition = Mapping[str, Mapping[str, str | Sequence[str]]]

ONLY_OUR_RESOURCES: Condition = {"Null": {f"aws:ResourceTag/{TAG_SERVICE}": "false"}}
ONLY_TAGGED_AS_OURS: Condition = {"Null": {f"aws:RequestTag/{TAG_SERVICE}": "false"}}
ONLY_TO_EC2: Condition = {
    "StringEquals": {"iam:PassedToService": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]}
}

ROUTING = ("elasticloadbalancing:RegisterTargets", "elasticloadbalancing:DeregisterTargets")
STARTING = ("ec2:StartInstances",)
READING = ("ec2:GetConsoleOutput",)
ENDING = ("ec2:StartInstances", "ec2:StopInstances", "ec2:TerminateInstances")
INTERRUPTING = ("ec2:SendSpotInstanceInterruptions",)


def in_partitions(*partitions: str) -> Condition:
    """Only items whose partition key begins like one of these; `Partition.SERVICES` is a whole key."""
    patterns = [p if p == Partition.SERVICES else f"{p}*" for p in partitions]
    return {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": patterns}}


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
        return (
            documents(place),
            service_names(place),
            *_surveying(place),
            Grant(
                "have a service's tick know what EC2 announces for its instances",
                ("sqs:SendMessage",),
                (place.tick_queue_arn,),
            ),
            Grant(
                "keep a survey that failed for good",
                ("sqs:SendMessage",),
                (place.surveys_failed_arn,),
            ),
            Grant(
                "keep the dead-letter queue in use, so that SQS measures it and its alarm is in time",
                ("sqs:GetQueueAttributes",),
                (place.dead_letter_queue_arn,),
            ),
        )
    if function is Function.WIDGET:
        return (
            documents(place),
            service_names(place),
            Grant(
                "see which alarms ring; AWS offers no narrower resource for composite ones",
                ("cloudwatch:DescribeAlarms",),
                ("*",),
            ),
            Grant(
                "draw what services' clients met; metrics are no resources that a policy could name",
                ("cloudwatch:GetMetricData",),
                ("*",),
            ),
            Grant(
                "read a service's replicas, its history and what is known of pools",
                ("dynamodb:GetItem", "dynamodb:Query"),
                (place.table_arn,),
                in_partitions(Partition.SERVICE, Partition.HISTORY, Partition.COOLDOWNS, Partition.SURVEY),
            ),
        )
    common = (*_state(place), *_routing(place), *_launching(place), _setting_aside(place))
    match function:
        case Function.ON_SIGNAL:
            return (*common, *_resuming(place))
        case Function.RECONCILE:
            return (
                *common,
                service_names(place),
                *_observing(),
                *_probing(place),
                *_telling(place),
                *_ending(place),
            )


def grants_for(given: Given, function: Function, place: Place) -> tuple[Grant, ...]:
    """What `function` may do besides, for a service that brings something: with that, and nothing else."""
    if function in (Function.SURVEY, Function.WIDGET):
        return ()
    granted: list[Grant] = []
    if given.target_group_arn:
        why = f"take replicas of {given.service} into and out of the target group that it brings"
        granted.append(Grant(why, ROUTING, (given.target_group_arn,)))
    if given.role_arn:
        why = f"give instances of {given.service} the role that it brings"
        granted.append(Grant(why, ("iam:PassRole",), (given.role_arn,), ONLY_TO_EC2))
    actions = STARTING if function is Function.ON_SIGNAL else (*ENDING, *READING)
    granted += _with_given_profile(given, place, actions)
    if given.target_group_arn and function is Function.RECONCILE:
        tags = {f"aws:ResourceTag/{TAG_SERVICE}": given.service}
        granted.append(
            Grant(
                f"terminate what was adopted for {given.service} and has drained",
                ("ec2:TerminateInstances",),
                place.ec2("instance"),
                {"StringEquals": tags, "Null": {f"aws:ResourceTag/{TAG_ADOPTED}": "false"}},
            )
        )
    return tuple(granted)


def drill_grants_for(given: Given, place: Place) -> tuple[Grant, ...]:
    """What the role of a drill may do besides, for a service that brings a profile."""
    return _with_given_profile(given, place, INTERRUPTING)


def _with_given_profile(given: Given, place: Place, actions: tuple[str, ...]) -> tuple[Grant, ...]:
    if given.profile_arn is None:
        return ()
    return (
        Grant(
            f"what it may do with every instance of ours, for those with the profile of {given.service}",
            actions,
            place.ec2("instance"),
            {
                "StringEquals": {f"aws:ResourceTag/{TAG_SERVICE}": given.service},
                "StringLike": {f"aws:ResourceTag/{TAG_LAUNCH_TEMPLATE}": "lt-*"},
                "ArnEquals": {"ec2:InstanceProfile": given.profile_arn},
            },
        ),
    )


AS_CDK_NAG_WRITES = Place.without_own("<AWS::Partition>", "<AWS::Region>", "<AWS::AccountId>")


def wildcards(granted: Iterable[Grant]) -> dict[str, str]:
    """Every resource with a wildcard, as cdk-nag writes it (`AS_CDK_NAG_WRITES`), and why it may be used."""
    reasons: dict[str, list[str]] = {}
    for grant in granted:
        for resource in grant.resources:
            if "*" in resource:
                reasons.setdefault(resource, []).append(grant.why)
    return {resource: "; ".join(whys) for resource, whys in reasons.items()}


def acknowledge_wildcards(construct: IConstruct, granted: Iterable[Grant]) -> None:
    """Say why each wildcard may be used; `granted` as cdk-nag writes it."""
    for resource, why in wildcards(granted).items():
        acknowledge(construct, f"AwsSolutions-IAM5[Resource::{resource}]", why)


def give(role: iam.Role, granted: Callable[[Place], Iterable[Grant]], place: Place) -> None:
    """Let a role do what is granted to it at the place.

    Launches have a policy of their own: a role's inline policies may be 10,240 characters long together. What
    the CDK takes for longer it splits by itself, and it takes it otherwise from one synthesis to the next.
    """
    launching = _launching(place)
    launches: list[iam.PolicyStatement] = []
    for grant in granted(place):
        if grant in launching:
            launches.append(grant.statement())
        else:
            role.add_to_policy(grant.statement())
    if launches:
        policy = iam.ManagedPolicy(
            role, "Launches", description="SpotRelay: launches", roles=[role], statements=launches
        )
        # An update must not take launches out of the one policy before they are in the other.
        role.node.find_child("DefaultPolicy").node.add_dependency(policy)
    acknowledge_wildcards(role, granted(AS_CDK_NAG_WRITES))


def actions(granted: Iterable[Grant]) -> frozenset[str]:
    """Every action of the grants."""
    return frozenset(action for grant in granted for action in grant.actions)


def _state(place: Place) -> tuple[Grant, ...]:
    table = (place.table_arn,)
    return (
        Grant(
            "read rows, and what is known of pools",
            ("dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query"),
            table,
        ),
        # A transaction has no right of its own: it needs those of the writes in it.
        Grant(
            "write rows, intents, the register and cooldowns; a survey's result is the survey's alone",
            ("dynamodb:PutItem",),
            table,
            in_partitions(
                Partition.SERVICE,
                Partition.HISTORY,
                Partition.INSTANCE,
                Partition.COOLDOWNS,
                Partition.SERVICES,
            ),
        ),
        Grant(
            "count on, in what is noted of a service as a whole",
            ("dynamodb:UpdateItem",),
            table,
            in_partitions(Partition.SERVICE),
        ),
        Grant(
            "drop rows and intents that are done with; history stays",
            ("dynamodb:DeleteItem",),
            table,
            in_partitions(Partition.SERVICE, Partition.SERVICES),
        ),
        documents(place),
        Grant(
            "have the next tick come in seconds while something is in transition, and somebody look when a"
            " warned replica must leave",
            ("sqs:SendMessage",),
            (place.tick_queue_arn, place.leave_queue_arn),
        ),
    )


def documents(place: Place) -> Grant:
    """The documents, and none of the services' secrets, which lie below /spotrelay as well."""
    return Grant(
        "read the runtime documents that the service stacks wrote, and whose they are to act on",
        ("ssm:GetParameters",),
        tuple(
            place.arn("ssm", f"parameter{name}") for name in (f"{SERVICES_PATH}/*", CONTROL_PLANE_PARAMETER)
        ),
    )


def service_names(place: Place) -> Grant:
    """Which services there are."""
    return Grant(
        "find every service that is deployed",
        ("ssm:GetParametersByPath",),
        tuple(place.arn("ssm", f"parameter{name}") for name in (SERVICES_PATH, f"{SERVICES_PATH}/*")),
    )


def _setting_aside(place: Place) -> Grant:
    return Grant(
        "set a message aside at once that no retry would mend, and say why",
        ("sqs:SendMessage",),
        (place.dead_letter_queue_arn,),
    )


def _routing(place: Place) -> tuple[Grant, ...]:
    return (
        Grant(
            "take replicas into and out of rotation",
            ROUTING,
            (place.arn("elasticloadbalancing", "targetgroup/*"),),
            ONLY_OUR_RESOURCES,
        ),
        Grant(
            "see who is in rotation, with which port, and whether a group is gone; AWS offers no narrower"
            " resource for this read-only call",
            ("elasticloadbalancing:DescribeTargetHealth",),
            ("*",),
        ),
    )


def _launching(place: Place) -> tuple[Grant, ...]:
    fleet, run = ("ec2:CreateFleet",), ("ec2:RunInstances",)
    (templates,) = place.ec2("launch-template")
    from_a_template: Condition = (
        {"ArnLike": {"ec2:LaunchTemplate": templates}} if place.template_conditions else {}
    )
    as_the_template_says: Condition = (
        {"Bool": {"ec2:IsLaunchTemplateResource": "true"}} if place.template_conditions else {}
    )
    return (
        Grant(
            "launch from our launch templates only",
            (*fleet, *run),
            (templates,),
            ONLY_OUR_RESOURCES,
        ),
        Grant(
            "launch no instance that doesn't carry our tag: nothing we start can be lost sight of",
            fleet,
            place.ec2("fleet", "instance"),
            ONLY_TAGGED_AS_OURS,
        ),
        Grant(
            "the same for each launch of a fleet, which must come from a template",
            run,
            place.ec2("instance"),
            {**ONLY_TAGGED_AS_OURS, **from_a_template},
        ),
        Grant(
            "take image and security groups from the template, never from the request",
            run,
            place.ec2("image", "security-group"),
            {**from_a_template, **as_the_template_says},
        ),
        Grant(
            "what a launch uses or makes besides; it must come from a template, and that must be ours",
            run,
            place.ec2("capacity-reservation", "network-interface", "snapshot", "subnet", "volume"),
            from_a_template,
        ),
        Grant(
            "a Spot request knows no key for its template; the instance that comes of it does",
            run,
            place.ec2("spot-instances-request"),
        ),
        Grant(
            "what a fleet touches; no fleet is without a template, so CreateFleet knows no key for that",
            fleet,
            place.ec2(
                "capacity-reservation", "image", "network-interface", "security-group", "snapshot",
                "spot-instances-request", "subnet", "volume",
            ),
        ),
        Grant(
            # AWS's ParallelCluster grants these three for fleets that target a group. They launch nothing by
            # themselves, and which keys a group has isn't documented.
            "use the capacity reservations of a group that a launch template of ours targets",
            (*fleet, *run, "resource-groups:ListGroupResources"),
            (place.arn("resource-groups", "group/*"),),
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
            ONLY_TO_EC2,
        ),
        Grant(
            # An instant fleet needs no role of EC2 Fleet's own. Source: "EC2 Fleet prerequisites" in
            # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-fleet-prerequisites.html
            "an account's first Spot request makes this role of EC2's own",
            ("iam:CreateServiceLinkedRole",),
            (place.arn("iam", "role/aws-service-role/spot.amazonaws.com/*", region=""),),
            {"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}},
        ),
        *_encrypting(place),
    )  # fmt: skip


def _encrypting(place: Place) -> tuple[Grant, ...]:
    """What EC2 does with the key in the name of whoever launches. AWS's own key for EBS needs none of it.

    Source: https://docs.aws.amazon.com/ebs/latest/userguide/ebs-encryption-requirements.html
    """
    if place.kms_key_arn is None:
        return ()
    key = (place.kms_key_arn,)
    via_ec2: Condition = {
        "StringEquals": {
            "kms:ViaService": [
                f"ec2.{place.region}.{suffix}" for suffix in ("amazonaws.com", "amazonaws.com.cn")
            ]
        }
    }
    return (
        Grant(
            "have EC2 encrypt an instance's disk",
            (
                "kms:Decrypt",
                "kms:DescribeKey",
                "kms:GenerateDataKeyWithoutPlaintext",
                "kms:ReEncryptFrom",
                "kms:ReEncryptTo",
            ),
            key,
            via_ec2,
        ),
        Grant(
            "let the instance use its disk, and grant nothing else",
            ("kms:CreateGrant",),
            key,
            {**via_ec2, "Bool": {"kms:GrantIsForAWSResource": "true"}},
        ),
    )


def _observing() -> tuple[Grant, ...]:
    return (
        Grant(
            "see what is there; AWS offers no narrower resource for these read-only calls",
            ("ec2:DescribeInstances", "ec2:DescribeSpotInstanceRequests"),
            ("*",),
        ),
        Grant(
            "measure what services have to do; metrics are no resources that a policy could name",
            ("cloudwatch:GetMetricData",),
            ("*",),
        ),
    )


def _surveying(place: Place) -> tuple[Grant, ...]:
    return (
        Grant(
            "keep what was found, and what each day cost; it writes nothing else",
            ("dynamodb:PutItem",),
            (place.table_arn,),
            in_partitions(Partition.SURVEY, Partition.DAYS),
        ),
        Grant(
            "work out what a service's instances cost: from its rows, its history and what is known of pools",
            ("dynamodb:GetItem", "dynamodb:Query"),
            (place.table_arn,),
            in_partitions(
                Partition.SERVICE, Partition.HISTORY, Partition.COOLDOWNS, Partition.SURVEY, Partition.DAYS
            ),
        ),
        Grant(
            "ask what EC2 offers, at which price, from which image and within which quotas; AWS offers no"
            " narrower resource for these read-only calls",
            (
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


def _telling(place: Place) -> tuple[Grant, ...]:
    return (
        Grant(
            "tell what happened, in our own name and on the region's default bus only",
            ("events:PutEvents",),
            (place.arn("events", "event-bus/default"),),
            {"StringEquals": {"events:source": EVENT_SOURCE}},
        ),
    )


def our_instances(place: Place, why: str, *actions: str) -> Grant:
    """Actions on instances with our tag, from a template, with a profile of ours.

    Anybody who may tag can set our tag. Nobody sets EC2's own, and few may pass our roles.
    """
    profiles = place.arn("iam", f"instance-profile{INSTANCE_ROLE_PATH}*", region="")
    return Grant(
        why,
        actions,
        place.ec2("instance"),
        {
            **ONLY_OUR_RESOURCES,
            "StringLike": {f"aws:ResourceTag/{TAG_LAUNCH_TEMPLATE}": "lt-*"},
            "ArnLike": {"ec2:InstanceProfile": profiles},
        },
    )


def _resuming(place: Place) -> tuple[Grant, ...]:
    why = "resume a standby with the warning: an instance of ours that was stopped"
    return (our_instances(place, why, *STARTING),)


def _ending(place: Place) -> tuple[Grant, ...]:
    """All in one: they are about the same instances."""
    why = "terminate drained replicas and orphans, stop standbys and resume them; read what a start told"
    return (our_instances(place, why, *ENDING, *READING),)

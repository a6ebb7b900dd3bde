"""What people may do who run services: managed policies to attach to them, and the role that a drill lends.

`operator` looks and changes nothing. `drill` is for who may also interrupt replicas, through AWS's Fault
Injection Service (FIS). Commands that change something else are not in either: docs/commands.md lists what
each of them needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from stacks.permissions import (
    INTERRUPTING,
    ONLY_OUR_RESOURCES,
    ONLY_TAGGED_AS_OURS,
    Grant,
    Place,
    documents,
    our_instances,
    service_names,
    wildcards,
)
from stacks.validation import acknowledge

INTERRUPTION = "aws:ec2:send-spot-instance-interruptions"
"""FIS's action that warns of an interruption and carries it out."""

FIS = "fis.amazonaws.com"

DASHBOARDS = "spotrelay-"
"""How the names of our dashboards begin: see `core.names`."""


@dataclass(frozen=True)
class Policies:
    """To attach to users, groups and roles of people."""

    operator: iam.ManagedPolicy
    drill: iam.ManagedPolicy


def drill_role(scope: Construct, id_: str) -> iam.Role:
    """The role that FIS interrupts replicas with: instances of ours, and nothing else."""
    place = _place(Stack.of(scope))
    role = iam.Role(
        scope,
        id_,
        assumed_by=iam.ServicePrincipal(
            FIS, conditions={"StringEquals": {"aws:SourceAccount": place.account}}
        ),
        description="SpotRelay drills: FIS interrupts replicas",
    )
    granted = interrupting(place)
    for grant in granted:
        role.add_to_policy(grant.statement())
    _acknowledge(role, interrupting(AS_NAG_WRITES))
    return role


def policies(
    scope: Construct,
    *,
    table_arn: str,
    log_groups: Sequence[logs.ILogGroup],
    drill_role: iam.Role,
    widget_arn: str,
    dead_letter_arns: Sequence[str],
) -> Policies:
    """Both policies. A drill looks, too, at what it did."""
    of = Construct(scope, "Operators")
    place = _place(Stack.of(scope), table_arn)
    groups = [group.log_group_arn for group in log_groups]
    operator = looking(place, groups, widget_arn, dead_letter_arns)
    drill = drilling(place, drill_role.role_arn)
    made = Policies(
        iam.ManagedPolicy(
            of,
            "Look",
            description="SpotRelay: look at services, their history, prices and logs; change nothing",
            statements=[grant.statement() for grant in operator],
        ),
        iam.ManagedPolicy(
            of,
            "Drill",
            description="SpotRelay: look at services, and rehearse interruptions of their replicas",
            statements=[grant.statement() for grant in (*operator, *drill)],
        ),
    )
    as_nag = looking(
        AS_NAG_WRITES, [f"<{_id(group)}.Arn>" for group in log_groups], widget_arn, dead_letter_arns
    )
    _acknowledge(made.operator, as_nag)
    _acknowledge(made.drill, (*as_nag, *drilling(AS_NAG_WRITES, "")))
    return made


def looking(
    place: Place, log_groups: Sequence[str], widget_arn: str, dead_letter_arns: Sequence[str]
) -> tuple[Grant, ...]:
    """What `spotrelay status`, `history`, `explain`, `cost`, `prices`, `scores` and `logs` call, what
    CloudWatch's console calls to show our dashboards, and what alarms tell one to run.
    """
    return (
        # No more of what lies below /spotrelay: the services' secrets do, too.
        documents(place),
        service_names(place),
        Grant(
            "read replicas, history and what is known of pools",
            ("dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query"),
            (place.table_arn,),
        ),
        Grant(
            "see what is there, what it costs, how it is and which alarms ring; AWS offers no narrower"
            " resource for these read-only calls",
            (
                "cloudwatch:DescribeAlarms",
                "cloudwatch:GetMetricData",
                "cloudwatch:ListDashboards",
                "ec2:DescribeSpotPriceHistory",
                "elasticloadbalancing:DescribeLoadBalancers",
                "lambda:GetAccountSettings",
                "lambda:ListEventSourceMappings",
                "logs:GetQueryResults",
                "pricing:GetProducts",
            ),
            ("*",),
        ),
        our_instances(place, "read what an instance of ours wrote to its console", "ec2:GetConsoleOutput"),
        Grant(
            "read the functions' decisions", ("logs:FilterLogEvents", "logs:StartQuery"), tuple(log_groups)
        ),
        Grant(
            "see our dashboards",
            ("cloudwatch:GetDashboard",),
            (place.arn("cloudwatch", f"dashboard/{DASHBOARDS}*", region=""),),
        ),
        Grant(
            "read what was set aside, as the alarms for that say",
            ("sqs:ReceiveMessage",),
            tuple(dead_letter_arns),
        ),
        Grant(
            "see a dashboard's table of replicas, which CloudWatch asks for in the looker's name",
            ("lambda:InvokeFunction",),
            (widget_arn,),
        ),
    )


def drilling(place: Place, role_arn: str) -> tuple[Grant, ...]:
    """What `spotrelay drill` calls besides.

    Source of resources and condition keys: the Service Authorization Reference on FIS,
    https://docs.aws.amazon.com/service-authorization/latest/reference/list_awsfaultinjectionservice.html
    """
    templates, experiments = (place.arn("fis", f"{kind}/*") for kind in ("experiment-template", "experiment"))
    return (
        Grant(
            "of all that FIS can do, interrupt Spot instances",
            ("fis:CreateExperimentTemplate",),
            (place.arn("fis", f"action/{INTERRUPTION}"),),
        ),
        Grant(
            "make templates with our tag",
            ("fis:CreateExperimentTemplate", "fis:TagResource"),
            (templates,),
            ONLY_TAGGED_AS_OURS,
        ),
        Grant(
            # Not by the tag that the request sets: that would start everybody's templates.
            "start those, and clear them away",
            ("fis:StartExperiment", "fis:DeleteExperimentTemplate"),
            (templates,),
            ONLY_OUR_RESOURCES,
        ),
        Grant(
            "give what is started our tag",
            ("fis:StartExperiment", "fis:TagResource"),
            (experiments,),
            ONLY_TAGGED_AS_OURS,
        ),
        Grant(
            "watch and stop experiments with our tag",
            ("fis:GetExperiment", "fis:StopExperiment"),
            (experiments,),
            ONLY_OUR_RESOURCES,
        ),
        Grant(
            "lend FIS the one role that interrupts our instances",
            ("iam:PassRole",),
            (role_arn,),
            {"StringEquals": {"iam:PassedToService": FIS}},
        ),
        Grant(
            # https://docs.aws.amazon.com/fis/latest/userguide/using-service-linked-roles.html
            "an account's first experiment makes this role of FIS's own",
            ("iam:CreateServiceLinkedRole",),
            (place.arn("iam", f"role/aws-service-role/{FIS}/*", region=""),),
            {"StringEquals": {"iam:AWSServiceName": FIS}},
        ),
    )


def interrupting(place: Place) -> tuple[Grant, ...]:
    """What FIS may do in a drill: of AWS's own policy for experiments on EC2 what this action needs.

    Source: AWSFaultInjectionSimulatorEC2Access,
    https://docs.aws.amazon.com/aws-managed-policy/latest/reference/AWSFaultInjectionSimulatorEC2Access.html
    """
    return (
        Grant(
            "see the instances that it is to interrupt; AWS offers no narrower resource for that",
            ("ec2:DescribeInstances",),
            ("*",),
        ),
        our_instances(place, "interrupt instances of ours", *INTERRUPTING),
    )


AS_NAG_WRITES = Place.without_own("<AWS::Partition>", "<AWS::Region>", "<AWS::AccountId>")


def _place(stack: Stack, table_arn: str = "") -> Place:
    return Place(stack.partition, stack.region, stack.account, table_arn, "", {})


def _id(group: logs.ILogGroup) -> str:
    return str(Stack.of(group).get_logical_id(group.node.default_child))  # type: ignore[arg-type]


def _acknowledge(construct: Construct, granted: Sequence[Grant]) -> None:
    for resource, why in wildcards(granted).items():
        acknowledge(construct, f"AwsSolutions-IAM5[Resource::{resource}]", why)

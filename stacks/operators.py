"""What people may do who run services: managed policies to attach to them.

`operator` looks and changes nothing. `drill` is for who may also rehearse interruptions. Commands that change
something else are not in either: docs/commands.md lists what each of them needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from spotrelay.plane.core.names import SERVICE_STACK
from stacks.drills import drilling
from stacks.permissions import (
    AS_CDK_NAG_WRITES,
    Grant,
    Place,
    acknowledge_wildcards,
    documents,
    our_instances,
    service_names,
)

DASHBOARDS = "spotrelay-"
"""How the names of our dashboards begin: see `core.names`."""


@dataclass(frozen=True)
class Policies:
    """To attach to users, groups and roles of people."""

    operator: iam.ManagedPolicy
    drill: iam.ManagedPolicy


def policies(
    scope: Construct,
    *,
    table_arn: str,
    log_groups: Sequence[logs.ILogGroup],
    drill_function_arn: str,
    widget_arn: str,
    dead_letter_arn: str,
) -> Policies:
    """Both policies. A drill looks, too, at what it did."""
    of = Construct(scope, "Operators")
    place = Place.of(Stack.of(scope), table_arn)
    groups = [group.log_group_arn for group in log_groups]
    operator = looking(place, groups, widget_arn, dead_letter_arn)
    drill = drilling(place, drill_function_arn)
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
        AS_CDK_NAG_WRITES, [f"<{_id(group)}.Arn>" for group in log_groups], widget_arn, dead_letter_arn
    )
    acknowledge_wildcards(made.operator, as_nag)
    acknowledge_wildcards(made.drill, (*as_nag, *drilling(AS_CDK_NAG_WRITES, "")))
    return made


def looking(
    place: Place, log_groups: Sequence[str], widget_arn: str, dead_letter_arn: str
) -> tuple[Grant, ...]:
    """What `spotrelay status`, `history`, `explain`, `cost`, `prices`, `scores`, `logs` and `request` call,
    what CloudWatch's console calls to show our dashboards, and what alarms tell one to run.
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
                "cloudwatch:ListMetrics",
                "ec2:DescribeSpotPriceHistory",
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
            "see where a service is reached, and which secrets hold its keys, though not the keys",
            ("cloudformation:DescribeStacks",),
            (place.arn("cloudformation", f"stack/{SERVICE_STACK}*/*"),),
        ),
        Grant(
            "see our dashboards",
            ("cloudwatch:GetDashboard",),
            (place.arn("cloudwatch", f"dashboard/{DASHBOARDS}*", region=""),),
        ),
        Grant(
            "read what was set aside, as the alarm for that says",
            ("sqs:ReceiveMessage",),
            (dead_letter_arn,),
        ),
        Grant(
            "see a dashboard's table of replicas, which CloudWatch asks for in the looker's name",
            ("lambda:InvokeFunction",),
            (widget_arn,),
        ),
    )


def _id(group: logs.ILogGroup) -> str:
    return str(Stack.of(group).get_logical_id(group.node.default_child))  # type: ignore[arg-type]

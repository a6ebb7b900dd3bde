"""Drills: the role that Fault Injection Service (FIS) interrupts with, and the function that lends it.

Only the function may start experiments. Who may do so by themselves may start anybody's: see
docs/decisions/2026-11-26-drill-function.md.
"""

from __future__ import annotations

from functools import partial

from aws_cdk import Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from spotrelay.plane.core.names import DRILL_FUNCTION, Env
from stacks.functions import function_of, logged_role
from stacks.permissions import (
    INTERRUPTING,
    ONLY_OUR_RESOURCES,
    ONLY_TAGGED_AS_OURS,
    Grant,
    Place,
    give,
    our_instances,
)

INTERRUPTION = "aws:ec2:send-spot-instance-interruptions"
"""FIS's action that warns of an interruption and carries it out."""

FIS = "fis.amazonaws.com"

MEMORY_MIB = 256
"""It only waits for FIS."""

TIMEOUT = Duration.seconds(25)
"""Three calls of a second. Shorter than the operator's command waits for it (30 s)."""


def drill_role(scope: Construct, id_: str) -> iam.Role:
    """The role that FIS interrupts replicas with: instances of ours, and nothing else."""
    place = Place.of(Stack.of(scope))
    role = iam.Role(
        scope,
        id_,
        assumed_by=iam.ServicePrincipal(
            FIS, conditions={"StringEquals": {"aws:SourceAccount": place.account}}
        ),
        description="SpotRelay drills: FIS interrupts replicas",
    )
    give(role, interrupting, place)
    return role


class DrillFunction(Construct):
    """Starts experiments that interrupt Spot instances of ours, with `drill_role`."""

    def __init__(self, scope: Construct, id_: str, *, code: lambda_.Code, drill_role: iam.Role) -> None:
        super().__init__(scope, id_)
        log_group, role = logged_role(self, "SpotRelay drill")
        role_arn = drill_role.role_arn
        give(role, partial(starting, role_arn=role_arn), Place.of(Stack.of(self)))
        self.function = function_of(
            self,
            "drill",
            code=code,
            function_name=DRILL_FUNCTION,
            role=role,
            log_group=log_group,
            memory_size=MEMORY_MIB,
            timeout=TIMEOUT,
            environment={Env.DRILL_ROLE: role_arn},
        )


def starting(place: Place, role_arn: str) -> tuple[Grant, ...]:
    """What the function calls.

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


def drilling(place: Place, function_arn: str) -> tuple[Grant, ...]:
    """What `spotrelay drill` calls, besides what looking takes."""
    return (
        Grant("have an experiment started", ("lambda:InvokeFunction",), (function_arn,)),
        Grant(
            "watch and stop experiments with our tag",
            ("fis:GetExperiment", "fis:StopExperiment"),
            (place.arn("fis", "experiment/*"),),
            ONLY_OUR_RESOURCES,
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

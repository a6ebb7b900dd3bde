"""A function with its own role and its own log group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from stacks.bundling import functions_code
from stacks.permissions import Function, Place, give, grants
from stacks.validation import acknowledge

RUNTIME = lambda_.Runtime.PYTHON_3_14
"""The newest that Lambda has. The code runs on 3.11 too: that is what tests and the local cloud run it on."""

ARCHITECTURE = lambda_.Architecture.ARM_64
"""A fifth cheaper than x86 for the same work; the asset is pure Python and runs on either."""

LOG_RETENTION = logs.RetentionDays.ONE_MONTH
"""As long as the rows of ended replicas: what the table remembers, the log can explain."""


DRILL: Literal["drill"] = "drill"
"""The role that a drill lends, beside those of functions."""

RoleName = Function | Literal["drill"]


def role_export(name: RoleName) -> str:
    """What the control plane's stack exports the name of a role as, for what services bring."""
    return f"SpotRelay-role-{name.replace('_', '-')}"


def logged_role(scope: Construct, description: str) -> tuple[logs.LogGroup, iam.Role]:
    """A log group, and the role of the one function that writes to it."""
    log_group = logs.LogGroup(scope, "Log", retention=LOG_RETENTION, removal_policy=RemovalPolicy.DESTROY)
    role = iam.Role(
        scope,
        "Role",
        assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
        description=description,
    )
    log_group.grant_write(role)
    return log_group, role


def function_of(scope: Construct, module: str, **settings: Any) -> lambda_.Function:
    """The function of a module in lambdas/; `settings` as `lambda_.Function` has them."""
    return lambda_.Function(
        scope,
        "Function",
        runtime=RUNTIME,
        architecture=ARCHITECTURE,
        handler=f"lambdas.{module}.handler",
        logging_format=lambda_.LoggingFormat.JSON,
        **settings,
    )


def asked_by_cloudformation(
    scope: Construct,
    module: str,
    *,
    description: str,
    describes: str,
    why: str,
    parameters: Sequence[str],
    timeout: Duration,
) -> lambda_.Function:
    """The function of a stack's custom resources: it describes something of EC2's and reads parameters.

    `describes`: the action; `why`: for those who ask about its resource `*`.
    """
    log_group, role = logged_role(scope, description)
    role.add_to_policy(iam.PolicyStatement(actions=[describes], resources=["*"]))
    acknowledge(
        role,
        "AwsSolutions-IAM5[Resource::*]",
        f"{why}; AWS offers no narrower resource for this read-only call.",
    )
    arns = [
        Stack.of(scope).format_arn(service="ssm", resource="parameter", resource_name=name.lstrip("/"))
        for name in parameters
    ]
    role.add_to_policy(iam.PolicyStatement(actions=["ssm:GetParameters"], resources=arns))
    function = function_of(
        scope,
        module,
        code=functions_code(),
        role=role,
        log_group=log_group,
        memory_size=256,  # boto3 and a page of what it describes
        timeout=timeout,
    )
    # Without its rights it can't answer any more, and would hold up the stack's end for nothing.
    function.node.add_dependency(role)
    return function


class ControlFunction(Construct):
    """One of the control plane's functions: `lambdas/<name>.py`, `handler`."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        name: Function,
        code: lambda_.Code,
        memory_mib: int,
        timeout: Duration,
        environment: Mapping[str, str],
        place: Place,
        dead_letters: sqs.Queue | None = None,
        function_name: str | None = None,
        is_chained: bool = False,
    ) -> None:
        """`is_chained`: it sends messages that invoke it again.

        `dead_letters` is for what nobody waits for: an event that the function failed on three times.

        `function_name` is for a function that other stacks name; None: CloudFormation chooses one.
        """
        super().__init__(scope, id_)
        self.name = name
        self.log_group, self.role = logged_role(self, f"SpotRelay {name}")
        give(self.role, partial(grants, name), place)
        self.function = function_of(
            self,
            name,
            code=code,
            function_name=function_name,
            role=self.role,
            log_group=self.log_group,
            memory_size=memory_mib,
            timeout=timeout,
            environment=dict(environment),
            dead_letter_queue=dead_letters,
            # By default Lambda drops the message once a chain has some sixteen invocations, and writes to the
            # account's owner. Source: Lambda's guide, *Use Lambda recursive loop detection*.
            recursive_loop=lambda_.RecursiveLoop.ALLOW if is_chained else None,
        )

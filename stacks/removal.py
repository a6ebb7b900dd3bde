"""What a service's stack waits for when it goes: that its replicas have gone first."""

from __future__ import annotations

from aws_cdk import CustomResource, Duration, Fn, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from spotrelay.core.names import CONTROL_PLANE_PARAMETER, service_parameter
from spotrelay.service import Service
from stacks.bundling import functions_code
from stacks.functions import function_of, logged_role
from stacks.validation import acknowledge

TIMEOUT = Duration.minutes(15)
"""Lambda's longest. A removal is certain after 20 s, a drain takes `drain_seconds` and 20 s, a large
GPU instance minutes to shut down; one that EC2 warned and then spared is ended after seven minutes."""

SERVICE_TIMEOUT = Duration.minutes(20)
"""If the function can't even answer, CloudFormation waits for so long, and not for its own hour."""

SERVICES_GO_FIRST = "SpotRelay-services-go-first"
"""What the control plane's stack exports and each service's imports. CloudFormation refuses to delete a stack
whose export is in use, before it touches anything, and names the stacks that use it."""


class RemovalResource(Construct):
    """A custom resource that is deleted after the service's document, and before all that replicas need."""

    def __init__(self, scope: Construct, id_: str, *, service: Service) -> None:
        super().__init__(scope, id_)
        log_group, role = logged_role(self, f"Removal of {service.name}")
        role.add_to_policy(iam.PolicyStatement(actions=["ec2:DescribeInstances"], resources=["*"]))
        acknowledge(
            role,
            "AwsSolutions-IAM5[Resource::*]",
            "It looks whether instances are left; AWS offers no narrower resource for this read-only call.",
        )
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["ssm:GetParameters"],
                resources=[
                    Stack.of(self).format_arn(
                        service="ssm", resource="parameter", resource_name=name.lstrip("/")
                    )
                    for name in (service_parameter(service.name), CONTROL_PLANE_PARAMETER)
                ],
            )
        )
        function = function_of(
            self,
            "removal",
            code=functions_code(),
            role=role,
            log_group=log_group,
            memory_size=256,  # boto3 and a page of instances; it sleeps nearly all of its time
            timeout=TIMEOUT,
        )
        # Without its rights it can't look any more, and would hold up the stack for nothing.
        function.node.add_dependency(role)
        self.resource = CustomResource(
            self,
            "Replicas",
            resource_type="Custom::SpotRelayReplicas",
            service_token=function.function_arn,
            service_timeout=SERVICE_TIMEOUT,
            properties={"Service": service.name, "ControlPlane": Fn.import_value(SERVICES_GO_FIRST)},
        )

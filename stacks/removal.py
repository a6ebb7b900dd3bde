"""What a service's stack waits for when it goes: that its replicas have gone first."""

from __future__ import annotations

from aws_cdk import CustomResource, Duration, Fn
from constructs import Construct

from spotrelay.file.service import Service
from spotrelay.plane.core.names import CONTROL_PLANE_PARAMETER, service_parameter
from stacks.functions import asked_by_cloudformation

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
        function = asked_by_cloudformation(
            self,
            "removal",
            description=f"Removal of {service.name}",
            describes="ec2:DescribeInstances",
            why="It looks whether instances are left",
            parameters=(service_parameter(service.name), CONTROL_PLANE_PARAMETER),
            timeout=TIMEOUT,
        )
        self.resource = CustomResource(
            self,
            "Replicas",
            resource_type="Custom::SpotRelayReplicas",
            service_token=function.function_arn,
            service_timeout=SERVICE_TIMEOUT,
            properties={"Service": service.name, "ControlPlane": Fn.import_value(SERVICES_GO_FIRST)},
        )

"""What a deployment keeps unless it is asked for another: a service's image, and its version."""

from __future__ import annotations

from aws_cdk import CfnParameter, CustomResource, Duration, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from spotrelay.file.service import Service
from spotrelay.plane.core.names import IMAGE_RESOURCE, VERSION_RESOURCE, image_parameter, service_parameter
from stacks.functions import asked_by_cloudformation

TIMEOUT = Duration.seconds(60)
"""Two calls, which boto3 repeats while AWS throttles them."""

SERVICE_TIMEOUT = Duration.minutes(10)
"""If the function can't even answer, CloudFormation waits for so long, and not for its own hour. While the
account's concurrency is used up, Lambda tries again."""


class Kept(Construct):
    """A function that CloudFormation asks, and what it is asked about."""

    def __init__(self, scope: Construct, id_: str, *, service: Service) -> None:
        super().__init__(scope, id_)
        self._service = service.name
        self._function = asked_by_cloudformation(
            self,
            "kept",
            description=f"What deployments of {service.name} keep",
            describes="ec2:DescribeLaunchTemplateVersions",
            why="It compares versions of a launch template",
            parameters=(service_parameter(service.name),),
            timeout=TIMEOUT,
        )

    def image(self, parameter: str) -> str:
        """The image of an SSM parameter as it was at the first deployment, or as it is asked for since.

        CloudFormation looks the parameter up at each deployment, and AWS's own change every few nights.
        Another parameter is another resource, with the image of its own first deployment.
        """
        newest = ssm.StringParameter.value_for_typed_string_parameter_v2(
            self, parameter, ssm.ParameterValueType.AWS_EC2_IMAGE_ID
        )
        name = image_parameter(parameter)
        asked = CfnParameter(
            Stack.of(self),
            name,
            type="String",
            default="",
            allowed_pattern=r"(ami-[0-9a-f]{8,17})?",
            description=f"Image instead of the one that {parameter} named at first: spotrelay update --image",
        )
        return self._asked(
            name, IMAGE_RESOURCE, {"Newest": newest, "Asked": asked.value_as_string}
        ).get_att_string("ImageId")

    def version(self, template: ec2.CfnLaunchTemplate) -> str:
        """The number of the version to deploy: the deployed one, if the latest says the same."""
        properties = {
            "Service": self._service,
            "LaunchTemplateId": template.ref,
            "Latest": template.attr_latest_version_number,
        }
        return self._asked("Version", VERSION_RESOURCE, properties).get_att_string("Version")

    def _asked(self, id_: str, resource_type: str, properties: dict[str, str]) -> CustomResource:
        return CustomResource(
            self,
            id_,
            resource_type=resource_type,
            service_token=self._function.function_arn,
            service_timeout=SERVICE_TIMEOUT,
            properties=properties,
        )

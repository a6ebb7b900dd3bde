"""What a service's stack makes, made in moto."""

from __future__ import annotations

from dataclasses import replace

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.core.spec import ServiceSpec
from tests.examples import demo_spec


def deployed_spec(clients: Clients, service: str = "demo") -> ServiceSpec:
    """A service with subnets, a launch template and a target group that exist."""
    ec2 = clients.ec2
    subnets = {s["SubnetId"]: s["AvailabilityZone"] for s in ec2.describe_subnets()["Subnets"][:2]}
    image = ec2.register_image(Name=service)["ImageId"]
    template = ec2.create_launch_template(
        LaunchTemplateName=service, LaunchTemplateData={"ImageId": image, "InstanceType": "g5.xlarge"}
    )
    vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    group = clients.elbv2.create_target_group(Name=service, Protocol="HTTP", Port=8081, VpcId=vpc)
    return replace(
        demo_spec(service),
        subnets=subnets,
        launch_template_id=template["LaunchTemplate"]["LaunchTemplateId"],
        target_group_arn=group["TargetGroups"][0]["TargetGroupArn"],
    )

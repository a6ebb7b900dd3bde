"""Where a service's load balancer and instances live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import Annotations, Fn
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from stacks.settings import GivenNetwork
from stacks.validation import acknowledge

DEFAULT_ZONES = 3
"""Every zone is another set of capacity pools. Nearly every region has three; `-c zones=…` names more."""


class Network(Construct):
    """A VPC, the subnets of the instances and those of the load balancer."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        given: GivenNetwork | None,
        zones: Sequence[str],
        for_instances: Sequence[str] = (),
    ) -> None:
        """`zones` are those of a VPC of our own; `for_instances` those of instances, none: all."""
        super().__init__(scope, id_)
        if given is not None:
            self.vpc: ec2.IVpc = ec2.Vpc.from_vpc_attributes(
                self,
                "Vpc",
                vpc_id=given.vpc_id,
                availability_zones=list(given.load_balancer_subnets.values()),
                public_subnet_ids=list(given.load_balancer_subnets),
            )
            instance_subnets = [
                ec2.Subnet.from_subnet_attributes(self, id_, subnet_id=id_, availability_zone=zone)
                for id_, zone in given.subnets.items()
            ]
            # Nothing is routed here, so nobody needs to know the route tables.
            for subnet in (*instance_subnets, *self.vpc.public_subnets):
                Annotations.of(subnet).acknowledge_warning("@aws-cdk/aws-ec2:noSubnetRouteTableId")
        else:
            self.vpc = self._own_vpc(zones)
            instance_subnets = self.vpc.public_subnets
        if for_instances:
            instance_subnets = [s for s in instance_subnets if s.availability_zone in for_instances]
        self.zones: Mapping[str, str] = {s.subnet_id: s.availability_zone for s in instance_subnets}
        """Of the instances' subnets: ID → zone."""
        self.instance_subnets = ec2.SubnetSelection(subnets=instance_subnets)
        self.load_balancer_subnets = ec2.SubnetSelection(subnets=self.vpc.public_subnets)

    def _own_vpc(self, zones: Sequence[str]) -> ec2.Vpc:
        # By position: naming the region's zones would take a call to AWS at synth.
        by_position = [Fn.select(index, Fn.get_azs()) for index in range(DEFAULT_ZONES)]
        vpc = ec2.Vpc(
            self,
            "Vpc",
            availability_zones=list(zones) or by_position,
            # Public subnets for the instances, too. Private ones would need a NAT gateway per zone: 32 USD a
            # month each, and 0.045 USD per GB of every model fetched. Only the balancer reaches an instance.
            nat_gateways=0,
            subnet_configuration=[
                ec2.SubnetConfiguration(
                    name="Public",
                    subnet_type=ec2.SubnetType.PUBLIC,
                    cidr_mask=20,
                    map_public_ip_on_launch=True,
                )
            ],
            # Emptying the default group takes a function of the CDK's own per VPC; nothing uses that group.
            restrict_default_security_group=False,
        )
        acknowledge(
            vpc,
            "AwsSolutions-VPC7",
            "Flow logs are billed per GB of inference traffic: an account that wants them turns them on"
            " for all of its VPCs.",
        )
        return vpc

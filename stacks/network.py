"""Where load balancers and instances live: a VPC of our own that all services share, or one that exists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from aws_cdk import Annotations, Fn, Stack
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from stacks.settings import MAX_ZONES, OF_NETWORK, AppSettings, GivenNetwork, zones_of_default
from stacks.validation import acknowledge

CIDR = "10.0.0.0/16"
SUBNET_MASK = 20
"""4,096 addresses: room for a thousand replicas, the most of a service, all in one zone. With `MAX_ZONES` of
each kind they fill the VPC."""

ADDRESSES = 5
"""Elastic IP addresses in a region, by default:
https://docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html"""


@dataclass(frozen=True)
class Network:
    """A VPC as a service uses it."""

    vpc: ec2.IVpc
    subnets: Mapping[str, tuple[ec2.ISubnet, str]]
    """The instances': ID → the subnet and its zone. Both texts may be tokens."""
    load_balancer_subnets: Sequence[ec2.ISubnet]

    @property
    def zones(self) -> Mapping[str, str]:
        """Of the instances' subnets: ID → zone."""
        return {id_: zone for id_, (_, zone) in self.subnets.items()}

    @property
    def instance_selection(self) -> ec2.SubnetSelection:
        """The instances' subnets as the CDK wants them."""
        return ec2.SubnetSelection(subnets=[subnet for subnet, _ in self.subnets.values()])

    @property
    def load_balancer_selection(self) -> ec2.SubnetSelection:
        """The load balancer's subnets as the CDK wants them."""
        return ec2.SubnetSelection(subnets=list(self.load_balancer_subnets))


class NetworkStack(Stack):
    """A VPC of our own, one for all services of the account and region: AWS's quota is five in a region.

    Its template depends on the settings alone, never on the services: whoever deploys one service of several
    must not change the network of the others.
    """

    def __init__(self, scope: Construct, id_: str, *, settings: AppSettings, **stack_options: Any) -> None:
        super().__init__(
            scope, id_, description="SpotRelay's network, shared by its services", **stack_options
        )
        self.template_options.metadata = settings.kept(OF_NETWORK)
        self._settings = settings
        zones = self.availability_zones
        if settings.nat_gateways > ADDRESSES:
            Annotations.of(self).add_warning_v2(
                "spotrelay:many-addresses",
                f"{settings.nat_gateways} NAT gateways take as many Elastic IP addresses, and accounts have"
                f" {ADDRESSES} in a region unless they have asked for more: have fewer, or ask first (Service"
                " Quotas, EC2, L-0263D0A3)",
            )
        self._vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(CIDR),
            availability_zones=zones,
            # Addresses for zones that are named later: without them the private subnets would move.
            reserved_azs=MAX_ZONES - len(zones),
            nat_gateways=settings.nat_gateways,
            subnet_configuration=[
                ec2.SubnetConfiguration(
                    name="Public",
                    subnet_type=ec2.SubnetType.PUBLIC,
                    cidr_mask=SUBNET_MASK,
                    map_public_ip_on_launch=settings.public_addresses,
                ),
                ec2.SubnetConfiguration(
                    name="Private",
                    subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS
                    if settings.nat_gateways
                    else ec2.SubnetType.PRIVATE_ISOLATED,
                    cidr_mask=SUBNET_MASK,
                ),
            ],
            # Free, and what is fetched from S3 goes past the NAT gateway, which is paid by the GB.
            gateway_endpoints={
                "S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3)
            },
            # Emptying the default group takes a function of the CDK's own; nothing uses that group.
            restrict_default_security_group=False,
        )
        acknowledge(
            self._vpc,
            "AwsSolutions-VPC7",
            "Flow logs are billed per GB of inference traffic: an account that wants them turns them on"
            " for all of its VPCs.",
        )
        # Export everything, used or not: CloudFormation refuses to take an export away while a service's
        # stack imports it, and the network is deployed first.
        self.export_value(self._vpc.vpc_id)
        for subnet in (*self._vpc.public_subnets, *self._private_subnets):
            self.export_value(subnet.subnet_id)
            self.export_value(_zone(subnet))

    @property
    def availability_zones(self) -> list[str]:
        """Overrides the CDK's: a VPC asks its stack, which looks an account's zones up if it knows which."""
        count = zones_of_default(self._settings.target_region)
        by_position = [Fn.select(index, Fn.get_azs()) for index in range(count)]
        return list(self._settings.zones) or by_position

    @property
    def network(self) -> Network:
        """As the services use it."""
        public, private = self._vpc.public_subnets, self._private_subnets
        instances = public if self._settings.public_addresses else private
        return Network(
            self._vpc,
            {subnet.subnet_id: (subnet, _zone(subnet)) for subnet in instances},
            public if self._settings.internet_facing else private,
        )

    @property
    def _private_subnets(self) -> list[ec2.ISubnet]:
        return self._vpc.private_subnets or self._vpc.isolated_subnets


def given(scope: Construct, there: GivenNetwork) -> Network:
    """A network that exists already, for the stack `scope`."""
    scope = Construct(scope, "Network")
    vpc = ec2.Vpc.from_vpc_attributes(
        scope,
        "Vpc",
        vpc_id=there.vpc_id,
        availability_zones=list(there.load_balancer_subnets.values()),
        public_subnet_ids=list(there.load_balancer_subnets),
    )
    subnets = {
        subnet_id: (
            ec2.Subnet.from_subnet_attributes(scope, subnet_id, subnet_id=subnet_id, availability_zone=zone),
            zone,
        )
        for subnet_id, zone in there.subnets.items()
    }
    # Nothing is routed here, so nobody needs to know the route tables.
    for subnet in (*(subnet for subnet, _ in subnets.values()), *vpc.public_subnets):
        Annotations.of(subnet).acknowledge_warning("@aws-cdk/aws-ec2:noSubnetRouteTableId")
    return Network(vpc, subnets, vpc.public_subnets)


def within(network: Network, zones: Sequence[str]) -> Network:
    """The network with instances in these zones alone; none: in all of it. The load balancer keeps its."""
    if not zones:
        return network
    # The names are those of the settings, by which the subnets were made, and not of the zones' tokens.
    wanted = {id_: (s, zone) for id_, (s, zone) in network.subnets.items() if s.availability_zone in zones}
    return replace(network, subnets=wanted)


def _zone(subnet: ec2.ISubnet) -> str:
    """As EC2 says it: a position in the list of zones may mean another one at the next deployment."""
    return cast("ec2.CfnSubnet", subnet.node.default_child).attr_availability_zone

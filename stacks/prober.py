"""Sends readiness probes from inside the replicas' network, where the control plane's functions are not."""

from __future__ import annotations

from aws_cdk import ArnFormat, Duration, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from spotrelay.file.service import Service
from spotrelay.plane.core.names import prober_function
from stacks.bundling import functions_code
from stacks.functions import function_of, logged_role
from stacks.network import Network
from stacks.validation import acknowledge

TIMEOUT = Duration.seconds(25)
"""Longer than a service file's longest probe time-out (20 s), which is how long the function takes at most;
and shorter than the controller waits for it (30 s), so that it learns of this end, too."""

MEMORY_MIB = 256
"""It only waits for answers, and keeps 64 KiB of each of at most 500."""

NETWORK_INTERFACE_ACTIONS = (
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
)
"""To put a function into a network, Lambda wants these: AWSLambdaVPCAccessExecutionRole without logging."""


class ProberFunction(Construct):
    """A function that reaches the replicas' servers, and nothing else: see `may_reach`."""

    def __init__(self, scope: Construct, id_: str, *, service: Service, network: Network) -> None:
        super().__init__(scope, id_)
        self.security_group = ec2.SecurityGroup(
            self,
            "SecurityGroup",
            vpc=network.vpc,
            description=f"Readiness probe of {service.name}",
            allow_all_outbound=False,
        )
        log_group, role = logged_role(self, f"Readiness probe of {service.name}")
        role.add_to_policy(iam.PolicyStatement(actions=list(NETWORK_INTERFACE_ACTIONS), resources=["*"]))
        acknowledge(
            role,
            "AwsSolutions-IAM5[Resource::*]",
            "Lambda makes the function's network interfaces with this role, and insists on these rights.",
        )
        # By name, so that the control plane may be allowed to call the probers and no other function.
        name = prober_function(service.name)
        arn = Stack.of(self).format_arn(
            service="lambda",
            resource="function",
            resource_name=name,
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        role.add_to_policy(
            # Lambda itself needs them. The function's code, which reads what replicas send, does not:
            # https://docs.aws.amazon.com/lambda/latest/dg/configuration-vpc.html
            iam.PolicyStatement(
                effect=iam.Effect.DENY,
                actions=list(NETWORK_INTERFACE_ACTIONS),
                resources=["*"],
                conditions={"ArnEquals": {"lambda:SourceFunctionArn": arn}},
            )
        )
        function = function_of(
            self,
            "probe",
            function_name=name,
            code=functions_code(),
            role=role,
            log_group=log_group,
            memory_size=MEMORY_MIB,
            timeout=TIMEOUT,
            vpc=network.vpc,
            vpc_subnets=network.instance_selection,
            security_groups=[self.security_group],
            # It needs no way out of the network: it is called through Lambda, and calls its neighbours.
            allow_public_subnet=True,
        )
        # Without its rights Lambda can't take the interfaces away again when the stack goes.
        function.node.add_dependency(role)

    def may_reach(self, replicas: ec2.ISecurityGroup) -> None:
        """Let it connect to what has this security group."""
        # As a resource of its own, since the two groups name each other. `add_egress_rule` would take out the
        # rule that matches nothing, and EC2 lets a group that is made without any rule connect to everything:
        # https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-properties-ec2-security-group.html
        ec2.CfnSecurityGroupEgress(
            self,
            "ToReplicas",
            group_id=self.security_group.security_group_id,
            destination_security_group_id=replicas.security_group_id,
            ip_protocol="tcp",
            # Every port: replicas of two versions may listen on two.
            from_port=0,
            to_port=65_535,
            description="readiness probes",
        )

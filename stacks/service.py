"""One service: its load balancer, what its instances are, and the document that the controller reads."""

from __future__ import annotations

import json
from typing import Any

from aws_cdk import Annotations, CfnOutput, Stack, Tags
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from spotrelay.model import ServiceSpec
from spotrelay.names import TAG_SERVICE, service_parameter
from spotrelay.service import Service
from stacks import placement
from stacks.alarms import on_slow_answers
from stacks.launch_template import InstanceTemplate
from stacks.load_balancer import LoadBalancer
from stacks.network import Network
from stacks.prober import Prober
from stacks.removal import Removal
from stacks.settings import Settings


class ServiceStack(Stack):
    """Everything that belongs to one service file: what the control plane launches from and routes with."""

    def __init__(
        self, scope: Construct, id_: str, *, service: Service, settings: Settings, **stack_options: Any
    ) -> None:
        super().__init__(scope, id_, description=f"SpotRelay service {service.name}", **stack_options)
        Tags.of(self).add(TAG_SERVICE, service.name)
        for problem in service.warnings:
            Annotations.of(self).add_warning_v2(f"spotrelay:{problem.field}", str(problem))
        network = Network(
            self,
            "Network",
            given=settings.network,
            zones=placement.vpc_zones(service, settings),
            for_instances=service.requirements.zones,
        )
        entrance = LoadBalancer(self, "Entrance", service=service, network=network, settings=settings)
        prober = Prober(self, "Prober", service=service, network=network) if service.readiness_probe else None
        if prober is not None:
            # See LoadBalancer: what has the port in it comes after the target group.
            prober.node.add_dependency(entrance.target_group)
        template = InstanceTemplate(
            self, "Instances", service=service, network=network, entrance=entrance, prober=prober
        )
        removal = Removal(self, "Removal", service=service)
        # All that replicas need while they drain goes after them.
        removal.resource.node.add_dependency(network, entrance, template)
        if prober is not None:
            removal.resource.node.add_dependency(prober)
        parameter = ssm.StringParameter(
            self,
            "Document",
            parameter_name=service_parameter(service.name),
            # A standard parameter takes 4 KB: all but a very long probe. Only what is larger is charged for.
            tier=ssm.ParameterTier.INTELLIGENT_TIERING,
            description=f"What SpotRelay's controller knows of {service.name}",
            string_value=_document(service, network, entrance, template),
        )
        # Before there is a way in, there must be no replica that waits for one.
        parameter.node.add_dependency(entrance)
        if prober is not None:
            parameter.node.add_dependency(prober)
        # When the stack goes, the document goes first: that is what the control plane learns of.
        parameter.node.add_dependency(removal)
        on_slow_answers(self, "SlowAnswers", service, entrance.load_balancer)
        CfnOutput(self, "Endpoint", value=entrance.load_balancer.load_balancer_dns_name)
        CfnOutput(self, "ParameterName", value=service_parameter(service.name))


def _document(service: Service, network: Network, entrance: LoadBalancer, template: InstanceTemplate) -> str:
    """The runtime document, with tokens where only CloudFormation knows the value."""
    document = ServiceSpec(
        service=service.name,
        version=0,
        replicas=service.replicas,
        use_spot=service.use_spot,
        instance_types=service.instance_type_names,
        ordered=service.ordered,
        subnets=network.zones,
        launch_template_id=template.id,
        target_group_arn=entrance.target_group.target_group_arn,
        port=service.port,
        on_demand_fallback=service.on_demand_fallback,
        base_on_demand=service.base_on_demand,
        max_price_share=service.max_price_share,
        requirements=service.requirements,
        on_rebalance=service.on_rebalance,
        surge=service.surge,
        max_launches_per_minute=service.max_launches_per_minute,
        drain_s=service.drain_s,
        on_warning=service.on_warning,
        initial_delay_s=service.initial_delay_s,
        readiness_probe=service.readiness_probe,
    ).to_dict()
    # A token is text, and the version a number: take the quotes off that JSON puts around it.
    document["version"] = template.version
    return json.dumps(document).replace(json.dumps(template.version), template.version)

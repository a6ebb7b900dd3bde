"""One service: its load balancer, what its instances are, and the document that the controller reads."""

from __future__ import annotations

from typing import Any

from aws_cdk import Annotations, CfnOutput, Stack, Tags
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from spotrelay.file.compile import runtime_document
from spotrelay.file.service import Service
from spotrelay.plane.core.names import PACK_PROFILE_OUTPUT, PACKS_OUTPUT, TAG_SERVICE, service_parameter
from stacks.entrance import Entrance, GivenListener, GivenTargetGroup
from stacks.given import GivenPermissions
from stacks.kept import Kept
from stacks.launch_template import InstanceTemplate
from stacks.load_balancer import LoadBalancer
from stacks.network import Network, NetworkStack, given, within
from stacks.prober import ProberFunction
from stacks.removal import RemovalResource
from stacks.service_alarms import ServiceAlarms
from stacks.settings import OF_SERVICE, AppSettings


class ServiceStack(Stack):
    """Everything that belongs to one service file: what the control plane launches from and routes with."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        service: Service,
        settings: AppSettings,
        shared: NetworkStack | None = None,
        **stack_options: Any,
    ) -> None:
        """`shared` is the network where the settings give none."""
        super().__init__(scope, id_, description=f"SpotRelay service {service.name}", **stack_options)
        self.template_options.metadata = settings.kept(OF_SERVICE)
        Tags.of(self).add(TAG_SERVICE, service.name)
        for problem in service.warnings:
            Annotations.of(self).add_warning_v2(f"spotrelay:{problem.field}", str(problem))
        for problem in service.notices:
            Annotations.of(self).add_info(str(problem))
        network = within(self._network(settings, shared), service.requirements.zones)
        entrance = self._entrance(service, network, settings)
        prober = (
            ProberFunction(self, "Prober", service=service, network=network)
            if service.readiness_probe or (service.scaling and service.scaling.ongoing)
            else None
        )
        template = InstanceTemplate(
            self,
            "Instances",
            service=service,
            network=network,
            entrance=entrance,
            prober=prober,
            kept=Kept(self, "Kept", service=service),
            kms_key_arn=settings.kms_key_arn,
        )
        removal = RemovalResource(self, "Removal", service=service)
        # All that replicas need while they drain goes after them.
        removal.resource.node.add_dependency(
            entrance, template, GivenPermissions(self, "Given", service=service)
        )
        if prober is not None:
            removal.resource.node.add_dependency(prober)
        parameter = ssm.StringParameter(
            self,
            "Document",
            parameter_name=service_parameter(service.name),
            # A standard parameter takes 4 KB: all but a very long probe. Only what is larger is charged for.
            tier=ssm.ParameterTier.INTELLIGENT_TIERING,
            description=f"What SpotRelay's controller knows of {service.name}",
            string_value=runtime_document.document(
                service,
                subnets=network.zones,
                launch_template_id=template.id,
                version=template.version,
                target_group_arn=entrance.target_group_arn,
                load_balancer=entrance.balancer,
                address=entrance.address,
                on_demand_template=template.on_demand,
            ),
        )
        # Before there is a way in, there must be no replica that waits for one.
        parameter.node.add_dependency(entrance)
        if prober is not None:
            parameter.node.add_dependency(prober)
        # When the stack goes, the document goes first: that is what the control plane learns of.
        parameter.node.add_dependency(removal)
        ServiceAlarms(self, "Alarms", service=service, entrance=entrance)
        if template.pack_profile_arn is not None:
            CfnOutput(self, PACK_PROFILE_OUTPUT, value=template.pack_profile_arn)
            CfnOutput(self, PACKS_OUTPUT, value=template.packs or "")
        CfnOutput(self, "ParameterName", value=service_parameter(service.name))

    def _entrance(self, service: Service, network: Network, settings: AppSettings) -> Entrance:
        if service.target_group is not None:
            return GivenTargetGroup(self, "Entrance", target_group_arn=service.target_group)
        if service.listener is not None:
            return GivenListener(self, "Entrance", service=service, network=network)
        return LoadBalancer(self, "Entrance", service=service, network=network, settings=settings)

    def _network(self, settings: AppSettings, shared: NetworkStack | None) -> Network:
        if settings.network is not None:
            return given(self, settings.network)
        if shared is None:
            raise ValueError("a service needs a network: the settings' or a shared one")
        return shared.network

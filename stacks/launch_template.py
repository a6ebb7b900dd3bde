"""What an instance is: image, disk, role, who may reach it, and what it runs."""

from __future__ import annotations

from aws_cdk import Aws, CfnMapping, CfnTag, Fn, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from spotrelay.file.instance import peers
from spotrelay.file.instance.bundle import LONGEST_ARCHIVE
from spotrelay.file.instance.packs import LONGEST_STORE, Store, prefix
from spotrelay.file.service import Service, user_data
from spotrelay.plane.core.names import (
    INSTANCE_ROLE_PATH,
    PACK_ROLE_PATH,
    TAG_SERVICE,
    instances_namespace,
)
from spotrelay.plane.core.spec import LaunchTemplate
from stacks.entrance import Entrance
from stacks.instance_files import Files, archive, packed, statements, store
from stacks.kept import Kept
from stacks.network import Network
from stacks.prober import ProberFunction
from stacks.validation import acknowledge

SESSION_ACTIONS = (
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)
"""A shell through Session Manager, without an open port or a key. AWS's managed policy for it would also let
the instance read *every* parameter of the account, the secrets of other services included."""


class InstanceTemplate(Construct):
    """A launch template and all it refers to. Everything but instance type and subnet is in it.

    Where the service has capacity reservations, on-demand has a second one, which targets them: a Spot
    request can't, and no override of a fleet's can say it.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        service: Service,
        network: Network,
        entrance: Entrance,
        prober: ProberFunction | None,
        kept: Kept,
        kms_key_arn: str | None,
    ) -> None:
        """`kms_key_arn`: what encrypts the volumes; None: the account's default key for EBS."""
        super().__init__(scope, id_)
        files = archive(self, "Files", service)
        self._store = store(self, service) if service.pack else None
        profile_arn = self._profile_arn(service, files)
        self.pack_profile_arn = self._pack_profile_arn(service, files)
        """Who makes packs of the service; None for a service without."""
        self.packs = f"s3://{self._store.bucket}/{prefix(service.name)}" if self._store else None
        """Where they are."""
        security_groups = self._security_groups(service, network, entrance, prober)
        tags = [CfnTag(key=TAG_SERVICE, value=service.name)]
        labels = [CfnTag(key=name, value=value) for name, value in service.labels.items()]
        # The L2 construct would tag instances like the stack. But that tag on an instance says that the
        # controller launched it, so the controller alone writes it.
        image_id = self._image_id(service, kept)
        text = _user_data(service, Stack.of(self).region, files, self._store)

        def template(id_: str, reservations: str | None = None) -> ec2.CfnLaunchTemplate:
            data = ec2.CfnLaunchTemplate.LaunchTemplateDataProperty(
                image_id=image_id,
                capacity_reservation_specification=_targeting(reservations),
                iam_instance_profile=ec2.CfnLaunchTemplate.IamInstanceProfileProperty(arn=profile_arn),
                security_group_ids=security_groups,
                metadata_options=ec2.CfnLaunchTemplate.MetadataOptionsProperty(
                    http_endpoint="enabled",
                    http_tokens="required",
                    # No credentials for containers with a network of their own. A service's container has
                    # the host's, and with it the role: see docs/security.md.
                    http_put_response_hop_limit=1,
                    # An instance reads its peers there, without a permission.
                    instance_metadata_tags="enabled" if service.peers else None,
                ),
                block_device_mappings=[
                    ec2.CfnLaunchTemplate.BlockDeviceMappingProperty(
                        device_name=service.image.root_device,
                        ebs=ec2.CfnLaunchTemplate.EbsProperty(
                            volume_type="gp3",
                            volume_size=service.disk.size_gib,
                            iops=service.disk.iops,
                            throughput=service.disk.throughput_mibps,
                            volume_initialization_rate=service.disk.initialization_mibps,
                            encrypted=True,
                            kms_key_id=kms_key_arn,
                            delete_on_termination=True,
                        ),
                    )
                ],
                # The instance's tags are in the fleet's request, all of them: what EC2 does with a key that
                # stands in both isn't documented.
                tag_specifications=[
                    ec2.CfnLaunchTemplate.TagSpecificationProperty(
                        resource_type="volume", tags=[*tags, *labels]
                    )
                ],
                user_data=Fn.base64(text),
            )
            return ec2.CfnLaunchTemplate(
                self,
                id_,
                tag_specifications=[
                    ec2.CfnLaunchTemplate.LaunchTemplateTagSpecificationProperty(
                        resource_type="launch-template", tags=tags
                    )
                ],
                launch_template_data=data,
            )

        self.template = template("Template")
        self.version = kept.version(self.template)
        """The number of the version that this deployment makes or keeps."""
        self._on_demand = (
            template("OnDemandTemplate", service.capacity_reservations)
            if service.capacity_reservations
            else None
        )

    @property
    def id(self) -> str:
        """The launch template's ID."""
        return self.template.ref

    @property
    def on_demand(self) -> LaunchTemplate | None:
        """The launch template for on-demand, where there is one of its own."""
        if self._on_demand is None:
            return None
        return LaunchTemplate(self._on_demand.ref, self._on_demand.attr_latest_version_number)

    def _security_groups(
        self, service: Service, network: Network, entrance: Entrance, prober: ProberFunction | None
    ) -> list[str]:
        """The user's own, if there are any, and one that lets in what is SpotRelay's."""
        given = list(service.security_groups)
        let_in = {
            purpose: group
            for purpose, group in (
                ("requests and health checks", entrance.security_group),
                ("readiness probes", prober.security_group if prober else None),
            )
            if group is not None
        }
        if given and not let_in and not service.peers:
            return given
        security_group = ec2.SecurityGroup(
            self,
            "SecurityGroup",
            vpc=network.vpc,
            description=f"Replicas of {service.name}",
            # Where the user has groups, those decide what instances may connect to.
            allow_all_outbound=not given,
        )
        for purpose, group in let_in.items():
            security_group.add_ingress_rule(
                ec2.Peer.security_group_id(group.security_group_id),
                # Every port: replicas of two versions may listen on two.
                ec2.Port.all_tcp(),
                purpose,
            )
        if service.peers:
            security_group.add_ingress_rule(
                security_group, ec2.Port.tcp(peers.PORT), "models, for replicas that start"
            )
        if prober is not None:
            prober.may_reach(security_group)
        return [security_group.security_group_id, *given]

    def _profile_arn(self, service: Service, files: Files | None) -> str:
        if service.instance_profile is not None:
            return service.instance_profile.arn
        profile = iam.InstanceProfile(
            self, "Profile", role=self._role(service, files), path=INSTANCE_ROLE_PATH
        )
        return profile.instance_profile_arn

    def _pack_profile_arn(self, service: Service, files: Files | None) -> str | None:
        """What a replica may, and write packs: no replica may, because a pack is code that others run.

        Its path isn't the replicas': the control plane can't give it to anything.
        """
        if self._store is None:
            return None
        role = self._role(service, files, "PackRole", PACK_ROLE_PATH)
        role.add_to_policy(packed(role, service, self._store.bucket, "s3:PutObject"))
        profile = iam.InstanceProfile(self, "PackProfile", role=role, path=PACK_ROLE_PATH)
        return profile.instance_profile_arn

    def _image_id(self, service: Service, kept: Kept) -> str:
        if by_region := service.image.by_region:
            images = {region: {"ami": ami} for region, ami in by_region.items()}
            return CfnMapping(self, "Images", mapping=images).find_in_map(Aws.REGION, "ami")
        if not service.image.is_parameter:
            return service.image.reference
        return kept.image(service.image.reference)

    def _role(
        self, service: Service, files: Files | None, id_: str = "Role", path: str = INSTANCE_ROLE_PATH
    ) -> iam.Role:
        who = "Replicas" if path == INSTANCE_ROLE_PATH else "Makes packs"
        role = iam.Role(
            self,
            id_,
            path=path,
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            description=f"{who} of {service.name}",
        )
        role.add_to_policy(iam.PolicyStatement(actions=list(SESSION_ACTIONS), resources=["*"]))
        acknowledge(
            role,
            "AwsSolutions-IAM5[Resource::*]",
            "Session Manager's five actions know no narrower resource; they reach nothing but the"
            " instance itself.",
        )
        if service.secrets:
            names = [name.lstrip("/") for name in sorted(set(service.secrets.values()))]
            role.add_to_policy(
                iam.PolicyStatement(
                    actions=["ssm:GetParameter"],
                    resources=[
                        Stack.of(self).format_arn(service="ssm", resource="parameter", resource_name=resource)
                        for name in names
                        # With a version, too: no page says whether that is part of what IAM is asked for.
                        for resource in (name, f"{name}:*")
                    ],
                )
            )
            for name in names:
                acknowledge(
                    role,
                    "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:ssm:<AWS::Region>:<AWS::AccountId>"
                    f":parameter/{name}:*]",
                    "The versions of a parameter that the service file names.",
                )
        if service.reports_gpus:
            # It knows no narrower resource than all, but a namespace: another service's is closed to it.
            namespace = {"StringEquals": {"cloudwatch:namespace": instances_namespace(service.name)}}
            role.add_to_policy(
                iam.PolicyStatement(
                    actions=["cloudwatch:PutMetricData"], resources=["*"], conditions=namespace
                )
            )
        for statement in statements(role, service, files):
            role.add_to_policy(statement)
        if self._store is not None:
            role.add_to_policy(packed(role, service, self._store.bucket, "s3:GetObject"))
        return role


def _targeting(
    group_arn: str | None,
) -> ec2.CfnLaunchTemplate.CapacityReservationSpecificationProperty | None:
    """Have an instance use a group's capacity reservations, as long as one matches and has room.

    A preference beside the target would be `capacity-reservations-only`: nothing would be launched, nor a
    stopped instance started, once the group is full. Source:
    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CapacityReservationSpecification.html
    """
    if group_arn is None:
        return None
    return ec2.CfnLaunchTemplate.CapacityReservationSpecificationProperty(
        capacity_reservation_target=ec2.CfnLaunchTemplate.CapacityReservationTargetProperty(
            capacity_reservation_resource_group_arn=group_arn
        )
    )


def _user_data(service: Service, region: str, files: Files | None, packs: Store | None) -> str:
    return user_data(service, region, files.archive if files else LONGEST_ARCHIVE, packs or LONGEST_STORE)

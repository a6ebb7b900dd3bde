"""What is in a service's target group, as an operator sees it who hands instances over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import translated
from spotrelay.plane.aws.fleet import instance_of, tags_of
from spotrelay.plane.aws.router import state_of
from spotrelay.plane.core.instances import Target
from spotrelay.plane.core.names import TAG_ADOPTED, TAG_SERVICE
from spotrelay.plane.core.spec import ServiceSpec

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

MAX_FILTER_VALUES = 200
"""In one request of DescribeInstances."""


class RegisteredTargets:
    """The targets of a target group, with what EC2 says of them; and the tags that hand them over."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def found(self, spec: ServiceSpec) -> Sequence[Target]:
        """Every target of the service's target group, by its ID.

        Raises:
            PortError: AWS can't be asked.
        """
        with translated():
            answer = self._clients.elbv2.describe_target_health(TargetGroupArn=spec.target_group_arn)
        described = answer["TargetHealthDescriptions"]
        count = Counter(one["Target"]["Id"] for one in described)
        shown = self._shown(count.keys())
        region = self._clients.ec2.meta.region_name
        by_id = {
            one["Target"]["Id"]: Target(
                one["Target"]["Id"],
                state_of(one["TargetHealth"].get("State", "")),
                one["Target"].get("Port", spec.port),
                instance_of(instance, region) if instance else None,
                tags_of(instance.get("Tags", [])) if instance else {},
                is_twice=count[one["Target"]["Id"]] > 1,
            )
            for one in described
            for instance in [shown.get(one["Target"]["Id"])]
        }
        return [by_id[id_] for id_ in sorted(by_id)]

    def hand_over(self, service: str, instance_ids: Sequence[str]) -> None:
        """Tag instances as the service's, and as adopted.

        Raises:
            PortError: AWS refuses it, or didn't answer: some may bear the tags.
        """
        with translated():
            self._clients.ec2.create_tags(
                Resources=list(instance_ids),
                Tags=[{"Key": TAG_SERVICE, "Value": service}, {"Key": TAG_ADOPTED, "Value": "true"}],
            )

    def _shown(self, ids: Collection[str]) -> Mapping[str, InstanceTypeDef]:
        # By a filter: one ID that EC2 doesn't know, an address say, would fail the whole request.
        wanted = sorted(ids)
        batches = [wanted[at : at + MAX_FILTER_VALUES] for at in range(0, len(wanted), MAX_FILTER_VALUES)]
        return {i["InstanceId"]: i for batch in batches for i in self._described(batch)}

    def _described(self, ids: Sequence[str]) -> Iterator[InstanceTypeDef]:
        with translated():
            pages = self._clients.ec2.get_paginator("describe_instances").paginate(
                Filters=[{"Name": "instance-id", "Values": list(ids)}]
            )
            for page in pages:
                for reservation in page["Reservations"]:
                    yield from reservation["Instances"]

"""The instance that runs a service's set-up once, to make something of it: a pack or an image."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from spotrelay.file.instance import packing, packs
from spotrelay.file.instance.unit import HOME
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import INSTANCE_NOT_FOUND, refusal_kind, translated
from spotrelay.plane.aws.fleet import instance_of
from spotrelay.plane.core.instances import RefusalKind
from spotrelay.plane.core.names import TAG_LAUNCH_TEMPLATE_VERSION
from spotrelay.plane.core.pools import CapacityPool
from spotrelay.plane.core.ports import Denied

ELSEWHERE = (RefusalKind.CAPACITY, RefusalKind.UNSUPPORTED, RefusalKind.ADDRESSES)
"""Refusals of one pool, after which another may do."""

AT_WORK = ("pending", "running")
HALTED = ("stopping", "stopped")
ENDED = ("shutting-down", "terminated")
"""EC2's states of an instance."""


@dataclass(frozen=True, slots=True)
class Deployed:
    """What an instance of a service's deployed version is launched from."""

    template: str
    version: str
    user_data: str
    """In the clear."""
    image_id: str

    @classmethod
    def found(cls, clients: Clients, template: str, version: str) -> Deployed:
        """As EC2 has it.

        Raises:
            PortError: EC2 doesn't say.
        """
        with translated():
            answer = clients.ec2.describe_launch_template_versions(
                LaunchTemplateId=template, Versions=[version]
            )
        (one,) = answer["LaunchTemplateVersions"]
        data = one["LaunchTemplateData"]
        return cls(template, version, packing.decoded(data.get("UserData", "")), data.get("ImageId", ""))

    @property
    def plan(self) -> dict[str, Any] | None:
        """What such an instance reads of packs; None: it knows none."""
        its = packing.written(self.user_data).get(f"{HOME}/{packs.PLAN}")
        if its is None:
            return None
        plan: dict[str, Any] = json.loads(packing.content(its))
        return plan


@dataclass(frozen=True, slots=True)
class Worker:
    """An instance that makes something."""

    id: str
    state: str
    """As EC2 calls it."""
    version: str
    """Of its service's launch template."""
    image_id: str
    pool: CapacityPool
    launched_at: datetime


def workers(clients: Clients, tag: str, service: str, states: Collection[str] = AT_WORK) -> list[Worker]:
    """The instances in these states that make for a service what the tag says.

    Raises:
        PortError: EC2 doesn't say.
    """
    with translated():
        pages = clients.ec2.get_paginator("describe_instances").paginate(
            Filters=[
                {"Name": f"tag:{tag}", "Values": [service]},
                {"Name": "instance-state-name", "Values": [*states]},
            ]
        )
        reservations = [one for page in pages for one in page["Reservations"]]
    region = clients.ec2.meta.region_name
    return [
        Worker(
            one["InstanceId"],
            one["State"]["Name"],
            next((t["Value"] for t in one.get("Tags", ()) if t["Key"] == TAG_LAUNCH_TEMPLATE_VERSION), ""),
            one["ImageId"],
            instance_of(one, region).offering.pool,
            one["LaunchTime"],
        )
        for reservation in reservations
        for one in reservation["Instances"]
    ]


def at_work(clients: Clients, tag: str, service: str) -> list[str]:
    """IDs of the instances that make for a service what the tag says, now.

    Raises:
        PortError: EC2 doesn't say.
    """
    return [one.id for one in workers(clients, tag, service)]


def end(clients: Clients, instance_ids: Sequence[str]) -> None:
    """Terminate instances.

    Raises:
        PortError: EC2 refuses.
    """
    with translated():
        clients.ec2.terminate_instances(InstanceIds=instance_ids)


@dataclass(frozen=True, slots=True)
class Maker:
    """Launches an instance that makes something of a service's set-up, and ends it."""

    clients: Clients
    deployed: Deployed
    service: str
    tag: str
    """What it makes; see `plane.core.names`."""
    user_data: bytes
    labels: Mapping[str, str]
    differs: Mapping[str, Any] = field(default_factory=dict)
    """What of the request is another than in the launch template."""

    def launch(self, pools: Iterable[CapacityPool], subnets: Mapping[str, str]) -> tuple[str, CapacityPool]:
        """An on-demand instance in the first of these pools that has room; `subnets`: each with its zone.

        Raises:
            PortError: EC2 refuses it, in each of them or at all.
        """
        refused: Denied | None = None
        for pool, subnet in _places(pools, subnets):
            try:
                return self._launched(pool, subnet), pool
            except Denied as denied:
                refused = denied
                if refusal_kind(denied.code, str(denied)) not in ELSEWHERE:
                    raise
        raise refused or Denied("the service has no pool to launch in")

    def _launched(self, pool: CapacityPool, subnet: str) -> str:
        name = f"spotrelay {self.tag.partition(':')[2]} {self.service}"
        tags = {"Name": name, self.tag: self.service, **self.labels}
        request: dict[str, Any] = {
            "MinCount": 1,
            "MaxCount": 1,
            "ClientToken": str(uuid.uuid4()),
            "LaunchTemplate": {
                "LaunchTemplateId": self.deployed.template,
                "Version": self.deployed.version,
            },
            "InstanceType": pool.instance_type,
            "SubnetId": subnet,
            "UserData": self.user_data,
            # It powers itself off, whatever has become of the command.
            "InstanceInitiatedShutdownBehavior": "terminate",
            "TagSpecifications": [
                {
                    "ResourceType": "instance",
                    "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
                }
            ],
            **self.differs,
        }
        with translated():
            answer = self.clients.ec2.run_instances(**request)
        return str(answer["Instances"][0]["InstanceId"])

    def state(self, instance_id: str) -> str:
        """As EC2 calls it.

        Raises:
            PortError: EC2 doesn't say.
        """
        try:
            with translated():
                answer = self.clients.ec2.describe_instances(InstanceIds=[instance_id])
        except Denied as denied:
            if denied.code != INSTANCE_NOT_FOUND:
                raise
            return "pending"  # not shown yet
        found = [one for reservation in answer["Reservations"] for one in reservation["Instances"]]
        return str(found[0]["State"]["Name"]) if found else "pending"

    def end(self, instance_id: str) -> None:
        """Terminate it.

        Raises:
            PortError: EC2 refuses.
        """
        end(self.clients, [instance_id])


def _places(pools: Iterable[CapacityPool], subnets: Mapping[str, str]) -> Iterator[tuple[CapacityPool, str]]:
    for pool in pools:
        for subnet, zone in subnets.items():
            if zone == pool.zone:
                yield pool, subnet

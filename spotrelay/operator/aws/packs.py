"""Packs in the bootstrap bucket, and the instance that makes one."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from spotrelay.file.instance import fitting, packing, packs
from spotrelay.file.instance.unpack import CACHES
from spotrelay.file.instance.userdata import environment
from spotrelay.file.service import Service
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import INSTANCE_NOT_FOUND, refusal_kind, translated
from spotrelay.plane.core.instances import RefusalKind
from spotrelay.plane.core.names import TAG_PACK
from spotrelay.plane.core.pools import CapacityPool
from spotrelay.plane.core.ports import Denied

_MANIFEST = re.compile(r"([0-9a-f]{64})\.json")

NO_OBJECT = "NoSuchKey"

ELSEWHERE = (RefusalKind.CAPACITY, RefusalKind.UNSUPPORTED, RefusalKind.ADDRESSES)
"""Refusals of one pool, after which another may do."""


@dataclass(frozen=True, slots=True)
class Found:
    """A pack that is there."""

    manifest: str
    """Its SHA-256."""
    made_at: datetime


def below(service: Service) -> str:
    """Where packs of a service's present set-up are.

    Raises:
        FilesError: the service's files can't be read.
    """
    return packs.prefix(service.name, fitting.fit(service, environment(service)))


@dataclass(frozen=True, slots=True)
class Made:
    """What is there for a set-up, each the newest first."""

    packs: list[Found]
    caches: dict[str, list[Found]]
    """Engine caches, by accelerator."""


def made(clients: Clients, bucket: str, prefix: str) -> Made:
    """The packs and engine caches of a set-up, whose prefix this is.

    Raises:
        PortError: S3 doesn't say.
    """
    by_directory: dict[str, list[Found]] = {}
    with translated():
        pages = clients.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/")
        for one in (one for page in pages for one in page.get("Contents", [])):
            directory, _, name = one["Key"].rpartition("/")
            if manifest := _MANIFEST.fullmatch(name):
                by_directory.setdefault(directory, []).append(Found(manifest[1], one["LastModified"]))
    for found in by_directory.values():
        found.sort(key=lambda one: one.made_at, reverse=True)
    caches = {
        directory.removeprefix(f"{prefix}/{CACHES}/"): found
        for directory, found in by_directory.items()
        if directory.startswith(f"{prefix}/{CACHES}/")
    }
    return Made(by_directory.get(prefix, []), caches)


@dataclass(frozen=True, slots=True)
class Deployed:
    """What an instance of a service's deployed version is launched from."""

    template: str
    version: str
    user_data: str
    """In the clear."""
    image: str
    """The ID of its AMI."""

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


def at_work(clients: Clients, service: str) -> list[str]:
    """IDs of the instances that make a pack of a service now.

    Raises:
        PortError: EC2 doesn't say.
    """
    with translated():
        pages = clients.ec2.get_paginator("describe_instances").paginate(
            Filters=[
                {"Name": f"tag:{TAG_PACK}", "Values": [service]},
                {"Name": "instance-state-name", "Values": ["pending", "running"]},
            ]
        )
        return [
            instance["InstanceId"]
            for page in pages
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
        ]


def end(clients: Clients, instance_ids: Sequence[str]) -> None:
    """Terminate instances.

    Raises:
        PortError: EC2 refuses.
    """
    with translated():
        clients.ec2.terminate_instances(InstanceIds=instance_ids)


class Maker:
    """Launches an instance that makes a pack, and ends it."""

    def __init__(
        self,
        clients: Clients,
        deployed: Deployed,
        profile_arn: str,
        service: str,
        labels: Mapping[str, str],
        warming: packing.Warm | None = None,
    ) -> None:
        """`warming`: for an engine cache; None: it makes none."""
        self._clients = clients
        self._deployed = deployed
        self._profile_arn = profile_arn
        self._service = service
        self._labels = labels
        self._warming = warming

    def launch(self, pools: Iterable[CapacityPool], subnets: Mapping[str, str]) -> tuple[str, CapacityPool]:
        """An on-demand instance in the first of these pools that has room; `subnets`: each with its zone.

        Raises:
            PortError: EC2 refuses it, in each of them or at all.
        """
        refused: Denied | None = None
        for pool in pools:
            for subnet in (id_ for id_, zone in subnets.items() if zone == pool.zone):
                try:
                    return self._launched(pool, subnet), pool
                except Denied as denied:
                    refused = denied
                    if refusal_kind(denied.code, str(denied)) not in ELSEWHERE:
                        raise
        raise refused or Denied("the service has no pool to launch in")

    def _launched(self, pool: CapacityPool, subnet: str) -> str:
        tags = {"Name": f"spotrelay pack {self._service}", TAG_PACK: self._service, **self._labels}
        request: dict[str, Any] = {
            "MinCount": 1,
            "MaxCount": 1,
            "ClientToken": str(uuid.uuid4()),
            "LaunchTemplate": {
                "LaunchTemplateId": self._deployed.template,
                "Version": self._deployed.version,
            },
            "InstanceType": pool.instance_type,
            "SubnetId": subnet,
            "IamInstanceProfile": {"Arn": self._profile_arn},
            "UserData": packing.user_data(self._deployed.user_data, self._warming),
            # It powers itself off, whatever has become of the command.
            "InstanceInitiatedShutdownBehavior": "terminate",
            "TagSpecifications": [
                {
                    "ResourceType": "instance",
                    "Tags": [{"Key": name, "Value": value} for name, value in tags.items()],
                }
            ],
        }
        with translated():
            answer = self._clients.ec2.run_instances(**request)
        return str(answer["Instances"][0]["InstanceId"])

    def state(self, instance_id: str) -> str:
        """As EC2 calls it.

        Raises:
            PortError: EC2 doesn't say.
        """
        try:
            with translated():
                answer = self._clients.ec2.describe_instances(InstanceIds=[instance_id])
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
        end(self._clients, [instance_id])


def keys(clients: Clients, bucket: str, prefix: str, manifests: Iterable[str]) -> set[str]:
    """The objects of packs that are there.

    Raises:
        PortError: S3 can't be asked.
    """
    found: set[str] = set()
    for manifest in manifests:
        key = f"{prefix}/{manifest}.json"
        try:
            said = _said(clients, bucket, key)
        except Denied as denied:
            if denied.code != NO_OBJECT:
                raise
            continue
        found |= {key, *(f"{prefix}/{shard['sha256']}" for shard in said["shards"])}
    return found


def _said(clients: Clients, bucket: str, key: str) -> dict[str, Any]:
    """What a manifest says."""
    with translated():
        body = clients.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    found: dict[str, Any] = json.loads(body)
    return found


def image(clients: Clients, bucket: str, prefix: str, manifest: str) -> str:
    """The ID of the AMI that a pack was made on.

    Raises:
        PortError: S3 doesn't say.
    """
    return str(_said(clients, bucket, f"{prefix}/{manifest}.json").get("image", ""))


def starts_s(clients: Clients, bucket: str, prefix: str, kind: str, manifest: str) -> tuple[float, float]:
    """What the two starts took by which an engine cache was made.

    Raises:
        PortError: S3 can't be asked.
    """
    first_s, second_s = _said(clients, bucket, f"{prefix}/{CACHES}/{kind}/{manifest}.json")["starts_s"]
    return first_s, second_s


def drop(clients: Clients, bucket: str, prefix: str, kept: Collection[str], before: datetime) -> int:
    """Delete the other objects that were written before; how many there were.

    Raises:
        PortError: S3 refuses.
    """
    count = 0
    with translated():
        pages = clients.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/")
        for page in pages:
            old = [
                {"Key": one["Key"]}
                for one in page.get("Contents", [])
                if one["Key"] not in kept and one["LastModified"] < before
            ]
            if old:
                # One that it may not delete it names in its answer.
                answer = clients.s3.delete_objects(Bucket=bucket, Delete={"Objects": old, "Quiet": True})
                for error in answer.get("Errors", [])[:1]:
                    raise Denied(f"{error['Key']}: {error['Message']}", error["Code"])
            count += len(old)
    return count

"""What an account has of a service: its instances, their disks and its document, as AWS lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import translated
from spotrelay.plane.core.names import TAG_SERVICE, service_parameter

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef

NOT_ENDED = ("pending", "running", "shutting-down", "stopping", "stopped")
"""Every state but `terminated`."""


@dataclass(frozen=True, slots=True)
class Remains:
    """What there is, by its ID."""

    instances: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.instances or self.volumes or self.parameters)

    def __str__(self) -> str:
        """How many there are."""
        counted = (
            (len(self.instances), "instance"),
            (len(self.volumes), "volume"),
            (len(self.parameters), "parameter"),
        )
        return ", ".join(f"{n} {thing}{'' if n == 1 else 's'}" for n, thing in counted)

    @property
    def named(self) -> str:
        """Each by its ID."""
        return ", ".join((*self.instances, *self.volumes, *self.parameters))


def remains(clients: Clients, service: str) -> Remains:
    """What the account has of the service.

    Raises:
        PortError: EC2 or Parameter Store can't be asked.
    """
    tagged: FilterTypeDef = {"Name": f"tag:{TAG_SERVICE}", "Values": [service]}
    with translated():
        pages = clients.ec2.get_paginator("describe_instances").paginate(
            Filters=[tagged, {"Name": "instance-state-name", "Values": list(NOT_ENDED)}]
        )
        instances = [
            instance["InstanceId"]
            for page in pages
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
        ]
        volumes = [
            volume["VolumeId"]
            for found in clients.ec2.get_paginator("describe_volumes").paginate(Filters=[tagged])
            for volume in found["Volumes"]
        ]
        parameters = clients.ssm.get_parameters(Names=[service_parameter(service)])["Parameters"]
    return Remains(tuple(instances), tuple(volumes), tuple(p["Name"] for p in parameters))

"""The service file: one YAML file per service, and everything a stack needs to know from it.

For the CDK app and the commands. Lambda functions must not import this package: it needs pydantic and
ruamel.yaml, which their asset doesn't have. They read the runtime document instead
(`spotrelay.core.spec.ServiceSpec`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from spotrelay.core.instance_types import InstanceType
from spotrelay.service import eligibility
from spotrelay.service.check import Description, describe
from spotrelay.service.disk import Disk
from spotrelay.service.errors import (
    InvalidServiceFileError,
    MalformedServiceFileError,
    Problem,
    ServiceFileError,
    UnreadableServiceFileError,
)
from spotrelay.service.loading import load
from spotrelay.service.model import Image, Service
from spotrelay.service.userdata import user_data

__all__ = [
    "Description",
    "Disk",
    "Image",
    "InvalidServiceFileError",
    "MalformedServiceFileError",
    "Problem",
    "Service",
    "ServiceFileError",
    "UnreadableServiceFileError",
    "describe",
    "eligible_instance_types",
    "in_region",
    "load",
    "pinned",
    "user_data",
]


def in_region(service: Service, region: str | None) -> Service:
    """The service as it is deployed there: without alternatives that are for other regions only."""
    if region is None:
        return service
    wanted = service.requirements.within(region)
    return replace(service, requirements=wanted, instance_types=eligibility.find(wanted).types)


def pinned(service: Service, versions: Mapping[str, int]) -> Service:
    """The service with the versions of its secrets that its instances read, by parameter."""
    own = {name: versions[name] for name in service.secrets.values() if name in versions}
    return replace(service, secret_versions=own)


def eligible_instance_types(service: Service) -> list[InstanceType]:
    """Every instance type the service may run on; see `Service.ordered` for what their order means."""
    return list(service.instance_types)

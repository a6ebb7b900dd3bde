"""The service file: one YAML file per service, and everything a stack needs to know from it.

For the CDK app and the commands. Lambda functions must not import this package: it needs pydantic and
ruamel.yaml, which their asset doesn't have. They read the runtime document instead
(`spotrelay.plane.core.spec.ServiceSpec`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from spotrelay.file.compile.check import Description, describe
from spotrelay.file.compile.loading import load
from spotrelay.file.instance import engine
from spotrelay.file.instance.userdata import user_data
from spotrelay.file.model import Image, Service
from spotrelay.file.source.errors import (
    InvalidServiceFileError,
    MalformedServiceFileError,
    Problem,
    ServiceFileError,
    UnreadableServiceFileError,
)
from spotrelay.file.values import eligibility
from spotrelay.file.values.disk import Disk
from spotrelay.plane.core.instance_types import InstanceType

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


def pinned(
    service: Service,
    versions: Mapping[str, int],
    digests: Mapping[str, str],
    packs: Mapping[str, str],
) -> Service:
    """The service with what instances read.

    That is versions of secrets by parameter, digests of models by source, and manifests of packs by service,
    of its engine caches by service/accelerator.
    """
    caches = {
        kind: packs[key] for kind in engine.kinds(service) if (key := f"{service.name}/{kind}") in packs
    }
    return replace(
        service,
        secret_versions={name: versions[name] for name in service.secrets.values() if name in versions},
        models=tuple(replace(model, digest=digests.get(model.source.url)) for model in service.models),
        pack=service.pack and replace(service.pack, manifest=packs.get(service.name), caches=caches),
    )


def eligible_instance_types(service: Service) -> list[InstanceType]:
    """Every instance type the service may run on; see `Service.ordered` for what their order means."""
    return list(service.instance_types)

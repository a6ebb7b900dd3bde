"""Packs in the bootstrap bucket."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from spotrelay.file.instance import fitting, packs
from spotrelay.file.instance.unpack import CACHES
from spotrelay.file.instance.userdata import environment
from spotrelay.file.service import Service
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import translated
from spotrelay.plane.core.ports import Denied

_MANIFEST = re.compile(r"([0-9a-f]{64})\.json")

NO_OBJECT = "NoSuchKey"


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


def keys(clients: Clients, bucket: str, prefix: str, manifests: Iterable[str]) -> set[str]:
    """The objects of packs that are there.

    Raises:
        PortError: S3 can't be asked.
    """
    found: set[str] = set()
    for manifest in manifests:
        key = f"{prefix}/{manifest}.json"
        try:
            said = _manifest(clients, bucket, key)
        except Denied as denied:
            if denied.code != NO_OBJECT:
                raise
            continue
        found |= {key, *(f"{prefix}/{shard['sha256']}" for shard in said["shards"])}
    return found


def image(clients: Clients, bucket: str, prefix: str, manifest: str) -> str:
    """The ID of the AMI that a pack was made on.

    Raises:
        PortError: S3 doesn't say.
    """
    return str(_manifest(clients, bucket, f"{prefix}/{manifest}.json").get("image", ""))


def starts_s(clients: Clients, bucket: str, prefix: str, kind: str, manifest: str) -> tuple[float, float]:
    """What the two starts took by which an engine cache was made.

    Raises:
        PortError: S3 can't be asked.
    """
    said = _manifest(clients, bucket, f"{prefix}/{CACHES}/{kind}/{manifest}.json")
    first_s, second_s = said["starts_s"]
    return first_s, second_s


def sizes(clients: Clients, bucket: str, prefix: str, manifest: str) -> tuple[int, int]:
    """The bytes of a set-up's pack, unpacked and as they are fetched.

    Raises:
        PortError: S3 can't be asked.
    """
    said = _manifest(clients, bucket, f"{prefix}/{manifest}.json")
    return said["unpacked"], sum(shard["size"] for shard in said["shards"])


def _manifest(clients: Clients, bucket: str, key: str) -> dict[str, Any]:
    with translated():
        said: dict[str, Any] = json.loads(clients.s3.get_object(Bucket=bucket, Key=key)["Body"].read())
    return said


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

"""What lies below a model's prefix, as S3 lists it."""

from __future__ import annotations

from dataclasses import dataclass

from spotrelay.file.instance.fetch import Object, digest
from spotrelay.file.values.files import Bucket
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import translated


@dataclass(frozen=True, slots=True)
class Stored:
    """A model in its bucket."""

    region: str
    objects: int
    size: int
    """In bytes."""
    digest: str
    """As instances find it, see `fetch.digest`."""


def stored(clients: Clients, source: Bucket) -> Stored:
    """Every object below the source, and none of what consoles make for folders.

    Raises:
        PortError: S3 doesn't say: there is no such bucket, it isn't permitted, S3 can't be asked.
    """
    below = f"{source.prefix}/" if source.prefix else ""
    with translated():
        pages = clients.s3.get_paginator("list_objects_v2").paginate(Bucket=source.name, Prefix=below)
        found = [
            Object(one["Key"][len(below) :], one["Size"], one["ETag"])
            for page in pages
            for one in page.get("Contents", [])
            if not one["Key"].endswith("/")
        ]
        # Of the same permission.
        region = clients.s3.head_bucket(Bucket=source.name).get("BucketRegion", "")
    return Stored(region, len(found), sum(one.size for one in found), digest(found))

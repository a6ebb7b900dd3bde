"""What lies below a model's prefix, as S3 lists it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spotrelay.file.instance.fetch import Object, digest
from spotrelay.file.instance.peers import LARGEST_PIECE
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
    listed: Sequence[Object] = ()


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
    return Stored(region, len(found), sum(one.size for one in found), digest(found), found)


def unhashed(clients: Clients, source: Bucket, listed: Sequence[Object]) -> str | None:
    """The key of one that peers can't bring, as S3 has no SHA-256 of it, or of parts that are too large.

    Raises:
        PortError: S3 doesn't say: it isn't permitted, S3 can't be asked.
    """
    for one in listed:
        if one.size and not _is_hashed(
            clients, source.name, f"{source.prefix}/{one.key}".lstrip("/"), one.size
        ):
            return one.key
    return None


def _is_hashed(clients: Clients, bucket: str, key: str, size: int) -> bool:
    with translated():
        told = clients.s3.get_object_attributes(
            # All parts but the last have one size, and all have the same kind of checksum.
            Bucket=bucket,
            Key=key,
            ObjectAttributes=["Checksum", "ObjectParts"],
            MaxParts=1,
        )
    # What was put at once has no parts.
    parts = told.get("ObjectParts", {}).get("Parts") or [{"Size": size, **told.get("Checksum", {})}]
    return "ChecksumSHA256" in parts[0] and parts[0]["Size"] <= LARGEST_PIECE

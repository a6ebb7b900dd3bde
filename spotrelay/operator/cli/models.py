"""Whether the models of services are where their files say, and fit."""

from __future__ import annotations

import http.client
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from spotrelay.file.instance import web
from spotrelay.file.instance.fetch import FetchError
from spotrelay.file.instance.peers import LARGEST_PIECE
from spotrelay.file.model import IMAGES_GIB, Service
from spotrelay.file.source.errors import Problem
from spotrelay.file.values.disk import INSTANCE_STORE
from spotrelay.file.values.files import Bucket, WebFile
from spotrelay.operator.aws.models import Stored, stored, unhashed
from spotrelay.operator.cli.errors import AWS_SAYS
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.core.ports import Denied

NO_BUCKET = "NoSuchBucket"


@dataclass(frozen=True, slots=True)
class Found:
    """What became of looking for models."""

    stored: dict[str, Stored]
    """By source, what is in buckets."""
    problems: list[Problem]
    notices: list[str] = field(default_factory=list)
    """What isn't known, and why peers won't help though `spotrelay.peers` says so."""
    files: dict[str, int | None] = field(default_factory=dict)
    """Bytes by source, what web servers have; None: they don't say so here."""

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes by source, as far as they are known."""
        told = {source: size for source, size in self.files.items() if size is not None}
        return {source: one.size for source, one in self.stored.items()} | told

    @property
    def digests(self) -> dict[str, str]:
        """By source, for the instances."""
        return {source: one.digest for source, one in self.stored.items()}


def found(clients: Clients, services: Iterable[Service]) -> Found:
    """The models of all services, and what is wrong with them.

    Raises:
        PortError: S3 can't be asked.
    """
    result = Found({}, [])
    for service in services:
        for index, model in enumerate(service.models):
            where, source = f"spotrelay.models[{index}].source", model.source
            if isinstance(source, WebFile):
                if source.url not in result.files:
                    result.files[source.url], told = _of_the_web(source)
                    result.notices.extend(f"{service.name}: {words}" for words in told)
                continue
            try:
                if source.url not in result.stored:
                    result.stored[source.url] = stored(clients, source)
            except Denied as error:
                result.problems.append(_problem(service, where, _refused(source, error)))
                continue
            one = result.stored[source.url]
            if service.peers and (words := _without_peers(clients, source, one)):
                result.notices.append(f"{service.name}: {words}")
            region = str(clients.s3.meta.region_name)
            for words in _lacks(source, one, region):
                result.problems.append(_problem(service, where, words))
        if too_large := _too_large(service, result.sizes):
            result.problems.append(_problem(service, "resources.disk_size", too_large))
    return result


def _of_the_web(source: WebFile) -> tuple[int | None, list[str]]:
    """How large a file is, and what isn't known of it: an instance may reach what this machine can't."""
    try:
        return web.look(source.url).size, []
    except (FetchError, OSError, http.client.HTTPException) as error:
        why = str(error) or type(error).__name__
        return None, [f"whether instances can fetch {source.url} isn't known, nor its size: from here, {why}"]


def _problem(service: Service, field: str, words: str) -> Problem:
    return Problem(str(service.path), None, field, words)


def _refused(source: Bucket, error: Denied) -> str:
    if error.code == NO_BUCKET:
        return f"there is no bucket {source.name}: make it, and copy the model there"
    return f"{source.url} can't be listed: these credentials need s3:ListBucket for it. {AWS_SAYS} {error}"


def _without_peers(clients: Clients, source: Bucket, one: Stored) -> str | None:
    try:
        key = unhashed(clients, source, one.listed)
    except Denied as error:
        return (
            f"whether peers can bring {source.url} isn't known: these credentials need s3:GetObjectAttributes"
            f" and s3:GetObject for it. {AWS_SAYS} {error}"
        )
    if key is None:
        return None
    return (
        f"replicas fetch {source.url} from the bucket alone: S3 has no SHA-256 of the parts of {key}, each of"
        f" {LARGEST_PIECE // 1024**2} MiB at most. Upload it below another prefix with"
        " `aws s3 cp --recursive --checksum-algorithm SHA256`"
    )


def _lacks(source: Bucket, one: Stored, region: str) -> Iterator[str]:
    if not one.objects:
        yield f"there is nothing below {source.url}/: copy the model there, or name its prefix"
    if one.region not in ("", region):
        yield (
            f"{source.name} is in {one.region}, and this is {region}: each start would fetch the model across"
            f" regions, slowly and for money: copy it to a bucket in {region}"
        )


def _too_large(service: Service, sizes: Mapping[str, int]) -> str | None:
    """Whether the root volume lacks room for the image and the models that lie on it."""
    size = sum(
        sizes.get(model.source.url, 0)
        for model in service.models
        if not model.path.startswith(f"{INSTANCE_STORE}/")
    )
    if not size:
        return None
    image_gib = IMAGES_GIB.get(service.image.reference, 0)
    needed_gib = image_gib + -(-size // 1024**3)
    if needed_gib <= service.disk.size_gib:
        return None
    beside = f" beside the image's {image_gib}" if image_gib else ""
    return (
        f"{service.disk.size_gib} GiB have no room for the models' {size / 1e9:.1f} GB{beside}: choose"
        f" {needed_gib} or more, and what setup installs"
    )

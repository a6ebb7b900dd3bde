"""The fields `workdir`, `file_mounts` and `image_id: docker:…`: from what a file says to what it means."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spotrelay.file.instance import bundle
from spotrelay.file.source.document import Location
from spotrelay.file.values.files import (
    BUCKET_NAME,
    Bucket,
    FileMount,
    FilesError,
    GitRepository,
    MountMode,
    bucket,
    is_url,
    local_path,
    repository,
    target,
)
from spotrelay.file.values.parsing import Finding, rejected
from spotrelay.messages import shown

DOCKER = "docker:"

MAX_IMAGE_NAME = 512
"""Docker takes repositories of 255 characters; a tag has 128 at most, a digest 71."""

_IMAGE_NAME = re.compile(r"[A-Za-z0-9][\w.\-]*(?::\d+)?(?:/[\w.\-]+)*(?::[\w.\-]+)?(?:@sha256:[0-9a-f]{64})?")

_STORAGE_FIELDS = ("name", "source", "store", "mode", "persistent")

_NO_BUCKET_IS_MADE = "SpotRelay makes no bucket and deletes none"


def parse_workdir(value: Any, places: Sequence[Path]) -> Any:
    """A directory of this machine, which must be there, or a repository. `places`: see `local_path`.

    Raises:
        PydanticCustomError: what is wrong, and where.
    """
    if isinstance(value, dict):
        return _repository(value)
    if not isinstance(value, str) or not value:
        return value
    if is_url(value):
        raise rejected(
            Finding(
                (), "expected a directory such as `.`; a repository is written {url: https://…, ref: main}"
            )
        )
    try:
        path = local_path(value, places)
        if not path.is_file():
            bundle.check(path)
            return path
    except FilesError as error:
        raise rejected(Finding((), str(error))) from error
    raise rejected(Finding((), f"{path} is a file: name the directory that it is in"))


def parse_file_mounts(value: Any, places: Sequence[Path]) -> Any:
    """Every entry, with what it names looked at. `places`: see `local_path`.

    Raises:
        PydanticCustomError: everything that is wrong, and where.
    """
    if not isinstance(value, dict):
        return value
    mounts: list[FileMount] = []
    findings: list[Finding] = []
    for name, entry in value.items():
        try:
            mount = FileMount(target(name), *_source(entry, places))
            if isinstance(mount.source, Path):
                bundle.check(mount.source)
        except _AtError as error:
            findings.append(Finding((name, *error.at), str(error)))
        except FilesError as error:
            findings.append(Finding((name,), str(error)))
        else:
            if any(mount.target == other.target for other in mounts):
                findings.append(Finding((name,), f"{mount.target} is the target of two entries: remove one"))
            mounts.append(mount)
    if findings:
        raise rejected(*findings)
    return tuple(mounts)


def parse_container(image_id: str) -> str:
    """The image that `image_id: docker:X` names.

    Raises:
        PydanticCustomError: X is no image's name.
    """
    image = image_id.removeprefix(DOCKER)
    if len(image) > MAX_IMAGE_NAME or not _IMAGE_NAME.fullmatch(image):
        raise rejected(
            Finding(
                (), f"expected docker:NAME, such as docker:vllm/vllm-openai:v0.11.0, got {shown(image_id)}"
            )
        )
    return image


def with_registry(image: str, envs: Mapping[str, str]) -> str:
    """The image with the registry that SKYPILOT_DOCKER_SERVER names, as SkyPilot understands it."""
    server = envs.get("SKYPILOT_DOCKER_SERVER", "").rstrip("/")
    return image if not server or image.startswith(f"{server}/") else f"{server}/{image}"


class _AtError(FilesError):
    """A problem at a place within an entry."""

    def __init__(self, message: str, *at: str | int) -> None:
        super().__init__(message)
        self.at: Location = at


def _source(entry: Any, places: Sequence[Path]) -> tuple[Path | Bucket, MountMode]:
    if isinstance(entry, str) and entry:
        return (bucket(entry) if is_url(entry) else local_path(entry, places)), MountMode.COPY
    if isinstance(entry, dict):
        return _storage(entry, places)
    raise FilesError(f"expected a path, s3://bucket/prefix, or fields (source, mode …), got {shown(entry)}")


def _storage(entry: Mapping[str, Any], places: Sequence[Path]) -> tuple[Path | Bucket, MountMode]:
    for field in entry:
        if field not in _STORAGE_FIELDS:
            raise _AtError(f"unknown field: there are {', '.join(_STORAGE_FIELDS)}", field)
    store = entry.get("store")
    if store is not None and str(store).lower() != "s3":
        raise _AtError(
            f"SpotRelay has S3 only, got {shown(store)}: copy the files to a bucket on S3", "store"
        )
    if entry.get("persistent") not in (None, True):
        raise _AtError(f"{_NO_BUCKET_IS_MADE}: remove this", "persistent")
    source, mode = _storage_source(entry, places), _mode(entry.get("mode", MountMode.MOUNT))
    if isinstance(source, Path) and mode is not MountMode.COPY:
        raise _AtError(
            f"a path of this machine can only be copied ({_NO_BUCKET_IS_MADE}): say `mode: COPY`,"
            " or copy the files to a bucket and name that",
            "mode" if "mode" in entry else "source",
        )
    return source, mode


def _mode(wanted: object) -> MountMode:
    try:
        return MountMode(str(wanted).upper())
    except ValueError:
        raise _AtError(f"expected {', '.join(MountMode)}, got {shown(wanted)}", "mode") from None


def _storage_source(entry: Mapping[str, Any], places: Sequence[Path]) -> Path | Bucket:
    source, name = entry.get("source"), entry.get("name")
    if source is None:
        if not isinstance(name, str) or not re.fullmatch(BUCKET_NAME, name):
            raise _AtError(f"expected the name of a bucket that exists, got {shown(name)}", "name")
        return Bucket(name)
    if not isinstance(source, str) or not source:
        raise _AtError(f"expected a path or s3://bucket/prefix, got {shown(source)}", "source")
    if not is_url(source):
        return local_path(source, places)
    try:
        return bucket(source)
    except FilesError as error:
        raise _AtError(str(error), "source") from error


def _repository(value: Mapping[str, Any]) -> GitRepository:
    for name in value:
        if name not in ("url", "ref"):
            raise rejected(Finding((name,), "unknown field: there are url, ref"))
    url, ref = value.get("url"), value.get("ref")
    if not isinstance(url, str):
        raise rejected(Finding(("url",), f"expected an https:// address, got {shown(url)}"))
    try:
        # A commit of digits only is a number in YAML.
        return repository(url, None if ref is None else str(ref))
    except FilesError as error:
        at = "ref" if "branch" in str(error) else "url"
        raise rejected(Finding((at,), str(error))) from error

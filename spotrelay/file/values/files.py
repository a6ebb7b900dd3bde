"""What a service's instances get of files: a work directory, and what is copied or mounted elsewhere."""

from __future__ import annotations

import ipaddress
import os.path
import posixpath
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from spotrelay.messages import shown

WORK_DIRECTORY = "sky_workdir"
"""Below the home directory of whoever runs the scripts: SkyServe's files know it by this name."""

BUCKET_NAME = r"[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9]"

_S3_URL = re.compile(rf"s3://(?P<bucket>{BUCKET_NAME})(?:/(?P<key>.*))?")

_OTHER_STORES = {
    "gs": "Google's storage",
    "gcs": "Google's storage",
    "r2": "Cloudflare's R2",
    "cos": "IBM's storage",
    "oci": "Oracle's storage",
    "nebius": "Nebius's storage",
    "coreweave": "CoreWeave's storage",
    "azure": "Azure's storage",
}


class MountMode(StrEnum):
    """How a bucket gets onto an instance."""

    COPY = "COPY"
    """Copied once, at set-up."""
    MOUNT = "MOUNT"
    """Read from S3 as it is needed."""
    MOUNT_CACHED = "MOUNT_CACHED"
    """The same, and what was read is kept on the disk."""


@dataclass(frozen=True, slots=True)
class GitRepository:
    """A work directory that the instance fetches by itself."""

    url: str
    ref: str | None = None
    """Branch, tag or commit; None: the repository's default branch."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket, or all in it whose key begins with `prefix`."""

    name: str
    prefix: str = ""
    """Without a slash at either end; empty: the whole bucket."""

    @property
    def url(self) -> str:
        """As the AWS CLI takes it."""
        return f"s3://{self.name}/{self.prefix}".rstrip("/")


@dataclass(frozen=True, slots=True)
class FileMount:
    """One entry of `file_mounts`."""

    target: str
    """Absolute, or below the home directory (`~/…`)."""
    source: Path | Bucket
    """A path of the machine that deploys, or a bucket."""
    mode: MountMode = MountMode.COPY
    is_writable: bool = False
    """Whether the service may add files to a mounted bucket."""

    @property
    def is_mounted(self) -> bool:
        """Whether the instances see the bucket itself, and no copy."""
        return self.mode is not MountMode.COPY


@dataclass(frozen=True, slots=True)
class WebFile:
    """A file of a web server."""

    url: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Model:
    """One entry of `spotrelay.models`, fetched from the boot on: all below a bucket's prefix, or a file."""

    source: Bucket | WebFile
    path: str
    """Absolute: a directory of its own; of a file its own."""
    digest: str | None = None
    """What was in a bucket at the deployment; None: nobody has asked."""


@dataclass(frozen=True, slots=True)
class Pack:
    """`spotrelay.pack`: what set-up makes, to be had from a pack."""

    paths: tuple[str, ...]
    """Directories, absolute."""
    manifest: str | None = None
    """SHA-256 of the pack that was chosen at the deployment; None: set-up runs."""
    warm: bool = False
    """Whether what the engine compiles is packed, too, for each accelerator by itself."""
    caches: Mapping[str, str] = field(default_factory=dict)
    """Accelerator → SHA-256 of the manifest of its engine cache; on others the engine compiles."""


class FilesError(ValueError):
    """A source or target can't be used; the text says why and what to do instead."""


class SecretError(FilesError):
    """It can't be used, nor shown."""


def local_path(text: str, places: Sequence[Path]) -> Path:
    """A path as the user wrote it: in the first of these places that has it, `~` for the home directory.

    `places`: absolute; as a service file's, its own folder and where the command runs.

    Raises:
        FilesError: nothing is there, or can be.
    """
    try:
        path = Path(text).expanduser()
        tried = [Path(os.path.normpath(place / path)) for place in dict.fromkeys(places)]
        found = next((one for one in tried if one.exists()), None)
    except OSError as error:  # a name that is too long
        raise FilesError(f"can't be read: {error.strerror}") from error
    except RuntimeError as error:  # ~nobody
        raise FilesError(f"expected a path, got {shown(text)}: there is no such home directory") from error
    if found is not None:
        return found
    if path.is_absolute() or len(tried) == 1:
        raise FilesError(f"there is no {tried[0]}")
    raise FilesError(
        f"there is no {tried[0]}, beside the service file, and no {tried[1]}, where the command runs"
    )


def target(text: str) -> str:
    """Where a file mount goes; a relative one is below the work directory.

    Raises:
        FilesError: it is no place for files.
    """
    if not text.isprintable() or ":" in text or ".." in text.split("/"):
        raise FilesError("expected a path such as /data or ~/models, without `..` and without a colon")
    whole = text if text.startswith(("/", "~/")) else f"~/{WORK_DIRECTORY}/{text}"
    found = posixpath.normpath(whole)
    if found.strip("/") in ("", "~", f"~/{WORK_DIRECTORY}") or text in ("", "~"):
        raise FilesError("would hide the whole directory: name one below it, such as /data or ~/models")
    return found


def bucket(url: str) -> Bucket:
    """The bucket and prefix that an `s3://` URL names.

    Raises:
        FilesError: it names another store, or none.
    """
    scheme = url.partition("://")[0].lower()
    if scheme == "s3":
        match = _S3_URL.fullmatch(url)
        prefix = (match["key"] or "").strip("/") if match else ""
        # IAM would read wildcards and variables in the name of what the instances may read.
        if match is None or re.search(r"[*?$]", prefix) or not prefix.isprintable():
            raise FilesError("expected s3://bucket/prefix, without *, ? and $")
        return Bucket(match["bucket"], prefix)
    if scheme in ("http", "https"):
        raise FilesError("SpotRelay copies from S3 only: fetch this with curl in `setup`")
    store = _OTHER_STORES.get(scheme, f"{scheme}://")
    raise FilesError(f"SpotRelay copies from S3 only, and this is {store}: copy it to a bucket on S3 first")


def model_path(text: str) -> str:
    """Where a model goes: a directory, or a file.

    Raises:
        FilesError: it is no place for one.
    """
    if not text.startswith("/"):
        raise FilesError("expected an absolute path such as /models/llama3-8b")
    return target(text)


NOT_PACKED = frozenset(
    (
        *("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "media", "mnt"),
        *("proc", "run", "sbin", "snap", "sys", "tmp", "usr", "var"),
    )
)
"""Of the system: an instance has them from its image, and they would be put aside as a whole."""


def pack_path(text: str) -> str:
    """A directory that a pack has.

    Raises:
        FilesError: it is none that may be put in place as a whole.
    """
    if not text.startswith("/"):
        raise FilesError("expected an absolute path such as /opt/vllm")
    found = target(text)
    first, *below = found.strip("/").split("/")
    if first in NOT_PACKED:
        raise FilesError(
            f"/{first} is the system's, and an instance has it from its image: let setup install into a"
            " directory such as /opt/vllm, and name that"
        )
    if not below and first in ("home", "opt", "root", "srv"):
        raise FilesError(f"has more than setup's: name a directory below it, such as /{first}/vllm")
    return found


def model_source(url: str) -> Bucket | str:
    """Where a model comes from: below a prefix, or from an https:// address.

    Raises:
        FilesError: it is neither, or a prefix with a comma, which the CDK's context takes for an end.
    """
    scheme = url.partition("://")[0].lower() if is_url(url) else ""
    if scheme == "https":
        return _web_address(url)
    if scheme == "http":
        raise FilesError("nobody knows who answers at http://: name its https:// address")
    if scheme == "hf":
        raise FilesError(
            "a start that asks Hugging Face is limited, or fails with it: copy the model to a bucket once,"
            " with the command spotrelay mirror, and name that"
        )
    if not scheme:
        raise FilesError("expected s3://bucket/prefix, or a file's https:// address")
    if "," in url:
        raise FilesError("expected s3://bucket/prefix, without a comma")
    return bucket(url)


_KEYS = frozenset(
    (
        *("x-amz-signature", "x-amz-credential", "x-goog-signature", "signature", "sig"),
        *("token", "access_token", "private_token", "api_key", "apikey", "key", "auth", "password"),
    )
)
"""What queries call credentials."""


def _web_address(url: str) -> str:
    """It, if an instance can fetch from there, and everybody may read it in the launch template.

    Raises:
        FilesError: it can't be.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host = ""
    if not host or not re.fullmatch(r"https://[\x21-\x7e]+", url, re.IGNORECASE) or "#" in url:
        raise FilesError("expected an address such as https://host/model.gguf, without # and spaces")
    asked = {name.lower() for name, _ in urllib.parse.parse_qsl(parts.query, keep_blank_values=True)}
    if parts.username is not None or asked & _KEYS:
        raise SecretError(
            "has credentials in it, and the launch template shows it to whoever may read that: make the file"
            " public, or copy it to a bucket and name that"
        )
    if parts.path.endswith("/") or not parts.path:
        raise FilesError("expected the address of one file, such as https://host/model.gguf")
    if _is_private(host):
        raise FilesError("is in a private network, where nothing is fetched from: copy it to a bucket")
    return url


def _is_private(host: str) -> bool:
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:  # a name, whose addresses the instance looks at
        return host == "localhost" or host.endswith((".localhost", ".internal", ".local"))


SHA256 = re.compile("[0-9a-f]{64}")


def sha256(text: str) -> str:
    """A file's, in small letters.

    Raises:
        FilesError: it is none.
    """
    found = text.strip().lower().removeprefix("sha256:")
    if not SHA256.fullmatch(found):
        raise FilesError(f"expected 64 hexadecimal digits: {HOW_TO_HASH}")
    return found


HOW_TO_HASH = (
    "what `sha256sum` says of the file; Hugging Face shows it on the page of each large file, as SHA256"
)


def one_within_the_other(path: str, other: str) -> bool:
    """Whether two targets are the same, or one lies below the other."""
    return f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/")


def is_url(text: str) -> bool:
    """Whether a source is somewhere else than on this machine."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.\-]*://", text) is not None


def repository(url: str, ref: str | None) -> GitRepository:
    """A repository to fetch the work directory from.

    Raises:
        FilesError: instances can't fetch from there.
    """
    if not re.fullmatch(r"https://[\x21-\x7e]+", url):
        raise FilesError(
            "expected an https:// address: instances have no SSH key of yours"
            " (for a private repository put a token into the secret GIT_TOKEN)"
        )
    if ref is not None and not re.fullmatch(r"[\w./][\w./\-]*", ref):
        raise FilesError("expected a branch, tag or commit")
    return GitRepository(url, ref)

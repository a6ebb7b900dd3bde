"""Copies a repository of Hugging Face, as it is at one commit, into a bucket, from which replicas fetch it.

The hub is asked by its own library, which only this needs.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from spotrelay.file.values.files import Bucket
from spotrelay.operator.aws.models import stored
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import translated

PART_BYTES = 8 * 1024 * 1024
"""As the AWS CLI has it: peers take parts of 32 MiB at most. S3 takes 10,000 of an object; of a larger one
boto3 makes larger parts."""

CONTENT = "spotrelay-content"
"""The name of an object's metadata that says what is in it, in Hugging Face's words."""

_URL = re.compile(r"hf://(?P<name>[\w.\-]+/[\w.\-]+)(?:@(?P<revision>[\w.\-/]+))?/?")

Tell = Callable[[int], None]
"""Takes how many bytes there are by now."""


class MirrorError(Exception):
    """A repository can't be copied; says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A model of Hugging Face."""

    name: str
    """With its owner's: `org/name`."""
    revision: str | None
    """A branch, tag or commit; None: the main branch."""


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository."""

    path: str
    size: int
    content: str
    """`sha256:…` of a large one, of others git's `blob:…`."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A repository at one commit."""

    name: str
    commit: str
    files: Sequence[HubFile]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def repository(url: str) -> Repository:
    """What an address names.

    Raises:
        MirrorError: it is none.
    """
    match = _URL.fullmatch(url)
    if match is None:
        raise MirrorError(f"expected hf://org/name or hf://org/name@revision, got {url}")
    return Repository(match["name"], match["revision"])


class Hub:
    """Hugging Face, or whoever HF_ENDPOINT names, asked with the token of HF_TOKEN or of `hf auth login`."""

    def __init__(self) -> None:
        """Raises: MirrorError: its library isn't there."""
        try:
            import huggingface_hub
        except ImportError as error:
            raise MirrorError(
                "huggingface-hub, which asks Hugging Face, isn't installed: a clone has it after make setup;"
                " the commands alone by uv tool install --with 'huggingface-hub>=2.4,<3', or pipx inject"
                " spotrelay 'huggingface-hub>=2.4,<3'"
            ) from error
        self._library = huggingface_hub
        self._endpoint = os.environ.get("HF_ENDPOINT")

    def snapshot(self, wanted: Repository, include: Sequence[str], exclude: Sequence[str]) -> Snapshot:
        """What a repository has now, or at the revision that is wanted.

        `include`: patterns of paths, none for all; `exclude`: of those, what is left out.

        Raises:
            MirrorError: it isn't there, it may not be read, or the hub can't be asked.
        """
        api = self._library.HfApi(endpoint=self._endpoint)
        with _hub_errors(wanted):
            found = api.model_info(wanted.name, revision=wanted.revision, files_metadata=True)
        if not found.sha:
            raise MirrorError(f"Hugging Face doesn't say which commit of {wanted.name} this is")
        files = [
            file
            for file in sorted(map(_file, found.siblings or []), key=lambda file: file.path)
            if (not include or _is_like(file, include)) and not _is_like(file, exclude)
        ]
        if not files:
            raise MirrorError(f"{wanted.name} has no such file: is it --include or --exclude?")
        return Snapshot(wanted.name, found.sha, files)

    def fetch(self, snapshot: Snapshot, file: HubFile, scratch: Path, tell: Tell) -> Path:
        """A file on this machine's disk, whole and as the hub says it is; goes on with what a try has left.

        Raises:
            MirrorError: the hub doesn't bring it, or brings another.
        """
        scratch.mkdir(parents=True, exist_ok=True)
        if (free := shutil.disk_usage(scratch).free) < file.size:
            raise MirrorError(
                f"{scratch} has {free / 1e9:.1f} GB left, and {file.path} takes {file.size / 1e9:.1f}: name"
                " another directory with --scratch"
            )
        with _hub_errors(Repository(snapshot.name, snapshot.commit)):
            got = self._library.hf_hub_download(
                snapshot.name,
                file.path,
                revision=snapshot.commit,
                local_dir=scratch,
                endpoint=self._endpoint,
                tqdm_class=_telling(tell),
            )
        path = Path(got)
        if (content := _content(path, file)) != file.content:
            path.unlink()
            raise MirrorError(
                f"{file.path} of {snapshot.name} came as {content}, and Hugging Face says {file.content}:"
                " try again"
            )
        return path


def _is_like(file: HubFile, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(file.path, pattern) for pattern in patterns)


def _file(one: Any) -> HubFile:
    """As the hub tells it.

    Raises:
        MirrorError: it doesn't say what is in it, or its name leads out of a directory.
    """
    if one.size is None or not (one.lfs or one.blob_id):
        raise MirrorError(f"Hugging Face doesn't say what {one.rfilename} is")
    if {"", ".", ".."} & {*one.rfilename.split("/")}:
        raise MirrorError(f"{one.rfilename} leads out of a directory")
    content = f"sha256:{one.lfs.sha256}" if one.lfs else f"blob:{one.blob_id}"
    return HubFile(one.rfilename, one.size, content)


def _content(path: Path, file: HubFile) -> str:
    """What is in a file, in the same words as the hub says it."""
    kind = file.content.partition(":")[0]
    with path.open("rb") as content:
        if kind == "sha256":
            return f"sha256:{hashlib.file_digest(content, 'sha256').hexdigest()}"
        # Git's name for a file: https://git-scm.com/book/en/v2/Git-Internals-Git-Objects
        hashed = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
        hashed.update(content.read())
        return f"blob:{hashed.hexdigest()}"


def _telling(tell: Tell) -> Any:
    """What the library shows progress with."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    class Told(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            self._there = int(options.get("initial") or 0)
            super().__init__(*args, **{**options, "disable": True})

        def update(self, n: float | None = 1) -> None:
            self._there += int(n or 0)
            tell(self._there)

    return Told


@contextmanager
def _hub_errors(wanted: Repository) -> Iterator[None]:
    from huggingface_hub import errors

    name = wanted.name
    try:
        yield
    except errors.GatedRepoError as error:
        raise MirrorError(
            f"{name} is for those who have agreed to its terms: agree at https://huggingface.co/{name}, and"
            " set HF_TOKEN"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise MirrorError(f"{name} has no revision {wanted.revision}") from error
    except errors.RepositoryNotFoundError as error:
        raise MirrorError(
            f"Hugging Face has no {name}, or shows it to nobody without a token: set HF_TOKEN"
        ) from error
    except (OSError, errors.HfHubHTTPError, errors.HTTPError, errors.EntryNotFoundError) as error:  # type: ignore[attr-defined]
        raise MirrorError(
            f"Hugging Face doesn't answer for {name}: {error}: try again, it goes on from there"
        ) from error


def copied(clients: Clients, into: Bucket, snapshot: Snapshot) -> set[str]:
    """The paths of files that are in the bucket.

    Raises:
        MirrorError: something else is there, which replicas may be fetching.
        PortError: S3 doesn't say.
    """
    files = {file.path: file for file in snapshot.files}
    found = set[str]()
    for one in stored(clients, into).listed:
        file = files.get(one.key)
        if file is None:
            raise MirrorError(
                f"{into.url}/{one.key} is no file of {snapshot.name} that is to be copied, and replicas would"
                " fetch it, too: name another prefix"
            )
        with translated():
            told = clients.s3.head_object(Bucket=into.name, Key=_key(into, file))
        if told["Metadata"].get(CONTENT) != file.content:
            raise MirrorError(
                f"{into.url}/{one.key} isn't that of commit {snapshot.commit[:12]}, or was copied by"
                " something else; replicas may be using it: name another prefix"
            )
        found.add(file.path)
    return found


def upload(clients: Clients, into: Bucket, file: HubFile, path: Path, tell: Tell) -> None:
    """Put a file into the bucket, in parts with a SHA-256 each, by which peers know what they are sent.

    Raises:
        PortError: S3 refuses it; nothing of it is there then.
    """
    from boto3.s3.transfer import S3Transfer, TransferConfig

    done = 0

    def on(count: int) -> None:
        nonlocal done
        done += count
        tell(done)

    in_parts = TransferConfig(multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES)
    # The stubs want botocore's `Config` there, which boto3 doesn't take.
    with translated(), S3Transfer(clients.s3, in_parts) as transfer:  # type: ignore[arg-type]
        transfer.upload_file(
            str(path),
            into.name,
            _key(into, file),
            callback=on,
            extra_args={"ChecksumAlgorithm": "SHA256", "Metadata": {CONTENT: file.content}},
        )


def _key(into: Bucket, file: HubFile) -> str:
    return f"{into.prefix}/{file.path}".lstrip("/")

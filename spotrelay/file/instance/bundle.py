"""The files that a service takes from the machine that deploys, in one archive for its instances.

The archive has `workdir/` (the work directory), `mounts/N` (the N-th entry of `file_mounts`), and
`setup.sh`, `run.sh`, `fetch.py` and `unpack.py` where they are too long for user data. It is a tar, because a
zip that Python unpacks loses the permission to execute, and `unzip` isn't everywhere.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from spotrelay.file.instance import packs
from spotrelay.file.instance.ignore import Rules, ignore_file
from spotrelay.file.model import Service
from spotrelay.file.values.files import FilesError

MAX_BYTES = 1024**3
"""Of all files together. More belongs into a bucket: an instance would load it anew at each launch, and each
`cdk synth` would pack it."""

MAX_FILES = 50_000
"""A work directory with more is a home directory, or has an environment in it that should stay behind."""

WORKDIR = "workdir"
MOUNTS = "mounts"


@dataclass(frozen=True, slots=True)
class Member:
    """One file, symbolic link or directory of the archive."""

    name: str
    path: Path
    link: str | None = None
    """Where a symbolic link points to."""


def is_needed(service: Service) -> bool:
    """Whether the service takes anything from the machine that deploys."""
    return (
        isinstance(service.workdir, Path)
        or any(isinstance(mount.source, Path) for mount in service.file_mounts)
        or service.scripts_in_bundle
    )


@dataclass(frozen=True, slots=True)
class Archive:
    """What an instance fetches the service's files by. Both may be CDK tokens."""

    url: str
    """An s3:// address."""
    sha256: str
    """Of the tar in it: see `write`."""


LONGEST_ARCHIVE = Archive(f"s3://{'b' * 63}/{'0' * 64}.tar.gz", "0" * 64)
"""Stands for one that isn't known before the files are packed, and is no shorter than any."""


def members(source: Path, name: str) -> Iterator[Member]:
    """A file, or a directory without what its ignore files leave out, under a name of its own.

    Raises:
        FilesError: there is no such file, it can't be read, or a link in it leads out.
    """
    if not source.exists():
        raise FilesError(f"there is no {source}")
    if not (source.is_dir() or source.is_file()):
        raise FilesError(f"{source} is neither a file nor a directory")
    if source.is_file():
        yield Member(name, source)
        return
    root = source.resolve()
    yield Member(name, root)
    yield from _tree(root, root, PurePosixPath(name), ignore_file(root), Rules())


def check(source: Path) -> None:
    """Whether a source may go into an archive.

    Raises:
        FilesError: as `members` does, or it is too large.
    """
    size = 0
    for files, member in enumerate(members(source, "x"), start=1):
        if member.link is None and member.path.is_file():
            size += member.path.stat().st_size
            if not os.access(member.path, os.R_OK):
                raise FilesError(f"{member.path} can't be read")
        if files > MAX_FILES or size > MAX_BYTES:
            raise FilesError(
                f"{source} has more than {MAX_FILES} files or {MAX_BYTES // 1024**3} GiB: list what isn't"
                " needed in .skyignore, or put it into a bucket and name that under file_mounts"
            )


def write(service: Service, target: Path) -> str:
    """Write the archive; its hash, which is that of the files and the same on every machine.

    Raises:
        FilesError: as `members` does.
    """
    found = hashlib.sha256()
    # No time and no name in gzip's header, and none of the files' times and owners: equal files make an
    # equal archive, and another archive is another version of the launch template.
    with (
        target.open("wb") as out,
        gzip.GzipFile("", "wb", 6, out, mtime=0) as packed,
        tarfile.open(fileobj=_Tee(packed, found.update), mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        _fill(archive, service)
    return found.hexdigest()


def digest(service: Service) -> str:
    """What `write` would return.

    Raises:
        FilesError: as `members` does.
    """
    found = hashlib.sha256()
    with (
        Path(os.devnull).open("wb") as nowhere,
        tarfile.open(fileobj=_Tee(nowhere, found.update), mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        _fill(archive, service)
    return found.hexdigest()


def _fill(archive: tarfile.TarFile, service: Service) -> None:
    for member in _all(service):
        _add(archive, member)
    for name, text in _scripts(service):
        content = text.encode()
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(content), 0o755
        archive.addfile(entry, io.BytesIO(content))


def _all(service: Service) -> Iterator[Member]:
    if isinstance(service.workdir, Path):
        yield from members(service.workdir, WORKDIR)
    for number, mount in enumerate(service.file_mounts):
        if isinstance(mount.source, Path):
            yield from members(mount.source, f"{MOUNTS}/{number}")


def _scripts(service: Service) -> Iterator[tuple[str, str]]:
    if service.scripts_in_bundle:
        if service.setup is not None:
            yield "setup.sh", service.setup.rstrip("\n") + "\n"
        yield "run.sh", service.run.rstrip("\n") + "\n"
        yield from packs.programs(service).items()


def _tree(
    root: Path, directory: Path, name: PurePosixPath, ignored_by: str, rules: Rules
) -> Iterator[Member]:
    at = PurePosixPath(directory.relative_to(root))
    rules = rules.below(directory, at, ignored_by)
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError as error:
        raise FilesError(f"{directory} can't be read: {error.strerror}") from error
    for entry in entries:
        path = Path(entry.path)
        is_directory = entry.is_dir(follow_symlinks=False)
        if rules.ignores(at / entry.name, is_directory=is_directory):
            continue
        if entry.is_symlink():
            yield Member(str(name / entry.name), path, _inside(root, path))
        elif is_directory:
            yield Member(str(name / entry.name), path)
            yield from _tree(root, path, name / entry.name, ignored_by, rules)
        elif entry.is_file():
            yield Member(str(name / entry.name), path)
        # Sockets, pipes and devices mean nothing on another machine.


def _inside(root: Path, path: Path) -> str:
    link = str(path.readlink())
    leads_to = Path(os.path.normpath(path.parent / link))
    if Path(link).is_absolute() or not leads_to.is_relative_to(root):
        raise FilesError(
            f"the symbolic link {path} leads out of {root}, to {link}, which instances don't have:"
            " put the file itself there, or list the link in .skyignore"
        )
    return link


def _add(archive: tarfile.TarFile, member: Member) -> None:
    entry = tarfile.TarInfo(member.name)
    if member.link is not None:
        entry.type, entry.linkname = tarfile.SYMTYPE, member.link
        archive.addfile(entry)
    elif member.path.is_dir():
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(entry)
    else:
        with member.path.open("rb") as content:
            status = os.fstat(content.fileno())
            # Whether it may be executed is all that matters; the rest differs between machines (umask).
            entry.size, entry.mode = status.st_size, 0o755 if status.st_mode & 0o100 else 0o644
            archive.addfile(entry, content)


class _Tee(io.RawIOBase):
    """Writes on, and hashes what passes: gzip's own output differs between versions of zlib."""

    def __init__(self, out: gzip.GzipFile | BinaryIO, see: Callable[[bytes], None]) -> None:
        self._out = out
        self._see = see

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]  # tarfile writes nothing but bytes
        self._see(data)
        return self._out.write(data)

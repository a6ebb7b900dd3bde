"""Packs what set-up has made into the service's part of a bucket. A packing instance runs it, as `pack.py`.

    python3 -I pack.py      what pack.json, beside it, names

A pack is some shards and a manifest, which comes last: what breaks off leaves no pack. A shard is an archive
of at most 64 MiB of files, or so much of a larger file, so that many are fetched and unpacked at once. Its
name is its SHA-256, and the manifest's name is the manifest's.

It has the standard library alone, of Python 3.9, and `fetch.py` beside it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from spotrelay.file.instance import fetch

SHARD_BYTES = 64 * 1024 * 1024
"""Before compression. An environment of 9 GB is 140 of them, enough for many connections, and each thread has
one in memory at a time."""

SHARD_FILES = 2000
"""So that no archive of tiny files takes much longer than one of large ones."""

FORMAT = 1
"""As `unpack.FORMAT`."""

BEGAN = ".pack-began"
"""Beside this file: made right before set-up, with the name of what compresses in it."""

SYSTEM: tuple[str, ...] = ("/usr", "/opt", "/srv", "/root/miniconda3", "/root/sky-user-env")
"""Where programs are installed: by packages of the system or otherwise, and by `pip` and `conda` as
SpotRelay's shell has them. What is below /etc, /var and home directories changes while nobody installs
anything, too."""

NOT_LOOKED_AT = ("/opt/spotrelay", "/opt/dlami")
"""SpotRelay's own, and the instance store."""

OF_NO_USE = ("__pycache__", "log", "logs")
"""Directories of what Python compiles for itself, and compiles again, and of what agents of the image say."""


class PackError(Exception):
    """Nothing can be packed; says why, and what to do."""


@dataclass
class Tree:
    """What lies below a path, by names below it."""

    directories: list[str] = field(default_factory=list)
    units: list[tuple[int, list[str]]] = field(default_factory=list)
    """Bytes, and files that must come together: those that are one file under several names."""
    large: list[tuple[str, os.stat_result]] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    """Symbolic links: name, target."""
    size: int = 0


def tree(root: Path) -> Tree:
    """All files, links and directories; sockets, pipes and devices mean nothing on another machine.

    Raises:
        PackError: there is no such directory.
    """
    if root.is_symlink() or not root.is_dir():
        raise PackError(f"set-up has made no directory {root}: is it the right one in spotrelay.pack.paths?")
    found = Tree(["."])
    files: dict[tuple[int, int], tuple[os.stat_result, list[str]]] = {}
    for at, directories, others in os.walk(root):
        for path in (Path(at, name) for name in sorted([*directories, *others])):
            name, status = str(path.relative_to(root)), path.lstat()
            if stat.S_ISDIR(status.st_mode):
                found.directories.append(name)
            elif stat.S_ISLNK(status.st_mode):
                found.links.append((name, str(path.readlink())))
                found.units.append((0, [name]))
            elif stat.S_ISREG(status.st_mode):
                files.setdefault((status.st_dev, status.st_ino), (status, []))[1].append(name)
    for status, names in files.values():
        found.size += status.st_size
        # Other names of it may be elsewhere, a cache's for instance: here it is one file.
        if len(names) == 1 and status.st_size > SHARD_BYTES:
            found.large.append((names[0], status))
        else:
            found.units.append((status.st_size, names))
    return found


def leading_out(paths: Sequence[Path], trees: Sequence[Tree], began: float) -> list[str]:
    """The links to what set-up has made elsewhere: nothing would be there on another instance."""
    found = []
    for index, root in enumerate(paths):
        for name, target in trees[index].links:
            to = Path(os.path.normpath((root / name).parent / target))
            if any(to == path or path in to.parents for path in paths):
                continue
            try:
                is_new = to.stat().st_ctime >= began
            except OSError:
                continue  # leads nowhere here, either
            if is_new:
                found.append(f"{root / name} leads to {to}")
    return found


def elsewhere(paths: Sequence[Path], began: float) -> Path | None:
    """Some file that set-up has made or changed where programs are; None: there is none."""
    out = {*map(str, paths), *NOT_LOOKED_AT}
    for root in SYSTEM:
        if root in out:
            continue
        for at, directories, files in os.walk(root):
            directories[:] = [d for d in directories if d not in OF_NO_USE and os.path.join(at, d) not in out]  # noqa: PTH118 - quicker
            for path in (Path(at, name) for name in files):
                if path.lstat().st_ctime >= began:
                    return path
    return None


def grouped(units: Sequence[tuple[int, list[str]]]) -> Iterator[list[str]]:
    """Files for one archive each, in their order: what is read together is mostly near to each other."""
    names: list[str] = []
    size = 0
    for bytes_, its in units:
        if names and (size + bytes_ > SHARD_BYTES or len(names) + len(its) > SHARD_FILES):
            yield names
            names, size = [], 0
        names += its
        size += bytes_
    if names:
        yield names


Put = Callable[[str, bytes], None]


class _Packer:
    def __init__(self, paths: Sequence[Path], trees: Sequence[Tree], program: str, put: Put) -> None:
        self._paths = paths
        self._trees = trees
        self._program = program
        self._put = put

    def jobs(self) -> Iterator[Callable[[], dict[str, Any]]]:
        for index, one in enumerate(self._trees):
            for names in grouped(one.units):
                yield partial(self._archive, index, names)
            yield partial(self._last, index, one.directories)
            for name, status in one.large:
                for offset in range(0, status.st_size, SHARD_BYTES):
                    yield partial(self._slice, index, name, offset)

    def _archive(self, index: int, names: Sequence[str]) -> dict[str, Any]:
        tar = ["tar", "--create", f"--use-compress-program={self._program} -1", "--file=-", "--numeric-owner"]
        what = [f"--directory={self._paths[index]}", "--no-recursion", "--null", "--verbatim-files-from"]
        listed = b"".join(os.fsencode(name) + b"\0" for name in names)
        return self._shard(index, self._run([*tar, *what, "--files-from=-"], listed))

    def _last(self, index: int, directories: Sequence[str]) -> dict[str, Any]:
        return {**self._archive(index, directories), "last": True}

    def _slice(self, index: int, name: str, offset: int) -> dict[str, Any]:
        with (self._paths[index] / name).open("rb") as file:
            file.seek(offset)
            content = file.read(SHARD_BYTES)
        packed = self._run([self._program, "-1", "-c"], content)
        return {**self._shard(index, packed), "name": name, "offset": offset}

    def _shard(self, index: int, packed: bytes) -> dict[str, Any]:
        sha256 = hashlib.sha256(packed).hexdigest()
        self._put(sha256, packed)
        return {"path": index, "size": len(packed), "sha256": sha256}

    def _run(self, command: Sequence[str], given: bytes) -> bytes:
        done = subprocess.run(command, input=given, capture_output=True, check=False)
        if done.returncode:
            words = done.stderr.decode(errors="replace").strip()
            raise PackError(f"{command[0]} can't pack {self._paths}: {words}")
        return done.stdout


def pack(paths: Sequence[str], image: str, began: float, program: str, put: Put) -> str:
    """Pack directories; the manifest's SHA-256. `began`: when set-up did, by the clock.

    Raises:
        PackError: they can't be packed.
    """
    set_up_s = time.time() - began
    roots = [Path(path) for path in paths]
    trees = [tree(root) for root in roots]
    if lost := leading_out(roots, trees, began):
        more = f", and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise PackError(
            f"{lost[0]}{more}, which set-up has made and the pack wouldn't have: add its directory to"
            " spotrelay.pack.paths, or let set-up make it below one of them"
        )
    if (installed := elsewhere(roots, began)) is not None:
        raise PackError(
            f"set-up has made {installed}, which the pack wouldn't have: add its directory to"
            " spotrelay.pack.paths, let set-up install it below one of them, or have it in an image, which"
            " spotrelay bake makes"
        )
    said = {"image": image, "paths": list(paths), "set_up_s": set_up_s}
    return write(roots, trees, said, program, put)


def write(
    roots: Sequence[Path], trees: Sequence[Tree], said: Mapping[str, Any], program: str, put: Put
) -> str:
    """Put shards and manifest; its SHA-256. `said`: what else stands in it."""
    packer = _Packer(roots, trees, program, put)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        shards = list(pool.map(lambda job: job(), packer.jobs()))
    manifest = {
        "format": FORMAT,
        **said,
        "arch": platform.machine(),
        "compression": program,
        "unpacked": sum(one.size for one in trees),
        "large": [
            {
                "path": index,
                "name": name,
                "size": status.st_size,
                "mode": stat.S_IMODE(status.st_mode),
                "uid": status.st_uid,
                "gid": status.st_gid,
                "mtime": int(status.st_mtime),
            }
            for index, one in enumerate(trees)
            for name, status in one.large
        ],
        "shards": shards,
    }
    content = json.dumps(manifest).encode()
    sha256 = hashlib.sha256(content).hexdigest()
    put(f"{sha256}.json", content)
    size = sum(one["size"] for one in shards)
    fetch.say(f"packed {manifest['unpacked']} bytes as {size} in {len(shards)} shards: {sha256}")
    return sha256


def uploading(plan: Mapping[str, Any], instance: fetch.Instance) -> Put:
    """Puts objects below the plan's prefix."""
    bucket = fetch.patiently(lambda: fetch.Bucket(plan["bucket"], instance), plan["bucket"])

    def once(key: str, content: bytes) -> None:
        connection = bucket.connect()
        try:
            answer = bucket.ask(connection, key, body=content)
            text = answer.read(4096)
        finally:
            connection.close()
        if answer.status in fetch.PASSING:
            raise OSError(f"S3 says HTTP {answer.status}")
        if answer.status != 200:
            raise PackError(f"{key} can't be written: HTTP {answer.status}: {text.decode(errors='replace')}")

    def put(name: str, content: bytes) -> None:
        key = f"{plan['prefix']}/{name}"
        fetch.patiently(lambda: once(key, content), key)

    return put


def main() -> int:
    """Pack what the plan says."""
    plan = json.loads((Path(__file__).parent / "pack.json").read_text(encoding="utf-8"))
    began = Path(__file__).parent / BEGAN
    instance = fetch.Instance()
    try:
        image = fetch.patiently(lambda: instance.get("ami-id"), "the image's ID")
        pack(
            plan["paths"],
            image,
            began.stat().st_mtime,
            began.read_text(encoding="utf-8").strip(),
            uploading(plan, instance),
        )
    except (PackError, fetch.FetchError) as error:
        fetch.say(f"nothing is packed: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

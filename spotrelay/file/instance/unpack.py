"""Puts a pack where set-up would have made what is in it. An instance runs it by itself, as `unpack.py`.

    python3 -I unpack.py      the pack that pack.json, beside it, names

setup.sh calls it before the file's `setup`, and runs that as ever if this fails: a pack never stops a start.
A pack is code, so nothing is believed but by its SHA-256: the manifest's stands in the launch template, and
the shards' in the manifest. Nothing is unpacked before its hash is known, and no path is put in place before
all are whole.

It has the standard library alone, of Python 3.9, `fetch.py` beside it, and `tar` with what the pack was
compressed by, which the image has: a pack is of one image.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import math
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from spotrelay.file.instance import fetch

THREADS = 16
"""That fetch and unpack, each with one shard in memory, so with 1 GiB at most. At S3's 85 to 90 MB/s for each
connection they fill 10 Gbit/s."""

FORMAT = 1
"""Of the manifest. Another one is of another version of SpotRelay."""

PATIENCE_S = 120.0
"""What a pack may take in any case: one of 4 GB takes some five seconds at 10 Gbit/s, and its disk half a
minute. It may also take as long as set-up took: only what takes longer has no use."""

CACHES, ENGINE = "caches", "engine"
"""Below a set-up's prefix, where the engine caches are; and beside this file, where one is unpacked."""

CACHE_PATIENCE_S = 10.0
"""What an engine cache may take in any case: it has some hundred MB. It may also take as long as it saves."""

Manifest = Mapping[str, Any]


def program(compression: str) -> str:
    """What unpacks: the name of the compression is its own."""
    if compression not in ("gzip", "zstd"):
        raise fetch.FetchError(f"it is compressed by {compression}, which this version doesn't know")
    return compression


class _Source:
    """One connection to where the pack is, until a time."""

    def __init__(self, bucket: fetch.Bucket, prefix: str, until_s: float) -> None:
        """`until_s`: by the monotonic clock."""
        self._bucket = bucket
        self._prefix = prefix
        self._until_s = until_s
        self._connection = bucket.connect()

    def object(self, name: str, sha256: str, is_over: Callable[[], bool] = lambda: False) -> bytes:
        """An object, whose hash is the expected one.

        Raises:
            FetchError: it isn't there, may not be read, is another one, or takes too long.
        """
        key = f"{self._prefix}/{name}"
        return fetch.patiently(lambda: self._once(key, sha256), key, lambda: is_over() or self._is_late())

    def close(self) -> None:
        self._connection.close()

    def _is_late(self) -> bool:
        return time.monotonic() > self._until_s

    def _once(self, key: str, sha256: str) -> bytes:
        try:
            answer = self._bucket.ask(self._connection, key)
            content = self._read(answer)
        except BaseException:
            self.close()  # what is left of an answer would be taken for the next; it opens by itself
            raise
        if answer.status in fetch.PASSING:
            raise OSError(f"S3 says HTTP {answer.status}")
        if answer.status in (403, 404):
            raise fetch.FetchError(f"{key} is gone, or may not be read: HTTP {answer.status}")
        if answer.status != 200:
            raise fetch.FetchError(f"{key} can't be read: HTTP {answer.status}")
        if hashlib.sha256(content).hexdigest() != sha256:
            raise fetch.FetchError(f"{key} isn't what was packed: its SHA-256 differs")
        return content

    def _read(self, answer: http.client.HTTPResponse) -> bytes:
        content = bytearray()
        while got := answer.read(fetch.CHUNK_BYTES):
            content += got
            if self._is_late():
                raise fetch.FetchError("it takes longer than to do without")
        if answer.length:
            raise OSError("the connection broke off")
        return bytes(content)


class Stage:
    """The paths of a pack, beside their places until all are whole."""

    def __init__(self, paths: Sequence[str], manifest: Manifest) -> None:
        self._paths = [Path(path) for path in paths]
        self._program = program(manifest["compression"])
        self._unpacked = int(manifest["unpacked"])
        self._large = manifest["large"]
        self.partial = [path.with_name(f".{path.name}.unpacking") for path in self._paths]

    def begin(self) -> None:
        """Make the directories, and the large files, of their sizes.

        Raises:
            FetchError: there is no room.
        """
        for partial in self.partial:
            with fetch.disk(partial):
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir(parents=True)
            free = shutil.disk_usage(partial).free
            if self._unpacked > free:
                raise fetch.FetchError(
                    f"{partial.parent} has {free / 1e9:.1f} GB left, and the pack takes"
                    f" {self._unpacked / 1e9:.1f}"
                )
        for one in self._large:
            file = self._file(one)
            with fetch.disk(file):
                file.parent.mkdir(parents=True, exist_ok=True)
                file.touch()
                os.truncate(file, one["size"])

    def add(self, shard: Manifest, content: bytes) -> None:
        """Unpack a shard.

        Raises:
            FetchError: it can't be, for want of room perhaps.
        """
        if "offset" in shard:
            descriptor = os.open(self._file(shard), os.O_WRONLY)
            try:
                os.lseek(descriptor, shard["offset"], os.SEEK_SET)
                self._run([self._program, "-dc"], content, descriptor)
            finally:
                os.close(descriptor)
            return
        into = f"--directory={self.partial[shard['path']]}"
        # Modes and times of directories last: those of an archive with directories alone.
        tar = ["tar", "--extract", f"--use-compress-program={self._program}", "--file=-", into]
        how = ["--numeric-owner", "--same-owner", "--same-permissions", "--delay-directory-restore"]
        self._run([*tar, *how], content, subprocess.DEVNULL)

    def put(self) -> None:
        """Have all at its place."""
        for one in self._large:
            file = self._file(one)
            with fetch.disk(file):
                os.chown(file, one["uid"], one["gid"])
                file.chmod(one["mode"])
                os.utime(file, (one["mtime"], one["mtime"]))
        for index, path in enumerate(self._paths):
            fetch.put(self.partial[index], path)

    def drop(self) -> None:
        """Leave nothing behind."""
        for partial in self.partial:
            shutil.rmtree(partial, ignore_errors=True)

    def _file(self, one: Manifest) -> Path:
        return self.partial[int(one["path"])] / str(one["name"])

    def _run(self, command: Sequence[str], content: bytes, out: int) -> None:
        done = subprocess.run(command, input=content, stdout=out, stderr=subprocess.PIPE, check=False)
        if done.returncode:
            words = done.stderr.decode(errors="replace").strip().splitlines()
            raise fetch.FetchError(f"{command[0]} can't unpack it: {words[-1] if words else done.returncode}")


class _Work:
    """Shards on their way, by several threads."""

    def __init__(self, source: Callable[[], _Source], stage: Stage) -> None:
        """`source`: makes one, for each thread its own."""
        self._source = source
        self._stage = stage
        self._failures: list[fetch.FetchError] = []

    def run(self, shards: Sequence[Manifest]) -> None:
        """Return once all are unpacked.

        Raises:
            FetchError: one can't be had.
        """
        waiting: queue.SimpleQueue[Manifest] = queue.SimpleQueue()
        for one in sorted(shards, key=lambda one: -int(one["size"])):  # the longest first
            waiting.put(one)
        count = min(THREADS, len(shards))
        threads = [threading.Thread(target=self._take, args=[waiting], daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _take(self, waiting: queue.SimpleQueue[Manifest]) -> None:
        source = self._source()
        try:
            while not self._failures:
                one = waiting.get_nowait()
                name = one["sha256"]
                self._stage.add(one, source.object(name, name, lambda: bool(self._failures)))
        except queue.Empty:
            pass
        except fetch.FetchError as error:
            self._failures.append(error)
        except Exception as error:  # noqa: BLE001 - a thread that ends must not leave a hole that nobody sees
            self._failures.append(fetch.FetchError(repr(error)))
        finally:
            source.close()


def unpack(plan: Mapping[str, Any], instance: fetch.Instance) -> None:
    """Have a pack's paths at their places.

    Raises:
        FetchError: they can't be had; all is as it was.
    """
    _unpack(plan, plan["paths"], instance, PATIENCE_S, math.inf)


def have_cache(plan: Mapping[str, Any], instance: fetch.Instance, here: Path) -> None:
    """Have the engine cache of this instance's accelerator at its place.

    Raises:
        FetchError: there is none, or it can't be had; all is as it was.
    """
    type_ = fetch.patiently(lambda: instance.get("instance-type"), "the instance's type")
    found = plan["caches"].get(type_.partition(".")[0])
    if found is None:
        raise fetch.FetchError(f"there is none for the accelerator of a {type_}")
    kind, _, manifest = found.rpartition("/")
    its = {"bucket": plan["bucket"], "prefix": f"{plan['prefix']}/{CACHES}/{kind}", "manifest": manifest}
    cache = {**its, "paths": [ENGINE]}
    _unpack(cache, [str(here / ENGINE)], instance, CACHE_PATIENCE_S, CACHE_PATIENCE_S)


def _unpack(
    plan: Mapping[str, Any], at: Sequence[str], instance: fetch.Instance, patience_s: float, first_s: float
) -> None:
    """`at`: where its paths are put; `first_s`: for the manifest, which says how long the rest may take."""
    began_s = time.monotonic()
    bucket = fetch.patiently(lambda: fetch.Bucket(plan["bucket"], instance), plan["bucket"])

    first = _Source(bucket, plan["prefix"], began_s + first_s)  # some kilobytes; `fetch` has a limit, too
    manifest = json.loads(first.object(f"{plan['manifest']}.json", plan["manifest"]))
    first.close()
    image = fetch.patiently(lambda: instance.get("ami-id"), "the image's ID")
    if manifest["format"] != FORMAT:
        raise fetch.FetchError("another version of SpotRelay made it")
    if manifest["image"] != image:
        raise fetch.FetchError(f"it was made on {manifest['image']}, and this is {image}")
    if manifest["paths"] != plan["paths"]:
        raise fetch.FetchError(f"it has {manifest['paths']}, and not {plan['paths']}")
    until_s = began_s + max(patience_s, manifest["set_up_s"])
    stage = Stage(at, manifest)
    try:
        stage.begin()
        work = _Work(lambda: _Source(bucket, plan["prefix"], until_s), stage)
        work.run([one for one in manifest["shards"] if not one.get("last")])
        work.run([one for one in manifest["shards"] if one.get("last")])
        stage.put()
    finally:
        stage.drop()
    size, took_s = sum(one["size"] for one in manifest["shards"]), time.monotonic() - began_s
    fetch.say(
        f"{', '.join(at)} from the pack: {size} bytes, unpacked {manifest['unpacked']}, in {took_s:.1f} s"
    )


def main() -> int:
    """Have the pack, or say why not; nothing is said where none is expected."""
    plan = json.loads((Path(__file__).parent / "pack.json").read_text(encoding="utf-8"))
    instance = fetch.Instance()
    if "caches" in plan:
        here = Path(__file__).parent
        _is_had(lambda: have_cache(plan, instance, here), "no engine cache is used, so the engine compiles")
    if not plan["manifest"]:
        return 1
    return 0 if _is_had(lambda: unpack(plan, instance), "no pack is used, so set-up runs") else 1


def _is_had(do: Callable[[], None], otherwise: str) -> bool:
    try:
        do()
    except Exception as error:  # noqa: BLE001 - whatever it is, the start does without
        words = str(error) if isinstance(error, fetch.FetchError) else repr(error)
        fetch.say(f"{otherwise}: {words}")
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())

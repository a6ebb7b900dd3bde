"""How long it takes to pack a directory, and to have it back: `python -m tests.service.pack_speed DIRECTORY`.

The bucket is in this process's memory. The directory is put aside meanwhile, and is compared at the end.
"""

from __future__ import annotations

import filecmp
import json
import os
import resource
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spotrelay.file.instance import fetch, pack, unpack

from .s3 import BUCKET, S3


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print how long it takes, and how much of the processors."""
    began_s, cpu_s = time.monotonic(), _cpu_s()
    yield
    took_s, load = time.monotonic() - began_s, os.getloadavg()[0]
    _say(f"{what}: {took_s:.1f} s, {_cpu_s() - cpu_s:.1f} s of processors; load {load:.0f}")


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main(root: Path) -> None:
    """Pack it, unpack it twice."""
    s3 = S3({})
    os.environ["AWS_ENDPOINT_URL"] = os.environ["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = s3.url
    unpack.PATIENCE_S = 3600.0
    pack.SYSTEM = ()
    plan = {"bucket": BUCKET, "prefix": "p", "paths": [str(root)]}
    instance = fetch.Instance()
    with timed("pack"):
        manifest = pack.pack(plan["paths"], "ami-1", 9e12, "zstd", pack.uploading(plan, instance))
    told = json.loads(s3.objects[f"p/{manifest}.json"])
    files = sum(len(names) for _, _, names in os.walk(root))
    _say(f"{files} files, {told['unpacked']} bytes, packed {sum(one['size'] for one in told['shards'])}")
    was = root.rename(root.with_name(f".{root.name}.was"))
    for _ in range(2):
        shutil.rmtree(root, ignore_errors=True)
        with timed("unpack"):
            unpack.unpack({**plan, "manifest": manifest}, instance)
    _say("the same" if _is_same(filecmp.dircmp(was, root)) else "not the same")
    shutil.rmtree(was)


def _is_same(found: filecmp.dircmp[str]) -> bool:
    differ = [*found.left_only, *found.right_only, *found.diff_files]
    return not differ and all(_is_same(one) for one in found.subdirs.values())


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())

"""What brings a start its files, each beside the plainest way to do the same: a pack, and a model.

Both come over loopback from a process of its own, and into memory where that has room for files. So neither a
network nor a disk is the limit, and what is seen is what our programs cost: hashing, threads, many requests.
"""

from __future__ import annotations

import http.client
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from statistics import median

from lab.benchmarks.bucket import NAME
from lab.benchmarks.figures import Figure, Row, Tell, ratio
from lab.benchmarks.machine import scratch
from spotrelay.file.instance import fetch, pack, unpack

PACKAGES = ("botocore", "numpy", "xllamacpp")
"""Of this environment: 3,000 files of 60 MB, and a library of 100 MB."""

MODEL_BYTES = 256 * 1024 * 1024

TIMES = 5
"""Pairs of runs, whose median counts."""

UNPACKED = 2.0
"""Times the seconds of `tar` with a file that is there already. Ours fetch and hash besides, and start two
processes for each piece: on two processors that were busy otherwise, that took 1.2 to 1.7 times as long."""

FETCHED = 0.4
"""Of what one bare connection brings on loopback. Ours ask for each piece anew, and 32 threads take turns at
Python's lock; the other reads on. Less would not fill the 5 Gbit/s of the slowest of these instances."""


def measure(tell: Tell) -> Sequence[Figure]:
    """Both, turn by turn with the plain way."""
    with scratch() as home, redirect_stderr(StringIO()):
        (home / "bucket").mkdir()
        with _serving(home / "bucket") as port:
            return [*_unpacked(home, tell), *_fetched(home, port, tell)]


@contextmanager
def _serving(directory: Path) -> Iterator[int]:
    command = [sys.executable, "-m", "lab.benchmarks.bucket", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        url = f"http://127.0.0.1:{port}"
        os.environ["AWS_ENDPOINT_URL"] = os.environ["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = url
        try:
            yield port
        finally:
            server.kill()


def _seconds(do: Callable[[], object], made: Path) -> float:
    """How long it takes to make it anew."""
    shutil.rmtree(made, ignore_errors=True)
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


def _unpacked(home: Path, tell: Tell) -> Iterator[Figure]:
    tell(0, 2 * TIMES, "packing an environment")
    environment, bare, copied = home / "environment", home / "bare", home / "copied"
    for name in PACKAGES:
        found = importlib.util.find_spec(name)
        assert found is not None and found.origin is not None  # noqa: PT018 - both are there where this runs
        shutil.copytree(Path(found.origin).parent, environment / name)
    size = sum(file.stat().st_size for file in environment.rglob("*") if file.is_file())
    program = "zstd" if shutil.which("zstd") else "gzip"
    archive = home / "environment.tar"
    squeezed = [f"--use-compress-program={program} -1", f"--file={archive}", f"--directory={environment}"]
    subprocess.run(["tar", "--create", *squeezed, "."], check=True)
    pack.SYSTEM = ()  # nobody has installed anything meanwhile
    bucket = home / "bucket" / "packs"
    bucket.mkdir()
    manifest = pack.pack([str(environment)], "ami-1", time.time(), program, _writing(bucket))
    plan = {"bucket": NAME, "prefix": "packs", "paths": [str(environment)], "manifest": manifest}
    instance = fetch.Instance()

    def tar() -> None:
        bare.mkdir()
        squeezed = [f"--use-compress-program={program}", f"--file={archive}", f"--directory={bare}"]
        subprocess.run(["tar", "--extract", *squeezed], check=True)

    def copy() -> None:
        subprocess.run(["cp", "-r", str(bare), str(copied)], check=True)

    ours, theirs, copies = [], [], []
    for turn in range(TIMES):
        tell(turn, 2 * TIMES, "unpacking it")
        ours.append(_seconds(lambda: unpack.unpack(plan, instance), environment))
        theirs.append(_seconds(tar, bare))
        copies.append(_seconds(copy, copied))
    yield Figure("unpack_rate", size / median(ours) / 1e6, "MB/s", "a pack fetched, hashed and unpacked")
    yield Figure(
        "unpack_to_copy", ratio(ours, copies), "x", "its seconds to those of cp -r, which unpacks nothing"
    )
    yield Figure(
        "unpack_to_tar",
        ratio(ours, theirs),
        "x",
        f"its seconds to those of tar and {program} on one file that is there",
        at_most=UNPACKED,
        tolerance=0.3,
    )


def _writing(directory: Path) -> Callable[[str, bytes], None]:
    def put(name: str, content: bytes) -> None:
        (directory / name).write_bytes(content)

    return put


def _fetched(home: Path, port: int, tell: Tell) -> Iterator[Figure]:
    source, bare = home / "bucket" / "model" / "weights", home / "plain"
    source.parent.mkdir()
    source.write_bytes(os.urandom(MODEL_BYTES))
    model = fetch.Model(NAME, "model", home / "model", None)
    instance = fetch.Instance()

    def plain() -> None:
        bare.mkdir()
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", f"/{NAME}/model/weights")
        answer = connection.getresponse()
        with (bare / "weights").open("wb") as file:
            shutil.copyfileobj(answer, file, fetch.CHUNK_BYTES)
        connection.close()

    ours, theirs = [], []
    for turn in range(TIMES):
        tell(TIMES + turn, 2 * TIMES, "fetching a model")
        ours.append(_seconds(lambda: fetch.fetch(model, instance), model.path))
        theirs.append(_seconds(plain, bare))
    yield Figure("fetch_rate", MODEL_BYTES / median(ours) / 1e6, "MB/s", "a model fetched")
    yield Figure(
        "fetch_to_bare",
        ratio(theirs, ours),
        "x",
        "its rate to that of one connection, which asks once and reads",
        at_least=FETCHED,
    )


ROW = Row("fetching", "A pack and a model, over loopback", 25, measure)

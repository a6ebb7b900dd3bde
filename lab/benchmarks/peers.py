"""`python -m lab.benchmarks.peers`: how fast a model comes from peers, beside its bucket alone.

Each server and the instance that starts have a network of their own, with the rates of two rows that were
published of a fleet with peers: 7.2 GB at 80 MB/s from a bucket and 474 with peers, and 4.0 GB at 58 and
1,250. All rates are scaled down, and sizes still more, pieces with them, so that a run takes seconds and two
cores are enough. What comes is real: sent by the instances' server, checked by its hashes, and written.

The bucket is a server on a slow link. Signatures and TLS aren't in these figures.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.local.network import NetworkError, OwnNetworks, Shape
from spotrelay.file.instance import fetch, peers

MODEL = "model"
OBJECT = "weights"

SHRUNK = 20
"""By so much models are smaller than published, and their pieces of 8 MiB."""

MEBIBYTE = 1024 * 1024

WHOLE_BYTES = 8 * MEBIBYTE
PIECE_BYTES = WHOLE_BYTES // SHRUNK


@dataclass(frozen=True)
class Published:
    """A row of a table: what came in which time, from a bucket and with peers."""

    gigabytes: float
    bucket_mb_s: float
    link_mb_s: float
    slowed: int
    """By so much all rates are lower here."""

    @property
    def size(self) -> int:
        """In bytes, here: of whole pieces."""
        return int(self.gigabytes * 1e9 / SHRUNK) // PIECE_BYTES * PIECE_BYTES


ROWS = (Published(7.2, 80, 474, 4), Published(4.0, 58, 1250, 10))


@dataclass(frozen=True)
class Case:
    """Who is there."""

    words: str
    peers: int
    trouble: str = ""
    """What the first peer does: `die`, once it has sent a quarter of the model, or `lie` from there on."""


CASES = (
    Case("the bucket alone", 0),
    Case("1 peer", 1),
    Case("2 peers", 2),
    Case("4 peers", 4),
    Case("2 peers, one dies", 2, "die"),
    Case("2 peers, one lies", 2, "lie"),
)


class _Mortal(peers.Server):
    """A peer that ends after so many pieces."""

    def __init__(self, address: str, root: Path, rate: int, pieces: int) -> None:
        super().__init__((address, peers.PORT), {MODEL: root}, rate)
        self.RequestHandlerClass = _MortalAnswer
        self._left = pieces

    def count(self) -> None:
        """Another piece is asked for."""
        self._left -= 1
        if not self._left:
            os._exit(1)


class _MortalAnswer(peers._Answer):
    server: _Mortal

    def do_GET(self) -> None:  # noqa: N802 - as the base class calls it
        self.server.count()
        super().do_GET()


class _Slow(peers.Source):
    """The bucket: asked over as many connections, and for as long."""

    connections = fetch.CONNECTIONS
    patience_s = fetch.PATIENCE_S


def _fetch(bucket: str, addresses: Sequence[str], root: Path, into: Path) -> dict[str, object]:
    """Be the instance that starts; what came from whom, and when."""
    content = (root / OBJECT).read_bytes()
    length = PIECE_BYTES if bucket else WHOLE_BYTES
    one = fetch.Object(OBJECT, len(content), '"etag"')
    missing = [
        peers.Piece(one, at, length, hashlib.sha256(content[at : at + length]).digest())
        for at in range(0, len(content), length)
    ]
    model = fetch.Model("bucket", MODEL, into, None)
    into.mkdir()
    (into / OBJECT).touch()
    sources = [peers.Source(address, MODEL) for address in addresses]
    sources += [_Slow(bucket, MODEL)] if bucket else []
    began, cpu = time.perf_counter(), time.process_time()
    peers.collect(model, missing, sources, into)
    took = time.perf_counter() - began
    assert (into / OBJECT).read_bytes() == content, "another model came"
    return {
        "s": took,
        "cpu_s": time.process_time() - cpu,
        "brought": {source.name: source.brought for source in sources},
        "dropped": {source.name: source.dropped for source in sources if source.dropped},
    }


def _run(published: Published, case: Case, directory: Path) -> dict[str, object]:
    """Have everybody in a network of his own, and the model fetched once."""
    network = OwnNetworks()
    fast = published.link_mb_s / published.slowed
    slow = published.bucket_mb_s / published.slowed
    rate = str(peers.RATE // published.slowed)
    started: list[subprocess.Popen[bytes]] = []
    try:

        def start(address: str, mb_s: float, *command: str) -> subprocess.Popen[bytes]:
            with (directory / f"{address}.log").open("wb") as log:
                process = network.start(
                    address,
                    [sys.executable, "-m", __spec__.name, *command],
                    dict(os.environ),
                    log.fileno(),
                    ROOT,
                )
            started.append(process)
            until = time.monotonic() + 10
            while not network.shape(process.pid, address, Shape(mb_s * 8)):
                if time.monotonic() > until:
                    raise NetworkError(f"{address} never got onto its network")
                time.sleep(0.02)
            return process

        addresses = [network.new_address() for _ in range(case.peers + 2)]
        bucket, receiver, *others = addresses
        start(bucket, slow, "serve", bucket, str(directory / "true"), str(10**12), "0")
        for number, address in enumerate(others):
            trouble = case.trouble if number == 0 else ""
            root = directory / ("false" if trouble == "lie" else "true")
            pieces = published.size // PIECE_BYTES // 4 if trouble == "die" else 0
            start(address, fast, "serve", address, str(root), rate, str(pieces))
        into = directory / "there"
        shutil.rmtree(into, ignore_errors=True)
        time.sleep(1)  # until all listen
        process = start(receiver, fast, "fetch", str(directory / "true"), str(into), bucket, *others)
        process.wait()
        said = (directory / f"{receiver}.log").read_text()
        if process.returncode:
            raise RuntimeError(f"{case.words}: {said}")
        found: dict[str, object] = json.loads(said.splitlines()[-1])
        return found
    finally:
        for process in started:
            process.kill()
            process.wait()
        network.close()


ROOT = Path(__file__).parents[2]


def _make(directory: Path, size: int) -> None:
    """A model of noise, and what a liar has of it."""
    for name in ("true", "false"):
        shutil.rmtree(directory / name, ignore_errors=True)
        (directory / name).mkdir()
    noise = os.urandom(size)
    (directory / "true" / OBJECT).write_bytes(noise)
    (directory / "false" / OBJECT).write_bytes(noise[: size // 4] + bytes(size - size // 4))


def _unshaped(directory: Path) -> str:
    """A gigabyte from two peers over loopback, in pieces as they are, and nothing from a bucket."""
    size, addresses = 1024 * MEBIBYTE, ("127.0.9.1", "127.0.9.2")
    _make(directory, size)
    command = [sys.executable, "-m", __spec__.name]
    servers = [
        subprocess.Popen([*command, "serve", address, str(directory / "true"), str(10**12), "0"], cwd=ROOT)
        for address in addresses
    ]
    try:
        time.sleep(1)
        best = None
        for _ in range(3):
            shutil.rmtree(directory / "there", ignore_errors=True)
            done = subprocess.run(
                [*command, "fetch", str(directory / "true"), str(directory / "there"), "", *addresses],
                cwd=ROOT, check=True, capture_output=True, text=True,
            )  # fmt: skip
            found = json.loads(done.stdout.splitlines()[-1])
            best = min(best or found, found, key=lambda one: one["s"])
        assert best
    finally:
        for server in servers:
            server.kill()
            server.wait()
    return f"loopback, 2 peers, 8 MiB: {size / best['s'] / 1e9:.2f} GB/s, {best['cpu_s']:.2f} s of CPU"


def _measure() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="spotrelay-peers-") as name:
        directory = Path(name)
        sys.stdout.write(_unshaped(directory) + "\n")
        for published in ROWS:
            _make(directory, published.size)
            limit_s = published.size / 1e6 / (published.link_mb_s / published.slowed)
            sys.stdout.write(
                f"\n{published.gigabytes} GB at 1/{SHRUNK}, rates at 1/{published.slowed}: bucket"
                f" {published.bucket_mb_s} MB/s, link {published.link_mb_s} MB/s: {limit_s:.2f} s at best\n"
                "| | s | times quicker than the bucket | times what the link takes | given up |\n"
            )
            alone_s = 0.0
            for case in CASES:
                found = _run(published, case, directory)
                took = float(str(found["s"]))
                alone_s = alone_s or took
                sys.stdout.write(
                    f"| {case.words} | {took:.2f} | {alone_s / took:.1f} | {took / limit_s:.2f} |"
                    f" {found['dropped'] or ''} |\n"
                )
                sys.stdout.flush()


def main() -> None:
    """Measure, or be one of those who are measured."""
    match sys.argv[1:]:
        case ["serve", address, root, rate, pieces]:
            if int(pieces):
                _Mortal(address, Path(root), int(rate), int(pieces)).serve_forever()
            peers.Server((address, peers.PORT), {MODEL: Path(root)}, int(rate)).serve_forever()
        case ["fetch", root, into, bucket, *others]:
            sys.stdout.write(json.dumps(_fetch(bucket, others, Path(root), Path(into))) + "\n")
        case _:
            _measure()


if __name__ == "__main__":
    main()

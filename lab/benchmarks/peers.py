"""How fast a model comes from peers, beside its bucket alone, and what requests notice of an upload.

`make bench ROW=peers` measures two peers; `python -m lab.benchmarks.peers` measures all of docs/peers.md, in
two minutes.

Each server and the instance that starts have a network of their own, with the rates of two rows that were
published of a fleet with peers: 7.2 GB at 80 MB/s from a bucket and 474 with peers, and 4.0 GB at 58 and
1,250. All rates are scaled down, and sizes still more, pieces with them, so that a run takes seconds and two
cores are enough. What comes is real: sent by the instances' server, checked by its hashes, and written.

The bucket is a server on a slow link. Signatures and TLS aren't in these figures.
"""

from __future__ import annotations

import hashlib
import http.client
import http.server
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from lab.benchmarks.figures import Figure, Row, Skipped, Tell
from lab.benchmarks.machine import scratch
from lab.local.network import NetworkError, OwnNetworks, Shape
from spotrelay.file.instance import fetch, peers

MODEL = "model"
OBJECT = "weights"

ROOT = Path(__file__).parents[2]

SHRUNK = 20
"""By so much models are smaller than published, and their pieces of 8 MiB."""

MEBIBYTE = 1024 * 1024

WHOLE_BYTES = 8 * MEBIBYTE
PIECE_BYTES = WHOLE_BYTES // SHRUNK

UNLIMITED = 10**12
"""Bytes per second of a server that its link alone slows down."""


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

    @property
    def limit_s(self) -> float:
        """What the link takes for it, here."""
        return self.size / 1e6 / (self.link_mb_s / self.slowed)

    @property
    def quick_s(self) -> float:
        """What a piece takes here that takes `peers.QUICK_S` there."""
        return peers.QUICK_S * self.slowed / SHRUNK


SEVEN, FOUR = Published(7.2, 80, 474, 4), Published(4.0, 58, 1250, 10)


@dataclass(frozen=True)
class Case:
    """Who is there."""

    words: str
    peers: int
    trouble: str = ""
    """What the first peer does: `die`, once it has sent a quarter of the model, or `lie` from there on."""


ALONE, TWO = Case("the bucket alone", 0), Case("2 peers", 2)

CASES = (
    ALONE,
    Case("1 peer", 1),
    TWO,
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

    most = fetch.CONNECTIONS
    patience_s = fetch.PATIENCE_S


def _fetch(plan: dict[str, Any]) -> dict[str, object]:
    """Be the instance that starts; what came from whom, and when."""
    root, into, length = Path(plan["root"]), Path(plan["into"]), int(plan["piece"])
    peers.QUICK_S = plan["quick_s"]
    content = (root / OBJECT).read_bytes()
    one = fetch.Object(OBJECT, len(content), '"etag"')
    missing = [
        peers.Piece(one, at, length, hashlib.sha256(content[at : at + length]).digest())
        for at in range(0, len(content), length)
    ]
    model = fetch.Model("bucket", MODEL, into, None)
    fetch.room(into, [one])
    sources = [peers.Source(address, MODEL) for address in plan["peers"]]
    sources += [_Slow(plan["bucket"], MODEL)] if plan["bucket"] else []
    began, cpu = time.monotonic(), time.process_time()
    peers.collect(model, missing, sources, into)
    ended = time.monotonic()
    cpu = time.process_time() - cpu
    assert (into / OBJECT).read_bytes() == content, "another model came"
    return {
        "began": began,
        "s": ended - began,
        "cpu_s": cpu,
        "brought": {source.name: source.brought for source in sources},
        "dropped": {source.name: source.dropped for source in sources if source.dropped},
    }


class _Replica(http.server.BaseHTTPRequestHandler):
    """A service that answers after so many milliseconds as its path says."""

    protocol_version = "HTTP/1.1"
    text = b"HTTP/1.1 200 OK\r\nContent-Length: 2048\r\n\r\n" + b"x" * 2048

    def do_GET(self) -> None:
        time.sleep(int(self.path[1:]) / 1000)
        self.wfile.write(self.text)

    def log_message(self, *_: object) -> None:
        """Nothing."""


SERVICE_PORT = 8080

AT_ONCE, SHORT = 0, 10
"""Milliseconds that requests take: some show the smallest delay, others are as short as a model's get."""

EACH_S = 0.005
"""Between two requests of a client: there is time for two cores to do other things."""

CLIENTS = 2
"""For each of these."""


def _ask(address: str, for_s: float) -> list[tuple[int, float, float]]:
    """Be some clients: what each request takes at least, when it was sent, and what it took."""
    until = time.monotonic() + for_s

    def ask(least_ms: int) -> list[tuple[int, float, float]]:
        connection = http.client.HTTPConnection(address, SERVICE_PORT, timeout=10)
        taken = []
        while (sent := time.monotonic()) < until:
            connection.request("GET", f"/{least_ms}")
            connection.getresponse().read()
            taken.append((least_ms, sent, time.monotonic() - sent))
            time.sleep(EACH_S)
        return taken

    with ThreadPoolExecutor(2 * CLIENTS) as pool:
        return list(chain.from_iterable(pool.map(ask, [AT_ONCE, SHORT] * CLIENTS)))


class _Networks:
    """Processes of this module, each in a network of its own."""

    def __init__(self, directory: Path) -> None:
        self._network = OwnNetworks()
        self._directory = directory
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, mb_s: float, *command: str, address: str = "") -> tuple[str, subprocess.Popen[bytes]]:
        """One more, at an address that stands for `@` in its command, on a link so fast."""
        address = address or self._network.new_address()
        said = [one.replace("@", address) for one in command]
        with self.log(address).open("wb") as log:
            process = self._network.start(
                address, [sys.executable, "-m", __spec__.name, *said], dict(os.environ), log.fileno(), ROOT
            )
        self._started.append(process)
        until = time.monotonic() + 10
        while not self._network.shape(process.pid, address, Shape(mb_s * 8)):
            if time.monotonic() > until:
                raise NetworkError(f"{address} never got onto its network")
            time.sleep(0.02)
        return address, process

    def told(self, started: tuple[str, subprocess.Popen[bytes]]) -> Any:
        """What one says at its end."""
        address, process = started
        process.wait()
        said = self.log(address).read_text()
        if process.returncode:
            raise RuntimeError(said)
        return json.loads(said.splitlines()[-1])

    def log(self, address: str) -> Path:
        """Where one writes."""
        return self._directory / f"{address}.log"

    def close(self) -> None:
        """End all."""
        for process in self._started:
            process.kill()
            process.wait()
        self._network.close()


@contextmanager
def _networks(directory: Path) -> Iterator[_Networks]:
    networks = _Networks(directory)
    try:
        yield networks
    finally:
        networks.close()


def _listens(address: str, port: int) -> None:
    until = time.monotonic() + 10
    while True:
        try:
            socket.create_connection((address, port), timeout=1).close()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return


def _plan(directory: Path, bucket: str, addresses: Sequence[str], published: Published) -> str:
    return json.dumps(
        {
            "root": str(directory / "true"),
            "into": str(directory / "there"),
            "piece": PIECE_BYTES,
            "quick_s": published.quick_s,
            "bucket": bucket,
            "peers": addresses,
        }
    )


def _run(published: Published, case: Case, directory: Path) -> dict[str, Any]:
    """Have a model fetched once."""
    fast, slow = published.link_mb_s / published.slowed, published.bucket_mb_s / published.slowed
    rate, true = str(peers.RATE // published.slowed), str(directory / "true")
    with _networks(directory) as networks:
        bucket, _ = networks.start(slow, "serve", "@", true, str(UNLIMITED), "0")
        others = []
        for number in range(case.peers):
            trouble = case.trouble if number == 0 else ""
            root = str(directory / "false") if trouble == "lie" else true
            pieces = published.size // PIECE_BYTES // 4 if trouble == "die" else 0
            others.append(networks.start(fast, "serve", "@", root, rate, str(pieces))[0])
        for address in (bucket, *others):
            _listens(address, peers.PORT)
        found: dict[str, Any] = networks.told(
            networks.start(fast, "fetch", _plan(directory, bucket, others, published))
        )
        return found


UPLOADS = 2

REST_S = 2.5
"""Before each, about as long as it takes."""

START_S = 1.5
"""Until whoever fetches asks for the first piece."""


def _beside(directory: Path) -> dict[int, tuple[float, float, int]]:
    """What 99 of 100 requests take at most while their replica uploads, and while it doesn't; of how many.

    By the milliseconds that they take at least. All rates are a tenth of a small instance's.
    """
    link = FOUR.link_mb_s / FOUR.slowed
    with _networks(directory) as networks:
        rate = str(peers.RATE // FOUR.slowed)
        replica, _ = networks.start(link, "replica", "@", str(directory / "true"), rate)
        _listens(replica, peers.PORT)
        _listens(replica, SERVICE_PORT)
        for_s = UPLOADS * (REST_S + START_S + FOUR.size / int(rate))
        client = networks.start(link, "ask", replica, str(for_s))
        uploads, rests = [], []
        for _ in range(UPLOADS):
            began = time.monotonic()
            time.sleep(REST_S)
            rests.append((began, time.monotonic()))
            plan = _plan(directory, "", [replica], FOUR)
            found = networks.told(networks.start(link, "fetch", plan))
            uploads.append((found["began"], found["began"] + found["s"]))
        taken = networks.told(client)
    found = {}
    for kind in (AT_ONCE, SHORT):
        beside, alone = (
            [took for least_ms, sent, took in taken if least_ms == kind and _is_within(times, sent)]
            for times in (uploads, rests)
        )
        found[kind] = _p99(beside), _p99(alone), len(beside)
    return found


def _is_within(times: Sequence[tuple[float, float]], sent: float) -> bool:
    return any(began < sent < ended for began, ended in times)


def _p99(taken: Sequence[float]) -> float:
    return statistics.quantiles(taken, n=100)[98]


def _make(directory: Path, size: int) -> None:
    """A model of noise, and what a liar has of it."""
    for name in ("true", "false"):
        shutil.rmtree(directory / name, ignore_errors=True)
        (directory / name).mkdir()
    noise = os.urandom(size)
    (directory / "true" / OBJECT).write_bytes(noise)
    (directory / "false" / OBJECT).write_bytes(noise[: size // 4] + bytes(size - size // 4))


LOOPBACK_BYTES = 512 * MEBIBYTE


def _unshaped(directory: Path) -> dict[str, Any]:
    """From two peers over loopback, in pieces of 8 MiB, without a bucket: the quicker of two."""
    addresses = ("127.0.9.1", "127.0.9.2")
    _make(directory, LOOPBACK_BYTES)
    command, true = [sys.executable, "-m", __spec__.name], str(directory / "true")
    servers = [
        subprocess.Popen([*command, "serve", address, true, str(UNLIMITED), "0"], cwd=ROOT)
        for address in addresses
    ]
    plan = json.loads(_plan(directory, "", addresses, FOUR)) | {"piece": WHOLE_BYTES}
    try:
        for address in addresses:
            _listens(address, peers.PORT)
        runs = [
            subprocess.run(
                [*command, "fetch", json.dumps(plan)], cwd=ROOT, check=True, capture_output=True, text=True
            )
            for _ in range(2)
        ]
    finally:
        for server in servers:
            server.kill()
            server.wait()
    found: dict[str, Any] = min(
        (json.loads(run.stdout.splitlines()[-1]) for run in runs), key=lambda run: run["s"]
    )
    return found


PART = 8
"""The bucket alone brings so much less of the model in the row: it is as fast from the first piece on."""


def measure(tell: Tell) -> Sequence[Figure]:
    """Two peers, beside the bucket and beside the link; loopback; requests."""
    try:
        OwnNetworks().close()
    except NetworkError as error:
        raise Skipped(f"its servers need networks of their own: {error}") from error
    with scratch() as directory:
        tell(0, 4, "loopback")
        fastest = _unshaped(directory)
        tell(1, 4, "the bucket alone")
        part = Published(SEVEN.gigabytes / PART, SEVEN.bucket_mb_s, SEVEN.link_mb_s, SEVEN.slowed)
        _make(directory, part.size)
        alone_s = _run(part, ALONE, directory)["s"] * SEVEN.size / part.size
        tell(2, 4, "two peers")
        _make(directory, SEVEN.size)
        took_s = min(_run(SEVEN, TWO, directory)["s"] for _ in range(2))
        tell(3, 4, "requests beside an upload")
        _make(directory, FOUR.size)
        requests = _beside(directory)
    beside_s, rest_s, count = requests[SHORT]
    return [
        Figure(
            "to_link",
            took_s / SEVEN.limit_s,
            "x",
            "7.2 GB from two peers and the bucket, to what the link takes",
            at_most=1.2,
        ),
        Figure(
            "to_bucket",
            alone_s / took_s,
            "x",
            f"the bucket alone, to the same: the rates are {SEVEN.link_mb_s / SEVEN.bucket_mb_s:.2f} apart",
            at_least=5.5,
        ),
        Figure(
            "loopback",
            LOOPBACK_BYTES / fastest["s"] / 1e9,
            "GB/s",
            "from two peers, hashed, without any link",
            at_least=1,
        ),
        Figure(
            "loopback_cpu",
            fastest["cpu_s"] / (LOOPBACK_BYTES / 1e9),
            "s",
            "of processors for 1 GB, where it is received",
        ),
        Figure(
            "p99_beside_upload",
            beside_s / rest_s,
            "x",
            f"of {count} requests of {SHORT} ms while their replica uploads, to while it doesn't",
            at_most=1.1,
        ),
        Figure("p99", rest_s * 1000, "ms", "while it doesn't"),
        Figure(
            "p99_at_once_added",
            (requests[AT_ONCE][0] - requests[AT_ONCE][1]) * 1000,
            "ms",
            "by the upload, to requests that are answered at once",
        ),
    ]


ROW = Row("peers", "A model from two peers, beside the bucket and the link", 40, measure)


def _measure_all() -> None:
    with scratch() as directory:
        best = _unshaped(directory)
        rate = LOOPBACK_BYTES / best["s"] / 1e9
        cpu_s = best["cpu_s"] / (LOOPBACK_BYTES / 1e9)
        sys.stdout.write(f"loopback, 2 peers, 8 MiB: {rate:.2f} GB/s, {cpu_s:.2f} s of CPU a GB\n")
        for published in (SEVEN, FOUR):
            _make(directory, published.size)
            sys.stdout.write(
                f"\n{published.gigabytes} GB at 1/{SHRUNK}, rates at 1/{published.slowed}:"
                f" bucket {published.bucket_mb_s} MB/s,"
                f" link {published.link_mb_s} MB/s: {published.limit_s:.2f} s at best\n"
                "| | s | times quicker than the bucket | times what the link takes | given up |\n"
            )
            alone_s = 0.0
            for case in CASES:
                found = _run(published, case, directory)
                took = float(found["s"])
                alone_s = alone_s or took
                sys.stdout.write(
                    f"| {case.words} | {took:.2f} | {alone_s / took:.2f} | {took / published.limit_s:.3f} |"
                    f" {found['dropped'] or ''} |\n"
                )
                sys.stdout.flush()
        for least_ms, (beside_s, rest_s, count) in _beside(directory).items():
            sys.stdout.write(
                f"\np99 of {count} requests that take {least_ms} ms: {beside_s * 1000:.2f} ms beside an"
                f" upload, {rest_s * 1000:.2f} ms without\n"
            )


def main() -> None:
    """Measure, or be one of those who are measured."""
    match sys.argv[1:]:
        case ["serve", address, root, rate, pieces]:
            if int(pieces):
                _Mortal(address, Path(root), int(rate), int(pieces)).serve_forever()
            peers.Server((address, peers.PORT), {MODEL: Path(root)}, int(rate)).serve_forever()
        case ["replica", address, root, rate]:
            subprocess.Popen([sys.executable, "-m", __spec__.name, "answer", address], cwd=ROOT)
            os.nice(19)  # as `peers.serve`
            peers.Server((address, peers.PORT), {MODEL: Path(root)}, int(rate)).serve_forever()
        case ["answer", address]:
            http.server.ThreadingHTTPServer((address, SERVICE_PORT), _Replica).serve_forever()
        case ["ask", address, for_s]:
            sys.stdout.write(json.dumps(_ask(address, float(for_s))) + "\n")
        case ["fetch", plan]:
            sys.stdout.write(json.dumps(_fetch(json.loads(plan))) + "\n")
        case _:
            _measure_all()


if __name__ == "__main__":
    main()

"""Fetches a service's models from peers and their buckets at once, and serves them to peers that start later.

    python3 -I peers.py [--keep]      instead of fetch.py, which lies beside it, and with its plan

S3 has a SHA-256 of each part of an object that was uploaded with `--checksum-algorithm SHA256`. Those are
asked for first, of the very objects that are to be had, and then it doesn't matter who sends a piece: one
that has another hash is thrown away, and who sent it isn't asked again. Without hashes all comes from the
bucket.

Peers are the replicas that the instance's tag names. With `--keep` the models are served, once they are
whole.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import http.server
import os
import re
import socket
import struct
import sys
import threading
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from spotrelay.file.instance import fetch

PORT = 7420
"""Where models are served: below what instances connect from (32768). No server of models is known there."""

RATE = 625_000_000
"""Bytes per second that a replica sends to all peers together: half of the 10 Gbit/s that a g5 or g6 of up to
eight vCPUs has for five minutes and more, which is longer than an upload takes. The rest is for requests:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-network-bandwidth.html"""

CONNECTIONS = 2
"""To one peer: EC2 limits one to 5 Gbit/s, and with more nothing came sooner (docs/peers.md):
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-network-bandwidth.html
The bucket has as many at first, and more while each brings pieces quickly."""

QUICK_S = 0.5
"""For a piece: S3 brings 8 MiB within a tenth of a second on each connection. Of a slow bucket, what many
connections have half of in the end has come for nothing."""

SERVED = 32
"""Connections that are answered at a time: sixteen replicas that start at once."""

LARGEST_PIECE = 32 * 1024 * 1024
"""A piece is in memory until its hash is known, one for each connection. The AWS CLI makes parts of 8 MiB."""

CHUNK_BYTES = 1024 * 1024
"""What is read and hashed at once: it is in the processor's cache then."""

STALL_S = 3.0
"""A peer is in the same zone: one that brings nothing for so long has gone."""

PATIENCE_S = 8.0
"""For how long a peer is asked while it brings nothing: two stalls, and a pause."""

IDLE_S = 30.0
"""A connection that asks for nothing for so long is closed. Between two pieces lie milliseconds."""

TAG = "tags/instance/spotrelay:peers"
"""Written with the launch, see `placement.peers`."""

TAG_S = 3.0
"""For how long the tag is waited for: no document says that the metadata have it when the instance boots."""

SO_MAX_PACING_RATE = 47
"""Linux's option without a name in Python: the bytes per second that a socket may send. See socket(7)."""


@dataclass(frozen=True)
class Piece:
    """A range of an object, and what is in it."""

    one: fetch.Object
    start: int
    length: int
    sha256: bytes


def pieces(bucket: fetch.Bucket, model: fetch.Model, objects: Sequence[fetch.Object]) -> list[Piece]:
    """All of a model, by the parts of which S3 has hashes.

    Raises:
        FetchError: S3 doesn't say, or has none that can be used: which, and what to do.
    """

    def ask(one: fetch.Object) -> list[Piece]:
        return fetch.patiently(lambda: _pieces_of(bucket, model, one), f"{model.source}/{one.key}")

    with ThreadPoolExecutor(fetch.CONNECTIONS) as pool:
        return [piece for each in pool.map(ask, objects) for piece in each]


def _pieces_of(bucket: fetch.Bucket, model: fetch.Model, one: fetch.Object) -> list[Piece]:
    if not one.size:
        return []
    what, parts = f"{model.source}/{one.key}", list[tuple[int, str]]()
    headers = {"x-amz-object-attributes": "ETag,Checksum,ObjectParts"}
    connection = bucket.connect()
    try:
        while True:
            answer = bucket.ask(connection, model.key(one), {"attributes": ""}, headers)
            text = answer.read()
            if answer.status != 200:
                raise fetch.refused(model, what, answer.status, text)
            found = fetch.xml(text)
            if (found.findtext("ETag") or "").strip('"') != one.etag.strip('"'):
                raise fetch.refused(model, what, 412, b"")
            parts += [
                (int(part.findtext("Size") or 0), part.findtext("ChecksumSHA256") or "")
                for part in found.iter("Part")
            ]
            if found.findtext("ObjectParts/IsTruncated") != "true":
                break
            headers["x-amz-part-number-marker"] = found.findtext("ObjectParts/NextPartNumberMarker") or ""
    finally:
        connection.close()
    # What was uploaded at once has no parts.
    parts = parts or [(one.size, found.findtext("Checksum/ChecksumSHA256") or "")]
    if not all(sha for _, sha in parts) or max(size for size, _ in parts) > LARGEST_PIECE:
        raise fetch.FetchError(f"S3 has no SHA-256 of the parts of {what}, each of 32 MiB at most")
    starts = [sum(size for size, _ in parts[:number]) for number in range(len(parts) + 1)]
    if starts[-1] != one.size:
        raise fetch.FetchError(f"the parts of {what} that S3 tells aren't all of it")
    return [
        Piece(one, start, size, base64.b64decode(sha))
        for start, (size, sha) in zip(starts, parts)  # noqa: B905 - Python 3.9 has no `strict`
    ]


def named(instance: fetch.Instance) -> list[str]:
    """The addresses of the peers in the instance's own zone, as its tag says them."""
    until = time.monotonic() + TAG_S
    while True:
        try:
            zone, told = instance.get("placement/availability-zone"), instance.get(TAG)
        except (OSError, http.client.HTTPException):
            if time.monotonic() > until:
                return []
            time.sleep(0.2)
        else:
            pairs = [one.partition(":") for one in told.split()]
            return [address for letter, _, address in pairs if zone.endswith(letter)]


class Source:
    """Who brings pieces: a peer."""

    most = CONNECTIONS
    """Connections to it, in the end."""
    patience_s = PATIENCE_S

    def __init__(self, address: str, found: str) -> None:
        """`found`: the digest of what is fetched, by which a peer knows it."""
        self.name = address
        self.connections = CONNECTIONS
        self.brought = 0
        """Bytes."""
        self.takes_s = 1.0
        """For a piece: the last one; before there is one, as long as at 8 MB/s."""
        self.dropped = ""
        """Why it isn't asked any more."""
        self._failing_since: float | None = None
        self._found = found

    def connect(self) -> http.client.HTTPConnection:
        """A connection, which is made with the first request."""
        return http.client.HTTPConnection(self.name, PORT, timeout=STALL_S)

    def ask(self, connection: http.client.HTTPConnection, piece: Piece) -> http.client.HTTPResponse:
        """The answer that brings a piece.

        Raises:
            FetchError: it can't be had here.
            OSError, HTTPException: not this time.
        """
        asked = f"bytes={piece.start}-{piece.start + piece.length - 1}"
        path = f"/{self._found}/{urllib.parse.quote(piece.one.key)}"
        connection.request("GET", path, headers={"range": asked})
        answer = connection.getresponse()
        if answer.status != 206 or answer.length != piece.length:
            # It may not have it yet, or answer too many.
            raise OSError(f"it says HTTP {answer.status}")
        return answer

    def works(self) -> None:
        """Note that it brings pieces."""
        self._failing_since = None

    def failed(self, error: Exception, now: float) -> str:
        """Note that a piece didn't come; why this source isn't asked any more, empty: it is."""
        if self._failing_since is None:
            self._failing_since = now
        may_pass = isinstance(error, (OSError, http.client.HTTPException))
        if may_pass and now - self._failing_since < self.patience_s:
            return ""
        return str(error) or type(error).__name__


class BucketSource(Source):
    """Who brings pieces: the bucket."""

    most = fetch.CONNECTIONS
    patience_s = fetch.PATIENCE_S

    def __init__(self, bucket: fetch.Bucket, model: fetch.Model) -> None:
        super().__init__(model.source, "")
        self._stored = fetch.Stored(bucket, model)

    def connect(self) -> http.client.HTTPConnection:
        """As the bucket does."""
        return self._stored.connect()

    def ask(self, connection: http.client.HTTPConnection, piece: Piece) -> http.client.HTTPResponse:
        """By its range, of the object that was listed."""
        return self._stored.piece(connection, piece.one, piece.start, piece.length)


class _Board:
    """Which pieces are missing, and who is bringing which: what all connections share."""

    def __init__(self, missing: Sequence[Piece], sources: Sequence[Source]) -> None:
        self._changed = threading.Condition()
        self._waiting = list(reversed(missing))
        self._coming: dict[Piece, tuple[list[Source], float]] = {}
        """With when it was begun."""
        self._asked = list(sources)
        self.left = len(missing)
        self.failure: fetch.FetchError | None = None

    def wait(self, for_s: float | None = None) -> None:
        """Return once all is written, or nobody is left to bring more; or after a while."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over, for_s)

    @property
    def _is_over(self) -> bool:
        return not self.left or not self._asked or self.failure is not None

    def take(self, source: Source) -> Piece | None:
        """What it is to bring next; None: nothing any more.

        When no piece waits, it brings one with which another source has been busy for twice as long as this
        one takes: a slow one doesn't decide when all is there.
        """
        with self._changed:
            while source in self._asked and not self._is_over:
                if self._waiting:
                    piece = self._waiting.pop()
                    self._coming[piece] = [source], time.monotonic()
                    return piece
                until = None
                for piece, (by, since) in self._coming.items():  # what has been coming for longest first
                    if len(by) == 1 and by[0] is not source:
                        until = since + 2 * source.takes_s - time.monotonic()
                        if until <= 0:
                            by.append(source)
                            return piece
                        break
                self._changed.wait(until)
        return None

    def may_grow(self, source: Source) -> bool:
        """Whether another connection to it is to be opened, which is counted then.

        When no other source is left, it makes no difference how long pieces take.
        """
        with self._changed:
            helps = source.takes_s < QUICK_S or self._asked == [source]
            grows = helps and bool(self._waiting) and source.connections < source.most
            source.connections += grows
        return grows

    def is_wanted(self, piece: Piece) -> bool:
        """Whether nobody has brought it meanwhile."""
        return piece in self._coming

    def claim(self, piece: Piece) -> bool:
        """Whether it is to be written now: of two who bring it, the first one does that."""
        with self._changed:
            return self._coming.pop(piece, None) is not None

    def written(self, piece: Piece, source: Source) -> None:
        """Note that it is."""
        with self._changed:
            self.left -= 1
            source.brought += piece.length
            self._changed.notify_all()

    def back(self, piece: Piece, source: Source, drop: str) -> None:
        """Note that it didn't come; `drop` says why its source isn't asked any more, if it isn't."""
        with self._changed:
            by, _ = self._coming.get(piece, ([], 0))
            if source in by:
                by.remove(source)
                if not by:
                    del self._coming[piece]
                    self._waiting.append(piece)
            if drop and source in self._asked:
                self._asked.remove(source)
                source.dropped = drop
            self._changed.notify_all()

    def fail(self, error: fetch.FetchError) -> None:
        """Nothing more can be written."""
        with self._changed:
            self.failure = error
            self._changed.notify_all()


class _Line:
    """One connection to a source."""

    def __init__(self, board: _Board, source: Source, into: Path, buffer_bytes: int) -> None:
        self._board = board
        self._source = source
        self._into = into
        self._connection: http.client.HTTPConnection | None = None
        self._buffer = memoryview(bytearray(buffer_bytes))
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        """Bring pieces until none is left for its source."""
        tries = 0
        while (piece := self._board.take(self._source)) is not None:
            began = time.monotonic()
            try:
                content = self._read(piece)
            except Exception as error:  # noqa: BLE001 - a thread that ends must not keep a piece for ever
                self._close()
                tries += 1
                self._board.back(piece, self._source, self._source.failed(error, time.monotonic()))
                # Not all come back at once.
                self._board.wait(min(0.1 * 2**tries, 2))
                continue
            tries = 0
            self._source.works()
            if content is None:
                continue
            self._source.takes_s = time.monotonic() - began
            if self._board.may_grow(self._source):
                _Line(self._board, self._source, self._into, len(self._buffer))
            if self._board.claim(piece):
                try:
                    fetch.write(self._into / piece.one.key, content, piece.start)
                except fetch.FetchError as error:
                    self._board.fail(error)
                self._board.written(piece, self._source)
        self._close()

    def _read(self, piece: Piece) -> memoryview | None:
        """What is in a piece; None: another source was quicker."""
        self._connection = self._connection or self._source.connect()
        answer = self._source.ask(self._connection, piece)
        content, hashed, done = self._buffer[: piece.length], hashlib.sha256(), 0
        while done < piece.length:
            got = answer.readinto(content[done : done + CHUNK_BYTES])
            if not got:
                raise OSError("the connection broke off")
            hashed.update(content[done : done + got])
            done += got
            if not self._board.is_wanted(piece):
                self._close()  # with the rest of the answer
                return None
        if hashed.digest() != piece.sha256:
            raise fetch.FetchError(f"it sent other bytes of {piece.one.key} than S3 has")
        return content

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def collect(model: fetch.Model, missing: Sequence[Piece], sources: Sequence[Source], into: Path) -> None:
    """Have all pieces written, each by whoever brings it first.

    Raises:
        FetchError: the disk refuses one, or nobody is left to bring one.
    """
    board = _Board(missing, sources)
    largest = max((piece.length for piece in missing), default=0)
    for source in sources:
        for _ in range(source.connections):
            _Line(board, source, into, largest)
    board.wait()
    if board.failure is not None:
        raise board.failure
    if board.left:
        reasons = "; ".join(f"{one.name}: {one.dropped}" for one in sources)
        raise fetch.FetchError(f"{model.source} can't be fetched: {reasons}")


def bring(bucket: fetch.Bucket, model: fetch.Model, objects: Sequence[fetch.Object], into: Path) -> None:
    """Have all objects written, from peers and the bucket; from it alone, if there are no peers or no hashes.

    Raises:
        FetchError: one can't be had or written.
    """
    found = fetch.digest(objects)
    sources = [Source(address, found) for address in named(bucket.instance)]
    try:
        missing = pieces(bucket, model, objects) if sources else []
    except fetch.FetchError as error:
        fetch.say(f"no peer is asked: {error}")
        sources = []
    if not sources:
        fetch.bring(bucket, model, objects, into)
        return
    sources.append(BucketSource(bucket, model))
    collect(model, missing, sources, into)
    for one in sources:
        why = f"; not asked any more, because {one.dropped}" if one.dropped else ""
        fetch.say(f"{one.brought} bytes of {model.source} came from {one.name}{why}")


class Server(http.server.ThreadingHTTPServer):
    """Serves what lies below some directories, each by its model's digest."""

    daemon_threads = True
    request_queue_size = 2 * SERVED

    def __init__(self, where: tuple[str, int], served: Mapping[str, Path], rate: int = RATE) -> None:
        super().__init__(where, _Answer)
        self.served = {found: path.resolve() for found, path in served.items()}
        self._rate = rate
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def enter(self, connection: socket.socket) -> bool:
        """Let a connection have its share of the rate; False: there are too many."""
        with self._lock:
            if len(self._open) >= SERVED:
                return False
            self._open.add(connection)
            self._share()
        return True

    def leave(self, connection: socket.socket) -> None:
        """Let the others have its share."""
        with self._lock:
            self._open.discard(connection)
            self._share()

    def _share(self) -> None:
        for each in self._open:
            share = struct.pack("L", self._rate // len(self._open))
            each.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, share)

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: a peer that breaks off, or has ended, is nobody's fault here."""


class _Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_S
    disable_nagle_algorithm = True  # or the end of each piece waits until all before it is acknowledged
    server: Server

    def handle(self) -> None:
        if not self.server.enter(self.connection):
            self.connection.sendall(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        try:
            super().handle()
        finally:
            self.server.leave(self.connection)

    def do_GET(self) -> None:
        found, _, key = urllib.parse.unquote(self.path).lstrip("/").partition("/")
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
        root = self.server.served.get(found, Path("/nowhere"))
        file = (root / key).resolve()
        if asked is None or root not in file.parents or not file.is_file():
            self._head(404, 0)
            return
        with file.open("rb") as content:
            start, end = int(asked[1]), min(int(asked[2]) + 1, os.fstat(content.fileno()).st_size)
            if start >= end:
                self._head(416, 0)
                return
            self._head(206, end - start)
            self.connection.sendfile(content, start, end - start)

    def _head(self, status: int, length: int) -> None:
        self.send_response_only(status)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing: who asks says what came."""


def serve(models: Sequence[fetch.Wanted], instance: fetch.Instance) -> None:
    """Serve models that are there, for as long as the instance lives."""
    try:
        served = {fetch.found(model): model.path for model in models}
        server = Server((instance.get("local-ipv4"), PORT), served)
    except (OSError, http.client.HTTPException) as error:
        fetch.say(f"no peer can fetch models here: {error}")
        return

    def run() -> None:
        os.nice(19)  # requests come first; Linux has it for each thread, and a new one has its maker's
        server.serve_forever()

    threading.Thread(target=run).start()


if __name__ == "__main__":
    sys.exit(fetch.main(partial(fetch.fetched, how=bring), serve))

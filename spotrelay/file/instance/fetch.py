"""Fetches a service's models from their buckets. An instance runs it by itself, as `fetch.py`.

    python3 -I fetch.py [--keep]      what fetch.json, beside it, names

A unit starts it at boot, beside set-up, and run.sh calls it once more: who comes second waits for the first,
and finds the models there. A model appears at its place all at once, when each of its objects is whole. With
`--keep`, it stays until the disk has what was written: only then does a model outlast a crash of the machine.

It has the standard library alone, of Python 3.9: what images have.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import http.client
import json
import os
import queue
import random
import re
import shutil
import ssl
import sys
import threading
import time
import urllib.parse
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

PIECE_BYTES = 8 * 1024 * 1024
"""What is asked for at once, and lost with a connection. S3 advises ranges of 8 or 16 MB:
https://docs.aws.amazon.com/whitepapers/latest/s3-optimizing-performance-best-practices/use-byte-range-fetches.html"""

CONNECTIONS = 32
"""S3 sends 85 to 90 MB/s on one, so these fill the 20 Gbit/s of a g6e.2xlarge's bursts:
https://docs.aws.amazon.com/whitepapers/latest/s3-optimizing-performance-best-practices/horizontal-scaling-and-request-parallelization-for-high-throughput.html"""

CHUNK_BYTES = 1024 * 1024
"""What one connection keeps in memory, between network and disk."""

STALL_S = 10.0
"""A connection that brings nothing for so long is given up, and another is made."""

PATIENCE_S = 120.0
"""How long a piece is asked for while nothing comes but broken connections, or *slow down*. Three tries that
fail so late still count as a crash loop, whose reason is told: see `crash.WITHIN_S`."""

CREDENTIALS_S = 240.0
"""New credentials are there five minutes before the old ones expire, so those of four minutes ago are valid:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-metadata-security-credentials.html"""

METADATA_S = 5.0
"""The metadata service is on the same host, and answers within milliseconds."""

MARK = ".spotrelay-model"
"""In a model's directory: what it is, and whether the disk has it."""

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

PASSING = frozenset({429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed; S3 says 503 where it is asked too much."""

MEND = "deploy again, and put a new model below a prefix of its own"

NO_BODY = hashlib.sha256(b"").hexdigest()

T = TypeVar("T")


class FetchError(Exception):
    """A model can't be had; says which, why, and what to do."""


class Wanted(Protocol):
    """What is to be where."""

    @property
    def source(self) -> str:
        """As a user writes it."""

    @property
    def path(self) -> Path:
        """Its place."""

    @property
    def digest(self) -> str | None:
        """What it is to be; None: whatever is there."""

    @property
    def mark(self) -> Path:
        """Where it is noted what is at its place."""


@dataclass(frozen=True)
class Object:
    """One object of a model, by its key below the model's prefix."""

    key: str
    size: int
    etag: str
    """As S3 tells it, in quotes."""


@dataclass(frozen=True)
class Model:
    """All below a prefix of a bucket, which is to be in a directory."""

    bucket: str
    prefix: str
    """Without a slash at either end; empty: the whole bucket."""
    path: Path
    digest: str | None
    """What was deployed, see `digest`; None: whatever is there."""

    @property
    def source(self) -> str:
        """As a user writes it."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def mark(self) -> Path:
        """In the directory."""
        return self.path / MARK

    def key(self, one: Object) -> str:
        """An object's key in the bucket."""
        return f"{self.prefix}/{one.key}".lstrip("/")


@dataclass(frozen=True)
class Credentials:
    """An instance role's."""

    access_key: str
    secret_key: str
    token: str


def digest(objects: Iterable[Object]) -> str:
    """What a model is: another one if any object of it is."""
    lines = sorted(f"{one.key}\t{one.size}\t{one.etag}\n" for one in objects)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


class Instance:
    """What the metadata service says of the instance: where it is, and its role's credentials."""

    def __init__(self) -> None:
        where = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254")
        self._url = urllib.parse.urlsplit(where)
        self._lock = threading.Lock()
        self._kept: tuple[float, Credentials] | None = None

    def get(self, path: str) -> str:
        """An item of the metadata.

        Raises:
            OSError, HTTPException: it isn't there, perhaps not yet.
        """
        token = self._ask("PUT", "api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        return self._ask("GET", f"meta-data/{path}", {"X-aws-ec2-metadata-token": token})

    def credentials(self) -> Credentials:
        """Valid ones.

        Raises:
            OSError, HTTPException: there are none, perhaps not yet.
        """
        with self._lock:
            if self._kept is None or time.monotonic() - self._kept[0] > CREDENTIALS_S:
                role = self.get("iam/security-credentials/").split()[0]
                found = json.loads(self.get(f"iam/security-credentials/{role}"))
                keys = Credentials(found["AccessKeyId"], found["SecretAccessKey"], found["Token"])
                self._kept = time.monotonic(), keys
            return self._kept[1]

    def _ask(self, method: str, path: str, headers: Mapping[str, str]) -> str:
        connection = http.client.HTTPConnection(self._url.netloc, timeout=METADATA_S)
        try:
            connection.request(method, f"{self._url.path}/latest/{path}", headers=dict(headers))
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status != 200:
            raise OSError(f"the instance's metadata has no {path}: HTTP {answer.status}")
        return text


class Bucket:
    """A bucket of the instance's region, asked with its role.

    In every partition: the instance's metadata says under which domain AWS's services are.
    """

    def __init__(self, name: str, instance: Instance) -> None:
        """Raises: as `Instance.get` does."""
        self.instance = instance
        self._region = instance.get("placement/region")
        self._base = ""
        if endpoint := os.environ.get("AWS_ENDPOINT_URL"):
            url = urllib.parse.urlsplit(endpoint)
            self._is_secure, self._host, self._base = url.scheme == "https", url.netloc, f"/{name}"
        else:
            self._is_secure = True
            self._host = f"s3.{self._region}.{instance.get('services/domain')}"
            # S3's certificate is for one label before its own name.
            if "." in name:
                self._base = f"/{name}"
            else:
                self._host = f"{name}.{self._host}"
        self._tls = ssl.create_default_context() if self._is_secure else None

    def connect(self) -> http.client.HTTPConnection:
        """A connection, which is made with the first request."""
        if self._tls is None:
            return http.client.HTTPConnection(self._host, timeout=STALL_S)
        return http.client.HTTPSConnection(self._host, timeout=STALL_S, context=self._tls)

    def ask(
        self,
        connection: http.client.HTTPConnection,
        key: str = "",
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> http.client.HTTPResponse:
        """The answer to a GET, or with a body to a PUT, whatever it is.

        Raises:
            OSError, HTTPException: there is none.
        """
        path, asked, more = f"{self._base}/{urllib.parse.quote(key)}", _query(query or {}), headers or {}
        method = "GET" if body is None else "PUT"
        content = hashlib.sha256(body or b"").hexdigest()
        keys = self.instance.credentials()
        own = signed(self._host, path, asked, self._region, keys, time.gmtime(), more, method, content)
        target = f"{path}?{asked}" if asked else path
        connection.request(method, target, body, headers={**own, **more})
        return connection.getresponse()


def _query(values: Mapping[str, str]) -> str:
    """As a signature has it: by name, and all but letters, digits and four signs in hexadecimal."""
    return "&".join(
        f"{urllib.parse.quote(name, safe='')}={urllib.parse.quote(values[name], safe='')}"
        for name in sorted(values)
    )


def signed(
    host: str,
    path: str,
    query: str,
    region: str,
    credentials: Credentials,
    now: time.struct_time,
    more: Mapping[str, str],
    method: str = "GET",
    content: str = NO_BODY,
) -> dict[str, str]:
    """The headers with which S3 answers a request; of `more` those are signed that must be.

    `content` is its body's SHA-256, which S3 checks.

    By https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
    """
    moment, day = time.strftime("%Y%m%dT%H%M%SZ", now), time.strftime("%Y%m%d", now)
    scope = f"{day}/{region}/s3/aws4_request"
    headers = {
        "host": host,
        "x-amz-content-sha256": content,
        "x-amz-date": moment,
        "x-amz-security-token": credentials.token,
        **{name: value for name, value in more.items() if name.startswith("x-amz-")},
    }
    headers = dict(sorted(headers.items()))
    names = ";".join(headers)
    told = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = f"{method}\n{path}\n{query}\n{told}\n{names}\n{content}"
    to_sign = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{credentials.secret_key}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
    authorization = (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, SignedHeaders={names},"
        f" Signature={signature}"
    )
    return {**headers, "authorization": authorization}


def xml(text: bytes) -> ET.Element:
    """What S3 says. It names the elements with a namespace, which tells nothing here."""
    return ET.fromstring(re.sub(rb' xmlns="[^"]*"', b"", text, count=1))  # noqa: S314 - S3's, of the user's own bucket


def _listed(bucket: Bucket, model: Model) -> list[Object]:
    """Every object of a model.

    Raises:
        FetchError: there is none, it may not be listed, or a key leads out of the model's directory.
        OSError, HTTPException: S3 doesn't answer.
    """
    below = f"{model.prefix}/" if model.prefix else ""
    query = {"list-type": "2", "prefix": below}
    found: list[Object] = []
    connection = bucket.connect()
    try:
        while True:
            answer = bucket.ask(connection, query=query)
            text = answer.read()
            if answer.status != 200:
                raise refused(model, model.source, answer.status, text)
            page = xml(text)
            for one in page.iter("Contents"):
                key = (one.findtext("Key") or "")[len(below) :]
                if not key or key.endswith("/"):  # what consoles make for a folder
                    continue
                if key.startswith("/") or ".." in key.split("/"):
                    raise FetchError(f"{model.source}: {key} leads out of {model.path}: rename it")
                found.append(Object(key, int(one.findtext("Size") or 0), one.findtext("ETag") or ""))
            more = page.findtext("NextContinuationToken")
            if not more:
                break
            query["continuation-token"] = more
    finally:
        connection.close()
    if not found:
        raise FetchError(f"there is nothing below {model.source}/: is it the right bucket and prefix?")
    return found


def refused(model: Model, what: str, status: int, text: bytes) -> Exception:
    """What an answer that isn't the wanted one means: an OSError passes, a FetchError doesn't."""
    if status in PASSING:
        return OSError(f"S3 says HTTP {status}")
    if status == 412:
        return FetchError(f"{what} was changed while it was fetched: {MEND}")
    said = re.search(rb"<Message>(.*?)</Message>", text, re.DOTALL)
    words = said[1].decode(errors="replace") if said else f"HTTP {status}"
    if status == 403:
        return FetchError(f"the instance's role may not read {what}: {words}")
    if status == 404:
        return FetchError(f"there is no {what}: {words}")
    return FetchError(f"{what} can't be read: {words}: is {model.bucket} in the instance's region?")


class Origin(Protocol):
    """Who brings the pieces of a model."""

    connections: int
    """How many there are at a time."""
    piece_bytes: int
    """What is asked for at once."""
    patience_s: float
    """How long a piece is asked for."""

    def name(self, one: Object) -> str:
        """Of an object, as errors tell it."""

    def connect(self) -> http.client.HTTPConnection:
        """A connection, which is made with the first request."""

    def piece(
        self, connection: http.client.HTTPConnection, one: Object, start: int, length: int
    ) -> http.client.HTTPResponse:
        """The answer that brings a range of an object, which must still be the one that was looked at.

        Raises:
            FetchError: it can't be had.
            OSError, HTTPException: not this time.
        """


class Stored:
    """A model's bucket, of which it is had."""

    def __init__(self, bucket: Bucket, model: Model) -> None:
        self._bucket = bucket
        self._model = model
        self.connections = CONNECTIONS
        self.piece_bytes = PIECE_BYTES
        self.patience_s = PATIENCE_S

    def name(self, one: Object) -> str:
        """Its address."""
        return f"{self._model.source}/{one.key}"

    def connect(self) -> http.client.HTTPConnection:
        """As the bucket does."""
        return self._bucket.connect()

    def piece(
        self, connection: http.client.HTTPConnection, one: Object, start: int, length: int
    ) -> http.client.HTTPResponse:
        """As S3 sends it, of the object that was listed."""
        headers = {"range": f"bytes={start}-{start + length - 1}", "if-match": one.etag}
        answer = self._bucket.ask(connection, self._model.key(one), headers=headers)
        if answer.status != 206 or answer.length != length:
            raise refused(self._model, self.name(one), answer.status, answer.read(4096))
        return answer


def write(file: Path, content: memoryview, at: int) -> None:
    """Write all of it into a file that is there.

    Raises:
        FetchError: the disk refuses it.
    """
    with disk(file):
        descriptor, done = os.open(file, os.O_WRONLY), 0
        try:
            while done < len(content):
                done += os.pwrite(descriptor, content[done:], at + done)
        finally:
            os.close(descriptor)


def patiently(
    do: Callable[[], T],
    what: str,
    is_over: Callable[[], bool] = lambda: False,
    patience_s: float | None = None,
) -> T:
    """What it gives, once it does.

    Raises:
        FetchError: it has been tried for too long, or it says so itself.
    """
    since, tries = time.monotonic(), 0
    patience_s = PATIENCE_S if patience_s is None else patience_s
    while True:
        try:
            return do()
        except (OSError, http.client.HTTPException) as error:
            tries += 1
            if is_over() or time.monotonic() - since > patience_s:
                why = str(error) or type(error).__name__
                raise FetchError(f"{what} can't be fetched, tried {tries} times: {why}") from error
            # At random, so that not all connections come back at once.
            time.sleep(random.uniform(0, min(0.1 * 2**tries, 5)))  # noqa: S311 - no secret


class Fetch:
    """A model on its way, by several connections: each takes the next piece that nobody has."""

    def __init__(
        self,
        origin: Origin,
        objects: Iterable[Object],
        into: Path,
        written: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`written`: what is called with the start of each piece that is."""
        self._origin = origin
        self._into = into
        self._written = written
        self._pieces: queue.SimpleQueue[tuple[Object, int]] = queue.SimpleQueue()
        for one in objects:
            for start in range(0, one.size, origin.piece_bytes):
                self._pieces.put((one, start))
        self._failures: list[FetchError] = []

    def run(self) -> None:
        """Return once all is written, or nobody writes any more.

        Raises:
            FetchError: a piece can't be had or written.
        """
        count = min(self._origin.connections, self._pieces.qsize())
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _work(self) -> None:
        line, is_over = _Line(self._origin, self._into), lambda: bool(self._failures)
        one = None
        try:
            while not self._failures:
                one, start = self._pieces.get_nowait()
                bring = lambda: line.bring(one, start)  # noqa: B023, E731 - called at once
                patiently(bring, self._origin.name(one), is_over, self._origin.patience_s)
                self._written(start)
        except queue.Empty:
            pass
        except FetchError as error:
            self._failures.append(error)
        except Exception as error:  # noqa: BLE001 - a thread that ends must not leave a hole that nobody sees
            what = self._origin.name(one) if one else "a model"
            self._failures.append(FetchError(f"{what} can't be fetched: {error!r}"))
        finally:
            line.close()


class _Line:
    """One connection, which is made anew where it broke."""

    def __init__(self, origin: Origin, into: Path) -> None:
        self._origin = origin
        self._into = into
        self._connection: http.client.HTTPConnection | None = None
        self._buffer = memoryview(bytearray(CHUNK_BYTES))

    def close(self) -> None:
        """Forget the connection; the next piece makes another."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def bring(self, one: Object, start: int) -> None:
        """Fetch a piece and write it.

        Raises:
            FetchError: it can't be had, or written.
            OSError, HTTPException: not this time.
        """
        length = min(self._origin.piece_bytes, one.size - start)
        try:
            self._connection = self._connection or self._origin.connect()
            answer = self._origin.piece(self._connection, one, start, length)
            self._write(answer, one, start, length)
        except BaseException:
            self.close()  # what is left of an answer would be taken for the next
            raise

    def _write(self, answer: http.client.HTTPResponse, one: Object, start: int, length: int) -> None:
        done = 0
        while done < length:
            got = answer.readinto(self._buffer[: length - done])
            if not got:
                raise OSError("the connection broke off")
            write(self._into / one.key, self._buffer[:got], start + done)
            done += got


class disk:  # noqa: N801 - used as a statement
    """Tells what the disk refuses from what the network does."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OSError):
            raise FetchError(f"{self._path} can't be written: {error.strerror or error}") from error


def room(into: Path, objects: Iterable[Object]) -> None:
    """Make the files, of their sizes.

    Raises:
        FetchError: the disk has no room for them.
    """
    with disk(into):
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(parents=True)
        needed, free = sum(one.size for one in objects), shutil.disk_usage(into).free
    if needed > free:
        raise FetchError(
            f"{into.parent} has {free / 1e9:.1f} GB left, and the model takes {needed / 1e9:.1f}: choose a"
            " larger resources.disk_size, or a path on another disk"
        )
    for one in objects:
        file = into / one.key
        with disk(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            try:
                if one.size:
                    os.posix_fallocate(descriptor, 0, one.size)
            finally:
                os.close(descriptor)


def put(partial: Path, path: Path) -> None:
    """Let it be where something may be: what an image had, or what a mount needs."""
    old = path.with_name(f"{path.name}.old")
    with disk(path):
        shutil.rmtree(old, ignore_errors=True)
        if path.exists():
            path.rename(old)
        partial.rename(path)
        if old.is_file():
            old.unlink()
        shutil.rmtree(old, ignore_errors=True)


def _is_there(wanted: Wanted) -> bool:
    try:
        source, found, boot = wanted.mark.read_text(encoding="utf-8").split("\n")[:3]
    except (OSError, ValueError):
        return False
    # What the disk may not have had is good for as long as the machine hasn't started anew.
    is_it = source == wanted.source and wanted.digest in (None, found) and boot in ("", _boot())
    return is_it and wanted.path.exists()


def _boot() -> str:
    return BOOT_ID.read_text(encoding="utf-8").strip()


def bring(bucket: Bucket, model: Model, objects: Sequence[Object], into: Path) -> None:
    """Have all objects written, from the bucket alone.

    Raises:
        FetchError: one can't be had or written.
    """
    Fetch(Stored(bucket, model), objects, into).run()


Bring = Callable[[Bucket, Model, Sequence[Object], Path], None]


def fetch(model: Model, instance: Instance, how: Bring = bring) -> None:
    """Have a model at its place, unless it is there.

    Raises:
        FetchError: it can't be had.
    """

    def get(partial: Path) -> Got:
        bucket = patiently(lambda: Bucket(model.bucket, instance), model.source)
        objects = patiently(lambda: _listed(bucket, model), model.source)
        found = digest(objects)
        if model.digest not in (None, found):
            raise FetchError(f"{model.source} isn't what was deployed, somebody has changed it since: {MEND}")
        room(partial, objects)
        how(bucket, model, objects, partial)
        return Got(found, sum(one.size for one in objects), partial)

    have(model, get)


@dataclass(frozen=True)
class Got:
    """What was fetched."""

    found: str
    """What it is."""
    size: int
    content: Path
    """Beside its place."""


def have(wanted: Wanted, get: Callable[[Path], Got]) -> None:
    """Have it at its place, unless it is there.

    `get` fetches it into a directory, which it makes.

    Raises:
        FetchError: it can't be had.
    """
    path = wanted.path
    with disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_name(f".{path.name}.lock").open("w")
    with lock:
        _wait(lock.fileno(), wanted)
        if _is_there(wanted):
            return
        began = time.monotonic()
        partial = path.with_name(f"{path.name}.partial")
        got = get(partial)
        with disk(wanted.mark):
            wanted.mark.unlink(missing_ok=True)
        put(got.content, path)
        with disk(wanted.mark):
            wanted.mark.write_text(f"{wanted.source}\n{got.found}\n{_boot()}\n", encoding="utf-8")
        shutil.rmtree(partial, ignore_errors=True)
        took_s = time.monotonic() - began
        rate = got.size / 1e9 / max(took_s, 0.001)
        say(f"{wanted.source} is at {path}: {got.size} bytes in {took_s:.1f} s, {rate:.2f} GB/s")


def _wait(lock: int, wanted: Wanted) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        say(f"waits for {wanted.source}, which is being fetched")
        fcntl.flock(lock, fcntl.LOCK_EX)


def found(wanted: Wanted) -> str:
    """The digest of what is there."""
    return wanted.mark.read_text(encoding="utf-8").split("\n")[1]


def keep(wanted: Wanted) -> None:
    """Have the disk write what is there, and note that it has it."""
    for file in (wanted.path, *sorted(wanted.path.rglob("*"))):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    mark = wanted.mark
    source, found, _ = mark.read_text(encoding="utf-8").split("\n")[:3]
    kept = mark.with_name(f"{mark.name}.new")
    kept.write_text(f"{source}\n{found}\n\n", encoding="utf-8")
    kept.replace(mark)


def say(words: str) -> None:
    """A line of the journal."""
    sys.stderr.write(f"spotrelay: {words}\n")
    sys.stderr.flush()


def fetched(one: Mapping[str, Any], instance: Instance, how: Bring = bring) -> Wanted:
    """What an entry of the plan names, once it is there.

    Raises:
        FetchError: it can't be had.
    """
    model = Model(one["bucket"], one["prefix"], Path(one["path"]), one.get("digest"))
    fetch(model, instance, how)
    return model


def main(
    by: Callable[[Mapping[str, Any], Instance], Wanted] = fetched,
    then: Callable[[Sequence[Wanted], Instance], None] | None = None,
) -> int:
    """Have all models, and do what comes then; what is told is in the journal."""
    plan = json.loads((Path(__file__).parent / "fetch.json").read_text(encoding="utf-8"))
    instance = Instance()
    try:
        models = [by(one, instance) for one in plan]
    except FetchError as error:
        say(str(error))
        return 1
    if "--keep" in sys.argv:
        if then is not None:
            then(models, instance)
        for model in models:
            keep(model)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Fetches a service's models from web servers, too, each a file whose SHA-256 is known.

    python3 -I web.py [--keep]      instead of fetch.py, which lies beside it, and with its plan

A file is asked for in ranges where its server takes them, over several connections, and else in one stream.
Redirects are followed. All of it over HTTPS, and from addresses of the internet only: what a redirect names
is somebody else's choice. The file is hashed while it comes, and is at its place once the hash is right.
"""

from __future__ import annotations

import hashlib
import http.client
import ipaddress
import re
import shutil
import socket
import ssl
import sys
import threading
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from spotrelay.file.instance import fetch

CONNECTIONS = 16
"""Somebody else's server isn't S3: as many as aria2 makes to one server at most.
https://aria2.github.io/manual/en/html/aria2c.html#cmdoption-x"""

REDIRECTS = 5
"""Followed in a row. Hugging Face and GitHub have one or two."""

SLOW_RATE = 10_000_000
"""Bytes per second that a stream has at least, while it is tried again from its beginning."""

AGENT = "spotrelay"
"""Some servers answer nobody without a name."""

_EXPIRED = frozenset({400, 401, 403, 404, 410})
"""What servers say of an address that was signed for some minutes."""

_MOVED = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True)
class File:
    """A file of a web server, which is to be at a path."""

    url: str
    sha256: str
    path: Path

    @property
    def source(self) -> str:
        """As a user writes it."""
        return self.url

    @property
    def digest(self) -> str:
        """What it is to be."""
        return self.sha256

    @property
    def mark(self) -> Path:
        """Beside the file."""
        return self.path.with_name(f"{fetch.MARK}.{self.path.name}")

    @property
    def refused(self) -> Path:
        """Where it is noted what else the server has, so that it isn't fetched again and again."""
        return self.path.with_name(f"{fetch.MARK}.{self.path.name}.refused")


@dataclass(frozen=True)
class Seen:
    """A file as its server tells it."""

    at: str
    """Where redirects have led, perhaps for some minutes only."""
    size: int
    etag: str
    """What it is, in quotes; empty: the server doesn't say, or not exactly."""
    has_ranges: bool


def is_public(address: str) -> bool:
    """Whether an address belongs to the internet, and not to a private network, a host or its metadata."""
    return ipaddress.ip_address(address.partition("%")[0]).is_global


@lru_cache(maxsize=1)
def tls() -> ssl.SSLContext:
    """With the system's certificates, or those of SSL_CERT_FILE."""
    return ssl.create_default_context()


class Connection(http.client.HTTPSConnection):
    """To a public address: to the very one that was looked at, which a name may not have the next time."""

    def __init__(self, url: str, source: str) -> None:
        """Raises: FetchError: it isn't HTTPS, or no address at all."""
        self.url = url
        self.source = source
        try:
            parts = urllib.parse.urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise fetch.FetchError(f"{source} leads to what is no address: {error}") from error
        if parts.scheme != "https" or not host:
            # Without path and query, which may be a key.
            raise fetch.FetchError(
                f"{source} leads to {parts.scheme}://{host}, and only https:// is followed"
            )
        super().__init__(host, port, timeout=fetch.STALL_S)

    def connect(self) -> None:
        """Raises: FetchError: an address isn't public, or the certificate isn't good; OSError."""
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        addresses = [str(where[0]) for *_, where in found]
        for address in addresses:
            if not is_public(address):
                raise fetch.FetchError(
                    f"{self.source} is at {address} ({self.host}), an address of a private network, where"
                    " nothing is fetched from: copy it to a bucket, and name that"
                )
        for index, address in enumerate(addresses):
            try:
                plain = socket.create_connection((address, self.port), self.timeout)
                break
            except OSError:
                if index == len(addresses) - 1:
                    raise
        try:
            self.sock = tls().wrap_socket(plain, server_hostname=self.host)
        except ssl.SSLCertVerificationError as error:
            plain.close()
            raise fetch.FetchError(f"{self.source}: {self.host} has no good certificate: {error}") from error
        except OSError:
            plain.close()
            raise

    def ask(self, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        """The answer to a GET, whatever it is.

        Raises:
            FetchError: as `connect` does.
            OSError, HTTPException: there is none.
        """
        parts = urllib.parse.urlsplit(self.url)
        target = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
        self.request("GET", target, headers={"user-agent": AGENT, **headers})
        return self.getresponse()


def look(url: str) -> Seen:
    """What is at an address. One byte is asked for: some addresses are signed for GET alone.

    Raises:
        FetchError: nothing that can be fetched.
        OSError, HTTPException: not this time.
    """
    at = url
    for _ in range(REDIRECTS + 1):
        connection = Connection(at, url)
        try:
            answer = connection.ask({"range": "bytes=0-0"})
            if answer.status not in _MOVED:
                return _seen(url, at, answer)
            # Some servers leave spaces and letters of all alphabets as they are.
            to = urllib.parse.quote(answer.headers["location"] or "", safe="%/:=&?~#+!$,;'@()*[]")
        finally:
            connection.close()
        try:
            at = urllib.parse.urljoin(at, to)
        except ValueError as error:
            raise fetch.FetchError(f"{url} leads to what is no address: {error}") from error
    raise fetch.FetchError(f"{url} leads elsewhere more than {REDIRECTS} times")


def _seen(url: str, at: str, answer: http.client.HTTPResponse) -> Seen:
    if answer.status == 206:
        told = re.fullmatch(r"bytes 0-0/(\d+)", answer.headers["content-range"] or "")
        size = int(told[1]) if told else None
    elif answer.status == 200:
        size = answer.length
    elif answer.status == 416:
        size = 0
    else:
        raise _refused(url, answer.status)
    if not size:
        says = "is empty" if size == 0 else "can't be fetched: its server doesn't say how large it is"
        raise fetch.FetchError(f"{url} {says}")
    return Seen(at, size, _etag(answer), answer.status == 206)


def _etag(answer: http.client.HTTPResponse) -> str:
    """Not a weak one, which says the same of other bytes."""
    etag = answer.headers["etag"] or ""
    return etag if etag.startswith('"') else ""


def _refused(url: str, status: int) -> Exception:
    if status in fetch.PASSING or status == 408:
        return OSError(f"it says HTTP {status}")
    if status in (401, 403):
        return fetch.FetchError(
            f"{url} isn't for everybody: HTTP {status}: copy it to a bucket, and name that"
        )
    if status in (404, 410):
        return fetch.FetchError(f"there is no {url}: HTTP {status}")
    return fetch.FetchError(f"{url} can't be read: HTTP {status}")


class Site:
    """A file's server, of which it is had."""

    def __init__(self, url: str, seen: Seen) -> None:
        self._url = url
        self._seen = seen
        self._lock = threading.Lock()
        self.connections = CONNECTIONS if seen.has_ranges else 1
        self.piece_bytes = fetch.PIECE_BYTES if seen.has_ranges else seen.size
        self.patience_s = fetch.PATIENCE_S + (0 if seen.has_ranges else seen.size / SLOW_RATE)

    def name(self, _: fetch.Object) -> str:
        """The file's address."""
        return self._url

    def connect(self) -> Connection:
        """Where redirects have led."""
        return Connection(self._seen.at, self._url)

    def piece(
        self, connection: http.client.HTTPConnection, one: fetch.Object, start: int, length: int
    ) -> http.client.HTTPResponse:
        """A range, or all of it, of the file that was looked at."""
        its = cast("Connection", connection)
        asked = {"range": f"bytes={start}-{start + length - 1}"} if self._seen.has_ranges else {}
        answer = its.ask(asked)
        if answer.status not in (200, 206):
            if answer.status in _EXPIRED | _MOVED and its.url != self._url:
                self._look_again(its.url)
                raise OSError(f"where it leads isn't there any more: HTTP {answer.status}")
            raise _refused(self._url, answer.status)
        wanted = f"bytes {start}-{start + length - 1}/{one.size}"
        is_part = answer.status == 206 and answer.headers["content-range"] == wanted
        is_all = answer.status == 200 and not self._seen.has_ranges
        if not (is_part or is_all) or answer.length != length or _etag(answer) != one.etag:
            raise _changed(self._url)
        return answer

    def _look_again(self, at: str) -> None:
        """Ask where the file is, unless another connection has."""
        with self._lock:
            if self._seen.at == at:
                self._seen = look(self._url)


def _changed(url: str) -> fetch.FetchError:
    return fetch.FetchError(f"{url} was changed while it was fetched, or its server sends several versions")


class _Hash(threading.Thread):
    """Of a file whose pieces come in any order: follows those that are written."""

    def __init__(self, file: Path, size: int, piece_bytes: int) -> None:
        super().__init__(daemon=True)
        self._file = file
        self._size = size
        self._piece_bytes = piece_bytes
        self._written: set[int] = set()
        self._changed = threading.Condition()
        self._is_over = False
        self._found = ""
        self._error: OSError | None = None

    def written(self, start: int) -> None:
        """Note that a piece is."""
        with self._changed:
            self._written.add(start)
            self._changed.notify_all()

    def give_up(self) -> None:
        """End it: nothing more will be written."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def run(self) -> None:
        """Read each piece once it is there."""
        hashed = hashlib.sha256()
        try:
            with self._file.open("rb") as content:
                for start in range(0, self._size, self._piece_bytes):
                    with self._changed:
                        self._changed.wait_for(lambda: self._is_over or start in self._written)  # noqa: B023 - called at once
                        if self._is_over:
                            return
                    left = min(self._piece_bytes, self._size - start)
                    while left and (chunk := content.read(min(left, fetch.CHUNK_BYTES))):
                        hashed.update(chunk)
                        left -= len(chunk)
        except OSError as error:
            self._error = error
        self._found = hashed.hexdigest()

    def result(self) -> str:
        """Once all is written.

        Raises:
            FetchError: the disk doesn't give it back.
        """
        self.join()
        with fetch.disk(self._file):
            if self._error:
                raise self._error
        return self._found


def have(file: File) -> None:
    """Have a file at its place, unless it is there.

    Raises:
        FetchError: it can't be had.
    """
    fetch.have(file, lambda partial: _get(file, partial))


def _get(file: File, partial: Path) -> fetch.Got:
    seen = fetch.patiently(lambda: look(file.url), file.url)
    noted = f"{file.url}\n{file.sha256}\n{seen.size} {seen.etag}\n"
    if seen.etag and (sha256 := _noted(file, noted)):
        raise _wrong(file, sha256)
    one, site = fetch.Object(file.path.name, seen.size, seen.etag), Site(file.url, seen)
    fetch.room(partial, [one])
    content = partial / one.key
    hashing = _Hash(content, seen.size, site.piece_bytes)
    hashing.start()
    try:
        fetch.Fetch(site, [one], partial, hashing.written).run()
    except BaseException:
        hashing.give_up()
        raise
    sha256 = hashing.result()
    if sha256 != file.sha256:
        with fetch.disk(file.refused):
            file.refused.write_text(f"{noted}{sha256}", encoding="utf-8")
        shutil.rmtree(partial, ignore_errors=True)
        raise _wrong(file, sha256)
    return fetch.Got(sha256, seen.size, content)


def _noted(file: File, noted: str) -> str:
    """The SHA-256 of what the server has, if this very file has been fetched and refused; else empty."""
    try:
        text = file.refused.read_text(encoding="utf-8")
    except OSError:
        return ""
    return text[len(noted) :] if text.startswith(noted) else ""


def _wrong(file: File, sha256: str) -> fetch.FetchError:
    return fetch.FetchError(
        f"{file.url} isn't what was deployed: its SHA-256 is {sha256}, and spotrelay.models has"
        f" {file.sha256}: if that is what you want, correct the service file and deploy again"
    )


def fetched(one: Mapping[str, Any], instance: fetch.Instance) -> fetch.Wanted:
    """What an entry of the plan names, once it is there.

    Raises:
        FetchError: it can't be had.
    """
    if "url" not in one:
        return fetch.fetched(one, instance)
    file = File(one["url"], one["sha256"], Path(one["path"]))
    have(file)
    return file


if __name__ == "__main__":
    sys.exit(fetch.main(fetched))

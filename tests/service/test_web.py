"""A file of a web server is at its place if its hash is right, and else not at all."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spotrelay.file.instance import fetch, models, web
from spotrelay.file.instance.fetch import FetchError
from spotrelay.file.instance.web import File
from tests.service.https import Trouble, Web

PIECE = 32 * 1024


@pytest.fixture
def content() -> bytes:
    """Of many pieces, the last of which is short."""
    return random.Random(7).randbytes(20 * PIECE + 17)  # noqa: S311 - the same each time


@pytest.fixture
def server(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """A server on this machine, as if that were an address of the internet."""
    monkeypatch.setattr(fetch, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(fetch, "STALL_S", 1.0)
    monkeypatch.setattr(web, "is_public", lambda _: True)
    found = Web(tmp_path, {"/llama 8b/q4.gguf": content})
    monkeypatch.setenv("SSL_CERT_FILE", str(found.authority))
    web.tls.cache_clear()
    yield found
    found.close()
    web.tls.cache_clear()


@pytest.fixture
def file(server: Web, content: bytes, tmp_path: Path) -> File:
    """To be fetched."""
    sha256 = hashlib.sha256(content).hexdigest()
    return File(f"{server.url}/llama 8b/q4.gguf".replace(" ", "%20"), sha256, tmp_path / "m" / "q4.gguf")


def eventually(is_so: Callable[[], bool]) -> None:
    """Wait for something that must happen."""
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def left(file: File) -> set[str]:
    """What is beside the file, but for the lock."""
    return {one.name for one in file.path.parent.iterdir()} - {".q4.gguf.lock"}


def at_first(what: str, times: int = 3) -> Trouble:
    """Trouble that passes."""
    return lambda number: what if number <= times else ""


PASSING = {
    "nothing": at_first("", 0),
    "too many requests": at_first("429"),
    "a fault": at_first("500"),
    "connections break": at_first("cut"),
    "a connection brings nothing": at_first("stall"),
    "every third request breaks": lambda number: "cut" if number % 3 == 0 else "",
}


@pytest.mark.parametrize("has_ranges", [True, False], ids=["ranges", "a stream"])
@pytest.mark.parametrize("trouble", PASSING.values(), ids=PASSING)
def test_a_file_is_there_as_it_was(
    trouble: Trouble,
    has_ranges: bool,
    server: Web,
    file: File,
    content: bytes,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By ranges over several connections, or all at once; a second start asks nobody."""
    server.trouble, server.has_ranges = trouble, has_ranges
    web.have(file)
    assert file.path.read_bytes() == content
    assert left(file) == {"q4.gguf", ".spotrelay-model.q4.gguf"}
    assert len(set(server.asked)) == (21 if has_ranges else 1)
    assert server.looks == 1
    assert server.agents == {"spotrelay"}
    said = capsys.readouterr().err
    assert said.startswith(f"spotrelay: {file.url} is at {file.path}: {len(content)} bytes in ")
    server.asked = []
    web.have(file)
    assert (server.looks, server.asked) == (1, [])


def test_another_file_is_never_at_its_place(server: Web, file: File, content: bytes) -> None:
    """The error says both hashes; the same file isn't fetched again, and another one is."""
    server.files["/llama 8b/q4.gguf"] = other = content[:-1] + b"!"
    actual = hashlib.sha256(other).hexdigest()
    asked = None
    for _ in range(2):
        with pytest.raises(
            FetchError, match=rf"its SHA-256 is {actual}, and spotrelay.models has {file.sha256}"
        ):
            web.have(file)
        assert not file.path.exists()
        assert left(file) == {".spotrelay-model.q4.gguf.refused"}
        assert len(server.asked) >= 21
        assert asked in (None, len(server.asked))
        asked = len(server.asked)
    server.files["/llama 8b/q4.gguf"] = content
    web.have(file)
    assert file.path.read_bytes() == content


def test_a_weak_etag_tells_nothing(server: Web, file: File, content: bytes) -> None:
    """It may be the same for other bytes: a file that was wrong once is looked at anew."""
    server.etag = lambda _: 'W/"1"'
    server.files["/llama 8b/q4.gguf"] = content[::-1]
    with pytest.raises(FetchError, match="isn't what was deployed"):
        web.have(file)
    server.files["/llama 8b/q4.gguf"] = content
    web.have(file)
    assert file.path.read_bytes() == content


def test_what_was_at_its_place_stays_until_the_hash_is_right(server: Web, file: File, content: bytes) -> None:
    """A directory, too, which a container's mount makes there."""
    file.path.mkdir(parents=True)
    (file.path / "x").write_text("old")
    server.files["/llama 8b/q4.gguf"] = content[::-1]
    with pytest.raises(FetchError, match="isn't what was deployed"):
        web.have(file)
    assert (file.path / "x").exists()
    server.files["/llama 8b/q4.gguf"] = content
    web.have(file)
    assert file.path.read_bytes() == content
    newer = File(file.url, hashlib.sha256(b"newer").hexdigest(), file.path)
    server.files["/llama 8b/q4.gguf"] = b"newer"
    web.have(newer)
    assert file.path.read_bytes() == b"newer"
    assert left(file) == {"q4.gguf", ".spotrelay-model.q4.gguf", ".spotrelay-model.q4.gguf.refused"}


def test_what_was_noted_of_another_file_is_forgotten_first(
    server: Web, file: File, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that ends right after a newer file is at its place doesn't take it for the one before."""
    web.have(file)
    server.files["/llama 8b/q4.gguf"] = b"newer"
    put = fetch.put

    def ends(partial: Path, path: Path) -> None:
        put(partial, path)
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch, "put", ends)
    with pytest.raises(KeyboardInterrupt):
        web.have(File(file.url, hashlib.sha256(b"newer").hexdigest(), file.path))
    monkeypatch.setattr(fetch, "put", put)
    assert file.path.read_bytes() == b"newer"
    server.files["/llama 8b/q4.gguf"] = content
    web.have(file)
    assert file.path.read_bytes() == content


@pytest.mark.parametrize("tells_etag", [True, False])
def test_a_file_that_changes_meanwhile_is_told(
    tells_etag: bool, server: Web, file: File, content: bytes
) -> None:
    """By its ETag, or else by its hash: nothing of two versions appears."""
    if not tells_etag:
        server.etag = lambda _: ""

    def trouble(number: int) -> str:
        if number == 4:
            server.files["/llama 8b/q4.gguf"] = content[::-1]
        return ""

    server.trouble = trouble
    words = "was changed while it was fetched" if tells_etag else "isn't what was deployed: its SHA-256 is"
    with pytest.raises(FetchError, match=words):
        web.have(file)
    assert not file.path.exists()


def test_a_file_of_another_size_is_told(server: Web, file: File, content: bytes) -> None:
    """Though its server doesn't say what it is."""
    server.etag = lambda _: ""

    def trouble(number: int) -> str:
        if number == 4:
            server.files["/llama 8b/q4.gguf"] = content + b"more"
        return ""

    server.trouble = trouble
    with pytest.raises(FetchError, match="was changed while it was fetched"):
        web.have(file)


def test_redirects_are_followed_once(server: Web, file: File, content: bytes) -> None:
    """Pieces are asked for where they have led."""
    server.redirects["/a"] = "/b"
    server.signed["/b"] = "/llama 8b/q4.gguf"
    web.have(File(f"{server.url}/a", file.sha256, file.path))
    assert server.signs == 1
    assert file.path.read_bytes() == content


def test_an_address_that_expires_is_asked_for_again(server: Web, file: File, content: bytes) -> None:
    """As content networks sign them for minutes; by one connection for all."""
    server.signed["/a"] = "/llama 8b/q4.gguf"

    def trouble(number: int) -> str:
        if number == 10:
            server.signatures.clear()
            return "403"
        return ""

    server.trouble = trouble
    web.have(File(f"{server.url}/a", file.sha256, file.path))
    assert server.signs == 2
    assert file.path.read_bytes() == content


def test_a_file_that_changes_when_its_address_expires_is_told(
    server: Web, file: File, content: bytes
) -> None:
    """What is found there then is compared as ever."""
    server.signed["/a"] = "/llama 8b/q4.gguf"

    def trouble(number: int) -> str:
        if number == 10:
            server.signatures.clear()
            server.files["/llama 8b/q4.gguf"] = content[::-1]
            return "403"
        return ""

    server.trouble = trouble
    with pytest.raises(FetchError, match="was changed while it was fetched"):
        web.have(File(f"{server.url}/a", file.sha256, file.path))


def test_only_https_is_followed(server: Web, file: File) -> None:
    """The error names whom it led to, and no key that is in the address."""
    server.redirects["/a"] = "http://example.com/x?signature=s"
    with pytest.raises(FetchError, match=r"/a leads to http://example.com, and only https:// is followed$"):
        web.have(File(f"{server.url}/a", file.sha256, file.path))


@pytest.mark.parametrize("to", ["https://x.org:port/a", "https://[x/a"])
def test_a_redirect_that_is_no_address_is_told(to: str, server: Web, file: File) -> None:
    """At once, as it won't pass."""
    server.redirects["/a"] = to
    with pytest.raises(FetchError, match="/a leads to what is no address: "):
        web.have(File(f"{server.url}/a", file.sha256, file.path))


def test_redirects_have_an_end(server: Web, file: File) -> None:
    """Who leads in a circle is given up."""
    server.redirects["/a"] = "/a"
    with pytest.raises(FetchError, match="/a leads elsewhere more than 5 times"):
        web.have(File(f"{server.url}/a", file.sha256, file.path))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("8.8.8.8", True),
        ("2001:4860:4860::8888", True),
        ("169.254.169.254", False),
        ("fd00:ec2::254", False),
        ("10.0.0.7", False),
        ("127.0.0.1", False),
        ("100.64.0.1", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("::ffff:10.0.0.7", False),
        ("0.0.0.0", False),
    ],
)
def test_which_addresses_are_of_the_internet(address: str, expected: bool) -> None:
    """Neither an instance's metadata nor a private network."""
    assert web.is_public(address) is expected


def test_nothing_comes_from_a_private_address(
    server: Web, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even by a redirect: the connection isn't made."""
    monkeypatch.setattr(web, "is_public", lambda _: False)
    with pytest.raises(FetchError, match=r"is at 127.0.0.1 \(localhost\), an address of a private network"):
        web.have(file)
    assert server.looks == 0


def test_the_address_that_is_asked_is_the_one_that_was_looked_at(
    server: Web, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that has another address the next time leads nowhere else."""
    seen: list[str] = []

    def is_public(address: str) -> bool:
        seen.append(address)
        return True

    connect, connected = socket.create_connection, list[str]()

    def create_connection(where: tuple[str, int], *more: Any) -> socket.socket:
        connected.append(where[0])
        return connect(where, *more)

    monkeypatch.setattr(web, "is_public", is_public)
    monkeypatch.setattr(socket, "create_connection", create_connection)
    web.have(file)
    assert set(connected) <= set(seen)
    assert "localhost" not in connected


def test_a_server_without_a_good_certificate_is_told_at_once(
    server: Web, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It isn't asked for minutes."""
    monkeypatch.delenv("SSL_CERT_FILE")
    web.tls.cache_clear()
    with pytest.raises(FetchError, match="localhost has no good certificate"):
        web.have(file)


FOR_GOOD = {
    "404": "there is no https://localhost",
    "403": "isn't for everybody: HTTP 403: copy it to a bucket",
    "401": "isn't for everybody: HTTP 401: copy it to a bucket",
    "400": "can't be read: HTTP 400",
    "503": r"can't be fetched, tried \d+ times: it says HTTP 503",
    "cut": "can't be fetched, tried .* times: .*(broke off|IncompleteRead)",
}


@pytest.mark.parametrize(("what", "words"), FOR_GOOD.items(), ids=FOR_GOOD)
def test_what_does_not_pass_is_told(
    what: str, words: str, server: Web, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the address, and nothing is at the file's place."""
    monkeypatch.setattr(fetch, "PATIENCE_S", 0.5)
    monkeypatch.setattr(fetch, "STALL_S", 10.0)
    server.trouble = lambda _: what
    with pytest.raises(FetchError, match=words):
        web.have(file)
    assert not file.path.exists()


def test_a_file_that_is_not_there_is_told(server: Web, file: File) -> None:
    """When it is looked at."""
    with pytest.raises(FetchError, match=r"there is no https://localhost:.*/other: HTTP 404"):
        web.have(File(f"{server.url}/other", file.sha256, file.path))


def test_an_empty_file_is_told(server: Web, file: File) -> None:
    """Nobody means that."""
    server.files["/e"] = b""
    for server.has_ranges in (True, False):
        with pytest.raises(FetchError, match="/e is empty"):
            web.have(File(f"{server.url}/e", file.sha256, file.path))


def test_a_server_that_tells_no_size_is_told(server: Web, file: File) -> None:
    """No room can be made for what may be of any size."""
    server.has_ranges = server.tells_length = False
    with pytest.raises(FetchError, match="its server doesn't say how large it is"):
        web.have(file)


def test_a_disk_without_room_is_told_at_once(
    server: Web, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a byte of the file comes."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=17))
    with pytest.raises(FetchError, match=r"larger resources\.disk_size"):
        web.have(file)
    assert server.asked == []


def test_a_disk_that_fails_is_told(server: Web, file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what hashes the file ends, too."""

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    before = threading.active_count()
    with pytest.raises(FetchError, match="can't be written: No space left on device"):
        web.have(file)
    eventually(lambda: threading.active_count() <= before)


def test_a_file_outlasts_a_crash_once_the_disk_has_it(
    server: Web, file: File, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a directory from a bucket does; and one that somebody removed is fetched anew."""
    boot = tmp_path / "boot_id"
    boot.write_text("first\n")
    monkeypatch.setattr(fetch, "BOOT_ID", boot)
    web.have(file)
    boot.write_text("second\n")
    web.have(file)
    assert server.looks == 2
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    fetch.keep(file)
    assert len(synced) == 1
    boot.write_text("third\n")
    web.have(file)
    assert server.looks == 2
    file.path.unlink()
    web.have(file)
    assert server.looks == 3
    assert file.path.exists()


def test_it_runs_on_the_instances_python(server: Web, file: File, content: bytes, tmp_path: Path) -> None:
    """As a script beside the fetcher, without the package, of what Python 3.9 reads."""
    text = Path(web.__file__).read_text(encoding="utf-8")
    ast.parse(text, feature_version=(3, 9))
    script = tmp_path / "opt" / "web.py"
    script.parent.mkdir()
    # This machine isn't of the internet.
    shipped = models.web_script().replace(".is_global", ".is_loopback")
    assert shipped != models.web_script()
    script.write_text(shipped, encoding="utf-8")
    script.with_name("fetch.py").write_text(models.script(), encoding="utf-8")
    plan = {"url": file.url, "sha256": file.sha256, "path": str(file.path)}

    def run(entry: dict[str, str]) -> subprocess.CompletedProcess[str]:
        script.with_name("fetch.json").write_text(json.dumps([entry]))
        return subprocess.run(
            [sys.executable, "-I", str(script), "--keep"], capture_output=True, text=True, check=False
        )

    done = run(plan)
    assert done.returncode == 0, done.stderr
    assert file.path.read_bytes() == content
    assert file.mark.read_text().endswith("\n\n")
    failed = run({**plan, "sha256": "0" * 64})
    assert failed.returncode == 1
    assert failed.stderr.startswith(
        f"spotrelay: {file.url} isn't what was deployed: its SHA-256 is {file.sha256}"
    )
    assert file.path.read_bytes() == content

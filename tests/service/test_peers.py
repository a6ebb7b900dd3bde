"""Models come from peers as they are, whoever lies, dies or dawdles; and peers get nothing but these."""

from __future__ import annotations

import ast
import http.client
import json
import os
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotocoreCredentials

from spotrelay.file.instance import fetch, models, peers
from spotrelay.file.instance.fetch import FetchError, Instance, Model
from tests.service.s3 import BUCKET, S3
from tests.service.test_fetch import got, pinned

PIECE = 64 * 1024

KEY = "llama/8b/model-1.safetensors"


@pytest.fixture
def content() -> dict[str, bytes]:
    """A model by its keys below the prefix: one of many parts, one with a name that is quoted, one empty."""
    rng = random.Random(7)  # noqa: S311 - the same each time
    return {
        "model-1.safetensors": rng.randbytes(40 * PIECE + 17),
        "sub/b c+d.bin": rng.randbytes(PIECE),
        "é.json": b"{}",
        "empty": b"",
    }


@pytest.fixture
def s3(content: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """The bucket with the model, as the AWS CLI puts it there with SHA-256."""
    monkeypatch.setattr(fetch, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(peers, "STALL_S", 0.3)
    monkeypatch.setattr(peers, "PATIENCE_S", 0.5)
    monkeypatch.setattr(peers.Source, "patience_s", 0.5)
    monkeypatch.setattr(peers, "TAG_S", 0.5)
    monkeypatch.setattr(peers, "PORT", free_port())
    server = S3({f"llama/8b/{key}": value for key, value in content.items()})
    server.parts[KEY] = [PIECE] * 40 + [17]
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.url)
    yield server
    server.close()


def free_port() -> int:
    """One that nobody has at any of this machine's own addresses, probably."""
    with socket.socket() as found:
        found.bind(("", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """To be fetched."""
    return Model(BUCKET, "llama/8b", tmp_path / "models" / "llama", None)


class Liar(peers.Server):
    """A peer with what a test has go wrong: by a request's number among those to it."""

    def __init__(self, address: str, root: Path, found: str, trouble: Callable[[int], str]) -> None:
        super().__init__((address, peers.PORT), {found: root})
        self.RequestHandlerClass = _Lies
        self.trouble = trouble
        self.asked = 0
        self.lock = threading.Lock()


class _Lies(peers._Answer):
    server: Liar

    def do_GET(self) -> None:  # noqa: N802 - as the base class calls it
        with self.server.lock:
            self.server.asked += 1
            what = self.server.trouble(self.server.asked)
        if what == "die":
            self.close_connection = True
            self.server.socket.close()  # nobody is let in any more
            os.close(os.dup(self.connection.fileno()))
            self.connection.sendall(b"HTTP/1.1 206 Partial Content\r\nContent-Length: 65536\r\n\r\nhalf")
        elif what == "stall":
            time.sleep(0.6)
            self.close_connection = True
        elif what == "slow":
            time.sleep(0.2)
            super().do_GET()
        elif what == "lie":
            length = 17 if "2621440" in self.headers["range"] else PIECE
            self.connection.sendall(
                b"HTTP/1.1 206 Partial Content\r\nContent-Length: %d\r\n\r\n" % length + bytes(length)
            )
        elif what:
            self._head(int(what), 0)
        else:
            super().do_GET()


@pytest.fixture
def peer(content: dict[str, bytes], tmp_path: Path, s3: S3) -> Iterator[Callable[..., Liar]]:
    """Starts one that has the model, and has the instance's tag name it."""
    root = tmp_path / "theirs"
    for key, value in content.items():
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(value)
    made: list[Liar] = []

    def start(trouble: Callable[[int], str] = lambda _: "", found: str = pinned(content)) -> Liar:
        address = f"127.0.7.{len(made) + 1}"
        server = Liar(address, root, found, trouble)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        made.append(server)
        s3.tag = f"{s3.tag or ''} b:{address}".strip()
        return server

    yield start
    for server in made:
        server.shutdown()
        server.server_close()


def fetched(model: Model) -> None:
    """Fetch it as an instance does."""
    fetch.fetch(model, Instance(), peers.bring)


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """What the journal says of each source: its bytes, and why it isn't asked any more."""
    lines = [line.removeprefix("spotrelay: ") for line in capsys.readouterr().err.splitlines()]
    said = [line.partition(" bytes of s3://models/llama/8b came from ") for line in lines]
    return {who.partition(";")[0]: f"{size}{who.partition(';')[2]}" for size, _, who in said if who}


TROUBLES: dict[str, tuple[Callable[[int], str], str]] = {
    "nothing": (lambda _: "", ""),
    "it lies": (lambda _: "lie", "not asked any more, because it sent other bytes of model-1.safetensors"),
    "it lies late": (lambda n: "lie" if n > 2 else "", "because it sent other bytes of"),
    "it dies": (lambda n: "die" if n > 2 else "", ""),
    "it stalls": (lambda _: "stall", ""),
    "it is slow": (lambda _: "slow", ""),
    "it has nothing": (lambda _: "404", ""),
    "it has nothing yet": (lambda n: "404" if n < 3 else "", ""),
    "it has too many who ask": (lambda n: "503" if n % 2 else "", ""),
}


@pytest.mark.parametrize("case", TROUBLES, ids=TROUBLES)
def test_a_model_is_there_as_it_was(
    case: str,
    s3: S3,
    model: Model,
    peer: Callable[..., Liar],
    content: dict[str, bytes],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whatever one of two peers does: a liar isn't asked again, and who dies costs its pieces only."""
    trouble, words = TROUBLES[case]
    bad, good = peer(trouble), peer()
    fetched(model)
    assert got(model) == content
    sources = told(capsys)
    size = sum(map(len, content.values()))
    assert sum(int(words.split(" ")[0].rstrip("n")) for words in sources.values()) == size
    assert words in sources["127.0.7.1"]
    assert int(sources["127.0.7.2"]) > 0
    assert good.asked
    assert case != "it lies" or bad.asked <= 2 * peers.CONNECTIONS


def test_peers_bring_what_the_bucket_cannot(
    s3: S3, model: Model, peer: Callable[..., Liar], content: dict[str, bytes]
) -> None:
    """Once the hashes are known, a bucket that answers nothing is no reason to fail."""
    peer()
    s3.trouble = lambda _: "503"
    fetched(model)
    assert got(model) == content


def test_the_bucket_brings_what_peers_cannot(
    s3: S3, model: Model, peer: Callable[..., Liar], content: dict[str, bytes]
) -> None:
    """Where every peer lies, all comes from the bucket, with every hash checked."""
    for _ in range(4):
        peer(lambda _: "lie")
    fetched(model)
    assert got(model) == content


@pytest.mark.parametrize("late", ["", "404", "503"])
def test_a_slow_bucket_does_not_decide(
    late: str,
    s3: S3,
    model: Model,
    peer: Callable[..., Liar],
    content: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it still sends when nothing else is left comes from a peer, which may not have it at once."""
    monkeypatch.setattr(fetch, "STALL_S", 30.0)
    goes_on, sent = threading.Event(), list[int]()

    def trouble(number: int) -> str:
        goes_on.wait(30)
        sent.append(number)
        return ""

    s3.trouble = trouble
    peer(lambda n: late if n < 3 else "")
    fetched(model)
    assert got(model) == content
    assert not sent
    goes_on.set()


def test_a_source_does_not_bring_a_piece_twice() -> None:
    """In the end another one brings it as well; over two of its own connections both would be slower."""
    piece = peers.Piece(fetch.Object("w", 8, '"x"'), 0, 8, b"")
    one, other = peers.Source("10.0.0.4", "digest"), peers.Source("10.0.0.9", "digest")
    one.takes_s = other.takes_s = 0.0
    board, taken = peers._Board([piece], [one, other]), list[peers.Piece | None]()
    assert board.take(one) == piece
    again = threading.Thread(target=lambda: taken.append(board.take(one)), daemon=True)
    again.start()
    again.join(0.1)
    assert not taken
    assert board.take(other) == piece
    assert board.claim(piece)
    board.written(piece, other)
    again.join()
    assert taken == [None]


def test_a_source_that_brings_nothing_for_a_while_is_given_up() -> None:
    """Counted from when it last brought something; one that lies, at once."""
    source, gone = peers.Source("10.0.0.4", "digest"), OSError("gone")
    assert source.failed(gone, 100.0) == ""
    assert source.failed(gone, 107.9) == ""
    source.works()
    assert source.failed(gone, 108.1) == ""
    assert source.failed(gone, 116.1) == "gone"
    source.works()
    assert source.failed(http.client.BadStatusLine("x"), 120.0) == ""
    assert source.failed(FetchError("it lies"), 120.0) == "it lies"


@pytest.mark.parametrize(
    ("quick_s", "fault", "is_grown"), [(10.0, "404", True), (0.0, "404", False), (0.0, "lie", True)]
)
def test_a_bucket_that_is_quick_is_asked_for_more_at_once(
    quick_s: float,
    fault: str,
    is_grown: bool,
    s3: S3,
    model: Model,
    peer: Callable[..., Liar],
    content: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slow one over two connections, until no peer is left: what more had begun would come twice."""
    monkeypatch.setattr(peers, "QUICK_S", quick_s)
    monkeypatch.setattr(peers.Source, "patience_s", 30.0)
    made: list[peers.BucketSource] = []

    class Noted(peers.BucketSource):
        def __init__(self, bucket: fetch.Bucket, of: Model) -> None:
            super().__init__(bucket, of)
            made.append(self)

    def trouble(_: int) -> str:
        time.sleep(0.005)
        return ""

    monkeypatch.setattr(peers, "BucketSource", Noted)
    s3.trouble = trouble
    peer(lambda _: fault)
    fetched(model)
    assert got(model) == content
    assert (made[0].connections > peers.CONNECTIONS) == is_grown


def test_nobody_left_is_an_error_that_names_all(
    s3: S3, model: Model, peer: Callable[..., Liar], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is at the model's place."""
    monkeypatch.setattr(peers.BucketSource, "patience_s", 0.5)
    peer(lambda _: "lie")
    s3.trouble = lambda _: "503"
    with pytest.raises(
        FetchError, match=r"can't be fetched: 127.0.7.1: it sent other bytes .*; s3://.*: S3 says HTTP 503"
    ):
        fetched(model)
    assert not model.path.exists()


def test_a_disk_that_fails_is_told(
    s3: S3, model: Model, peer: Callable[..., Liar], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no source's fault, and not tried for minutes."""
    peer()

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(FetchError, match="can't be written: No space left on device"):
        fetched(model)


def test_without_peers_nothing_more_is_asked(s3: S3, model: Model, content: dict[str, bytes]) -> None:
    """The first replica fetches as a service without `peers` does: no hash is asked for."""
    s3.tag = "none"
    fetched(model)
    assert got(model) == content
    assert s3.attributes == 0


def test_peers_of_other_zones_are_not_asked(
    s3: S3, model: Model, peer: Callable[..., Liar], content: dict[str, bytes]
) -> None:
    """Each byte between zones costs money, twice; the instance is in eu-west-1b."""
    other = peer()
    s3.tag = "a:127.0.7.1 c:127.0.7.1"
    fetched(model)
    assert got(model) == content
    assert other.asked == 0


def test_a_tag_that_is_not_there_yet_is_asked_again(s3: S3, model: Model, peer: Callable[..., Liar]) -> None:
    """The metadata may have it later than the instance boots."""
    server = peer()
    tag, s3.tag = s3.tag, None
    threading.Timer(0.2, lambda: setattr(s3, "tag", tag)).start()
    fetched(model)
    assert server.asked


def test_without_a_tag_the_bucket_is_enough(s3: S3, model: Model, content: dict[str, bytes]) -> None:
    """What somebody launches by hand has none."""
    fetched(model)
    assert got(model) == content


def wanting(s3: S3) -> Iterator[tuple[str, str]]:
    """Ways in which S3 has no hashes that can be used, with what is told."""
    s3.hashed = "CRC64NVME"
    yield "crc", f"S3 has no SHA-256 of the parts of s3://{BUCKET}/llama/8b/"
    s3.hashed = "SHA256"
    s3.parts[KEY] = [PIECE] * 40
    yield "short", f"the parts of s3://{BUCKET}/{KEY} that S3 tells aren't all of it"
    s3.parts[KEY] = [40 * PIECE + 17]
    yield "large", f"S3 has no SHA-256 of the parts of s3://{BUCKET}/{KEY}, each of 32 MiB at most"


@pytest.mark.parametrize("number", range(3))
def test_without_hashes_no_peer_is_asked(
    number: int,
    s3: S3,
    model: Model,
    peer: Callable[..., Liar],
    content: dict[str, bytes],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All comes from the bucket then, and the journal says why."""
    monkeypatch.setattr(peers, "LARGEST_PIECE", 20 * PIECE)
    server = peer()
    ways = wanting(s3)
    for _ in range(number + 1):
        _, words = next(ways)
    fetched(model)
    assert got(model) == content
    assert server.asked == 0
    assert f"spotrelay: no peer is asked: {words}" in capsys.readouterr().err


def test_hashes_are_of_what_was_listed(s3: S3, model: Model, peer: Callable[..., Liar]) -> None:
    """An object that somebody puts in between is refused, as without peers, and no peer blamed for it."""
    server = peer()
    listed = fetch._listed

    def then_changed(bucket: fetch.Bucket, of: Model) -> list[fetch.Object]:
        objects = listed(bucket, of)
        s3.objects["llama/8b/é.json"] = b"[]"
        return objects

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch, "_listed", then_changed)
        with pytest.raises(FetchError, match=r"é.json was changed while it was fetched: deploy again"):
            fetched(model)
    assert not model.path.exists()
    assert server.asked == 0


def test_hashes_come_in_pages(
    s3: S3, model: Model, peer: Callable[..., Liar], content: dict[str, bytes]
) -> None:
    """An object of more parts than one answer names has a hash of each."""
    s3.page = 7
    server = peer()
    fetched(model)
    assert got(model) == content
    assert s3.attributes == 6 + 2  # of 41 parts, and of two objects that were put at once
    assert server.asked


def asked(address: str, path: str, wanted: str | None = "bytes=0-1") -> tuple[int, bytes]:
    """What a peer answers."""
    connection = http.client.HTTPConnection(address, peers.PORT, timeout=5)
    connection.request("GET", path, headers={"range": wanted} if wanted else {})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def test_a_peer_serves_its_model_and_nothing_else(
    peer: Callable[..., Liar], content: dict[str, bytes], tmp_path: Path
) -> None:
    """By the model's digest, by ranges, and no file that lies elsewhere, whatever leads there."""
    (tmp_path / "secret").write_text("!")
    (tmp_path / "theirs" / "link").symlink_to(tmp_path / "secret")
    peer()
    found, at = pinned(content), "127.0.7.1"
    assert asked(at, f"/{found}/sub/b%20c%2Bd.bin") == (206, content["sub/b c+d.bin"][:2])
    assert asked(at, f"/{found}/%C3%A9.json", "bytes=1-9") == (206, b"}")
    for path in (
        "x/é.json",
        f"{found}/../secret",
        f"{found}//etc/passwd",
        f"{found}/link",
        f"{found}/",
        found,
        "",
    ):
        assert asked(at, f"/{path}".replace("é", "%C3%A9")) == (404, b""), path
    assert asked(at, f"/{found}/%C3%A9.json", None) == (404, b"")
    assert asked(at, f"/{found}/%C3%A9.json", "bytes=2-3") == (416, b"")


def test_connections_share_the_rate(peer: Callable[..., Liar], content: dict[str, bytes]) -> None:
    """Each open one has as much as another, and one too many is told so."""
    server = peer()
    found = pinned(content)
    paces: list[int] = []
    lines = [http.client.HTTPConnection("127.0.7.1", peers.PORT, timeout=5) for _ in range(peers.SERVED + 1)]
    for line in lines:
        line.request("GET", f"/{found}/%C3%A9.json", headers={"range": "bytes=0-1"})
        answer = line.getresponse()
        answer.read()
        paces += [pace(one) for one in list(server._open)][:1]
    assert answer.status == 503
    assert paces[:3] == [peers.RATE, peers.RATE // 2, peers.RATE // 3]
    for line in lines:
        line.close()
    while server._open:
        time.sleep(0.01)
    assert asked("127.0.7.1", f"/{found}/%C3%A9.json")[0] == 206


def pace(connection: socket.socket) -> int:
    """What the kernel says of a socket's rate."""
    raw = connection.getsockopt(socket.SOL_SOCKET, peers.SO_MAX_PACING_RATE, 8)
    return int(struct.unpack("L", raw)[0])


def test_it_runs_on_the_instances_python(
    s3: S3, model: Model, tmp_path: Path, content: dict[str, bytes]
) -> None:
    """As scripts without the package: the first instance serves what it fetched, the second gets it there."""
    text = Path(peers.__file__).read_text(encoding="utf-8")
    ast.parse(text, feature_version=(3, 9))
    opt = tmp_path / "opt"
    opt.mkdir()
    for name, script in {"fetch.py": models.script(), "peers.py": models.peers_script()}.items():
        ast.parse(script, feature_version=(3, 9))
        (opt / name).write_text(script.replace("PORT = 7420", f"PORT = {peers.PORT}"))
    plan = {"bucket": model.bucket, "prefix": model.prefix, "digest": pinned(content)}

    def start(path: Path) -> subprocess.Popen[str]:
        (opt / "fetch.json").write_text(json.dumps([{**plan, "path": str(path)}]))
        return subprocess.Popen(
            [sys.executable, "-I", str(opt / "peers.py"), "--keep"], stderr=subprocess.PIPE, text=True
        )

    s3.tag = "none"
    first = start(model.path)
    try:
        until = time.monotonic() + 20
        while not answers(content):
            assert time.monotonic() < until, "nothing is served"
            time.sleep(0.05)
        s3.tag, s3.trouble = "b:127.0.0.1", lambda _: "503"
        second = Model(BUCKET, "llama/8b", tmp_path / "second", None)
        later = start(second.path)
        _, said = later.communicate(timeout=20)  # its port is taken here
        assert got(second) == content
        assert (
            f"{sum(map(len, content.values()))} bytes of s3://models/llama/8b came from 127.0.0.1\n" in said
        )
        assert "spotrelay: no peer can fetch models here: [Errno 98] Address already in use" in said
        assert later.returncode == 0
        assert (model.path / fetch.MARK).read_text().endswith("\n\n")
        assert first.poll() is None
    finally:
        first.kill()
        first.communicate()


def answers(content: dict[str, bytes]) -> bool:
    """Whether the model is served."""
    try:
        return asked("127.0.0.1", f"/{pinned(content)}/%C3%A9.json") == (206, b"{}")
    except OSError:
        return False


def test_a_request_for_hashes_is_signed_as_botocore_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 refuses one whose headers `x-amz-…` aren't all signed."""
    now = datetime(2026, 11, 28, 3, 4, 5, tzinfo=UTC)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda **_: now.replace(tzinfo=None))
    more = {"x-amz-object-attributes": "ETag,Checksum,ObjectParts", "x-amz-part-number-marker": "1000"}
    request = AWSRequest("GET", "http://b.s3.eu-central-1.amazonaws.com/a?attributes=", headers=more)
    keys = BotocoreCredentials("AKIA", "se/cret", "tok+/=en")
    botocore.auth.S3SigV4Auth(keys, "s3", "eu-central-1").add_auth(request)
    ours = fetch.signed(
        "b.s3.eu-central-1.amazonaws.com",
        "/a",
        "attributes=",
        "eu-central-1",
        fetch.Credentials("AKIA", "se/cret", "tok+/=en"),
        now.utctimetuple(),
        {**more, "range": "bytes=0-1"},
    )
    assert ours["authorization"] == request.headers["Authorization"]

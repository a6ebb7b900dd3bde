"""Models come whole or not at all, whatever happens on the way; and what is there isn't fetched again."""

from __future__ import annotations

import ast
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.client import HTTPSConnection
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotocoreCredentials

from spotrelay.file.instance import crash, fetch, models
from spotrelay.file.instance.fetch import FetchError, Instance, Model
from tests.service.s3 import BUCKET, S3, Trouble, etag

PIECE = 64 * 1024


@pytest.fixture
def content() -> dict[str, bytes]:
    """A model by its keys below the prefix: many pieces, a name with a space, one that is empty."""
    rng = random.Random(7)  # noqa: S311 - the same each time
    return {
        "model-1.safetensors": rng.randbytes(10 * PIECE + 17),
        "sub/b c+d.bin": rng.randbytes(PIECE),
        "é.json": b"{}",
        "empty": b"",
    }


@pytest.fixture
def s3(content: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """S3 with the model, another one beside it, and what a console makes for a folder."""
    monkeypatch.setattr(fetch, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(fetch, "STALL_S", 0.3)
    objects = {f"llama/8b/{key}": value for key, value in content.items()}
    server = S3({**objects, "llama/8b/": b"", "llama/8b/sub/": b"", "llama/8b-other/x": b"no"})
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.url)
    yield server
    server.close()


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """To be fetched."""
    return Model(BUCKET, "llama/8b", tmp_path / "models" / "llama", None)


def got(model: Model) -> dict[str, bytes]:
    """What is at the model's place, but for the mark."""
    root = model.path
    files = {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}
    files.pop(fetch.MARK)
    return files


def pinned(content: dict[str, bytes]) -> str:
    """The digest of these, as it is known at the deployment."""
    return fetch.digest(fetch.Object(key, len(value), etag(value)) for key, value in content.items())


def at_first(what: str, times: int = 3) -> Trouble:
    """Trouble that passes."""
    return lambda number: what if number <= times else ""


PASSING = {
    "nothing": at_first("", 0),
    "S3 is asked too much": at_first("503"),
    "S3 has a fault": at_first("500"),
    "connections break": at_first("cut"),
    "a connection brings nothing": at_first("stall"),
    "every third request breaks": lambda number: "cut" if number % 3 == 0 else "",
}


@pytest.mark.parametrize("trouble", PASSING.values(), ids=PASSING)
def test_a_model_is_there_as_it_was(
    trouble: Trouble, s3: S3, model: Model, content: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    """Every object below the prefix and nothing else, whatever passes on the way; one line says how fast."""
    s3.trouble = trouble
    fetch.fetch(model, Instance())
    assert got(model) == content
    size = sum(map(len, content.values()))
    said = capsys.readouterr().err
    assert said.startswith(f"spotrelay: s3://models/llama/8b is at {model.path}: {size} bytes in ")
    assert said.endswith(" GB/s\n")
    assert s3.roles == 1


def test_a_listing_has_pages(s3: S3, model: Model, content: dict[str, bytes]) -> None:
    """A model of more objects than one answer names is whole."""
    s3.page = 2
    fetch.fetch(model, Instance())
    assert s3.listed == 3
    assert got(model) == content


def changing(s3: S3) -> Trouble:
    """Somebody puts another object while the first is fetched."""

    def trouble(number: int) -> str:
        if number == 4:
            s3.objects["llama/8b/model-1.safetensors"] = bytes(10 * PIECE + 17)
        return ""

    return trouble


def test_an_object_that_changes_meanwhile_is_told(s3: S3, model: Model) -> None:
    """Nothing of two versions appears: S3 refuses by the ETag, and the error says what happened."""
    s3.trouble = changing(s3)
    with pytest.raises(
        FetchError, match=r"s3://models/llama/8b/model-1.safetensors was changed while .*: deploy again"
    ):
        fetch.fetch(model, Instance())
    assert not model.path.exists()


FOR_GOOD = {
    "403": r"the instance's role may not read s3://models/llama/8b/.+: AccessDenied!",
    "404": r"there is no s3://models/llama/8b/.+: NoSuchKey!",
    "301": "is models in the instance's region",
    "503": r"s3://models/llama/8b/.+ can't be fetched, tried \d+ times: S3 says HTTP 503",
    "cut": "can't be fetched, tried .* times: .*(broke off|IncompleteRead)",
}


@pytest.mark.parametrize(("what", "words"), FOR_GOOD.items(), ids=FOR_GOOD)
def test_what_does_not_pass_is_told(
    what: str, words: str, s3: S3, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the object and S3's words, and nothing is at the model's place."""
    monkeypatch.setattr(fetch, "PATIENCE_S", 0.5)
    monkeypatch.setattr(fetch, "STALL_S", 10.0)
    s3.trouble = lambda _: what
    with pytest.raises(FetchError, match=words):
        fetch.fetch(model, Instance())
    assert not model.path.exists()


def test_three_tries_are_a_crash_loop() -> None:
    """Patience with S3 ends so early that three tries without it are told as one."""
    assert crash.ENDS * (fetch.PATIENCE_S + fetch.STALL_S + 5) < crash.WITHIN_S


def test_nothing_below_a_prefix_is_an_error(s3: S3, tmp_path: Path) -> None:
    """A wrong prefix makes no empty model, nor does one that is an object's whole key."""
    for prefix in ("llama/70b", "llama/8b/empty"):
        with pytest.raises(FetchError, match=f"there is nothing below s3://models/{prefix}/"):
            fetch.fetch(Model(BUCKET, prefix, tmp_path / "m", None), Instance())


def test_a_key_that_leads_out_is_an_error(s3: S3, model: Model, tmp_path: Path) -> None:
    """No object is written outside of its model's directory."""
    s3.objects["llama/8b/../../x"] = b"!"
    with pytest.raises(FetchError, match="leads out of"):
        fetch.fetch(model, Instance())
    assert not list(tmp_path.rglob("x"))


def test_what_was_deployed_is_what_is_fetched(s3: S3, model: Model, content: dict[str, bytes]) -> None:
    """With a pinned digest another model is refused before a byte of it comes."""
    deployed = Model(model.bucket, model.prefix, model.path, pinned(content))
    s3.objects["llama/8b/é.json"] = b"[]"
    with pytest.raises(FetchError, match=r"s3://models/llama/8b isn't what was deployed, .*: deploy again"):
        fetch.fetch(deployed, Instance())
    assert s3.asked == []
    s3.objects["llama/8b/é.json"] = b"{}"
    fetch.fetch(deployed, Instance())
    assert got(model) == content


def test_what_is_there_is_not_fetched_again(s3: S3, model: Model, content: dict[str, bytes]) -> None:
    """Not even S3 is asked, so a server starts again without it; another model is fetched in its place."""
    fetch.fetch(model, Instance())
    s3.listed, s3.asked = 0, []
    for same in (model, Model(model.bucket, model.prefix, model.path, pinned(content))):
        fetch.fetch(same, Instance())
    assert (s3.listed, s3.asked) == (0, [])
    fetch.fetch(Model(BUCKET, "llama/8b-other", model.path, None), Instance())
    assert got(model) == {"x": b"no"}


def test_a_model_outlasts_a_crash_once_the_disk_has_it(
    s3: S3, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then another boot fetches it anew: files may have their size and nothing in them."""
    boot = tmp_path / "boot_id"
    boot.write_text("first\n")
    monkeypatch.setattr(fetch, "BOOT_ID", boot)
    fetch.fetch(model, Instance())
    boot.write_text("second\n")
    s3.asked = []
    fetch.fetch(model, Instance())
    assert s3.asked
    fetch.keep(model)
    boot.write_text("third\n")
    s3.asked = []
    fetch.fetch(model, Instance())
    assert s3.asked == []


def test_what_a_try_has_left_is_no_model(s3: S3, model: Model, content: dict[str, bytes]) -> None:
    """Neither half a model beside its place nor a directory without a mark at it is taken for one."""
    partial = model.path.with_name("llama.partial")
    for directory in (partial, model.path):
        directory.mkdir(parents=True)
        (directory / "left").write_text("half")
    fetch.fetch(model, Instance())
    assert got(model) == content
    assert not partial.exists()


def test_a_disk_without_room_is_told_at_once(s3: S3, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a byte comes, with what the model takes and what there is."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=17))
    with pytest.raises(
        FetchError, match=r"has 0.0 GB left, and the model takes .* larger resources.disk_size"
    ):
        fetch.fetch(model, Instance())
    assert s3.asked == []


def test_a_disk_that_fails_is_not_the_networks_fault(
    s3: S3, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told, and not tried for minutes."""

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(FetchError, match="can't be written: No space left on device"):
        fetch.fetch(model, Instance())


def test_a_part_written_goes_on(
    s3: S3, model: Model, content: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that takes less than it is given loses nothing."""
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[:1000], at))
    fetch.fetch(model, Instance())
    assert got(model) == content


def test_who_comes_second_waits(s3: S3, model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    """The unit and run.sh fetch a model once together."""
    goes_on = threading.Event()

    def trouble(_: int) -> str:
        goes_on.wait(10)
        return ""

    s3.trouble = trouble
    threads = [threading.Thread(target=fetch.fetch, args=(model, Instance())) for _ in range(2)]
    for thread in threads:
        thread.start()
    said = ""
    while "waits for s3://models/llama/8b" not in said:
        said += capsys.readouterr().err
        time.sleep(0.01)
    goes_on.set()
    for thread in threads:
        thread.join()
    assert (s3.listed, len(s3.asked)) == (1, len(set(s3.asked)) + 10)


def test_it_runs_on_the_instances_python(
    s3: S3, model: Model, tmp_path: Path, content: dict[str, bytes]
) -> None:
    """As a script without the package, of what Python 3.9 reads; exit code and last line say how it went."""
    text = Path(fetch.__file__).read_text(encoding="utf-8")
    ast.parse(text, feature_version=(3, 9))
    imported = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
    }
    assert imported <= sys.stdlib_module_names
    script = tmp_path / "opt" / "fetch.py"
    script.parent.mkdir()
    script.write_text(models.script(), encoding="utf-8")
    plan = {"bucket": model.bucket, "prefix": model.prefix, "path": str(model.path)}
    script.with_name("fetch.json").write_text(json.dumps([plan]))
    run: Callable[[], subprocess.CompletedProcess[str]] = lambda: subprocess.run(  # noqa: E731 - twice the same
        [sys.executable, "-I", str(script), "--keep"], capture_output=True, text=True, check=False
    )
    assert run().returncode == 0
    assert got(model) == content
    assert (model.path / fetch.MARK).read_text().endswith("\n\n")
    del s3.objects["llama/8b/empty"]
    script.with_name("fetch.json").write_text(
        json.dumps([{**plan, "digest": pinned(content)}, {**plan, "digest": "0"}])
    )
    failed = run()
    assert failed.returncode == 1
    assert failed.stderr.startswith("spotrelay: s3://models/llama/8b isn't what was deployed")


@pytest.mark.parametrize("path", ["/llama 3/a+b~ü.bin", "/x/y.safetensors", "/"])
@pytest.mark.parametrize("query", [{}, {"list-type": "2", "prefix": "a b/ü+", "continuation-token": "a/b=="}])
def test_a_signature_is_botocores(path: str, query: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 is asked with what AWS's own SDK would send."""
    now = datetime(2026, 11, 28, 3, 4, 5, tzinfo=UTC)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda **_: now.replace(tzinfo=None))
    quoted, asked = quote(path), fetch._query(query)
    url = f"http://b.s3.eu-central-1.amazonaws.com{quoted}"
    request = AWSRequest("GET", f"{url}?{asked}" if asked else url)
    keys = BotocoreCredentials("AKIA", "se/cret", "tok+/=en")
    botocore.auth.S3SigV4Auth(keys, "s3", "eu-central-1").add_auth(request)
    ours = fetch.signed(
        "b.s3.eu-central-1.amazonaws.com",
        quoted,
        asked,
        "eu-central-1",
        fetch.Credentials("AKIA", "se/cret", "tok+/=en"),
        now.utctimetuple(),
        {},
    )
    assert ours["authorization"] == request.headers["Authorization"]
    assert ours["x-amz-date"] == request.headers["X-Amz-Date"]


HOSTS = {
    ("models", "us-east-1", "amazonaws.com"): ("models.s3.us-east-1.amazonaws.com", "/a"),
    ("models", "cn-north-1", "amazonaws.com.cn"): ("models.s3.cn-north-1.amazonaws.com.cn", "/a"),
    ("models", "us-gov-west-1", "amazonaws.com"): ("models.s3.us-gov-west-1.amazonaws.com", "/a"),
    ("my.models", "us-east-1", "amazonaws.com"): ("s3.us-east-1.amazonaws.com", "/my.models/a"),
}


@pytest.mark.parametrize(("where", "expected"), HOSTS.items(), ids=map(str, HOSTS))
def test_a_bucket_is_found_in_each_partition(
    where: tuple[str, str, str], expected: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the domain of its partition, over TLS; by path where the certificate isn't for the name."""
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    name, region, domain = where
    told = {"placement/region": region, "services/domain": domain}
    instance = Instance()
    monkeypatch.setattr(instance, "get", told.__getitem__)
    monkeypatch.setattr(instance, "credentials", lambda: fetch.Credentials("A", "s", "t"))
    bucket = fetch.Bucket(name, instance)
    connection = bucket.connect()
    asked: list[str] = []
    monkeypatch.setattr(connection, "request", lambda _, path, *__, headers: asked.append(path))  # noqa: ARG005
    monkeypatch.setattr(connection, "getresponse", lambda: None)
    bucket.ask(connection, "a")
    assert isinstance(connection, HTTPSConnection)
    assert ((connection.host, asked[0])) == expected

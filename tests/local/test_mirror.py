"""`spotrelay mirror`: a bucket has a repository as it is at one commit, and nothing is overwritten."""

from __future__ import annotations

import random
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner, Result

from spotrelay.file.values.files import Bucket
from spotrelay.operator import mirror
from spotrelay.operator.cli.app import app
from spotrelay.plane.aws.clients import Clients, Session
from tests.hub import Hub, Repo
from tests.local.conftest import Aws

pytestmark = pytest.mark.xdist_group("local")

FIRST, SECOND = "a" * 40, "b" * 40

WEIGHTS = random.Random(7).randbytes(9 * 1024 * 1024)  # noqa: S311 - the same each time


def files(config: bytes = b"{}") -> dict[str, bytes]:
    """Of a commit: one large enough for two parts, and small ones."""
    return {
        "config.json": config,
        "model.safetensors": WEIGHTS,
        "original/weights.pth": b"x" * 2000,
        "sub dir/é.txt": b"words",
    }


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """With a model of two commits, asked with a token."""
    server = Hub({"org/llama": Repo({FIRST: files(), SECOND: files(b'{"new": 1}')})})
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield server
    server.close()


@pytest.fixture
def bucket(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty one."""
    for name, value in {
        "AWS_ENDPOINT_URL": aws.endpoint,
        "AWS_ACCESS_KEY_ID": aws.credentials[0],
        "AWS_SECRET_ACCESS_KEY": aws.credentials[1],
    }.items():
        monkeypatch.setenv(name, value)
    name = f"mirror-{uuid.uuid4().hex[:8]}"
    aws.client("s3").create_bucket(Bucket=name)
    return name


def run(*arguments: str) -> Result:
    """The command."""
    return CliRunner().invoke(app, ["mirror", *arguments, "--region", "us-east-1"])


def there(aws: Aws, bucket: str) -> dict[str, bytes]:
    """What is in the bucket."""
    s3 = aws.client("s3")
    keys = [one["Key"] for one in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]
    return {key: s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}


def below(expected: dict[str, bytes], prefix: str = "llama/") -> dict[str, bytes]:
    """The same by keys."""
    return {f"{prefix}{path}": content for path, content in expected.items()}


def test_a_repository_is_copied_as_it_is_at_one_commit(
    aws: Aws, hub: Hub, bucket: str, tmp_path: Path
) -> None:
    """The token is for the hub alone, and nothing stays on the disk; the lines for the file are told."""
    done = run("hf://org/llama", f"s3://{bucket}/llama/")
    assert done.exit_code == 0, done.output
    assert there(aws, bucket) == below(files(b'{"new": 1}'))
    assert f"org/llama, commit {SECOND}: 4 files, 9.4 MB\n" in done.stdout
    assert done.stdout.endswith(
        f"""\
spotrelay:
  models:
    - source: s3://{bucket}/llama/    # org/llama@{SECOND}
      path: /opt/dlami/nvme/llama
"""
    )
    assert hub.tokens["hub"] == {"Bearer hf_secret"}
    assert hub.tokens["elsewhere"] == {""}
    assert not [path for path in (tmp_path / "cache" / "spotrelay").rglob("*") if path.is_file()]
    head = aws.client("s3").head_object(Bucket=bucket, Key="llama/model.safetensors")
    assert head["ETag"].endswith('-2"')  # its parts
    assert head["Metadata"]["spotrelay-content"].startswith("sha256:")


def test_what_is_there_is_not_copied_again(aws: Aws, hub: Hub, bucket: str) -> None:
    """Not even fetched; what is missing is."""
    assert run(f"hf://org/llama@{FIRST}", f"s3://{bucket}/llama").exit_code == 0
    aws.client("s3").delete_object(Bucket=bucket, Key="llama/config.json")
    hub.sent.clear()
    again = run(f"hf://org/llama@{FIRST}", f"s3://{bucket}/llama")
    assert again.exit_code == 0, again.output
    assert "3 of them are there\n" in again.stdout
    assert hub.sent == [("config.json", "")]
    assert there(aws, bucket) == below(files())


def test_a_file_that_breaks_off_is_whole_in_the_end(aws: Aws, hub: Hub, bucket: str) -> None:
    """It is asked for again, and is whole."""
    hub.cut = 1
    done = run("hf://org/llama", f"s3://{bucket}")
    assert done.exit_code == 0, done.output
    assert there(aws, bucket) == files(b'{"new": 1}')
    assert [path for path, _ in hub.sent].count("model.safetensors") == 2


def test_only_what_is_asked_for_is_copied(aws: Aws, hub: Hub, bucket: str) -> None:
    """By patterns, of what is in directories, too."""
    done = run("hf://org/llama", f"s3://{bucket}", "--exclude", "original/*", "--exclude", "*.json")
    assert done.exit_code == 0, done.output
    assert there(aws, bucket).keys() == {"model.safetensors", "sub dir/é.txt"}
    none = run("hf://org/llama", f"s3://{bucket}/b", "--include", "*.gguf")
    assert (none.exit_code, none.stderr) == (
        1,
        "spotrelay mirror: org/llama has no such file: is it --include or --exclude?\n",
    )


def test_nothing_is_overwritten(aws: Aws, hub: Hub, bucket: str) -> None:
    """Neither another commit's file nor somebody else's; nor does a stranger's become part of it."""
    assert run(f"hf://org/llama@{FIRST}", f"s3://{bucket}/llama").exit_code == 0
    hub.sent.clear()
    other = run(f"hf://org/llama@{SECOND}", f"s3://{bucket}/llama")
    assert other.exit_code == 1
    assert other.stderr.startswith(
        f"spotrelay mirror: s3://{bucket}/llama/config.json isn't that of commit {SECOND[:12]}, or was copied"
    )
    s3 = aws.client("s3")
    s3.put_object(Bucket=bucket, Key="more/adapter.bin", Body=b"")
    stranger = run("hf://org/llama", f"s3://{bucket}/more")
    assert stranger.exit_code == 1
    assert f"s3://{bucket}/more/adapter.bin is no file of org/llama that is to be copied" in stranger.stderr
    s3.put_object(Bucket=bucket, Key="mine/config.json", Body=b'{"new": 1}')
    mine = run("hf://org/llama", f"s3://{bucket}/mine")
    assert "was copied by something else; replicas may be using it: name another prefix" in mine.stderr
    assert hub.sent == []
    assert there(aws, bucket) == {
        **below(files()),
        "more/adapter.bin": b"",
        "mine/config.json": b'{"new": 1}',
    }


@pytest.mark.parametrize("path", ["config.json", "model.safetensors"])
def test_what_is_not_as_the_hub_says_is_not_copied(path: str, aws: Aws, hub: Hub, bucket: str) -> None:
    """A large file by its SHA-256, a small one by git's name for it; the next try fetches it anew."""
    repo, content = hub.repos["org/llama"], files(b'{"new": 1}')[path]
    repo.wrong[path] = content[:-1] + b"?"
    done = run("hf://org/llama", f"s3://{bucket}")
    assert done.exit_code == 1
    assert f"spotrelay mirror: {path} of org/llama came as " in done.stderr
    assert path not in there(aws, bucket)
    repo.wrong.clear()
    assert run("hf://org/llama", f"s3://{bucket}").exit_code == 0
    assert there(aws, bucket)[path] == content


REFUSED = {
    "no such model": ("hf://org/none", "Hugging Face has no org/none, or shows it to nobody without a token"),
    "no such revision": ("hf://org/llama@v7", "org/llama has no revision v7"),
    "a gated one": ("hf://org/gated", "org/gated is for those who have agreed to its terms: agree at https"),
    "a name that leads out": ("hf://org/out", "../x leads out of a directory"),
}


@pytest.mark.parametrize(("source", "words"), REFUSED.values(), ids=REFUSED)
def test_what_the_hub_does_not_give_is_told(source: str, words: str, hub: Hub, bucket: str) -> None:
    """With the remedy."""
    hub.repos["org/gated"] = Repo({FIRST: files()}, error="GatedRepo")
    hub.repos["org/out"] = Repo({FIRST: {"../x": b""}})
    done = run(source, f"s3://{bucket}/x")
    assert done.exit_code == 1
    assert done.stderr.startswith(f"spotrelay mirror: {words}")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("org/llama", "s3://b-1/x"), "expected hf://org/name or hf://org/name@revision, got org/llama"),
        (("hf://llama", "s3://b-1/x"), "expected hf://org/name"),
        (("hf://org/llama", "gs://b-1/x"), "and this is Google's storage"),
        (("hf://org/llama", "s3://b-1/x*"), "expected s3://bucket/prefix, without"),
    ],
)
def test_what_is_no_address_is_told(arguments: tuple[str, str], words: str, hub: Hub) -> None:
    """Nobody is asked."""
    done = run(*arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert hub.tokens["hub"] == set()


def test_a_hub_that_is_down_is_told(hub: Hub, bucket: str) -> None:
    """It can be tried again."""
    hub.close()
    done = run("hf://org/llama", f"s3://{bucket}")
    assert done.exit_code == 1
    assert done.stderr.startswith("spotrelay mirror: Hugging Face doesn't answer for org/llama: ")
    assert "try again, it goes on from there" in done.stderr


def test_a_disk_without_room_is_told(hub: Hub, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a file comes, with another place for it."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1))
    done = run("hf://org/llama", f"s3://{bucket}")
    assert done.exit_code == 1
    assert "and config.json takes 0.0: name another directory with --scratch" in done.stderr
    assert hub.sent == []


def test_a_bucket_that_is_not_there_is_told(hub: Hub, bucket: str) -> None:
    """Before anything is fetched."""
    done = run("hf://org/llama", f"s3://{bucket}-none/x")
    assert done.exit_code == 1
    assert "NoSuchBucket" in done.stderr
    assert hub.sent == []


def test_without_its_library_it_says_how_to_have_it(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only this command needs it."""
    import sys

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    done = run("hf://org/llama", f"s3://{bucket}")
    assert done.exit_code == 1
    assert "huggingface-hub, which asks Hugging Face, isn't installed: a clone has it" in done.stderr


def test_progress_is_told(hub: Hub, bucket: str, tmp_path: Path) -> None:
    """In bytes that are there, from the hub and into the bucket."""
    found = mirror.Hub()
    snapshot = found.snapshot(mirror.Repository("org/llama", FIRST), (), ())
    weights = snapshot.files[1]
    told: list[int] = []
    fetched = found.fetch(snapshot, weights, tmp_path, told.append)
    assert told == sorted(told)
    assert told[-1] == weights.size
    told.clear()
    mirror.upload(Clients(Session("us-east-1")), Bucket(bucket), weights, fetched, told.append)
    assert len(told) > 1
    assert max(told) == weights.size  # parts go side by side: the last to be told may not be the most

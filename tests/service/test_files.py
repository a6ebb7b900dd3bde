"""What is taken from the machine that deploys: which files, and what is said of those that can't be."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from spotrelay.file.compile.check import local_files
from spotrelay.file.fields.file_fields import (
    parse_container,
    parse_file_mounts,
    parse_workdir,
    with_registry,
)
from spotrelay.file.instance import bundle
from spotrelay.file.instance.registry import ecr_registry
from spotrelay.file.service import describe, load
from spotrelay.file.values.files import (
    Bucket,
    FileMount,
    FilesError,
    GitRepository,
    MountMode,
    bucket,
    target,
)
from spotrelay.file.values.parsing import FINDINGS, Finding
from spotrelay.operator.cli import deploying
from stacks.settings import AppSettings
from tests.service.conftest import GOOD, Loader


def names(directory: Path) -> set[str]:
    """What of a directory is taken."""
    return {member.name.removeprefix("w/") for member in bundle.members(directory, "w")} - {"w"}


def files(directory: Path, *paths: str) -> None:
    """Make empty files."""
    for path in paths:
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).touch()


def findings(parse: Callable[..., Any], *given: Any) -> list[tuple[tuple[Any, ...], str]]:
    """What a parser refuses: place and message."""
    with pytest.raises(PydanticCustomError) as caught:
        parse(*given)
    assert caught.value.context
    found: tuple[Finding, ...] = caught.value.context[FINDINGS]
    return [(finding.at, finding.message) for finding in found]


# Git documents that `**` within a name means `*`, and does otherwise for what it compares in two parts.
NOT_AS_DOCUMENTED = re.compile(r"[^/!]\*\*")

PATTERN = (
    st.lists(
        st.sampled_from(["a", "b", "*", "**", "/", "?", "[ab]", "[!a]", ".x", "!", "\\", "#", " "]),
        max_size=6,
    )
    .map("".join)
    .filter(lambda pattern: not NOT_AS_DOCUMENTED.search(pattern))
)


@settings(max_examples=60)
@given(st.lists(PATTERN, max_size=4), st.lists(PATTERN, max_size=2))
@example(["*", "!a/", "!*.x"], [])
@example(["a//"], [])
@example(["/a", "b/**", "**/a.x"], ["!b"])
@example(["a/**/b", "!a/b/b"], ["/a"])
def test_ignore_files_mean_what_they_mean_to_git(root: list[str], below: list[str]) -> None:
    """The same files stay behind that Git leaves out, whatever stands in two .gitignore."""
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        for directory in ("", "a/", "a/b/", "b/", "b/a/a/"):
            files(tree, *(f"{directory}{file}" for file in ("a.x", "b.x", "c", "ab")))
        (tree / ".gitignore").write_text("\n".join(root), encoding="utf-8")
        (tree / "a" / ".gitignore").write_text("\n".join(below), encoding="utf-8")
        git = ["git", "-C", name, "-c", "core.excludesFile=/dev/null"]
        subprocess.run([*git, "init", "-q"], check=True)
        listing = [*git, "ls-files", "-z", "--others", "--exclude-standard"]
        kept = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split("\0")
        ours = {name for name in names(tree) if (tree / name).is_file()}
        assert ours == {name for name in kept if name}


def test_a_skyignore_takes_the_place_of_gitignore(tmp_path: Path) -> None:
    """With it what Git doesn't know may still be sent; history stays behind in any case."""
    files(tmp_path, "model.bin", "secret.txt", "sub/secret.txt", ".git/config", "sub/.git")
    (tmp_path / ".gitignore").write_text("model.bin\n")
    assert names(tmp_path) == {".gitignore", "secret.txt", "sub", "sub/secret.txt"}
    (tmp_path / ".skyignore").write_text("secret.txt\n")
    assert names(tmp_path) == {".gitignore", ".skyignore", "model.bin", "sub"}


def test_a_link_that_leads_out_is_refused_and_one_inside_is_kept(tmp_path: Path) -> None:
    """An instance has nothing that is outside; the message names link, target and remedy."""
    work = tmp_path / "work"
    files(work, "a", "sub/b")
    (work / "sub" / "inside").symlink_to("../a")
    links = {member.name: member.link for member in bundle.members(work, "w")}
    assert links["w/sub/inside"] == "../a"
    for outside in ("../../secret", str(work / "a")):
        (work / "sub" / "out").unlink(missing_ok=True)
        (work / "sub" / "out").symlink_to(outside)
        with pytest.raises(FilesError, match=rf"sub/out leads out of .*, to {outside}.*\.skyignore"):
            list(bundle.members(work, "w"))
    (work / ".skyignore").write_text("out")
    assert "w/sub/out" not in {member.name for member in bundle.members(work, "w")}


def test_what_is_no_file_is_left_out(tmp_path: Path) -> None:
    """A pipe in a work directory neither hangs nor ends the command; one that is named is refused."""
    os.mkfifo(tmp_path / "pipe")
    assert names(tmp_path) == set()
    with pytest.raises(FilesError, match="neither a file nor a directory"):
        bundle.check(tmp_path / "pipe")


def test_too_much_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many files, or too large ones; and what is ignored doesn't count."""
    files(tmp_path, "a", "b", "c")
    bundle.check(tmp_path)
    monkeypatch.setattr(bundle, "MAX_FILES", 3)
    with pytest.raises(FilesError, match=r"more than 3 files or 1 GiB: .*\.skyignore.*file_mounts"):
        bundle.check(tmp_path)
    (tmp_path / ".skyignore").write_text("a\nb\n")
    bundle.check(tmp_path)
    with (tmp_path / "c").open("wb") as large:
        large.truncate(bundle.MAX_BYTES + 1)
    with pytest.raises(FilesError, match="1 GiB"):
        bundle.check(tmp_path)


def test_a_work_directory_is_beside_the_file_or_where_the_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of both that has it; `~` is the home directory, and a full path stays as it is."""
    own, here = tmp_path / "own", tmp_path / "here"
    monkeypatch.setenv("HOME", str(tmp_path))
    files(tmp_path, "own/code/a", "here/code/a", "here/only/a")
    assert parse_workdir(".", (own, here)) == own
    assert parse_workdir("./code/", (own, here)) == own / "code"
    assert parse_workdir("only", (own, here)) == here / "only"
    assert parse_workdir("~/here", (own,)) == parse_workdir(str(here), (own,)) == here
    assert parse_workdir(None, (own,)) is None
    repository = {"url": "https://github.com/a/b", "ref": 1234567}
    assert parse_workdir(repository, (own,)) == GitRepository("https://github.com/a/b", "1234567")
    ((_, message),) = findings(parse_workdir, "nowhere", (own, here))
    assert message == (
        f"there is no {own}/nowhere, beside the service file, and no {here}/nowhere, where the command runs"
    )


def test_what_is_taken_is_said_and_is_the_same_wherever_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `validate`, and by `up`, whose CDK runs elsewhere; a notice says what SkyServe would take."""
    files(tmp_path, "own/code/a", "here/code/a", "here/data")
    (tmp_path / "own" / "chat.yaml").write_text(GOOD + "workdir: code\nfile_mounts: {/data: data}\n")
    monkeypatch.chdir(tmp_path / "here")
    chat = load("../own/chat.yaml")
    taken = [f"workdir: {tmp_path}/own/code", f"/data: {tmp_path}/here/data"]
    assert list(local_files(chat)) == list(describe(chat).files) == taken
    (notice,) = (notice for notice in chat.notices if notice.field == "workdir")
    assert f"SkyServe would take {tmp_path}/here/code, where the command runs" in notice.message
    said = deploying.settings({}, [chat])
    monkeypatch.chdir(tmp_path)
    found = AppSettings.from_context(said.get)
    assert list(local_files(load(found.services[0], found.inputs))) == taken


@pytest.mark.parametrize(
    ("value", "at", "said"),
    [
        ("nowhere", (), "there is no {here}/nowhere"),
        ("a", (), "{here}/a is a file: name the directory that it is in"),
        ("https://github.com/a/b", (), "a repository is written {{url: https://…, ref: main}}"),
        ({"url": "git@github.com:a/b"}, ("url",), "expected an https:// address"),
        ({"url": "https://github.com/a/b", "ref": "a b"}, ("ref",), "expected a branch, tag or commit"),
        ({"url": "https://github.com/a/b", "ref": "--upload-pack=x"}, ("ref",), "expected a branch"),
        ({"path": "x"}, ("path",), "unknown field: there are url, ref"),
        ({"ref": "main"}, ("url",), "expected an https:// address, got nothing"),
    ],
)
def test_a_work_directory_that_cannot_be_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: Any, at: tuple[Any, ...], said: str
) -> None:
    """Each with its place and what to do instead."""
    monkeypatch.chdir(tmp_path)
    files(tmp_path, "a")
    ((place, message),) = findings(parse_workdir, value, (tmp_path,))
    assert place == at
    assert said.format(here=tmp_path) in message


def test_file_mounts_mean_what_they_mean_in_skyserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths and s3:// are copied, fields mount unless they say else; a relative target is in the workdir."""
    monkeypatch.chdir(tmp_path)
    files(tmp_path, "key", "data/a")
    assert parse_file_mounts(
        {
            "~/.ssh/key": "key",
            "data": "./data/",
            "/models/": "s3://models/llama/8b/",
            "/all": {"source": "s3://models"},
            "/cached": {"name": "other", "store": "S3", "mode": "mount_cached", "persistent": True},
            "/copied": {"name": "other", "source": "data", "mode": "COPY"},
        },
        (tmp_path,),
    ) == (
        FileMount("~/.ssh/key", tmp_path / "key"),
        FileMount("~/sky_workdir/data", tmp_path / "data"),
        FileMount("/models", Bucket("models", "llama/8b")),
        FileMount("/all", Bucket("models"), MountMode.MOUNT),
        FileMount("/cached", Bucket("other"), MountMode.MOUNT_CACHED),
        FileMount("/copied", tmp_path / "data"),
    )


def test_a_mount_is_read_only_unless_the_file_says_otherwise(service: Loader) -> None:
    """Its target is named as in `file_mounts`, or in another way that means the same."""
    chat = service(
        GOOD
        + "file_mounts: {/a: {source: s3://aaa}, /b/: {source: s3://bbb}, results: {source: s3://ccc}, /d: s3://ddd}\n"
        "spotrelay: {writable_mounts: [/b, results/]}\n"
    )
    assert {mount.target: mount.is_writable for mount in chat.file_mounts} == {
        "/a": False,
        "/b": True,
        "~/sky_workdir/results": True,
        "/d": False,
    }


@pytest.mark.parametrize(
    ("entry", "at", "said"),
    [
        ("nowhere", (), "there is no {here}/nowhere"),
        ("gs://bucket/x", (), "copies from S3 only, and this is Google's storage"),
        ("r2://bucket", (), "Cloudflare's R2"),
        ("file:///x", (), "this is file://"),
        ("https://example.com/x", (), "fetch this with curl in `setup`"),
        ("s3://UPPER/x", (), "expected s3://bucket/prefix"),
        (3, (), "expected a path, s3://bucket/prefix, or fields (source, mode …), got 3"),
        ({"source": "gs://x"}, ("source",), "Google's storage"),
        ({"source": ["a", "b"]}, ("source",), "expected a path or s3://bucket/prefix, got a list"),
        ({"source": "key"}, ("source",), "can only be copied"),
        ({"source": "key", "mode": "MOUNT"}, ("mode",), "say `mode: COPY`"),
        ({"name": "data", "mode": "LINK"}, ("mode",), "expected COPY, MOUNT, MOUNT_CACHED, got 'LINK'"),
        ({"name": "data", "store": "gcs"}, ("store",), "SpotRelay has S3 only, got 'gcs'"),
        ({"name": "data", "persistent": False}, ("persistent",), "deletes none: remove this"),
        ({"name": "a"}, ("name",), "the name of a bucket that exists"),
        ({"sourc": "a"}, ("sourc",), "unknown field: there are name, source"),
    ],
)
def test_a_file_mount_that_cannot_be_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: Any, at: tuple[Any, ...], said: str
) -> None:
    """Each with its place and what to do instead."""
    monkeypatch.chdir(tmp_path)
    files(tmp_path, "key")
    ((place, message),) = findings(parse_file_mounts, {"/data": entry}, (tmp_path,))
    assert place == ("/data", *at)
    assert said.format(here=tmp_path) in message


def test_every_file_mount_is_told_in_one_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is wrong at once, two entries with one target included."""
    monkeypatch.chdir(tmp_path)
    files(tmp_path, "key")
    found = findings(parse_file_mounts, {"/a": "x", "/": "key", "/b": "key", "/b/": "key"}, (tmp_path,))
    assert [place for place, _ in found] == [("/a",), ("/",), ("/b/",)]


@pytest.mark.parametrize("text", ["/", "~", "~/", "", "~/sky_workdir", ".", "a/../b", "/a\nb", "/a:b"])
def test_a_target_that_would_hide_a_whole_system_is_refused(text: str) -> None:
    """Neither the root, nor the home directory, nor what leads out of anything."""
    with pytest.raises(FilesError):
        target(text)


@given(st.text(max_size=40).map(lambda text: f"s3://{text}"))
def test_no_bucket_has_anything_that_bash_or_iam_would_read(url: str) -> None:
    """A bucket's name is plain, and a prefix has no wildcard of IAM's."""
    try:
        found = bucket(url)
    except FilesError:
        return
    assert found.name.replace("-", "").replace(".", "").isalnum()
    assert not set(found.prefix) & set("*?$\n")


def test_an_image_in_docker_is_named_as_docker_takes_it() -> None:
    """Registry, port, tag and digest; nothing that bash or Docker would take for an option."""
    digest = "a@sha256:" + "0" * 64
    for name in ("ubuntu", "vllm/vllm-openai:v0.11.0", "localhost:5000/a/b:c", digest):
        assert parse_container(f"docker:{name}") == name
    for name in ("", "--privileged", "a b", "a;b", "a:b:c", "$(x)"):
        ((at, message),) = findings(parse_container, f"docker:{name}")
        assert at == ()
        assert "expected docker:NAME" in message


def test_a_registry_comes_before_the_image_once() -> None:
    """SKYPILOT_DOCKER_SERVER completes a name that doesn't begin with it."""
    server = {"SKYPILOT_DOCKER_SERVER": "ghcr.io"}
    assert with_registry("me/x", server) == with_registry("ghcr.io/me/x", server) == "ghcr.io/me/x"
    assert with_registry("me/x", {}) == "me/x"


def test_amazons_registry_is_known_by_its_name() -> None:
    """Account, region and repository come from the image's name; no other host is taken for it."""
    found = ecr_registry("123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn/a/b@sha256:0")
    assert found
    assert (found.account, found.region, found.name) == ("123456789012", "cn-north-1", "a/b")
    for image in ("123456789012.dkr.ecr.us-east-1.amazonaws.com.evil.com/a", "public.ecr.aws/a/b", "ubuntu"):
        assert ecr_registry(image) is None

"""Packs: what is packed is what an instance gets, whole or not at all; and a start never depends on one."""

from __future__ import annotations

import ast
import gzip
import json
import os
import random
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spotrelay.file.instance import (
    bundle,
    engine,
    fetch,
    fitting,
    models,
    pack,
    packing,
    packs,
    unpack,
    userdata,
)
from spotrelay.file.instance.fetch import FetchError, Instance
from spotrelay.file.instance.pack import PackError
from spotrelay.file.service import Service, load, pinned, user_data
from spotrelay.file.values.files import Pack

from .conftest import GOOD, Loader, Refuser
from .s3 import BUCKET, S3
from .test_userdata import config, files

ROOT = Path(__file__).parents[2]
SHARD = 64 * 1024
IMAGE = "ami-1"
PREFIX = "spotrelay/packs/chat/0"

PACKED = f"{GOOD}setup: make-it\nspotrelay: {{pack: {{paths: [/opt/vllm, /root/.local/share/uv]}}}}\n"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """An empty bucket, and small shards."""
    monkeypatch.setattr(fetch, "STALL_S", 0.3)
    monkeypatch.setattr(pack, "SHARD_BYTES", SHARD)
    monkeypatch.setattr(pack, "SYSTEM", ())
    server = S3({})
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.url)
    yield server
    server.close()


@pytest.fixture
def trees(tmp_path: Path) -> list[Path]:
    """Two directories like environments: links of both kinds, odd names, modes, a file of many shards."""
    rng = random.Random(7)  # noqa: S311 - the same each time
    first, second = tmp_path / "opt" / "vllm", tmp_path / "root" / "uv"
    for path in (first / "lib" / "deep", first / "empty", second):
        path.mkdir(parents=True)
    (first / "lib" / "large.so").write_bytes(rng.randbytes(3 * SHARD + 17))
    (first / "lib" / "large.so").chmod(0o755)
    for number in range(40):
        (first / "lib" / "deep" / f"{number}.py").write_bytes(rng.randbytes(5000))
    (first / "-an odd\nname é").write_bytes(b"odd")
    (first / "none").write_bytes(b"")
    (first / "python").symlink_to(second / "python3")
    (first / "lib64").symlink_to("lib")
    (second / "python3").write_bytes(b"#!")
    (second / "python3").chmod(0o4755)
    os.link(first / "lib" / "deep" / "1.py", first / "twin.py")
    os.utime(first / "lib" / "large.so", (1e9, 1e9))
    os.utime(first / "lib", (1.1e9, 1.1e9))
    (first / "empty").chmod(0o700)
    return [first, second]


def shown(root: Path) -> dict[str, tuple[object, ...]]:
    """All that a program could see of a tree."""
    found: dict[str, tuple[object, ...]] = {}
    inodes: dict[int, str] = {}
    for path in sorted([root, *root.rglob("*")]):
        status, name = path.lstat(), str(path.relative_to(root))
        what: object = None
        if path.is_symlink():
            what = path.readlink()
        elif path.is_file():
            what = path.read_bytes(), inodes.setdefault(status.st_ino, name)
        found[name] = status.st_mode, status.st_uid, status.st_gid, int(status.st_mtime), what
    return found


def packed(trees: list[Path], program: str = "gzip") -> dict[str, Any]:
    """Pack them; the plan of an instance that shall have them."""
    plan = {"bucket": BUCKET, "prefix": PREFIX, "paths": [str(path) for path in trees]}
    put = pack.uploading(plan, Instance())
    return {**plan, "manifest": pack.pack(plan["paths"], IMAGE, 9e9, program, put)}


def taken_away(trees: list[Path]) -> None:
    """As on another instance: nothing there, or what its image has."""
    for tree in trees:
        tree.rename(tree.with_name(f"{tree.name}-kept"))
    trees[0].mkdir()
    (trees[0] / "of the image").touch()


PASSING: dict[str, Callable[[int], str]] = {
    "nothing": lambda _: "",
    "S3 is asked too much": lambda number: "503" if number <= 3 else "",
    "every third connection breaks": lambda number: "cut" if number % 3 == 0 else "",
}


@pytest.mark.parametrize("trouble", PASSING.values(), ids=PASSING)
@pytest.mark.parametrize("program", ["gzip", "zstd"])
def test_what_was_packed_is_there(
    trouble: Callable[[int], str], program: str, s3: S3, trees: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Contents, modes, owners, times, both kinds of links, whatever passes on the way; nothing beside it."""
    was = [shown(tree) for tree in trees]
    plan = packed(trees, program)
    taken_away(trees)
    s3.trouble = trouble
    unpack.unpack(plan, Instance())
    assert [shown(tree) for tree in trees] == was
    beside = {path.name for tree in trees for path in tree.parent.iterdir()}
    assert beside == {"vllm", "vllm-kept", "uv", "uv-kept"}
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"spotrelay: {trees[0]}, {trees[1]} from the pack: ")
    assert max(len(body) for key, body in s3.objects.items() if not key.endswith(".json")) < 2 * SHARD


def other_byte(content: bytes) -> bytes:
    """As long, and not the same."""
    return content[:-1] + bytes([content[-1] ^ 1])


def manifest_of(plan: dict[str, Any]) -> str:
    """Its key."""
    return f"{PREFIX}/{plan['manifest']}.json"


def one_shard(s3: S3) -> str:
    """The key of a shard."""
    return min(key for key in s3.objects if not key.endswith(".json"))


def changed_shard(s3: S3, _: dict[str, Any]) -> None:
    """In one bit."""
    key = one_shard(s3)
    s3.objects[key] = other_byte(s3.objects[key])


def lost_shard(s3: S3, _: dict[str, Any]) -> None:
    """Somebody deleted it."""
    del s3.objects[one_shard(s3)]


def changed_manifest(s3: S3, plan: dict[str, Any]) -> None:
    """Though it says the same."""
    s3.objects[manifest_of(plan)] += b" "


def lost_manifest(s3: S3, plan: dict[str, Any]) -> None:
    """And the pack with it."""
    del s3.objects[manifest_of(plan)]


def other_paths(_: S3, plan: dict[str, Any]) -> None:
    """Which the deployed version has."""
    plan["paths"] = [f"{path}-other" for path in plan["paths"]]


LOST = {
    "a shard was changed": (changed_shard, "isn't what was packed: its SHA-256 differs"),
    "a shard is gone": (lost_shard, "is gone, or may not be read: HTTP 404"),
    "the manifest was changed": (changed_manifest, "isn't what was packed: its SHA-256 differs"),
    "the pack is gone": (lost_manifest, "is gone, or may not be read: HTTP 404"),
    "it is a pack of other paths": (other_paths, "it has .*, and not"),
}


@pytest.mark.parametrize(("happens", "words"), LOST.values(), ids=LOST)
def test_a_pack_comes_whole_or_not_at_all(
    happens: Callable[[S3, dict[str, Any]], None], words: str, s3: S3, trees: list[Path]
) -> None:
    """What was there stays, and nothing is left beside it."""
    plan = packed(trees)
    taken_away(trees)
    happens(s3, plan)
    with pytest.raises(FetchError, match=words):
        unpack.unpack(plan, Instance())
    assert [path.name for path in trees[0].iterdir()] == ["of the image"]
    assert not trees[1].exists()
    assert not [path for tree in trees for path in tree.parent.iterdir() if "unpacking" in path.name]


def test_a_pack_that_takes_too_long_is_given_up(
    s3: S3, trees: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set-up begins then, on a disk that nothing is left on."""
    plan = packed(trees)
    taken_away(trees)
    monkeypatch.setattr(unpack, "PATIENCE_S", -1.0)
    with pytest.raises(FetchError, match="it takes longer than to do without"):
        unpack.unpack(plan, Instance())
    assert [path.name for path in trees[0].iterdir()] == ["of the image"]
    monkeypatch.setattr(unpack, "PATIENCE_S", 2.0)
    manifests = len(s3.asked) + 1
    s3.trouble = lambda number: "503" if number > manifests else ""
    began_s = time.monotonic()
    with pytest.raises(FetchError, match=r"it takes longer than to do|tried \d+ times: S3 says HTTP 503"):
        unpack.unpack(plan, Instance())
    assert time.monotonic() - began_s < fetch.PATIENCE_S / 2
    assert not [path for tree in trees for path in tree.parent.iterdir() if "unpacking" in path.name]


def test_a_pack_may_take_as_long_as_set_up(
    s3: S3, trees: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large one on a slow disk is still sooner there than what it stands for."""
    plan = {"bucket": BUCKET, "prefix": PREFIX, "paths": [str(tree) for tree in trees]}
    an_hour_ago = time.time() - 3600
    manifest = pack.pack(plan["paths"], IMAGE, an_hour_ago, "gzip", pack.uploading(plan, Instance()))
    monkeypatch.setattr(unpack, "PATIENCE_S", -1.0)
    unpack.unpack({**plan, "manifest": manifest}, Instance())
    assert s3.asked


def test_a_pack_of_another_image_is_not_used(s3: S3, trees: list[Path]) -> None:
    """Its programs are built against libraries that this one may not have."""
    plan = packed(trees)
    put = pack.uploading(plan, Instance())
    other = {**plan, "manifest": pack.pack(plan["paths"], "ami-2", 9e9, "gzip", put)}
    with pytest.raises(FetchError, match="it was made on ami-2, and this is ami-1"):
        unpack.unpack(other, Instance())
    assert s3.objects


def test_a_pack_of_another_version_is_not_used(
    s3: S3, trees: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of SpotRelay's: what its manifest says may mean something else."""
    monkeypatch.setattr(pack, "FORMAT", unpack.FORMAT + 1)
    with pytest.raises(FetchError, match="another version of SpotRelay made it"):
        unpack.unpack(packed(trees), Instance())
    assert s3.objects


def test_what_set_up_made_elsewhere_is_told(s3: S3, trees: list[Path]) -> None:
    """A link to it would lead nowhere on another instance: no pack is made."""
    plan = {"bucket": BUCKET, "prefix": PREFIX, "paths": [str(trees[0])]}
    put = pack.uploading(plan, Instance())
    with pytest.raises(
        PackError, match=r"vllm/python leads to .*/uv/python3, which set-up has made .*add its"
    ):
        pack.pack([str(trees[0])], IMAGE, 0, "gzip", put)
    assert not s3.objects
    pack.pack([str(trees[0])], IMAGE, 9e9, "gzip", put)  # the image has it


def test_what_set_up_installed_elsewhere_is_told(
    s3: S3, trees: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica from the pack would lack it, and could only fail: no pack is made."""
    paths = [str(tree) for tree in trees]
    put = pack.uploading({"bucket": BUCKET, "prefix": PREFIX}, Instance())
    monkeypatch.setattr(pack, "SYSTEM", (str(tmp_path),))
    pack.pack(paths, IMAGE, 0, "gzip", put)  # below its own paths
    s3.objects.clear()
    (tmp_path / "usr" / "__pycache__").mkdir(parents=True)
    (tmp_path / "usr" / "__pycache__" / "x.pyc").touch()
    pack.pack(paths, IMAGE, 0, "gzip", put)  # Python's own
    s3.objects.clear()
    monkeypatch.setattr(pack, "SYSTEM", tuple(paths))
    pack.pack(paths, IMAGE, 0, "gzip", put)  # its own, again
    s3.objects.clear()
    monkeypatch.setattr(pack, "SYSTEM", (str(tmp_path),))
    (tmp_path / "usr" / "tool").touch()
    with pytest.raises(
        PackError, match=r"set-up has made .*/usr/tool, which the pack wouldn't have: add its"
    ):
        pack.pack(paths, IMAGE, 0, "gzip", put)
    assert not s3.objects
    pack.pack(paths, IMAGE, 9e9, "gzip", put)  # the image has it


def test_a_directory_that_set_up_did_not_make_is_told(s3: S3, tmp_path: Path) -> None:
    """With the field that names it."""
    with pytest.raises(
        PackError, match=r"has made no directory .*/typo: is it the right one in spotrelay\.pack"
    ):
        pack.pack([str(tmp_path / "typo")], IMAGE, 0, "gzip", lambda *_: None)
    assert not s3.objects


def test_a_disk_without_room_is_told(s3: S3, trees: list[Path]) -> None:
    """Before anything is fetched."""
    content = json.dumps({"compression": "gzip", "large": [], "unpacked": 1 << 60, "paths": [], "shards": []})
    with pytest.raises(FetchError, match=r"GB left, and the pack takes 1152921504\.6"):
        unpack.Stage([str(tree) for tree in trees], json.loads(content)).begin()
    assert not s3.asked


def imported(text: str) -> set[str]:
    """The modules that a script imports."""
    nodes = [*ast.walk(ast.parse(text, feature_version=(3, 9)))]
    return {alias.name.partition(".")[0] for n in nodes if isinstance(n, ast.Import) for alias in n.names} | {
        (n.module or "").partition(".")[0] for n in nodes if isinstance(n, ast.ImportFrom)
    }


def test_both_run_on_the_instances_python(s3: S3, trees: list[Path], tmp_path: Path) -> None:
    """As scripts beside the fetcher, without the package; what they say is in the journal."""
    was = [shown(tree) for tree in trees]
    opt = tmp_path / "opt" / "spotrelay"
    opt.mkdir()
    (opt / "fetch.py").write_text(models.script())
    (opt / "unpack.py").write_text(packs.script())
    text = models.beside_fetch(Path(pack.__file__).read_text(encoding="utf-8"))
    # On a machine that runs tests somebody may just install something.
    (opt / "pack.py").write_text(text.replace('"/usr", "/opt"', '"/nowhere"'))
    for name in ("unpack.py", "pack.py"):
        assert imported((opt / name).read_text()) <= {*sys.stdlib_module_names, "fetch"}
    plan = {"bucket": BUCKET, "prefix": PREFIX, "paths": [str(tree) for tree in trees], "manifest": None}
    (opt / "pack.json").write_text(json.dumps(plan))
    (opt / pack.BEGAN).write_text("gzip\n")
    run: Callable[[str], subprocess.CompletedProcess[str]] = lambda name: subprocess.run(  # noqa: E731 - four times
        [sys.executable, "-I", str(opt / name)], capture_output=True, text=True, check=False
    )
    # Where none is expected nothing is said.
    assert (run("unpack.py").returncode, run("unpack.py").stderr) == (1, "")
    os.utime(opt / pack.BEGAN, (9e9, 9e9))
    made = run("pack.py")
    assert made.returncode == 0, made.stderr
    (key,) = (key for key in s3.objects if key.endswith(".json"))
    (opt / "pack.json").write_text(json.dumps({**plan, "manifest": Path(key).stem}))
    taken_away(trees)
    done = run("unpack.py")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1), done.stderr
    assert [shown(tree) for tree in trees] == was
    s3.objects.clear()
    failed = run("unpack.py")
    assert failed.returncode == 1
    assert failed.stderr.startswith("spotrelay: no pack is used, so set-up runs: ")


def set_up(service: Service, directory: Path, code: int) -> subprocess.CompletedProcess[str]:
    """Run setup.sh where having the pack ends with this code."""
    found = files(user_data(service, "us-east-1"))
    (directory / "setup.sh").write_text(found["setup.sh"])
    (directory / "pack.sh").write_text(f"exit {code}")
    return subprocess.run(["bash", str(directory / "setup.sh")], capture_output=True, text=True, check=False)


def test_set_up_runs_where_no_pack_is_had(service: Loader, tmp_path: Path) -> None:
    """In bash: after a failure of any kind the file's script is run, after a success it isn't."""
    chat = replace(service(PACKED), setup="echo made", scripts_in_bundle=False)
    assert [set_up(chat, tmp_path, code).stdout for code in (0, 1, 124, 137)] == ["", *["made\n"] * 3]
    assert [set_up(chat, tmp_path, code).returncode for code in (0, 1)] == [0, 0]


def test_an_instance_knows_its_pack(service: Loader) -> None:
    """The one that was chosen at the deployment, by its hash; without, set-up runs."""
    chat = pinned(service(PACKED), {}, {}, {"chat": "1" * 64, "other": "2" * 64})
    store = packs.Store("bucket", "f" * 16)
    found = files(user_data(chat, "us-east-1", store=store))
    assert json.loads(found["pack.json"]) == {
        "bucket": "bucket",
        "prefix": f"spotrelay/packs/chat/{'f' * 16}",
        "paths": ["/opt/vllm", "/root/.local/share/uv"],
        "manifest": "1" * 64,
    }
    none = files(user_data(pinned(chat, {}, {}, {}), "us-east-1", store=store))
    assert json.loads(none["pack.json"])["manifest"] is None
    # Another pack is another version; what set-up is stays the same, and so does its mark.
    assert none["setup.sh"] == found["setup.sh"]


def test_what_unpacks_comes_with_the_service_s_files(service: Loader, tmp_path: Path) -> None:
    """It is too long for most user data; where that has room, it is there."""
    chat = service(PACKED)
    assert {"fetch.py", "unpack.py"}.isdisjoint(files(user_data(chat, "us-east-1")))
    bundle.write(chat, tmp_path / "files.tar.gz")
    with tarfile.open(tmp_path / "files.tar.gz") as archive:
        packed = {name: archive.extractfile(name) for name in ("fetch.py", "unpack.py")}
        shipped = {name: file.read().decode() for name, file in packed.items() if file}
    assert shipped == {"fetch.py": models.script(), "unpack.py": packs.script()}
    found = files(user_data(replace(chat, scripts_in_bundle=False), "us-east-1"))
    assert shipped.items() <= found.items()


def test_a_service_without_a_pack_pays_nothing(service: Loader) -> None:
    """No script, no word."""
    text = user_data(service(f"{GOOD}setup: make-it\n"), "us-east-1")
    assert "pack" not in text.replace("package", "")
    assert "fetch" not in text


def fit(service: Service) -> str:
    """Of what set-up its packs are."""
    return fitting.fit(service, userdata.environment(service))


def test_a_pack_fits_what_set_up_depends_on(service: Loader, tmp_path: Path) -> None:
    """Scripts, variables, files, image and paths; not `run`, nor a secret that was renewed."""
    secret = "secrets: {HF_TOKEN: /chat/hf}\n"
    chat = service(PACKED + secret)
    work = tmp_path / "work"
    work.mkdir()
    (work / "requirements.txt").write_text("vllm==1")
    with_files = replace(chat, workdir=work)
    first = fit(with_files)
    others = [
        fit(chat),
        fit(replace(chat, setup="make-more")),
        fit(replace(chat, envs={"VERSION": "2"})),
        fit(replace(chat, image=replace(chat.image, reference="ami-0123456789abcdef0"))),
        fit(replace(chat, image=replace(chat.image, reference="ami-0123456789abcdef1"))),
        fit(replace(chat, pack=Pack(("/opt/vllm",)))),
        first,
    ]
    assert len({*others}) == len(others)
    same = [
        replace(chat, run="python3 serve.py --other"),
        pinned(chat, {"/chat/hf": 3}, {}, {"chat": "1" * 64}),
        replace(chat, replicas=9),
    ]
    assert {fit(one) for one in same} == {fit(chat)}
    assert fit(replace(with_files, scripts_in_bundle=True, run="other")) == first
    (work / "requirements.txt").write_text("vllm==2")
    assert fit(with_files) != first


BAD = {
    "no paths": ("pack: {}", "spotrelay.pack.paths: "),
    "an empty list": ("pack: {paths: []}", "spotrelay.pack.paths: expected a list of at most 10 directories"),
    "a relative one": (
        "pack: {paths: [vllm]}",
        "spotrelay.pack.paths[0]: expected an absolute path such as /opt/vllm, got 'vllm'",
    ),
    "the whole disk": ("pack: {paths: [/]}", "spotrelay.pack.paths[0]: would hide the whole directory"),
    "the system's": (
        "pack: {paths: [/usr/local/lib/python3]}",
        "/usr is the system's, and an instance has it",
    ),
    "configuration": ("pack: {paths: [/etc]}", "/etc is the system's"),
    "all of a home directory": ("pack: {paths: [/root]}", "has more than setup's: name a directory below it"),
    "all that is installed": ("pack: {paths: [/opt]}", "has more than setup's"),
    "SpotRelay's own": ("pack: {paths: [/opt/spotrelay/x]}", "/opt/spotrelay would lie one within the other"),
    "the instance store": ("pack: {paths: [/opt/dlami/nvme/vllm]}", "/opt/dlami/nvme would lie one within"),
    "the work directory": ("pack: {paths: [/root/sky_workdir]}", "would lie one within the other"),
    "one within another": (
        "pack: {paths: [/opt/a, /opt/a/b]}",
        "spotrelay.pack.paths[1]: /opt/a/b and /opt/a ",
    ),
    "a model's": (
        "models: [{source: s3://b-1/x, path: /opt/m}], pack: {paths: [/opt/m]}",
        "spotrelay.pack.paths[0]: /opt/m and /opt/m would lie",
    ),
    "a role that is the user's": (
        "instance_profile: arn:aws:iam::123456789012:instance-profile/x, pack: {paths: [/opt/a]}",
        "who packs has a role of its own",
    ),
}


@pytest.mark.parametrize(("fields", "words"), BAD.values(), ids=BAD)
def test_what_no_pack_may_hold_is_told(fields: str, words: str, problems: Refuser) -> None:
    """With the place, and what to do instead."""
    said = [str(one) for one in problems(f"{GOOD}setup: make-it\nspotrelay: {{{fields}}}\n")]
    assert any(words in one for one in said), said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PACKED.replace("setup: make-it\n", ""), "there is no setup: remove this"),
        (
            PACKED.replace("  ports", "  image_id: docker:vllm/vllm-openai:v0.11.0\n  ports"),
            "setup runs in the container, whose files no pack has",
        ),
        (PACKED + "file_mounts: {~/.local: 's3://bucket'}\n", "/root/.local/share/uv and ~/.local would lie"),
    ],
)
def test_a_pack_that_makes_no_sense_is_told(text: str, words: str, problems: Refuser) -> None:
    """Against the rest of the file."""
    said = [str(one) for one in problems(text)]
    assert any(words in one for one in said), said


def test_who_packs_runs_set_up_and_ends(service: Loader) -> None:
    """Once, without serving; it powers itself off, afterwards and after two hours in any case."""
    chat = service(PACKED.replace("{pack:", "{models: [{source: 's3://b-1/x', path: /m}], pack:"))
    text = gzip.decompress(packing.user_data(user_data(chat, "us-east-1"))).decode()
    found, runcmd = files(text), config(text)["runcmd"]
    assert {"once.sh", "crash.py", "fetch.json", "spotrelay-models.service"}.isdisjoint(found)
    assert found["setup.sh"] == files(user_data(chat, "us-east-1"))["setup.sh"]
    assert "ExecStopPost=/bin/bash /opt/spotrelay/crash.sh\n" in found["spotrelay.service"]
    assert "systemctl poweroff\n" in found["crash.sh"]
    assert "Restart" not in found["spotrelay.service"]
    assert ["systemd-run", "--on-active=7200", "systemctl", "poweroff"] in runcmd
    assert "enable" not in str(runcmd)
    assert "serve.py" not in found["run.sh"]


def test_who_packs_does_it_in_order(service: Loader, tmp_path: Path) -> None:
    """In bash: set-up from nothing although a pack is known, then the packing; nothing after a failure."""
    chat = replace(pinned(service(PACKED), {}, {}, {"chat": "1" * 64}), scripts_in_bundle=False)
    found = files(gzip.decompress(packing.user_data(user_data(chat, "us-east-1"))).decode())
    for name in ("run.sh", "setup.sh", "pack.sh"):
        (tmp_path / name).write_text(found[name].replace("make-it", '[ ! -e "$FAIL" ] && echo made'))
    (tmp_path / "pack.py").write_text("print('packed')")
    run: Callable[[str], subprocess.CompletedProcess[str]] = lambda fail: subprocess.run(  # noqa: E731 - twice
        ["bash", str(tmp_path / "run.sh")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "FAIL": fail},
    )
    assert run("/nowhere").stdout == "made\npacked\n"
    assert (tmp_path / pack.BEGAN).read_text() in ("gzip\n", "zstd\n")
    failed = run("/")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr == "spotrelay: nothing is packed: set-up has failed\n"


def test_the_largest_example_has_room_for_a_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    """On replicas, and on the instance that packs."""
    monkeypatch.chdir(ROOT)
    llama3 = load(ROOT / "services" / "llama3.yaml")
    assert llama3.pack
    assert llama3.readiness_probe
    assert userdata.size(llama3) <= userdata.MAX_BYTES
    how = packing.Warm(llama3.readiness_probe, 1200, engine.families(llama3.instance_types))
    assert len(packing.user_data(user_data(llama3, "us-east-1"), how)) <= userdata.MAX_BYTES

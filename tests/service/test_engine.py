"""Engine caches: made by two starts, had on the same accelerator alone, and no start ever depends on one."""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spotrelay.file.catalog import all_types
from spotrelay.file.instance import engine, fetch, models, pack, packing, packs, unit, unpack, userdata, warm
from spotrelay.file.instance.fetch import FetchError, Instance
from spotrelay.file.instance.packing import Warm
from spotrelay.file.instance.userdata import LONGEST_REGION, user_data
from spotrelay.file.service import Service, pinned
from spotrelay.plane.core.spec import ReadinessProbe

from .conftest import GOOD, Loader, Refuser
from .s3 import BUCKET, S3
from .test_packs import fit
from .test_userdata import files

PREFIX = "spotrelay/packs/chat/0"
PLAN = {"bucket": BUCKET, "prefix": PREFIX, "paths": ["/opt/vllm"]}
PACK = "spotrelay: {pack: {paths: [/opt/vllm]}}\n"
WARM = f"{GOOD}setup: make-it\n{PACK.replace(']}', '], warm: true}')}"

SERVE = """\
here=$(dirname "$0")
echo "start $SPOTRELAY_SLOT" >> "$here/starts"
if [ ! -e "$here/engine/vllm/kernel" ]; then
  mkdir -p "$here/engine/vllm"
  sleep 0.5
  echo compiled > "$here/engine/vllm/kernel"
fi
python3 -m http.server --bind "$HOST" "$PORT" --directory "$here" &
wait
"""


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """An empty bucket, and the metadata of a g6.2xlarge."""
    monkeypatch.setattr(fetch, "STALL_S", 0.3)
    server = S3({})
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.url)
    yield server
    server.close()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An instance's directory, with a service whose first start takes longer."""
    monkeypatch.setattr(warm, "LOOK_S", 0.02)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PORT", str(free.getsockname()[1]))
    monkeypatch.setenv("HOST", "127.0.0.1")
    (tmp_path / "serve.sh").write_text(SERVE)
    (tmp_path / "stop.sh").write_text(unit.STOP)
    (tmp_path / pack.BEGAN).write_text("gzip\n")
    return tmp_path


def probe(**values: Any) -> dict[str, Any]:
    """As the plan of an instance that makes a cache has it."""
    given: dict[str, Any] = {
        "path": "/serve.sh",
        "post_data": None,
        "headers": {},
        "timeout_s": 5,
        "within_s": 20,
    }
    return {**given, "variables": {}, **values}


def uploading() -> pack.Put:
    """Where an L4's caches are."""
    return pack.uploading({**PLAN, "prefix": f"{PREFIX}/caches/L4"}, Instance())


def made(here: Path, image: str = "ami-1") -> dict[str, Any]:
    """Pack what an engine may have compiled on an L4; the plan of an instance that shall have it."""
    root = here / "engine"
    (root / "vllm").mkdir(parents=True)
    (root / "vllm" / "kernel").write_text("compiled\n")
    said = {"image": image, "paths": ["engine"], "set_up_s": 1.0}
    manifest = pack.write([root], [pack.tree(root)], said, "gzip", uploading())
    return {**PLAN, "caches": {"g6": f"L4/{manifest}"}}


def left_behind(directory: Path) -> list[str]:
    """What a failure must not leave, beside what was there."""
    return [path.name for path in directory.iterdir() if path.name.strip(".").startswith("engine")]


def test_what_the_first_start_compiled_is_there_on_another_instance(
    s3: S3, here: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    """Made by two starts, whose seconds the manifest has; the second finds it, and both have ended."""
    manifest = warm.warm(here, {"warm": probe()}, "ami-1", "L4", uploading())
    plan = {**PLAN, "caches": {"g6": f"L4/{manifest}"}}
    assert (here / "starts").read_text() == "start \n" * 2
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(os.environ["PORT"])))
    (key,) = (key for key in s3.objects if key.endswith(".json"))
    assert key.startswith(f"{PREFIX}/caches/L4/")
    said = json.loads(s3.objects[key])
    first_s, second_s = said["starts_s"]
    assert said["set_up_s"] == max(first_s - second_s, 0)
    other = tmp_path_factory.mktemp("other")
    unpack.have_cache(plan, Instance(), other)
    assert (other / "engine" / "vllm" / "kernel").read_text() == "compiled\n"
    assert f"spotrelay: {other}/engine from the pack: " in capsys.readouterr().err


def other_bit(s3: S3, _: dict[str, Any]) -> None:
    """In what was compiled."""
    key = next(key for key in s3.objects if not key.endswith(".json"))
    s3.objects[key] = s3.objects[key][:-1] + bytes([s3.objects[key][-1] ^ 1])


def other_manifest(s3: S3, _: dict[str, Any]) -> None:
    """Somebody put another one in its place."""
    key = next(key for key in s3.objects if key.endswith(".json"))
    s3.objects[key] += b" "


def gone(s3: S3, _: dict[str, Any]) -> None:
    """Somebody deleted it."""
    s3.objects.clear()


def of_another_kind(_: S3, plan: dict[str, Any]) -> None:
    """This instance is a g6."""
    plan["caches"] = {"g5": plan["caches"]["g6"]}


def a_set_ups(_: S3, plan: dict[str, Any]) -> None:
    """A manifest that isn't an engine cache's."""
    said = {"image": "ami-1", "paths": ["/opt/vllm"], "set_up_s": 1.0}
    plan["caches"] = {"g6": f"L4/{pack.write([], [], said, 'gzip', uploading())}"}


UNFIT = {
    "a bit was changed": (other_bit, "isn't what was packed: its SHA-256 differs"),
    "another manifest": (other_manifest, "isn't what was packed: its SHA-256 differs"),
    "it is gone": (gone, "is gone, or may not be read: HTTP 404"),
    "it is of another accelerator": (of_another_kind, "there is none for the accelerator of a g6.2xlarge"),
    "it is a set-up's pack": (a_set_ups, "it has .*/opt/vllm.*, and not .*engine"),
}


@pytest.mark.parametrize(("happens", "words"), UNFIT.values(), ids=UNFIT)
def test_what_does_not_fit_is_not_used(
    happens: Callable[[S3, dict[str, Any]], None],
    words: str,
    s3: S3,
    here: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """It is code: nothing of it is unpacked, and nothing is left."""
    plan, other = made(here), tmp_path_factory.mktemp("other")
    happens(s3, plan)
    with pytest.raises(FetchError, match=words):
        unpack.have_cache(plan, Instance(), other)
    assert left_behind(other) == []


def test_a_cache_of_another_image_is_not_used(
    s3: S3, here: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Which may have another driver."""
    other = tmp_path_factory.mktemp("other")
    with pytest.raises(FetchError, match="it was made on ami-2, and this is ami-1"):
        unpack.have_cache(made(here, "ami-2"), Instance(), other)
    assert s3.objects
    assert left_behind(other) == []


def test_a_cache_takes_no_longer_than_it_saves(
    s3: S3, here: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor some seconds, if it saves less: then the engine compiles."""
    plan, other = made(here), tmp_path_factory.mktemp("other")
    monkeypatch.setattr(unpack, "CACHE_PATIENCE_S", 1.0)
    s3.trouble = lambda _: "503"
    began_s = time.monotonic()
    with pytest.raises(FetchError, match=r"can't be fetched, tried|takes longer than"):
        unpack.have_cache(plan, Instance(), other)
    assert time.monotonic() - began_s < 10
    assert left_behind(other) == []


FAILS = {
    "it ends": ("exit 3", {}, "run has ended, with 3, before its probe passed"),
    "it never answers": (
        SERVE,
        {"path": "/none", "within_s": 0.8},
        "its readiness probe hasn't passed within 1",
    ),
    "it compiles nothing": (
        'mkdir -p "$(dirname "$0")/engine"\nexec python3 -m http.server --bind "$HOST" "$PORT"',
        {"path": "/"},
        "run has left nothing in .*/engine: does it set VLLM_CACHE_ROOT or its like itself",
    ),
}


@pytest.mark.parametrize(("serves", "probed", "words"), FAILS.values(), ids=FAILS)
def test_an_engine_that_does_not_start_leaves_no_cache(
    serves: str, probed: dict[str, Any], words: str, s3: S3, here: Path
) -> None:
    """And says why."""
    (here / "serve.sh").write_text(serves)
    began_s = time.monotonic()
    with pytest.raises(pack.PackError, match=words):
        warm.warm(here, {"warm": probe(**probed)}, "ami-1", "L4", lambda *_: None)
    assert time.monotonic() - began_s < 30
    assert not s3.objects


def test_a_server_that_does_not_end_is_killed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all that it has started: the next start needs the accelerator's memory."""
    monkeypatch.setattr(warm, "STOP_S", 0.5)
    (here / "serve.sh").write_text(f"trap '' TERM\n{SERVE}{SERVE.splitlines()[-2].rstrip('&')}")
    (here / "stop.sh").write_text("sleep 60")
    warm.start_s(here, probe(variables={"SPOTRELAY_SLOT": "0"}))
    assert (here / "starts").read_text() == "start 0\n"
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(os.environ["PORT"])))


def test_both_run_on_the_instances_python(
    s3: S3, here: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As scripts, without the package: one makes the cache, the other has it, with a pack or without."""
    other = tmp_path_factory.mktemp("other")
    for directory in (here, other):
        (directory / "fetch.py").write_text(models.script())
        (directory / "unpack.py").write_text(packs.script())
    for name in ("pack", "warm"):
        source = (Path(fetch.__file__).parent / f"{name}.py").read_text(encoding="utf-8")
        (here / f"{name}.py").write_text(models.beside_fetch(source))
    (here / "pack.json").write_text(json.dumps({**PLAN, "warm": {**probe(), "kinds": {"g6": "L4"}}}))
    run: Callable[[Path], subprocess.CompletedProcess[str]] = lambda script: subprocess.run(  # noqa: E731 - thrice
        [sys.executable, "-I", str(script)], capture_output=True, text=True, check=False
    )
    done = run(here / "warm.py")
    assert done.returncode == 0, done.stderr
    assert re.search(r"spotrelay: the first start took \d+ s\n", done.stderr)
    (key,) = (key for key in s3.objects if key.endswith(".json"))
    plan = {**PLAN, "manifest": None, "caches": {"g6": f"L4/{Path(key).stem}"}}
    (other / "pack.json").write_text(json.dumps(plan))
    # No pack: set-up runs, with the cache in place.
    assert run(other / "unpack.py").returncode == 1
    assert (other / "engine" / "vllm" / "kernel").exists()
    (other / "pack.json").write_text(json.dumps({**plan, "caches": {}}))
    said = run(other / "unpack.py")
    assert (said.returncode, said.stderr) == (
        1,
        "spotrelay: no engine cache is used, so the engine compiles: there is none for the accelerator of a"
        " g6.2xlarge\n",
    )


def test_models_come_by_the_program_that_knows_their_sources(tmp_path: Path) -> None:
    """Before the first start is timed: web.py where a model is a web server's, which knows buckets, too."""
    (tmp_path / "fetch.py").write_text("raise SystemExit(3)")
    assert warm._fetches(tmp_path) == 3
    (tmp_path / "web.py").write_text("raise SystemExit(0)")
    assert warm._fetches(tmp_path) == 0


def test_a_family_of_instance_types_has_one_kind_of_accelerator() -> None:
    """Or an instance could get the cache of another kind."""
    kinds: dict[str, set[str]] = {}
    for type_ in all_types():
        kinds.setdefault(type_.name.partition(".")[0], set()).add(
            f"{type_.accelerator} {type_.accelerator_count > 0}"
        )
    assert [family for family, its in kinds.items() if len(its) > 1] == []


def test_an_instance_knows_the_caches_of_its_accelerators(service: Loader) -> None:
    """By the family of its type; engines are told where theirs is, and packs of the set-up fit as before."""
    chat = pinned(service(WARM), {}, {}, {"chat": "1" * 64, "chat/L4": "2" * 64, "chat/T4": "3" * 64})
    assert engine.kinds(chat) == ("A10G", "L4", "L40S")
    found = files(user_data(chat, "us-east-1"))
    plan = json.loads(found["pack.json"])
    assert plan["manifest"] == "1" * 64
    assert plan["caches"] == {"g6": f"L4/{'2' * 64}", "gr6": f"L4/{'2' * 64}"}
    assert "TRITON_CACHE_DIR=$spotrelay_engine/triton" in found["run.sh"]
    assert fit(chat) == fit(service(f"{GOOD}setup: make-it\n{PACK}"))
    all_of_them = {"chat": "1" * 64, **{f"chat/{kind}": "2" * 64 for kind in engine.kinds(chat)}}
    text = user_data(pinned(chat, {}, {}, all_of_them), LONGEST_REGION)
    assert len(text.encode()) == userdata.size(service(WARM))


def test_a_pack_without_caches_pays_nothing_for_them(service: Loader) -> None:
    """Whatever the bucket has."""
    chat = pinned(service(f"{GOOD}setup: make-it\n{PACK}"), {}, {}, {"chat/L4": "2" * 64})
    text = "".join(files(user_data(replace(chat, scripts_in_bundle=False), "us-east-1")).values())
    shipped = packs.script()
    assert "spotrelay_engine" not in text.replace(shipped, "")
    assert "caches" not in text.replace(shipped, "")


BAD = {
    "no accelerator": (
        WARM.replace("accelerators: {A10G, L4, L40S}", "cpus: 4+"),
        "spotrelay.pack.warm: an engine cache is of an accelerator, and resources allow no instance type",
    ),
    "a share of one": (
        WARM.replace("accelerators: {A10G, L4, L40S}", "instance_types: [g6f.xlarge]"),
        "allow no instance type with a whole one",
    ),
    "nobody knows how to ask": (
        WARM.replace(
            "spotrelay: {", "spotrelay: {security_groups: [sg-01234567], target_group: '@', "
        ).replace("@", f"arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/x/{'0' * 16}"),
        "spotrelay.pack.warm: an engine is started until it answers",
    ),
    "a place of its own": (
        f"{WARM}envs: {{TRITON_CACHE_DIR: /x}}\n",
        "envs.TRITON_CACHE_DIR: says where spotrelay.pack.warm lets the engine compile to: remove one",
    ),
    "not a choice": (WARM.replace("warm: true", "warm: [x]"), "spotrelay.pack.warm: expected true or false"),
}


@pytest.mark.parametrize(("text", "words"), BAD.values(), ids=BAD)
def test_a_cache_that_makes_no_sense_is_told(text: str, words: str, problems: Refuser) -> None:
    """With the place, and what to do instead."""
    said = [str(one) for one in problems(text)]
    assert any(words in one for one in said), said


def packer(service: Service, manifest: str | None = None) -> dict[str, str]:
    """The files of an instance that makes a cache."""
    how = Warm(ReadinessProbe("/v1", {"x": 1}, 15, {"a": "b"}), 1200, {"g6": "L4"}, manifest)
    return files(gzip.decompress(packing.user_data(user_data(service, "us-east-1"), how)).decode())


def test_who_makes_a_cache_starts_what_replicas_start(service: Loader) -> None:
    """With the models and the probe; the caches that are there it doesn't see."""
    model = "{models: [{source: 's3://b-1/x', path: /m}], pack:"
    chat = pinned(service(WARM.replace("{pack:", model)), {}, {}, {"chat/L4": "2" * 64})
    replicas, found = files(user_data(chat, "us-east-1")), packer(chat)
    assert found["serve.sh"] == replicas["run.sh"]
    assert found["fetch.json"] == replicas["fetch.json"]
    plan = json.loads(found["pack.json"])
    assert "caches" not in plan
    assert plan["warm"]["post_data"] == {"x": 1}
    assert (plan["warm"]["within_s"], plan["warm"]["variables"]) == (1200, {})
    shared = service(
        WARM.replace("{pack:", "{replicas_per_instance: auto, pack:").replace("serve.py", "-p $PORT")
    )
    found = packer(shared)
    assert found["serve.sh"] == files(user_data(shared, "us-east-1"))["slot.sh"]
    assert json.loads(found["pack.json"])["warm"]["variables"]["SPOTRELAY_SLOT"] == "0"


@pytest.mark.parametrize(
    ("manifest", "said"), [(None, "made\npacked\nwarmed\n"), ("1" * 64, "unpacked\nwarmed\n")]
)
def test_who_makes_a_cache_does_it_in_order(
    manifest: str | None, said: str, service: Loader, tmp_path: Path
) -> None:
    """In bash: after set-up and its pack, or on a pack that is there."""
    found = packer(replace(service(WARM), scripts_in_bundle=False), manifest)
    for name in ("run.sh", "setup.sh", "pack.sh"):
        (tmp_path / name).write_text(found[name].replace("make-it", "echo made"))
    for name, word in (("pack.py", "packed"), ("unpack.py", "unpacked"), ("warm.py", "warmed")):
        (tmp_path / name).write_text(f"print({word!r})")
    done = subprocess.run(["bash", str(tmp_path / "run.sh")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, said), done.stderr
    assert (tmp_path / pack.BEGAN).exists()

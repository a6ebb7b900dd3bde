"""The functions' code: complete, small, pure Python, and the same whenever it is made again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from lab.benchmarks.cold_start import bring_runtime
from stacks.bundling import (
    ROOT,
    BundlingError,
    locked_packages,
    own_modules,
    stage,
)

MAX_BYTES = 6_000_000
"""Uploaded in a second and unpacked at every cold start."""

NOT_IN_A_FUNCTION = ("file", "messages.py", "operator", "plane/memory.py")

OPERATORS_ONLY = ("pydantic", "ruamel", "rich", "typer", "aws_cdk", "boto3", "botocore")


def test_handlers_run_on_the_asset_and_lambda_alone(asset: Path, tmp_path: Path) -> None:
    """With nothing but the asset and what Lambda brings, every handler can be imported and write its log."""
    bring_runtime(tmp_path)
    program = (
        "from lambdas import drill, on_signal, reconcile, removal, survey, widget;"
        "from spotrelay.plane.aws import runtime;"
        "from spotrelay.plane.core.names import Metric;"
        "assert on_signal.handler and reconcile.handler and removal.handler and survey.handler;"
        "runtime.telemetry.record('imported');"
        "runtime.telemetry.count(Metric.CONFLICTS);"
        "runtime.telemetry.flush()"
    )
    # -S: without the virtual environment's own packages.
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{asset}:{tmp_path}", "PYTHONDONTWRITEBYTECODE": "1", "AWS_REGION": "us-east-1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line).get("message") for line in done.stdout.splitlines()] == ["imported", "counted"]


def test_the_asset_is_small(asset: Path) -> None:
    """What a cold start has to unpack stays within a few megabytes."""
    assert sum(path.stat().st_size for path in asset.rglob("*")) <= MAX_BYTES


def test_the_asset_is_pure_python(asset: Path) -> None:
    """Nothing in it was compiled for one processor or one version of Python."""
    assert not [p for p in asset.rglob("*") if p.suffix in (".so", ".pyd", ".pyc", ".dylib")]


def test_the_operators_part_stays_outside(asset: Path) -> None:
    """The asset has no module that only stacks, commands and tests need, nor what Lambda brings itself."""
    assert not [n for n in NOT_IN_A_FUNCTION if (asset / "spotrelay" / n).exists()]
    assert not [n for n in OPERATORS_ONLY if (asset / n).exists()]


def test_the_asset_keeps_the_licences(asset: Path) -> None:
    """Every package comes with the licence that allows us to pass it on."""
    packages = [p.parent for p in asset.glob("*.dist-info/METADATA")]
    assert len(packages) == len(locked_packages(Path("uv.lock")))
    assert all(any(path.name.startswith("LICENSE") for path in package.rglob("*")) for package in packages)


def test_the_same_sources_make_the_same_asset(asset: Path, tmp_path: Path) -> None:
    """Made again, the asset has the same files with the same contents: nothing is uploaded or updated."""
    stage(tmp_path)
    assert _contents(tmp_path) == _contents(asset)


def test_the_plane_is_what_functions_need() -> None:
    """All of its modules are imported by functions, at once or later, and none that isn't packed is."""
    graph = grimp.build_graph("lambdas", "spotrelay", cache_dir=None)
    functions = graph.find_children("lambdas")
    needed = functions.union(*(graph.find_upstream_modules(function) for function in functions))
    packed = {
        ".".join(module.with_suffix("").parts).removesuffix(".__init__") for module in own_modules(ROOT)
    }
    packages = {name for name in packed if graph.find_children(name)}
    assert needed - packed == set()
    assert packed - packages == needed - packages


def test_another_version_than_locked_is_refused(tmp_path: Path) -> None:
    """What is deployed is what was locked and tested: an environment that drifted says what to do."""
    lock = tmp_path / "uv.lock"
    lock.write_text(
        '[[package]]\nname = "spotrelay"\nversion = "0"\n'
        '[package.dev-dependencies]\nfunctions = [{ name = "jmespath" }]\n'
        '[[package]]\nname = "jmespath"\nversion = "0.0.1"\n',
        encoding="utf-8",
    )
    with pytest.raises(BundlingError, match=r"jmespath is .* here, uv\.lock says 0\.0\.1: run `make setup`"):
        locked_packages(lock)


def test_what_lambda_brings_is_left_out() -> None:
    """boto3 comes with the runtime, and all that it needs; Powertools and what else that needs don't."""
    assert locked_packages(Path("uv.lock")) == ["aws-lambda-powertools", "typing-extensions"]


def _contents(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}

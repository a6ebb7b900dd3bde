"""The app as the CDK starts it: hermetic, and clear about inputs that it can't use."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stacks.application import load_all
from stacks.settings import AppSettings, SettingsError
from tests.template.conftest import ROOT, SERVICE_FILES, flags, synthesize
from tests.template.support import warnings_of

DEAD = "http://127.0.0.1:9"
"""The discard port: nothing listens there."""

IN_OWN_VPC = {"vpc_id": "vpc-00000001", "subnets": "subnet-00000001=us-east-1a,subnet-00000002=us-east-1b"}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The app, run on a machine without network, credentials and any program on PATH; and where."""
    directory = tmp_path_factory.mktemp("app")
    context = {**flags(), **_services("llama3", "demo")}
    return directory, _run_app(directory, context, prefix=_without_network())


def test_synth_needs_neither_network_nor_credentials_nor_tools(
    done: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    """Without any of them the app synthesizes every stack."""
    directory, process = done
    assert process.returncode == 0, process.stderr
    assert {p.name for p in (directory / "out").glob("*.template.json")} == {
        "SpotRelay-ControlPlane.template.json",
        "SpotRelay-Network.template.json",
        "SpotRelay-Service-demo.template.json",
        "SpotRelay-Service-llama3.template.json",
    }


def test_synth_warns_of_nothing(done: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """With the repository's own settings, neither the CDK nor SpotRelay advises against what is deployed."""
    directory, _ = done
    assert warnings_of(directory / "out") == []


def test_every_flag_of_the_cdk_is_decided(done: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """A new flag of the CDK is decided on in cdk.json, unless leaving it out means what is advised."""
    directory, _ = done
    manifest = json.loads((directory / "out" / "manifest.json").read_text(encoding="utf-8"))
    (report,) = (a for a in manifest["artifacts"].values() if a["type"] == "cdk:feature-flag-report")
    found = report["properties"]["flags"]
    undecided = {
        name
        for name, flag in found.items()
        if "userValue" not in flag
        and flag.get("unconfiguredBehavesLike", {}).get("v2", False) != flag["recommendedValue"]
    }
    assert undecided == set()
    assert flags().keys() <= found.keys(), "a flag that is gone from the CDK is taken out of cdk.json"


@pytest.mark.parametrize(
    "context",
    [
        {},
        {"account": "000000000000", "region": "us-east-1"},
        {"account": "000000000000", "region": "us-east-1", "zones": "us-east-1d,us-east-1f"},
        {"account": "000000000000", "region": "us-east-1", **IN_OWN_VPC},
    ],
    ids=["anywhere", "one account", "its zones", "its network"],
)
def test_synth_leaves_nothing_to_look_up(tmp_path: Path, context: dict[str, str]) -> None:
    """Whatever is said about the account, the CDK's command line finds nothing that it would ask AWS for."""
    settings = AppSettings.from_context({**_services("demo"), **context}.get)
    manifest = synthesize(tmp_path, settings) / "manifest.json"
    assert json.loads(manifest.read_text(encoding="utf-8")).get("missing", []) == []


def test_synth_always_says_the_same(
    done: tuple[Path, subprocess.CompletedProcess[str]], assembly: Path
) -> None:
    """Another process, with other hash seeds and the services in another order: `cdk diff` finds nothing."""
    directory, _ = done
    for template in assembly.glob("*.template.json"):
        again = directory / "out" / template.name
        assert again.read_text(encoding="utf-8") == template.read_text(encoding="utf-8"), template.name


def test_nothing_is_tied_to_one_part_of_aws(assembly: Path) -> None:
    """No template names a partition, a region or an endpoint: China and GovCloud have their own."""
    tied = re.compile(r"arn:aws[a-z-]*:|https?://[^\"\\]*amazonaws|\b[a-z]{2}(-gov)?-[a-z]+-[1-9]\b")
    for template in assembly.glob("*.template.json"):
        assert not tied.findall(template.read_text(encoding="utf-8")), template.name


def test_a_bad_service_file_is_explained(tmp_path: Path) -> None:
    """Every problem of every file on stderr, exit 2, no traceback, and nothing to deploy."""
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    good = SERVICE_FILES["demo"].read_text(encoding="utf-8")
    one.write_text(good.replace("replicas: 3", "replicas: -1"), encoding="utf-8")
    two.write_text(good.replace("ports: 8081", "ports: 99999"), encoding="utf-8")
    done = _run_app(tmp_path, {"services": f"{one},{two}"})
    assert done.returncode == 2
    assert "service.replicas" in done.stderr
    assert "resources.ports" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_bad_choice_is_explained(tmp_path: Path) -> None:
    """A setting that can't be used is named in one line, exit 2."""
    done = _run_app(tmp_path, {"region": "us-east-1"})
    assert done.returncode == 2
    assert done.stderr.strip() == "context account and region belong together: give both, or neither"


def test_two_services_of_one_name_are_refused() -> None:
    """Two files that would fight over one stack are both named."""
    demo = SERVICE_FILES["demo"]
    with pytest.raises(SettingsError, match=f"{demo} and {demo} are both named 'demo'"):
        load_all([demo, demo])


def _run_app(
    tmp_path: Path, context: dict[str, Any], prefix: list[str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Start app.py as the CDK's command line does, in an environment with nothing in it."""
    environment = {
        "HOME": str(Path.home()),  # jsii's cache of unpacked packages is there
        "PATH": "/nowhere",
        "AWS_CONFIG_FILE": "/nowhere",
        "AWS_SHARED_CREDENTIALS_FILE": "/nowhere",
        "CDK_OUTDIR": str(tmp_path / "out"),
        "CDK_CONTEXT_JSON": json.dumps(context),
        "HTTP_PROXY": DEAD,
        "HTTPS_PROXY": DEAD,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    return subprocess.run(
        [*(prefix or []), sys.executable, "app.py"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _services(*names: str) -> dict[str, str]:
    return {"services": ",".join(str(SERVICE_FILES[name]) for name in names)}


def _without_network() -> list[str]:
    """A network namespace of its own where the machine lets us; elsewhere dead proxies have to do."""
    unshare = shutil.which("unshare")
    if unshare and os.name == "posix":
        for options in (["-n"], ["-r", "-n"]):
            command = [unshare, *options, "--"]
            if subprocess.run([*command, "/bin/true"], capture_output=True, check=False).returncode == 0:
                return command
    return []

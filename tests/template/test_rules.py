"""Rules that others keep: cdk-nag's and cfn-lint's. Every exception has its reason beside it, in stacks/."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stacks.application import build
from stacks.settings import AppSettings
from tests.template.conftest import ROOT, SERVICE_FILES, flags

PUBLIC = {
    "services": str(SERVICE_FILES["demo"]),
    "internet_facing": "true",
    "api_keys": "web",
    "public_addresses": "true",
}


@pytest.mark.parametrize(
    "settings",
    [AppSettings(services=tuple(SERVICE_FILES.values())), AppSettings.from_context(PUBLIC.get)],
    ids=["every service", "a public service"],
)
def test_security_rules_hold(tmp_path: Path, settings: AppSettings) -> None:
    """cdk-nag finds nothing in any stack that isn't accepted with a reason."""
    import aws_cdk as cdk
    import cdk_nag

    app = cdk.App(outdir=str(tmp_path), context=flags())
    build(app, settings)
    cdk.Validations.of(app).add_plugins(cdk_nag.AwsSolutionsChecks(app))
    try:
        app.synth()
    except RuntimeError:
        report = (tmp_path / "validation-report.json").read_text(encoding="utf-8")
        raise AssertionError(json.dumps(json.loads(report), indent=1)) from None


def test_templates_are_valid(assembly: Path) -> None:
    """cfn-lint finds no error and no warning in any template."""
    templates = sorted(str(path) for path in assembly.glob("*.template.json"))
    assert len(templates) == 4
    done = subprocess.run(
        [Path(sys.executable).with_name("cfn-lint"), *templates],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

"""A secret that changes, by the operator's commands."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from lab.demo.operator import Operator
from lab.demo.settings import ROOT
from spotrelay.plane.core.pools import PurchaseOption
from tests.e2e.lifecycle.conftest import Command
from tests.e2e.stand import Stand

KEPT = "kept"
PARAMETER = f"/spotrelay/{KEPT}/TOKEN"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_changed_secret_rolls_out_with_the_next_deployment(
    operator: Operator, spotrelay: Command, tmp_path: Path
) -> None:
    """Until then instances read the value of their deployment; then all get the new one, as a new version.

    An instance's own role reads the version that its user data names, or it would never serve.
    """
    text = (ROOT / "services" / "demo.yaml").read_text(encoding="utf-8")
    text = text.replace("name: demo", f"name: {KEPT}").replace("replicas: 3", "replicas: 1")
    file = tmp_path / f"{KEPT}.yaml"
    file.write_text(f"{text}\nsecrets:\n  TOKEN: null\n", encoding="utf-8")
    code, out, err = spotrelay("secrets", str(file), "--secret", "TOKEN=first")
    assert (code, out) == (0, f"{KEPT}: TOKEN: written to {PARAMETER}, version 1\n"), err
    code, _, err = spotrelay("up", str(file))
    assert (code, "nobody has written" in err) == (0, False), err

    stand = Stand(operator, KEPT)
    ec2 = operator.session.client("ec2")

    def asked() -> str:
        """What the instances of the deployed version ask for."""
        template = stand.spec.template(PurchaseOption.SPOT)
        found = ec2.describe_launch_template_versions(
            LaunchTemplateId=template.id, Versions=[str(template.version)]
        )["LaunchTemplateVersions"][0]["LaunchTemplateData"]["UserData"]
        user_data = base64.b64decode(found).decode()
        return str(re.findall(r"TOKEN=\$\(spotrelay_secret (\S+)\)", user_data)[0])

    assert asked() == f"{PARAMETER}:1"
    code, out, err = spotrelay("secrets", str(file), "--secret", "TOKEN=second")
    assert code == 0, err
    assert f"`spotrelay update {file}` rolls this one out" in out
    code, out, err = spotrelay("update", str(file))
    assert code == 0, err
    assert f"{KEPT} v1→v2 (rolling): what instances run (setup, run, envs, secrets or files)" in out
    assert asked() == f"{PARAMETER}:2"
    assert {r.version for r in stand.watch.look().ready} == {2}
    code, out, _ = spotrelay("update", str(file))
    assert (code, out.splitlines()[-1]) == (0, f"{KEPT} is as {file} says: nothing to deploy"), out
    code, _, err = spotrelay("down", KEPT, "--yes")
    assert code == 0, err

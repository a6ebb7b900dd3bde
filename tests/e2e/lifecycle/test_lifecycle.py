"""A service comes, changes under load and goes, by the operator's commands, beside one that serves."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lab.demo.operator import Operator
from lab.demo.settings import ROOT
from spotrelay.file.model import DEFAULT_IMAGE
from tests import json_documents
from tests.e2e.availability.test_stacks import left_of
from tests.e2e.clients import Clients
from tests.e2e.counted.test_counted import images
from tests.e2e.faults.bench import Bench
from tests.e2e.lifecycle.conftest import Command

MINE = "mine"

WITHIN_S = 400.0

NEWER_IMAGE = "ami-0dee9a1e5b0c24041"
"""What AWS publishes in the meantime."""


def service_file(directory: Path, **changes: str) -> Path:
    """The demo's file under another name, with two replicas; `changes`: of its envs."""
    text = (ROOT / "services" / "demo.yaml").read_text(encoding="utf-8")
    text = text.replace("name: demo", f"name: {MINE}").replace("replicas: 3", "replicas: 2")
    for name, value in changes.items():
        text = re.sub(rf"^  {name}: \S+", f"  {name}: {value}", text, flags=re.MULTILINE)
    path = directory / f"{MINE}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.timeout(3 * WITHIN_S)
def test_a_service_comes_changes_and_goes(operator: Operator, spotrelay: Command, tmp_path: Path) -> None:
    """Up ends when all serve; an update fails no request; after down nothing is left, and others serve on."""
    demo = Bench(operator, "demo")
    before = {r.id for r in demo.settled(has_history=False).present}

    code, _, err = spotrelay("up", str(service_file(tmp_path)), "--context", "nat_gateways=2")
    assert (code, "which demo, rare use, too" in err) == (2, True), err

    code, out, err = spotrelay("up", str(service_file(tmp_path)))
    assert code == 0, err
    assert re.search(rf"^{MINE} 2/2 ready after .* s: http://spotrelay-service-", out, re.MULTILINE), out
    assert "SpotRelay-Network: as it was" in out
    mine = Bench(operator, MINE)
    mine.settled()  # two: fallbacks that came beside slow starts have gone again
    assert len(mine.watch.look().ready) == 2

    code, out, err = spotrelay("up", str(tmp_path), "--json")
    assert code == 0, err
    json_documents.check("up", json.loads(out))
    (again,) = json.loads(out)["services"]
    assert (again["version"], again["ready"]) == (1, 2)

    changed = service_file(tmp_path, TOKENS="40")
    with Clients(mine) as clients:
        code, out, err = spotrelay("update", str(changed))
        assert code == 0, err
        clients.were_served()
    assert f"{MINE} v1→v2 (rolling): what instances run (setup, run, envs, secrets or files)" in out
    assert "v1→v2: 1/2 new, 0 failed, 1 to go" in out
    assert f"{MINE} v1→v2: 2/2 ready after" in out
    assert {r.version for r in mine.watch.look().ready} == {2}

    code, out, _ = spotrelay("update", str(changed))
    assert (code, out.splitlines()[-1]) == (0, f"{MINE} is as {changed} says: nothing to deploy")

    operator.cloud.publish_image(DEFAULT_IMAGE.format(arch="x86_64"), NEWER_IMAGE)
    code, out, _ = spotrelay("update", str(changed))
    assert (code, out.splitlines()[-1]) == (0, f"{MINE} is as {changed} says: nothing to deploy")
    assert f"the image stays; {NEWER_IMAGE} is newer: --image takes it" in out
    code, out, err = spotrelay("update", str(changed), "--image")
    assert code == 0, err
    assert f"{MINE} v2→v3 (rolling): a newer image, {NEWER_IMAGE}" in out
    assert f"{MINE} v2→v3: 2/2 ready after" in out
    assert images(mine) == {NEWER_IMAGE}
    code, out, _ = spotrelay("update", str(changed))
    assert (code, out.splitlines()[-1]) == (0, f"{MINE} is as {changed} says: nothing to deploy")
    assert "newer" not in out

    with Clients(mine) as clients:
        code, out, err = spotrelay("update", MINE, "--rollback", "--yes")
        assert code == 0, err
        clients.were_served()
    assert {r.version for r in mine.watch.look().ready} == {2}

    instances = {str(r.instance_id) for r in mine.watch.look().present}
    code, out, err = spotrelay("down", MINE, "--yes")
    assert code == 0, err
    assert re.search(rf"^{MINE} gone: \d+ instances?, \d+ volumes?, 1 parameter; nothing left$", out, re.M), (
        out
    )
    assert all(id_ in out for id_ in instances), "what goes is listed by its ID"
    assert "DRAINING" in out
    assert left_of(operator.session, MINE) == []

    assert {r.id for r in demo.watch.look().present} == before
    assert demo.watch.look().ready
    code, _, err = spotrelay("down", MINE, "--yes")
    assert (code, err) == (
        2,
        f"spotrelay down: no service {MINE} is deployed in us-east-1: check the name, or deploy it first\n",
    )

"""docs/packs.md, from the first deployment to the end: by who may do what it and docs/deploy.md list."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.demo.operator import LocalSession
from lab.local.client import LocalCloud
from spotrelay.plane.core.names import TAG_PACK, TAG_SERVICE
from tests.documented import policy
from tests.e2e.operators.conftest import Command
from tests.e2e.walk.conftest import DEPLOYER

WITHIN_S = 900.0

STARTS_WITHIN_S = 240.0
"""A replacement, on a machine that is busy otherwise."""

HOME = Path.home()
"""Before a fixture gives the commands another one."""

SERVICE = """
name: packed
service: {{replicas: 1, readiness_probe: {{path: /who, initial_delay_seconds: 600}}}}
resources: {{accelerators: "L4:1", use_spot: true, ports: 8081}}
spotrelay: {{start_within: 10m, pack: {{paths: [{made}], warm: true}}}}
setup: |
  mkdir -p {made}
  echo "$RANDOM $RANDOM $RANDOM" > {made}/who
  echo ran >> {ran}
  sleep 6   # two ticks of the controller, which must leave alone who packs
run: |
  if [ -e "$VLLM_CACHE_ROOT/kernel" ]; then echo found >> {starts}
  else mkdir -p "$VLLM_CACHE_ROOT" && echo kernel > "$VLLM_CACHE_ROOT/kernel" && echo compiled >> {starts}
  fi
  cd {made} && exec python3 -m http.server --bind "$HOST" "$PORT"
"""


@dataclass(frozen=True)
class Walk:
    """An account, and the service's directory and file, which all instances here share."""

    account: LocalSession
    cloud: LocalCloud
    directory: Path

    @property
    def file(self) -> str:
        """The service's."""
        return str(self.directory / "packed.yaml")

    @property
    def ran(self) -> int:
        """How often set-up has run since it was asked last."""
        return len(self._told("ran"))

    @property
    def starts(self) -> list[str]:
        """Whether engines have found what they need, or compiled it, since it was asked last."""
        return self._told("starts")

    def _told(self, name: str) -> list[str]:
        file = self.directory / name
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return lines

    @property
    def made(self) -> str:
        """What the last set-up or pack has brought."""
        return (self.directory / "made" / "who").read_text()

    def instances(self, tag: str) -> list[dict[str, Any]]:
        """Those with a tag, also if they have ended."""
        found: Any = self.account.client("ec2").describe_instances(
            Filters=[{"Name": f"tag:{tag}", "Values": ["packed"]}]
        )
        return [instance for one in found["Reservations"] for instance in one["Instances"]]

    def bucket(self) -> str:
        """The CDK's, for files."""
        names = (str(one["Name"]) for one in self.account.client("s3").list_buckets()["Buckets"])
        return next(name for name in names if "-assets-" in name)

    def packed(self) -> list[str]:
        """The keys of all packs."""
        found = self.account.client("s3").list_objects_v2(Bucket=self.bucket(), Prefix="spotrelay/packs/")
        return [one["Key"] for one in found.get("Contents", [])]


@pytest.fixture
def directory() -> Iterator[Path]:
    """One that a pack may have: what is below /tmp it may not."""
    with tempfile.TemporaryDirectory(prefix=".spotrelay-e2e-", dir=HOME) as found:
        yield Path(found)


@pytest.fixture
def walk(endpoint: str, role: str, directory: Path) -> Iterator[Walk]:
    """The role may pack, too, for as long as this lasts."""
    assert role
    account, name = LocalSession(endpoint), "packs"
    document = json.dumps({"Version": "2012-10-17", "Statement": policy("packs.md", "")})
    iam = account.client("iam")
    iam.put_role_policy(RoleName=DEPLOYER, PolicyName=name, PolicyDocument=document)
    found = Walk(account, LocalCloud(endpoint), directory)
    names = {name: directory / name for name in ("made", "ran", "starts")}
    Path(found.file).write_text(SERVICE.format(**names))
    yield found
    iam.delete_role_policy(RoleName=DEPLOYER, PolicyName=name)


def done(command: Command, *arguments: str) -> str:
    """What a command prints that succeeds."""
    code, out, err = command(*arguments)
    assert code == 0, out + err
    return out + err


@pytest.mark.timeout(2 * WITHIN_S)
def test_replicas_start_from_a_pack_while_there_is_one(walk: Walk, spotrelay: Command) -> None:
    """Set-up runs once and for the pack, then on no replica; without the pack it runs again, and says so.

    The same holds of what an engine compiles. What becomes of the goal `up` says by what is there.
    """
    said = done(spotrelay, "up", walk.file)
    assert "packed: start_within 10 min: within reach, and not certain. A start takes " in said
    assert "packed: no pack fits its set-up, so each replica runs it" in said
    assert (walk.ran, walk.starts) == (1, ["compiled"])
    (first,) = walk.instances(TAG_SERVICE)

    said = done(spotrelay, "pack", walk.file, "--yes")
    assert "packed: packed in " in said
    assert "packed: engine cache for L4: the first start of run took " in said
    assert (walk.ran, walk.starts) == (1, ["compiled", "found"])
    packed = walk.made
    (packer,) = walk.instances(TAG_PACK)
    assert packer["State"]["Name"] in ("shutting-down", "terminated")
    assert [one["InstanceId"] for one in walk.instances(TAG_SERVICE)] == [first["InstanceId"]]
    assert packer["InstanceId"] not in done(spotrelay, "status", "packed")

    (walk.directory / "made" / "who").write_text("of no pack")
    said = done(spotrelay, "up", walk.file)
    assert "packed: replicas start from the pack of 20" in said
    assert "packed: start_within 10 min: kept. A start takes " in said
    assert "(from its pack)" in said
    assert "(with its engine cache, as L4 took when it was made)" in said
    assert "measured (1 start)" in said, "EC2 and the load balancer"
    told = done(spotrelay, "cold-start", "packed")
    assert "start_within: 10 min: " in told
    assert "no engine cache for" not in told
    (second,) = (i for i in walk.instances(TAG_SERVICE) if i["InstanceId"] != first["InstanceId"])
    assert (walk.ran, walk.made, walk.starts) == (0, packed, ["found"])

    s3 = walk.account.client("s3")
    for key in walk.packed():
        s3.delete_object(Bucket=walk.bucket(), Key=key)
    walk.cloud.warn(second["InstanceId"])
    deadline_s = time.monotonic() + STARTS_WITHIN_S
    while not walk.ran:
        assert time.monotonic() < deadline_s, "no set-up runs"
        time.sleep(0.2)
    assert walk.made != packed
    known = (first["InstanceId"], second["InstanceId"])
    (third,) = (i["InstanceId"] for i in walk.instances(TAG_SERVICE) if i["InstanceId"] not in known)
    log = walk.account.client("ec2").get_console_output(InstanceId=third, Latest=True)["Output"]
    assert "spotrelay: no pack is used, so set-up runs: spotrelay/packs/packed/" in log
    assert "is gone, or may not be read: HTTP 40" in log
    assert "spotrelay: no engine cache is used, so the engine compiles: spotrelay/packs/packed/" in log

    done(spotrelay, "pack", walk.file, "--yes")
    assert walk.packed()
    assert "packed gone: " in done(spotrelay, "down", "packed", "--yes")
    assert walk.packed() == []
    done(spotrelay, "down", "--all", "--yes")

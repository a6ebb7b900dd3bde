"""Images on the local cloud: one instance is baked, another starts from it; and EC2's rules about images."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from spotrelay.file.instance import baking
from spotrelay.file.instance.bake import READY
from spotrelay.file.service import load, user_data
from spotrelay.operator.aws import bakes
from spotrelay.operator.aws.console import console_output
from spotrelay.operator.aws.makers import Deployed, Maker, at_work
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.fleet import Ec2Fleet
from spotrelay.plane.core.names import TAG_BAKE
from spotrelay.plane.core.pools import CapacityPool
from spotrelay.plane.core.ports import Denied
from tests.local.conftest import Ground, eventually
from tests.local.test_instance_files import address_of, allow, get, launched_from

pytestmark = pytest.mark.xdist_group("local")

FILE = """\
service: {{replicas: 1}}
resources: {{accelerators: L4, ports: 8081}}
envs: {{WORD: hush}}
setup: |
  echo ran >> {ran}
  echo made > ../made
run: cp ../made page; exec python -m http.server --bind "$HOST" "$PORT"
"""

BASE = "ami-0abcdef1234567890"

POOL = CapacityPool("us-east-1", "us-east-1a", "g6.2xlarge")


@pytest.fixture
def clients(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> Clients:
    """The product's own, of the local cloud."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", ground.aws.endpoint)
    return Clients(ground.aws.session)


@pytest.fixture
def name() -> str:
    """A service of this test's own."""
    return f"s{uuid.uuid4().hex[:8]}"


def launched(ground: Ground, clients: Clients, name: str, text: str) -> tuple[Maker, str]:
    """An instance that bakes, and its ID; `text` is the user data of the service's replicas."""
    data: Any = {"ImageId": BASE, "UserData": base64.b64encode(text.encode()).decode()}
    made = ground.aws.ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
    found = Deployed.found(clients, made["LaunchTemplate"]["LaunchTemplateId"], "1")
    maker = Maker(clients, found, name, TAG_BAKE, baking.user_data(text, ()), {}, {"ImageId": BASE})
    id_, _ = maker.launch([POOL], {ground.subnets[0]: "us-east-1a"})
    return maker, id_


@pytest.fixture
def text(tmp_path: Path) -> str:
    """The user data of replicas whose set-up says that it ran."""
    file = tmp_path / "chat.yaml"
    file.write_text(FILE.format(ran=tmp_path / "ran"))
    return user_data(load(file), "us-east-1")


@pytest.fixture
def stopped(ground: Ground, clients: Clients, name: str, text: str) -> Iterator[str]:
    """An instance whose disk is ready for an image, and which is stopped."""
    maker, id_ = launched(ground, clients, name, text)
    eventually(lambda: READY in console_output(clients, id_).splitlines(), "the disk is ready")
    bakes.stop(clients, id_)
    eventually(lambda: maker.state(id_) == "stopped", "it has stopped")
    yield id_
    maker.end(id_)


def available(clients: Clients, name: str) -> bakes.Baked:
    """The service's only image, once there is one that can be launched from."""
    return eventually(
        lambda: next((one for one in bakes.images(clients, name) if one.is_available), None), "it is there"
    )


def test_a_replica_starts_from_an_image(
    ground: Ground, clients: Clients, name: str, text: str, stopped: str, tmp_path: Path
) -> None:
    """What it serves is what the other instance's set-up made; its own doesn't run."""
    tags = bakes.tags(name, "1", BASE, {"team": "a"})
    image_id = bakes.create(clients, stopped, name, tags)
    assert bakes.create(clients, stopped, name, tags) == image_id, "asked twice, there is one"
    place: Any = {"SubnetId": ground.subnets[0], "InstanceType": "g6.2xlarge", "MinCount": 1, "MaxCount": 1}
    with pytest.raises(ClientError, match=r"InvalidAMIID\.Unavailable"):
        ground.aws.ec2.run_instances(ImageId=image_id, **place)
    image = available(clients, name)
    assert (image.id, image.version, image.base) == (image_id, "1", BASE)
    shown = ground.aws.ec2.describe_snapshots(SnapshotIds=[*image.snapshots])["Snapshots"]
    assert {tag["Key"]: tag["Value"] for tag in shown[0]["Tags"]} == tags
    assert bakes.snapshots(clients, image.snapshots)[image.snapshots[0]].progress == "100%"
    assert (tmp_path / "ran").read_text() == "ran\n"
    nothing = allow("s3:GetObject", "arn:aws:s3:::none/*")
    address = address_of(ground.aws, launched_from(ground, text, [nothing], {"ImageId": image_id}))
    assert eventually(lambda: get(address, "page"), "it serves") == "made\n"
    assert (tmp_path / "ran").read_text() == "ran\n"
    assert not bakes.delete(clients, image)


def test_an_instance_that_bakes_is_left_alone(
    ground: Ground, clients: Clients, name: str, stopped: str
) -> None:
    """The controller doesn't see it among a service's instances: it is no replica and no orphan."""
    assert not Ec2Fleet(clients).observe(name)
    (seen,) = Ec2Fleet(clients).look_up([stopped])
    assert seen.launch_id is None
    assert at_work(clients, TAG_BAKE, name) == []


def test_a_set_up_that_fails_ends_the_instance(
    ground: Ground, clients: Clients, name: str, tmp_path: Path
) -> None:
    """By itself, and it says so."""
    file = tmp_path / "chat.yaml"
    file.write_text(FILE.format(ran=tmp_path / "ran").replace("echo made > ../made", "false"))
    maker, id_ = launched(ground, clients, name, user_data(load(file), "us-east-1"))
    assert bakes.is_allowed(clients, id_, name, {})
    eventually(lambda: maker.state(id_) == "terminated", "it is gone")
    assert "nothing is baked: set-up has failed" in console_output(clients, id_)
    with pytest.raises(Denied, match="Instance is not in state 'running' or 'stopped'"):
        bakes.create(clients, id_, name, {})


def test_snapshots_outlive_their_image(ground: Ground, clients: Clients, name: str, stopped: str) -> None:
    """Unless they are to go with it; from then on nothing is launched from it."""
    ec2 = ground.aws.ec2
    bakes.create(clients, stopped, name, bakes.tags(name, "1", BASE, {}))
    image = available(clients, name)
    kept = bakes.snapshots(clients, image.snapshots)
    assert kept
    ec2.deregister_image(ImageId=image.id)
    assert bakes.snapshots(clients, image.snapshots) == kept
    assert not bakes.images(clients, name)
    with pytest.raises(ClientError, match=r"InvalidAMIID\.NotFound"):
        ec2.describe_images(ImageIds=[image.id])
    # The name is free again.
    bakes.create(clients, stopped, name, bakes.tags(name, "1", BASE, {}))
    image = available(clients, name)
    assert not bakes.delete(clients, image)
    assert not bakes.snapshots(clients, image.snapshots)


def test_who_may_not_bake_learns_it_before(ground: Ground, clients: Clients, name: str, stopped: str) -> None:
    """Stopping, making an image and tagging it are asked for ahead, and nothing is done."""
    tags = bakes.tags(name, "1", BASE, {})
    allowed = {"Effect": "Allow", "Resource": "*"}
    other = ground.aws.assume({**allowed, "Action": ["ec2:StopInstances", "ec2:CreateImage"]})
    with pytest.raises(Denied, match="not authorized to perform: ec2:CreateTags"):
        bakes.is_allowed(Clients(other.session), stopped, name, tags)
    other = ground.aws.assume({**allowed, "Action": ["ec2:CreateImage", "ec2:CreateTags"]})
    with pytest.raises(Denied, match="not authorized to perform: ec2:StopInstances"):
        bakes.is_allowed(Clients(other.session), stopped, name, tags)
    assert bakes.is_allowed(clients, stopped, name, tags)
    assert not bakes.images(clients, name)


def test_snapshots_that_may_not_go_are_named(
    ground: Ground, clients: Clients, name: str, stopped: str
) -> None:
    """Their image is gone then: what is left costs on."""
    bakes.create(clients, stopped, name, bakes.tags(name, "1", BASE, {}))
    image = available(clients, name)
    allowed = {"Effect": "Allow", "Action": "ec2:DeregisterImage", "Resource": "*"}
    left = bakes.delete(Clients(ground.aws.assume(allowed).session), image)
    assert left == f"{image.snapshots[0]} (missing-permissions)"
    assert bakes.snapshots(clients, image.snapshots)

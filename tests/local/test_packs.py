"""Packs on the local cloud: one instance makes one, another starts from it, and replicas can't write any."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from spotrelay.file.instance import bundle, packing
from spotrelay.file.instance.packs import Store, prefix
from spotrelay.file.service import Service, load, user_data
from spotrelay.file.values.files import Pack
from spotrelay.operator.aws import packs
from spotrelay.operator.aws.makers import Deployed, Maker, at_work
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.fleet import Ec2Fleet
from spotrelay.plane.core.names import TAG_PACK
from spotrelay.plane.core.pools import CapacityPool
from tests.local.conftest import Ground, eventually
from tests.local.test_instance_files import address_of, allow, get, launched_from, profile_of

pytestmark = pytest.mark.xdist_group("local")

FILE = """\
service: {{replicas: 1}}
resources: {{accelerators: L4, ports: 8081}}
spotrelay: {{pack: {{paths: [/opt/made]}}}}
setup: |
  mkdir -p {made} && echo "$HOSTNAME $RANDOM $RANDOM" > {made}/who && echo ran >> {ran}
run: cd {made} && exec python -m http.server --bind "$HOST" "$PORT"
"""


@pytest.fixture
def bucket(ground: Ground) -> str:
    """An empty one."""
    name = f"assets-{uuid.uuid4().hex[:8]}"
    ground.aws.client("s3").create_bucket(Bucket=name)
    return name


@pytest.fixture
def service(tmp_path: Path) -> Service:
    """Its set-up makes a directory with a number that no other has, and says that it ran."""
    file = tmp_path / "chat.yaml"
    file.write_text(FILE.format(made=tmp_path / "made", ran=tmp_path / "ran"))
    return replace(load(file), pack=Pack((str(tmp_path / "made"),)))


def may(bucket: str, *actions: str) -> list[dict[str, Any]]:
    """What a role may do with the service's packs; its files it may read in any case."""
    packs_, files = f"arn:aws:s3:::{bucket}/{prefix('chat')}/*", f"arn:aws:s3:::{bucket}/files.tar.gz"
    return [allow("s3:GetObject", files), *(allow(action, packs_) for action in actions)]


def deployed(ground: Ground, service: Service, bucket: str) -> str:
    """The user data of its instances, whose files are in the bucket, too."""
    archive = service.path.with_name("files.tar.gz")
    sha256 = bundle.write(service, archive)
    ground.aws.client("s3").upload_file(str(archive), bucket, "files.tar.gz")
    files = bundle.Archive(f"s3://{bucket}/files.tar.gz", sha256)
    return user_data(service, "us-east-1", files, Store(bucket, "fit"))


@contextmanager
def making(ground: Ground, service: Service, bucket: str, *actions: str) -> Iterator[tuple[Maker, str]]:
    """An instance that makes a pack, with a role that may do this, and its ID."""
    clients, ec2 = Clients(ground.aws.session), ground.aws.ec2
    text = deployed(ground, service, bucket)
    data: Any = {
        "ImageId": "ami-0abcdef1234567890",
        "UserData": base64.b64encode(text.encode()).decode(),
    }
    name = f"pack-{uuid.uuid4().hex[:8]}"
    template = ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)["LaunchTemplate"]
    found = Deployed.found(clients, template["LaunchTemplateId"], "1")
    assert found.user_data == text
    profile = profile_of(ground.aws, may(bucket, *actions))
    own = {"IamInstanceProfile": {"Arn": profile["Arn"]}}
    what = packing.user_data(found.user_data)
    maker = Maker(clients, found, service.name, TAG_PACK, what, {"team": "a"}, own)
    subnets = {ground.subnets[0]: "us-east-1a"}
    id_, _ = maker.launch([CapacityPool("us-east-1", "us-east-1a", "g6.2xlarge")], subnets)
    yield maker, id_


def ends_itself(maker: Maker, id_: str) -> None:
    """Nobody has told EC2 to end it."""
    eventually(lambda: maker.state(id_) == "terminated", "it is gone")


def test_a_replica_starts_from_a_pack(
    ground: Ground, service: Service, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it serves is what the other instance's set-up made; its own doesn't run."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", ground.aws.endpoint)
    clients = Clients(ground.aws.session)
    with making(ground, service, bucket, "s3:PutObject") as (maker, id_):
        ends_itself(maker, id_)
    (found,) = packs.made(clients, bucket, prefix("chat", "fit")).packs
    made = (tmp_path / "made" / "who").read_text()
    (tmp_path / "made").rename(tmp_path / "gone")
    (tmp_path / "ran").unlink()
    pinned = replace(service, pack=Pack((str(tmp_path / "made"),), found.manifest))
    text = deployed(ground, pinned, bucket)
    address = address_of(ground.aws, launched_from(ground, text, may(bucket, "s3:GetObject")))
    assert eventually(lambda: get(address, "who"), "it serves") == made
    assert not (tmp_path / "ran").exists()


def test_a_replica_that_may_not_read_its_pack_runs_set_up(
    ground: Ground, service: Service, bucket: str, tmp_path: Path
) -> None:
    """A pack never stops a start."""
    pinned = replace(service, pack=Pack((str(tmp_path / "made"),), "0" * 64))
    text = deployed(ground, pinned, bucket)
    address = address_of(ground.aws, launched_from(ground, text, may(bucket)))
    eventually(lambda: get(address, "who"), "it serves")
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_who_may_only_read_packs_writes_none(
    ground: Ground, service: Service, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica's role doesn't do for packing; who fails ends itself, as who succeeds does."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", ground.aws.endpoint)
    with making(ground, service, bucket, "s3:GetObject") as (maker, id_):
        ends_itself(maker, id_)
    assert (tmp_path / "ran").read_text() == "ran\n"
    assert not packs.made(Clients(ground.aws.session), bucket, prefix("chat", "fit")).packs


def test_an_instance_that_packs_is_left_alone(
    ground: Ground, service: Service, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller doesn't see it among a service's instances: it is no replica and no orphan."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", ground.aws.endpoint)
    clients = Clients(ground.aws.session)
    with making(ground, replace(service, setup="sleep 60"), bucket) as (maker, id_):
        assert maker.state(id_) in ("pending", "running")
        assert not Ec2Fleet(clients).observe("chat")
        (seen,) = Ec2Fleet(clients).look_up([id_])
        assert seen.launch_id is None
        # What `pack` and `down` go by.
        assert at_work(clients, TAG_PACK, "chat") == [id_]
        assert at_work(clients, TAG_PACK, "other") == []
        maker.end(id_)
    eventually(lambda: maker.state(id_) == "terminated", "it is gone")
    assert at_work(clients, TAG_PACK, "chat") == []


def test_old_packs_go(ground: Ground, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that the kept one doesn't have, and nothing of another service; what is new stays, too."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", ground.aws.endpoint)
    clients, s3 = Clients(ground.aws.session), ground.aws.client("s3")
    below, kept = prefix("chat", "fit"), "1" * 64
    bodies = {
        f"{below}/{kept}.json": b'{"shards": [{"sha256": "a"}]}',
        f"{below}/a": b"",
        f"{below}/b": b"",
        f"{prefix('chat', 'earlier')}/{'2' * 64}.json": b"{}",
        f"{prefix('chat-2', 'fit')}/c": b"",
    }
    for key, body in bodies.items():
        s3.put_object(Bucket=bucket, Key=key, Body=body)
    keys = packs.keys(clients, bucket, below, [kept, "3" * 64])
    assert keys == {f"{below}/{kept}.json", f"{below}/a"}
    now = datetime.now(UTC)
    assert packs.drop(clients, bucket, prefix("chat"), keys, now - timedelta(hours=1)) == 0
    assert packs.drop(clients, bucket, prefix("chat"), keys, now + timedelta(hours=1)) == 2
    left = {one["Key"] for one in s3.list_objects_v2(Bucket=bucket)["Contents"]}
    assert left == {*keys, f"{prefix('chat-2', 'fit')}/c"}
    with pytest.raises(ClientError):
        s3.get_object(Bucket=bucket, Key=f"{below}/b")

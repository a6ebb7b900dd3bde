"""Instances with files: what the user data fetches with the instance's role, on the local cloud."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from botocore.exceptions import ClientError

from lab.local.environment import ACCOUNT
from spotrelay.file.instance import bundle
from spotrelay.file.service import Service, load, user_data
from spotrelay.file.values.files import Bucket, FileMount
from tests.local.conftest import Aws, Ground, eventually

pytestmark = pytest.mark.xdist_group("local")

FILE = """\
service: {replicas: 1}
resources: {accelerators: L4, ports: 8081}
secrets: {TOKEN: /chat/token}
setup: cp ~/models/llama/8b/weights page/
run: |
  echo "$TOKEN $SKYPILOT_NODE_IPS $SKYPILOT_NUM_NODES" > page/told
  cd page && exec python -m http.server --bind "$HOST" "$PORT"
"""


@pytest.fixture
def service(tmp_path: Path) -> Service:
    """It serves a directory of this machine, beside a model from a bucket and a secret."""
    file = tmp_path / "chat.yaml"
    file.write_text(FILE)
    (tmp_path / "code" / "page").mkdir(parents=True)
    (tmp_path / "code" / "page" / "index.html").write_text("from the work directory")
    mount = FileMount("~/models/llama", Bucket("models", "llama"))
    return replace(load(file), workdir=tmp_path / "code", file_mounts=(mount,))


def launched(ground: Ground, service: Service, archive: Path, *statements: dict[str, Any]) -> str:
    """The address of an instance of the service whose role may do this."""
    aws = ground.aws
    for bucket in ("assets", "models"):
        aws.client("s3").create_bucket(Bucket=bucket)
    sha256 = bundle.write(service, archive)
    aws.client("s3").upload_file(str(archive), "assets", "files.tar.gz")
    aws.client("s3").put_object(Bucket="models", Key="llama/8b/weights", Body=b"0.1 0.2")
    aws.client("ssm").put_parameter(Name="/chat/token", Value="hush", Type="String", Overwrite=True)
    text = user_data(service, "us-east-1", bundle.Archive("s3://assets/files.tar.gz", sha256))
    return address_of(aws, launched_from(ground, text, statements))


def profile_of(aws: Aws, statements: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A new instance profile, of a role that may do this."""
    name, iam = f"role-{uuid.uuid4().hex[:8]}", aws.client("iam")
    trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps({"Statement": [trust]}))
    policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
    iam.put_role_policy(RoleName=name, PolicyName="p", PolicyDocument=policy)
    profile: dict[str, Any] = iam.create_instance_profile(InstanceProfileName=name)["InstanceProfile"]
    iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
    return profile


def launched_from(
    ground: Ground,
    text: str,
    statements: Sequence[dict[str, Any]],
    more: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
) -> str:
    """An instance with this user data and these tags, whose role may do this."""
    aws = ground.aws
    data: dict[str, Any] = {
        "ImageId": "ami-0abcdef1234567890",
        "UserData": base64.b64encode(text.encode()).decode(),
        "IamInstanceProfile": {"Arn": profile_of(aws, statements)["Arn"]},
        **(more or {}),
    }
    if tags:
        named = [{"Key": key, "Value": value} for key, value in tags.items()]
        data["TagSpecifications"] = [{"ResourceType": "instance", "Tags": named}]
    template = aws.ec2.create_launch_template(
        LaunchTemplateName=f"template-{uuid.uuid4().hex[:8]}",
        LaunchTemplateData=data,  # type: ignore[arg-type]
    )["LaunchTemplate"]["LaunchTemplateId"]
    (id_,) = replace(ground, template=template).running(1, ["g6.2xlarge"])
    return id_


def address_of(aws: Aws, id_: str) -> str:
    """Where an instance listens."""
    (instance,) = (i for i in aws.local.instances() if i["instance_id"] == id_)
    return str(instance["address"])


def get(address: str, path: str) -> str | None:
    """What a replica says; None while it doesn't."""
    try:
        with urlopen(f"http://{address}:8081/{path}", timeout=2) as answer:
            return str(answer.read().decode())
    except OSError:
        return None


def allow(action: str, resource: str, account: str = ACCOUNT) -> dict[str, Any]:
    """A statement of the instance's role, for what this account has."""
    owned = {"StringEquals": {"aws:ResourceAccount": account}}
    return {"Effect": "Allow", "Action": action, "Resource": resource, "Condition": owned}


def test_a_service_with_a_work_directory_serves(ground: Ground, service: Service, tmp_path: Path) -> None:
    """Its files, a bucket's and a secret are there, fetched with what the role may do and no more."""
    address = launched(
        ground,
        service,
        tmp_path / "files.tar.gz",
        allow("s3:GetObject", "arn:aws:s3:::assets/files.tar.gz"),
        allow("s3:GetObject", "arn:aws:s3:::models/llama/*"),
        allow("s3:ListBucket", "arn:aws:s3:::models"),
        allow("ssm:GetParameter", "arn:aws:ssm:us-east-1:000000000000:parameter/chat/token"),
    )
    assert eventually(lambda: get(address, ""), "it serves") == "from the work directory"
    assert get(address, "weights") == "0.1 0.2"
    assert get(address, "told") == f"hush {address} 1\n"


def test_a_bucket_of_another_account_is_not_read(ground: Ground) -> None:
    """A role that may read what its own account has is refused elsewhere: who owns a bucket is asked."""
    ground.aws.client("s3").create_bucket(Bucket="owned")
    ground.aws.client("s3").put_object(Bucket="owned", Key="files.tar.gz", Body=b"")
    at = "arn:aws:s3:::owned/files.tar.gz"
    ours, theirs = (
        ground.aws.assume(allow("s3:GetObject", at, account)).client("s3") for account in (ACCOUNT, "1" * 12)
    )
    assert ours.get_object(Bucket="owned", Key="files.tar.gz")["ContentLength"] == 0
    with pytest.raises(ClientError, match="AccessDenied"):
        theirs.get_object(Bucket="owned", Key="files.tar.gz")

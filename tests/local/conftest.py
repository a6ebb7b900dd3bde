"""One local cloud for the tests of this folder, each with a network and a launch template of its own."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import boto3
import pytest
from botocore.config import Config

from lab.local.client import LocalCloud

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import CreateFleetResultTypeDef
    from mypy_boto3_elbv2 import ElasticLoadBalancingv2Client
    from mypy_boto3_sqs import SQSClient

PATIENCE_S = 30.0
"""Until something that must happen is given up: no test is judged by its speed."""

T = TypeVar("T")

USER_DATA = """#cloud-config
write_files:
- path: /opt/spotrelay/service.env
  content: |
    HOST="0.0.0.0"
    PORT="8081"
- path: /opt/spotrelay/run.sh
  content: exec python -m http.server --bind "$HOST" "$PORT"
"""


def eventually(look: Callable[[], T | None], what: str) -> T:
    """What `look` finds once it finds something; a failure that names `what` if it never does."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"never happened: {what}")


@dataclass(frozen=True)
class Aws:
    """The local cloud and boto3 clients for it, as the operator or as somebody with other credentials."""

    endpoint: str
    credentials: tuple[str, str, str | None] = ("test", "test", None)

    @property
    def local(self) -> LocalCloud:
        """The control API."""
        return LocalCloud(self.endpoint)

    def client(self, service: str, attempts: int = 1) -> Any:
        """A boto3 client that tries so many times."""
        key, secret, token = self.credentials
        make = partial(boto3.client, service)  # its overloads want a literal name
        return make(
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            aws_session_token=token,
            config=Config(retries={"total_max_attempts": attempts}),
        )

    @property
    def session(self) -> boto3.Session:
        """For who makes clients by itself; where the local cloud is says AWS_ENDPOINT_URL."""
        key, secret, token = self.credentials
        return boto3.Session(key, secret, token, "us-east-1")

    @property
    def ec2(self) -> EC2Client:
        """EC2."""
        client: EC2Client = self.client("ec2")
        return client

    @property
    def elb(self) -> ElasticLoadBalancingv2Client:
        """Elastic Load Balancing."""
        client: ElasticLoadBalancingv2Client = self.client("elbv2")
        return client

    @property
    def sqs(self) -> SQSClient:
        """SQS."""
        client: SQSClient = self.client("sqs")
        return client

    def queue(self, *services: str) -> tuple[str, str]:
        """URL and ARN of a new queue that these AWS services may write to, such as events.amazonaws.com."""
        name = f"queue-{uuid.uuid4().hex[:8]}"
        arn = f"arn:aws:sqs:us-east-1:000000000000:{name}"
        write = {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": arn}
        statements = [{**write, "Principal": {"Service": service}} for service in services]
        url = self.sqs.create_queue(QueueName=name)["QueueUrl"]
        if services:
            policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
            self.sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
        return url, arn

    def assume(self, *statements: dict[str, Any]) -> Aws:
        """Somebody with a role that may do this and nothing else."""
        iam, name = self.client("iam"), f"role-{uuid.uuid4().hex[:8]}"
        trust = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
        role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps({"Statement": [trust]}))
        if statements:
            policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
            iam.put_role_policy(RoleName=name, PolicyName="p", PolicyDocument=policy)
        sts = self.client("sts")
        got = sts.assume_role(RoleArn=role["Role"]["Arn"], RoleSessionName="test")["Credentials"]
        return Aws(self.endpoint, (got["AccessKeyId"], got["SecretAccessKey"], got["SessionToken"]))


@pytest.fixture(scope="session")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    """A local cloud in a process of its own, with a short warning and fast schedules."""
    ready = tmp_path_factory.mktemp("local") / "ready.json"
    process = start(ready, "--warning-s", "2", "--boot-s", "0.2", "--schedule-s", "1")
    try:
        aws = Aws(endpoint_of(process, ready))
        aws.local.show_late(0, 0)  # but for the test of that, which says so
        yield aws
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def start(ready: Path, *options: str) -> subprocess.Popen[str]:
    """The command, on a free port."""
    command = [sys.executable, "-m", "lab.local", "--port", "0", "--ready-file", str(ready), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def endpoint_of(process: subprocess.Popen[str], ready: Path) -> str:
    """Where it answers, once it does."""
    eventually(lambda: ready.exists() or process.poll() is not None, "the local cloud is ready")
    assert process.poll() is None, process.stderr.read() if process.stderr else ""
    return str(json.loads(ready.read_text())["endpoint"])


@dataclass(frozen=True)
class Ground:
    """A VPC with two subnets, and a launch template for an instance that serves HTTP on port 8081."""

    aws: Aws
    vpc: str
    subnets: tuple[str, str]
    template: str

    def fleet(
        self,
        types: list[str],
        count: int = 1,
        *,
        option: str = "spot",
        by: Aws | None = None,
        **more: Any,
    ) -> CreateFleetResultTypeDef:
        """An instant fleet over these types in both subnets."""
        overrides = [
            {"InstanceType": type_, "SubnetId": subnet, "Priority": float(i)}
            for i, type_ in enumerate(types)
            for subnet in self.subnets
        ]
        request: dict[str, Any] = {
            "Type": "instant",
            "LaunchTemplateConfigs": [
                {
                    "LaunchTemplateSpecification": {"LaunchTemplateId": self.template, "Version": "$Latest"},
                    "Overrides": overrides,
                }
            ],
            "TargetCapacitySpecification": {
                "TotalTargetCapacity": count,
                "DefaultTargetCapacityType": option,
            },
            "SpotOptions": {"AllocationStrategy": "price-capacity-optimized"},
            "OnDemandOptions": {"AllocationStrategy": "prioritized"},
            **more,
        }
        return (by or self.aws).ec2.create_fleet(**request)

    def running(self, count: int = 1, types: list[str] | None = None) -> list[str]:
        """IDs of so many running Spot instances."""
        answer = self.fleet(types or ["g5.2xlarge", "g6.2xlarge"], count)
        ids = [id_ for row in answer["Instances"] for id_ in row["InstanceIds"]]
        assert len(ids) == count, answer["Errors"]
        eventually(lambda: set(self.states(ids)) == {"running"}, f"{ids} run")
        return ids

    def states(self, ids: list[str]) -> list[str]:
        """Their states."""
        reservations = self.aws.ec2.describe_instances(InstanceIds=ids)["Reservations"]
        return [i["State"]["Name"] for r in reservations for i in r["Instances"]]


@pytest.fixture
def ground(aws: Aws) -> Iterator[Ground]:
    """Fresh ground; the market is as at the start again afterwards, and no instance is left."""
    vpc = aws.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    first, second = (
        aws.ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{i}.0/24", AvailabilityZone=f"us-east-1{zone}")[
            "Subnet"
        ]["SubnetId"]
        for i, zone in enumerate("ab")
    )
    template = aws.ec2.create_launch_template(
        LaunchTemplateName=f"template-{uuid.uuid4().hex[:8]}",
        LaunchTemplateData={
            "ImageId": "ami-0abcdef1234567890",
            "UserData": base64.b64encode(USER_DATA.encode()).decode(),
            "TagSpecifications": [
                {"ResourceType": "instance", "Tags": [{"Key": "from", "Value": "template"}]}
            ],
        },
    )["LaunchTemplate"]["LaunchTemplateId"]
    yield Ground(aws, vpc, (first, second), template)
    aws.local.clear_faults()
    aws.local.bring_back()
    left = ("pending", "running", "stopping", "stopped")
    alive = [i["instance_id"] for i in aws.local.instances() if i["state"] in left]
    if alive:
        aws.ec2.terminate_instances(InstanceIds=alive)

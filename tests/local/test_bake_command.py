"""`spotrelay bake` against the local cloud: what it makes, what it refuses, and what it leaves."""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from typer.testing import CliRunner

from lab.local.client import LocalCloud
from spotrelay.file.service import load, user_data
from spotrelay.operator.aws import bakes
from spotrelay.operator.aws.makers import HALTED, at_work, workers
from spotrelay.operator.cli.app import app
from spotrelay.operator.cli.deploying import Limit
from spotrelay.operator.cli.down import Removal, images
from spotrelay.operator.cli.telling import Teller
from spotrelay.operator.deploy.remains import Remains
from spotrelay.operator.deploy.stacks import Stack
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.store import DynamoStore
from spotrelay.plane.aws.table import Table
from spotrelay.plane.core.names import CONTROL_PLANE_PARAMETER, TAG_BAKE, service_parameter
from spotrelay.plane.core.spec import ServiceSpec
from tests.cli.test_deploying import FakeStacks
from tests.contract.conftest import make_table
from tests.documented import policy
from tests.examples import demo_spec
from tests.json_documents import check
from tests.local.conftest import Ground

pytestmark = pytest.mark.xdist_group("local")

FILE = """\
service: {replicas: 1}
resources: {instance_types: [g6.2xlarge], ports: 8081}
setup: echo made > ../made
run: exec python3 -m http.server
"""

BASE = "ami-0abcdef1234567890"

TYPE = "g6.2xlarge"

LOOKS_S = {"makers": 0.04, "bake": 0.05}
"""Between looks at set-up, and at an image."""


@dataclass
class Deployed:
    """A service on the local cloud, without a control plane at work."""

    ground: Ground
    clients: Clients
    file: Path
    spec: ServiceSpec
    user_data: str
    """In base64."""

    @property
    def name(self) -> str:
        """The service's."""
        return self.spec.service

    def run(self, *options: str, answer: str = "") -> tuple[int, str, str]:
        """Exit code, output and errors of a baking, without line breaks."""
        endpoint = self.ground.aws.endpoint
        arguments = ["bake", str(self.file), "--endpoint-url", endpoint, *options]
        result = CliRunner().invoke(app, arguments, input=answer)
        return result.exit_code, result.stdout, " ".join(result.stderr.split())

    def baked(self) -> str:
        """The ID of an image that the command made."""
        code, out, err = self.run("--yes", "--json")
        assert code == 0, err
        document = json.loads(out)
        check("bake", document)
        return str(document["image_id"])

    def deploy(self, image_id: str) -> None:
        """Another version, with this image."""
        ec2: Any = self.clients.ec2
        version = ec2.create_launch_template_version(
            LaunchTemplateId=self.spec.launch_template_id,
            LaunchTemplateData={"ImageId": image_id, "UserData": self.user_data},
        )["LaunchTemplateVersion"]["VersionNumber"]
        self.spec = replace(self.spec, version=version)
        publish(self.clients, self.spec)

    def left(self) -> list[str]:
        """Instances that bake, or did and are stopped."""
        halted = [one.id for one in workers(self.clients, TAG_BAKE, self.name, HALTED)]
        return at_work(self.clients, TAG_BAKE, self.name) + halted

    def images(self) -> dict[str, str]:
        """Images by ID, with their states."""
        return {one.id: one.state for one in bakes.images(self.clients, self.name)}


def publish(clients: Clients, spec: ServiceSpec) -> None:
    """The service's document, as its stack writes it."""
    ssm: Any = clients.ssm
    value = json.dumps(spec.to_dict())
    ssm.put_parameter(Name=service_parameter(spec.service), Value=value, Type="String", Overwrite=True)


def profile(ground: Ground, name: str) -> str:
    """The ARN of an instance profile of a replica's role, which may do nothing."""
    iam = ground.aws.client("iam")
    trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    iam.create_role(RoleName=name, Path="/spotrelay/", AssumeRolePolicyDocument=document)
    made = iam.create_instance_profile(InstanceProfileName=name, Path="/spotrelay/")["InstanceProfile"]
    iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
    return str(made["Arn"])


@pytest.fixture
def text() -> str:
    """The service file's."""
    return FILE


@pytest.fixture
def service(ground: Ground, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> Iterator[Deployed]:
    """With nothing of this machine's own AWS configuration; looks take no time."""
    for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    for name, value in {
        "AWS_ENDPOINT_URL": ground.aws.endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }.items():
        monkeypatch.setenv(name, value)
    for module, look_s in LOOKS_S.items():
        monkeypatch.setattr(f"spotrelay.operator.cli.{module}.LOOK_S", look_s)
    file = tmp_path / f"s{uuid.uuid4().hex[:8]}.yaml"
    file.write_text(text)
    clients = Clients(ground.aws.session)
    ec2: Any = clients.ec2
    loaded = load(file)
    given = base64.b64encode(user_data(loaded, "us-east-1").encode()).decode()
    data = {
        "ImageId": BASE,
        "UserData": given,
        "IamInstanceProfile": {"Arn": profile(ground, loaded.name)},
    }
    template = ec2.create_launch_template(LaunchTemplateName=loaded.name, LaunchTemplateData=data)[
        "LaunchTemplate"
    ]["LaunchTemplateId"]
    spec = replace(
        demo_spec(),
        service=loaded.name,
        launch_template_id=template,
        version=1,
        instance_types=loaded.instance_type_names,
        subnets={ground.subnets[0]: "us-east-1a", ground.subnets[1]: "us-east-1b"},
    )
    table = f"table-{loaded.name}"
    make_table(clients, table)
    ssm: Any = clients.ssm
    claim = json.dumps({"table": table, "tick_queue_url": "https://q"})
    ssm.put_parameter(Name=CONTROL_PLANE_PARAMETER, Value=claim, Type="String", Overwrite=True)
    publish(clients, spec)
    yield Deployed(ground, clients, file, spec, given)
    ssm.delete_parameters(Names=[CONTROL_PLANE_PARAMETER, service_parameter(loaded.name)])


def meanwhile(monkeypatch: pytest.MonkeyPatch, module: str, happens: Callable[[], None]) -> None:
    """Once, while the command waits for set-up (`makers`) or for the image (`bake`)."""
    real, left = time.sleep, [happens]

    def sleep(seconds: float) -> None:
        real(seconds)
        if left and seconds == LOOKS_S[module]:
            left.pop()()

    monkeypatch.setattr("time.sleep", sleep)


def stop() -> None:
    """As Ctrl-C does."""
    raise KeyboardInterrupt


def test_an_image_is_made(service: Deployed) -> None:
    """Costs are said before and after, and what to write where; nothing is left that costs but the image."""
    code, out, err = service.run("--yes")
    assert code == 0, err
    out = " ".join(out.split())
    assert f"{service.name}: an on-demand g6.2xlarge runs set-up on {BASE}: an unknown price an hour" in out
    assert "0.05 USD a month for each GiB" in out
    ((image_id, state),) = service.images().items()
    assert state == "available"
    assert f"{image_id} is baked" in out
    assert f"Write it into {service.file}, resources: image_id: {image_id}, and then spotrelay up" in out
    assert not service.left()


def test_it_asks_before_it_costs(service: Deployed) -> None:
    """No is no."""
    code, out, _ = service.run(answer="n\n")
    assert code != 0
    assert "Go on?" in out
    assert not service.left()
    assert "--json needs --yes" in service.run("--json")[2]
    assert f"--prune bakes nothing: leave out --base {BASE}" in service.run("--prune", "--base", BASE)[2]


def test_images_do_not_pile_up(service: Deployed) -> None:
    """The next one is baked on what the first was, and says which are older; --prune deletes what nothing
    uses, and neither the newest nor what a version names that replicas may still get."""
    first = service.baked()
    service.deploy(first)
    second = service.baked()
    third = service.baked()
    assert {one.base for one in bakes.images(service.clients, service.name)} == {BASE}
    code, out, err = service.run("--prune", answer="n\n")
    assert code != 0
    assert f"stays: {first} (of version 1" in out
    assert f"used by version 2 of {service.name}" in out
    assert f"goes: {second}" in out
    assert f"stays: {third}" in out
    assert set(service.images()) == {first, second, third}
    service.file.write_text(FILE.replace("ports: 8081", f"ports: 8081, image_id: {second}"))
    assert f"stays: {second} (of version 2" in service.run("--prune", "--yes")[1]
    service.file.write_text(FILE)
    # Of another service nobody can say what it uses.
    ssm: Any = service.clients.ssm
    other = service_parameter("other")
    ssm.put_parameter(Name=other, Value="{", Type="String")
    assert service.run("--prune", "--yes")[0] != 0
    ssm.delete_parameter(Name=other)
    assert set(service.images()) == {first, second, third}
    snapshots = [id_ for one in bakes.images(service.clients, service.name) for id_ in one.snapshots]
    code, out, err = service.run("--prune", "--yes", "--json")
    assert code == 0, err
    document = json.loads(out)
    check("bake", document)
    assert [one["image_id"] for one in document["images"] if one["is_deleted"]] == [second]
    assert set(service.images()) == {first, third}
    assert len(bakes.snapshots(service.clients, snapshots)) == 2
    # Of an earlier version that somebody may go back to.
    service.deploy(third)
    store = DynamoStore(Table(service.clients, f"table-{service.name}"))
    earlier = replace(service.spec, version=2)
    store.keep_document(service.spec, {2: earlier})
    code, out, err = service.run("--prune", "--yes")
    assert code == 0, err
    assert set(service.images()) == {first, third}


def test_who_is_interrupted_before_there_is_an_image_leaves_nothing(
    service: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Ctrl-C while set-up runs."""
    meanwhile(monkeypatch, "makers", stop)
    assert service.run("--yes")[0] != 0
    assert not service.left()
    assert not service.images()


def test_who_may_make_no_image_learns_it_before_set_up_is_over(
    service: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is stopped, and nothing left."""
    service.ground.aws.local.deny("ec2:CreateImage", "*")
    monkeypatch.setattr("spotrelay.operator.aws.bakes.stop", lambda *_: stop())
    code, _, err = service.run("--yes")
    assert code != 0
    assert "ec2:CreateImage" in err
    assert not service.left()


def test_an_interrupted_command_is_gone_on_with(service: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Ctrl-C while EC2 makes the image: the next one waits for it, makes no other, ends the instance."""
    meanwhile(monkeypatch, "bake", stop)
    code, out, _ = service.run("--yes")
    assert code != 0
    assert "goes on" in out
    ((image_id, state),) = service.images().items()
    assert state == "pending"
    (instance_id,) = service.left()
    code, out, err = service.run("--yes")
    assert code == 0, err
    assert f"{image_id} was begun" in out
    assert out.index("was begun") < out.index(f"{instance_id} ends"), "not while EC2 makes the image"
    assert service.images() == {image_id: "available"}
    assert not service.left()


def test_what_a_dead_command_left_is_ended(service: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that runs is waited for; one that is stopped ends: nobody knows whether set-up was over."""
    with monkeypatch.context() as patch:
        # As if the machine of the command had lost its power.
        patch.setattr("spotrelay.operator.aws.makers.end", lambda *_: None)
        meanwhile(patch, "makers", stop)
        service.run("--yes")
    (instance_id,) = service.left()
    code, out, err = service.run("--yes")
    assert code == 0, err
    assert f"{instance_id} bakes {service.name} since" in out
    assert not service.left()
    with monkeypatch.context() as patch:
        patch.setattr("spotrelay.operator.aws.makers.end", lambda *_: None)
        patch.setattr("spotrelay.operator.aws.bakes.create", lambda *_: stop())
        service.run("--yes")
    (instance_id,) = service.left()
    code, out, err = service.run("--yes")
    assert code == 0, err
    assert f"{instance_id} ends" in out
    assert not service.left()


def test_another_version_at_work_is_not_taken_for_this_one(
    service: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named, and left alone."""
    with monkeypatch.context() as patch:
        patch.setattr("spotrelay.operator.aws.makers.end", lambda *_: None)
        meanwhile(patch, "makers", stop)
        service.run("--yes")
    (instance_id,) = service.left()
    service.deploy("ami-0fedcba9876543210")
    code, _, err = service.run("--yes")
    assert code == 1
    assert f"{instance_id} bakes another version or base of {service.name} already: wait until it" in err
    assert service.left() == [instance_id]


def test_an_image_that_fails(service: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    """In EC2's words; it is deleted with its snapshots, and the instance ends."""
    meanwhile(
        monkeypatch,
        "bake",
        lambda: service.ground.aws.local.fail_image(next(iter(service.images())), "Client.InternalError"),
    )
    code, _, err = service.run("--yes")
    assert code == 1
    assert "EC2 has made no image: ami-" in err
    assert "is failed: Client.InternalError" in err
    assert not service.images()
    assert not service.left()


def test_an_image_that_somebody_deregisters(service: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    """While EC2 makes it: nobody waits for it, and the instance ends."""
    ec2: Any = service.clients.ec2
    meanwhile(monkeypatch, "bake", lambda: ec2.deregister_image(ImageId=next(iter(service.images()))))
    code, _, err = service.run("--yes")
    assert code == 1
    assert "somebody has deregistered ami-" in err
    assert not service.left()


def test_time_that_is_over(service: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    """What EC2 makes goes on, and so does what it costs: it is said."""
    meanwhile(
        monkeypatch,
        "bake",
        lambda: monkeypatch.setattr("spotrelay.operator.cli.deploying.Limit.is_over", True),
    )
    code, _, err = service.run("--yes", "--timeout", "1h")
    assert code == 1
    assert "isn't available within 1 h. It goes on, and so does what its instance's disk costs" in err
    assert list(service.images().values()) == ["pending"]


@pytest.mark.parametrize("text", [FILE.replace("echo made > ../made", "echo no; exit 3")])
def test_a_set_up_that_fails(service: Deployed) -> None:
    """With its last lines."""
    code, _, err = service.run("--yes")
    assert code == 1
    assert "has ended without a disk that is ready for an image: nothing is baked: set-up has failed" in err
    assert "no" in err.partition("Before that:")[2]
    assert not service.images()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("setup: echo made > ../made\n", "", "there is no setup, so an image would have nothing new in it"),
        ("echo made", "echo other", "has another set-up than what is deployed, which would be baked"),
        (
            "ports: 8081",
            "ports: 8081, image_id: 'docker:vllm/vllm-openai:v0.11.0'",
            "resources.image_id names a container's image, and has no place for another",
        ),
    ],
)
def test_a_file_of_which_there_can_be_no_image(service: Deployed, old: str, new: str, words: str) -> None:
    """Nothing is launched."""
    service.file.write_text(FILE.replace(old, new))
    code, _, err = service.run("--yes")
    assert code in (1, 2)
    assert words in err
    assert not service.left()


@pytest.mark.parametrize(
    ("base", "change", "words"),
    [
        ("ami-0123456789abcdef0", {}, "does not exist: name one of us-east-1 with --base"),
        ("ami-0fedcba9876543210", {"architecture": "arm64"}, "is for arm64, and the instance types are"),
        ("ami-0fedcba9876543210", {"is_on_ebs": False}, "has its root volume not on EBS"),
        ("ami-0fedcba9876543210", {"root_device": "/dev/xvda"}, "calls its root volume /dev/xvda"),
        ("ami-0fedcba9876543210", {"is_available": False}, "isn't available: name another with --base"),
    ],
)
def test_an_image_that_nothing_can_be_baked_on(
    service: Deployed, monkeypatch: pytest.MonkeyPatch, base: str, change: dict[str, Any], words: str
) -> None:
    """It is looked at before anything is launched."""
    service.ground.aws.local.lose_image("ami-0123456789abcdef0")
    real = bakes.base
    monkeypatch.setattr("spotrelay.operator.aws.bakes.base", lambda *args: replace(real(*args), **change))
    code, _, err = service.run("--yes", "--base", base)
    service.ground.aws.local.find_image("ami-0123456789abcdef0")
    assert code == 1
    assert words in err
    assert not service.left()


def test_no_capacity(service: Deployed) -> None:
    """EC2's words, once each pool has refused."""
    local = service.ground.aws.local
    before = {pool["zone"]: pool["on_demand_capacity"] for pool in pools(local)}
    local.set_capacity(instance_type=TYPE, on_demand=0)
    code, _, err = service.run("--yes")
    for zone, capacity in before.items():
        local.set_capacity(zone, TYPE, on_demand=capacity)
    assert code == 1
    assert "We currently do not have sufficient g6.2xlarge capacity" in err
    assert not service.left()


def pools(local: LocalCloud) -> list[dict[str, Any]]:
    """Those of the service's type."""
    return [pool for pool in local.pools() if pool["instance_type"] == TYPE]


def test_what_the_page_grants_is_enough(service: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    """To bake and to prune; and it reaches no instance, image or snapshot that wasn't baked."""
    reads = ["dynamodb:*", "ssm:GetParameter*", "ec2:DescribeInstances"]
    allowed = {"Effect": "Allow", "Action": reads, "Resource": "*"}
    other = service.ground.aws.assume(allowed, *policy("bake.md", service.name))
    first = service.baked()
    key, secret, token = other.credentials
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    monkeypatch.setenv("AWS_SESSION_TOKEN", str(token))
    second = service.baked()
    code, out, err = service.run("--prune", "--yes")
    assert code == 0, err
    assert "1 of 2 images deleted" in out
    assert list(service.images()) == [second] != [first]
    (replica,) = service.ground.running(1, ["g6.2xlarge"])
    for ask in (
        lambda: other.ec2.terminate_instances(InstanceIds=[replica]),
        lambda: other.ec2.stop_instances(InstanceIds=[replica]),
        lambda: other.ec2.create_image(InstanceId=replica, Name="mine"),
    ):
        with pytest.raises(ClientError, match="UnauthorizedOperation"):
            ask()


def test_a_removal_ends_who_bakes_and_keeps_images(
    service: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance would keep the stack's security group from going; an image is for who deploys again, and
    it is said how to delete it."""
    monkeypatch.setattr("spotrelay.operator.cli.down.LOOK_S", 0.0)
    image_id = service.baked()
    with monkeypatch.context() as patch:
        patch.setattr("spotrelay.operator.aws.makers.end", lambda *_: None)
        meanwhile(patch, "makers", stop)
        service.run("--yes")
    assert service.left()
    fake: Any = FakeStacks()
    services = {service.name: Stack(service.name, service.name, "CREATE_COMPLETE", {})}
    found = images(service.clients, services)
    removal = Removal(service.clients, None, fake, {service.name: Remains()}, services, images=found)
    ssm: Any = service.clients.ssm
    ssm.delete_parameter(Name=service_parameter(service.name))  # as its stack does
    (end,) = removal.carried_out(Teller(), Limit.of(60))
    assert not end.left
    assert not service.left()
    (kept,) = removal.kept
    assert kept.startswith(f"image {image_id}, whose snapshot costs on: aws ec2 deregister-image")
    assert list(service.images()) == [image_id]

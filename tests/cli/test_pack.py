"""`spotrelay pack`: one instance, which ends in any case; and what speaks against launching it."""

from __future__ import annotations

import base64
import gzip
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws
from ruamel.yaml import YAML
from typer.testing import CliRunner

from spotrelay.file.instance.fitting import fit
from spotrelay.file.instance.packs import Store, prefix
from spotrelay.file.instance.userdata import environment
from spotrelay.file.service import Service, load, user_data
from spotrelay.operator.aws import packs
from spotrelay.operator.aws.packs import below
from spotrelay.operator.cli import deploying
from spotrelay.operator.cli.app import app
from spotrelay.operator.cli.down import Removal
from spotrelay.operator.cli.options import Where
from spotrelay.operator.cli.telling import Teller
from spotrelay.operator.deploy.remains import Remains
from spotrelay.operator.deploy.stacks import Stack, Stacks
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.core.names import CONTROL_PLANE_PARAMETER, TAG_PACK, TAG_SERVICE, service_parameter
from tests.cli.test_deploying import FakeStacks
from tests.contract.conftest import TABLE, make_table
from tests.examples import demo_spec
from tests.json_documents import check

FILE = """\
name: demo
service: {replicas: 1}
resources: {instance_types: [g6.xlarge, g5.xlarge], ports: 8081}
spotrelay: {pack: {paths: [/opt/made]}}
setup: mkdir -p /opt/made
run: exec python3 -m http.server
"""

WARM = FILE.replace("]}}", "], warm: true}}")

BUCKET, MANIFEST, OLD, NEW = "packs", "1" * 64, "2" * 64, "3" * 64


@dataclass
class Account:
    """An account of moto's with the service of FILE, deployed."""

    clients: Clients
    file: Path
    service: Service
    stack: Stack | None
    """The service's."""

    def run(self, *options: str, answer: str = "") -> tuple[int, str, str]:
        """Exit code, output and errors of a packing."""
        arguments = ["pack", str(self.file), "--region", "us-east-1", *options]
        result = CliRunner().invoke(app, arguments, input=answer)
        return result.exit_code, result.stdout, result.stderr

    def instances(self) -> list[dict[str, Any]]:
        """All that was ever launched."""
        answer: Any = self.clients.ec2.describe_instances()
        return [i for reservation in answer["Reservations"] for i in reservation["Instances"]]

    def packed(self, body: bytes = b'{"shards": []}') -> None:
        """What the instance does last."""
        self.put(f"{MANIFEST}.json", body)

    def cached(self, kind: str, manifest: str, shard: str = "") -> None:
        """What one that also makes an engine cache does after that."""
        said = {"shards": [{"sha256": shard}] if shard else [], "starts_s": [93.4, 31.2]}
        self.put(f"caches/{kind}/{manifest}.json", json.dumps(said).encode())
        if shard:
            self.put(f"caches/{kind}/{shard}")

    def put(self, name: str, body: bytes = b"") -> None:
        """An object of its present set-up."""
        self.clients.s3.put_object(Bucket=BUCKET, Key=f"{below(self.service)}/{name}", Body=body)

    def objects(self) -> set[str]:
        """The names of all."""
        found = self.clients.s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])
        return {one["Key"].removeprefix(f"{below(self.service)}/") for one in found}

    def user_data(self) -> str:
        """Of the only instance."""
        (instance,) = self.instances()
        ec2: Any = self.clients.ec2
        said = ec2.describe_instance_attribute(InstanceId=instance["InstanceId"], Attribute="userData")
        return gzip.decompress(base64.b64decode(said["UserData"]["Value"])).decode()


@pytest.fixture
def text() -> str:
    """The service file's."""
    return FILE


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> Iterator[Account]:
    """With nothing of this machine's own AWS configuration."""
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")  # they take a second
    file = tmp_path / "demo.yaml"
    file.write_text(text)
    with mock_aws():
        clients = Clients(boto3.Session("testing", "testing", region_name="us-east-1"))
        iam: Any = clients.iam
        profile = iam.create_instance_profile(InstanceProfileName="pack")["InstanceProfile"]
        outputs = {"PackProfile": profile["Arn"]}
        stack = Stack("id", "SpotRelay-Service-demo", "CREATE_COMPLETE", outputs)
        found = Account(clients, file, load(file), stack)
        # moto's CloudFormation wants packages that nothing else here needs.
        monkeypatch.setattr(Stacks, "find", lambda *_: found.stack)
        clients.s3.create_bucket(Bucket=BUCKET)
        deploy(found, user_data(found.service, "us-east-1", store=store(found.service)))
        yield found


def store(service: Service) -> Store:
    """Where its packs are."""
    return Store(BUCKET, fit(service, environment(service)))


def deploy(account: Account, text: str) -> None:
    """A control plane, and the service with instances that have this user data."""
    ec2: Any = account.clients.ec2
    image = ec2.register_image(Name="deep-learning")["ImageId"]
    template = ec2.create_launch_template(
        LaunchTemplateName="demo",
        LaunchTemplateData={"ImageId": image, "UserData": base64.b64encode(text.encode()).decode()},
    )["LaunchTemplate"]["LaunchTemplateId"]
    subnets = {s["SubnetId"]: s["AvailabilityZone"] for s in ec2.describe_subnets()["Subnets"]}
    spec = replace(
        demo_spec(),
        launch_template_id=template,
        version=1,
        instance_types=account.service.instance_type_names,
        readiness_probe=account.service.readiness_probe,
        subnets=subnets,
    )
    ssm: Any = account.clients.ssm
    claim = json.dumps({"table": TABLE, "tick_queue_url": "https://q"})
    ssm.put_parameter(Name=CONTROL_PLANE_PARAMETER, Value=claim, Type="String")
    ssm.put_parameter(Name=service_parameter("demo"), Value=json.dumps(spec.to_dict()), Type="String")
    make_table(account.clients)


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """While the command waits."""
    monkeypatch.setattr("spotrelay.operator.cli.pack.time.sleep", lambda _: happens())


def test_an_instance_packs_and_ends(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """With user data and role of its own, no tag that the controller knows, and an end of its own."""
    meanwhile(monkeypatch, account.packed)
    code, out, err = account.run("--yes", "--json")
    assert code == 0, err
    document = json.loads(out)
    check("pack", document)
    assert (document["service"], document["manifest"]) == ("demo", MANIFEST)
    (instance,) = account.instances()
    assert instance["State"]["Name"] in ("shutting-down", "terminated")
    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    assert tags[TAG_PACK] == "demo"
    assert TAG_SERVICE not in tags
    text = account.user_data()
    assert "/opt/spotrelay/pack.py" in text
    assert "once.sh" not in text
    ec2: Any = account.clients.ec2
    end = ec2.describe_instance_attribute(
        InstanceId=instance["InstanceId"], Attribute="instanceInitiatedShutdownBehavior"
    )
    assert end["InstanceInitiatedShutdownBehavior"]["Value"] == "terminate"


def image_of(account: Account) -> str:
    """Which the deployed version has."""
    ec2: Any = account.clients.ec2
    (version,) = ec2.describe_launch_template_versions(LaunchTemplateName="demo")["LaunchTemplateVersions"]
    return str(version["LaunchTemplateData"]["ImageId"])


def of_image(image: str) -> bytes:
    """A pack's manifest."""
    return json.dumps({"image": image, "shards": []}).encode()


def test_a_pack_that_fits_and_is_young_is_left_alone(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --if-older-than nothing is launched and nobody asked; the exit code is that of success."""
    meanwhile(monkeypatch, account.packed)
    account.put(f"{OLD}.json", of_image(image_of(account)))
    code, out, err = account.run("--if-older-than", "7d")
    assert code == 0, err
    assert out == "demo: nothing to pack: the newest fits set-up and image, and isn't older than 7 days\n"
    code, out, _ = account.run("--if-older-than", "12h", "--yes", "--json")
    assert code == 0
    check("pack", json.loads(out))
    assert json.loads(out) == {"schema": 1, "service": "demo", "is_packed": False}
    assert not account.instances()


@pytest.mark.parametrize(
    ("image", "ages", "words"),
    [
        (None, False, "pack: there is none for this set-up"),
        ("ami-0123", False, "pack: the newest was made on ami-0123, and replicas have ami-"),
        ("", False, "pack: the newest was made on an unknown image, and replicas have ami-"),
        ("its", True, "pack: the newest is 8 days old"),
    ],
)
def test_one_that_does_not_fit_or_is_old_is_made_anew(
    image: str | None, ages: bool, words: str, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever it is, is said."""
    meanwhile(monkeypatch, account.packed)
    if image is not None:
        account.put(f"{OLD}.json", of_image(image_of(account) if image == "its" else image))
    if ages:
        newest = packs.made

        def older(*where: Any) -> packs.Made:
            found = newest(*where)
            return replace(
                found, packs=[replace(o, made_at=o.made_at - timedelta(days=8)) for o in found.packs]
            )

        monkeypatch.setattr(packs, "made", older)
    code, out, err = account.run("--if-older-than", "7d", "--yes")
    assert code == 0, err
    assert f"demo: to be packed: {words}" in out
    assert len(account.instances()) == 1


@pytest.mark.parametrize("text", [WARM], ids=["warm"])
def test_an_engine_cache_is_looked_at_too(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the accelerator whose cache would be made; alone, if it alone is asked for."""
    in_turn(
        monkeypatch, lambda: account.cached("A10G", NEW), account.packed, lambda: account.cached("L4", NEW)
    )
    account.put(f"{OLD}.json", of_image("ami-0123"))
    account.put(f"caches/L4/{OLD}.json", of_image(image_of(account)))
    code, out, _ = account.run("--accelerator", "L4", "--if-older-than", "7d", "--yes")
    assert (code, len(account.instances())) == (0, 0)
    assert "nothing to pack" in out
    code, out, err = account.run("--accelerator", "A10G", "--if-older-than", "7d", "--yes")
    assert code == 0, err
    assert "demo: to be packed: engine cache for A10G: there is none for this set-up" in out
    account.put(f"{OLD}.json", of_image(image_of(account)))
    account.put(f"caches/L4/{OLD}.json", of_image("ami-0123"))
    code, out, err = account.run("--if-older-than", "7d", "--yes")
    assert code == 0, err
    assert "demo: to be packed: engine cache for L4: the newest was made on ami-0123, and" in out


@pytest.mark.parametrize("period", ["7", "0d", "366d", "a week"])
def test_a_period_that_is_none(period: str, account: Account) -> None:
    """It is told before anything is asked."""
    code, _, err = account.run("--if-older-than", period)
    assert code == 2
    assert f"--if-older-than: expected a period such as 90m, 2h or 1d, 365d at most, got '{period}'" in err


def test_an_instance_that_ends_without_a_pack(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1, and what it said last."""

    def ends() -> None:
        ids = [instance["InstanceId"] for instance in account.instances()]
        account.clients.ec2.terminate_instances(InstanceIds=ids)

    meanwhile(monkeypatch, ends)
    words = "[1] spotrelay: nothing is packed: set-up has failed\n"
    monkeypatch.setattr("spotrelay.operator.aws.console.console_output", lambda *_: f"x\n{words}y")
    code, _, err = account.run("--yes")
    assert code == 1
    assert "has ended without a pack: nothing is packed: set-up has failed" in err


def test_a_command_that_is_stopped_ends_its_instance(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does if it fails."""

    def stopped() -> None:
        raise KeyboardInterrupt

    meanwhile(monkeypatch, stopped)
    assert account.run("--yes")[0] != 0
    (instance,) = account.instances()
    assert instance["State"]["Name"] in ("shutting-down", "terminated")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("spotrelay: {pack: {paths: [/opt/made]}}", "", "there is no spotrelay.pack: say there which"),
        (
            "mkdir -p",
            "mkdir -vp",
            "has another set-up than what is deployed, which would be packed: spotrelay up",
        ),
    ],
)
def test_a_file_that_cannot_be_packed(
    old: str, new: str, words: str, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is launched."""
    meanwhile(monkeypatch, account.packed)
    account.file.write_text(FILE.replace(old, new))
    code, _, err = account.run("--yes")
    assert code in (1, 2)
    assert words in err
    assert not account.instances()


def test_a_service_that_was_deployed_without(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stack has no role for it, or its replicas wouldn't look for an engine cache."""
    meanwhile(monkeypatch, account.packed)
    account.file.write_text(WARM)
    code, _, err = account.run("--yes")
    assert code == 1
    assert "demo is deployed without spotrelay.pack.warm: spotrelay up" in err
    account.file.write_text(FILE)
    account.stack = None
    code, _, err = account.run("--yes")
    assert code == 1
    assert "demo is deployed without spotrelay.pack: spotrelay up" in err
    assert not account.instances()


def already_packs(account: Account) -> str:
    """The ID of an instance that makes a pack of the service."""
    ec2: Any = account.clients.ec2
    image = ec2.register_image(Name="deep-learning")["ImageId"]
    tags = [{"ResourceType": "instance", "Tags": [{"Key": TAG_PACK, "Value": "demo"}]}]
    answer = ec2.run_instances(ImageId=image, MinCount=1, MaxCount=1, TagSpecifications=tags)
    return str(answer["Instances"][0]["InstanceId"])


def test_one_instance_packs_a_service_at_a_time(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody's, or one whose command has died: it ends by itself, and is named."""
    meanwhile(monkeypatch, account.packed)
    id_ = already_packs(account)
    code, _, err = account.run("--yes")
    assert code == 1
    assert f"{id_} packs demo already: wait until it has ended, which it does by itself, or end it" in err
    assert len(account.instances()) == 1


def test_a_removal_ends_who_packs_and_deletes_the_packs(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance would keep the stack's security group from going, and packs are in no stack."""
    monkeypatch.setattr("spotrelay.operator.cli.down.LOOK_S", 0.0)
    monkeypatch.setattr("spotrelay.operator.deploy.remains.remains", lambda *_: Remains())
    already_packs(account)
    account.packed()
    fake: Any = FakeStacks()
    outputs = {"Packs": f"s3://{BUCKET}/{prefix('demo')}"}
    services = {"demo": Stack("demo", "demo", "CREATE_COMPLETE", outputs)}
    removal = Removal(account.clients, None, fake, {"demo": Remains()}, services)
    (end,) = removal.carried_out(Teller(), deploying.Limit.of(60))
    assert not end.left
    (instance,) = account.instances()
    assert instance["State"]["Name"] in ("shutting-down", "terminated")
    assert "Contents" not in account.clients.s3.list_objects_v2(Bucket=BUCKET)


def test_it_asks_before_it_costs(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it will cost; no is no."""
    meanwhile(monkeypatch, account.packed)
    code, out, _ = account.run(answer="n\n")
    assert code != 0
    assert "an on-demand g6.xlarge runs set-up and packs /opt/made: an unknown price an hour" in out
    assert not account.instances()
    assert "--json needs --yes" in account.run("--json")[2]


def test_up_takes_the_newest_pack_of_the_present_set_up(
    account: Account, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And says so; without one it says what replicas do instead, and how to make one. With the newest engine
    cache of each accelerator, and a word on those that have none."""
    monkeypatch.setattr("spotrelay.operator.cli.packs.bucket", lambda *_: BUCKET)
    (tmp_path / "scratch").mkdir()
    teller, limit = Teller(), deploying.Limit.of(60)
    where = Where("us-east-1")
    warm = replace(account.service, pack=account.service.pack and replace(account.service.pack, warm=True))
    deployer = deploying.Deployer(where, [warm], tmp_path / "scratch", teller, limit)
    other = replace(account.service, setup="other")
    account.clients.s3.put_object(Bucket=BUCKET, Key=f"{below(other)}/{'2' * 64}.json", Body=b"")
    assert deployer._packs() == {}
    said = capsys.readouterr().out
    assert "demo: no pack fits its set-up, so each replica runs it" in said
    assert f"spotrelay pack {account.file} makes one" in said
    account.put(f"{NEW}.json")
    account.cached("L4", OLD)
    account.cached("T4", OLD)
    time.sleep(1.1)  # S3 tells whole seconds
    account.packed()
    account.cached("L4", NEW)
    assert deployer._packs() == {"demo": MANIFEST, "demo/L4": NEW}
    said = capsys.readouterr().out
    assert re.search(r"demo: replicas start from the pack of 20\S+ \d\d:\d\d UTC, 0 days old\n", said)
    assert "demo: no engine cache for A10G: there each start compiles" in said
    # A service that keeps none has no use for them.
    deployer._services = [account.service]
    assert deployer._packs() == {"demo": MANIFEST}


def in_turn(monkeypatch: pytest.MonkeyPatch, *happen: Callable[[], None]) -> None:
    """While the command waits, one after the other."""
    left = iter(happen)
    meanwhile(monkeypatch, lambda: next(left)())


def ends(account: Account) -> None:
    """The instance does, by itself."""
    ids = [instance["InstanceId"] for instance in account.instances()]
    account.clients.ec2.terminate_instances(InstanceIds=ids)


@pytest.mark.parametrize("text", [WARM], ids=["warm"])
def test_a_pack_with_an_engine_cache(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are waited for; what it is worth is told, and which kinds have none; older ones of a kind go."""
    monkeypatch.setattr("spotrelay.file.instance.packing.LONGEST_S", -60)
    account.cached("L4", OLD, "old-shard")
    account.put("shard-of-nobody")
    time.sleep(1.1)  # S3 tells whole seconds
    in_turn(monkeypatch, account.packed, lambda: account.cached("L4", NEW, "shard"))
    code, out, err = account.run("--yes")
    assert code == 0, err
    assert (
        "g6.xlarge runs set-up and packs /opt/made, and starts the service twice for an engine cache for"
        in out
    )
    assert "engine cache for L4: the first start of run took 93 s, the second 31 s" in out
    lacking = f"demo: no engine cache for A10G: there each start compiles; spotrelay pack {account.file}"
    assert f"{lacking} --accelerator A10G makes one" in " ".join(out.split())
    assert account.objects() == {f"{MANIFEST}.json", f"caches/L4/{NEW}.json", "caches/L4/shard"}
    assert "/opt/spotrelay/warm.py" in account.user_data()


@pytest.mark.parametrize("text", [WARM], ids=["warm"])
def test_an_engine_cache_for_one_accelerator(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a type that has it, with the set-up that is packed; the other kind's cache stays."""
    monkeypatch.setattr("spotrelay.file.instance.packing.LONGEST_S", -60)
    in_turn(monkeypatch, lambda: account.cached("A10G", NEW))
    account.cached("L4", OLD)
    code, _, err = account.run("--accelerator", "a10g", "--yes")
    assert code == 1
    assert "demo has no pack of its set-up, on which an engine cache is made: spotrelay pack" in err
    account.packed()
    code, out, err = account.run("--accelerator", "a10g", "--yes", "--json")
    assert code == 0, err
    document = json.loads(out)
    check("pack", document)
    assert (document["manifest"], document["cache"], document["accelerator"]) == (MANIFEST, NEW, "A10G")
    assert document["instance_type"] == "g5.xlarge"
    written = YAML(typ="safe", pure=True).load(account.user_data())["write_files"]
    plan = next(one["content"] for one in written if one["path"].endswith("/pack.json"))
    assert json.loads(plan)["manifest"] == MANIFEST
    assert account.objects() == {f"{MANIFEST}.json", f"caches/L4/{OLD}.json", f"caches/A10G/{NEW}.json"}


@pytest.mark.parametrize("text", [WARM], ids=["warm"])
def test_an_engine_that_does_not_start(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """The set-up's pack is kept; the command fails, with what the engine said last."""
    in_turn(monkeypatch, account.packed, lambda: ends(account))
    words = "vllm: CUDA \x1b[31mout of memory\nspotrelay: no engine cache is packed: its readiness probe\n"
    monkeypatch.setattr("spotrelay.operator.aws.console.console_output", lambda *_: words)
    code, _, err = account.run("--yes")
    assert code == 1
    assert "what set-up makes is packed, but i-" in err
    assert "has ended without an engine cache for L4: no engine cache is packed: its readiness probe" in err
    assert "vllm: CUDA out of memory" in err
    assert account.objects() == {f"{MANIFEST}.json"}


@pytest.mark.parametrize(
    ("text", "asked", "words"),
    [
        (FILE, "L4", "has no engine cache: say spotrelay.pack.warm: true, and deploy it"),
        (WARM, "A1OG", "--accelerator: unknown accelerator 'A1OG' (did you mean A10G?)"),
        (
            WARM,
            "H100",
            "--accelerator: resources allow no instance type with a whole H100: they allow L4, A10G",
        ),
    ],
    ids=["no cache is kept", "there is none", "the file doesn't allow it"],
)
def test_an_accelerator_that_has_no_engine_cache(text: str, asked: str, words: str, tmp_path: Path) -> None:
    """It is told before AWS is asked."""
    file = tmp_path / "demo.yaml"
    file.write_text(text)
    result = CliRunner().invoke(app, ["pack", str(file), "--accelerator", asked, "--yes"])
    assert result.exit_code == 2
    assert words in result.stderr

"""What `up`, `update` and `down` do beside CloudFormation: what they refuse, ask and say."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
import typer
from typer.testing import CliRunner

from spotrelay.file.service import load
from spotrelay.operator.cli import cdk, deploying, update
from spotrelay.operator.cli import down as down_command
from spotrelay.operator.cli.app import app
from spotrelay.operator.cli.down import Removal
from spotrelay.operator.cli.errors import CommandError
from spotrelay.operator.cli.options import Where
from spotrelay.operator.cli.telling import Teller
from spotrelay.operator.deploy import difference
from spotrelay.operator.deploy.difference import Change, Difference, How
from spotrelay.operator.deploy.remains import Remains
from spotrelay.operator.deploy.stack_remedies import way_out
from spotrelay.operator.deploy.stacks import Stack
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.core.names import CONTROL_PLANE_STACK, NETWORK_STACK, SERVICE_STACK
from spotrelay.plane.core.ports import Denied
from stacks.settings import AppSettings
from tests.cli.test_scale import REGION, Region, region
from tests.examples import demo_spec

__all__ = ["region"]

MAIL = {"Mail": {"Type": "AWS::SNS::Subscription", "Properties": {}}}
SUBNET = {"A": {"Type": "AWS::EC2::Subnet", "Properties": {}}}


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    result = CliRunner().invoke(app, [*arguments, "--region", REGION], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("context", "words"),
    [
        (["zones"], "expected K=V"),
        (["services=a.yaml"], "name the service files as FILE"),
        (["zones=a", "zones=b"], "given twice"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused(context: list[str], words: str) -> None:
    """Before anything is asked or deployed."""
    with pytest.raises(CommandError, match=words):
        deploying.parsed(context)


def test_a_value_may_have_an_equals_sign() -> None:
    """As `env=K=V` has."""
    assert deploying.parsed(["env=K=V"]) == {"env": "K=V"}


def test_a_path_is_relative_to_where_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An env_file of cdk.json is beside that, wherever the command runs; one on the command line is here."""
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "cdk.json").write_text('{"context": {"env_file": "more.env"}}')
    (tmp_path / "root" / "more.env").write_text("FROM=root")
    (tmp_path / "more.env").write_text("FROM=here")
    monkeypatch.setattr(cdk, "ROOT", tmp_path / "root")
    monkeypatch.chdir(tmp_path)
    assert deploying.said_beside({}).envs == {"FROM": "root"}
    assert deploying.said_beside({"env_file": "more.env"}).envs == {"FROM": "here"}


def test_a_file_that_is_wrong_stops_before_an_account_is_asked(tmp_path: Path) -> None:
    """Each problem in a line, and exit code 2: there are no credentials in this test."""
    path = tmp_path / "chat.yaml"
    path.write_text("name: chat\nservice: {replicas: many}\n", encoding="utf-8")
    code, _, err = run("up", str(path))
    assert code == 2
    assert "service.replicas" in err
    assert run("up", "-")[2] == "spotrelay up: the CDK reads service files itself: name a file instead of -\n"


def test_the_versions_of_secrets_are_asked_for_and_not_their_values(
    region: Region, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of each the latest; what nobody has written is named with the remedy, and has none."""
    names = [f"/chat/{number}" for number in range(deploying.FILTERED + 2)]
    for name in names:
        region.ssm.put_parameter(Name=name, Value="hush", Type="SecureString")
    region.ssm.put_parameter(Name=names[0], Value="hush!", Type="SecureString", Overwrite=True)
    file = tmp_path / "chat.yaml"
    secrets = {**{f"S{at}": name for at, name in enumerate(names)}, "NEW": "/chat/new"}
    document = {
        "name": "chat", "service": {"replicas": 1}, "resources": {"accelerators": "L4", "ports": 8000},
        "secrets": secrets, "run": "serve",
    }  # fmt: skip
    file.write_text(json.dumps(document), encoding="utf-8")
    clients = Clients(boto3.Session("testing", "testing", region_name=REGION))
    found = deploying.secret_versions(clients, [load(file)])
    assert found == {**dict.fromkeys(names, 1), names[0]: 2}
    _, err = capsys.readouterr()
    assert err == (
        "warning: chat: secret NEW: nobody has written /chat/new yet, and no replica starts without it:"
        f" spotrelay secrets {file} --secret NEW=…\n"
    )


@pytest.mark.parametrize("own", [None, "", "/chat/a=1", ["/chat/a=1"]])
def test_who_names_a_secrets_version_gets_it(own: Any) -> None:
    """Of the others the latest is taken, whether the setting stands in cdk.json, a command or nowhere."""
    context = {"secret_versions": deploying.pinned({"/chat/a": 4, "/chat/b": 2}, own)}
    expected = {"/chat/a": 1 if own else 4, "/chat/b": 2}
    assert AppSettings.from_context(context.get).secret_versions == expected


def test_a_network_that_others_use_does_not_change_in_passing() -> None:
    """The error names what would go, and whose it is; where nobody else uses it, it may change."""
    deployed: dict[str, Any] = {"Resources": SUBNET}
    new: dict[str, Any] = {"Resources": {}}
    with pytest.raises(CommandError, match="which demo uses, too: EC2::Subnet A removed"):
        deploying.refuse_unsafe(NETWORK_STACK, deployed, new, ["SpotRelay-Service-demo"])
    deploying.refuse_unsafe(NETWORK_STACK, deployed, new, [])
    deploying.refuse_unsafe(NETWORK_STACK, deployed, deployed, ["SpotRelay-Service-demo"])


def test_an_address_for_alarms_is_not_lost_by_forgetting_it() -> None:
    """`alarm_email` on the command line of one deployment must be on that of the next."""
    with pytest.raises(CommandError, match=r"Mail removed.*say them with --context"):
        deploying.refuse_unsafe(CONTROL_PLANE_STACK, {"Resources": MAIL}, {"Resources": {}}, [])


def kept(context: dict[str, str], monkeypatch: pytest.MonkeyPatch, **deployed: Any) -> dict[str, str]:
    """The context that a deployment of `chat` gets, by what stacks keep."""
    names = {"plane": CONTROL_PLANE_STACK, "network": NETWORK_STACK, "chat": f"{SERVICE_STACK}chat"}
    found = {names[name]: settings for name, settings in deployed.items()}
    monkeypatch.setattr(cdk, "configured", dict)
    deployer: Any = SimpleNamespace(
        stacks=SimpleNamespace(settings=found.get),
        _services=[SimpleNamespace(name="chat")],
        _teller=Teller(),
    )
    return deploying.Deployer._with_kept(deployer, context)


def test_a_setting_is_kept_until_another_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the control plane, the network and the service itself; said, too, is how one is taken away."""
    deployed = {
        "plane": {"alarm_email": "a@b"},
        "network": {"zones": "us-east-1a,us-east-1b", "nat_gateways": "2"},
        "chat": {"api_keys": "web"},
    }
    found = kept({"alarm_email": "c@d"}, monkeypatch, **deployed)
    assert found == {
        "alarm_email": "c@d", "zones": "us-east-1a,us-east-1b", "nat_gateways": "2", "api_keys": "web",
    }  # fmt: skip
    assert capsys.readouterr().out == (
        "kept from the last deployment: api_keys=web, nat_gateways=2, zones=us-east-1a,us-east-1b"
        " (-c NAME= takes one away)\n"
    )
    assert kept({"api_keys": ""}, monkeypatch, chat=deployed["chat"]) == {"api_keys": ""}
    assert kept({}, monkeypatch) == {}
    assert capsys.readouterr().out == ""


def test_what_is_said_counts_where_both_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """A NAT gateway goes with public addresses, and a VPC of the user's with no zones of ours."""
    network = {"zones": "us-east-1a,us-east-1b", "nat_gateways": "2"}
    public = kept({"public_addresses": "true"}, monkeypatch, network=network)
    assert public == {"zones": network["zones"], "public_addresses": "true"}
    assert "nat_gateways" in kept({"public_addresses": "false"}, monkeypatch, network=network)
    given = {"vpc_id": "vpc-1", "subnets": "subnet-1=us-east-1a"}
    assert kept({"vpc_id": "vpc-2"}, monkeypatch, chat=given) == {"vpc_id": "vpc-2"}
    assert kept({}, monkeypatch, network=network, chat=given) == given
    assert kept({"vpc_id": ""}, monkeypatch, network=network, chat=given) == {**network, "vpc_id": ""}


def test_services_with_other_settings_are_not_deployed_together() -> None:
    """One deployment has one value for all; what is said now, and a service that is new, don't matter."""
    own = {"a": {"api_keys": "web"}, "b": {}, "new": None}
    with pytest.raises(
        CommandError, match=r"a with api_keys=web, b with api_keys=\. Deploy them one at a time"
    ):
        deploying.together(own, [])
    deploying.together(own, ["api_keys"])
    assert deploying.together({"a": own["a"], "new": None}, []) == {"api_keys": "web"}


def test_what_a_service_would_lose_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key's rule that isn't in the new template: without a yes, nothing is deployed."""
    asked: list[str] = []

    def no(question: str, *, abort: bool) -> None:
        asked.append(question)
        raise typer.Abort

    monkeypatch.setattr(typer, "confirm", no)
    lost = Difference((), (), (Change("Rule", "AWS::ElasticLoadBalancingV2::ListenerRule", How.REMOVED),))
    with pytest.raises(typer.Abort):
        deploying.confirm_removed("chat", lost, Teller(), is_confirmed=False)
    deploying.confirm_removed("chat", lost, Teller(), is_confirmed=True)
    deploying.confirm_removed("chat", Difference((), ("replicas: 3 → 4",), ()), Teller(), is_confirmed=False)
    assert len(asked) == 1


def test_why_a_deployment_failed_is_cloudformations_word() -> None:
    """What failed, not what was cancelled for it, nor how the log ends."""
    lines = [
        "SpotRelay-Service-chat |  3 | 10:17:31 AM | CREATE_IN_PROGRESS   | AWS::EC2::Subnet | a",
        "SpotRelay-Service-chat |  3 | 10:17:31 AM | CREATE_FAILED        | AWS::EC2::Subnet | No room",
        "SpotRelay-Service-chat |  3 | 10:17:32 AM | CREATE_FAILED        | AWS::EC2::EIP | cancelled",
        "Stack ARN:",
    ]  # fmt: skip
    assert cdk.why(lines).endswith("No room")
    assert cdk.why(["one", "two", ""]) == "two"


@pytest.mark.parametrize(
    "words",
    [
        'Resource handler returned message: "Nat Gateway is not available in this availability zone"',
        "The provided subnets contain availability zone Lambda doesn't support. Please use a different set",
        "The following Availability Zones us-west-1a cannot be associated with a load balancer.",
        "Value (ap-northeast-1b) for parameter availabilityZone is invalid. Subnets can currently only be",
        "Template error: Fn::Select  cannot select nonexistent value at index 2",
        "",
    ],
)
def test_a_zone_that_lacks_something_has_a_remedy(tmp_path: Path, words: str) -> None:
    """Below CloudFormation's words is the setting that names the zones; below others is nothing."""
    command = tmp_path / "cdk"
    line = f"SpotRelay-Network |  3 | 10:17:31 AM | CREATE_FAILED        | AWS::Any::Type | {words or 'No'}"
    command.write_text(f"#!/bin/sh\ncat << 'END'\n{line}\nEND\nexit 1\n", encoding="utf-8")
    command.chmod(0o700)
    made = cdk.Cdk(REGION, None, tmp_path, Teller(), time.monotonic() + 60)
    made._command = command
    with pytest.raises(CommandError) as failed:
        made.deploy(tmp_path, [NETWORK_STACK])
    assert words in str(failed.value)
    assert ("name the zones, -c zones=" in str(failed.value)) is bool(words)
    assert (f"--region {REGION}" in str(failed.value)) is bool(words)


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ("arn:aws:iam::1:user/me", "you may not do cloudformation:Create: docs/deploy.md"),
        (
            "arn:aws:sts::1:assumed-role/cdk-hnb659fds-cfn-exec-role-1-us-east-1/AWSCloudFormation",
            "the role cdk-hnb659fds-cfn-exec-role-1-us-east-1 may not do cloudformation:Create",
        ),
    ],
)
def test_a_deployment_that_is_not_allowed_names_who_may_not_do_what(user: str, words: str) -> None:
    """First, and the CDK's own words come last."""
    said = f"User: {user} is not authorized to perform: cloudformation:Create on resource: x"
    assert cdk.refusal(said).startswith(words)
    assert cdk.refusal("No room") == ""


def test_what_ends_a_deployment_anyhow_is_found_before_the_templates_are_made(
    region: Region, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Synthesis takes twenty seconds: a missing bootstrap or permission needs none of it."""

    def synth(*_: Any) -> None:
        raise AssertionError("the templates were made")

    monkeypatch.setattr(cdk.Cdk, "synth", synth)
    deployer = deploying.Deployer(Where(REGION), [], tmp_path, Teller(), deploying.Limit.of(60))
    with pytest.raises(CommandError, match="has never been bootstrapped"):
        deployer.synthesized({})
    region.ssm.put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="6", Type="String")

    def denied(_: str) -> None:
        raise Denied("no", "AccessDenied")

    monkeypatch.setattr(deployer.stacks, "find", denied)
    with pytest.raises(Denied):
        deployer.synthesized({})


def test_the_cdk_asks_the_same_region_and_notes_no_local_account(tmp_path: Path) -> None:
    """The region is the command's, and with an endpoint of its own the CDK's notes are for once."""
    env = cdk.environment({"AWS_REGION": "eu-west-1"}, REGION, tmp_path)
    assert (env["AWS_REGION"], env["AWS_DEFAULT_REGION"]) == (REGION, REGION)
    assert "CDK_HOME" not in env
    local = cdk.environment({"AWS_ENDPOINT_URL": "http://127.0.0.1:4566"}, REGION, tmp_path)
    assert local["CDK_HOME"] == str(tmp_path)


def test_a_newer_image_is_told_and_taken_only_if_it_is_asked_for(
    region: Region, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the file's SSM parameter says is compared with the deployed version's image, not the latest's."""
    deployer = deploying.Deployer(
        where=Where(REGION), services=[], scratch=tmp_path, teller=Teller(), limit=HOUR
    )
    region.ssm.put_parameter(Name="/mine/image", Value="ami-00000002", Type="String")
    ec2 = deployer.clients.ec2
    made = ec2.create_launch_template(
        LaunchTemplateName="mine", LaunchTemplateData={"ImageId": "ami-00000001"}
    )["LaunchTemplate"]
    template_id = made["LaunchTemplateId"]
    ec2.create_launch_template_version(
        LaunchTemplateId=template_id, LaunchTemplateData={"ImageId": "ami-00000002"}
    )
    file = tmp_path / "chat.yaml"

    def newer(version: int, image: str = "/mine/image") -> str | None:
        resources = {"accelerators": "L4", "image": image, "ports": 8080}
        values = {
            "name": "chat",
            "service": {"replicas": 1},
            "resources": resources,
            "run": "x",
            "spotrelay": {},
        }
        file.write_text(json.dumps(values), encoding="utf-8")  # JSON is YAML
        spec = replace(demo_spec(), launch_template_id=template_id, version=version)
        return deployer.newer_image(load(file), spec)

    assert newer(1) == "ami-00000002"
    assert newer(2) is None
    assert newer(1, "ami-0123456789abcdef0") is None
    same = Difference((), (), ())
    spec = replace(demo_spec(), version=1)
    assert any("ami-2 is newer: --image takes it" in line for line in update.shown(spec, same, "ami-2"))
    moved = Difference((difference.THE_IMAGE,), (), ())
    assert not any("newer" in line for line in update.shown(spec, moved, "ami-2"))
    asked: list[list[str]] = []
    monkeypatch.setattr(cdk.Cdk, "_run", lambda _, arguments, __: asked.append([*arguments]))
    made_cdk = cdk.Cdk(REGION, None, tmp_path, Teller(), HOUR.deadline)
    made_cdk.deploy(tmp_path, ["S"])
    made_cdk.deploy(tmp_path, ["S"], {"S:Image": "ami-2"})
    assert "--parameters" not in asked[0]
    assert asked[1][-2:] == ["--parameters", "S:Image=ami-2"]


HOUR = deploying.Limit.of(3600)


def stack(environment: str) -> dict[str, Any]:
    """A stack of a cloud assembly."""
    return {
        "type": "aws:cloudformation:stack",
        "environment": environment,
        "properties": {
            "templateFile": "template.json",
            "bootstrapStackVersionSsmParameter": "/cdk-bootstrap/hnb659fds/version",
            "requiresBootstrapStackVersion": 6,
        },
    }


@pytest.mark.parametrize(
    ("environment", "bootstrapped", "words"),
    [
        (
            "aws://unknown-account/unknown-region",
            None,
            "bootstrapped: run .venv/bin/cdk bootstrap aws://1234",
        ),
        ("aws://unknown-account/unknown-region", "5", "with version 5, and 6 is needed: run .venv/bin/cdk"),
        ("aws://123456789012/eu-west-1", "6", "say 123456789012, eu-west-1"),
        ("aws://123456789012/us-east-1", "6", ""),
        ("aws://unknown-account/unknown-region", "6", ""),
    ],
)
def test_an_account_must_be_bootstrapped_and_the_one_that_is_meant(
    region: Region,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: str,
    bootstrapped: str | None,
    words: str,
) -> None:
    """Otherwise nothing is deployed, and the line has the command, or what to change."""

    def synth(_: cdk.Cdk, context: dict[str, str], into: Path) -> None:
        into.mkdir()
        manifest = {"artifacts": {NETWORK_STACK: stack(environment), "Tree": {"type": "cdk:tree"}}}
        (into / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        (into / "template.json").write_text('{"Resources": {}}', encoding="utf-8")

    monkeypatch.setattr(cdk.Cdk, "synth", synth)
    if bootstrapped:
        region.ssm.put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value=bootstrapped, Type="String")
    deployer = deploying.Deployer(Where(REGION), [], tmp_path, Teller(), deploying.Limit.of(60))
    monkeypatch.setattr(deployer.stacks, "named", lambda _, **__: [])
    monkeypatch.setattr(deployer.stacks, "find", lambda _: None)
    if words:
        with pytest.raises(CommandError, match=words):
            deployer.synthesized({})
    else:
        assert deployer.synthesized({}).shared == (NETWORK_STACK,)


def deployer_of_shared(
    region: Region, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statuses: list[str]
) -> deploying.Deployer:
    """Of the shared stacks. All stacks have the first state when they are looked at first, then the next."""

    def synth(_: cdk.Cdk, context: dict[str, str], into: Path) -> None:
        into.mkdir()
        artifacts = {
            name: stack("aws://123456789012/us-east-1") for name in (CONTROL_PLANE_STACK, NETWORK_STACK)
        }
        (into / "manifest.json").write_text(json.dumps({"artifacts": artifacts}), encoding="utf-8")
        (into / "template.json").write_text('{"Resources": {}}', encoding="utf-8")

    monkeypatch.setattr(cdk.Cdk, "synth", synth)
    monkeypatch.setattr(deploying, "LOOK_S", 0.0)
    region.ssm.put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="6", Type="String")
    deployer = deploying.Deployer(Where(REGION), [], tmp_path, Teller(), deploying.Limit.of(60))
    cloudformation = deployer.clients.cloudformation
    looks = [*statuses]

    def facts() -> dict[str, Any]:
        status = looks.pop(0) if len(looks) > 1 else looks[0]
        return {"StackStatus": status, "CreationTime": datetime(2026, 1, 1, tzinfo=UTC)}

    def listed(**_: Any) -> list[dict[str, Any]]:
        return [{"StackSummaries": [{"StackName": "SpotRelay-Service-demo", **facts()}]}]

    def described(StackName: str) -> dict[str, Any]:  # noqa: N803 - CloudFormation's name
        return {"Stacks": [{"StackId": "arn", "StackName": StackName, **facts()}]}

    monkeypatch.setattr(cloudformation, "get_paginator", lambda _: SimpleNamespace(paginate=listed))
    monkeypatch.setattr(cloudformation, "describe_stacks", described)
    return deployer


@pytest.mark.parametrize("status", ["ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "UPDATE_ROLLBACK_COMPLETE"])
def test_a_creation_that_failed_says_nothing_about_the_settings(
    region: Region, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    """The CDK makes such a stack anew, so nothing is lost; and a service that never was shares no network."""
    deployer = deployer_of_shared(region, tmp_path, monkeypatch, [status])
    cloudformation = deployer.clients.cloudformation
    body = {"TemplateBody": {"Resources": {**MAIL, **SUBNET}}}
    monkeypatch.setattr(cloudformation, "get_template", lambda **_: body)
    if status == "UPDATE_ROLLBACK_COMPLETE":
        with pytest.raises(CommandError, match="would not stay as it is"):
            deployer.synthesized({})
    else:
        assert deployer.synthesized({}).shared == (CONTROL_PLANE_STACK, NETWORK_STACK)


def test_what_the_stacks_warn_of_is_told(
    region: Region, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once for all stacks, and not again what the service file has been warned of already."""
    deployer = deployer_of_shared(region, tmp_path, monkeypatch, ["ROLLBACK_COMPLETE"])
    made = deployer._cdk.synth

    def synth(context: dict[str, str], into: Path) -> None:
        made(context, into)
        manifest = json.loads((into / "manifest.json").read_text(encoding="utf-8"))
        for artifact in manifest["artifacts"].values():
            artifact["additionalMetadataFile"] = "metadata.json"
        (into / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        texts = ["six NAT gateways [ack: spotrelay:many]", "a token [ack: spotrelay:envs]"]
        metadata = {"/Stack": [{"type": "aws:cdk:warning", "data": text} for text in texts]}
        (into / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")

    monkeypatch.setattr(deployer._cdk, "synth", synth)
    service = SimpleNamespace(
        name="chat",
        use_spot=True,
        path=tmp_path,
        secrets={},
        models=(),
        pack=None,
        start_within_s=None,
        warnings=["a token"],
    )
    monkeypatch.setattr(deployer, "_services", [service])
    deployer.synthesized({})
    assert capsys.readouterr().err == "warning: six NAT gateways\n"


def test_a_key_needs_spots_own_role(
    region: Region, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the account's first Spot request there is none, and nobody can let it use the key."""
    deployer = deployer_of_shared(region, tmp_path, monkeypatch, ["UPDATE_COMPLETE"])
    context = {"kms_key_arn": "arn:aws:kms:us-east-1:123456789012:key/1"}
    monkeypatch.setattr(deployer.stacks, "settings", lambda _: None)
    monkeypatch.setattr(
        deployer,
        "_services",
        [
            SimpleNamespace(
                name="chat", use_spot=True, path=tmp_path, secrets={}, models=(), pack=None, warnings=[]
            )
        ],
    )
    with pytest.raises(CommandError, match="run aws iam create-service-linked-role --aws-service-name spot"):
        deployer.synthesized(context)
    deployer.clients.iam.create_role(RoleName=deploying.SPOTS_ROLE, AssumeRolePolicyDocument="{}")
    deployer._must_have_spots_role()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("status", "command"),
    [
        ("UPDATE_ROLLBACK_FAILED", "aws cloudformation continue-update-rollback --stack-name"),
        ("UPDATE_FAILED", "aws cloudformation rollback-stack --stack-name"),
        ("DELETE_FAILED", "aws cloudformation delete-stack --stack-name"),
        ("REVIEW_IN_PROGRESS", "aws cloudformation delete-stack --stack-name"),
        ("CREATE_FAILED", "aws cloudformation delete-stack --stack-name"),
    ],
)
def test_a_stack_that_takes_no_template_has_a_way_out(
    region: Region, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str, command: str
) -> None:
    """It is named before anything is deployed, also after the last thing that CloudFormation was doing."""
    deployer = deployer_of_shared(region, tmp_path, monkeypatch, ["UPDATE_IN_PROGRESS", status])
    wanted = f"{CONTROL_PLANE_STACK} is {status}, .*: run {command} {CONTROL_PLANE_STACK} --region {REGION},"
    with pytest.raises(CommandError, match=wanted):
        deployer.synthesized({})


def test_what_is_left_of_a_service_is_removed_before_it_is_deployed() -> None:
    """By the command that waits for its replicas, not by CloudFormation's alone."""
    left = Stack("arn", f"{SERVICE_STACK}chat", "DELETE_FAILED")
    assert "run spotrelay down chat --region" in way_out(left, REGION)


class FakeStacks:
    """Stacks that are deleted, or fail to be, at the third look."""

    def __init__(self, *stuck: str, begins: str = "CREATE_COMPLETE") -> None:
        self.stuck = stuck
        self.deleted: list[str] = []
        self.draining: list[int] = []
        """How many drained at the same time, at each look."""
        self.deleting: list[int] = []
        """The same of how many were being deleted."""
        self._begins = begins
        self._looks: dict[str, Iterator[str]] = {}
        self._drains: set[str] = set()

    def delete(self, stack: Stack) -> str:
        """Begin."""
        self.deleted.append(stack.name)
        self._drains.add(stack.name)
        end = "DELETE_FAILED" if stack.name in self.stuck else "DELETE_COMPLETE"
        self._looks[stack.name] = iter((self._begins, "DELETE_IN_PROGRESS", end))
        return "the event before"

    def find(self, id_: str) -> Stack:
        """Its next state."""
        self.draining.append(len(self._drains))
        self.deleting.append(len(self._looks))
        status = next(self._looks[id_])
        if status == "DELETE_COMPLETE":
            del self._looks[id_]
        if status == "DELETE_IN_PROGRESS":
            self._drains.discard(id_)
        return Stack(id_, id_, status)

    def load(self, service: str) -> Any:
        """As the table: replicas that are there until CloudFormation deletes what they needed."""
        replicas = {1: SimpleNamespace(state="draining")} if service in self._drains else {}
        return SimpleNamespace(replicas=replicas)

    def failures(self, stack: Stack, after: str) -> list[str]:
        """Of the removal's function, once the deletion has come to its end."""
        assert after == "the event before"
        is_over = next(self._looks[stack.name], None) is None
        return ["RemovalReplicas: chat still has 1 instances: i-1 (running)"] if is_over else []


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[Remains]:
    """What is found of a service after its stack has gone, the last for good; nobody waits for real."""
    found: list[Remains] = [Remains()]
    monkeypatch.setattr(down_command, "LOOK_S", 0.0)
    monkeypatch.setattr(down_command, "GONE_WITHIN_S", 0.0)
    monkeypatch.setattr("spotrelay.operator.deploy.remains.remains", lambda *_: found[-1])
    return found


def removal(stacks: FakeStacks) -> Removal:
    """Of a service with one replica, and of all that is shared."""
    shared = (
        Stack(NETWORK_STACK, NETWORK_STACK, "CREATE_COMPLETE"),
        Stack(CONTROL_PLANE_STACK, CONTROL_PLANE_STACK, "CREATE_COMPLETE", {"TableName": "Rows"}),
    )
    there = Remains(("i-1",), ("vol-1",), ("/spotrelay/services/chat",))
    chat: Any = {"chat": Stack("chat", "chat", "CREATE_COMPLETE")}
    nobody: Any = None
    fake: Any = stacks
    return Removal(nobody, None, fake, {"chat": there}, chat, shared)


def test_what_was_is_listed_when_nothing_is_left(left: list[Remains]) -> None:
    """The service first, then the network, then the control plane; the table is kept, and said to be."""
    stacks = FakeStacks()
    made = removal(stacks)
    ends = made.carried_out(Teller(), deploying.Limit.of(60))
    assert str(ends[0]) == "chat gone: 1 instance, 1 volume, 1 parameter; nothing left"
    assert stacks.deleted == ["chat", NETWORK_STACK, CONTROL_PLANE_STACK]
    assert not any(end.left for end in ends)
    assert "table Rows" in made.kept[0]
    (listed,) = made.listed()
    assert "i-1, vol-1, /spotrelay/services/chat" in listed


def test_a_removal_that_fails_leaves_what_its_instances_need(left: list[Remains]) -> None:
    """What is left is named with CloudFormation's words, and network and control plane stay."""
    left.append(Remains(("i-1",)))
    stacks = FakeStacks("chat")
    ends = removal(stacks).carried_out(Teller(), deploying.Limit.of(60))
    assert stacks.deleted == ["chat"]
    assert "1 instance, 0 volumes, 0 parameters left: i-1; stack chat: RemovalReplicas: chat" in str(ends[0])
    assert all(end.left for end in ends)


def test_a_volume_that_stays_is_named(left: list[Remains]) -> None:
    """Its stack is gone, and yet it isn't all gone."""
    left.append(Remains(volumes=("vol-1",)))
    ends = removal(FakeStacks()).carried_out(Teller(), deploying.Limit.of(60))
    assert "vol-1" in ends[0].left


def removal_of(names: list[str], stacks: FakeStacks) -> Removal:
    """Of services whose replicas the table still has."""
    plane: Any = SimpleNamespace(store=stacks)
    fake: Any = stacks
    nobody: Any = None
    services = {name: Stack(name, name, "CREATE_COMPLETE") for name in names}
    return Removal(nobody, plane, fake, dict.fromkeys(names, Remains()), services)


def test_a_few_services_drain_at_once(left: list[Remains]) -> None:
    """Each takes a function that waits, beside the control plane's; what comes later holds up nobody."""
    names, stacks = [f"chat-{n}" for n in range(8)], FakeStacks()
    ends = removal_of(names, stacks).carried_out(Teller(), deploying.Limit.of(60))
    assert stacks.deleted == names
    assert not any(end.left for end in ends)
    assert max(stacks.draining) == down_command.AT_ONCE == 3
    assert max(stacks.deleting) == 2 * down_command.AT_ONCE


def test_what_has_not_begun_in_time_is_left(left: list[Remains]) -> None:
    """It is said of each, and nothing of it is touched."""
    names, stacks = [f"chat-{n}" for n in range(5)], FakeStacks()
    made = removal_of(names, stacks)
    ends = {end.name: end.left for end in made.carried_out(Teller(), deploying.Limit.of(0))}
    assert stacks.deleted == names[:3]
    assert all("not begun within" in ends[name] for name in names[3:])
    assert all("it goes on" in ends[name] for name in names[:3])


def test_a_second_removal_does_not_take_the_first_ones_failure_for_its_own(left: list[Remains]) -> None:
    """A stack is shown as it was when another deletion has just begun."""
    stacks = FakeStacks(begins="DELETE_FAILED")
    assert not any(end.left for end in removal(stacks).carried_out(Teller(), deploying.Limit.of(60)))


def test_which_service_goes_must_be_said(region: Region) -> None:
    """Neither none nor one beside all."""
    assert run("down")[0] == run("down", "demo", "--all")[0] == 2

"""Files and container of a service's instances: what is uploaded, what fetches it, and who may read it."""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spotrelay.file.service import Service, load
from spotrelay.file.values.files import Bucket, FileMount, Model, MountMode, Pack, WebFile
from stacks.service import ServiceStack
from stacks.settings import AppSettings, GivenNetwork
from tests.template.conftest import SERVICE_FILES, flags
from tests.template.support import Template, as_list, flat

SUBNETS = {"subnet-00000001": "us-east-1a", "subnet-00000002": "us-east-1b"}
ASSETS = "cdk-hnb659fds-assets-<AWS::AccountId>-<AWS::Region>"
S3 = "arn:<AWS::Partition>:s3:::"


def synthesized(directory: Path, service: Service) -> Template:
    """The service's stack."""
    import aws_cdk as cdk  # see conftest
    import cdk_nag

    app = cdk.App(outdir=str(directory), context=flags())
    settings = AppSettings(network=GivenNetwork("vpc-00000001", SUBNETS, SUBNETS))
    ServiceStack(app, "Chosen", service=service, settings=settings)
    cdk.Validations.of(app).add_plugins(cdk_nag.AwsSolutionsChecks(app))
    try:
        app.synth()
    except RuntimeError:
        report = (directory / "validation-report.json").read_text(encoding="utf-8")
        raise AssertionError(json.dumps(json.loads(report), indent=1)) from None
    return Template.read(directory, "Chosen")


def granted(template: Template) -> dict[tuple[str, ...], tuple[list[str], Any]]:
    """Of the instances' role: actions → resources and condition, but for Session Manager's."""
    role = template.id_with("AWS::IAM::Role", "InstancesRole")
    return {
        tuple(as_list(s["Action"])): ([flat(r) for r in as_list(s["Resource"])], s.get("Condition"))
        for s in template.statements(role)
        if not as_list(s["Action"])[0].startswith("ssm")
    }


def user_data_of(template: Template) -> str:
    """As text."""
    return flat(template.only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]["UserData"])


@pytest.fixture
def service() -> Service:
    """One without any of it."""
    return load(SERVICE_FILES["demo"])


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A work directory."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "serve.py").write_text("print('hello')")
    return tmp_path / "code"


def test_a_work_directory_is_an_asset_that_only_its_instances_read(
    service: Service, code: Path, tmp_path: Path
) -> None:
    """One archive in the bootstrap bucket; user data names it, and the role may read that one object."""
    out = tmp_path / "out"
    template = synthesized(out, replace(service, workdir=code))
    (asset,) = out.glob("asset.*.gz")
    with tarfile.open(asset) as archive:
        assert archive.getnames() == ["workdir", "workdir/serve.py"]
    files = json.loads((out / "Chosen.assets.json").read_text())["files"]
    keys = [d["objectKey"] for f in files.values() if f["source"]["path"] == asset.name
            for d in f["destinations"].values()]  # fmt: skip
    owned = {"StringEquals": {"aws:ResourceAccount": {"Ref": "AWS::AccountId"}}}
    assert granted(template) == {("s3:GetObject",): ([f"{S3}{ASSETS}/{keys[0]}"], owned)}
    assert f"unpack 's3://{ASSETS}/{keys[0]}'" in user_data_of(template)


def test_another_file_is_another_version_and_the_same_files_are_none(
    service: Service, code: Path, tmp_path: Path
) -> None:
    """The launch template's user data changes with the files' content, and with nothing else."""
    first = user_data_of(synthesized(tmp_path / "1", replace(service, workdir=code)))
    (code / "serve.py").touch()
    assert user_data_of(synthesized(tmp_path / "2", replace(service, workdir=code))) == first
    (code / "serve.py").write_text("print('hello again')")
    assert user_data_of(synthesized(tmp_path / "3", replace(service, workdir=code))) != first


def test_a_bucket_is_read_where_the_file_names_it(service: Service, tmp_path: Path) -> None:
    """Below its prefix alone; a writable mount may write there, no other may; nothing may be deleted."""
    mounts = (
        FileMount("/a", Bucket("models", "llama/8b")),
        FileMount("/b", Bucket("data"), MountMode.MOUNT, is_writable=True),
        FileMount("/c", Bucket("weights"), MountMode.MOUNT),
    )
    template = synthesized(tmp_path / "out", replace(service, file_mounts=mounts))
    role = template.id_with("AWS::IAM::Role", "InstancesRole")
    found = [
        (as_list(s["Action"]), [flat(r) for r in as_list(s["Resource"])], s.get("Condition"))
        for s in template.statements(role)
        if "s3" in str(s["Action"])
    ]
    below = {"StringLike": {"s3:prefix": ["llama/8b", "llama/8b/*"]}}
    assert found == [
        (["s3:GetObject"], [f"{S3}models/llama/8b", f"{S3}models/llama/8b/*"], None),
        (["s3:ListBucket"], [f"{S3}models"], below),
        (["s3:GetObject", "s3:AbortMultipartUpload", "s3:PutObject"], [f"{S3}data/*"], None),
        (["s3:ListBucket"], [f"{S3}data"], None),
        (["s3:GetObject"], [f"{S3}weights/*"], None),
        (["s3:ListBucket"], [f"{S3}weights"], None),
    ]


def test_a_model_is_read_below_its_prefix_alone(service: Service, tmp_path: Path) -> None:
    """Listed and read, never written; what was there at the deployment is in the launch template."""
    model = Model(Bucket("weights", "llama/8b"), "/models/llama", digest="0123" * 16)
    template = synthesized(tmp_path / "out", replace(service, models=(model,)))
    assert granted(template) == {
        ("s3:GetObject",): ([f"{S3}weights/llama/8b", f"{S3}weights/llama/8b/*"], None),
        ("s3:ListBucket",): (
            [f"{S3}weights"],
            {"StringLike": {"s3:prefix": ["llama/8b", "llama/8b/*"]}},
        ),
    }
    assert '"digest": "' + "0123" * 16 in user_data_of(template)


def test_a_file_of_a_web_server_needs_no_permission(service: Service, tmp_path: Path) -> None:
    """It is for everybody."""
    model = Model(WebFile("https://x.org/q4.gguf", "0123" * 16), "/models/q4.gguf")
    template = synthesized(tmp_path / "out", replace(service, models=(model,)))
    assert granted(template) == {}


def test_peers_open_one_port_to_each_other(service: Service, tmp_path: Path) -> None:
    """And may ask for hashes, and read their tags; without peers nothing of it is there."""
    with_model = replace(service, models=(Model(Bucket("weights", "llama/8b"), "/models/llama"),))
    alone, peers = (
        synthesized(tmp_path / name, replace(with_model, peers=name == "peers", scripts_in_bundle=True))
        for name in ("alone", "peers")
    )
    read = ([f"{S3}weights/llama/8b", f"{S3}weights/llama/8b/*"], None)
    assert granted(peers)["s3:GetObject", "s3:GetObjectAttributes"] == read
    assert ("s3:GetObject", "s3:GetObjectAttributes") not in granted(alone)
    opened, before = (t.all("AWS::EC2::SecurityGroupIngress") for t in (peers, alone))
    (rule,) = (opened[name] for name in opened.keys() - before.keys())
    group = peers.only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]["SecurityGroupIds"][0]
    assert rule == {
        "IpProtocol": "tcp",
        "FromPort": 7420,
        "ToPort": 7420,
        "GroupId": group,
        "SourceSecurityGroupId": group,
        "Description": "models, for replicas that start",
    }
    for template, expected in ((alone, None), (peers, "enabled")):
        data = template.only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]
        assert data["MetadataOptions"].get("InstanceMetadataTags") == expected
        assert ("peers.py" in user_data_of(template)) == (expected is not None)


def test_a_container_from_amazons_registry_is_pulled_with_the_role(service: Service, tmp_path: Path) -> None:
    """Of that one repository; an image from elsewhere needs no permission."""
    image = "123456789012.dkr.ecr.us-west-2.amazonaws.com/team/chat:1"
    template = synthesized(tmp_path / "ecr", replace(service, container=image))
    repository = "arn:<AWS::Partition>:ecr:us-west-2:123456789012:repository/team/chat"
    assert granted(template) == {
        ("ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"): ([repository], None),
        ("ecr:GetAuthorizationToken",): (["*"], None),
    }
    other = synthesized(tmp_path / "hub", replace(service, container="vllm/vllm-openai:v0.11.0"))
    assert granted(other) == {}


def test_who_needs_no_file_uploads_none(service: Service, tmp_path: Path) -> None:
    """A service of scripts alone has the same stack as ever."""
    template = synthesized(tmp_path / "out", service)
    assert not list((tmp_path / "out").glob("asset.*.gz"))
    assert granted(template) == {}
    assert "models" not in user_data_of(template)


def test_replicas_read_packs_and_only_who_packs_writes_them(service: Service, tmp_path: Path) -> None:
    """Below the service's own prefix; who packs has a role that the control plane may not pass."""
    chosen = replace(service, setup="make-it", pack=Pack(("/opt/vllm",), "1" * 64))
    template = synthesized(tmp_path / "out", chosen)
    mine = f"{S3}{ASSETS}/spotrelay/packs/{service.name}/*"
    owned = {"StringEquals": {"aws:ResourceAccount": {"Ref": "AWS::AccountId"}}}
    roles = {
        key: value["Path"]
        for key, value in template.all("AWS::IAM::Role").items()
        if key.startswith("Instances")
    }
    assert sorted(roles.values()) == ["/spotrelay-pack/", "/spotrelay/"]
    for role, path in roles.items():
        found = {
            tuple(as_list(s["Action"])): ([flat(r) for r in as_list(s["Resource"])], s.get("Condition"))
            for s in template.statements(role)
            if not as_list(s["Action"])[0].startswith("ssm")
        }
        wanted = {("s3:GetObject",): ([mine], owned)}
        if path == "/spotrelay-pack/":
            wanted |= {("s3:PutObject",): ([mine], owned)}
        assert found == wanted
    assert f'"bucket": "{ASSETS}"' in user_data_of(template)
    assert f'"manifest": "{"1" * 64}"' in user_data_of(template)


def test_a_service_without_a_pack_has_nothing_of_it(service: Service, tmp_path: Path) -> None:
    """No role, no output, no permission, no word in user data."""
    template = synthesized(tmp_path / "out", service)
    text = json.dumps(template.body)
    assert [
        word for word in ("spotrelay/packs", "spotrelay-pack", "PackProfile", "pack.sh") if word in text
    ] == []

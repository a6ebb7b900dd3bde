"""What `resources` makes of a stack: image, tags, and what the controller is to look for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spotrelay.file.service import ServiceFileError, in_region, load
from spotrelay.plane.core.names import IMAGE_RESOURCE
from spotrelay.plane.core.requirements import Accelerators, Amount, Requirements
from spotrelay.plane.core.spec import ServiceSpec
from stacks import placement
from stacks.service import ServiceStack
from stacks.settings import AppSettings, GivenNetwork
from tests.template.conftest import flags
from tests.template.support import Template, document_text, refers_to

SUBNETS = {"subnet-00000001": "us-east-1a", "subnet-00000002": "us-east-1b"}
AMIS = {"us-east-1": "ami-0123456789abcdef0", "eu-west-1": "ami-0123456789abcdef1"}


def file(directory: Path, resources: dict[str, Any]) -> Path:
    """A service file with these resources."""
    path = directory / "chosen.yaml"
    values = {"service": {"replicas": 1}, "resources": {"ports": 80, **resources}, "run": "serve"}
    path.write_text(json.dumps(values), encoding="utf-8")  # JSON is YAML
    return path


def stack(directory: Path, resources: dict[str, Any]) -> Template:
    """The stack of a service with these resources."""
    import aws_cdk as cdk  # see conftest

    app = cdk.App(outdir=str(directory / "out"), context=flags())
    settings = AppSettings(network=GivenNetwork("vpc-00000001", SUBNETS, SUBNETS))
    ServiceStack(app, "Chosen", service=load(file(directory, resources)), settings=settings)
    app.synth()
    return Template.read(directory / "out", "Chosen")


def launch(template: Template) -> dict[str, Any]:
    """What the launch template says of an instance."""
    data: dict[str, Any] = template.only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]
    return data


def document(template: Template) -> ServiceSpec:
    """What the controller reads, as of the launch template's version 7."""
    return ServiceSpec.from_json(document_text(template))


def test_a_service_without_a_gpu(tmp_path: Path) -> None:
    """It boots the Ubuntu that is looked up at deployment, on types of the size that is looked for."""
    template = stack(tmp_path, {"cpus": "4+", "use_spot": True, "labels": {"team": "search"}})
    newest = template.only(IMAGE_RESOURCE)["Newest"]
    parameter = template.body["Parameters"][refers_to(newest)]
    assert parameter["Default"].startswith("/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/")
    spec = document(template)
    assert spec.requirements == Requirements(cpus=Amount(4, at_least=True), arch="x86_64")
    assert spec.instance_types[0] == "m6a.xlarge"
    assert not [name for name in spec.instance_types if name.startswith(("g", "p"))]


def test_labels_are_on_disks_and_in_the_document(tmp_path: Path) -> None:
    """The launch template tags volumes; the instances are tagged by who launches them."""
    template = stack(tmp_path, {"cpus": "4+", "labels": {"team": "search"}})
    (tagged,) = launch(template)["TagSpecifications"]
    assert tagged["ResourceType"] == "volume"
    assert {"Key": "team", "Value": "search"} in tagged["Tags"]
    assert document(template).labels == {"team": "search"}


def test_alternatives_reach_the_controller(tmp_path: Path) -> None:
    """The survey gets each of them as the file says it, with what stands outside."""
    one, other = {"accelerators": "L4:1", "zone": "us-east-1a"}, {"accelerators": "A10G:1"}
    spec = document(stack(tmp_path, {"cpus": "4+", "use_spot": True, "ordered": [one, other]}))
    four = Amount(4, at_least=True)
    assert spec.ordered
    assert spec.requirements == Requirements(
        arch="x86_64",
        alternatives=(
            Requirements((Accelerators("L4", 1),), cpus=four, zones=("us-east-1a",)),
            Requirements((Accelerators("A10G", 1),), cpus=four),
        ),
    )


def test_alternatives_of_other_regions_stay_out_of_the_stack(tmp_path: Path) -> None:
    """Until the first survey the document's types are launched: none may be another region's."""
    here = {"accelerators": "L4:1", "region": "us-east-1", "zone": "us-east-1a"}
    there = {"accelerators": "A10G:1", "zone": "eu-west-1b"}
    service = load(file(tmp_path, {"any_of": [here, there]}))
    assert {t.accelerator for t in service.instance_types} == {"L4", "A10G"}
    deployed = in_region(service, "us-east-1")
    assert {t.accelerator for t in deployed.instance_types} == {"L4"}
    assert deployed.requirements.alternatives == service.requirements.alternatives[:1]
    assert deployed.requirements.zones == ("us-east-1a",)
    assert in_region(service, None) == service
    named = AppSettings(target_region="us-east-1", zones=("us-east-1a", "us-east-1b"))
    assert not list(placement.problems(deployed, named))


def test_an_image_for_each_region(tmp_path: Path) -> None:
    """CloudFormation takes the AMI of the region that is deployed to; other regions are refused at synth."""
    template = stack(tmp_path, {"accelerators": "L4", "image_id": AMIS})
    name, region, key = launch(template)["ImageId"]["Fn::FindInMap"]
    assert region == {"Ref": "AWS::Region"}
    assert {place: found[key] for place, found in template.body["Mappings"][name].items()} == AMIS
    service = load(tmp_path / "chosen.yaml")
    assert not list(placement.problems(service, AppSettings(target_region="eu-west-1")))
    (problem,) = placement.problems(service, AppSettings(target_region="us-west-2"))
    assert "allows us-east-1, eu-west-1, and this would deploy to us-west-2" in problem.message


def test_a_service_for_another_cloud_is_no_stack(tmp_path: Path) -> None:
    """It ends before the CDK, with the one line that says why."""
    with pytest.raises(ServiceFileError, match="SpotRelay runs on AWS only"):
        load(file(tmp_path, {"infra": "azure", "accelerators": "A100"}))

"""Where a service may be: the file's zones and regions against what is deployed to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spotrelay.file.service import Service, ServiceFileError, load
from spotrelay.plane.core.requirements import Accelerators, Amount, Requirements
from spotrelay.plane.core.spec import ServiceSpec
from stacks import placement
from stacks.application import NETWORK, SERVICE_PREFIX
from stacks.settings import AppSettings
from tests.template.conftest import synthesize
from tests.template.support import Template, document_text, exported

GIVEN = {
    "vpc_id": "vpc-00000001",
    "subnets": "subnet-00000001=us-east-1a,subnet-00000002=us-east-1b,subnet-00000003=us-east-1c",
}
IN_US_EAST_1 = {"account": "000000000000", "region": "us-east-1"}


def write(directory: Path, *resources: str) -> Path:
    """A service file with these lines among its resources."""
    lines = "".join(f"  {line}\n" for line in resources)
    file = directory / "chat.yaml"
    file.write_text(
        "service: {replicas: 3, base_on_demand: 1}\n"
        f"resources:\n  accelerators: {{A10G, L4}}\n  ports: 80\n{lines}run: serve\n",
        encoding="utf-8",
    )
    return file


def settings(context: dict[str, Any], **environment: str) -> AppSettings:
    """AppSettings from a context and the environment of the CDK's command line."""
    return AppSettings.from_context(context.get, environment)


def messages(service: Service, chosen: AppSettings) -> list[str]:
    """What stands against it."""
    return [str(problem).partition("chat.yaml: ")[2] for problem in placement.problems(service, chosen)]


@pytest.mark.parametrize(
    ("context", "wrong"),
    [
        (IN_US_EAST_1, ["us-west-2", "111111111111"]),
        ({**IN_US_EAST_1, "account": "111111111111"}, ["us-west-2"]),
        ({}, []),
    ],
)
def test_a_certificate_is_of_the_balancers_region_and_account(
    tmp_path: Path, context: dict[str, Any], wrong: list[str]
) -> None:
    """ELB refuses any other, in the middle of a deployment."""
    file = write(tmp_path)
    arn = "arn:aws:acm:us-west-2:111111111111:certificate/01-23"
    file.write_text(
        file.read_text(encoding="utf-8") + f"spotrelay: {{certificate_arn: '{arn}'}}\n", encoding="utf-8"
    )
    found = messages(load(file), settings(context))
    assert [f"spotrelay.certificate_arn: the certificate is in {its}" for its in wrong] == [
        message.partition(",")[0] for message in found
    ]


@pytest.mark.parametrize(
    ("line", "context", "environment", "expected"),
    [
        ("regions: [us-east-1, us-east-2]", IN_US_EAST_1, {}, []),
        ("regions: [us-east-1, us-east-2]", {}, {"CDK_DEFAULT_REGION": "us-east-2"}, []),
        ("regions: [eu-west-1]", IN_US_EAST_1, {"CDK_DEFAULT_REGION": "eu-west-1"},
         ["resources: allows eu-west-1, and this would deploy to us-east-1: change one"]),
        ("regions: [eu-west-1]", {}, {},
         ["resources: the regions that it allows need one to be held against: "
          "-c account=… -c region=…"]),
        ("zones: [us-east-1a, us-east-1b]", {}, {},
         ["resources: the zones that it allows need a VPC whose zones are named: "
          "name all of them, two or more, and the same at each deployment, -c zones=us-east-1a,us-east-1b"]),
        ("zones: [us-east-1a, us-east-1b]", {}, {"CDK_DEFAULT_REGION": "eu-west-1"},
         ["resources: us-east-1a isn't in eu-west-1, which this would deploy to"]),
        ("zones: [us-east-1a]", {}, {},
         ["resources: the zones that it allows need a VPC whose zones are named: "
          "name all of them, two or more, and the same at each deployment, -c zones=us-east-1a,us-east-1b"]),
        ("zones: [us-east-1a]", {"zones": "us-east-1a,us-east-1b"}, {}, []),
        ("zones: [us-east-1d]", {"zones": "us-east-1a,us-east-1b"}, {},
         ["resources: of the zones that it allows, none of us-east-1d has a subnet: "
          "there are us-east-1a, us-east-1b"]),
        ("zones: [us-east-1c, us-east-1d]", GIVEN, {}, []),
        ("zones: [us-east-1d]", GIVEN, {},
         ["resources: of the zones that it allows, none of us-east-1d has a subnet: "
          "there are us-east-1a, us-east-1b, us-east-1c"]),
        ("cpus: 4+", {}, {}, []),
    ],
)  # fmt: skip
def test_what_stands_against_a_place(
    tmp_path: Path, line: str, context: dict[str, Any], environment: dict[str, str], expected: list[str]
) -> None:
    """A region or zone that the file doesn't allow is named, with where it would go and what to do."""
    assert messages(load(write(tmp_path, line)), settings(context, **environment)) == expected


GROUP = "arn:aws:resource-groups:us-east-1:000000000000:group/chat"


@pytest.mark.parametrize(
    ("context", "environment", "expected"),
    [
        (IN_US_EAST_1, {}, []),
        ({}, {}, []),
        ({**IN_US_EAST_1, "region": "us-east-2"}, {},
         ["spotrelay.capacity_reservations: the group's region is us-east-1, and this would deploy to "
          "us-east-2: name a group there, or remove this"]),
        ({}, {"CDK_DEFAULT_REGION": "us-east-2"},
         ["spotrelay.capacity_reservations: the group's region is us-east-1, and this would deploy to "
          "us-east-2: name a group there, or remove this"]),
        ({**IN_US_EAST_1, "account": "111111111111"}, {},
         ["spotrelay.capacity_reservations: the group's account is 000000000000, and this would deploy to "
          "111111111111: name a group there, or remove this"]),
    ],
)  # fmt: skip
def test_a_group_of_reservations_is_where_the_service_is(
    tmp_path: Path, context: dict[str, Any], environment: dict[str, str], expected: list[str]
) -> None:
    """EC2 would refuse every on-demand launch that targets a group of elsewhere, and only at the launch."""
    file = write(tmp_path)
    file.write_text(file.read_text() + f"spotrelay: {{capacity_reservations: {GROUP}}}\n")
    assert messages(load(file), settings(context, **environment)) == expected


def test_nothing_is_made_where_a_service_must_not_be(tmp_path: Path) -> None:
    """A wrong region ends the synthesis like any other wrong service file."""
    file = write(tmp_path, "regions: [eu-west-1]")
    with pytest.raises(ServiceFileError, match=r"chat\.yaml: resources: allows eu-west-1"):
        synthesize(tmp_path / "out", settings({**IN_US_EAST_1, "services": str(file)}))


def document(template: Template) -> ServiceSpec:
    """The runtime document, as of the launch template's version 7."""
    return ServiceSpec.from_json(document_text(template))


def test_a_services_zones_are_some_of_the_shared_networks(tmp_path: Path) -> None:
    """Instances are in the file's zones alone, and the load balancer in all that the network has."""
    file = write(tmp_path, "zones: [us-east-1d]")
    zones = "us-east-1a,us-east-1b,us-east-1d"
    out = synthesize(tmp_path / "out", settings({"services": str(file), "zones": zones}))
    template, network = Template.read(out, SERVICE_PREFIX + "chat"), Template.read(out, NETWORK)
    ((subnet, zone),) = document(template).subnets.items()
    id_ = exported(network, subnet).strip("<>")
    assert network.all("AWS::EC2::Subnet")[id_]["AvailabilityZone"] == "us-east-1d"
    assert exported(network, zone) == f"<{id_}.AvailabilityZone>"
    assert len(template.only("AWS::ElasticLoadBalancingV2::LoadBalancer")["Subnets"]) == 3


def test_the_files_zones_leave_subnets_out(tmp_path: Path) -> None:
    """Of the zones that are there, instances get those that the file allows; the load balancer keeps all."""
    file = write(tmp_path, "zones: [us-east-1c]")
    out = synthesize(tmp_path / "out", settings({**GIVEN, "services": str(file)}))
    template = Template.read(out, SERVICE_PREFIX + "chat")
    assert document(template).subnets == {"subnet-00000003": "us-east-1c"}
    assert len(template.only("AWS::ElasticLoadBalancingV2::LoadBalancer")["Subnets"]) == 3


def test_the_document_has_what_the_survey_and_the_policy_need(tmp_path: Path) -> None:
    """Requirements, price cap and on-demand base reach the controller, in a parameter that costs nothing."""
    file = write(tmp_path, "cpus: 8+", "exclude: [g5.16xlarge]", "max_price: 70%", "accelerator_memory: 24")
    out = synthesize(tmp_path / "out", settings({"services": str(file)}))
    template = Template.read(out, SERVICE_PREFIX + "chat")
    spec = document(template)
    assert (spec.base_on_demand, spec.max_price_share) == (1, 0.7)
    assert spec.requirements == Requirements(
        accelerators=(Accelerators("A10G", 1), Accelerators("L4", 1)),
        accelerator_memory_gb=Amount(24, at_least=False),
        cpus=Amount(8, at_least=True),
        exclude=("g5.16xlarge",),
        arch="x86_64",
    )
    assert len(json.dumps(spec.to_dict())) < 4096

"""From the service file to the runtime document: no setting is lost on the way."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields

import pytest

from spotrelay.model import OnRebalance, OnWarning, ReadinessProbe, ServiceSpec
from spotrelay.requirements import Accelerators, Requirements
from spotrelay.service import load
from spotrelay.service.schema import ReadinessProbe as ProbeSection
from spotrelay.service.schema import ServiceSection
from stacks.service import ServiceStack
from stacks.settings import GivenNetwork, Settings
from tests.template.support import Template, flat

SECTION = {
    "replicas": 5,
    "readiness_probe": {
        "path": "/v1/generate",
        "post_data": {"prompt": "Hello"},
        "initial_delay_seconds": 700,
        "timeout_seconds": 7,
    },
    "health_check": "/healthy",
    "drain_seconds": 45,
    "on_warning": "serve_on",
    "base_on_demand": 2,
    "on_demand_fallback": False,
    "on_rebalance": "replace",
    "surge": 3,
    "max_launches_per_minute": 17,
    "idle_timeout_seconds": 77,
}
"""Every field of the section `service`, each with another value than its default."""

RESOURCES = {
    "accelerators": "A10G",
    "instance_types": ["g5.2xlarge", "g5.xlarge"],
    "zones": ["us-east-1a", "us-east-1b"],
    "use_spot": False,
    "max_price": "70%",
    "ports": 9000,
}


SUBNETS = {"subnet-00000001": "us-east-1a", "subnet-00000002": "us-east-1b", "subnet-00000003": "us-east-1c"}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """The stack of a service that chooses everything for itself."""
    import aws_cdk as cdk  # see conftest

    directory = tmp_path_factory.mktemp("chosen")
    file = directory / "chosen.yaml"
    # JSON is YAML.
    file.write_text(
        json.dumps({"service": SECTION, "resources": RESOURCES, "run": "serve"}), encoding="utf-8"
    )
    app = cdk.App(outdir=str(directory / "out"))
    settings = Settings(network=GivenNetwork("vpc-00000001", SUBNETS, SUBNETS))
    ServiceStack(app, "Chosen", service=load(file), settings=settings)
    app.synth()
    return Template.read(directory / "out", "Chosen")


@pytest.fixture(scope="module")
def spec(template: Template) -> ServiceSpec:
    """What the controller reads, as of the launch template's version 7."""
    (launch_template,) = template.all("AWS::EC2::LaunchTemplate")
    text = flat(template.only("AWS::SSM::Parameter")["Value"])
    return ServiceSpec.from_json(text.replace(f"<{launch_template}.LatestVersionNumber>", "7"))


def test_every_field_of_the_section_is_tried() -> None:
    """A new field fails this test until it is given a value above, and its way tested."""
    assert set(SECTION) == set(ServiceSection.model_fields)
    assert set(SECTION["readiness_probe"]) == set(ProbeSection.model_fields)  # type: ignore[call-overload]
    for name, field in ServiceSection.model_fields.items():
        assert SECTION[name] != field.default


def test_the_document_says_what_the_file_says(spec: ServiceSpec) -> None:
    """Each setting arrives at the controller with the file's own value."""
    assert spec.replicas == 5
    assert spec.readiness_probe == ReadinessProbe("/v1/generate", {"prompt": "Hello"}, timeout_s=7)
    assert spec.initial_delay_s == 700
    assert (spec.drain_s, spec.on_warning) == (45, OnWarning.SERVE_ON)
    assert (spec.base_on_demand, spec.on_demand_fallback) == (2, False)
    assert (spec.on_rebalance, spec.surge) == (OnRebalance.REPLACE, 3)
    assert spec.max_launches_per_minute == 17
    assert (spec.use_spot, spec.max_price_share, spec.port) == (False, 0.7, 9000)
    assert (spec.instance_types, spec.ordered) == (("g5.2xlarge", "g5.xlarge"), True)
    assert set(spec.subnets.values()) == {"us-east-1a", "us-east-1b"}
    assert spec.requirements == Requirements(
        accelerators=(Accelerators("A10G", 1),),
        instance_types=("g5.2xlarge", "g5.xlarge"),
        zones=("us-east-1a", "us-east-1b"),
        use_spot=False,
        arch="x86_64",
    )


def test_nothing_is_left_to_the_documents_own_defaults(spec: ServiceSpec) -> None:
    """What the file chooses differently from a default never comes back as that default."""
    chosen = [field for field in fields(ServiceSpec) if field.default is not MISSING]
    assert chosen
    for field in chosen:
        assert getattr(spec, field.name) != field.default, field.name


def test_the_load_balancer_does_what_the_file_says(template: Template) -> None:
    """What isn't in the document is in the target group: the path of its check, and how long it drains."""
    group = template.only("AWS::ElasticLoadBalancingV2::TargetGroup")
    assert (group["HealthCheckPath"], group["Port"]) == ("/healthy", 9000)
    assert {"Key": "deregistration_delay.timeout_seconds", "Value": "45"} in group["TargetGroupAttributes"]

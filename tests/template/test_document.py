"""From the service file to the runtime document and the launch template: nothing is lost on the way."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # what cloud-init reads with

from spotrelay.core.requirements import Accelerators, Requirements
from spotrelay.core.spec import OnRebalance, OnWarning, ReadinessProbe, ServiceSpec
from spotrelay.service import envfile, load
from spotrelay.service.schema import ReadinessProbe as ProbeSection
from spotrelay.service.schema import ServiceSection
from stacks.service import ServiceStack
from stacks.settings import GivenNetwork, Settings
from tests.template.support import Template, flat

SECTION = {
    "replicas": 5,
    "readiness_probe": {
        "path": "/v1/generate",
        "post_data": {"prompt": "{{ user }} $${Tok$REST \U0001f999"},
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

KEY = "arn:aws:kms:us-east-1:000000000000:key/mrk-0123456789abcdef"

HOSTILE = "\"'`\\ %n $(id) ${HOME} ${AWS::Region} {{ x }} \U0001f999\n---\n- a: {b: !!c 'd'}\u2028"
"""What the CDK, its two languages, CloudFormation and YAML might each take for something of theirs."""

RESOURCES = {
    "accelerators": "A10G",
    "instance_types": ["g5.2xlarge", "g5.xlarge"],
    "zones": ["us-east-1a", "us-east-1b"],
    "use_spot": False,
    "max_price": "70%",
    "ports": 9000,
    "image": "ami-0123456789abcdef0",
    "root_device": "/dev/xvda",
    "disk_size": 20,
    "disk_initialization_rate": 200,
}


SUBNETS = {"subnet-00000001": "us-east-1a", "subnet-00000002": "us-east-1b", "subnet-00000003": "us-east-1c"}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """The stack of a service that chooses everything for itself."""
    import aws_cdk as cdk  # see conftest

    directory = tmp_path_factory.mktemp("chosen")
    file = directory / "chosen.yaml"
    written = {
        "service": SECTION,
        "resources": RESOURCES,
        "envs": {"TEXT": HOSTILE, "REST": "en[TOKEN.1]}"},
        "setup": HOSTILE,
        "run": f"serve {HOSTILE}",
    }
    file.write_text(json.dumps(written), encoding="utf-8")  # JSON is YAML
    app = cdk.App(outdir=str(directory / "out"))
    settings = Settings(network=GivenNetwork("vpc-00000001", SUBNETS, SUBNETS), kms_key_arn=KEY)
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
    prompt = "{{ user }} ${Token[TOKEN.1]} \U0001f999"
    assert spec.readiness_probe == ReadinessProbe("/v1/generate", {"prompt": prompt}, timeout_s=7)
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


def test_parameter_store_takes_the_document(template: Template) -> None:
    """No two braces open anywhere in its value, which it would take for a reference to another parameter."""
    assert "{{" not in flat(template.only("AWS::SSM::Parameter")["Value"])


def test_the_root_volume_is_what_the_file_and_the_context_say(template: Template) -> None:
    """The image's own device, so that no second disk is made; the key; the rate at which it is loaded."""
    (mapping,) = template.only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]["BlockDeviceMappings"]
    assert mapping["DeviceName"] == "/dev/xvda"
    volume = mapping["Ebs"]
    assert (volume["VolumeSize"], volume["VolumeInitializationRate"]) == (20, 200)
    assert (volume["Encrypted"], volume["KmsKeyId"]) == (True, KEY)


def test_scripts_and_environment_reach_user_data_unchanged(template: Template) -> None:
    """What a template, two languages and CloudFormation lie between is still what the file says."""
    text = flat(template.only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]["UserData"])
    written = {Path(f["path"]).name: f["content"] for f in yaml.safe_load(text)["write_files"]}
    assert written["setup.sh"] == f"#!/bin/bash\n{HOSTILE}\n"
    assert written["run.sh"] == f"#!/bin/bash\nserve {HOSTILE}\n"
    assert envfile.parse(written["service.env"])["TEXT"] == HOSTILE

"""From the service file to the runtime document and the launch template: nothing is lost on the way."""

from __future__ import annotations

import json
import re
from dataclasses import MISSING, fields
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # what cloud-init reads with
from pydantic import BaseModel

from spotrelay.file.compile.wording import sections
from spotrelay.file.dialects.dialect import canonical
from spotrelay.file.instance import envfile
from spotrelay.file.service import Service, load
from spotrelay.file.source.document import Document
from spotrelay.file.values.limits import FETCHING_S
from spotrelay.plane.core.answers import BusyEvidence
from spotrelay.plane.core.pools import PurchaseOption
from spotrelay.plane.core.requirements import Accelerators, Amount, Requirements
from spotrelay.plane.core.scaling import MetricTarget, OngoingTarget, Scaling, Schedule
from spotrelay.plane.core.spec import (
    LaunchTemplate,
    OnRebalance,
    OnUpdate,
    OnWarning,
    ReadinessProbe,
    ServiceSettings,
    ServiceSpec,
)
from spotrelay.plane.serving import incidents
from stacks.service import ServiceStack
from stacks.settings import AppSettings, GivenNetwork
from tests.template.conftest import flags
from tests.template.support import Template, alarms_of, as_list, document_text, flat

KEY = "arn:aws:kms:us-east-1:000000000000:key/mrk-0123456789abcdef"

GROUP = "arn:aws:resource-groups:us-east-1:000000000000:group/tuned"

HOSTILE = "\"'`\\ %n $(id) ${HOME} ${AWS::Region} {{ x }} \U0001f999\n---\n- a: {b: !!c 'd'}\u2028"
"""What the CDK, its two languages, CloudFormation and YAML might each take for something of theirs."""

FILE: dict[str, Any] = {
    "name": "tuned",
    "service": {
        "replicas": 35,
        "readiness_probe": {
            "path": "/v1/generate",
            "post_data": {"prompt": "{{ user }} $${Tok$REST \U0001f999"},
            "initial_delay_seconds": 1700,
            "timeout_seconds": 7,
            "consecutive_failure_threshold_timeout": 222,
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
    },
    "resources": {
        "accelerators": "A10G",
        "accelerator_memory": 24,
        "instance_types": ["g5.2xlarge", "g5.xlarge"],
        "exclude": ["g6"],
        "cpus": "4+",
        "memory": "16+",
        "zones": ["us-east-1a", "us-east-1b"],
        "regions": ["us-east-1"],
        "use_spot": False,
        "max_price": "70%",
        "labels": {"team": "search"},
        "disk_size": 20,
        "disk_tier": "best",
        "disk_initialization_rate": 200,
        "ports": 9000,
        "image": "ami-0123456789abcdef0",
        "root_device": "/dev/xvda",
    },
    "envs": {"TEXT": HOSTILE, "REST": "en[TOKEN.1]}"},
    "secrets": {"API_KEY": "/tuned/api-key"},
    "workdir": {"url": "https://github.com/me/chat", "ref": "main"},
    "file_mounts": {"/models": "s3://models/llama", "/results": {"source": "s3://results"}},
    "setup": HOSTILE,
    "run": f"serve {HOSTILE}",
}
"""Every field of a service file, each with another value than its default; but for one, see below."""

OTHERWISE = {
    "": {"num_nodes"},
    "service": {"ports"},
    "spotrelay.scaling": {"gpu_utilization"},
    "spotrelay.scaling.metric": {"target_value"},
    "resources": {
        *("gpus", "any_of", "ordered", "instance_type", "infra", "cloud", "region", "zone", "image_id"),
        *("autostop", "job_recovery", "spot_recovery", "priority", "network_tier", "accelerator_args"),
    },
}
"""But for those that say the same in other words, exclude another, or have no effect."""

BRIDGED: dict[str, Any] = {
    **FILE,
    "service": {**FILE["service"], "on_demand_fallback": True},
    "resources": {
        **FILE["resources"],
        "use_spot": True,
        "instance_types": ["g5.2xlarge", "g5.xlarge", "g5.4xlarge"],  # of fewer, scores tell nothing
    },
    "spotrelay": {
        "standby": "auto",
        "standby_instance_types": ["g5.2xlarge"],
        "standby_zones": ["us-east-1b"],
        "drain_unhurried": 240,
        "start_within": 90,
        "certificate_arn": "arn:aws:acm:us-east-1:000000000000:certificate/0123-4567",
        "domain": "tuned.example.com",
        "on_update": "blue_green",
        "bake_seconds": 90,
        "capacity_reservations": GROUP,
        "rebalance_cost": "20%",
        "move_on_score": True,
        "writable_mounts": ["/results"],
        "models": [{"source": "s3://weights/llama", "path": "/weights/llama"}],
        "pack": {"paths": ["/opt/vllm"], "warm": True},
        "peers": True,
    },
}
"""Standbys stand in for Spot, and replicas move on it, which the file above has not."""

SKYSERVES: dict[str, Any] = {
    "name": "theirs",
    "service": {
        "readiness_probe": {
            "path": "/v1/models",
            "headers": {"Authorization": "Bearer x"},
            "endpoint_probe_interval_seconds": 20,
            "consecutive_failure_threshold_timeout": 300,
        },
        "replica_policy": {
            "min_replicas": 2,
            "max_replicas": 4,
            "target_qps_per_replica": 2.5,
            "upscale_delay_seconds": 60,
            "downscale_delay_seconds": 600,
            "num_overprovision": 1,
            "spot_placer": "dynamic_fallback",
            "base_ondemand_fallback_replicas": 1,
            "dynamic_ondemand_fallback": True,
        },
        "load_balancing_policy": "round_robin",
        "load_balancer": {"stream_timeout_seconds": 300},
        "tls": {"keyfile": "key.pem", "certfile": "cert.pem"},
    },
    "resources": {"accelerators": "A10G", "ports": 8000, "use_spot": True},
    "run": "serve",
}
"""What SkyServe's format has and not in the files above."""

FOLLOWED: dict[str, Any] = {
    **FILE,
    "service": {
        **{name: value for name, value in FILE["service"].items() if name != "replicas"},
        "replica_policy": {
            "min_replicas": 35,
            "max_replicas": 40,
            "target_qps_per_replica": {"A10G:1": 1.5},
            "upscale_delay_seconds": 60,
            "downscale_delay_seconds": 600,
            "num_overprovision": 2,
        },
    },
    "spotrelay": {
        "models": [{"source": "https://weights.org/a.gguf", "path": "/weights/a.gguf", "sha256": "0" * 64}],
        "busy": {
            "limit": 4,
            "finished": ["done"],
            "ongoing": ["busy", "queued"],
            "path": "/stats",
            "longest_seconds": 900,
        },
        "scaling": {
            "metric": {
                "namespace": "AWS/SQS",
                "name": "ApproximateNumberOfMessagesVisible",
                "dimensions": {"QueueName": "work"},
                "statistic": "Maximum",
                "target_per_replica": 100,
            },
            "ongoing": {"target_per_replica": 6, "metric": ["busy", "queued"], "path": "/stats"},
            "schedules": [
                {"cron": "0 8 * * 1-5", "min_replicas": 2, "max_replicas": 4, "time_zone": "Asia/Tokyo"}
            ],
        },
    },
}
"""A number of replicas that follows the load, in place of a fixed one."""

SHARED: dict[str, Any] = {
    **{name: value for name, value in FILE.items() if name in ("name", "service")},
    "service": {"replicas": 4},
    "spotrelay": {"replicas_per_instance": "auto"},
    "resources": {"accelerators": "A10G", "ports": 8000},
    "run": "serve --port $PORT",
}
"""Instances that replicas share, which files of one instance for each exclude."""

BROUGHT: dict[str, Any] = {
    **FILE,
    "service": {
        name: value for name, value in FILE["service"].items() if name not in ("idle_timeout_seconds",)
    },
    "spotrelay": {
        "security_groups": ["sg-0123456789abcdef0"],
        "instance_profile": {
            "arn": "arn:aws:iam::000000000000:instance-profile/gpu",
            "role": "arn:aws:iam::000000000000:role/serving",
        },
        "listener": {
            "arn": "arn:aws:elasticloadbalancing:us-east-1:000000000000:listener/app/web/0123456789abcdef/"
            "fedcba9876543210",
            "priority": 7,
            "paths": ["/chat/*"],
            "hosts": ["chat.example.com"],
        },
        "target_group": "arn:aws:elasticloadbalancing:us-east-1:000000000000:targetgroup/a/0123456789abcdef",
    },
}
"""What exists already; a file has one of the last two. What becomes of them test_bring_your_own has."""

SETTINGS = ServiceSettings(
    replicas=35,
    use_spot=False,
    ordered=True,
    port=9000,
    on_demand_fallback=False,
    base_on_demand=2,
    max_price_share=0.7,
    requirements=Requirements(
        accelerators=(Accelerators("A10G", 1),),
        accelerator_memory_gb=Amount(24, at_least=False),
        cpus=Amount(4, at_least=True),
        memory_gib=Amount(16, at_least=True),
        instance_types=("g5.2xlarge", "g5.xlarge"),
        exclude=("g6",),
        zones=("us-east-1a", "us-east-1b"),
        regions=("us-east-1",),
        arch="x86_64",
        use_spot=False,
    ),
    drain_s=45,
    drain_unhurried_s=240,
    start_within_s=90,
    on_warning=OnWarning.SERVE_ON,
    initial_delay_s=1700 + FETCHING_S,
    readiness_probe=ReadinessProbe(
        "/v1/generate",
        {"prompt": "{{ user }} ${Token[TOKEN.1]} \U0001f999"},
        timeout_s=7,
        failure_threshold_s=222,
    ),
    busy=BusyEvidence(limit=4, finished=("done",), ongoing=("busy", "queued"), path="/stats", longest_s=900),
    on_rebalance=OnRebalance.REPLACE,
    on_update=OnUpdate.BLUE_GREEN,
    bake_s=90,
    surge=3,
    standby=33,
    standby_auto=True,
    standby_instance_types=("g5.2xlarge",),
    standby_zones=("us-east-1b",),
    rebalance_cost=0.2,
    move_on_score=True,
    max_launches_per_minute=17,
    scaling=Scaling(
        min_replicas=35,
        max_replicas=40,
        target_qps_per_replica=1.5,
        metric=MetricTarget(
            namespace="AWS/SQS",
            name="ApproximateNumberOfMessagesVisible",
            target=100.0,
            dimensions={"QueueName": "work"},
            statistic="Maximum",
            is_total=True,
        ),
        ongoing=OngoingTarget(target=6.0, metrics=("busy", "queued"), path="/stats"),
        upscale_delay_s=60,
        downscale_delay_s=600,
        schedules=(Schedule(cron="0 8 * * 1-5", min_replicas=2, max_replicas=4, time_zone="Asia/Tokyo"),),
    ),
    overprovision=2,
    peers=True,
    labels={"team": "search"},
    slots={"g5.12xlarge": 4, "g5.24xlarge": 4, "g5.48xlarge": 8},
    disk_usd_per_hour=0.056986,  # 20 GiB of disk_tier: best
)
"""What those files say. A new setting keeps its default here, and fails below, until one of them has it."""

PLAIN = {
    "spotrelay": {},
    "service": {"replicas": 1},
    "resources": {"accelerators": "A10G", "ports": 80},
    "run": "serve",
}
"""As little as a file can say."""

SUBNETS = {"subnet-00000001": "us-east-1a", "subnet-00000002": "us-east-1b", "subnet-00000003": "us-east-1c"}


def _stack(directory: Path, values: dict[str, Any]) -> Template:
    import aws_cdk as cdk  # see conftest

    file = directory / "chosen.yaml"
    file.write_text(json.dumps(values), encoding="utf-8")  # JSON is YAML
    app = cdk.App(outdir=str(directory / "out"), context=flags())
    settings = AppSettings(network=GivenNetwork("vpc-00000001", SUBNETS, SUBNETS), kms_key_arn=KEY)
    ServiceStack(app, "Chosen", service=load(file), settings=settings)
    app.synth()
    return Template.read(directory / "out", "Chosen")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """The stack of a service that chooses everything for itself."""
    return _stack(tmp_path_factory.mktemp("chosen"), FILE)


@pytest.fixture(scope="module")
def spec(template: Template) -> ServiceSpec:
    """What the controller reads, as of the launch template's version 7."""
    return _document(template)


@pytest.fixture(scope="module")
def bridged_template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """The stack of the service that has standbys, capacity reservations and moves."""
    return _stack(tmp_path_factory.mktemp("bridged"), BRIDGED)


@pytest.fixture(scope="module")
def bridged(bridged_template: Template) -> ServiceSpec:
    """What the controller reads of it."""
    return _document(bridged_template)


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> ServiceSpec:
    """The same of the service whose number of replicas follows the load."""
    return _document(_stack(tmp_path_factory.mktemp("followed"), FOLLOWED))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> ServiceSpec:
    """What the controller is told of instances that replicas share."""
    return _document(_stack(tmp_path_factory.mktemp("shared"), SHARED))


def _canonical(file: dict[str, Any]) -> dict[str, Any]:
    return canonical(Document("chosen.yaml", file, {})).document.values


def _document(template: Template) -> ServiceSpec:
    """As of version 7 of the launch template, and version 2 of that for on-demand."""
    text = document_text(template)
    for launch_template in template.all("AWS::EC2::LaunchTemplate"):
        if "OnDemand" in launch_template:
            text = text.replace(f"<{launch_template}.LatestVersionNumber>", "2")
    return ServiceSpec.from_json(text)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Service:
    """A service of which everything is left out that can be."""
    file = tmp_path_factory.mktemp("plain") / "plain.yaml"
    file.write_text(json.dumps(PLAIN), encoding="utf-8")
    return load(file)


@pytest.mark.parametrize(("way", "model"), list(sections()))
def test_every_field_of_the_file_is_tried(way: str, model: type[BaseModel]) -> None:
    """A new field of the schema fails this test until the file above has it, off its default."""
    written_as = ({**FILE, "spotrelay": BRIDGED["spotrelay"]}, SKYSERVES, FOLLOWED, SHARED, BROUGHT)
    files = [_canonical(file) for file in written_as]
    steps = way.split(".") if way else ()
    found: list[Any] = [reduce(lambda at, step: at.get(step, {}), steps, f) for f in files]
    written = [at[0] if isinstance(at, list) else at for at in found]
    tried = {name: f for name, f in model.model_fields.items() if name not in OTHERWISE.get(way, set())}
    assert {name for section in written for name in section} == tried.keys()
    for name, field in tried.items():
        values = [section[name] for section in written if name in section]
        assert any(value != field.get_default(call_default_factory=True) for value in values), name


@pytest.mark.parametrize("name", [field.name for field in fields(ServiceSettings)])
def test_a_setting_arrives_at_the_controller(
    name: str,
    spec: ServiceSpec,
    bridged: ServiceSpec,
    followed: ServiceSpec,
    shared: ServiceSpec,
    plain: Service,
) -> None:
    """With the value that the file gives it, which is another than that of a file without it."""
    only_under_ours = (
        "standby",
        "rebalance_cost",
        "move_on",
        "on_update",
        "bake",
        "drain_unhurried",
        "start_within",
        "peers",
    )
    spec = bridged if name.startswith(only_under_ours) else spec
    spec = followed if name in ("scaling", "overprovision", "busy") else spec
    spec = shared if name == "slots" else spec
    assert getattr(spec, name) == getattr(SETTINGS, name)
    assert getattr(spec, name) != getattr(plain, name)


SAID_BY_EVERY_FILE = (
    "requirements",
    "on_update",
    "disk_usd_per_hour",
    "drain_unhurried_s",
    "readiness_probe",
)
"""Every file has requirements, a disk, and a health check that the prober asks, too."""


def test_a_document_without_a_setting_says_what_a_file_without_it_says(plain: Service) -> None:
    """The default in the file's schema is the default that an earlier version's document gets.

    But for roll-outs and the unhurried drain: an earlier version's document is of a stack that had neither.
    """
    for field in fields(ServiceSettings):
        if field.default is not MISSING and field.name not in SAID_BY_EVERY_FILE:
            assert getattr(plain, field.name) == field.default, field.name


def test_the_document_names_the_load_balancer_as_metrics_do(followed: ServiceSpec) -> None:
    """Its own one; and, for people, as clients do."""
    assert followed.load_balancer.endswith(".LoadBalancerFullName>")
    assert re.fullmatch(r"https?://\S+", followed.address)


def test_the_document_has_the_choice_of_types_and_zones(spec: ServiceSpec, template: Template) -> None:
    """The types in the file's order, and the subnets of the file's zones alone."""
    assert (spec.service, spec.version) == ("tuned", 7)
    assert spec.instance_types == ("g5.2xlarge", "g5.xlarge")
    assert set(spec.subnets.values()) == {"us-east-1a", "us-east-1b"}
    assert template.only("AWS::SSM::Parameter")["Name"] == "/spotrelay/services/tuned"


def test_the_load_balancer_does_what_the_file_says(template: Template) -> None:
    """Its check's path and port, how long it lets a replica drain, and how long it waits for an answer."""
    group = template.only("AWS::ElasticLoadBalancingV2::TargetGroup")
    assert group["HealthCheckPath"] == "/healthy"
    assert {"Key": "deregistration_delay.timeout_seconds", "Value": "300"} in group["TargetGroupAttributes"]
    balancer = template.only("AWS::ElasticLoadBalancingV2::LoadBalancer")
    assert {"Key": "idle_timeout.timeout_seconds", "Value": "77"} in balancer["LoadBalancerAttributes"]


def test_skyserves_words_reach_the_load_balancer(tmp_path: Path) -> None:
    """In turn, by their time-out, with a certificate of the file's; a 404 to / is a sign of life."""
    service = {**SKYSERVES["service"], "readiness_probe": {"path": "/v1", "post_data": {"a": 1}}}
    del service["tls"]
    template = _stack(tmp_path, {**SKYSERVES, "service": service})
    group = template.only("AWS::ElasticLoadBalancingV2::TargetGroup")
    assert (group["HealthCheckPath"], group["Matcher"]) == ("/", {"HttpCode": "200-499"})
    algorithm = {"Key": "load_balancing.algorithm.type", "Value": "round_robin"}
    assert algorithm in group["TargetGroupAttributes"]
    balancer = template.only("AWS::ElasticLoadBalancingV2::LoadBalancer")
    assert {"Key": "idle_timeout.timeout_seconds", "Value": "300"} in balancer["LoadBalancerAttributes"]


def test_the_files_certificate_is_the_listeners(tmp_path: Path) -> None:
    """A deployment's own setting isn't needed then, and the address is the file's domain."""
    arn = BRIDGED["spotrelay"]["certificate_arn"]
    stack = _stack(tmp_path, BRIDGED)
    assert stack.body["Outputs"]["Address"]["Value"] == "https://tuned.example.com"
    listeners = stack.all("AWS::ElasticLoadBalancingV2::Listener").values()
    assert [listener["Certificates"] for listener in listeners if "Certificates" in listener] == [
        [{"CertificateArn": arn}]
    ]


def test_replicas_are_reached_at_any_port(template: Template) -> None:
    """By the load balancer and by the probe: out of the group of each, and into that of the replicas.

    While a new port rolls out, some listen on the old one.
    """
    groups = template.all("AWS::EC2::SecurityGroup").values()
    rules = [r for g in groups for way in ("Ingress", "Egress") for r in g.get(f"SecurityGroup{way}", ())]
    rules += template.all("AWS::EC2::SecurityGroupEgress").values()
    for purpose in ("requests and health checks", "readiness probes"):
        ports = [(rule["FromPort"], rule["ToPort"]) for rule in rules if rule["Description"] == purpose]
        assert ports == [(0, 65_535)] * 2, purpose


def test_the_alarms_wait_as_long_as_the_file_says(template: Template) -> None:
    """Three minutes of launches, a start of 1700 s once all is fetched, a drain of 45 s."""
    alarms = alarms_of(template, "tuned")
    spec = ServiceSpec.from_json(document_text(template))
    assert incidents.launched_within_s(spec) == incidents.LAUNCHED_WITHIN_S + 3 * 60
    start_s = 1700 + FETCHING_S
    assert incidents.start_s(spec) == start_s + incidents.STARTED_WITHIN_S
    for name in ("NothingReady", "CannotLaunch", "NotWhole"):
        assert "(35, unless `spotrelay scale tuned` shows another number)" in alarms[name]["AlarmDescription"]
    assert f"{start_s} s, from initial_delay_seconds" in alarms["NotWhole"]["AlarmDescription"]
    assert alarms["SlowAnswers"]["Threshold"] == 45


def test_parameter_store_takes_the_document(template: Template) -> None:
    """No two braces open anywhere in its value, which it would take for a reference to another parameter."""
    assert "{{" not in flat(template.only("AWS::SSM::Parameter")["Value"])


def test_the_root_volume_is_what_the_file_and_the_context_say(template: Template) -> None:
    """The image's own device, so that no second disk is made; the key; the rate at which it is loaded."""
    (mapping,) = template.only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]["BlockDeviceMappings"]
    assert mapping["DeviceName"] == "/dev/xvda"
    volume = mapping["Ebs"]
    assert (volume["VolumeSize"], volume["VolumeInitializationRate"]) == (20, 200)
    assert (volume["Iops"], volume["Throughput"]) == (4000, 1000)
    assert (volume["Encrypted"], volume["KmsKeyId"]) == (True, KEY)


def test_on_demand_has_a_launch_template_that_targets_the_reservations(
    bridged_template: Template, bridged: ServiceSpec
) -> None:
    """It says all that the other one says, and the group besides, without a preference beside it."""
    templates = bridged_template.all("AWS::EC2::LaunchTemplate")
    on_demand = bridged_template.id_with("AWS::EC2::LaunchTemplate", "InstancesOnDemand")
    assert bridged.template(PurchaseOption.ON_DEMAND) == LaunchTemplate(f"<{on_demand}>", "2")
    assert bridged.template(PurchaseOption.SPOT) == LaunchTemplate(bridged.launch_template_id, "7")
    ours = templates.pop(on_demand)
    (other,) = templates.values()
    targeted = {"CapacityReservationTarget": {"CapacityReservationResourceGroupArn": GROUP}}
    data = {**other["LaunchTemplateData"], "CapacityReservationSpecification": targeted}
    assert ours["LaunchTemplateData"] == data
    assert "CapacityReservationSpecification" not in other["LaunchTemplateData"], "Spot's"
    # A role of ours launches only from templates that bear our tag.
    assert ours["TagSpecifications"] == other["TagSpecifications"]


def test_without_reservations_there_is_one_launch_template(template: Template, spec: ServiceSpec) -> None:
    """Which targets none, so that Spot and on-demand can both be launched from it."""
    assert "CapacityReservationSpecification" not in str(template.only("AWS::EC2::LaunchTemplate"))
    assert spec.template(PurchaseOption.ON_DEMAND) == spec.template(PurchaseOption.SPOT)


def test_scripts_and_environment_reach_user_data_unchanged(template: Template) -> None:
    """What a template, two languages and CloudFormation lie between is still what the file says."""
    text = flat(template.only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]["UserData"])
    written = {Path(f["path"]).name: f["content"] for f in yaml.safe_load(text)["write_files"]}
    for name, script in {"setup.sh": HOSTILE, "run.sh": f"serve {HOSTILE}"}.items():
        assert written[name].startswith("#!/bin/bash\n")
        assert written[name].endswith(f"\n{script}\n")
    environment = envfile.parse(written["service.env"])
    assert (environment["TEXT"], environment["PORT"]) == (HOSTILE, "9000")


def test_the_files_image_boots_and_may_read_the_files_secrets(template: Template) -> None:
    """The launch template names the image; user data names each secret, and the role may read it."""
    launch = template.only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]
    assert launch["ImageId"] == "ami-0123456789abcdef0"
    assert "API_KEY" in flat(launch["UserData"])
    assert "/tuned/api-key" in flat(launch["UserData"])
    policies = template.policies.values()
    readable = {
        flat(resource).partition(":parameter")[2]
        for policy in policies
        for statement in policy["PolicyDocument"]["Statement"]
        for resource in as_list(statement.get("Resource", []))
    }
    assert {"/tuned/api-key", "/tuned/api-key:*"} <= readable

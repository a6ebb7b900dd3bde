"""What a service's stack has for a load that its replicas, or their instances, report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spotrelay.file.service import load
from spotrelay.plane.core.names import prober_function
from tests.template.support import Template, function_id, refers_to
from tests.template.test_instance_files import granted, synthesized, user_data_of


def stack(directory: Path, scaling: dict[str, Any], *, most: int = 5) -> Template:
    """Of a service without a readiness probe of its own whose number follows this."""
    values = {
        "name": "chat",
        "service": {"replica_policy": {"min_replicas": 1, "max_replicas": most}},
        "resources": {"accelerators": "A10G", "ports": 80},
        "run": "serve",
        "spotrelay": {"scaling": scaling},
    }
    file = directory / "chat.yaml"
    file.write_text(json.dumps(values), encoding="utf-8")  # JSON is YAML
    return synthesized(directory / "out", load(file))


def askers(template: Template) -> list[str]:
    """The names of functions that reach into the service's network."""
    found = template.all("AWS::Lambda::Function").values()
    return [function["FunctionName"] for function in found if "VpcConfig" in function]


def let_in(template: Template) -> list[str]:
    """Why replicas let anybody in."""
    (group,) = template.only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]["SecurityGroupIds"]
    rules = template.all("AWS::EC2::SecurityGroup")[refers_to(group)]["SecurityGroupIngress"]
    return [rule["Description"] for rule in rules]


@pytest.mark.parametrize(
    ("scaling", "most"),
    [({"ongoing": {"target_per_replica": 8}}, 5), ({"gpu_utilization": 60}, 5), ({}, 1)],
    ids=["how many requests it has", "its health check", "of a fixed number"],
)
def test_every_service_has_who_asks_its_replicas(tmp_path: Path, scaling: dict[str, Any], most: int) -> None:
    """Also where the load balancer's check is all there is; replicas let it in, the document waits for it."""
    template = stack(tmp_path, scaling, most=most)
    assert askers(template) == [prober_function("chat")]
    assert let_in(template) == ["requests and health checks", "readiness probes"]
    (document,) = template.all("AWS::SSM::Parameter")
    assert function_id(template, "probe") in template.comes_after(document)


def test_instances_may_report_how_busy_their_gpus_are(tmp_path: Path) -> None:
    """In the service's own namespace: what another service, or the control plane, reports is out of reach."""
    template = stack(tmp_path, {"gpu_utilization": 60})
    namespace = {"StringEquals": {"cloudwatch:namespace": "SpotRelay/chat"}}
    assert granted(template)[("cloudwatch:PutMetricData",)] == (["*"], namespace)
    assert "spotrelay-gpu.service" in user_data_of(template)


def test_others_may_report_nothing(tmp_path: Path) -> None:
    """Nor do their instances run the agent."""
    template = stack(tmp_path, {"ongoing": {"target_per_replica": 8}})
    assert ("cloudwatch:PutMetricData",) not in granted(template)
    assert "spotrelay-gpu" not in user_data_of(template)

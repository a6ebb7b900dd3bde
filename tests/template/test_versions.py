"""Which changes of a service file are a new version: those that an instance is made of, and no others."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from spotrelay.file.service import load, pinned
from stacks.service import ServiceStack
from stacks.settings import AppSettings, GivenNetwork
from tests.template.conftest import flags
from tests.template.support import Template, flat

SUBNETS = {"subnet-00000001": "us-east-1a", "subnet-00000002": "us-east-1b"}

FILE: dict[str, Any] = {
    "name": "chosen",
    "service": {
        "replicas": 3,
        "readiness_probe": {"path": "/v1/generate", "post_data": {"prompt": "hello"}},
    },
    "resources": {"accelerators": "A10G", "ports": 9000, "image": "ami-0123456789abcdef0"},
    "envs": {"MODEL": "one"},
    "setup": "true",
    "run": "serve",
    "spotrelay": {},
}

SAME = {
    "number of replicas": ("service.replicas", 5),
    "probe": ("service.readiness_probe.post_data", {"prompt": "bye"}),
    "health check": ("service.health_check", "/other"),
    "time to start": ("service.readiness_probe.initial_delay_seconds", 99),
    "drain": ("service.drain_seconds", 45),
    "unhurried drain": ("spotrelay.drain_unhurried", 600),
    "idle time-out": ("service.idle_timeout_seconds", 77),
    "on_warning": ("service.on_warning", "leave"),
    "on-demand base": ("service.base_on_demand", 1),
    "fallback": ("service.on_demand_fallback", False),
    "surge": ("service.surge", 2),
    "roll-out": ("spotrelay.on_update", "blue_green"),
    "bake time": ("spotrelay.bake_seconds", 60),
    "standbys": ("spotrelay.standby", 1),
    "accelerators": ("resources.accelerators", "L4"),
    "instance types": ("resources.instance_types", ["g5.xlarge"]),
    "excluded types": ("resources.exclude", ["g5.xlarge"]),
    "memory": ("resources.memory", "64+"),
    "zones": ("resources.zones", ["us-east-1a", "us-east-1b"]),
    "Spot": ("resources.use_spot", False),
    "price cap": ("resources.max_price", "70%"),
}
"""What the controller, the load balancer or the launch request goes by: no instance has to change for it."""

NEW = {
    "image": ("resources.image", "ami-0123456789abcdef1"),
    "root device": ("resources.root_device", "/dev/xvda"),
    "disk": ("resources.disk_size", 100),
    "disk tier": ("resources.disk_tier", "best"),
    "port": ("resources.ports", 9001),
    "envs": ("envs.MODEL", "two"),
    "secrets": ("secrets", {"KEY": "/chosen/key"}),
    "setup": ("setup", "echo"),
    "run": ("run", "serve --fast"),
}


def _launched(
    directory: Path, change: tuple[str, Any] | None, versions: Mapping[str, int] = MappingProxyType({})
) -> Any:
    """What an instance is made of, and everything else of the stack that CloudFormation would replace."""
    import aws_cdk as cdk  # see conftest

    values = copy.deepcopy(FILE)
    if change is not None:
        at, value = change
        *way, last = at.split(".")
        section = values
        for name in way:
            section = section[name]
        section[last] = value
    directory.mkdir(exist_ok=True)
    file = directory / "chosen.yaml"
    file.write_text(json.dumps(values), encoding="utf-8")  # JSON is YAML
    app = cdk.App(outdir=str(directory / "out"), context=flags())
    settings = AppSettings(network=GivenNetwork("vpc-00000001", SUBNETS, SUBNETS))
    ServiceStack(app, "Chosen", service=pinned(load(file), versions, {}, {}), settings=settings)
    app.synth()
    template = Template.read(directory / "out", "Chosen")
    launch = template.only("AWS::EC2::LaunchTemplate")
    group = template.only("AWS::ElasticLoadBalancingV2::TargetGroup")
    kept = {name: group[name] for name in ("Name", "Port", "Protocol", "TargetType", "VpcId")}
    return launch, kept


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Of the file as it is."""
    return _launched(tmp_path_factory.mktemp("before"), None)


@pytest.mark.parametrize("what", SAME)
def test_what_no_instance_has_is_no_new_version(what: str, before: Any, tmp_path: Path) -> None:
    """The launch template stays as it is, to the letter, so nothing rolls out."""
    assert _launched(tmp_path, SAME[what]) == before


@pytest.mark.parametrize("what", NEW)
def test_what_an_instance_is_made_of_is_a_new_version(what: str, before: Any, tmp_path: Path) -> None:
    """The launch template gets another version. The target group is never another one, whatever changes."""
    launch, group = _launched(tmp_path, NEW[what])
    assert launch != before[0]
    assert group == before[1]


def test_a_changed_secret_is_a_new_version(tmp_path: Path) -> None:
    """Instances ask for the version that was deployed; of a parameter without one they read the latest."""
    change = ("secrets", {"KEY": "/chosen/key", "OTHER": "/chosen/other"})
    of = {
        version: flat(
            _launched(tmp_path / str(version), change, versions)[0]["LaunchTemplateData"]["UserData"]
        )
        for version, versions in ((0, {}), (3, {"/chosen/key": 3, "/foreign": 9}), (4, {"/chosen/key": 4}))
    }
    assert "KEY=$(spotrelay_secret /chosen/key) " in of[0]
    for version in (3, 4):
        assert f"KEY=$(spotrelay_secret /chosen/key:{version}) " in of[version]
        assert "OTHER=$(spotrelay_secret /chosen/other) " in of[version]
        assert "/foreign" not in of[version]
    assert len(set(of.values())) == 3

"""A service's stack is updated while clients stream answers: what rolls out costs none of them anything."""

from __future__ import annotations

import json
import re

import pytest

from spotrelay.file.model import DEFAULT_IMAGE
from spotrelay.plane.core.names import Alarm, image_parameter
from spotrelay.plane.core.replica import ReplicaState
from tests.e2e.clients import Clients
from tests.e2e.faults.bench import Bench
from tests.e2e.updating import Change, update

ROLLED_OUT_WITHIN_S = 150.0
"""Three replicas one after the other, each of which must stay for as long as it took to start."""


IMAGE_PARAMETER = DEFAULT_IMAGE.format(arch="x86_64")
NEWER_IMAGE = "ami-0dee9a1e5b0c24041"


def _other_port(template: str) -> str:
    return template.replace("8081", "8082")


def _other_image_at_once(template: str) -> str:
    body = json.loads(template.replace('on_update\\": \\"rolling', 'on_update\\": \\"blue_green'))
    (launch,) = (r for r in body["Resources"].values() if r["Type"] == "AWS::EC2::LaunchTemplate")
    launch["Properties"]["LaunchTemplateData"]["ImageId"] = "ami-0123456789abcdef0"
    return json.dumps(body)


def _other_environment(template: str) -> str:
    return template.replace("LOAD_S", "LOADED_S")


def _environment_of_before(template: str) -> str:
    return template.replace("LOADED_S", "LOAD_S")


def _other_bake_time(template: str) -> str:
    """A setting for which no instance has to change; another one each time."""
    seconds = iter(range(1, 100))
    return next(
        changed
        for changed in (re.sub(r'(bake_s\\": )[^,]+', rf"\g<1>{n}", template) for n in seconds)
        if changed != template
    )


def _doomed(template: str) -> str:
    """Another version, in a deployment that fails at its end: a parameter of its is somebody else's."""
    body = json.loads(_other_environment(template))
    (document,) = (id_ for id_, r in body["Resources"].items() if r["Type"] == "AWS::SSM::Parameter")
    body["Resources"]["Fails"] = {
        "Type": "AWS::SSM::Parameter",
        "DependsOn": document,
        "Properties": {"Name": "/spotrelay/control-plane", "Value": "ours", "Type": "String"},
    }
    return json.dumps(body)


# First of all: another test puts an image of its own in the place of the one that the stack keeps.
@pytest.mark.timeout(3 * ROLLED_OUT_WITHIN_S)
def test_a_setting_rolls_nothing_out_whatever_happened_before(demo: Bench) -> None:
    """Neither an image that AWS published since nor a deployment that was rolled back is a new version."""
    before, ids = demo.spec, {r.id for r in demo.watch.look().present}
    demo.cloud.publish_image(IMAGE_PARAMETER, NEWER_IMAGE)
    update(demo, _other_bake_time)
    assert (demo.spec.version, demo.spec.bake_s != before.bake_s) == (before.version, True)
    update(demo, _doomed, "UPDATE_ROLLBACK_COMPLETE")
    assert demo.spec.version == before.version
    update(demo, _other_bake_time)
    assert demo.spec.version == before.version
    after = demo.whole(demo.spec.replicas)
    assert {r.version for r in after.present} == {before.version}
    assert len({r.id for r in after.present} & ids) >= len(ids) - 1, "one may have tried the doomed version"
    assert _image(demo) != NEWER_IMAGE
    update(demo, lambda template: template, **{image_parameter(IMAGE_PARAMETER): NEWER_IMAGE})
    asked = demo.spec
    assert (asked.version > before.version, _image(demo)) == (True, NEWER_IMAGE)
    update(demo, _other_bake_time)
    assert (demo.spec.version, _image(demo)) == (asked.version, NEWER_IMAGE), "the CDK keeps what was asked"


@pytest.mark.timeout(3 * ROLLED_OUT_WITHIN_S)
@pytest.mark.parametrize("change", [_other_port, _other_image_at_once])
def test_a_new_version_rolls_out_under_load(demo: Bench, change: Change) -> None:
    """Another port one by one, another image all at once: no request fails, and no target group is new."""
    before, ran = demo.spec, _port_and_image(demo)
    with Clients(demo) as clients:
        update(demo, change)
        spec = demo.spec
        assert (spec.version, spec.target_group_arn) == (before.version + 1, before.target_group_arn)
        demo.watch.until(
            lambda seen: (
                len(seen.present) == spec.replicas
                and all(r.version == spec.version and r.serves for r in seen.present)
            ),
            f"version {spec.version} on all replicas",
            ROLLED_OUT_WITHIN_S,
        )
        clients.were_served()
    (runs,) = _port_and_image(demo)
    assert runs not in ran
    assert runs[0] == spec.port


@pytest.mark.timeout(3 * ROLLED_OUT_WITHIN_S)
def test_a_bad_version_stops_and_the_one_before_serves_on(demo: Bench) -> None:
    """Two of its instances die at birth: no third is launched, no request fails, and an alarm rings until
    what was deployed before is deployed again."""
    before = demo.watch.look()
    demo.cloud.let_die("Client.VolumeLimitExceeded", 2)
    with Clients(demo) as clients:
        update(demo, _other_environment)
        demo.watch.until(
            lambda seen: sum(r.state is ReplicaState.FAILED for r in seen.replicas.values()) == 2,
            "two failures",
            ROLLED_OUT_WITHIN_S,
        )
        demo.until_rings(Alarm.ROLLOUT_STOPPED)
        victim = demo.victim()
        demo.warn(victim)
        demo.until_state(victim.id, ReplicaState.TERMINATED)
        clients.were_served()
    after = demo.whole(demo.spec.replicas)
    assert {r.version for r in after.present} == {demo.spec.version - 1}
    assert len({r.id for r in before.ready} & {r.id for r in after.ready}) == len(before.ready) - 1
    update(demo, _environment_of_before)
    demo.until_rings(Alarm.ROLLOUT_STOPPED, rings=False)


def _image(bench: Bench) -> str:
    """What the deployed version is launched from."""
    spec = bench.spec
    (version,) = bench.operator.session.client("ec2").describe_launch_template_versions(
        LaunchTemplateId=spec.launch_template_id, Versions=[str(spec.version)]
    )["LaunchTemplateVersions"]
    return str(version["LaunchTemplateData"]["ImageId"])


def _port_and_image(bench: Bench) -> set[tuple[int | None, str]]:
    """What the replicas listen on, and what EC2 says that their instances were launched from."""
    ports = {str(r.instance_id): r.port for r in bench.watch.look().present}
    found = bench.operator.session.client("ec2").describe_instances(InstanceIds=[*ports])
    return {
        (ports[instance["InstanceId"]], instance["ImageId"])
        for reservation in found["Reservations"]
        for instance in reservation["Instances"]
    }

"""What a deployment would change, from templates."""

from __future__ import annotations

import json
from typing import Any

from spotrelay.operator.deploy import difference
from spotrelay.operator.deploy.difference import How, changes, of_service, unsafe

LATEST = {"Fn::GetAtt": ["Instances", "LatestVersionNumber"]}


def service(
    *, data: dict[str, Any] | None = None, more: dict[str, Any] | None = None, **settings: Any
) -> dict[str, Any]:
    """A service's template, with a launch template and a document that the CDK joins of pieces."""
    document = json.dumps({"replicas": 3, "on_update": "rolling", **settings, "version": "V"})
    head, tail = document.split('"V"')
    resources = {
        "Instances": {
            "Type": "AWS::EC2::LaunchTemplate",
            "Properties": {
                "LaunchTemplateData": {"UserData": "a", "ImageId": {"Ref": "Image"}, **(data or {})}
            },
            "Metadata": {"aws:cdk:path": "anywhere"},
        },
        "Document": {
            "Type": "AWS::SSM::Parameter",
            "Properties": {
                "Name": "/spotrelay/services/chat",
                "Value": {"Fn::Join": ["", [head, LATEST, tail]]},
            },
        },
        **(more or {}),
    }
    return {"Resources": resources}


def test_the_same_template_changes_nothing() -> None:
    """Also where the CDK notes something else for itself."""
    other = service()
    other["Resources"]["Instances"]["Metadata"] = {"aws:cdk:path": "elsewhere"}
    assert of_service("chat", service(), other).is_nothing


def test_a_setting_takes_no_new_version() -> None:
    """The number of replicas is shown as it was and will be, and instances stay."""
    made = of_service("chat", service(), service(replicas=4))
    assert (made.settings, made.is_new_version, made.resources) == (("replicas: 3 → 4",), False, ())


def test_what_instances_run_takes_a_new_version() -> None:
    """A changed launch template says what of the file it comes from."""
    made = of_service("chat", service(), service(data={"UserData": "b", "BlockDeviceMappings": [1]}))
    assert made.instances == ("the disk", "what instances run (setup, run, envs, secrets or files)")
    assert made.resources == ()


def test_a_newer_image_takes_a_new_version() -> None:
    """No template says so, but who deploys."""
    assert of_service("chat", service(), service(), "ami-2").instances == ("a newer image, ami-2",)
    assert of_service("chat", service(), service()).is_nothing


def test_what_a_service_would_lose_is_told_apart() -> None:
    """A rule that isn't in the new template is removed; what is new or changed is not."""
    rule = {"Type": "AWS::ElasticLoadBalancingV2::ListenerRule", "Properties": {"Priority": 1}}
    made = of_service("chat", service(more={"Rule": rule}), service(more={"Alarm": rule}))
    assert [str(change) for change in made.removed] == ["ElasticLoadBalancingV2::ListenerRule Rule removed"]
    assert [change.how for change in made.resources] == [How.ADDED, How.REMOVED]


def test_what_the_stack_fills_in_is_no_setting() -> None:
    """A launch template of another name in the template isn't something that a file says."""
    made = of_service("chat", service(launch_template_id="a"), service(launch_template_id="b"))
    assert made.settings == ()


def test_a_longer_setting_is_only_named() -> None:
    """A probe's body says nothing at a glance."""
    made = of_service("chat", service(probe="x" * 50), service(probe="y" * 50))
    assert made.settings == ("probe: changed",)


def network(**zones: str) -> dict[str, Any]:
    """Subnets by name."""
    return {
        "Resources": {
            name: {"Type": "AWS::EC2::Subnet", "Properties": {"AvailabilityZone": zone}}
            for name, zone in zones.items()
        }
    }


def test_a_zone_less_or_another_one_is_unsafe_and_one_more_is_not() -> None:
    """The network is other services', too: nothing but additions may come in passing."""
    two = network(a="us-east-1a", b="us-east-1b")
    assert unsafe(two, network(a="us-east-1a", b="us-east-1b", c="us-east-1c"), is_network=True) == []
    (less,) = unsafe(two, network(a="us-east-1a"), is_network=True)
    assert (less.name, less.how) == ("b", How.REMOVED)
    (other,) = unsafe(two, network(a="us-east-1a", b="us-east-1c"), is_network=True)
    assert (other.name, other.how) == ("b", How.CHANGED)


def test_of_the_control_plane_only_who_gets_alarms_is_unsafe() -> None:
    """Its functions change with every release; a subscription is lost only by a setting that is missing."""
    function = {"Type": "AWS::Lambda::Function", "Properties": {"Code": "1"}}
    mail = {"Type": difference.SUBSCRIPTION, "Properties": {"Endpoint": "you@example.com"}}
    before = {"Resources": {"Tick": function, "Mail": mail}}
    after = {"Resources": {"Tick": {**function, "Properties": {"Code": "2"}}}}
    assert [change.name for change in unsafe(before, after, is_network=False)] == ["Mail"]
    assert [change.name for change in changes(before, after)] == ["Mail", "Tick"]

"""Instances of the local cloud: how they are found, tagged and ended."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any, Literal
from urllib.request import urlopen

import boto3
import pytest
from botocore.exceptions import ClientError

from lab.local.request_limits import BUCKETS, RequestLimits
from lab.local.wire import AwsError
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.fleet import Ec2Fleet
from spotrelay.plane.core.ports import Unavailable
from tests.local.conftest import USER_DATA, Ground, eventually

pytestmark = pytest.mark.xdist_group("local")


def test_filters_select_by_state_tag_and_lifecycle(ground: Ground) -> None:
    """Filters are ANDed, their values ORed; tags and wildcards work."""
    (spot,) = ground.running(1)
    on_demand = ground.fleet(["g5.2xlarge"], option="on-demand")["Instances"][0]["InstanceIds"][0]
    ground.aws.ec2.create_tags(Resources=[spot], Tags=[{"Key": "team", "Value": "vision"}])

    def found(**filters: list[str]) -> set[str]:
        wanted = [
            {"Name": name.replace("__", ":").replace("_", "-"), "Values": v} for name, v in filters.items()
        ]
        answer = ground.aws.ec2.describe_instances(Filters=wanted)  # type: ignore[arg-type]  # keys are right
        return {i["InstanceId"] for r in answer["Reservations"] for i in r["Instances"]} & {spot, on_demand}

    assert found(tag__team=["vis*"]) == {spot}
    assert found(tag_key=["team"]) == {spot}
    assert found(instance_lifecycle=["spot"]) == {spot}
    assert found(instance_state_name=["running", "pending"]) == {spot, on_demand}
    assert found(instance_state_name=["terminated"], tag__team=["vision"]) == set()
    with pytest.raises(ClientError, match="'no-such' is invalid"):
        found(no_such=["x"])


def test_what_was_just_launched_is_shown_late_and_at_first_without_an_address(ground: Ground) -> None:
    """By ID or by tag it is unknown for a moment, then known and without the address that it has."""
    ec2, local = ground.aws.ec2, ground.aws.local

    def found(instance_id: str) -> list[bool]:
        by_id = [{"Name": "instance-id", "Values": [instance_id]}]
        pages = ec2.describe_instances(Filters=by_id)["Reservations"]  # type: ignore[arg-type]  # keys are right
        return ["PrivateIpAddress" in i for r in pages for i in r["Instances"]]

    local.show_late(1000, 1000)
    try:
        (new,) = ground.fleet(["g5.2xlarge"])["Instances"][0]["InstanceIds"]
        with pytest.raises(ClientError, match=r"InvalidInstanceID\.NotFound"):
            ground.states([new])
        assert found(new) == []
        local.show_late(0, 1000)
        assert found(new) == [False]
        assert ground.states([new])
    finally:
        local.show_late(0, 0)
    assert found(new) == [True]


def test_paginator_sees_every_instance_once(ground: Ground) -> None:
    """Pages neither lose nor repeat an instance."""
    ids = ground.running(3) + ground.running(3, ["g4dn.2xlarge"])
    pages = ground.aws.ec2.get_paginator("describe_instances").paginate(
        PaginationConfig={"PageSize": 5},
        Filters=[{"Name": "instance-state-name", "Values": ["running"]}],
    )
    seen = [i["InstanceId"] for page in pages for r in page["Reservations"] for i in r["Instances"]]
    assert set(ids) <= set(seen)
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize(
    ("instance_id", "code"),
    [("i-00000000000000000", "NotFound"), ("i-xyz", "Malformed")],
)
def test_unknown_and_malformed_ids_are_told_apart(ground: Ground, instance_id: str, code: str) -> None:
    """An ID that could exist and doesn't, and one that never could."""
    with pytest.raises(ClientError, match=rf"InvalidInstanceID\.{code}"):
        ground.aws.ec2.describe_instances(InstanceIds=[instance_id])
    with pytest.raises(ClientError, match=rf"InvalidInstanceID\.{code}"):
        ground.aws.ec2.terminate_instances(InstanceIds=[instance_id])


def test_terminated_instance_stays_visible(ground: Ground) -> None:
    """Termination goes through shutting-down, may be repeated, and leaves an instance to look at."""
    (instance_id,) = ground.running(1)
    change = ground.aws.ec2.terminate_instances(InstanceIds=[instance_id])["TerminatingInstances"][0]
    assert change["PreviousState"]["Name"] == "running"
    assert change["CurrentState"]["Name"] == "shutting-down"
    eventually(lambda: ground.states([instance_id]) == ["terminated"], "it is terminated")
    again = ground.aws.ec2.terminate_instances(InstanceIds=[instance_id])["TerminatingInstances"][0]
    assert again["CurrentState"]["Name"] == "terminated"
    requests = ground.aws.ec2.describe_spot_instance_requests(
        Filters=[{"Name": "instance-id", "Values": [instance_id]}]
    )["SpotInstanceRequests"]
    assert requests[0]["Status"]["Code"] == "instance-terminated-by-user"
    assert requests[0]["State"] == "closed"


def test_tags_of_instances_are_ours_and_the_rest_ministacks(ground: Ground) -> None:
    """Tags can be set and taken off an instance and a subnet alike, and DescribeTags sees them all."""
    (instance_id,) = ground.running(1)
    for resource in (instance_id, ground.subnets[0]):
        ground.aws.ec2.create_tags(Resources=[resource], Tags=[{"Key": "a", "Value": "1"}])
        found = ground.aws.ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [resource]}])["Tags"]
        assert "a" in {tag["Key"] for tag in found}
        ground.aws.ec2.delete_tags(Resources=[resource], Tags=[{"Key": "a"}])
        found = ground.aws.ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [resource]}])["Tags"]
        assert "a" not in {tag["Key"] for tag in found}


def test_tags_of_awss_stay(ground: Ground) -> None:
    """Nobody sets or removes a tag of AWS's, and removing all tags leaves those; ours anybody can set."""
    (instance_id,) = ground.running(1)
    ec2, refusal = ground.aws.ec2, r"InvalidParameterValue.*reserved for internal use"
    with pytest.raises(ClientError, match=refusal):
        ec2.create_tags(Resources=[instance_id], Tags=[{"Key": "aws:ec2:fleet-id", "Value": "x"}])
    with pytest.raises(ClientError, match=refusal):
        ec2.delete_tags(Resources=[instance_id], Tags=[{"Key": "aws:ec2:fleet-id"}])

    def tags() -> dict[str, str]:
        found = ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [instance_id]}])["Tags"]
        return {tag["Key"]: tag["Value"] for tag in found}

    before = {key: value for key, value in tags().items() if key.startswith("aws:")}
    assert len(before) == 3
    ec2.delete_tags(Resources=[instance_id])
    assert tags() == before
    ec2.create_tags(Resources=[instance_id], Tags=[{"Key": "spotrelay:service", "Value": "demo"}])
    assert tags() == {**before, "spotrelay:service": "demo"}


def test_status_lists_running_instances(ground: Ground) -> None:
    """DescribeInstanceStatus shows the running ones unless all are asked for."""
    (running,) = ground.running(1)
    ended = ground.running(1)
    ground.aws.ec2.terminate_instances(InstanceIds=ended)
    ids = [running, *ended]
    shown = ground.aws.ec2.describe_instance_status(InstanceIds=ids)["InstanceStatuses"]
    assert [s["InstanceId"] for s in shown] == [running]
    everything = ground.aws.ec2.describe_instance_status(InstanceIds=ids, IncludeAllInstances=True)
    assert {s["InstanceId"] for s in everything["InstanceStatuses"]} == set(ids)


def test_announced_events_are_shown_with_the_instance(ground: Ground) -> None:
    """DescribeInstanceStatus finds instances by the events that they have, or had until lately."""
    announced, other = ground.running(2)
    ground.aws.local.announce(announced)
    codes = ["instance-retirement", "instance-stop"]

    def shown(*codes: str) -> dict[str, list[str]]:
        filters: Any = [{"Name": "event.code", "Values": codes}]
        found = ground.aws.ec2.describe_instance_status(Filters=filters)["InstanceStatuses"]
        return {s["InstanceId"]: [event["Description"] for event in s["Events"]] for s in found}

    assert shown("system-reboot") == {}
    assert shown(*codes) == {announced: ["The instance is running on degraded hardware"]}
    ground.aws.local.call_off(announced)
    assert shown(*codes) == {announced: ["[Canceled] The instance is running on degraded hardware"]}
    assert other not in shown(*codes)


def test_a_disrupted_zone_hides_what_nobody_names(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """EC2 describes instances by ID alone then, and none of the zone; the others' answers are whole."""
    here, there = (on_demand(ground, 1, subnet) for subnet in ground.subnets)
    monkeypatch.setenv("AWS_ENDPOINT_URL", ground.aws.endpoint)
    fleet = Ec2Fleet(Clients(boto3.Session("test", "test", region_name="us-east-1")))
    ground.aws.local.disrupt("us-east-1a")
    try:
        with pytest.raises(Unavailable):
            fleet.observe("demo")
        with pytest.raises(Unavailable):
            fleet.look_up([*here, *there])
        assert {i.id for i in fleet.look_up([*there, "i-0123456789abcdef0"])} == set(there)
    finally:
        ground.aws.local.mend("us-east-1a")
    assert {i.id for i in fleet.look_up([*here, *there])} == {*here, *there}


def on_demand(
    ground: Ground,
    count: int,
    subnet: str,
    instance_type: Literal["g5.xlarge", "g5.24xlarge", "g6.24xlarge"] = "g5.xlarge",
) -> list[str]:
    """IDs of so many on-demand instances in a subnet."""
    reservation = ground.aws.ec2.run_instances(
        MinCount=count,
        MaxCount=count,
        InstanceType=instance_type,
        SubnetId=subnet,
        LaunchTemplate={"LaunchTemplateId": ground.template},
    )
    return [instance["InstanceId"] for instance in reservation["Instances"]]


def test_a_protected_instance_saves_those_of_its_zone(ground: Ground) -> None:
    """TerminateInstances fails, ends what is in other zones, and nothing in the zone of the protected one."""
    here, there = ground.subnets
    (protected, beside), (elsewhere,) = on_demand(ground, 2, here), on_demand(ground, 1, there)
    ec2 = ground.aws.ec2
    ec2.modify_instance_attribute(InstanceId=protected, DisableApiTermination={"Value": True})
    shown = ec2.describe_instance_attribute(InstanceId=protected, Attribute="disableApiTermination")
    assert shown["DisableApiTermination"] == {"Value": True}
    with pytest.raises(ClientError, match=rf"OperationNotPermitted.*'{protected}' may not be terminated"):
        ec2.terminate_instances(InstanceIds=[elsewhere, beside, protected])
    states = dict(
        zip((protected, beside, elsewhere), ground.states([protected, beside, elsewhere]), strict=True)
    )
    assert states[elsewhere] in ("shutting-down", "terminated")
    assert {states[protected], states[beside]} <= {"pending", "running"}
    ec2.modify_instance_attribute(InstanceId=protected, Attribute="disableApiTermination", Value="false")
    ec2.terminate_instances(InstanceIds=[beside, protected])
    assert set(ground.states([protected, beside])) <= {"shutting-down", "terminated"}


def test_spot_instances_cannot_be_protected(ground: Ground) -> None:
    """EC2 protects on-demand instances only."""
    (instance_id,) = ground.running(1)
    with pytest.raises(ClientError, match=r"UnsupportedOperation.*not supported for spot instances"):
        ground.aws.ec2.modify_instance_attribute(
            InstanceId=instance_id, DisableApiTermination={"Value": True}
        )


def body(ground: Ground, instance_id: str) -> str:
    """What the instance answers; nothing while it doesn't."""
    (shown,) = (i for i in ground.aws.local.instances() if i["instance_id"] == instance_id)
    try:
        with urlopen(f"http://{shown['address']}:8081/", timeout=1) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def counting(ground: Ground) -> str:
    """ID of a running instance whose disk counts its set-ups and its starts, and that answers with both."""
    config = USER_DATA.replace("content: exec", "content: echo started >> log; exec") + (
        "- path: /opt/spotrelay/once.sh\n  content: test -e mark || { echo set up >> log; touch mark; }\n"
    )
    (instance,) = ground.aws.ec2.run_instances(
        MinCount=1,
        MaxCount=1,
        InstanceType="g5.xlarge",
        SubnetId=ground.subnets[0],
        ImageId="ami-0abcdef1234567890",
        UserData=config,
    )["Instances"]
    instance_id: str = instance["InstanceId"]
    eventually(lambda: "log" in body(ground, instance_id), "it answers")
    return instance_id


def test_a_stopped_instance_starts_with_the_disk_it_had(ground: Ground) -> None:
    """What it runs ends; started it has its address and its disk, and runs again, without the set-up."""
    ec2, instance_id = ground.aws.ec2, counting(ground)
    (shown,) = (i for i in ground.aws.local.instances() if i["instance_id"] == instance_id)
    (change,) = ec2.stop_instances(InstanceIds=[instance_id])["StoppingInstances"]
    with pytest.raises(ClientError, match=r"IncorrectInstanceState.*from which it can be started"):
        ec2.start_instances(InstanceIds=[instance_id])  # at once, while it stops
    assert (change["PreviousState"]["Name"], change["CurrentState"]["Name"]) == ("running", "stopping")
    assert change["CurrentState"]["Code"] == 64
    eventually(lambda: body(ground, instance_id) == "", "it answers nothing")
    eventually(lambda: ground.states([instance_id]) == ["stopped"], "it is stopped")
    (described,) = ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"]
    assert described["PrivateIpAddress"] == shown["address"]
    assert described["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    stopped_at = described["LaunchTime"]
    (change,) = ec2.stop_instances(InstanceIds=[instance_id])["StoppingInstances"]
    assert change["CurrentState"]["Name"] == "stopped", "which is no error"
    (change,) = ec2.start_instances(InstanceIds=[instance_id])["StartingInstances"]
    with pytest.raises(ClientError, match=r"IncorrectInstanceState.*from which it can be stopped"):
        ec2.stop_instances(InstanceIds=[instance_id])  # at once, while it starts
    assert (change["PreviousState"]["Name"], change["CurrentState"]["Name"]) == ("stopped", "pending")
    assert ec2.start_instances(InstanceIds=[instance_id])["StartingInstances"], "nor is this"
    eventually(lambda: "log" in body(ground, instance_id), "it answers again")
    with urlopen(f"http://{shown['address']}:8081/log", timeout=1) as log:
        assert log.read().decode().split("\n") == ["set up", "started", "started", ""]
    (described,) = ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"]
    assert "StateReason" not in described
    assert described["LaunchTime"] > stopped_at


def test_a_stopped_instance_takes_no_capacity(ground: Ground) -> None:
    """Its place is free for others; without one it doesn't start, nor does what is asked for with it."""
    # A pool that no other test has instances in, which might end meanwhile.
    ec2, subnet = ground.aws.ec2, ground.subnets[0]
    type_: Literal["g5.24xlarge"] = "g5.24xlarge"
    stopped = on_demand(ground, 2, subnet, type_)
    eventually(lambda: set(ground.states(stopped)) == {"running"}, "they run")
    (pool,) = ground.aws.local.pools("us-east-1a", type_)
    ground.aws.local.set_capacity("us-east-1a", type_, on_demand=2)
    try:
        with pytest.raises(ClientError, match="InsufficientInstanceCapacity"):
            on_demand(ground, 1, subnet, type_)
        ec2.stop_instances(InstanceIds=stopped)
        eventually(lambda: set(ground.states(stopped)) == {"stopped"}, "they are stopped")
        (other,) = on_demand(ground, 1, subnet, type_)
        with pytest.raises(ClientError, match="InsufficientInstanceCapacity"):
            ec2.start_instances(InstanceIds=stopped)
        assert ground.states(stopped) == ["stopped", "stopped"]
        ec2.start_instances(InstanceIds=stopped[:1])
        with pytest.raises(ClientError, match="InsufficientInstanceCapacity"):
            ec2.start_instances(InstanceIds=stopped[1:])
        # What was stopped when it ended gives back nothing that it didn't have.
        ec2.terminate_instances(InstanceIds=stopped[1:])
        eventually(lambda: ground.states(stopped[1:]) == ["terminated"], "it is terminated")
        with pytest.raises(ClientError, match="InsufficientInstanceCapacity"):
            on_demand(ground, 1, subnet, type_)
        with pytest.raises(ClientError, match="IncorrectInstanceState"):
            ec2.start_instances(InstanceIds=stopped[1:])
    finally:
        ground.aws.local.set_capacity("us-east-1a", type_, on_demand=pool["on_demand_capacity"])
    ec2.terminate_instances(InstanceIds=[other])


def test_standbys_without_room_are_asked_for_four_times(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our own adapter asks for all, then for three, once each: fewer than the requests that EC2 takes."""
    type_: Literal["g6.24xlarge"] = "g6.24xlarge"
    stopped = on_demand(ground, 5, ground.subnets[0], type_)
    eventually(lambda: set(ground.states(stopped)) == {"running"}, "they run")
    ground.aws.ec2.stop_instances(InstanceIds=stopped)
    eventually(lambda: set(ground.states(stopped)) == {"stopped"}, "they are stopped")
    time.sleep(5 / BUCKETS["StartInstances"][1])  # what other tests took comes back
    (pool,) = ground.aws.local.pools("us-east-1a", type_)
    ground.aws.local.set_capacity("us-east-1a", type_, on_demand=0)
    monkeypatch.setenv("AWS_ENDPOINT_URL", ground.aws.endpoint)
    session = boto3.Session("test", "test", region_name="us-east-1")
    try:
        before = ground.aws.local.calls()[-1]["n"]
        refused = Ec2Fleet(Clients(session)).start(stopped)
    finally:
        ground.aws.local.set_capacity("us-east-1a", type_, on_demand=pool["on_demand_capacity"])
    assert {r.code for r in refused.values()} == {"InsufficientInstanceCapacity"}
    starts = [c for c in ground.aws.local.calls(since=before) if c["action"] == "StartInstances"]
    assert [call["status"] for call in starts] == [500] * 4


def test_a_bucket_of_requests_empties_and_fills_again() -> None:
    """Five starts at once, then two a second, and never more than five are saved up; no other is counted."""
    at_s = 0.0
    limits = RequestLimits(lambda: at_s)
    for later_s, allowed in ((0.0, 5), (1.0, 2), (60.0, 5)):
        at_s += later_s
        for _ in range(allowed):
            limits.take("StartInstances")
        with pytest.raises(AwsError, match="RequestLimitExceeded") as refused:
            limits.take("StartInstances")
        assert refused.value.status == 503
    limits.take("DescribeInstances")


def test_a_stopped_instance_counts_in_no_quota(ground: Ground) -> None:
    """The vCPU quota is of what runs: a start may meet it."""
    ec2, quota = ground.aws.ec2, "L-DB2E81BA"
    (instance_id,) = on_demand(ground, 1, ground.subnets[0])
    eventually(lambda: ground.states([instance_id]) == ["running"], "it runs")
    ec2.stop_instances(InstanceIds=[instance_id])
    eventually(lambda: ground.states([instance_id]) == ["stopped"], "it is stopped")
    ground.aws.local.set_quota(quota, 0)
    try:
        with pytest.raises(ClientError, match="VcpuLimitExceeded"):
            ec2.start_instances(InstanceIds=[instance_id])
        ground.aws.local.set_quota(quota, 4)  # a g5.xlarge's
        ec2.start_instances(InstanceIds=[instance_id])
    finally:
        ground.aws.local.set_quota(quota, None)


def test_a_spot_instance_is_not_stopped(ground: Ground) -> None:
    """Ours come of one-time requests; and what is asked for with it goes on, too."""
    (spot,) = ground.running(1)
    (other,) = on_demand(ground, 1, ground.subnets[0])
    eventually(lambda: ground.states([other]) == ["running"], "it runs")
    with pytest.raises(ClientError, match=r"UnsupportedOperation.*one-time Spot"):
        ground.aws.ec2.stop_instances(InstanceIds=[other, spot])
    assert set(ground.states([spot, other])) == {"running"}


def test_stopping_and_starting_is_told(ground: Ground) -> None:
    """Each state comes as an event, as those of a launch do."""
    url, arn = ground.aws.queue("events.amazonaws.com")
    events, name = ground.aws.client("events"), f"rule-{uuid.uuid4().hex[:8]}"
    pattern = {"source": ["aws.ec2"], "detail-type": ["EC2 Instance State-change Notification"]}
    events.put_rule(Name=name, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": arn}])
    (instance_id,) = on_demand(ground, 1, ground.subnets[0])
    told: list[str] = []

    def has_told(state: str) -> bool:
        got = ground.aws.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)
        for message in got.get("Messages", []):
            detail = json.loads(message["Body"])["detail"]
            told.extend([detail["state"]] if detail["instance-id"] == instance_id else [])
            ground.aws.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return state in told

    eventually(lambda: has_told("running"), "that it runs is told")
    ground.aws.ec2.stop_instances(InstanceIds=[instance_id])
    eventually(lambda: has_told("stopped"), "that it is stopped is told")
    assert sorted(told) == ["pending", "running", "stopped", "stopping"]
    told.clear()
    ground.aws.ec2.start_instances(InstanceIds=[instance_id])
    eventually(lambda: has_told("running"), "that it runs again is told")
    assert sorted(told) == ["pending", "running"]
    told.clear()
    ground.aws.ec2.stop_instances(InstanceIds=[instance_id])
    ground.aws.ec2.terminate_instances(InstanceIds=[instance_id])
    eventually(lambda: has_told("terminated"), "that it is gone is told")
    assert sorted(told) == ["shutting-down", "stopping", "terminated"], "it never was stopped"
    events.remove_targets(Rule=name, Ids=["queue"])
    events.delete_rule(Name=name)

"""An interruption, from the warning to the empty place, as EC2, EventBridge and the load balancer show it."""

from __future__ import annotations

import http.client
import json
import uuid
from datetime import datetime
from typing import Any

import pytest

from lab.local.client import LocalCloudError
from lab.local.environment import EC2_WARNING_S
from tests.local.conftest import Ground, eventually

pytestmark = pytest.mark.xdist_group("local")

WARNING = "EC2 Spot Instance Interruption Warning"


class Mailbox:
    """A queue that gets every event of EC2's, through a rule."""

    def __init__(self, ground: Ground) -> None:
        name = f"events-{uuid.uuid4().hex[:8]}"
        self._sqs = ground.aws.sqs
        self._url, arn = ground.aws.queue("events.amazonaws.com")
        events = ground.aws.client("events")
        events.put_rule(Name=name, EventPattern=json.dumps({"source": ["aws.ec2"]}))
        events.put_targets(Rule=name, Targets=[{"Id": "1", "Arn": arn}])
        self.events: list[dict[str, Any]] = []

    def read(self, detail_type: str, instance_id: str) -> list[dict[str, Any]]:
        """Every event of this type about this instance so far."""
        while messages := self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10).get(
            "Messages"
        ):
            for message in messages:
                self.events.append(json.loads(message["Body"]))
                self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
        return [
            event
            for event in self.events
            if event["detail-type"] == detail_type and event["detail"]["instance-id"] == instance_id
        ]

    def states(self, instance_id: str) -> list[str]:
        """The states that were announced, in order."""
        events = self.read("EC2 Instance State-change Notification", instance_id)
        return [event["detail"]["state"] for event in events]


def get(ground: Ground, path: str, host: str = "localhost") -> int:
    """The status of a GET at the local cloud's address, for the host named."""
    connection = http.client.HTTPConnection(ground.aws.endpoint.removeprefix("http://"))
    connection.request("GET", path, headers={"Host": host})
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status


def spot_status(ground: Ground, instance_id: str) -> Any:
    """Code and UpdateTime of the instance's Spot request."""
    requests = ground.aws.ec2.describe_spot_instance_requests(
        Filters=[{"Name": "instance-id", "Values": [instance_id]}]
    )["SpotInstanceRequests"]
    return requests[0]["Status"]


def status_code(ground: Ground, instance_id: str) -> str:
    """The status of the instance's Spot request."""
    return str(spot_status(ground, instance_id)["Code"])


def interruption(ground: Ground, instance_id: str) -> dict[str, Any]:
    """What the local cloud remembers of it."""
    (found,) = [i for i in ground.aws.local.interruptions() if i["instance_id"] == instance_id]
    return found


def test_a_warning_reaches_a_queue_and_the_instance_is_taken(ground: Ground) -> None:
    """Target healthy, warning, event with AWS's payload, deregistered, reclaimed, gone, place free."""
    mailbox = Mailbox(ground)
    elb = ground.aws.elb
    name = f"lb-{uuid.uuid4().hex[:8]}"
    group = elb.create_target_group(
        Name=name, Protocol="HTTP", Port=8081, VpcId=ground.vpc, TargetType="instance",
        HealthCheckPath="/", HealthCheckIntervalSeconds=5,
    )["TargetGroups"][0]["TargetGroupArn"]  # fmt: skip
    balancer = elb.create_load_balancer(Name=name, Subnets=list(ground.subnets))["LoadBalancers"][0]
    elb.create_listener(
        LoadBalancerArn=balancer["LoadBalancerArn"], Protocol="HTTP", Port=80,
        DefaultActions=[{"Type": "forward", "TargetGroupArn": group}],
    )  # fmt: skip
    (instance_id,) = ground.running(1)

    def health() -> list[str]:
        rows = elb.describe_target_health(TargetGroupArn=group)["TargetHealthDescriptions"]
        return [row["TargetHealth"]["State"] for row in rows if row["Target"]["Id"] == instance_id]

    elb.register_targets(TargetGroupArn=group, Targets=[{"Id": instance_id}])
    assert health() in (["initial"], ["healthy"])
    eventually(lambda: health() == ["healthy"], "the target is healthy")
    assert get(ground, f"/_alb/{name}/") == 200
    assert get(ground, "/", host=balancer["DNSName"]) == 200
    assert [r["target"] for r in ground.aws.local.requests(name)] == [instance_id, instance_id]

    ground.aws.local.warn(instance_id)
    # Closed at once, and the instance runs on: the footnote of the EC2 guide's state changes.
    assert status_code(ground, instance_id) == "instance-terminated-no-capacity"
    assert ground.states([instance_id]) == ["running"]
    (event,) = eventually(lambda: mailbox.read(WARNING, instance_id), "the warning arrives")
    assert event["source"] == "aws.ec2"
    assert event["detail"] == {"instance-id": instance_id, "instance-action": "terminate"}
    elb.deregister_targets(TargetGroupArn=group, Targets=[{"Id": instance_id}])
    assert health() in ([], ["draining"])

    eventually(lambda: ground.states([instance_id]) == ["terminated"], "EC2 takes it")
    known = interruption(ground, instance_id)
    assert known["warned_at"] <= known["deregistered_at"] <= known["reclaimed_at"]
    assert known["event"] == "once"
    assert mailbox.states(instance_id) == ["pending", "running", "shutting-down", "terminated"]


def test_two_minutes_after_its_time_a_warning_is_over(ground: Ground) -> None:
    """However short warnings are here: from the event's time and the request's, two minutes are the truth."""
    mailbox = Mailbox(ground)
    (instance_id,) = ground.running(1)
    ground.aws.local.warn(instance_id)
    marked = spot_status(ground, instance_id)
    (event,) = eventually(lambda: mailbox.read(WARNING, instance_id), "the warning arrives")
    assert marked["UpdateTime"] == datetime.fromisoformat(event["time"])
    warned_at = interruption(ground, instance_id)["warned_at"]
    warning_s = ground.aws.local.settings()["warning_s"]
    assert warning_s < EC2_WARNING_S
    # Both are in whole seconds, rounded down.
    left_s = marked["UpdateTime"].timestamp() + EC2_WARNING_S - warned_at
    assert warning_s - 1 < left_s <= warning_s
    eventually(lambda: interruption(ground, instance_id)["reclaimed_at"], "EC2 takes it")
    assert spot_status(ground, instance_id) == marked, "the request says the same for hours"


def test_lost_event_and_certain_reclaim(ground: Ground) -> None:
    """A lost event changes nothing about the interruption; only describing the Spot request shows it."""
    mailbox = Mailbox(ground)
    (instance_id,) = ground.running(1)
    ground.aws.local.warn(instance_id, deliver="lost")
    assert status_code(ground, instance_id) == "instance-terminated-no-capacity"
    eventually(lambda: ground.states([instance_id]) == ["terminated"], "EC2 takes it")
    assert mailbox.read(WARNING, instance_id) == []
    assert interruption(ground, instance_id)["event"] == "lost"


def test_event_delivered_three_times_is_one_event(ground: Ground) -> None:
    """Repeated delivery repeats the event's ID: at-least-once, not three events."""
    mailbox = Mailbox(ground)
    (instance_id,) = ground.running(1)
    ground.aws.local.warn(instance_id, deliver=3)
    events = eventually(
        lambda: found if len(found := mailbox.read(WARNING, instance_id)) == 3 else None, "three deliveries"
    )
    assert len({event["id"] for event in events}) == 1


def test_a_retracted_warning_takes_nothing(ground: Ground) -> None:
    """The instance runs on when its time is over, its request is fulfilled, and it can be warned anew."""
    taken, kept = ground.running(2)
    ground.aws.local.warn(kept)
    ground.aws.local.warn(taken)
    ground.aws.local.retract(kept)
    assert status_code(ground, kept) == "fulfilled"
    assert interruption(ground, kept)["retracted_at"] >= interruption(ground, kept)["warned_at"]
    # Warned after the other, and so taken after it would have been.
    eventually(lambda: ground.states([taken]) == ["terminated"], "EC2 takes the other one")
    assert ground.states([kept]) == ["running"]
    assert [i["warned_at"] for i in ground.aws.local.instances() if i["instance_id"] == kept] == [None]
    assert interruption(ground, kept)["reclaimed_at"] is None
    with pytest.raises(LocalCloudError, match="isn't warned"):
        ground.aws.local.retract(kept)
    ground.aws.local.warn(kept)
    eventually(lambda: ground.states([kept]) == ["terminated"], "EC2 takes it this time")
    first, second = (i for i in ground.aws.local.interruptions() if i["instance_id"] == kept)
    assert (first["reclaimed_at"], second["retracted_at"]) == (None, None)
    assert second["reclaimed_at"] > second["warned_at"]


def test_many_are_warned_in_one_moment(ground: Ground) -> None:
    """One operation warns several instances, each with an event of its own; a wrong ID stops it there."""
    mailbox = Mailbox(ground)
    first, second, third = ground.running(3)
    with pytest.raises(LocalCloudError, match="i-0"):
        ground.aws.local.warn_all([first, second, "i-0", third])
    eventually(
        lambda: all(mailbox.read(WARNING, instance_id) for instance_id in (first, second)),
        "both warnings arrive",
    )
    assert [i["instance_id"] for i in ground.aws.local.interruptions()][-2:] == [first, second]


def test_rebalance_recommendation_takes_nothing(ground: Ground) -> None:
    """A recommendation is an event and no more."""
    mailbox = Mailbox(ground)
    (instance_id,) = ground.running(1)
    ground.aws.local.rebalance(instance_id)
    (event,) = eventually(
        lambda: mailbox.read("EC2 Instance Rebalance Recommendation", instance_id),
        "the recommendation arrives",
    )
    assert event["detail"] == {"instance-id": instance_id}
    assert status_code(ground, instance_id) == "fulfilled"


def test_drought_warns_the_pools_instances(ground: Ground) -> None:
    """When a pool dries up, its instances are warned together and nobody else's is."""
    lost = ground.running(2, ["g5.4xlarge"])
    (kept,) = ground.running(1, ["g6.8xlarge"])
    assert set(ground.aws.local.dry_up(instance_type="g5.4xlarge")) == set(lost)
    assert status_code(ground, kept) == "fulfilled"


def test_what_cannot_be_interrupted_says_why(ground: Ground) -> None:
    """On-demand, unknown and already warned instances, and pools that don't exist, are refused by name."""
    on_demand = ground.fleet(["g5.2xlarge"], option="on-demand")["Instances"][0]["InstanceIds"][0]
    (spot,) = ground.running(1)
    ground.aws.local.warn(spot)
    for instance_id, why in ((on_demand, "on-demand"), ("i-nobody", "no instance"), (spot, "warned already")):
        with pytest.raises(LocalCloudError, match=why):
            ground.aws.local.warn(instance_id)
    with pytest.raises(LocalCloudError, match="no capacity pool"):
        ground.aws.local.dry_up(zone="us-east-1z")


def test_an_instance_that_dies_at_birth_says_why(ground: Ground) -> None:
    """It goes from pending to terminated with EC2's code and words, and the next one runs."""
    ground.aws.local.let_die("Client.VolumeLimitExceeded")
    stillborn = ground.fleet(["g5.2xlarge"])["Instances"][0]["InstanceIds"][0]
    eventually(lambda: ground.states([stillborn]) == ["terminated"], "it ends")
    (shown,) = ground.aws.ec2.describe_instances(InstanceIds=[stillborn])["Reservations"][0]["Instances"]
    assert shown["StateReason"] == {
        "Code": "Client.VolumeLimitExceeded",
        "Message": "Client.VolumeLimitExceeded: Volume limit exceeded",
    }
    ground.running(1)
    with pytest.raises(LocalCloudError, match="no reason 'Boredom'"):
        ground.aws.local.let_die("Boredom")


def test_registering_an_instance_that_does_not_run_is_refused(ground: Ground) -> None:
    """A load balancer takes running instances only, and forgives the removal of an absent one."""
    elb = ground.aws.elb
    group = elb.create_target_group(
        Name=f"tg-{uuid.uuid4().hex[:8]}", Protocol="HTTP", Port=8081, VpcId=ground.vpc
    )["TargetGroups"][0]["TargetGroupArn"]
    (instance_id,) = ground.running(1)
    ground.aws.ec2.terminate_instances(InstanceIds=[instance_id])
    with pytest.raises(elb.exceptions.InvalidTargetException, match="not in a running state"):
        elb.register_targets(TargetGroupArn=group, Targets=[{"Id": instance_id}])
    elb.deregister_targets(TargetGroupArn=group, Targets=[{"Id": instance_id}])
    with pytest.raises(elb.exceptions.TargetGroupNotFoundException):
        elb.describe_target_health(TargetGroupArn=group + "x")

"""`spotrelay adopt`, as an operator meets it."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from typer.testing import CliRunner

from spotrelay.operator.aws.targets import RegisteredTargets
from spotrelay.operator.cli import adopt
from spotrelay.operator.cli.app import app
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.core.instances import TargetState
from spotrelay.plane.core.names import TAG_ADOPTED, TAG_SERVICE, service_parameter, target_group_name
from spotrelay.plane.core.pools import PurchaseOption
from spotrelay.plane.core.ports import Conflict
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.core.rows import Changes
from spotrelay.plane.core.spec import OnUpdate
from tests.cli.test_scale import REGION, Region, region
from tests.contract.network import deployed_spec

__all__ = ["region"]


class Group:
    """The target group that `demo` brings, with instances in it."""

    def __init__(self, region: Region, replicas: int = 3) -> None:
        self.clients = Clients(boto3.Session("testing", "testing", region_name=REGION))
        self._ssm = region.ssm
        self.spec = replace(deployed_spec(self.clients), on_update=OnUpdate.ROLLING, replicas=replicas)
        self.deploy()

    def deploy(self, **changes: Any) -> None:
        """Deploy the service with these values."""
        self.spec = replace(self.spec, **changes)
        value = json.dumps(self.spec.to_dict())
        self._ssm.put_parameter(Name=service_parameter("demo"), Value=value, Type="String", Overwrite=True)

    def instances(self, count: int, port: int = 8081, **tags: str) -> list[str]:
        """So many more instances, registered."""
        image = self.clients.ec2.describe_images(Owners=["self"])["Images"][0]["ImageId"]
        made = self.clients.ec2.run_instances(
            ImageId=image, MinCount=count, MaxCount=count, InstanceType="g5.xlarge"
        )
        ids = [instance["InstanceId"] for instance in made["Instances"]]
        if tags:
            named: Any = [{"Key": name.replace("__", ":"), "Value": value} for name, value in tags.items()]
            self.clients.ec2.create_tags(Resources=ids, Tags=named)
        self.clients.elbv2.register_targets(
            TargetGroupArn=self.spec.target_group_arn, Targets=[{"Id": id_, "Port": port} for id_ in ids]
        )
        return ids

    def tags(self, instance_id: str) -> dict[str, str]:
        """What an instance bears."""
        (reservation,) = self.clients.ec2.describe_instances(InstanceIds=[instance_id])["Reservations"]
        return {tag["Key"]: tag["Value"] for tag in reservation["Instances"][0].get("Tags", [])}


@pytest.fixture
def group(region: Region, monkeypatch: pytest.MonkeyPatch) -> Group:
    """A target group, where waiting takes no time."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    return Group(region)


def run(*arguments: str, answer: str | None = None) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    arguments = ("adopt", "demo", *arguments, "--region", REGION)
    result = CliRunner().invoke(app, arguments, input=answer, catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def test_what_serves_becomes_replicas(region: Region, group: Group) -> None:
    """It bears both tags, has a row that is ready, of the deployed version, and a tick comes at once."""
    ids = group.instances(2)
    code, out, err = run("--yes")
    assert (code, err) == (0, "")
    assert "they serve on until EC2 takes them" in out
    assert "what it drains, it terminates" in out
    rows = region.store.load("demo")
    assert {r.instance_id for r in rows.replicas.values()} == set(ids)
    assert {(r.state, r.version, r.port, r.is_adopted) for r in rows.replicas.values()} == {
        (ReplicaState.READY, 1, 8081, True)
    }
    assert {r.offering.purchase_option for r in rows.replicas.values() if r.offering} == {
        PurchaseOption.ON_DEMAND
    }
    assert (rows.highest_id, rows.serving) == (2, 2)
    assert region.store.locate(ids).keys() == set(ids)
    for id_ in ids:
        assert group.tags(id_) == {TAG_SERVICE: "demo", TAG_ADOPTED: "true"}
    assert region.told() == [{"service": "demo", "kind": "tick"}]


def test_a_second_time_there_is_nothing_to_adopt(region: Region, group: Group) -> None:
    """What has a row isn't adopted again."""
    group.instances(1)
    run("--yes")
    code, _, err = run("--yes")
    assert code == 2
    assert "nothing in the target group of demo can be adopted" in err
    assert len(region.store.load("demo").replicas) == 1


def test_nothing_is_touched_without_a_yes(region: Region, group: Group) -> None:
    """No tag, no row."""
    (id_,) = group.instances(1)
    code, out, _ = run(answer="n\n")
    assert code == 1
    assert f"{id_}: " in out
    assert not group.tags(id_)
    assert not region.store.load("demo").replicas


def test_what_is_anothers_is_left_alone(region: Region, group: Group) -> None:
    """The reason is told, and the others are adopted."""
    (theirs,) = group.instances(1, spotrelay__service="chat")
    (elsewhere,) = group.instances(1, port=80)
    (ours,) = group.instances(1)
    code, out, err = run("--yes")
    assert (code, err) == (0, "")
    assert f"{theirs}: left alone: it belongs to the service chat" in out
    assert f"{elsewhere}: left alone: it listens on 80, and the service file says 8081" in out
    assert [r.instance_id for r in region.store.load("demo").replicas.values()] == [ours]
    assert group.tags(theirs) == {TAG_SERVICE: "chat"}


def test_to_be_replaced_they_are_of_no_version(region: Region, group: Group) -> None:
    """So that a roll-out takes them for old, and with whatever port they have."""
    group.instances(1, port=80)
    code, out, _ = run("--replace", "--yes")
    assert code == 0
    assert "new replicas replace them one after the other" in out
    assert [(r.version, r.port) for r in region.store.load("demo").replicas.values()] == [(0, 80)]


def test_more_than_wanted_arent_adopted(region: Region, group: Group) -> None:
    """Some would be terminated."""
    (id_, *_) = group.instances(4)
    code, _, err = run("--yes")
    assert code == 2
    assert "4 can be adopted, 0 replicas serve already, and the service wants 3" in err
    assert not group.tags(id_)
    assert not region.store.load("demo").replicas


def test_more_than_a_commit_takes_are_adopted(region: Region, group: Group) -> None:
    """In several, each with IDs of its own."""
    group.deploy(replicas=Changes.MAX_ROWS + 1)
    ids = group.instances(Changes.MAX_ROWS + 1)
    assert run("--yes")[0] == 0
    rows = region.store.load("demo")
    assert {r.instance_id for r in rows.replicas.values()} == set(ids)
    assert rows.highest_id == rows.serving == Changes.MAX_ROWS + 1


def test_a_row_waits_for_the_tag_to_be_seen(
    region: Region, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What EC2 doesn't show by its tag would look lost to the next tick; the command can be repeated."""
    group.instances(1)
    monkeypatch.setattr(adopt, "SEEN_WITHIN_S", 0.0)
    with monkeypatch.context() as patched:
        patched.setattr(RegisteredTargets, "hand_over", lambda *_: None)
        code, _, err = run("--yes")
    assert code == 2
    assert "EC2 doesn't show the tags of" in err
    assert not region.store.load("demo").replicas
    assert run("--yes")[0] == 0


def test_a_tick_that_writes_at_the_same_time_costs_nothing(
    region: Region, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are read again, and written."""
    group.instances(1)
    store = type(region.store)
    commit, refusals = store.commit, iter([Conflict("somebody was faster")])

    def once_refused(self: Any, changes: Changes) -> None:
        for refusal in refusals:
            raise refusal
        commit(self, changes)

    monkeypatch.setattr(store, "commit", once_refused)
    assert run("--yes")[0] == 0
    assert len(region.store.load("demo").replicas) == 1


def test_a_target_group_of_spotrelays_own_has_nothing_to_adopt(group: Group) -> None:
    """Nobody else puts anything in there, and nothing would be allowed to terminate it."""
    arn = f"arn:aws:elasticloadbalancing:{REGION}:000000000000:targetgroup/{target_group_name('demo')}/1"
    group.deploy(target_group_arn=arn)
    code, _, err = run("--yes")
    assert code == 2
    assert "the target group of demo is SpotRelay's own" in err


def test_a_service_that_isnt_deployed_adopts_nothing(region: Region) -> None:
    """The error says what to do."""
    region.ssm.delete_parameter(Name=service_parameter("demo"))
    code, _, err = run("--yes")
    assert (code, err) == (
        2,
        f"spotrelay adopt: no service demo is deployed in {REGION}: check the name, or deploy it first\n",
    )


def test_targets_are_told_as_they_are(group: Group) -> None:
    """An address is no instance; what is registered with two ports is there once, and says so."""
    (id_,) = group.instances(1)
    targets = [{"Id": id_, "Port": 8081}, {"Id": id_, "Port": 9000}, {"Id": "10.0.0.7", "Port": 80}]
    shown = [{"Target": target, "TargetHealth": {"State": "healthy"}} for target in targets]
    elbv2 = SimpleNamespace(describe_target_health=lambda **_: {"TargetHealthDescriptions": shown})
    clients: Any = SimpleNamespace(elbv2=elbv2, ec2=group.clients.ec2)
    address, twice = RegisteredTargets(clients).found(group.spec)
    assert (address.id, address.instance, address.is_twice) == ("10.0.0.7", None, False)
    assert twice.instance
    assert (twice.instance.id, twice.health, twice.is_twice) == (id_, TargetState.HEALTHY, True)

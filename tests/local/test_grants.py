"""What a stolen role of ours can't do: attempts with exactly the functions' grants, which IAM refuses."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from botocore.exceptions import ClientError

from lab.local.environment import ACCOUNT, REGION
from spotrelay.operator import adoption
from spotrelay.operator.aws.targets import RegisteredTargets
from spotrelay.plane.aws.router import TargetGroupRouter
from spotrelay.plane.aws.store import DynamoStore
from spotrelay.plane.aws.table import Table
from spotrelay.plane.core.names import INSTANCE_ROLE_PATH, TAG_SERVICE, Partition
from stacks.drills import drilling, interrupting, starting
from stacks.operators import looking
from stacks.permissions import Function, Grant, Place, grants
from tests.documented import policy
from tests.examples import demo_spec
from tests.local.conftest import Aws, Ground, eventually
from tests.local.test_console import clients
from tests.local.test_fis import ended, fis_of, make_role, started
from tests.local.test_fis import template as experiment

pytestmark = pytest.mark.xdist_group("local")

OUR_TAG: Any = {"Key": TAG_SERVICE, "Value": "demo"}
TAGGED: list[dict[str, Any]] = [{"ResourceType": kind, "Tags": [OUR_TAG]} for kind in ("instance", "fleet")]
IMAGE, OTHER_IMAGE = "ami-0abcdef1234567890", "ami-0fedcba9876543210"
TABLE = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/"

REFUSED = r"UnauthorizedOperation|AccessDenied|AuthorizationError"


def statements(granted: Iterable[Grant]) -> list[dict[str, Any]]:
    """The grants as a policy has them."""
    return [
        {
            "Effect": "Allow",
            "Action": list(grant.actions),
            "Resource": list(grant.resources),
            "Condition": dict(grant.condition),
        }
        for grant in granted
    ]


@dataclass(frozen=True)
class Ours:
    """A launch template as a service's stack has it, a table, queues, and the functions' rights to them."""

    ground: Ground
    template: str
    profile: str
    table: str
    tick_queue: str
    leave_queue: str
    dead_letters: str

    @property
    def place(self) -> Place:
        """Where grants hold."""
        return Place(
            partition="aws",
            region=REGION,
            account=ACCOUNT,
            table_arn=TABLE + self.table,
            tick_queue_arn=f"arn:aws:sqs:{REGION}:{ACCOUNT}:{self.tick_queue.rsplit('/', 1)[1]}",
            leave_queue_arn=f"arn:aws:sqs:{REGION}:{ACCOUNT}:{self.leave_queue.rsplit('/', 1)[1]}",
            dead_letter_queue_arn=self.dead_letters,
            surveys_failed_arn=self.dead_letters,
        )

    def assume(self, function: Function) -> Aws:
        """Somebody with what a function is granted, and nothing else."""
        return self.ground.aws.assume(*statements(grants(function, self.place)))

    def fleet(self, by: Aws, template: str | None = None, **more: Any) -> Any:
        """CreateFleet, as the controller asks for one."""
        ground = Ground(self.ground.aws, self.ground.vpc, self.ground.subnets, template or self.template)
        return ground.fleet(["g5.2xlarge"], by=by, **{"TagSpecifications": TAGGED, **more})

    def run(self, by: Aws, **more: Any) -> str:
        """RunInstances of one instance, with our tag; its ID."""
        request = {
            "MinCount": 1,
            "MaxCount": 1,
            "InstanceType": "g5.2xlarge",
            "SubnetId": self.ground.subnets[0],
        }
        # EC2 takes five at once and two a second; the account is shared with the tests before.
        client = by.client("ec2", attempts=6)
        answer = client.run_instances(**{**request, "TagSpecifications": TAGGED[:1], **more})
        return str(answer["Instances"][0]["InstanceId"])

    def target_group(self, *tags: Any) -> str:
        """A new target group."""
        made = self.ground.aws.elb.create_target_group(
            Name=f"tg-{uuid.uuid4().hex[:8]}", Protocol="HTTP", Port=80, VpcId=self.ground.vpc,
            Tags=[{"Key": "for", "Value": "tests"}, *tags],
        )  # fmt: skip
        return str(made["TargetGroups"][0]["TargetGroupArn"])


@pytest.fixture
def ours(ground: Ground) -> Ours:
    """Made anew, with names of its own."""
    iam, name = ground.aws.client("iam"), f"ours-{uuid.uuid4().hex[:8]}"
    trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    iam.create_role(RoleName=name, Path=INSTANCE_ROLE_PATH, AssumeRolePolicyDocument=document)
    profile = iam.create_instance_profile(InstanceProfileName=name, Path=INSTANCE_ROLE_PATH)
    iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
    group = ground.aws.ec2.create_security_group(GroupName=name, Description=name, VpcId=ground.vpc)
    template = ground.aws.ec2.create_launch_template(
        LaunchTemplateName=name,
        LaunchTemplateData={
            "ImageId": IMAGE,
            "SecurityGroupIds": [group["GroupId"]],
            "IamInstanceProfile": {"Arn": profile["InstanceProfile"]["Arn"]},
        },
        TagSpecifications=[{"ResourceType": "launch-template", "Tags": [OUR_TAG]}],
    )["LaunchTemplate"]["LaunchTemplateId"]
    keys = [("PK", "HASH"), ("SK", "RANGE")]
    ground.aws.client("dynamodb").create_table(
        TableName=name, BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key, _ in keys],
        KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in keys],
    )  # fmt: skip
    (ticks, _), (leaves, _), (_, dead) = (ground.aws.queue() for _ in range(3))
    return Ours(ground, template, profile["InstanceProfile"]["Arn"], name, ticks, leaves, dead)


@pytest.fixture(params=[Function.ON_SIGNAL, Function.RECONCILE])
def controller(ours: Ours, request: pytest.FixtureRequest) -> Aws:
    """Each of the roles that may launch."""
    return ours.assume(request.param)


def test_our_fleets_launch(ours: Ours, controller: Aws) -> None:
    """The requests that the controller makes are granted: Spot, and on-demand with reservations first."""
    assert ours.fleet(controller)["Instances"]
    reserved = {"CapacityReservationOptions": {"UsageStrategy": "use-capacity-reservations-first"}}
    answer = ours.fleet(controller, option="on-demand", OnDemandOptions=reserved)
    assert answer["Instances"], answer["Errors"]


def test_nothing_is_launched_without_a_template(ours: Ours, controller: Aws) -> None:
    """An image and user data of one's own, a service's profile and our tag: together they launch nothing."""
    profile = {"IamInstanceProfile": {"Arn": ours.profile}}
    with pytest.raises(ClientError, match=REFUSED):
        ours.run(controller, ImageId=IMAGE, UserData="IyEvYmluL3No", **profile)


def test_nothing_is_launched_from_a_foreign_template(ours: Ours, controller: Aws) -> None:
    """A launch template without our tag is refused, in a fleet and in a launch of its own."""
    foreign = ours.ground.template
    with pytest.raises(ClientError, match=REFUSED):
        ours.fleet(controller, foreign)
    with pytest.raises(ClientError, match=REFUSED):
        ours.run(controller, LaunchTemplate={"LaunchTemplateId": foreign})


@pytest.mark.parametrize("parameter", ["ImageId", "SecurityGroupIds", "KeyName"])
def test_a_templates_image_and_groups_stay(ours: Ours, controller: Aws, parameter: str) -> None:
    """Beside our template, a request can't bring an image, security groups or a key pair of its own."""
    group = ours.ground.aws.ec2.create_security_group(
        GroupName=f"g-{uuid.uuid4().hex[:8]}", Description="open", VpcId=ours.ground.vpc
    )["GroupId"]
    value = {"ImageId": OTHER_IMAGE, "SecurityGroupIds": [group], "KeyName": "mine"}[parameter]
    with pytest.raises(ClientError, match=REFUSED):
        ours.run(controller, LaunchTemplate={"LaunchTemplateId": ours.template}, **{parameter: value})


def test_nothing_is_launched_without_our_tag(ours: Ours, controller: Aws) -> None:
    """Neither the fleet nor its instances may go without."""
    for missing in ("instance", "fleet"):
        tags = [tag for tag in TAGGED if tag["ResourceType"] != missing]
        with pytest.raises(ClientError, match=REFUSED):
            ours.fleet(controller, TagSpecifications=tags)


def test_no_role_but_a_services_is_given_to_an_instance(ours: Ours, controller: Aws) -> None:
    """A role outside our path can't be passed, whatever profile it is in."""
    iam, name = ours.ground.aws.client("iam"), f"admin-{uuid.uuid4().hex[:8]}"
    trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    iam.create_role(RoleName=name, AssumeRolePolicyDocument=document)
    profile = iam.create_instance_profile(InstanceProfileName=name, Path=INSTANCE_ROLE_PATH)
    iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
    mine = {"IamInstanceProfile": {"Arn": profile["InstanceProfile"]["Arn"]}}
    with pytest.raises(ClientError, match=rf"{REFUSED}.*iam:PassRole"):
        ours.run(controller, LaunchTemplate={"LaunchTemplateId": ours.template}, **mine)


def test_only_our_instances_are_terminated(ours: Ours) -> None:
    """Ours are; one without our tag, a template or a profile of ours isn't, whoever tagged it."""
    operator, reconcile = ours.ground.aws, ours.assume(Function.RECONCILE)
    template = {"LaunchTemplateId": ours.template}
    profile = {"IamInstanceProfile": {"Arn": ours.profile}}
    untagged = ours.run(operator, LaunchTemplate=template, TagSpecifications=[])
    without_template = ours.run(operator, ImageId=IMAGE, **profile)
    without_profile = ours.run(operator, LaunchTemplate={"LaunchTemplateId": ours.ground.template})
    for foreign in (untagged, without_template, without_profile):
        with pytest.raises(ClientError, match=REFUSED):
            reconcile.ec2.terminate_instances(InstanceIds=[foreign])
    (own,) = (id_ for row in ours.fleet(operator)["Instances"] for id_ in row["InstanceIds"])
    reconcile.ec2.terminate_instances(InstanceIds=[own])
    with pytest.raises(ClientError, match=REFUSED):
        ours.assume(Function.ON_SIGNAL).ec2.terminate_instances(InstanceIds=[own])


def test_only_our_instances_are_stopped_and_started(ours: Ours) -> None:
    """A standby is: what isn't ours neither stops nor starts, and with a warning nobody stops anything."""
    operator, reconcile = ours.ground.aws, ours.assume(Function.RECONCILE)
    signal = ours.assume(Function.ON_SIGNAL)
    template = {"LaunchTemplateId": ours.template}
    untagged = ours.run(operator, LaunchTemplate=template, TagSpecifications=[])
    without_profile = ours.run(operator, LaunchTemplate={"LaunchTemplateId": ours.ground.template})
    own = ours.run(operator, LaunchTemplate=template)
    eventually(lambda: set(ours.ground.states([untagged, without_profile, own])) == {"running"}, "all run")
    for foreign in (untagged, without_profile):
        for call in (reconcile.ec2.stop_instances, reconcile.ec2.start_instances):
            with pytest.raises(ClientError, match=REFUSED):
                call(InstanceIds=[foreign])
        with pytest.raises(ClientError, match=REFUSED):
            signal.ec2.start_instances(InstanceIds=[foreign])
    with pytest.raises(ClientError, match=REFUSED):
        signal.ec2.stop_instances(InstanceIds=[own])
    for somebody in (signal, reconcile):
        reconcile.ec2.stop_instances(InstanceIds=[own])
        eventually(lambda: ours.ground.states([own]) == ["stopped"], "it is stopped")
        somebody.ec2.start_instances(InstanceIds=[own])
        eventually(lambda: ours.ground.states([own]) == ["running"], "it runs again")


SPOT: dict[str, Any] = {"InstanceMarketOptions": {"MarketType": "spot"}, "InstanceType": "g6.2xlarge"}
"""Of a type of which there are enough, see `foreigners`."""


def foreigners(ours: Ours) -> dict[str, str]:
    """Instances with all marks of ours but one, by what each lacks. Our tag anybody sets who may tag."""
    operator = ours.ground.aws
    operator.local.set_capacity(instance_type=SPOT["InstanceType"], spot=30)
    from_ours = {"LaunchTemplate": {"LaunchTemplateId": ours.template}}
    from_another = {"LaunchTemplate": {"LaunchTemplateId": ours.ground.template}}
    return {
        "our tag": ours.run(operator, **from_ours, **SPOT, TagSpecifications=[]),
        "a template": ours.run(operator, ImageId=IMAGE, IamInstanceProfile={"Arn": ours.profile}, **SPOT),
        "a profile of ours": ours.run(operator, **from_another, **SPOT),
    }


def test_the_consoles_of_ours_only_are_shown(ours: Ours) -> None:
    """Who may look doesn't read another's console by tagging its instance as ours."""
    looks = ours.ground.aws.assume(*statements(looking(ours.place, [f"{TABLE}x"], f"{TABLE}x", f"{TABLE}x")))
    for foreign in foreigners(ours).values():
        with pytest.raises(ClientError, match=REFUSED):
            looks.ec2.get_console_output(InstanceId=foreign)
    own = ours.run(ours.ground.aws, LaunchTemplate={"LaunchTemplateId": ours.template})
    assert looks.ec2.get_console_output(InstanceId=own)["InstanceId"] == own


def test_a_drill_interrupts_ours_only(ours: Ours) -> None:
    """Who may drill ends no other's Spot instance by tagging it as ours: the role that FIS has may not."""
    role = make_role(ours.ground.aws)
    policy = json.dumps({"Version": "2012-10-17", "Statement": statements(interrupting(ours.place))})
    ours.ground.aws.client("iam").put_role_policy(
        RoleName=role.rpartition("/")[2], PolicyName="p", PolicyDocument=policy
    )
    foreign = foreigners(ours)
    own = ours.run(ours.ground.aws, LaunchTemplate={"LaunchTemplateId": ours.template}, **SPOT)
    ids = [own, *foreign.values()]
    eventually(lambda: set(ours.ground.states(ids)) == {"running"}, "all run")
    fis = fis_of(ours.ground.aws)
    for lacks, id_ in foreign.items():
        over = ended(fis, started(fis, experiment(role, id_)))
        assert over["state"]["status"] == "failed", f"interrupted without {lacks}"
        assert "ec2:SendSpotInstanceInterruptions" in over["state"]["reason"]
    assert ended(fis, started(fis, experiment(role, own)))["state"]["status"] == "completed"


def test_who_drills_starts_no_experiment(ours: Ours) -> None:
    """Not somebody else's, which may do more with a stronger role, nor by tagging its template as ours.

    The function for drills may not start it either, unless somebody who may has given it our tag.
    """
    aws, role = ours.ground.aws, make_role(ours.ground.aws, "*")
    drills = fis_of(aws.assume(*statements(drilling(ours.place, "arn:aws:lambda:::function:x"))))
    function = fis_of(aws.assume(*statements(starting(ours.place, role))))
    (instance_id,) = ours.ground.running(1)
    ours_too = {TAG_SERVICE: "demo"}
    made = fis_of(aws).create_experiment_template(**experiment(role, instance_id))["experimentTemplate"]
    tagged = {**experiment(role, instance_id), "tags": ours_too}

    def start(fis: Any, template_id: str, **tags: Any) -> str:
        begun = fis.start_experiment(clientToken=uuid.uuid4().hex, experimentTemplateId=template_id, **tags)
        return str(begun["experiment"]["id"])

    refused: list[Callable[[], object]] = [
        lambda: drills.create_experiment_template(**tagged),
        lambda: drills.tag_resource(resourceArn=made["arn"], tags=ours_too),
        lambda: drills.delete_experiment_template(id=made["id"]),
        lambda: start(drills, made["id"], tags=ours_too),
        lambda: start(function, made["id"], tags=ours_too),
        lambda: function.delete_experiment_template(id=made["id"]),
    ]
    for call in refused:
        with pytest.raises(ClientError, match=REFUSED):
            call()
    own_id = function.create_experiment_template(**tagged)["experimentTemplate"]["id"]
    with pytest.raises(ClientError, match=REFUSED):
        start(function, own_id)
    assert ended(drills, start(function, own_id, tags=ours_too))["state"]["status"] == "completed"
    function.delete_experiment_template(id=own_id)


def test_no_instance_is_tagged_later(ours: Ours, controller: Aws) -> None:
    """Nobody makes a foreign instance ours by tagging it."""
    foreign = ours.run(ours.ground.aws, ImageId=IMAGE, TagSpecifications=[])
    with pytest.raises(ClientError, match=REFUSED):
        controller.ec2.create_tags(Resources=[foreign], Tags=[OUR_TAG])


def test_only_our_target_groups_are_filled_and_emptied(ours: Ours, controller: Aws) -> None:
    """A target group without our tag is out of reach."""
    target: Any = [{"Id": ours.run(ours.ground.aws, ImageId=IMAGE)}]
    controller.elb.deregister_targets(TargetGroupArn=ours.target_group(OUR_TAG), Targets=target)
    foreign = ours.target_group()
    for call in (controller.elb.register_targets, controller.elb.deregister_targets):
        with pytest.raises(ClientError, match=REFUSED):
            call(TargetGroupArn=foreign, Targets=target)


def test_who_takes_out_sees_the_target_group(
    ours: Ours, controller: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both who route learn there of a target's port that no row tells, and that a group is gone."""
    router = TargetGroupRouter(clients(controller, monkeypatch))
    spec = replace(demo_spec(), target_group_arn=ours.target_group(OUR_TAG))
    target = ours.run(ours.ground.aws, ImageId=IMAGE)
    eventually(lambda: ours.ground.states([target]) == ["running"], "it runs")
    assert not router.register(spec, [target], {target: 8081})
    assert router.ports(spec) == {target: 8081}
    ours.ground.aws.elb.delete_target_group(TargetGroupArn=spec.target_group_arn)
    router.deregister(spec, [target], {target: 8081})


def test_the_survey_writes_surveys_and_days_only(ours: Ours) -> None:
    """It can't overwrite a replica's row, nor a controller a survey or a day, nor anybody delete history."""
    survey = ours.assume(Function.SURVEY).client("dynamodb")
    reconcile = ours.assume(Function.RECONCILE).client("dynamodb")

    def key(partition: str) -> dict[str, Any]:
        return {"PK": {"S": partition}, "SK": {"S": "x"}}

    survey.put_item(TableName=ours.table, Item=key("SURVEY#demo"))
    survey.put_item(TableName=ours.table, Item=key("DAYS#demo"))
    reconcile.put_item(TableName=ours.table, Item=key("SERVICE#demo"))
    attempts: tuple[Callable[[], object], ...] = (
        lambda: survey.put_item(TableName=ours.table, Item=key("SERVICE#demo")),
        lambda: survey.put_item(TableName=ours.table, Item=key("SERVICES")),
        lambda: survey.put_item(TableName=ours.table, Item=key("HISTORY#demo")),
        lambda: survey.get_item(TableName=ours.table, Key=key("INSTANCE#i-1")),
        lambda: reconcile.put_item(TableName=ours.table, Item=key("DAYS#demo")),
        lambda: reconcile.put_item(TableName=ours.table, Item=key("SURVEY#demo")),
        lambda: reconcile.delete_item(TableName=ours.table, Key=key("HISTORY#demo")),
        lambda: reconcile.scan(TableName=ours.table),
    )
    for refused in attempts:
        with pytest.raises(ClientError, match=REFUSED):
            refused()


def test_who_adopts_writes_rows_and_nothing_else(ours: Ours, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the policy of docs/adopting.md: what is in the target group gets rows and the two tags."""
    adopter = ours.ground.aws.assume(*policy("adopting.md", ours.table))
    group = ours.target_group()
    spec = replace(demo_spec(), target_group_arn=group)
    foreign = ours.run(ours.ground.aws, ImageId=IMAGE, TagSpecifications=[])
    eventually(lambda: ours.ground.states([foreign]) == ["running"], "it runs")
    ours.ground.aws.elb.register_targets(TargetGroupArn=group, Targets=[{"Id": foreign}])

    with_rights = clients(adopter, monkeypatch)
    targets, store = RegisteredTargets(with_rights), DynamoStore(Table(with_rights, ours.table))
    targets.hand_over(spec.service, [foreign])
    rows, found = store.load(spec.service), targets.found(spec)
    store.commit(adoption.decide(spec, rows, found, datetime.now(UTC), is_to_be_replaced=False))
    assert [r.instance_id for r in store.load(spec.service).replicas.values()] == [foreign]
    table = adopter.client("dynamodb")
    attempts: list[Callable[[], object]] = [
        lambda: table.query(
            TableName=ours.table,
            KeyConditionExpression="PK = :of",
            ExpressionAttributeValues={":of": {"S": "HISTORY#demo"}},
        ),
        lambda: adopter.ec2.create_tags(Resources=[foreign], Tags=[{"Key": "Owner", "Value": "me"}]),
        lambda: adopter.ec2.terminate_instances(InstanceIds=[foreign]),
    ]
    for partition in set(Partition) - {Partition.SERVICE, Partition.INSTANCE, Partition.SERVICES}:
        item: Any = {"PK": {"S": f"{partition}demo"}, "SK": {"S": "x"}}
        attempts.append(partial(table.put_item, TableName=ours.table, Item=item))
    for refused in attempts:
        with pytest.raises(ClientError, match=REFUSED):
            refused()


def test_other_queues_functions_and_parameters_are_out_of_reach(ours: Ours) -> None:
    """A function sends to its own queues, invokes probers and reads documents, and nothing beside."""
    by = ours.assume(Function.RECONCILE)
    other, _ = ours.ground.aws.queue()
    for own in (ours.tick_queue, ours.leave_queue):
        by.sqs.send_message(QueueUrl=own, MessageBody="{}")
    functions, parameters = by.client("lambda"), by.client("ssm")
    attempts: tuple[Callable[[], object], ...] = (
        lambda: by.sqs.send_message(QueueUrl=other, MessageBody="{}"),
        lambda: by.sqs.receive_message(QueueUrl=ours.tick_queue),
        lambda: functions.invoke(FunctionName="somebody-elses"),
        lambda: parameters.get_parameters(Names=["/spotrelay/services/demo", "/secrets/token"]),
        lambda: parameters.put_parameter(Name="/spotrelay/services/demo", Value="{}", Type="String"),
    )
    for refused in attempts:
        with pytest.raises(ClientError, match=REFUSED):
            refused()

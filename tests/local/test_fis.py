"""Fault Injection Service: Spot interruptions by experiment, as strict as AWS."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.local.conftest import Aws, Ground, eventually
from tests.local.test_interruption import WARNING, Mailbox, interruption, status_code

pytestmark = pytest.mark.xdist_group("local")

ACTION = "aws:ec2:send-spot-instance-interruptions"
REBALANCE = "EC2 Instance Rebalance Recommendation"


def arn(instance_id: str) -> str:
    """The ARN of an instance."""
    return f"arn:aws:ec2:us-east-1:000000000000:instance/{instance_id}"


def make_role(aws: Aws, *actions: str, trusts: str = "fis.amazonaws.com") -> str:
    """The ARN of a role for FIS that may do this."""
    iam, name = aws.client("iam"), f"fis-{uuid.uuid4().hex[:8]}"
    trust = {"Effect": "Allow", "Principal": {"Service": trusts}, "Action": "sts:AssumeRole"}
    role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps({"Statement": [trust]}))
    if actions:
        policy = {"Statement": [{"Effect": "Allow", "Action": list(actions), "Resource": "*"}]}
        iam.put_role_policy(RoleName=name, PolicyName="p", PolicyDocument=json.dumps(policy))
    return str(role["Role"]["Arn"])


@pytest.fixture
def role(aws: Aws) -> str:
    """A role as FIS needs it."""
    return make_role(aws, "ec2:DescribeInstances", "ec2:SendSpotInstanceInterruptions")


def template(role: str, *instance_ids: str, duration: str = "PT2M", **target: Any) -> dict[str, Any]:
    """What CreateExperimentTemplate is asked."""
    where = {"resourceArns": [arn(id_) for id_ in instance_ids]} if instance_ids else {}
    return {
        "clientToken": uuid.uuid4().hex,
        "description": "a drill",
        "roleArn": role,
        "stopConditions": [{"source": "none"}],
        "targets": {
            "victims": {
                "resourceType": "aws:ec2:spot-instance", "selectionMode": "ALL", **where, **target
            }
        },
        "actions": {
            "interrupt": {
                "actionId": ACTION,
                "parameters": {"durationBeforeInterruption": duration},
                "targets": {"SpotInstances": "victims"},
            }
        },
        "tags": {"from": "test"},
    }  # fmt: skip


def fis_of(aws: Aws) -> Any:
    """A client that leaves it to the other side to find mistakes."""
    import boto3

    key, secret, token = aws.credentials
    return boto3.client(
        "fis",
        endpoint_url=aws.endpoint,
        region_name="us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        aws_session_token=token,
        config=Config(retries={"total_max_attempts": 1}, parameter_validation=False),
    )


def started(fis: Any, asked: dict[str, Any]) -> str:
    """The ID of an experiment from a new template, which is gone again."""
    id_ = fis.create_experiment_template(**asked)["experimentTemplate"]["id"]
    experiment = fis.start_experiment(clientToken=uuid.uuid4().hex, experimentTemplateId=id_)["experiment"]
    fis.delete_experiment_template(id=id_)
    return str(experiment["id"])


def ended(fis: Any, id_: str) -> dict[str, Any]:
    """The experiment once it is over."""

    def look() -> dict[str, Any] | None:
        found: dict[str, Any] = fis.get_experiment(id=id_)["experiment"]
        return found if found["state"]["status"] not in ("initiating", "running") else None

    return eventually(look, f"{id_} is over")


def refused(call: Callable[[], Any]) -> tuple[str, int]:
    """The code and status of what the call gets."""
    with pytest.raises(ClientError) as caught:
        call()
    return (
        caught.value.response["Error"]["Code"],
        caught.value.response["ResponseMetadata"]["HTTPStatusCode"],
    )


def test_an_experiment_interrupts_as_ec2_does(ground: Ground, role: str) -> None:
    """Recommendation, then the notice, the reclaim, and a Spot request that says whose doing it was."""
    mailbox, fis = Mailbox(ground), fis_of(ground.aws)
    (instance_id,) = ground.running(1)
    made = fis.create_experiment_template(**template(role, instance_id))["experimentTemplate"]
    assert made["id"].startswith("EXT")
    assert made["tags"] == {"from": "test"}
    experiment = fis.start_experiment(
        clientToken="once", experimentTemplateId=made["id"], tags={"run": "1"}
    )["experiment"]  # fmt: skip
    assert (experiment["state"]["status"], experiment["experimentTemplateId"]) == ("initiating", made["id"])
    over = ended(fis, experiment["id"])
    assert (over["state"]["status"], over["tags"]) == ("completed", {"run": "1"})
    assert over["actions"]["interrupt"]["state"]["status"] == "completed"
    assert over["targets"]["victims"]["resourceArns"] == [arn(instance_id)]
    assert over["startTime"] <= over["endTime"]
    eventually(lambda: mailbox.read(WARNING, instance_id), "the notice arrives")
    assert mailbox.read(REBALANCE, instance_id)
    assert status_code(ground, instance_id) == "instance-terminated-by-experiment"
    eventually(lambda: interruption(ground, instance_id)["reclaimed_at"], "it is taken")
    eventually(lambda: ground.states([instance_id]) == ["terminated"], "it is gone")
    assert status_code(ground, instance_id) == "instance-terminated-by-experiment"


def test_the_notice_comes_two_minutes_before_the_end(ground: Ground, role: str) -> None:
    """With more than two minutes the recommendation is alone at first; a stop takes nothing back."""
    mailbox, fis = Mailbox(ground), fis_of(ground.aws)
    (instance_id,) = ground.running(1)
    id_ = started(fis, template(role, instance_id, duration="PT4M"))
    ended(fis, id_)
    eventually(lambda: mailbox.read(REBALANCE, instance_id), "the recommendation arrives")
    assert not mailbox.read(WARNING, instance_id)
    assert status_code(ground, instance_id) == "fulfilled"
    assert refused(lambda: fis.stop_experiment(id=id_)) == ("ValidationException", 400)
    eventually(lambda: mailbox.read(WARNING, instance_id), "the notice arrives")


def test_targets_by_tags(ground: Ground, role: str) -> None:
    """As many as the selection mode says, of those that have all the tags."""
    fis = fis_of(ground.aws)
    ids = ground.running(3)
    ground.aws.ec2.create_tags(Resources=ids[:2], Tags=[{"Key": "drill", "Value": role}])
    by_tags: dict[str, Any] = {
        "resourceTags": {"drill": role, "from": "template"},
        "selectionMode": "COUNT(1)",
    }
    over = ended(fis, started(fis, template(role, **by_tags)))
    (hit,) = over["targets"]["victims"]["resourceArns"]
    assert hit in [arn(id_) for id_ in ids[:2]]


@pytest.mark.parametrize("option", ["on-demand", None])
def test_no_target_is_found(ground: Ground, role: str, option: str | None) -> None:
    """On-demand instances are no Spot instances, and what isn't there isn't found: the experiment fails."""
    instance_id = "i-0123456789abcdef0"
    if option:
        fleet = ground.fleet(["g5.2xlarge"], option=option)
        instance_id = fleet["Instances"][0]["InstanceIds"][0]
        eventually(lambda: ground.states([instance_id]) == ["running"], "it runs")
    fis = fis_of(ground.aws)
    over = ended(fis, started(fis, template(role, instance_id)))
    assert over["state"] == {"status": "failed", "reason": "Target resolution returned empty set"}
    assert over["actions"]["interrupt"]["state"]["status"] == "cancelled"
    assert not [i for i in ground.aws.local.interruptions() if i["instance_id"] == instance_id]


def test_too_many_targets(ground: Ground, role: str) -> None:
    """An action interrupts five instances at most."""
    fis, ids = fis_of(ground.aws), ground.running(6)
    ground.aws.ec2.create_tags(Resources=ids, Tags=[{"Key": "many", "Value": role}])
    over = ended(fis, started(fis, template(role, resourceTags={"many": role})))
    assert over["state"]["status"] == "failed"
    assert "takes 5" in over["state"]["reason"]


@pytest.mark.parametrize("lacks", ["interruption", "sight", "trust", "role"])
def test_the_experiments_role(ground: Ground, lacks: str) -> None:
    """FIS acts as the role: one that isn't there, trusts somebody else or may do nothing fails it."""
    roles: dict[str, Callable[[], str]] = {
        "interruption": lambda: make_role(ground.aws, "ec2:DescribeInstances"),
        "sight": lambda: make_role(ground.aws, "ec2:SendSpotInstanceInterruptions"),
        "trust": lambda: make_role(ground.aws, "*", trusts="ec2.amazonaws.com"),
        "role": lambda: "arn:aws:iam::000000000000:role/nobody",
    }
    (instance_id,) = ground.running(1)
    fis = fis_of(ground.aws)
    over = ended(fis, started(fis, template(roles[lacks](), instance_id)))
    assert over["state"]["status"] == "failed"
    said = {
        "interruption": "ec2:SendSpotInstanceInterruptions",
        "sight": "ec2:DescribeInstances",
    }.get(lacks, "Unable to assume role")
    assert said in over["state"]["reason"]
    assert ground.states([instance_id]) == ["running"]


def _with(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Sets what the path, with dots, leads to; None removes it."""

    def change(asked: dict[str, Any]) -> None:
        *way, last = path.split(".")
        for name in way:
            asked = asked[name]
        if value is None:
            del asked[last]
        else:
            asked[last] = value

    return change


IDS = [arn(f"i-{n:017x}") for n in range(6)]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("actions.interrupt.parameters.durationBeforeInterruption", "PT1M"),
        ("actions.interrupt.parameters.durationBeforeInterruption", "PT16M"),
        ("actions.interrupt.parameters.durationBeforeInterruption", "120"),
        ("actions.interrupt.parameters", None),
        ("actions.interrupt.parameters.more", "x"),
        ("actions.interrupt.actionId", "aws:ec2:terminate-instances"),
        ("actions.interrupt.targets", None),
        ("actions.interrupt.targets", {"Instances": "victims"}),
        ("actions.interrupt.targets.SpotInstances", "others"),
        ("actions", {}),
        ("targets", None),
        ("targets.victims.resourceType", "aws:ec2:instance"),
        ("targets.victims.resourceArns", IDS),
        ("targets.victims.resourceArns", None),
        ("targets.victims.resourceArns", ["arn:aws:ec2:us-east-1:111111111111:instance/i-01"]),
        ("targets.victims.resourceTags", {"both": "given"}),
        ("targets.victims.selectionMode", "COUNT(0)"),
        ("targets.victims.selectionMode", None),
        ("stopConditions", []),
        ("stopConditions", None),
        ("stopConditions", [{"source": "somebody"}]),
        ("stopConditions", [{"source": "aws:cloudwatch:alarm"}]),
        ("stopConditions", [{"source": "aws:cloudwatch:alarm", "value": "no ARN of an alarm"}]),
        ("roleArn", None),
        ("roleArn", "spotrelay-drill"),
        ("clientToken", "with space " * 1024),
        ("description", "x" * 513),
        ("tags", {f"tag{n}": "" for n in range(51)}),
        ("experimentOptions", {"emptyTargetResolutionMode": "maybe"}),
    ],
)
def test_a_template_that_aws_refuses(aws: Aws, path: str, value: Any) -> None:
    """Whatever is missing, too much or misspelt is a ValidationException, and no template is made."""
    asked = template("arn:aws:iam::000000000000:role/drill", "i-0123456789abcdef0")
    _with(path, value)(asked)
    fis = fis_of(aws)
    assert refused(lambda: fis.create_experiment_template(**asked)) == ("ValidationException", 400)


def test_an_alarm_may_stop_it(aws: Aws) -> None:
    """A stop condition may be an alarm, and the template shows what was asked."""
    alarm = "arn:aws:cloudwatch:us-east-1:000000000000:alarm:five-hundreds"
    asked = template("arn:aws:iam::000000000000:role/drill", "i-0123456789abcdef0")
    asked["stopConditions"] = [{"source": "aws:cloudwatch:alarm", "value": alarm}]
    made = fis_of(aws).create_experiment_template(**asked)["experimentTemplate"]
    assert made["stopConditions"] == asked["stopConditions"]
    assert made["targets"] == asked["targets"]


def test_what_is_not_there(aws: Aws) -> None:
    """Unknown templates and experiments are ResourceNotFoundExceptions."""
    fis = fis_of(aws)
    calls: list[Callable[[], Any]] = [
        lambda: fis.start_experiment(clientToken="t", experimentTemplateId="EXT1"),
        lambda: fis.delete_experiment_template(id="EXT1"),
        lambda: fis.get_experiment(id="EXP1"),
        lambda: fis.stop_experiment(id="EXP1"),
    ]
    assert {refused(call) for call in calls} == {("ResourceNotFoundException", 404)}


def test_a_client_token_counts_once(ground: Ground, role: str) -> None:
    """The same call again changes nothing and is answered alike; another one with its token is a conflict."""
    fis = fis_of(ground.aws)
    (instance_id,) = ground.running(1)
    asked = template(role, instance_id)
    first = fis.create_experiment_template(**asked)["experimentTemplate"]
    assert fis.create_experiment_template(**asked)["experimentTemplate"]["id"] == first["id"]
    other = {**asked, "description": "another"}
    assert refused(lambda: fis.create_experiment_template(**other)) == ("ConflictException", 409)
    token = uuid.uuid4().hex
    start = {"clientToken": token, "experimentTemplateId": first["id"]}
    ids = {fis.start_experiment(**start)["experiment"]["id"] for _ in range(2)}
    assert len(ids) == 1


@pytest.mark.parametrize(
    "lacks",
    [
        "fis:CreateExperimentTemplate", "fis:TagResource", "iam:PassRole", "fis:StartExperiment",
        "fis:GetExperiment",
    ],
)  # fmt: skip
def test_who_may_not(ground: Ground, role: str, lacks: str) -> None:
    """Each call needs its own permission, a template's tags and its role one more each."""
    actions = {
        "fis:CreateExperimentTemplate", "fis:TagResource", "iam:PassRole", "fis:StartExperiment",
        "fis:GetExperiment", "fis:DeleteExperimentTemplate",
    }  # fmt: skip
    may = {"Effect": "Allow", "Action": sorted(actions - {lacks}), "Resource": "*"}
    fis = fis_of(ground.aws.assume(may))
    asked = template(role, "i-0123456789abcdef0")
    with pytest.raises(ClientError, match=lacks) as caught:
        ended(fis, started(fis, asked))
    assert "AccessDenied" in caught.value.response["Error"]["Code"]


def test_what_is_tagged_later_counts(ground: Ground, role: str) -> None:
    """Whoever may tag may give a template any tag, and who may use those with that tag may use it then."""
    fis, (instance_id,) = fis_of(ground.aws), ground.running(1)
    made = fis.create_experiment_template(**template(role, instance_id))["experimentTemplate"]
    ours = {"Effect": "Allow", "Action": "fis:*", "Resource": "*"}
    ours["Condition"] = {"StringEquals": {"aws:ResourceTag/whose": "ours"}}  # type: ignore[assignment]
    by_tag = fis_of(ground.aws.assume(ours))
    assert refused(lambda: by_tag.delete_experiment_template(id=made["id"]))[1] == 403
    fis.tag_resource(resourceArn=made["arn"], tags={"whose": "ours"})
    gone = by_tag.delete_experiment_template(id=made["id"])["experimentTemplate"]
    assert gone["tags"] == {"from": "test", "whose": "ours"}
    assert refused(lambda: fis.tag_resource(resourceArn=made["arn"], tags={"a": "b"}))[1] == 404

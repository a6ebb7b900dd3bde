"""Who may do what: each "no" of the table in docs/security.md, tried with exactly those rights."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

from lab.local.environment import ACCOUNT, REGION
from spotrelay.plane.core.names import TAG_SERVICE, prober_function, service_parameter
from spotrelay.plane.core.pools import PurchaseOption
from tests.documented import DOCS, policy
from tests.e2e.stand import Stand

REFUSED = r"Denied|Unauthorized|NotAuthorized|AuthorizationError"

UNSIGNED_REFUSED = rf"{REFUSED}|AuthenticationToken|AWSAccessKeyId|InvalidAction|\(405\)"
"""Whoever brings no credentials hears from EC2 that the parameter AWSAccessKeyId is missing. The local cloud
has nobody who takes some requests that aren't signed: FIS's (405), and those for fleets (InvalidAction)."""

SECRET = "/elsewhere/token"

Attempt = Callable[[], object]


def table() -> Iterator[tuple[str, Mapping[str, str]]]:
    """Who, and by what the cell."""
    text = (DOCS / "security.md").read_text(encoding="utf-8")
    section = text.partition("## Who may do what\n")[2].partition("\n## ")[0]
    head, _, *rows = (line for line in section.splitlines() if line.startswith("|"))
    _, *columns = cells_of(head)
    for row in rows:
        who, *cells = cells_of(row)
        yield who, dict(zip(columns, cells, strict=True))


def cells_of(line: str) -> list[str]:
    """A line of a table."""
    return [cell.strip() for cell in line.strip("|").split("|")]


def is_no(cell: str) -> bool:
    """Whether it says no, perhaps but for what is one's own."""
    return cell.partition(" ")[0] == "no"


ROWS = dict(table())


class People:
    """Makes sessions of those of the table."""

    def __init__(self, deployed: Stand) -> None:
        self._deployed = deployed
        self._iam = deployed.operator.session.client("iam")

    def session(self, who: str) -> boto3.Session | None:
        """Theirs; None for whoever has no credentials."""
        outputs = self._deployed.outputs
        prober = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{prober_function(self._deployed.service)}"
        queue = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{outputs['TickQueueUrl'].rsplit('/', 1)[1]}"
        match who.partition(" (")[0].strip("`"):
            case "a replica":
                return self._replica()
            case "OperatorPolicy" | "DrillPolicy" as name:
                return self._with(who, attached=outputs[name])
            case "who scales":
                return self._with(who, *policy("commands.md", outputs["TableName"], queue))
            case "who adopts":
                return self._with(who, *policy("adopting.md", outputs["TableName"]))
            case "who invokes the prober":
                return self._with(
                    who, {"Effect": "Allow", "Action": "lambda:InvokeFunction", "Resource": prober}
                )
            case "ec2:CreateTags" | "cloudwatch:PutMetricData" | "events:PutEvents" as action:
                return self._with(who, {"Effect": "Allow", "Action": action, "Resource": "*"})
            case "a client":
                return None
        raise AssertionError(f"nobody here is {who}")

    def _with(self, who: str, *statements: Mapping[str, Any], attached: str = "") -> boto3.Session:
        name = "access-" + re.sub(r"\W+", "-", who)
        session = self._deployed.assume(name)
        if attached:
            self._iam.attach_role_policy(RoleName=name, PolicyArn=attached)
        if statements:
            document = json.dumps({"Version": "2012-10-17", "Statement": statements})
            self._iam.put_role_policy(RoleName=name, PolicyName="p", PolicyDocument=document)
        return session

    def _replica(self) -> boto3.Session:
        """What its metadata address gives: the keys of its role."""
        ec2 = self._deployed.operator.session.client("ec2")
        (instance_id, *_) = sorted(self._deployed.targets())
        found = ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]
        profile = found["IamInstanceProfile"]["Arn"].rpartition("/")[2]
        role = self._iam.get_instance_profile(InstanceProfileName=profile)["InstanceProfile"]["Roles"][0]
        trusted = json.dumps(
            self._iam.get_role(RoleName=role["RoleName"])["Role"]["AssumeRolePolicyDocument"]
        )
        anybody = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
        trust = json.dumps({"Version": "2012-10-17", "Statement": [anybody]})
        self._iam.update_assume_role_policy(RoleName=role["RoleName"], PolicyDocument=trust)
        sts = self._deployed.operator.session.client("sts")
        keys = sts.assume_role(RoleArn=role["Arn"], RoleSessionName="replica")["Credentials"]
        self._iam.update_assume_role_policy(RoleName=role["RoleName"], PolicyDocument=trusted)
        return boto3.Session(
            keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"], region_name=REGION
        )


def attempts(deployed: Stand, session: boto3.Session | None) -> Mapping[str, list[Attempt]]:
    """By column, the calls that would do it."""
    endpoint, outputs, spec = deployed.operator.deployment.endpoint, deployed.outputs, deployed.spec
    plain = Config(retries={"total_max_attempts": 1})

    def client(service: str) -> Any:
        if session is None:
            config = plain.merge(Config(signature_version=UNSIGNED))
            make: Any = boto3.client
            return make(service, endpoint_url=endpoint, region_name=REGION, config=config)
        made: Any = session.client
        return made(service, endpoint_url=endpoint, config=plain)

    ec2, ssm, rows, queues = client("ec2"), client("ssm"), client("dynamodb"), client("sqs")
    own = next(r for r in deployed.watch.look().ready if r.instance_id)
    template = {
        "LaunchTemplateId": spec.template(PurchaseOption.SPOT).id,
        "Version": spec.template(PurchaseOption.SPOT).version,
    }

    pool = spec.pools[0]
    subnet = next(id_ for id_, zone in spec.subnets.items() if zone == pool.zone)

    def row(partition: str, key: str) -> Attempt:
        return lambda: rows.update_item(
            TableName=outputs["TableName"],
            Key={"PK": {"S": partition}, "SK": {"S": key}},
            UpdateExpression="SET x = :x",
            # Whoever may write changes nothing by it.
            ConditionExpression="attribute_exists(nothing)",
            ExpressionAttributeValues={":x": {"S": "x"}},
        )

    def told(queue: str) -> Attempt:
        return lambda: queues.send_message(QueueUrl=outputs[queue], MessageBody="{}")

    def document() -> object:
        return ssm.put_parameter(Name=service_parameter(deployed.service), Value="{}", Overwrite=True)

    action = {
        "actionId": "aws:ec2:send-spot-instance-interruptions",
        "targets": {"SpotInstances": "all"},
        "parameters": {"durationBeforeInterruption": "PT2M"},
    }
    victim = {
        "resourceType": "aws:ec2:spot-instance",
        "resourceArns": [f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/{own.instance_id}"],
        "selectionMode": "ALL",
    }
    service = f"SERVICE#{deployed.service}"
    return {
        "ends an instance": [
            lambda: ec2.terminate_instances(InstanceIds=[own.instance_id]),
            lambda: ec2.stop_instances(InstanceIds=[own.instance_id]),
            lambda: client("lambda").invoke(
                FunctionName=outputs["DrillFunction"],
                Payload=json.dumps({"instance_ids": [own.instance_id], "service": deployed.service}),
            ),
            lambda: client("fis").create_experiment_template(
                clientToken="access", description="warn", roleArn=outputs["DrillRole"],
                stopConditions=[{"source": "none"}], targets={"all": victim}, actions={"warn": action},
                tags={TAG_SERVICE: deployed.service},
            ),
            told("SignalQueueUrl"),
            row(service, "x"),
        ],
        "registers one": [
            lambda: client("elbv2").register_targets(
                TargetGroupArn=spec.target_group_arn, Targets=[{"Id": "i-0123456789abcdef0"}]
            ),
            row("INSTANCE#i-0123456789abcdef0", "x"),
        ],
        "reads a secret": [
            lambda: ssm.get_parameter(Name=SECRET, WithDecryption=True),
            lambda: ssm.get_parameters(Names=[SECRET], WithDecryption=True),
            lambda: ssm.get_parameters_by_path(Path="/", Recursive=True, WithDecryption=True),
        ],
        "starts capacity": [
            lambda: ec2.run_instances(
                LaunchTemplate=template, InstanceType=pool.instance_type, SubnetId=subnet,
                MinCount=1, MaxCount=1,
            ),
            lambda: ec2.create_fleet(
                Type="instant",
                LaunchTemplateConfigs=[
                    {
                        "LaunchTemplateSpecification": template,
                        "Overrides": [{"InstanceType": pool.instance_type, "SubnetId": subnet}],
                    }
                ],
                TargetCapacitySpecification={
                    "TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"
                },
            ),
            lambda: ec2.start_instances(InstanceIds=[own.instance_id]),
        ],
        "reads requests": [lambda: ec2.get_console_output(InstanceId=own.instance_id)],
        "stops scaling": [
            row(service, "META"),
            document,
            lambda: client("cloudwatch").put_metric_data(
                Namespace="SpotRelay", MetricData=[{"MetricName": "OngoingRequests", "Value": 0.0}]
            ),
            lambda: client("lambda").put_function_concurrency(
                FunctionName=prober_function(deployed.service), ReservedConcurrentExecutions=0
            ),
        ],
        "spends money": [row(service, "REQUEST"), document, told("TickQueueUrl")],
    }  # fmt: skip


@pytest.fixture(scope="module")
def planted(deployed: Stand) -> Stand:
    """The deployment, whole, and a secret that no service here names."""
    deployed.whole(deployed.spec.replicas)
    ssm = deployed.operator.session.client("ssm")
    ssm.put_parameter(Name=SECRET, Value="planted", Type="SecureString", Overwrite=True)
    return deployed


@pytest.mark.parametrize("who", ROWS)
def test_what_the_table_says_that_nobody_can_is_refused(planted: Stand, who: str) -> None:
    """Each attempt of each cell that says no."""
    session = People(planted).session(who)
    tried, refused = attempts(planted, session), REFUSED if session else UNSIGNED_REFUSED
    assert tried.keys() == ROWS[who].keys()
    for what, cell in ROWS[who].items():
        for attempt in tried[what] if is_no(cell) else ():
            with pytest.raises(ClientError, match=refused):
                pytest.fail(f"{who} {what}: {answer(attempt)}")


def answer(attempt: Attempt) -> object:
    """What AWS answers. That there are too many requests is neither a yes nor a no."""
    while True:
        try:
            return attempt()
        except ClientError as error:
            if error.response["Error"]["Code"] != "RequestLimitExceeded":
                raise
        time.sleep(0.5)  # by when a start may be asked for again
